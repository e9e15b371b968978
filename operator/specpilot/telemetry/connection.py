"""Queries to a Prometheus, in bounded time and memory, and words when it is not answered.

What a server sends is not ours to trust: it may trickle, never end, unpack to gigabytes, be a login
page, or repeat our token in its error. The caller gets the body of a successful answer or a
`PrometheusError`, nothing else, and not later than it asked for.
"""

import io
import ssl
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

import requests
import urllib3
from requests.utils import get_environ_proxies

from specpilot.telemetry.promcredentials import Credentials
from specpilot.telemetry.promfaults import (
    FaultKind,
    PrometheusError,
    check_success,
    denial,
    redirection,
    refusal,
)
from specpilot.telemetry.promserver import (
    PrometheusServer,
    ServerError,
    check_tls_files,
    parse_headers,
)
from specpilot.telemetry.promtransport import Client, Watch

__all__ = [
    "Connection",
    "FaultKind",
    "PrometheusError",
    "PrometheusServer",
    "ServerError",
    "parse_headers",
]

LIMIT_BYTES = 256 * 2**20
"""Longest answer, unpacked: about a million series."""
_BACKOFF_S = 0.2
_CHUNK = 256 * 1024
_ERROR_BYTES = 64 * 1024
"""So much of an error is read."""


class Connection:
    """Asks one Prometheus. May be used from several threads.

    Args:
        server: Where it is, and as whom to ask.
        retries: How often a query is repeated after a fault that may pass, if time is left.
        limit_bytes: Longest answer, unpacked.

    Its own bound does not hold for one thing: the resolver's time to look up the host's name.
    """

    def __init__(
        self, server: PrometheusServer, *, retries: int = 1, limit_bytes: int = LIMIT_BYTES
    ) -> None:
        if retries < 0 or limit_bytes <= 0:
            raise ValueError(
                f"retries must be 0 or more and limit_bytes above 0, not {retries}, {limit_bytes}"
            )
        proxies = get_environ_proxies(server.base_url)
        self._server = server
        self._retries = retries
        self._limit_bytes = limit_bytes
        self._credentials = Credentials(server, proxies=proxies.values())
        self._client = Client(server, credentials=self._credentials, proxies=proxies)
        self._files = _versions(server)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def query(self, text: str, *, at: float, timeout_s: float) -> bytes:
        """Ask an instant query.

        Args:
            text: PromQL.
            at: When to evaluate it, seconds since the epoch.
            timeout_s: Seconds for all of it, retries included.

        Returns:
            The JSON of a successful answer, not yet decoded.

        Raises:
            PrometheusError: There is none.
        """
        return self._answer("query", {"query": text, "time": f"{at:.3f}"}, timeout_s=timeout_s)

    def query_range(
        self, text: str, *, start: float, end: float, step_s: float, timeout_s: float
    ) -> bytes:
        """Ask a range query: the text is evaluated at `start` and every step after it.

        Args:
            text: PromQL.
            start: The first moment, seconds since the epoch.
            end: The last moment is this one, or the last step before it.
            step_s: Seconds between two moments.
            timeout_s: Seconds for all of it, retries included.

        Returns:
            The JSON of a successful answer, not yet decoded.

        Raises:
            PrometheusError: There is none.
        """
        params = {
            "query": text,
            "start": f"{start:.3f}",
            "end": f"{end:.3f}",
            "step": f"{step_s:.3f}",
        }
        return self._answer("query_range", params, timeout_s=timeout_s)

    def _answer(self, what: str, params: Mapping[str, str], *, timeout_s: float) -> bytes:
        until = time.monotonic() + timeout_s
        pause = _BACKOFF_S
        for _ in range(self._retries):
            try:
                return self._ask(what, params, until=until, timeout_s=timeout_s)
            except PrometheusError as error:
                if not error.transient or time.monotonic() + pause >= until:
                    raise
            time.sleep(pause)
            pause *= 2
        return self._ask(what, params, until=until, timeout_s=timeout_s)

    def _ask(
        self, what: str, params: Mapping[str, str], *, until: float, timeout_s: float
    ) -> bytes:
        address = self._server.address
        late = PrometheusError(
            f"{address} did not answer within {timeout_s:g} s", kind=FaultKind.LATE
        )
        left = until - time.monotonic()
        if left <= 0:
            raise late
        sent = {
            **params,
            "timeout": f"{max(1, int(left * 1000))}ms",
            # Thanos and a cluster of VictoriaMetrics answer with what they have when a store is
            # down, unless told not to.
            "partial_response": "false",
            "deny_partial_response": "1",
            # VictoriaMetrics moves the times of a query that it may cache.
            "nocache": "1",
        }
        watch = Watch(left)
        try:
            self._renew()
            with watch, self._client.open(what, sent, timeout_s=left) as response:
                body = self._read(response)
                if not watch.fired:
                    return self._checked(response, body)
        except ServerError as error:
            raise PrometheusError(str(error), kind=FaultKind.CREDENTIALS) from None
        except PrometheusError as error:
            raise PrometheusError(
                self._credentials.hide(str(error)),
                kind=error.kind,
                too_large=error.too_large,
                transient=error.transient,
            ) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            # Not chained: what these say may hold the request.
            if not watch.fired and time.monotonic() < until:
                raise _unreachable(error, server=self._server) from None
        raise late

    def _read(self, response: requests.Response) -> bytes:
        """The body, unpacked, or the beginning of an error's."""
        bad = response.status_code != requests.codes.ok
        limit = _ERROR_BYTES if bad else self._limit_bytes
        buffer = io.BytesIO()
        # Not iter_content: it waits for full chunks, and unpacks a packed one without a bound.
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            buffer.write(chunk)
            if buffer.tell() <= limit:
                continue
            if bad:
                break
            raise PrometheusError(
                f"{self._server.address} sent more than {limit / 2**20:g} MiB, the most that is "
                "taken of one answer",
                kind=FaultKind.OVERSIZED,
                too_large=True,
            )
        return buffer.getvalue()

    def _checked(self, response: requests.Response, body: bytes) -> bytes:
        status, address = response.status_code, self._server.address
        if response.is_redirect:
            location = response.headers.get("Location", "")
            raise redirection(status=status, location=location, address=address)
        if status in {requests.codes.unauthorized, requests.codes.forbidden}:
            sent = self._credentials.described()
            raise denial(status=status, body=body, address=address, sent=sent)
        if status != requests.codes.ok:
            raise refusal(status=status, body=body, address=address)
        check_success(body, address=address)
        return body

    def _renew(self) -> None:
        """Give up open connections when a TLS file changed: they are of the old key pair."""
        now = _versions(self._server)
        if now == self._files:
            return
        check_tls_files(self._server)  # a pair that is half written shall not cost the old one
        self._client.drop_connections()
        self._files = now


