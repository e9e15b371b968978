"""A connection against servers that behave badly: it ends in time, in words, and keeps secrets."""

from __future__ import annotations

import gzip
import json
import logging
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlencode

import pytest

from specpilot.telemetry.connection import (
    Connection,
    FaultKind,
    PrometheusError,
    PrometheusServer,
    ServerError,
)
from tests.cluster.ports import free_port
from tests.integration.telemetry.certificates import Authority, Pair
from tests.integration.telemetry.servers import Answer, Seen, Server, serving

JSON = "application/json"
GOOD = Answer(b'{"status":"success","data":{"resultType":"vector","result":[]}}', content_type=JSON)
AT = 1_700_000_000.5


def ask(
    server: PrometheusServer, *, text: str = "up", timeout_s: float = 10.0, limit: int = 2**20
) -> bytes:
    with Connection(server, limit_bytes=limit) as connection:
        return connection.query(text, at=AT, timeout_s=timeout_s)


def fault(server: PrometheusServer, **options: object) -> PrometheusError:
    with pytest.raises(PrometheusError) as caught:
        ask(server, **options)  # type: ignore[arg-type]
    return caught.value


# --- what is asked


def test_a_short_query_is_a_get_below_the_path() -> None:
    with serving(GOOD) as server:
        assert ask(PrometheusServer(url=f"{server.url}/select/0/prometheus/")) == GOOD.body
    [seen] = server.seen
    assert (seen.method, seen.path) == ("GET", "/select/0/prometheus/api/v1/query")
    assert seen.query["query"] == "up"
    assert float(seen.query["time"]) == AT
    assert 9_000 < int(seen.query["timeout"].removesuffix("ms")) <= 10_000
    assert seen.query["partial_response"] == "false", "Thanos"
    assert seen.query["deny_partial_response"] == "1", "VictoriaMetrics"
    assert seen.headers["Accept-Encoding"] == "gzip"


def test_a_long_query_is_a_form() -> None:
    text = " or ".join(f'up{{pod="ünïcode+&{n}"}}' for n in range(500))
    with serving(GOOD) as server:
        ask(PrometheusServer(url=server.url), text=text)
    [seen] = server.seen
    assert (seen.method, seen.path, seen.query) == ("POST", "/api/v1/query", {})
    assert seen.form["query"] == text
    assert seen.headers["Content-Type"] == "application/x-www-form-urlencoded"


def test_connections_stay_open() -> None:
    with serving(GOOD) as server, Connection(PrometheusServer(url=server.url)) as connection:
        for _ in range(5):
            connection.query("up", at=AT, timeout_s=10)
    assert len({seen.client for seen in server.seen}) == 1


def test_packed_answers_are_unpacked() -> None:
    packed = Answer(
        gzip.compress(GOOD.body), content_type=JSON, headers={"Content-Encoding": "gzip"}
    )
    with serving(packed) as server:
        assert ask(PrometheusServer(url=server.url)) == GOOD.body


# --- time and size


@dataclass(frozen=True)
class Slow:
    reason: str
    answer: Answer


SLOW = [
    Slow("silence", Answer(delay_s=5)),
    Slow("a trickle of the body", Answer(GOOD.body * 9, trickle_s=0.05)),
    Slow("a trickle of the header", Answer(GOOD.body, trickle_s=0.05, trickle_head=True)),
    Slow("a trickle of an error", Answer(b"x" * 200, trickle_s=0.05, status=500)),
    Slow("a trickle without a length", Answer(GOOD.body * 9, trickle_s=0.05, length=-1)),
]


@pytest.mark.parametrize("case", SLOW, ids=lambda case: case.reason)
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_the_deadline_holds(case: Slow, secure: bool, authority: Authority) -> None:
    tls = authority.server(authority.issue("server")) if secure else None
    with serving(case.answer, tls=tls) as server:
        described = PrometheusServer(
            url=server.url, ca_file=authority.pair.cert if secure else None
        )
        started = time.monotonic()
        error = fault(described, timeout_s=0.5)
        took = time.monotonic() - started
    assert error.kind is FaultKind.LATE
    assert str(error).endswith("did not answer within 0.5 s")
    assert 0.4 < took < 1.5
    assert len(server.seen) == 1, "what is late is not asked again"


def test_no_time_is_no_question() -> None:
    with serving(GOOD) as server:
        assert fault(PrometheusServer(url=server.url), timeout_s=0).kind is FaultKind.LATE
    assert server.seen == []


