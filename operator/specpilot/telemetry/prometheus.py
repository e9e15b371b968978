"""Numbers from a Prometheus (or Thanos, Mimir, VictoriaMetrics) that scrapes the replicas.

Prometheus is looked at like a replica is: once a round, for the numbers as they stand, and windows
are cut out of what the rounds saw (`rings`). A round asks two queries for everything (`promql`),
whatever the number of policies, replicas and windows. There are more where one would be too long or
its answer too large, and a large fleet is looked at in portions, yet there are never more than 14
an interval, nor about the past. Buckets are asked for only where somebody wants a percentile
(`demand`).

After a start the rings are empty. So that nobody waits for a window to fill, each round also looks
at one moment of the past that a question reached back to.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

from specpilot.domain.portions import Portions
from specpilot.domain.ports import Ask, Clock
from specpilot.domain.readings import Readings
from specpilot.domain.targets import Replica
from specpilot.telemetry.answer import answer
from specpilot.telemetry.connection import Connection, PrometheusServer
from specpilot.telemetry.demand import Demand, needed
from specpilot.telemetry.portions import NamespacePortions
from specpilot.telemetry.promql import DEFAULT_LABELS, Labels
from specpilot.telemetry.promrounds import Rounds, Shared
from specpilot.telemetry.rings import Rings
from specpilot.telemetry.windows import Arm

_LASTING_S = 120.0
"""For so long buckets are fetched that were asked for: some who ask look away for a while."""


class PrometheusTelemetry:
    """Looks at all tracked replicas through Prometheus.

    Args:
        server: How to reach it.
        clock: Dates the rounds; with a clock of the past it looks at the past.
        labels: How this Prometheus names namespace and pod.
        interval_s: Seconds between rounds. Shorter than the scrape interval brings nothing.
        settle_s: How far behind the clock a round looks. Prometheus shows a scrape whole or not at
            all, so that nothing is gained by waiting, but for who compares with a later look.
        deadline_s: Longest time for one round; None means two intervals, at least 10 s.
        keep_s: How far back windows can reach at least; longer ones are kept once asked for.
        stale_floor_s: Samples younger than this are never stale; beyond it, 3 intervals are.
        most_portions: Portions that a large fleet may be looked at in; for who asks for them one
            by one.
    """

    def __init__(
        self,
        *,
        server: PrometheusServer,
        clock: Clock,
        labels: Labels = DEFAULT_LABELS,
        interval_s: float = 15.0,
        settle_s: float = 0.0,
        deadline_s: float | None = None,
        keep_s: float = 420.0,
        stale_floor_s: float = 30.0,
        most_portions: int = 1,
    ) -> None:
        if interval_s <= 0:
            raise ValueError(f"Prometheus interval {interval_s} s: must be above 0")
        self._clock = clock
        self._interval_s = interval_s
        self._settle_s = settle_s
        self._connection = Connection(server)
        self._rings = Rings(
            clock=clock,
            source="Prometheus",
            interval_s=interval_s,
            keep_s=keep_s,
            stale_floor_s=stale_floor_s,
        )
        self._demand = Demand(lasting_s=max(4 * interval_s, _LASTING_S))
        self._portions = NamespacePortions(most=most_portions, labels=labels)
        shared = Shared(
            address=server.address,
            connection=self._connection,
            labels=labels,
            clock=clock,
            rings=self._rings,
            demand=self._demand,
            portions=self._portions,
            interval_s=interval_s,
            settle_s=settle_s,
            deadline_s=max(10.0, 2 * interval_s) if deadline_s is None else deadline_s,
        )
        self._rounds = [Rounds(shared, portion=portion) for portion in range(most_portions)]

    @property
    def portions(self) -> Portions:
        """Which replicas are looked at together."""
        return self._portions

    # --- questions

    def track(self, replicas: Sequence[Replica]) -> None:
        """Say which replicas to look at, from the first question on."""
        nobody = not self._rings.tracked()
        # First: a namespace that is not known would be looked at by the first portion.
        self._portions.divide(Counter(replica.namespace for replica in replicas))
        self._rings.track(replicas)
        if nobody and replicas and self._demand.anything:
            self._wake()

    @property
    def lag_s(self) -> float:
        """Seconds after a moment in which its numbers come in."""
        return self._interval_s + self._settle_s

    def moved(self, replica: Replica) -> float:
        """See `Rings.moved`."""
        return self._rings.moved(replica)

    def collect(self, asks: Sequence[Ask]) -> Mapping[str, Readings]:
        """Answer from what was seen. Never raises, never waits."""
        return answer(self, asks, deadline_s=0.0)

    def expect(self, asks: Sequence[Ask]) -> None:
        """Note what is going to be asked; later rounds fetch what these questions need."""
        if not asks:
            return
        first = not self._demand.anything
        self._demand.ask(asks, now=self._clock.now().timestamp())
        longest = max((ask.end - ask.start).total_seconds() for ask in asks)
        self._rings.keep_s = max(self._rings.keep_s, longest + 4 * self._interval_s)
        if first:
            self._wake()  # what came before is not known yet

    def windows(self, asks: Sequence[Ask], *, deadline_s: float) -> Mapping[str, Arm]:  # noqa: ARG002 - memory answers at once
        """Answer from what was seen; later rounds fetch what these questions need."""
        self.expect(asks)
        return self._rings.arms(asks, needs=needed)

    def _wake(self) -> None:
        """Have the first portion looked at now; the others soon are, one by one."""
        self._rounds[0].wake()

    # --- rounds

    def start(self) -> None:
        """Start looking in the background; again is harmless."""
        for rounds in self._rounds:
            rounds.start()

    def look(self, *, timeout_s: float, portion: int = 0) -> bool:
        """Have one portion looked at now; see `Background.look`."""
        return self._rounds[portion].look(timeout_s=timeout_s)

    def sample(self, portion: int | None = None) -> None:
        """Look once, now. What fails is noted as the reason for what is missing.

        Args:
            portion: At one portion; None for all of them.
        """
        for rounds in self._rounds if portion is None else [self._rounds[portion]]:
            rounds.sample()

    @property
    def queries(self) -> int:
        """How many queries the last round of each portion put."""
        return sum(rounds.queries for rounds in self._rounds)

    def close(self) -> None:
        """Stop looking and close the connections; what was seen stays readable."""
        for rounds in self._rounds:
            rounds.stop()
        for rounds in self._rounds:
            rounds.close()
        self._connection.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
