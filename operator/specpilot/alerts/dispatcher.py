"""Takes alerts from the outbox and sends them.

No transaction is open while something is sent: read what is due, send, write down what came of it.
A process that dies between sending and writing sends the same alert again, under the same
`webhook-id`; receivers tell duplicates by it. Only one process should dispatch at a time (the
leader), for two would do just that.
"""

import logging
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import httpx

from specpilot.alerts.addresses import Resolve, system_resolver
from specpilot.alerts.backoff import Backoff
from specpilot.alerts.channels import Channel
from specpilot.alerts.sending import TIMEOUT_S, Outcome, send
from specpilot.domain.ports import Clock

log = logging.getLogger(__name__)


class Item(Protocol):
    """An alert as the outbox gives it."""

    @property
    def id(self) -> str:
        """Stable id."""
        ...

    @property
    def channel(self) -> str:
        """Name of the channel."""
        ...

    @property
    def payload(self) -> Mapping[str, object]:
        """What is said."""
        ...

    @property
    def attempts(self) -> int:
        """Attempts so far."""
        ...


class Outbox(Protocol):
    """The outbox within one transaction."""

    def due(
        self, *, now: datetime, limit: int, except_channels: Collection[str] = ()
    ) -> Sequence[Item]:
        """Alerts that are to be sent now."""
        ...

    def delivered(
        self, item_id: str, *, at: datetime, status: int, answer: str, latency_s: float
    ) -> None:
        """Write down that it was taken."""
        ...

    def failed(
        self,
        item_id: str,
        *,
        at: datetime,
        next_at: datetime,
        status: int | None,
        answer: str,
        error: str,
        latency_s: float,
    ) -> None:
        """Write down that it was not, and when to try again."""
        ...

    def dead(
        self,
        item_id: str,
        *,
        at: datetime,
        status: int | None,
        answer: str,
        error: str,
        latency_s: float,
    ) -> None:
        """Write down that it was not and will not be."""
        ...


class Unit(Protocol):
    """A transaction that has an outbox."""

    @property
    def outbox(self) -> Outbox:
        """The outbox."""
        ...


class Store(Protocol):
    """What has transactions."""

    def begin(self) -> AbstractContextManager[Unit]:
        """Begin one that may write."""
        ...

    def read(self) -> AbstractContextManager[Unit]:
        """Begin one that only reads."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """What one round did, in alerts."""

    delivered: int = 0
    failed: int = 0
    dead: int = 0


def make_client() -> httpx.Client:
    """Make a client for a dispatcher.

    Proxies of the environment are not used: through a proxy, which address a name leads to would
    be the proxy's to say, and checking it here would mean nothing. httpx's log of every URL is
    switched off, because the URL of a Slack channel is its password.
    """
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return httpx.Client(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False)


class Dispatcher:
    """Sends what is due.

    Args:
        store: Holds the outbox.
        channels: By name; looked up for each alert, so that a live mapping may be given.
        client: Sends requests; see `make_client`.
        clock: Tells the time.
        backoff: When to try again.
        rng: Source of the jitter.
        resolve: Finds addresses of hosts.
    """

    def __init__(
        self,
        *,
        store: Store,
        channels: Mapping[str, Channel],
        client: httpx.Client,
        clock: Clock,
        backoff: Backoff | None = None,
        rng: random.Random | None = None,
        resolve: Resolve = system_resolver,
    ) -> None:
        self._store = store
        self._channels = channels
        self._client = client
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._resolve = resolve

    def deliver_due(self, *, limit: int = 100) -> Dispatched:
        """Send up to `limit` alerts that are due.

        A channel that does not answer costs one timeout in a round, however many alerts wait for
        it, and does not hold up the others.
        """
        counts = {"delivered": 0, "failed": 0, "dead": 0}
        silent: set[str] = set()
        left = limit
        while left > 0 and (items := self._due(limit=left, silent=silent)):
            for item in items:
                if item.channel in silent:
                    continue
                outcome = self._send(item)
                counts[self._write_down(item, outcome)] += 1
                left -= 1
                if not outcome.reached and not outcome.final:
                    silent.add(item.channel)
        return Dispatched(**counts)

    def _due(self, *, limit: int, silent: Iterable[str]) -> Sequence[Item]:
        with self._store.read() as unit:
            return unit.outbox.due(
                now=self._clock.now(), limit=limit, except_channels=sorted(silent)
            )

    def _send(self, item: Item) -> Outcome:
        channel = self._channels.get(item.channel)
        if channel is None:
            return Outcome(
                error=f"there is no channel {item.channel}: it was deleted, or is not known yet"
            )
        return send(
            channel,
            message_id=item.id,
            payload=item.payload,
            attempt=item.attempts,
            at=self._clock.now(),
            client=self._client,
            resolve=self._resolve,
        )

    def _write_down(self, item: Item, outcome: Outcome) -> str:
        now, attempt = self._clock.now(), item.attempts + 1
        with self._store.begin() as unit:
            if not outcome.error and outcome.status is not None:
                unit.outbox.delivered(
                    item.id,
                    at=now,
                    status=outcome.status,
                    answer=outcome.answer,
                    latency_s=outcome.latency_s,
                )
                return "delivered"
            why = outcome.error or f"it answered {outcome.status}"
            if outcome.final or attempt >= self._backoff.attempts:
                log.error("alert to %s given up after %d tries: %s", item.channel, attempt, why)
                unit.outbox.dead(
                    item.id,
                    at=now,
                    status=outcome.status,
                    answer=outcome.answer,
                    error=outcome.error,
                    latency_s=outcome.latency_s,
                )
                return "dead"
            wait = self._backoff.wait(
                attempt=attempt, retry_after=outcome.retry_after, rng=self._rng
            )
            log.warning(
                "alert to %s not delivered: %s; again in %.0f s",
                item.channel,
                why,
                wait.total_seconds(),
            )
            unit.outbox.failed(
                item.id,
                at=now,
                next_at=now + wait,
                status=outcome.status,
                answer=outcome.answer,
                error=outcome.error,
                latency_s=outcome.latency_s,
            )
            return "failed"