def test_after_a_late_answer_the_next_one_is_its_own() -> None:
    answers = iter([Answer(b"not yours", delay_s=1.0), GOOD])
    with (
        serving(lambda _: next(answers)) as server,
        Connection(PrometheusServer(url=server.url)) as connection,
    ):
        with pytest.raises(PrometheusError):
            connection.query("up", at=AT, timeout_s=0.3)
        assert connection.query("up", at=AT, timeout_s=10) == GOOD.body


@pytest.mark.parametrize("length", [None, -1], ids=["a length", "no length"])
def test_too_much_is_cut_off(length: int | None) -> None:
    with serving(Answer(b" " * 2_000_000, content_type=JSON, length=length)) as server:
        error = fault(PrometheusServer(url=server.url), limit=1_500_000)
    assert (error.kind, error.too_large) == (FaultKind.OVERSIZED, True)
    assert "sent more than 1.43051 MiB" in str(error)
    assert len(server.seen) == 1


@pytest.mark.parametrize("layers", [1, 2])
def test_a_bomb_is_not_unpacked(layers: int) -> None:
    bomb = b" " * 400_000_000
    for _ in range(layers):
        bomb = gzip.compress(bomb, compresslevel=9)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    encoding = {"Content-Encoding": ", ".join(["gzip"] * layers)}
    with serving(Answer(bomb, content_type=JSON, headers=encoding)) as server:
        error = fault(PrometheusServer(url=server.url), limit=10_000_000)
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert error.kind is FaultKind.OVERSIZED
    assert grown_mib < 100


# --- trying again


@dataclass(frozen=True)
class Again:
    reason: str
    first: Answer
    times: int


AGAIN = [
    *(Again(f"{status} may pass", Answer(status=status), 2) for status in (429, 502, 503, 504)),
    Again("cut off", Answer(GOOD.body[:30], length=len(GOOD.body)), 2),
    Again("cut off without a length", Answer(GOOD.body[:30], length=-1), 2),
    Again("a bad query stays one", Answer(status=400), 1),
    Again("a limit stays one", Answer(status=422), 1),
    Again("it is broken", Answer(status=500), 1),
    Again("credentials stay wrong", Answer(status=401), 1),
]


@pytest.mark.parametrize("case", AGAIN, ids=lambda case: case.reason)
def test_only_what_may_pass_is_asked_again(case: Again) -> None:
    answers = iter([case.first, GOOD])
    with serving(lambda _: next(answers)) as server:
        if case.times == 1:
            fault(PrometheusServer(url=server.url))
        else:
            assert ask(PrometheusServer(url=server.url)) == GOOD.body
    assert len(server.seen) == case.times


def test_the_server_does_not_say_when_beyond_the_deadline() -> None:
    busy = Answer(b"busy", status=429, headers={"Retry-After": "3600"})
    with serving(busy) as server:
        started = time.monotonic()
        error = fault(PrometheusServer(url=server.url), timeout_s=1.0)
        assert time.monotonic() - started < 1.0
    assert "refused the query: busy (HTTP 429)" in str(error)
    assert len(server.seen) == 2


def test_nobody_listens() -> None:
    port = free_port()
    error = fault(PrometheusServer(url=f"http://127.0.0.1:{port}"))
    assert error.kind is FaultKind.UNREACHABLE
    assert str(error) == f"cannot reach 127.0.0.1:{port}: Connection refused"


def test_no_such_host() -> None:
    error = fault(PrometheusServer(url="http://no-such-host.invalid"), timeout_s=30)
    assert str(error).startswith("cannot reach no-such-host.invalid: ")


# --- credentials


def test_files_are_read_for_each_request(tmp_path: Path) -> None:
    token, key = tmp_path / "token", tmp_path / "key"
    token.write_text("t0ken-one\n")
    key.write_text("k3y-one\n")
    with serving(GOOD) as server:
        described = PrometheusServer(
            url=server.url, bearer_token_file=token, header_files={"X-Api-Key": key}
        )
        with Connection(described) as connection:
            connection.query("up", at=AT, timeout_s=10)
            token.write_text("t0ken-two")
            key.write_text("k3y-two")
            connection.query("up", at=AT, timeout_s=10)
            token.write_text("t0ken two")
            with pytest.raises(PrometheusError) as spoilt:
                connection.query("up", at=AT, timeout_s=10)
            token.unlink()
            with pytest.raises(PrometheusError) as lost:
                connection.query("up", at=AT, timeout_s=10)
    sent = [(seen.headers["Authorization"], seen.headers["X-Api-Key"]) for seen in server.seen]
    assert sent == [("Bearer t0ken-one", "k3y-one"), ("Bearer t0ken-two", "k3y-two")]
    assert spoilt.value.kind is lost.value.kind is FaultKind.CREDENTIALS
    assert "t0ken" not in str(spoilt.value)
    assert f"cannot read {token} (No such file" in str(lost.value)


