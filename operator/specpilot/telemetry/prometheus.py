"""Numbers from a Prometheus (or Thanos, Mimir, VictoriaMetrics) that scrapes the replicas.

Prometheus is looked at like a replica is: once a round, for the numbers as they stand, and windows
are cut out of what the rounds saw (`rings`). A round asks four or five queries for everything
(`promql`), whatever the number of policies, replicas and windows; two of them are cut into shares
when the answer would grow too large, so there are never more than 14, nor about the past. Buckets
are asked for only where somebody wants a percentile (`demand`).

After a start the rings are empty. So that nobody waits for a window to fill, each round also looks
at one moment of the past that a question reached back to.
"""

import logging
import math
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

from specpilot.domain.ports import Ask, Clock
from specpilot.domain.readings import Readings, UnknownReason
from specpilot.domain.targets import Replica
from specpilot.telemetry import promql
from specpilot.telemetry.answer import answer
from specpilot.telemetry.background import Background
from specpilot.telemetry.connection import (
    Connection,
    FaultKind,
    PrometheusError,
    PrometheusServer,
)
from specpilot.telemetry.demand import Demand, Plan, Queries, needed
from specpilot.telemetry.promdecode import NOT_SCRAPED, Pod, Pods, Where
from specpilot.telemetry.promql import Labels, Scope
from specpilot.telemetry.promwire import Answer
from specpilot.telemetry.rings import Rings
from specpilot.telemetry.windows import Arm, Fault

log = logging.getLogger(__name__)

_SOURCE = "Prometheus"
_DEFAULT_LABELS = Labels()

PODS_A_SHARE = 4000
"""Pods whose numbers are fetched in one answer: some 50 MB."""

MOST_QUERIES = 14
"""A round never puts more; with the two for GPUs that makes 16."""

_LASTING_S = 120.0
"""For so long buckets are fetched that were asked for: some who ask look away for a while."""

_LONGEST_REACH_S = 3600.0
"""Moments longer ago are not looked up after a start."""


