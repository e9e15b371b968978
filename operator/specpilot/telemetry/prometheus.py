"""Numbers from a Prometheus (or Thanos, Mimir, VictoriaMetrics) that scrapes the replicas.

Six queries answer a window, however many targets, replicas and asks there are (`promql`).
Replicas that became ready inside a window need a shorter one; its length is rounded down to a
quarter of the window, so that a roll costs at most four times six queries and not six per pod.

Everything is evaluated at the end of the window, which may lie in the past: replaying history asks
the same questions as the live tick.
"""

import base64
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import requests
import urllib3
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from urllib3.util import Retry

from specpilot.domain.ports import Ask, Clock
from specpilot.domain.readings import Readings, UnknownReason
from specpilot.domain.targets import Replica
from specpilot.telemetry.answer import answer
from specpilot.telemetry.promdecode import Pods, absorb, window_of
from specpilot.telemetry.promql import Labels, queries
from specpilot.telemetry.windows import (
    Arm,
    ReplicaWindow,
    failed,
    failed_arm,
    serving,
    start_of,
    warming,
)

log = logging.getLogger(__name__)

_SOURCE = "Prometheus"
_QUARTERS = (1.0, 0.75, 0.5, 0.25)
_DEFAULT_LABELS = Labels()
_LONGEST_WORDS = 300
_SHORTEST_SECRET = 4
"""A tenant named "1" is no secret, and hiding it would garble every number."""


@dataclass(frozen=True, slots=True)
class _Slice:
    """One window to ask for: seconds since the epoch, and seconds."""

    end: float
    length_s: float


@dataclass(slots=True)
class _Job:
    """What one worker has to fetch and has fetched; strings are failures in words."""

    wanted: Mapping[_Slice, set[str]]
    found: dict[_Slice, Pods | str] = field(default_factory=dict)