Make = Callable[[str, Path], PrometheusServer]


@dataclass(frozen=True)
class Sent:
    reason: str
    make: Make
    authorization: str
    told: str


def _file(directory: Path, text: str) -> Path:
    path = directory / "secret"
    path.write_text(text)
    return path


SENT = [
    Sent("nothing", lambda url, _: PrometheusServer(url=url), "", "no credentials"),
    Sent(
        "a token",
        lambda url, d: PrometheusServer(url=url, bearer_token_file=_file(d, "s3cret-x\n")),
        "Bearer s3cret-x",
        "the bearer token of {file}",
    ),
    Sent(
        "a password in a file",
        lambda url, d: PrometheusServer(
            url=url, username="ann", password_file=_file(d, "s3cret-ü\n")
        ),
        "Basic YW5uOnMzY3JldC3DvA==",
        "user 'ann' with the password of {file}",
    ),
    Sent(
        "a password in the URL",
        lambda url, _: PrometheusServer(url=url.replace("://", "://ann:s3cret%2Fx@")),
        "Basic YW5uOnMzY3JldC94",
        "user and password of the URL",
    ),
    Sent(
        "a header of its own",
        lambda url, _: PrometheusServer(url=url, headers={"Authorization": "Custom s3cret-x"}),
        "Custom s3cret-x",
        "header Authorization",
    ),
]


