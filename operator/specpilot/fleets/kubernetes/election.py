"""Leader election on a Lease: one process acts, and knows by itself when it must stop.

The client library's elector compares wall clocks of different machines, sets no request timeout,
ends on a refused connection and never releases; so this is our own. Its rules:

- Another's lease is over when it was *seen unchanged* for its whole duration on our own monotonic
  clock. Wall clocks are written for people and never compared.
- The own lease counts from before the request that renewed it was sent, and leading ends at the
  renew deadline, well before anybody else may take over, whether or not a thread gets to say so.
- A process that has lost is to exit: `on_lost` is called once, and nothing is tried again.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from specpilot.domain.ports import Clock
from specpilot.fleets.kubernetes.api import Api, ApiError
from specpilot.fleets.kubernetes.objects import instant
from specpilot.fleets.kubernetes.request import LEASES, Object, Request, create, read, replace

_log = logging.getLogger(__name__)

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Times of a lease, in seconds.

    Attributes:
        duration_s: After which others may take a lease that is not renewed.
        renew_deadline_s: After which the holder stops leading when it could not renew.
        retry_s: Between tries to renew or to acquire; a request may take half of it.

    Raises:
        ValueError: They do not leave room for each other.
    """

    duration_s: float = 30.0
    renew_deadline_s: float = 20.0
    retry_s: float = 5.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_s < self.renew_deadline_s < self.duration_s:
            raise ValueError(
                f"lease times must rise: retry {self.retry_s} s < renew deadline "
                f"{self.renew_deadline_s} s < duration {self.duration_s} s"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Which leadership an action belongs to: written with it, so that a later one can refuse it.

    Attributes:
        holder: Identity of the leader.
        transitions: Rises whenever the lease changes hands.
        lease_created: When the server made the lease: one that was deleted and made anew counts
            its transitions from zero again.
    """

    holder: str
    transitions: int
    lease_created: datetime = field(default=_NEVER, compare=False)


@dataclass(slots=True)
class _Seen:
    """The lease as last read, and when it was first seen like that."""

    record: Any = None
    since: float = 0.0


class Elector:
    """Takes part in the election for one lease.

    Args:
        api: The API server.
        namespace: Namespace of the lease.
        name: Name of the lease; unique per installation (another product's lease of the same name
            would be fought over).
        identity: Unique per process start, not only per pod.
        on_elected: Called once, in the elector's thread, when leadership begins.
        on_lost: Called once when it ended without having been given up; is to end the process.
        terms: Times.
        clock: For the times written into the lease, for people.
        monotonic: Monotonic seconds; decides.
        chance: Source of chance, uniform in [0, 1).
    """

    def __init__(
        self,
        *,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        on_elected: Callable[[Token], None],
        on_lost: Callable[[str], None],
        clock: Clock,
        terms: Terms | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._clock = clock
        self._terms = terms or Terms()
        self._monotonic = monotonic
        self._chance = chance
        self._seen = _Seen()
        self._token: Token | None = None
        self._renewed_at = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self.run, name=f"elector-{name}", daemon=True)

    def start(self) -> None:
        """Take part, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop taking part, and give the lease back. The work must have ended before."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self._terms.duration_s)

    @property
    def token(self) -> Token | None:
        """The present leadership; None when this process does not lead, or cannot be sure to."""
        token = self._token
        if token is None or self._monotonic() - self._renewed_at >= self._terms.renew_deadline_s:
            return None
        return token

    def run(self) -> None:
        """Take part until stopped or until leadership is lost."""
        try:
            self._campaign()
        except Exception:  # noqa: BLE001 - whatever it was, nobody renews any more
            _log.exception("the elector failed")
            self._lose("the elector failed")
        else:
            self._release()

    def _campaign(self) -> None:
        while not self._stopping.is_set():
            if why := self.step():
                self._lose(why)
                return
            self._stopping.wait(self._until_next())

    def step(self) -> str:
        """One round: acquire or renew. Returns why leadership is lost, "" when it is not."""
        fenced = f"the lease could not be renewed for {self._terms.renew_deadline_s:g} s"
        if self._token is not None and self.token is None:
            return fenced
        try:
            held = self._try()
        except ApiError as error:
            held = self._token is not None
            _log.warning("lease %s/%s: %s", self._namespace, self._name, error)
        if self._token is not None and not held:
            return "another process took the lease"
        return fenced if self._token is not None and self.token is None else ""

    def _until_next(self) -> float:
        # Those who wait spread out; the holder keeps its beat and never sleeps past its deadline.
        if self._token is None:
            return self._terms.retry_s * (1 + 0.2 * self._chance())
        left = self._renewed_at + self._terms.renew_deadline_s - self._monotonic()
        return max(0.0, min(self._terms.retry_s, left))

    def _try(self) -> bool:
        """Acquire or renew; whether the lease is ours, as far as the server says."""
        asked_at = self._monotonic()
        lease = self._find()
        if lease is None:
            return self._write(None, asked_at=asked_at, transitions=0)
        spec = lease.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        transitions = int(spec.get("leaseTransitions") or 0)
        if holder == self._identity:
            return self._write(lease, asked_at=asked_at, transitions=transitions)
        if self._token is not None:
            return False
        if holder and not self._over(spec, now=asked_at):
            return False
        return self._write(lease, asked_at=asked_at, transitions=transitions + 1)

    def _over(self, spec: Object, *, now: float) -> bool:
        """Whether another's lease was seen unchanged for all of its duration."""
        record = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if record != self._seen.record:
            self._seen = _Seen(record=record, since=now)
        duration = float(spec.get("leaseDurationSeconds") or self._terms.duration_s)
        return now - self._seen.since >= duration

    def _write(self, lease: Object | None, *, asked_at: float, transitions: int) -> bool:
        now = _micro(self._clock.now())
        before = (lease or {}).get("spec") or {}
        renewing = before.get("holderIdentity") == self._identity
        spec = {
            **before,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._terms.duration_s)),
            "acquireTime": before.get("acquireTime") if renewing else now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }
        metadata = (lease or {}).get("metadata") or {
            "namespace": self._namespace,
            "name": self._name,
        }
        body = {**(lease or {}), "metadata": metadata, "spec": spec}
        write = create if lease is None else replace
        try:
            written = self._send(write(LEASES, body, field_manager=self._api.field_manager))
        except ApiError as error:
            if error.conflict:  # somebody wrote in between; the next look shows who
                _log.debug("lease %s: %s", self._name, error)
                return self._token is not None
            raise
        self._renewed_at = asked_at
        if self._token is None:
            self._token = Token(
                holder=self._identity,
                transitions=transitions,
                lease_created=instant(written["metadata"].get("creationTimestamp")) or _NEVER,
            )
            _log.info("%s leads (lease %s, transition %d)", self._identity, self._name, transitions)
            self._on_elected(self._token)
        return True

    def _lose(self, why: str) -> None:
        self._token = None
        _log.error("leadership lost: %s", why)
        self._on_lost(why)

    def _release(self) -> None:
        """Give the lease back, so that the next one need not wait for it to run out."""
        if self._token is None:
            return
        self._token = None
        try:
            lease = self._find()
            if lease is None or lease["spec"].get("holderIdentity") != self._identity:
                return
            spec = {**lease["spec"], "holderIdentity": "", "renewTime": _micro(self._clock.now())}
            body = {**lease, "spec": spec}
            self._send(replace(LEASES, body, field_manager=self._api.field_manager))
        except ApiError as error:
            _log.warning("lease %s was not given back, it will run out: %s", self._name, error)

    def _find(self) -> Object | None:
        try:
            return self._send(read(LEASES, namespace=self._namespace, name=self._name))
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def _send(self, request: Request) -> Object:
        # Two requests to a try, and a try is over before the next one is due.
        return self._api.send(request, timeout_s=self._terms.retry_s / 2)


def _micro(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
