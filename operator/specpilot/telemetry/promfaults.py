"""Why a Prometheus gave no numbers: from what came back to words and to what a caller may do.

Pure: bytes in, an error out. What the servers say is theirs (Prometheus `web/api/v1`, Thanos
store limits, Mimir's `err-mimir-*` catalogue, VictoriaMetrics' `-search.max*` flags).
"""

import json
import re
from enum import StrEnum
from urllib.parse import urlsplit


class FaultKind(StrEnum):
    """What went wrong."""

    UNREACHABLE = "Unreachable"  # no connection, or it broke
    LATE = "Late"  # no complete answer before the deadline
    CREDENTIALS = "Credentials"  # ours cannot be read
    DENIED = "Denied"  # ours are not accepted
    REFUSED = "Refused"  # it understood, and did not answer
    OVERSIZED = "Oversized"  # more bytes than we take
    NOT_PROMETHEUS = "NotPrometheus"  # something else answers there


class PrometheusError(Exception):
    """A query was not answered; the text says why and holds no secret.

    Attributes:
        kind: What went wrong.
        too_large: A smaller question might be answered.
        transient: The same question might be answered at once.
    """

    def __init__(
        self, words: str, *, kind: FaultKind, too_large: bool = False, transient: bool = False
    ) -> None:
        super().__init__(words)
        self.kind = kind
        self.too_large = too_large
        self.transient = transient


_AGAIN = frozenset({429, 502, 503, 504})
_QUERY_TOO_LONG = frozenset({413, 414})
_TOO_LONG = re.compile(r"too long query|-search\.maxQueryLen", re.IGNORECASE)  # VictoriaMetrics
_NOT_FOUND = 404
_UNPROCESSABLE = 422
_SHORTEN = (
    "; it names every namespace: raise the limit on the length of queries (of a proxy, too), or "
    "have several operators steer some of the namespaces each"
)
_LIMITS = re.compile(
    r"would load too many samples"  # Prometheus
    r"|(exceeded|exceeds|over) (the )?(\w+ )?(samples|series|chunks|bytes|size) limit"  # Thanos
    r"|limit \d+ violated"  # Thanos
    r"|err-mimir-max-|exceeded the maximum (allowed )?(number|estimated|memory|size)"  # Mimir
    r"|hit the (max|aggregated) [^.]*limit"  # Cortex
    r"|-search\.max(?!QueueDuration|QueryDuration|ConcurrentRequests)\w+"  # VictoriaMetrics
    r"|number of matching timeseries exceeds"
    r"|received message larger than max|ResourceExhausted",  # gRPC between their parts
    re.IGNORECASE,
)
_SUCCESS = re.compile(rb'\s*\{\s*"status"\s*:\s*"success"')
_PARTIAL = re.compile(rb'"isPartial"\s*:\s*true')
_HEAD = 200
_LONGEST_TEXT = 500


def check_success(body: bytes, *, address: str) -> None:
    """Check that a body of status 200 is an answer, without decoding a large one.

    Raises:
        PrometheusError: It is something else.
    """
    if not _SUCCESS.match(body):
        # The keys may come in another order where a proxy has rewritten the JSON.
        answer = _json(body)
        if answer.get("status") == "error":
            raise refusal(status=200, body=body, address=address)
        if answer.get("status") != "success" or not isinstance(answer.get("data"), dict):
            what = "an HTML page" if _is_html(body) else "something else"
            raise PrometheusError(
                f"{address} does not answer like Prometheus (it sent {what}); check the URL",
                kind=FaultKind.NOT_PROMETHEUS,
            )
    if not body.rstrip().endswith(b"}"):
        raise PrometheusError(
            f"{address} broke off its answer", kind=FaultKind.UNREACHABLE, transient=True
        )
    if _PARTIAL.search(body[:_HEAD]):
        raise PrometheusError(
            f"{address} has only a part of the numbers: one of its storage nodes is down",
            kind=FaultKind.REFUSED,
            transient=True,
        )


def refusal(*, status: int, body: bytes, address: str) -> PrometheusError:
    """The error of a status that is not 200; its text may still hold secrets.

    Args:
        status: Of the answer.
        body: Of the answer; its beginning will do.
        address: Of the server, for the words.
    """
    answer = _json(body)
    error_type = str(answer.get("errorType") or "")
    error = str(answer.get("error") or answer.get("message") or "")
    said = ": ".join(part for part in (error_type, error) if part) or _text(body)
    if status == _NOT_FOUND and not error:
        return PrometheusError(
            f"{address} has no /api/v1/query at this path (HTTP 404); check the path of the URL",
            kind=FaultKind.NOT_PROMETHEUS,
        )
    too_long = status in _QUERY_TOO_LONG or bool(_TOO_LONG.search(said))
    # Prometheus, Thanos and Mimir use 422 for whatever fails in mid-query, and say what; of
    # a 422 without an explanation the best guess is a limit.
    too_large = not too_long and (
        bool(_LIMITS.search(said)) or (status == _UNPROCESSABLE and error_type != "execution")
    )
    return PrometheusError(
        f"{address} refused the query: {said or 'no reason given'} (HTTP {status})"
        + (_SHORTEN if too_long else ""),
        kind=FaultKind.REFUSED,
        too_large=too_large,
        # A query that took the server too long takes as long again.
        transient=status in _AGAIN and error_type != "timeout" and not too_large,
    )


def denial(*, status: int, body: bytes, address: str, sent: str) -> PrometheusError:
    """The error of status 401 and 403; its text may still hold secrets."""
    answer = _json(body)
    said = str(answer.get("error") or answer.get("message") or "") or _text(body)
    return PrometheusError(
        f"{address} refused the credentials (HTTP {status}); sent: {sent}"
        + (f"; it says: {said}" if said else ""),
        kind=FaultKind.DENIED,
    )


def redirection(*, status: int, location: str, address: str) -> PrometheusError:
    """The error of a redirect, which is never followed: credentials would go along."""
    parts = urlsplit(location)
    host = parts.netloc.rpartition("@")[2]
    place = f"{parts.scheme}://{host}{parts.path}" if host else parts.path
    return PrometheusError(
        f"{address} redirects to {place or 'nowhere'} (HTTP {status}), which is not followed with "
        "credentials; put the address where Prometheus itself answers into the URL",
        kind=FaultKind.NOT_PROMETHEUS,
    )


def _json(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_html(body: bytes) -> bool:
    return body.lstrip()[:1] == b"<"


def _text(body: bytes) -> str:
    """What a proxy or gateway wrote in plain text."""
    if _is_html(body):
        return "an HTML page"
    return body.decode("utf-8", errors="replace")[:_LONGEST_TEXT].strip()
