"""A real Prometheus behind TLS, client certificates, a password and a path."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from specpilot.telemetry.connection import (
    Connection,
    FaultKind,
    PrometheusError,
    PrometheusServer,
)
from tests.cluster import build
from tests.cluster.ports import free_port
from tests.cluster.processes import Process
from tests.integration.telemetry.certificates import Authority

pytestmark = pytest.mark.cluster

PASSWORD = "test"
HASHED = "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay"
"""The same as bcrypt; the pair is that of Prometheus' own guide."""
PREFIX = "/team/metrics"
SAMPLES = 50


@dataclass(frozen=True)
class Secured:
    """A Prometheus that scrapes itself, and who may ask it."""

    server: PrometheusServer
    authority: Authority


def query(server: PrometheusServer, text: str) -> list[dict[str, object]]:
    with Connection(server) as connection:
        body = connection.query(text, at=time.time(), timeout_s=20)
    result: list[dict[str, object]] = json.loads(body)["data"]["result"]
    return result


def fault(server: PrometheusServer, text: str = "vector(1)") -> PrometheusError:
    with pytest.raises(PrometheusError) as caught:
        query(server, text)
    return caught.value


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority.make(directory, "authority")
    own, client = authority.issue("server"), authority.issue("client")
    web = {
        "tls_server_config": {
            "cert_file": str(own.cert),
            "key_file": str(own.key),
            "client_ca_file": str(authority.pair.cert),
            "client_auth_type": "RequireAndVerifyClientCert",
        },
        "basic_auth_users": {"ann": HASHED},
    }
    (directory / "web.yaml").write_text(yaml.safe_dump(web))
    (directory / "prometheus.yaml").write_text("scrape_configs: []\n")
    (directory / "password").write_text(f"{PASSWORD}\n")
    port = free_port()
    process = Process(
        name="prometheus",
        command=[
            build.tools(quiet=True)["prometheus"],
            f"--config.file={directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--web.config.file={directory / 'web.yaml'}",
            f"--web.external-url=https://127.0.0.1:{port}{PREFIX}",
            f"--web.route-prefix={PREFIX}",
            f"--query.max-samples={SAMPLES}",
            "--log.level=warn",
        ],
        log=directory / "prometheus.log",
    )
    server = PrometheusServer(
        url=f"https://127.0.0.1:{port}{PREFIX}/",
        username="ann",
        password_file=directory / "password",
        ca_file=authority.pair.cert,
        cert_file=client.cert,
        key_file=client.key,
    )

    def ready() -> bool:
        try:
            return bool(query(server, "vector(1)"))
        except PrometheusError:
            return False

    process.start()
    try:
        process.wait_ready(ready, deadline=60)
        yield Secured(server, authority)
    finally:
        process.stop()


def test_it_answers_below_its_path(secured: Secured) -> None:
    [element] = query(secured.server, "vector(7)")
    assert element["value"][1] == "7"  # type: ignore[index]


def test_a_long_query_is_taken_as_a_form(secured: Secured) -> None:
    text = "vector(1) or " + " or ".join(f'up{{pod="pod-{n}"}}' for n in range(40))
    assert len(query(secured.server, text + " " * 200_000)) == 1


def test_a_wrong_password_is_told(secured: Secured, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("s3cret-wrong")
    error = fault(replace(secured.server, password_file=wrong))
    assert error.kind is FaultKind.DENIED
    assert f"user 'ann' with the password of {wrong}, the client certificate" in str(error)
    assert "s3cret" not in str(error)


def test_without_a_client_certificate_nothing_is_said(secured: Secured) -> None:
    error = fault(replace(secured.server, cert_file=None, key_file=None))
    assert error.kind is FaultKind.UNREACHABLE
    assert "a client certificate" in str(error)  # in an alert, unless the reset overtakes it


def test_a_stranger_is_turned_away(secured: Secured, tmp_path: Path) -> None:
    pair = Authority.make(tmp_path, "stranger").issue("mallory")
    error = fault(replace(secured.server, cert_file=pair.cert, key_file=pair.key))
    assert "does not accept the client certificate" in str(error)


def test_the_path_matters(secured: Secured) -> None:
    error = fault(replace(secured.server, url=secured.server.url.replace(PREFIX, "/other")))
    assert error.kind is FaultKind.NOT_PROMETHEUS
    assert "check the path of the URL" in str(error)


def test_plain_http_is_told(secured: Secured) -> None:
    error = fault(PrometheusServer(url=secured.server.url.replace("https:", "http:")))
    assert "Client sent an HTTP request to an HTTPS server" in str(error)


def test_prometheus_own_words_come_through(secured: Secured) -> None:
    error = fault(secured.server, "sum(")
    assert error.kind is FaultKind.REFUSED
    assert "bad_data: invalid parameter" in str(error)
    assert not error.too_large


def test_its_sample_limit_is_known(secured: Secured) -> None:
    many = " or ".join(f'label_replace(vector(1), "n", "{n}", "", "")' for n in range(SAMPLES * 2))
    error = fault(secured.server, many)
    assert error.kind is FaultKind.REFUSED
    assert error.too_large
    assert "too many samples" in str(error)


def test_a_duplicate_is_no_matter_of_size(secured: Secured) -> None:
    two = '(vector(1) or label_replace(vector(1), "n", "2", "", ""))'
    error = fault(secured.server, f"{two} * on() {two}")
    assert not error.too_large
    assert "execution: " in str(error)