@pytest.mark.parametrize("case", SENT, ids=lambda case: case.reason)
@pytest.mark.parametrize("status", [401, 403])
def test_a_denial_tells_which_credential_and_never_the_secret(
    case: Sent, status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def echo(request: Seen) -> Answer:
        return Answer(json.dumps(request.headers).encode(), status=status)

    caplog.set_level(logging.DEBUG)
    with serving(echo) as server:
        error = fault(case.make(server.url, tmp_path))
    assert server.seen[0].headers.get("Authorization", "") == case.authorization
    assert error.kind is FaultKind.DENIED
    told = case.told.format(file=tmp_path / "secret")
    assert f"refused the credentials (HTTP {status}); sent: {told}; it says: " in str(error)
    for secret in ("s3cret", "YW5uOn"):
        assert secret not in str(error) + repr(error) + caplog.text


def test_credentials_of_the_machine_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ann password s3cret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with serving(GOOD) as server:
        ask(PrometheusServer(url=server.url))
    assert "Authorization" not in server.seen[0].headers


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(GOOD) as proxy:
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", proxy.url.replace("://", "://ann:pr0xypass@"))
        assert ask(PrometheusServer(url="http://prometheus.invalid")) == GOOD.body
    assert "Proxy-Authorization" in proxy.seen[0].headers


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_take_nothing_along(status: int, tmp_path: Path) -> None:
    with serving(GOOD) as elsewhere:
        moved = Answer(status=status, headers={"Location": f"{elsewhere.url}/login?state=x"})
        with serving(moved) as server:
            described = PrometheusServer(
                url=server.url,
                bearer_token_file=_file(tmp_path, "s3cret-x"),
                headers={"X-Scope-OrgID": "tenant-seven"},
            )
            error = fault(described)
    assert elsewhere.seen == []
    assert error.kind is FaultKind.NOT_PROMETHEUS
    assert f"redirects to {elsewhere.url}/login (HTTP {status})" in str(error)


# --- TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def pairs(authority: Authority) -> dict[str, Pair]:
    return {name: authority.issue(name) for name in ("server", "client-one", "client-two")}


def test_a_certificate_must_be_trusted(authority: Authority, pairs: dict[str, Pair]) -> None:
    with serving(GOOD, tls=authority.server(pairs["server"])) as server:
        error = fault(PrometheusServer(url=server.url))
        assert error.kind is FaultKind.UNREACHABLE
        assert not error.transient
        assert "its certificate is not trusted (" in str(error)
        assert "ca_file" in str(error)
        assert ask(PrometheusServer(url=server.url, ca_file=authority.pair.cert)) == GOOD.body
        assert ask(PrometheusServer(url=server.url, verify=False)) == GOOD.body


def test_the_wrong_protocol_is_named(authority: Authority, pairs: dict[str, Pair]) -> None:
    with serving(GOOD) as plain:
        error = fault(PrometheusServer(url=plain.url.replace("http:", "https:"), verify=False))
    assert "it does not speak TLS; write http:// in the URL" in str(error)


def test_a_client_certificate_is_asked_for(
    authority: Authority, pairs: dict[str, Pair], tmp_path: Path
) -> None:
    stranger = Authority.make(tmp_path, "stranger").issue("mallory")
    with serving(GOOD, tls=authority.server(pairs["server"], ask_client=True)) as server:
        ca = authority.pair.cert
        one = pairs["client-one"]
        ask(PrometheusServer(url=server.url, ca_file=ca, cert_file=one.cert, key_file=one.key))
        assert server.seen[-1].certificate == "client-one"
        nothing = fault(PrometheusServer(url=server.url, ca_file=ca))
        assert nothing.kind is FaultKind.UNREACHABLE
        assert "a client certificate" in str(nothing)  # in an alert, unless a reset overtakes it
        foreign = fault(
            PrometheusServer(
                url=server.url, ca_file=ca, cert_file=stranger.cert, key_file=stranger.key
            )
        )
        assert "does not accept the client certificate" in str(foreign)
    assert len(server.seen) == 1


def test_a_key_of_another_pair_is_refused_at_once(pairs: dict[str, Pair]) -> None:
    with pytest.raises(ServerError, match="are not of one pair"):
        PrometheusServer(
            url="https://p",
            cert_file=pairs["client-one"].cert,
            key_file=pairs["client-two"].key,
        )


def test_a_rotated_client_certificate_is_used_at_once(
    authority: Authority, pairs: dict[str, Pair], tmp_path: Path
) -> None:
    """As the kubelet does it: a link is moved to another directory."""
    for name in ("client-one", "client-two"):
        (tmp_path / name).mkdir()
        for kind in ("cert", "key"):
            (tmp_path / name / kind).write_bytes(getattr(pairs[name], kind).read_bytes())
    link = tmp_path / "..data"
    link.symlink_to("client-one")

    def point(name: str) -> None:
        (tmp_path / "..tmp").symlink_to(name)
        (tmp_path / "..tmp").replace(link)

    with serving(GOOD, tls=authority.server(pairs["server"], ask_client=True)) as server:
        described = PrometheusServer(
            url=server.url,
            ca_file=authority.pair.cert,
            cert_file=link / "cert",
            key_file=link / "key",
        )
        with Connection(described) as connection:
            for name in ("client-one", "client-one", "client-two"):
                point(name)
                connection.query("up", at=AT, timeout_s=10)
            # Between two writes a pair does not fit; that is told, and passes.
            (tmp_path / "client-two" / "key").write_bytes(pairs["client-one"].key.read_bytes())
            with pytest.raises(PrometheusError) as half:
                connection.query("up", at=AT, timeout_s=10)
            (tmp_path / "client-two" / "key").write_bytes(pairs["client-two"].key.read_bytes())
            connection.query("up", at=AT, timeout_s=10)
    assert half.value.kind is FaultKind.CREDENTIALS
    assert "are not of one pair" in str(half.value)
    names = [seen.certificate for seen in server.seen]
    assert names == ["client-one", "client-one", "client-two", "client-two"]
    assert server.seen[0].client == server.seen[1].client, "kept while nothing changed"


def test_the_size_of_a_form_is_the_size_that_counts() -> None:
    text = "x" * 3_000 + "ü" * 400  # short as text, long as a URL
    with serving(GOOD) as server:
        ask(PrometheusServer(url=server.url), text=text)
    assert server.seen[0].method == "POST"
    assert parse_qs(urlencode(server.seen[0].form))["query"] == [text]


def test_several_threads_may_ask(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def answer(request: Seen) -> Answer:
        if request.asked["query"] == "slow":
            return Answer(GOOD.body, delay_s=2)
        return GOOD

    server: Server
    with (
        serving(answer) as server,
        Connection(PrometheusServer(url=server.url)) as connection,
        ThreadPoolExecutor(8) as threads,
    ):

        def one(number: int) -> str:
            try:
                slow = number % 4 == 0
                connection.query("slow" if slow else "up", at=AT, timeout_s=0.5 if slow else 20)
            except PrometheusError as error:
                return error.kind
            return "answered"

        found = list(threads.map(one, range(40)))
    assert found == [FaultKind.LATE if n % 4 == 0 else "answered" for n in range(40)]
