"""What a Prometheus is described by is checked at once, and words about it hold no secret."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from specpilot.telemetry.connection import (
    Connection,
    FaultKind,
    PrometheusError,
    PrometheusServer,
    ServerError,
    parse_headers,
)
from specpilot.telemetry.promcredentials import Credentials
from specpilot.telemetry.promfaults import check_success, denial, redirection, refusal

URL = "http://prometheus:9090"
TLS = "https://prometheus:9090"
SECRET = "pa55word"


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    """Write a file with this text."""

    def write(text: str) -> Path:
        path = tmp_path / f"file-{len(list(tmp_path.iterdir()))}"
        path.write_text(text)
        return path

    return write


@dataclass(frozen=True)
class Bad:
    reason: str
    fields: dict[str, Any]
    """Text in place of a Path becomes a file with that text."""
    says: str


NOWHERE = Path("/nowhere/at-all")
BAD = [
    Bad("no scheme", {"url": "prometheus:9090"}, "url: write it as http://host:port"),
    Bad("nothing", {"url": ""}, "url: write it as http://host:port"),
    Bad("another scheme", {"url": "ftp://x"}, "the scheme is 'ftp'"),
    Bad("no host", {"url": "http://"}, "the host None"),
    Bad("no port of TCP", {"url": "http://x:99999"}, "url: host or port is malformed"),
    Bad("a broken IPv6 address", {"url": "http://[::1"}, "url: host or port is malformed"),
    Bad("a query string", {"url": f"{URL}/?token={SECRET}"}, "url: a query string or fragment"),
    Bad("an empty query string", {"url": f"{URL}/?"}, "url: a query string or fragment"),
    Bad("a fragment", {"url": f"{URL}/#graph"}, "url: a query string or fragment"),
    Bad("a space", {"url": "http://x/a b"}, "url: white space"),
    Bad("the API's own path", {"url": f"{URL}/x/api/v1/query"}, "drop /api/v1/query after"),
    Bad("the API's root", {"url": f"{URL}/api/v1/"}, "drop /api/v1/ after"),
    Bad("no password in the URL", {"url": "http://ann@x"}, "credentials before @x are incomplete"),
    Bad("no user in the URL", {"url": f"http://:{SECRET}@x"}, "credentials before @x are incom"),
    Bad("a user alone", {"username": "ann"}, "username: 'ann' has no password; add password_file"),
    Bad("a password alone", {"password_file": SECRET}, "belongs to no user; add username"),
    Bad(
        "a colon ends a user's name",
        {"username": "a:b", "password_file": SECRET},
        "username: 'a:b' holds a colon",
    ),
    Bad(
        "two kinds",
        {"bearer_token_file": "t0k", "username": "ann", "password_file": SECRET},
        "bearer_token_file and username and password_file exclude each other; keep one",
    ),
    Bad(
        "URL and token",
        {"url": f"http://ann:{SECRET}@x", "bearer_token_file": "t0k"},
        "user and password in url and bearer_token_file exclude each other",
    ),
    Bad(
        "a header and a token",
        {"headers": {"authorization": f"Bearer {SECRET}"}, "bearer_token_file": "t0k"},
        "bearer_token_file and a header Authorization exclude each other",
    ),
    Bad("no token file", {"bearer_token_file": NOWHERE}, "cannot read /nowhere/at-all (No such"),
    Bad("a directory", {"bearer_token_file": Path("/")}, "cannot read / (Is a directory)"),
    Bad("an empty token", {"bearer_token_file": " \n"}, "is empty; put the secret into it"),
    Bad("two tokens", {"bearer_token_file": f"{SECRET}\n{SECRET}"}, "more than one token"),
    Bad("a token beyond ASCII", {"bearer_token_file": "tökén"}, "one word of ASCII"),
    Bad(
        "no password file",
        {"username": "ann", "password_file": NOWHERE},
        "password_file: cannot read /nowhere/at-all",
    ),
    Bad(
        "two lines of password",
        {"username": "ann", "password_file": f"{SECRET}\n{SECRET}"},
        "password_file: ",
    ),
    Bad("no header's name", {"headers": {"X Org": "a"}}, "'X Org' is no name of a header"),
    Bad("a header of ours", {"headers": {"Content-Length": "7"}}, "Content-Length is set by"),
    Bad("an injected header", {"headers": {"X-A": f"{SECRET}\r\nX-B: c"}}, "the value of X-A is"),
    Bad("an empty header", {"headers": {"X-A": ""}}, "the value of X-A is empty"),
    Bad("a header beyond Latin-1", {"headers": {"X-A": "日"}}, "the value of X-A is"),
    Bad(
        "one header twice",
        {"headers": {"X-A": "1"}, "header_files": {"x-a": NOWHERE}},
        "headers: x-a is given twice",
    ),
    Bad("no header file", {"header_files": {"X-A": NOWHERE}}, "header_files X-A: cannot read"),
    Bad("TLS without TLS", {"ca_file": NOWHERE}, "ca_file: http://prometheus:9090 does not use"),
    Bad("nothing to verify", {"verify": False}, "verify=False: http://prometheus:9090 does not"),
    Bad(
        "an authority unasked",
        {"url": TLS, "ca_file": NOWHERE, "verify": False},
        "is never used where verify is False",
    ),
    Bad("no authority", {"url": TLS, "ca_file": NOWHERE}, "ca_file: cannot read"),
    Bad("no PEM", {"url": TLS, "ca_file": "hello"}, "holds no certificate; it must be PEM"),
    Bad("half a pair", {"url": TLS, "cert_file": NOWHERE}, "cert_file: /nowhere/at-all needs key"),
    Bad("the other half", {"url": TLS, "key_file": NOWHERE}, "key_file: /nowhere/at-all needs cer"),
    Bad(
        "no key pair",
        {"url": TLS, "cert_file": "hello", "key_file": "hello"},
        "are not both PEM; name a certificate and its key",
    ),
    Bad(
        "nobody types a passphrase",
        {"url": TLS, "cert_file": "x", "key_file": "-----BEGIN ENCRYPTED PRIVATE KEY-----"},
        "is encrypted; store the key without a passphrase",
    ),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.reason)
def test_what_cannot_work_is_refused_at_once(case: Bad, file: Callable[[str], Path]) -> None:
    fields: dict[str, Any] = {"url": URL}
    for name, value in case.fields.items():
        as_file = name.endswith("_file") and isinstance(value, str)
        fields[name] = file(value) if as_file else value
    with pytest.raises(ServerError) as caught:
        PrometheusServer(**fields)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value).startswith("Prometheus ")
    assert case.says in str(caught.value), case.reason
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "base", "reason"),
    [
        ("http://p:9090", "http://p:9090", "plain"),
        ("http://p:9090/", "http://p:9090", "a slash"),
        ("https://mimir/prometheus/", "https://mimir/prometheus", "a path is kept"),
        ("http://vm:8481/select/0/prometheus", "http://vm:8481/select/0/prometheus", "a tenant"),
        ("http://[::1]:9090/x", "http://[::1]:9090/x", "IPv6"),
        ("https://ann:pa%40ss@p/x", "https://p/x", "credentials are taken out"),
    ],
)
def test_urls(url: str, base: str, reason: str) -> None:
    assert PrometheusServer(url=url).base_url == base, reason


def test_the_password_of_a_url_is_decoded_and_never_shown() -> None:
    server = PrometheusServer(url=f"http://ann:{SECRET}%40@p:1", headers={"X-Key": SECRET})
    assert server.user_and_password == ("ann", f"{SECRET}@")
    assert SECRET not in repr(server) + str(server) + server.address + server.base_url
    assert hash(server) == hash(PrometheusServer(url=server.url, headers={"X-Key": SECRET}))


def test_a_connection_needs_sane_limits() -> None:
    with pytest.raises(ValueError, match="retries must be 0 or more"):
        Connection(PrometheusServer(url=URL), retries=-1)


# --- headers as text


def test_headers_are_lines_as_in_http() -> None:
    text = "X-Scope-OrgID: a|b, c=d\n\n  X-Odd :  \"q\": 'r'  \r\n"
    assert parse_headers(text, name="headers") == {
        "X-Scope-OrgID": "a|b, c=d",
        "X-Odd": "\"q\": 'r'",
    }


@pytest.mark.parametrize(
    ("text", "says", "reason"),
    [
        (f"X-A={SECRET}", "line 1 is not of the form", "another syntax"),
        (f"X-A: 1\n: {SECRET}", "line 2 is not of the form", "no name"),
        ("X-A:", "line 1 is not of the form", "no value"),
        (f"X-A: 1\nx-a: {SECRET}", "line 2 gives x-a again", "twice"),
    ],
)
def test_bad_lines_are_told_by_number(text: str, says: str, reason: str) -> None:
    with pytest.raises(ServerError) as caught:
        parse_headers(text, name="headers")
    assert says in str(caught.value), reason
    assert SECRET not in str(caught.value)


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,20}", fullmatch=True)
VALUES = st.from_regex(r"[!-~]([ -~]{0,30}[!-~])?", fullmatch=True)


@given(st.dictionaries(NAMES.map(str.title), VALUES, max_size=5))
def test_what_is_written_is_read(headers: dict[str, str]) -> None:
    text = "\n".join(f"{name}: {value}" for name, value in headers.items())
    assert parse_headers(text, name="headers") == headers


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ServerError):
        assert all(name and value for name, value in parse_headers(text, name="h").items())


# --- secrets


def test_a_secret_is_hidden_in_every_form(file: Callable[[str], Path]) -> None:
    password = 'se"cret ü/+'
    server = PrometheusServer(
        url=URL,
        username="ann",
        password_file=file(password),
        headers={"X-Scope-OrgID": "tenant-seven", "X-Short": "7"},
        header_files={"X-Key": file("k3y-of-file\n")},
    )
    credentials = Credentials(server, proxies=["http://u:pr0xypass@proxy:3128"])
    request = credentials(requests.Request("GET", URL).prepare())
    sent = str(request.headers["Authorization"])
    echo = (
        f"{password} {sent} {json.dumps(password)} se%22cret%20%C3%BC%2F%2B "
        "tenant-seven 7 k3y-of-file pr0xypass"
    )
    hidden = credentials.hide(echo)
    assert hidden == '*** Basic *** "***" *** *** 7 *** ***'
    assert len(credentials.hide("x" * 9000)) < 400
    described = credentials.described()
    assert "user 'ann' with the password of" in described
    assert "header X-Key of" in described
    assert credentials.hide(described) == " ".join(described.split())


# --- what comes back

A = "p:9090"


def _error(error_type: str, words: str) -> bytes:
    return json.dumps({"status": "error", "errorType": error_type, "error": words}).encode()


@dataclass(frozen=True)
class Refused:
    reason: str
    status: int
    body: bytes
    says: str
    too_large: bool = False
    transient: bool = False


REFUSED = [
    Refused("a bad query", 400, _error("bad_data", "parse error"), "bad_data: parse error"),
    Refused(
        "Prometheus' sample limit",
        422,
        _error("execution", "query processing would load too many samples into memory in query"),
        "too many samples",
        too_large=True,
    ),
    Refused(
        "of 422, not every one is a limit",
        422,
        _error("execution", "found duplicate series for the match group"),
        "duplicate series",
    ),
    Refused("a 422 that says nothing", 422, b"", "no reason given", too_large=True),
    Refused(
        "Thanos' limit",
        422,
        _error("execution", "failed to send series: limit 100 violated (got 101)"),
        "limit 100 violated",
        too_large=True,
    ),
    Refused(
        "Mimir's limit",
        422,
        _error(
            "execution",
            "the query exceeded the maximum number of chunks (limit: 2000000 chunks) "
            "(err-mimir-max-chunks-per-query). Consider reducing the time range",
        ),
        "err-mimir-max-chunks",
        too_large=True,
    ),
    Refused(
        "Cortex' limit",
        422,
        b"the query hit the max number of series limit (limit: 100000 series)",
        "max number of series",
        too_large=True,
    ),
    Refused(
        "VictoriaMetrics' limit",
        422,
        _error("422", "cannot select more than -search.maxSamplesPerQuery=10 samples"),
        "maxSamplesPerQuery",
        too_large=True,
    ),
    Refused(
        "a limit that VictoriaMetrics tells with another status",
        503,
        _error("503", "the number of matching timeseries exceeds 30; increase -search.maxUnique"),
        "matching timeseries",
        too_large=True,
    ),
    Refused(
        "a queue is full: no smaller question is better",
        503,
        _error("503", "couldn't start executing in 10s: see -search.maxConcurrentRequests=8"),
        "maxConcurrentRequests",
        transient=True,
    ),
    Refused(
        "the query is too long for a proxy", 413, b"<html>Too Large</html>", "length of queries"
    ),
    Refused(
        "and for VictoriaMetrics: no smaller answer is better",
        422,
        _error("422", "too long query; got 25925 bytes; mustn't exceed -search.maxQueryLen=16384"),
        "raise the limit on the length",
    ),
    Refused("a gateway", 502, b"bad gateway", "bad gateway", transient=True),
    Refused("slow down", 429, b"too many outstanding requests", "outstanding", transient=True),
    Refused(
        "it would take as long again",
        503,
        _error("timeout", "query timed out in expression evaluation"),
        "timeout: query timed out",
    ),
    Refused("TLS is wanted", 400, b"Client sent an HTTP request to an HTTPS server.\n", "HTTPS"),
    Refused("not text", 500, b"\xff\xfe", "HTTP 500"),
    Refused("deep JSON", 500, b"[" * 100_000, "HTTP 500"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.reason)
def test_refusals_say_what_a_caller_may_do(case: Refused) -> None:
    error = refusal(status=case.status, body=case.body, address=A)
    assert (error.kind, error.too_large, error.transient) == (
        FaultKind.REFUSED,
        case.too_large,
        case.transient,
    )
    assert case.says in str(error)
    assert str(error).startswith("p:9090 refused the query: ")
    assert f"(HTTP {case.status})" in str(error)


@pytest.mark.parametrize(
    ("body", "kind", "says", "reason"),
    [
        (b"<html>login</html>", FaultKind.NOT_PROMETHEUS, "it sent an HTML page", "a login page"),
        (b'{"ok":true}', FaultKind.NOT_PROMETHEUS, "does not answer like", "another API"),
        (b"[1,2]", FaultKind.NOT_PROMETHEUS, "does not answer like", "a list"),
        (b"", FaultKind.NOT_PROMETHEUS, "does not answer like", "nothing"),
        (b'{"status":"success","data":{"re', FaultKind.UNREACHABLE, "broke off", "cut off"),
        (_error("bad_data", "no"), FaultKind.REFUSED, "bad_data: no", "an error of status 200"),
        (
            b'{"status":"success","isPartial":true,"data":{"result":[]}}',
            FaultKind.REFUSED,
            "only a part",
            "a part of the numbers is not the numbers",
        ),
    ],
)
def test_not_every_200_is_an_answer(body: bytes, kind: FaultKind, says: str, reason: str) -> None:
    with pytest.raises(PrometheusError) as caught:
        check_success(body, address=A)
    assert caught.value.kind is kind, reason
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b'{"status":"success","data":{"resultType":"vector","result":[]}}\n',
        b'{\n "data": {"result": []},\n "status": "success"\n}',
    ],
    ids=["as Prometheus writes it", "rewritten by a proxy"],
)
def test_answers_are_taken(body: bytes) -> None:
    check_success(body, address=A)


def test_a_path_without_the_api_is_named() -> None:
    error = refusal(status=404, body=b"404 page not found", address=A)
    assert error.kind is FaultKind.NOT_PROMETHEUS
    assert "check the path of the URL" in str(error)


def test_a_denial_says_what_was_sent() -> None:
    error = denial(status=401, body=b"Unauthorized", address=A, sent="no credentials")
    assert str(error) == (
        "p:9090 refused the credentials (HTTP 401); sent: no credentials; it says: Unauthorized"
    )


def test_a_redirect_is_told_without_its_query() -> None:
    error = redirection(status=302, location="https://u:pw@sso/login?state=abc", address=A)
    assert "redirects to https://sso/login (HTTP 302)" in str(error)
