"""Both sources behind one port: each ask goes where its policy says.

`auto` takes Prometheus and falls back to the direct scrape (`choice`).

Scraping thousands of replicas directly is for nobody, so only those are scraped whose policy wants
it, or that Prometheus does not know.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from specpilot.domain.policy import TelemetrySource
from specpilot.domain.ports import Ask
from specpilot.domain.readings import Readings
from specpilot.domain.targets import Replica
from specpilot.telemetry.answer import answer
from specpilot.telemetry.background import Expecting, Moving, look_at_all
from specpilot.telemetry.choice import ask_source, prefer, usable
from specpilot.telemetry.windows import Arm, Source, serving


class AutoTelemetry:
    """Prometheus, direct scrape, or whichever of them has the numbers.

    Args:
        prometheus: None when no Prometheus is configured.
        scrape: None where replicas cannot be reached.
        devices: Where numbers of GPUs come from; None where there is no exporter.
        deadline_s: Longest time one `collect` may take.
    """

    def __init__(
        self,
        *,
        prometheus: Source | None,
        scrape: Source | None,
        devices: Source | None = None,
        deadline_s: float = 15.0,
    ) -> None:
        self._prometheus = prometheus
        self._scrape = scrape
        self._devices = devices
        self._deadline_s = deadline_s
        sources: tuple[object, ...] = (prometheus, scrape)
        self._moving = [source for source in sources if isinstance(source, Moving)]
        self._tracked: dict[str, Replica] = {}
        self._scraped: set[str] = set()
        self._unknown: dict[str, datetime] = {}  # since when Prometheus has not known a replica

    def expect(self, asks: Sequence[Ask]) -> None:
        """Pass it on to who has to know."""
        source: object = self._prometheus
        if isinstance(source, Expecting):
            source.expect([ask for ask in asks if ask.source is not TelemetrySource.SCRAPE])

    def track(self, replicas: Sequence[Replica]) -> None:
        """Pass the list on; the direct scrape gets those that need it."""
        self._tracked = {replica.key: replica for replica in replicas}
        self._scraped &= self._tracked.keys()
        self._unknown = {k: at for k, at in self._unknown.items() if k in self._tracked}
        for source in (self._prometheus, self._devices):
            if source is not None:
                source.track(replicas)
        self._track_scraped()

    def _track_scraped(self) -> None:
        if self._scrape is not None:
            everything = self._prometheus is None
            self._scrape.track(
                [r for k, r in self._tracked.items() if everything or k in self._scraped]
            )

    @property
    def lag_s(self) -> float:
        """Seconds after a moment in which its numbers come in."""
        return max((s.lag_s for s in (self._prometheus, self._scrape) if s), default=0.0)

    def look(self, *, timeout_s: float, portion: int = 0) -> None:
        """Have the sources that look as often as ticks come look now, before a tick asks them.

        Left to themselves they would look when the tick before has just read them, and each change
        would be seen an interval late. The direct scrape looks oftener than that by itself.

        Args:
            timeout_s: Longest time to wait for all of them.
            portion: Which part of the fleet the tick is about.
        """
        sources = (self._prometheus, self._devices)
        look_at_all(sources, timeout_s=timeout_s, portion=portion)

    def moved(self, replica: Replica) -> float:
        """What the source says that knows more of it."""
        return max((source.moved(replica) for source in self._moving), default=0.0)

    def collect(self, asks: Sequence[Ask]) -> Mapping[str, Readings]:
        """Answer all asks within the deadline. Never raises."""
        return answer(self, asks, deadline_s=self._deadline_s, devices=self._devices)

    def windows(self, asks: Sequence[Ask], *, deadline_s: float) -> Mapping[str, Arm]:
        """Send each ask to its source, and decide for those that leave the choice."""
        by_prometheus = [ask for ask in asks if ask.source is not TelemetrySource.SCRAPE]
        by_scrape = [ask for ask in asks if ask.source is not TelemetrySource.PROMETHEUS]
        first = ask_source(self._prometheus, "Prometheus", by_prometheus, deadline_s=deadline_s)
        second = ask_source(self._scrape, "direct scrape", by_scrape, deadline_s=deadline_s)
        self._note_direct(asks, first)
        undecided = [a for a in asks if a.source is TelemetrySource.AUTO and not a.ahead]
        arms = self._choose(undecided, first, second)
        for ask in asks:
            if ask.key not in arms:
                arms[ask.key] = first[ask.key] if ask.key in first else second[ask.key]
        return arms

    def _note_direct(self, asks: Sequence[Ask], first: Mapping[str, Arm]) -> None:
        """Scrape what Prometheus has not known for a while, and nothing else."""
        grace = timedelta(seconds=2 * self._prometheus.lag_s) if self._prometheus else timedelta()
        changed = False
        for ask in asks:
            if ask.ahead and ask.source is TelemetrySource.AUTO:
                continue
            keys = {replica.key for replica in serving(ask)}
            direct = ask.source is TelemetrySource.SCRAPE
            if ask.source is TelemetrySource.AUTO and not usable(first[ask.key]):
                since = [self._unknown.setdefault(key, ask.end) for key in keys]
                direct = any(ask.end - each >= grace for each in since)
            else:
                for key in keys & self._unknown.keys():
                    del self._unknown[key]
            if direct and not keys <= self._scraped:
                self._scraped |= keys
                changed = True
            elif not direct and not keys.isdisjoint(self._scraped):
                self._scraped -= keys
                changed = True
        if changed:
            self._track_scraped()

    def _choose(
        self, asks: Sequence[Ask], first: Mapping[str, Arm], second: Mapping[str, Arm]
    ) -> dict[str, Arm]:
        """Prometheus for these asks, unless it knows nothing where the scrape does."""
        if self._scrape is None:
            return {ask.key: first[ask.key] for ask in asks}
        if self._prometheus is None:
            return {ask.key: second[ask.key] for ask in asks}
        return prefer(asks, first, second)
