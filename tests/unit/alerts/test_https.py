"""Over TLS, the certificate must be the name's, although the connection goes to an address."""

import random
import shutil
import ssl
import subprocess
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from specpilot.alerts import Backoff, Channel, ChannelKind, Dispatched, Dispatcher
from specpilot.alerts.sending import _request
from specpilot.store import Store
from tests.unit.alerts import receiver as receiving
from tests.unit.alerts.conftest import ManualClock


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for hooks.example, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine")
    home = tmp_path_factory.mktemp("tls")
    cert, key = home / "cert.pem", home / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "30000", "-subj", "/CN=hooks.example"]
    command += ["-addext", "subjectAltName=DNS:hooks.example", "-keyout", key, "-out", cert]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@pytest.mark.parametrize(
    ("host", "expected"),
    [("hooks.example", Dispatched(delivered=1)), ("other.example", Dispatched(failed=1))],
)
def test_the_certificate_is_checked_against_the_name(
    certificate: tuple[Path, Path],
    store: Store,
    clock: ManualClock,
    *,
    host: str,
    expected: Dispatched,
) -> None:
    cert, key = certificate
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    trust = ssl.create_default_context(cafile=str(cert))
    with receiving.running(tls=tls) as receiver, httpx.Client(verify=trust) as client:
        port = receiver.host.rpartition(":")[2]
        channel = Channel(
            name="oncall",
            kind=ChannelKind.WEBHOOK,
            url=f"https://{host}:{port}/hook",
            allow_private=True,
        )
        with store.begin() as unit:
            unit.outbox.enqueue(
                dedupe_key="a", channel="oncall", event="Flipped", payload={}, at=clock.now()
            )
        result = Dispatcher(
            store=store,
            channels={"oncall": channel},
            client=client,
            clock=clock,
            backoff=Backoff(first=timedelta(seconds=1)),
            rng=random.Random(1),
            resolve=lambda _host, _port: ["127.0.0.1"],
        ).deliver_due()
        assert result == expected
        assert len(receiver.received) == expected.delivered
        if expected.failed:
            with store.read() as unit:
                assert "CERTIFICATE_VERIFY_FAILED" in unit.outbox.deliveries()[0].error


@pytest.mark.parametrize(
    ("url", "asked", "address", "host_header"),
    [
        ("https://hooks.example/a?b=c", "hooks.example", "93.184.216.34", "hooks.example"),
        ("https://[2606:2800:220:1::1]:8443/", None, None, "[2606:2800:220:1::1]:8443"),
        ("https://bücher.example/", "xn--bcher-kva.example", "93.184.216.34", None),
        ("https://hooks.example/", "hooks.example", "2606:2800:220:1::2", "hooks.example"),
    ],
)
def test_the_request_goes_to_the_address_and_names_the_host(
    clock: ManualClock,
    client: httpx.Client,
    *,
    url: str,
    asked: str | None,
    address: str | None,
    host_header: str | None,
) -> None:
    hosts: list[str] = []

    def resolve(host: str, _port: int) -> list[str]:
        hosts.append(host)
        return [address or host]

    request = _request(
        Channel(name="c", kind=ChannelKind.WEBHOOK, url=url),
        message_id="msg_1",
        payload={},
        attempt=0,
        at=clock.now(),
        client=client,
        resolve=resolve,
    )
    expected = asked or "2606:2800:220:1::1"
    assert hosts == [expected]
    assert request.url.host == (address or expected)
    assert request.headers["host"] == (host_header or expected)
    assert request.extensions["sni_hostname"] == expected
    assert request.url.raw_path == httpx.URL(url).raw_path