class PrometheusTelemetry(Background):
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
    """

    def __init__(
        self,
        *,
        server: PrometheusServer,
        clock: Clock,
        labels: Labels = _DEFAULT_LABELS,
        interval_s: float = 15.0,
        settle_s: float = 0.0,
        deadline_s: float | None = None,
        keep_s: float = 420.0,
        stale_floor_s: float = 30.0,
    ) -> None:
        if interval_s <= 0:
            raise ValueError(f"Prometheus interval {interval_s} s: must be above 0")
        self._clock = clock
        self._labels = labels
        self._interval_s = interval_s
        self._settle_s = settle_s
        self._deadline_s = max(10.0, 2 * interval_s) if deadline_s is None else deadline_s
        super().__init__(name="prometheus", interval_s=interval_s, patience_s=self._deadline_s)
        self._address = server.address
        self._connection = Connection(server)
        self._rings = Rings(
            clock=clock,
            source=_SOURCE,
            interval_s=interval_s,
            keep_s=keep_s,
            stale_floor_s=stale_floor_s,
        )
        self._parts = 1
        self._demand = Demand(lasting=max(4, math.ceil(_LASTING_S / interval_s)))
        self._asked = threading.Lock()  # guards the one below
        self._starts: dict[float, float] = {}  # start of a window asked for: its length
        self._turn_back = False
        self._moments: list[float] = []  # when rounds looked, and what they looked back at
        self.queries = 0
        """How many queries the last round put."""

    def close(self) -> None:
        """Stop looking and close the connections; what was seen stays readable."""
        super().close()
        self._connection.close()

    # --- questions

    def track(self, replicas: Sequence[Replica]) -> None:
        """Say which replicas to look at, from the first question on."""
        nobody = not self._rings.tracked()
        self._rings.track(replicas)
        if nobody and replicas and self._demand.anything:
            self._wake.set()

    @property
    def lag_s(self) -> float:
        """Seconds after a moment in which its numbers come in."""
        return self._interval_s + self._settle_s

    def collect(self, asks: Sequence[Ask]) -> Mapping[str, Readings]:
        """Answer from what was seen. Never raises, never waits."""
        return answer(self, asks, deadline_s=0.0)

    def expect(self, asks: Sequence[Ask]) -> None:
        """Note what is going to be asked; later rounds fetch what these questions need."""
        if not asks:
            return
        self._demand.ask(asks)
        with self._asked:
            if not self._starts:
                self._wake.set()  # what came before is not known yet
            for ask in asks:
                length = (ask.end - ask.start).total_seconds()
                self._starts[ask.start.timestamp()] = length
                self._rings.keep_s = max(self._rings.keep_s, length + 4 * self._interval_s)

    def windows(self, asks: Sequence[Ask], *, deadline_s: float) -> Mapping[str, Arm]:  # noqa: ARG002 - memory answers at once
        """Answer from what was seen; later rounds fetch what these questions need."""
        self.expect(asks)
        return self._rings.arms(asks, needs=needed)

    # --- rounds

    def sample(self) -> None:
        """Look once, now. What fails is noted as the reason for what is missing."""
        self.queries = 0
        replicas = self._rings.tracked()
        plan = self._demand.plan(replicas.keys()) if replicas else None
        if plan is None:  # the first round shall have all that is asked for
            return
        now = round(self._clock.now().timestamp() - self._settle_s, 3)
        until = time.monotonic() + self._deadline_s
        shares = self._shares(replicas)
        over_s = self._interval_s
        if self._moments and 0 < now - self._moments[-1] < _LONGEST_REACH_S:
            over_s = max(over_s, now - self._moments[-1])
        back = self._wanted_moment()
        queries = plan.queries(shares, over_s=over_s)
        both = 2 * len(queries.texts)
        # Too much for one round: by turns.
        self._turn_back = back is not None and both > MOST_QUERIES and not self._turn_back
        try:
            with self._words(replicas):
                if not self._turn_back:
                    self._take(replicas, self._look(queries, now, until), plan)
                    self._moments.append(now)
                if back is not None and (self._turn_back or both <= MOST_QUERIES):
                    self._look_back(replicas, plan, shares, back, until)
        except _FailedError:
            return
        oldest = now - self._rings.keep_s
        self._moments = [moment for moment in self._moments if moment >= oldest]
        with self._asked:
            self._starts = {s: w for s, w in self._starts.items() if s >= oldest}

    def _shares(self, replicas: Mapping[str, Replica]) -> list[Scope]:
        """All pods of the namespaces, in as many parts as one answer must not have them all."""
        parts = min(promql.MOST_PARTS, max(self._parts, math.ceil(len(replicas) / PODS_A_SHARE)))
        names = {replica.namespace for replica in replicas.values()}
        return [
            Scope(namespaces=names, labels=self._labels, part=part, parts=parts)
            for part in range(parts)
        ]

    @contextmanager
    def _words(self, replicas: Mapping[str, Replica]) -> Iterator[None]:
        """Turn what goes wrong into the reason for what is missing."""
        words = ""
        try:
            yield
        except PrometheusError as error:
            if error.too_large:
                self._parts = min(promql.MOST_PARTS, 2 * self._parts)
            words = str(error)
            if error.kind is FaultKind.LATE:  # its own words tell what was left of the deadline
                words = f"{self._address} did not answer within {self._deadline_s:g} s"
        except Answer as error:
            words = f"{self._address} {error}"
        except Exception as error:
            log.exception("asking Prometheus failed")
            words = f"asking {self._address} failed: {type(error).__name__}"
        if words:
            self._rings.fail(replicas, Fault(reason=UnknownReason.SOURCE_ERROR, words=words))
            raise _FailedError

    def _query(self, text: str, at: float, until: float) -> bytes:
        left = until - time.monotonic()
        if left <= 0:
            raise Answer(f"did not answer within {self._deadline_s:g} s")
        self.queries += 1
        return self._connection.query(text, at=at, timeout_s=left)

    def _look(
        self, queries: Queries, at: float, until: float, *, means_at: float | None = None
    ) -> Iterator[tuple[Where, Pod]]:
        """Every pod as it stood at a moment, with means of gauges over the time before it.

        Share by share, so that no more than one share's numbers are held at a time.

        Args:
            queries: What to ask.
            at: The moment.
            until: When the answers must be there, by the monotonic clock.
            means_at: End of the time that means of gauges are taken over, where it is another.
        """
        pods, labels = Pods(), self._labels
        asked = [(text, at) for text in queries.texts]
        asked[1] = (queries.gauges, at if means_at is None else means_at)
        with closing(self._answers(asked, until)) as bodies:
            pods.absorb_state(next(bodies), labels)
            pods.absorb_gauges(next(bodies), labels)
            for _ in queries.chosen:
                pods.absorb_values(next(bodies), labels)
            rest = set(pods)
            for share in queries.shares:
                found: set[Where] = set()
                for _ in share:
                    found |= pods.absorb_values(next(bodies), labels)
                rest -= found
                yield from ((where, pods[where]) for where in found)
            yield from ((where, pods[where]) for where in rest)

    def _answers(
        self, asked: Sequence[tuple[str, float]], until: float
    ) -> Generator[bytes, None, None]:
        """Ask one query after the other: the next one while the answer before it is taken in."""
        with ThreadPoolExecutor(1, thread_name_prefix="prometheus-ask") as asking:
            coming = asking.submit(self._query, *asked[0], until)
            for text, at in asked[1:]:
                body = coming.result()
                coming = asking.submit(self._query, text, at, until)
                yield body
            yield coming.result()

    def _take(
        self,
        replicas: Mapping[str, Replica],
        pods: Iterable[tuple[Where, Pod]],
        plan: Plan,
    ) -> None:
        missing = _by_pod(replicas)
        for where, pod in pods:
            fault = pod.fault()
            page = pod.page()
            for key in missing.pop(where, ()):
                if fault is not None or pod.at is None:
                    self._rings.fail([key], fault or NOT_SCRAPED)
                else:
                    fetched = plan.fetched(key)
                    self._rings.add(key, pod.at, page, means=page.gauges, fetched=fetched)
        self._rings.fail((key for keys in missing.values() for key in keys), NOT_SCRAPED)

    # --- the past

    def _wanted_moment(self) -> float | None:
        """The newest start of a window that no round was near to."""
        if not self._moments:
            return None  # the first round has just been: what is asked comes to know of it
        first, earliest = self._moments[0], self._clock.now().timestamp() - _LONGEST_REACH_S
        with self._asked:
            missing = [
                start
                for start, length in self._starts.items()
                if earliest <= start < min(self._moments)
                and all(
                    abs(moment - start) > max(1.5 * self._interval_s, length / 8)
                    for moment in self._moments
                )
            ]
        newest = max(missing, default=None)
        return None if newest is None or newest >= first else round(newest, 3)

    def _look_back(
        self,
        replicas: Mapping[str, Replica],
        plan: Plan,
        shares: Sequence[Scope],
        at: float,
        until: float,
    ) -> None:
        """Put a moment of the past before all that was seen, with the means of gauges since."""
        first = self._moments[0]
        keys, queries = _by_pod(replicas), plan.queries(shares, over_s=first - at)
        for where, pod in self._look(queries, at, until, means_at=first):
            if pod.fault() is not None or pod.at is None:
                continue
            page = pod.page()
            for key in keys.get(where, ()):
                fetched = plan.fetched(key)
                self._rings.prepend(key, pod.at, page, means=page.gauges, fetched=fetched)
        self._moments.insert(0, at)


def _by_pod(replicas: Mapping[str, Replica]) -> dict[Where, list[str]]:
    """Identities of replicas by pod; a pod that was replaced may still be there twice."""
    found: dict[Where, list[str]] = {}
    for key, replica in replicas.items():
        found.setdefault((replica.namespace, replica.id), []).append(key)
    return found


class _FailedError(Exception):
    """The round has failed and the reason is noted."""