def _versions(server: PrometheusServer) -> tuple[tuple[int, int, int], ...]:
    """What changes when a TLS file is replaced or written anew."""
    found = []
    for path in server.tls_files:
        try:
            status = path.stat()
        except OSError:
            found.append((0, 0, 0))  # gone: the check that follows says so in words
        else:
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def _unreachable(error: BaseException, *, server: PrometheusServer) -> PrometheusError:
    """The system's words for the cause; never the URL."""
    address = server.address
    causes = list(_chain(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            words = f"cannot reach {address}: {_tls(cause)}"
            return PrometheusError(words, kind=FaultKind.UNREACHABLE)
    why = next((c.strerror for c in causes if isinstance(c, OSError) and c.strerror), "")
    if not why and any(isinstance(c, urllib3.exceptions.ConnectTimeoutError) for c in causes):
        why = "nothing accepts a connection in time"
    if not why and any(isinstance(c, urllib3.exceptions.ProtocolError) for c in causes):
        why = "it closed the connection before it had answered"
    words = f"cannot reach {address}: {why or type(error).__name__}"
    broken = ssl.SSLEOFError | ConnectionResetError | BrokenPipeError
    if server.tls and any(isinstance(cause, broken) for cause in causes):
        # The alert that says so is lost when the connection is reset before it is read.
        how = "does not accept the" if server.cert_file else "is not given a"
        words += f"; a server may break off so when it {how} client certificate"
    return PrometheusError(words, kind=FaultKind.UNREACHABLE, transient=True)


def _tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); name its authority in "
            "ca_file, and the host as the certificate does"
        )
    reason = error.reason or ""
    if "CERTIFICATE_REQUIRED" in reason:
        return "it wants a client certificate; set cert_file and key_file"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return f"it does not accept the client certificate ({reason.replace('_', ' ').lower()})"
    if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}:
        return "it does not speak TLS; write http:// in the URL"
    return f"TLS failed ({reason.replace('_', ' ').lower() or type(error).__name__})"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and what led to it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        inner = cause.args[0] if cause.args else None  # urllib3 wraps without raising
        cause = (
            cause.__cause__
            or cause.__context__
            or (inner if isinstance(inner, BaseException) else None)
        )
