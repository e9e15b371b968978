"""One installation for all scenarios; each has a namespace of its own."""

import base64
import secrets
from collections.abc import Iterator

import pytest

from specpilot.cli.demo.receiver import Receiver
from tests.cluster.cluster import Cluster
from tests.scenarios.installation import SCOPED, VALUES, WEBHOOK_SECRET, Installation, installed
from tests.scenarios.serving import CHANNEL, Serving


@pytest.fixture(scope="package")  # it would steer what other tests apply after these
def installation(cluster: Cluster) -> Iterator[Installation]:
    values = {
        **VALUES,
        "prometheus.url": cluster.prometheus.url,
        "ignoreNamespaces": f"{{{','.join(SCOPED)}}}",
    }
    with installed(cluster, values=values) as running:
        yield running


@pytest.fixture
def serving(cluster: Cluster, installation: Installation, namespace: str) -> Serving:
    return Serving(cluster=cluster, installation=installation, namespace=namespace)


@pytest.fixture
def receiver(serving: Serving) -> Iterator[Receiver]:
    """A webhook receiver that the AlertChannel `oncall` of the namespace leads to."""
    key = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    with Receiver(secret=key) as running:
        serving.apply(CHANNEL.format(url=running.url, secret=WEBHOOK_SECRET, key=key))
        yield running
