"""Numbers straight from the replicas, for fleets without Prometheus and for those that lost it.

Gauges of the engine are refreshed once per step, so one scrape says nothing about a batch size: a
background sampler keeps the recent past of every replica, and a window is cut out of it. A window
that reaches back before the sampler's start is answered from what there is.
"""

import logging
import ssl
from collections.abc import Mapping, Sequence

from specpilot.domain.ports import Ask, Clock
from specpilot.domain.readings import Readings, UnknownReason
from specpilot.domain.targets import Replica
from specpilot.telemetry.answer import answer
from specpilot.telemetry.background import Background
from specpilot.telemetry.exposition import parse
from specpilot.telemetry.fetch import Fetched, Fetcher
from specpilot.telemetry.rings import Rings
from specpilot.telemetry.windows import Arm, Fault

log = logging.getLogger(__name__)

_SOURCE = "direct scrape"


class ScrapeTelemetry(Background):
    """Samples `/metrics` of every tracked replica that serves.

    Args:
        clock: Dates the samples.
        interval_s: Seconds between scrapes of a replica.
        timeout_s: Longest time one scrape may take, from connecting to the last byte.
        keep_s: How far back windows can reach. 30 minutes at 5 s take 0.4 MB a replica.
        concurrency: Scrapes at a time.
        max_bytes: Largest page; a bigger one is refused.
        stale_floor_s: Samples younger than this are never stale; beyond it, 3 intervals are.
        verify: For replicas that serve HTTPS: False, or a context with their CA.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        interval_s: float = 5.0,
        timeout_s: float = 3.0,
        keep_s: float = 1800.0,
        concurrency: int = 16,
        max_bytes: int = 4 << 20,
        stale_floor_s: float = 30.0,
        verify: bool | ssl.SSLContext = True,
    ) -> None:
        if interval_s <= 0 or timeout_s <= 0:
            raise ValueError(
                f"scrape interval {interval_s} s and timeout {timeout_s} s: both must be above 0"
            )
        super().__init__(name="scrape", interval_s=interval_s, patience_s=timeout_s)
        self._clock = clock
        self._interval_s = interval_s
        self._fetcher = Fetcher(
            clock=clock,
            timeout_s=timeout_s,
            concurrency=concurrency,
            max_bytes=max_bytes,
            # Loading the system's CAs takes longer than a scrape, so it is done once.
            verify=ssl.create_default_context() if verify is True else verify,
        )
        self._rings = Rings(
            clock=clock,
            source=_SOURCE,
            interval_s=interval_s,
            keep_s=keep_s,
            stale_floor_s=stale_floor_s,
        )

    def expect(self, asks: Sequence[Ask]) -> None:
        """A page has all of it."""

    def track(self, replicas: Sequence[Replica]) -> None:
        """Replace the list of replicas to sample. History of those gone is kept until it is old."""
        self._rings.track(replicas)

    @property
    def lag_s(self) -> float:
        """Seconds after a moment in which its numbers come in."""
        return self._interval_s

    # --- questions

    def moved(self, replica: Replica) -> float:
        """See `Rings.moved`."""
        return self._rings.moved(replica)

    def collect(self, asks: Sequence[Ask]) -> Mapping[str, Readings]:
        """Answer from the samples in memory. Never raises, never waits."""
        return answer(self, asks, deadline_s=0.0)

    def windows(self, asks: Sequence[Ask], *, deadline_s: float) -> Mapping[str, Arm]:  # noqa: ARG002 - memory answers at once
        """Answer from the samples in memory."""
        return self._rings.arms(asks)

    # --- sampling

    def sample(self) -> None:
        """Scrape every replica once, now. Must not be called from a running event loop."""
        urls = {
            key: replica.endpoint.rstrip("/") + "/metrics"
            for key, replica in self._rings.tracked().items()
            if replica.endpoint
        }

        def take(key: str, fetched: Fetched) -> None:
            if fetched.error:
                log.debug("%s", fetched.error)
                fault = Fault(reason=UnknownReason.SOURCE_ERROR, words=fetched.error)
                self._rings.fail([key], fault)
            else:
                self._rings.add(key, fetched.at, parse(fetched.body))

        self._fetcher.each(urls, take, stopped=self._stop.is_set)