class PrometheusTelemetry:
    """Asks Prometheus.

    Args:
        url: Base URL. User and password may be part of it; they are never repeated in messages.
        clock: Tells a window that ends in the future.
        labels: How this Prometheus names namespace and pod.
        headers: Sent with every request (`X-Scope-OrgID` of a multi-tenant backend).
        bearer_token_file: Read for every request, because such tokens rotate.
        ca_file: CA of an HTTPS server; None uses the usual ones.
        verify: False accepts any certificate.
        timeout_s: Longest time for one query, rounded up to whole seconds.
        deadline_s: Longest time for one `collect`.
        retries: How often a failed query is repeated.
        stale_floor_s: Samples younger than this are never stale; beyond it, 3 intervals are.
    """

    def __init__(
        self,
        *,
        url: str,
        clock: Clock,
        labels: Labels = _DEFAULT_LABELS,
        headers: Mapping[str, str] | None = None,
        bearer_token_file: Path | None = None,
        ca_file: Path | None = None,
        verify: bool = True,
        timeout_s: float = 5.0,
        deadline_s: float = 15.0,
        retries: int = 1,
        stale_floor_s: float = 30.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(
                "Prometheus URL: write it as http://host:port or https://host/path "
                f"(the scheme is {parts.scheme!r}, the host {parts.hostname!r})"
            )
        self._clock = clock
        self._labels = labels
        self._timeout_s = timeout_s
        self._deadline_s = deadline_s
        self._stale_floor_s = stale_floor_s
        self._host = parts.netloc.rpartition("@")[2]
        self._secrets = _secrets(parts.username, parts.password, headers or {})
        self._token = _BearerToken(bearer_token_file) if bearer_token_file else None
        session = requests.Session()
        session.verify = str(ca_file) if ca_file and verify else verify
        session.auth = self._token
        self._client = PrometheusConnect(
            url=url.rstrip("/"),
            session=session,
            headers=dict(headers or {}),
            retry=Retry(
                total=retries,
                backoff_factor=0.2,
                status_forcelist=(429, 502, 503, 504),
                raise_on_status=False,
                respect_retry_after_header=False,
            ),
        )
        self._worker: threading.Thread | None = None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def track(self, replicas: Sequence[Replica]) -> None:
        """Nothing to do: Prometheus keeps its own list."""

    def collect(self, asks: Sequence[Ask]) -> Mapping[str, Readings]:
        """Answer within the deadline. Never raises."""
        return answer(self, asks, deadline_s=self._deadline_s)

    def windows(self, asks: Sequence[Ask], *, deadline_s: float) -> Mapping[str, Arm]:
        """Answer all asks with six queries per distinct window."""
        wanted: dict[_Slice, set[str]] = {}
        for ask in asks:
            for replica in serving(ask):
                if part := _slice(replica, ask):
                    wanted.setdefault(part, set()).add(ask.target.namespace)
        found = self._fetch_all(wanted, deadline_s=deadline_s)
        return {ask.key: self._arm(ask, found) for ask in asks}

    def _arm(self, ask: Ask, found: Mapping[_Slice, Pods | str]) -> Arm:
        if ask.end > self._clock.now():
            words = f"the window ends in the future, at {ask.end:%Y-%m-%d %H:%M:%S} UTC"
            reason = UnknownReason.SOURCE_ERROR
            return failed_arm(ask, source=_SOURCE, reason=reason, words=words)
        return Arm(
            source=_SOURCE,
            end=ask.end,
            window_s=(ask.end - ask.start).total_seconds(),
            replicas=tuple(_window(replica, ask, found) for replica in serving(ask)),
            stale_floor_s=self._stale_floor_s,
        )

    # --- fetching

    def _fetch_all(
        self, wanted: Mapping[_Slice, set[str]], *, deadline_s: float
    ) -> Mapping[_Slice, Pods | str]:
        """Fetch in a thread of its own, since a request's timeout does not bound a slow trickle."""
        if not wanted:
            return {}
        if self._worker is not None and self._worker.is_alive():
            words = f"{self._host} has not answered the last question yet"
            return dict.fromkeys(wanted, words)
        job = _Job(wanted=wanted)
        until = time.monotonic() + deadline_s
        self._worker = threading.Thread(
            target=self._work, args=(job, until), name="prometheus", daemon=True
        )
        self._worker.start()
        self._worker.join(timeout=deadline_s)
        late = f"{self._host} did not answer within {deadline_s:g} s"
        return {part: job.found.get(part, late) for part in wanted}

    def _work(self, job: _Job, until: float) -> None:
        for part, namespaces in job.wanted.items():
            if time.monotonic() >= until:
                return
            try:
                job.found[part] = self._fetch(part, namespaces, until)
            except _OutOfTimeError:
                return
            except _TokenError as error:
                job.found[part] = str(error)
            except PrometheusApiClientException as error:
                job.found[part] = f"{self._host} refused the query: {self._harmless(error)}"
            except (KeyError, TypeError, ValueError):
                # requests' JSON error is a ValueError too, and an OSError: this comes first.
                job.found[part] = f"{self._host} does not answer like Prometheus; check the URL"
            except OSError as error:
                # It would fail alike for the others, after as long a wait.
                words = f"cannot reach {self._host}: {_why(error)}"
                job.found |= {each: words for each in job.wanted if each not in job.found}
                return
            except Exception as error:
                log.exception("querying Prometheus failed")
                job.found[part] = f"asking {self._host} failed: {type(error).__name__}"

    def _fetch(self, part: _Slice, namespaces: set[str], until: float) -> Pods:
        pods: Pods = {}
        texts = queries(namespaces, length_s=part.length_s, labels=self._labels)
        for topic, text in texts.items():
            left = until - time.monotonic()
            if left <= 0:
                raise _OutOfTimeError
            seconds = math.ceil(min(self._timeout_s, left))  # the client wants whole seconds
            # Thanos answers with what it has when a store is down, unless told not to.
            params = {
                "time": f"{part.end:.3f}",
                "timeout": f"{seconds}s",
                "partial_response": "false",
            }
            vector = self._client.custom_query(query=text, params=params, timeout=seconds)
            absorb(pods, topic, vector, self._labels)
        return pods

    def _harmless(self, error: Exception) -> str:
        """The error without secrets, at a readable length."""
        words = str(error)
        for secret in (*self._secrets, self._token.newest if self._token else ""):
            words = words.replace(secret, "***") if secret else words
        return words if len(words) <= _LONGEST_WORDS else words[:_LONGEST_WORDS] + "..."


class _OutOfTimeError(Exception):
    """The deadline has passed."""


class _TokenError(Exception):
    """The token could not be read; the text says why."""


class _BearerToken(requests.auth.AuthBase):
    """Puts the token of a file into a request; the file is read each time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.newest = ""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise _TokenError(f"cannot read the token file {self._path}: {_why(error)}") from error
        self.newest = token
        request.headers["Authorization"] = f"Bearer {token}"
        return request


def _secrets(user: str | None, password: str | None, headers: Mapping[str, str]) -> list[str]:
    """What a server that echoes a request could give away."""
    found = [password or "", *(value.rpartition(" ")[2] for value in headers.values())]
    if password:
        found.append(base64.b64encode(f"{user}:{password}".encode()).decode())
    return [secret for secret in found if len(secret) >= _SHORTEST_SECRET]


def _slice(replica: Replica, ask: Ask) -> _Slice | None:
    """The window to ask for; None when too little of it counts for this replica."""
    full = (ask.end - ask.start).total_seconds()
    counts = (ask.end - start_of(replica, ask)).total_seconds()
    share = next((quarter for quarter in _QUARTERS if quarter * full <= counts), None)
    if share is None:
        return None
    return _Slice(end=round(ask.end.timestamp(), 3), length_s=round(full * share, 3))


def _window(replica: Replica, ask: Ask, found: Mapping[_Slice, Pods | str]) -> ReplicaWindow:
    part = _slice(replica, ask)
    if part is None:
        full = (ask.end - ask.start).total_seconds()
        start = start_of(replica, ask)
        if start >= ask.end:
            return warming(replica, start)
        counts = (ask.end - start).total_seconds()
        words = f"its numbers count for {counts:.0f} s, less than a quarter of {full:.0f} s"
        return failed(replica, UnknownReason.TOO_FEW_SAMPLES, words)
    pods = found[part]
    if isinstance(pods, str):
        return failed(replica, UnknownReason.SOURCE_ERROR, pods)
    pod = pods.get((ask.target.namespace, replica.id))
    return window_of(pod, replica, end=part.end, length_s=part.length_s)


def _why(error: BaseException) -> str:
    """The system's words for the cause; never the URL."""
    causes = list(_chain(error))
    for cause in causes:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    if any(isinstance(cause, urllib3.exceptions.ReadTimeoutError) for cause in causes):
        return "no answer to a query within the timeout"
    return type(error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and what led to it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
