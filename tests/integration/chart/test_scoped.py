"""An operator that may only work in some namespaces does so with rights in those alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from specpilot.domain.changes import Phase
from tests.cluster.cluster import Cluster
from tests.scenarios.installation import SCOPED, VALUES, Installation, installed
from tests.scenarios.serving import NGRAM, ON_WHEN_USED, POLICY, Serving

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

INSIDE, OUTSIDE = SCOPED


@pytest.fixture
def scoped(cluster: Cluster) -> Iterator[Installation]:
    """Installed for one of two namespaces, without any right in the whole cluster."""
    values = {
        **VALUES,
        "prometheus.url": cluster.prometheus.url,
        "watchNamespaces": f"{{{INSIDE}}}",
        "rbac.readNodes": "false",
        "rbac.userRoles": "false",
    }
    with (
        cluster.namespace(INSIDE),
        cluster.namespace(OUTSIDE),
        installed(cluster, values=values, namespace="specpilot-scoped") as installation,
    ):
        yield installation


def test_it_flips_where_it_may_and_leaves_the_rest_alone(
    cluster: Cluster, scoped: Installation
) -> None:
    inside, outside = (
        Serving(cluster=cluster, installation=scoped, namespace=name) for name in (INSIDE, OUTSIDE)
    )
    roles = cluster.run("kubectl", "get", "clusterrolebindings", "-o", "name", deadline=30)
    assert scoped.namespace not in roles, "another installation of this cluster may have some"
    inside.serve()
    for place in (inside, outside):
        place.apply(ON_WHEN_USED, POLICY)
    inside.until(lambda: inside.status().get("active") == "off")
    with inside.load():
        inside.until_phase(Phase.SUCCEEDED)
    assert inside.engines() == [NGRAM] * 3
    assert outside.status() == {}, "nobody looked at it"
    forbidden = [line for line in scoped.log.splitlines() if "forbidden" in line.lower()]
    assert len(forbidden) <= 1, "said once"
    assert all("nodes" in line for line in forbidden), "what rbac.readNodes would allow"
