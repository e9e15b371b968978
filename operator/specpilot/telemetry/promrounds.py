"""Shared at Prometheus again and again, for one portion of the replicas."""

import logging
import math
import time
from collections import Counter as Tally
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

from specpilot.domain.ports import Clock
from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import Replica
from specpilot.telemetry.background import Background
from specpilot.telemetry.connection import Connection, FaultKind, PrometheusError
from specpilot.telemetry.demand import MOST_CHOSEN, Demand, Plan, Queries
from specpilot.telemetry.portions import MOST_QUERIES, NamespacePortions, Size
from specpilot.telemetry.promdecode import NOT_SCRAPED, Pod, Pods, Where
from specpilot.telemetry.promql import Labels, Scope
from specpilot.telemetry.promwire import Answer
from specpilot.telemetry.rings import Rings
from specpilot.telemetry.shares import cut
from specpilot.telemetry.windows import Fault

log = logging.getLogger(__name__)

_LONGEST_REACH_S = 3600.0
"""Moments longer ago are not looked up after a start."""

_AGAIN = 4
"""Intervals after which a look at the past that failed is tried again, and for which the buckets of
all are fetched where the names of some were too many: a few less would not do either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the rounds of all portions share.

    Attributes:
        address: The server, as it is called in words.
        connection: How it is asked.
        labels: How it names things.
        clock: Dates the rounds.
        rings: Take what is seen.
        demand: What is asked for.
        portions: How the replicas are cut.
        interval_s: Seconds between rounds.
        settle_s: How far behind the clock a round looks.
        deadline_s: Longest time for one round.
    """

    address: str
    connection: Connection
    labels: Labels
    clock: Clock
    rings: Rings
    demand: Demand
    portions: NamespacePortions
    interval_s: float
    settle_s: float
    deadline_s: float


class Rounds(Background):
    """Looks at the replicas of one portion.

    Args:
        shared: What the rounds of all portions share.
        portion: Which one.
    """

    def __init__(self, shared: Shared, *, portion: int) -> None:
        super().__init__(
            name=f"prometheus-{portion}",
            interval_s=shared.interval_s,
            patience_s=shared.deadline_s,
        )
        self._portion = portion
        self._address = shared.address
        self._connection = shared.connection
        self._labels = shared.labels
        self._clock = shared.clock
        self._rings = shared.rings
        self._demand = shared.demand
        self._portions = shared.portions
        self._interval_s = shared.interval_s
        self._settle_s = shared.settle_s
        self._deadline_s = shared.deadline_s
        self._moments: list[float] = []  # when rounds looked, and what they looked back at
        self._last: float | None = None  # when the last one looked
        self._no_look_back_before = self._of_all_until = -math.inf
        self._idle = False  # there was nobody to look at the last time
        self.queries = 0
        """How many queries the last round put."""

    def wake(self) -> None:
        """Have the next round now."""
        self._wake.set()

    def _needed(self) -> bool:
        """A portion that has just come into being waits to be told, or would be looked at twice."""
        return self._portion == 0 or self._told or not self._idle

    def sample(self) -> None:
        """Look once, now. What fails is noted as the reason for what is missing."""
        self.queries = 0
        replicas = self._replicas()
        self._idle = not replicas
        if not replicas:
            self._moments, self._last = [], None  # who comes has been looked at by others
            return
        count, size = self._portions.count, self._portions.size(len(replicas))
        at = self._clock.now().timestamp()
        sizes = Tally(replica.namespace for replica in replicas.values())
        shares = self._shares(sizes, most=size.shares)
        now = round(at - self._settle_s, 3)
        until = time.monotonic() + self._deadline_s
        over_s = self._interval_s
        if self._last is not None and 0 < now - self._last < _LONGEST_REACH_S:
            over_s = max(over_s, now - self._last)
        planned = self._planned(replicas, size, shares, names=sizes, at=at, over_s=over_s)
        if planned is None:  # the first round shall have all that is asked for
            return
        plan, queries = planned
        if not self._moments:
            self._moments = self._rings.seen_since(replicas)
        back = self._wanted_moment(at)
        both_fit = count == 1 and 2 * len(queries.texts) + 1 <= MOST_QUERIES
        # Too much for one round: by turns, and some of the portions at a time.
        wanted = back is not None and not both_fit
        turn = self._portions.looks_back(self._portion, wanted=wanted)
        if not turn:
            look = self._look(queries, now, until, size=size)
            words = self._trouble(lambda: self._take(look, replicas, plan))
            if words:
                fault = Fault(reason=UnknownReason.SOURCE_ERROR, words=words)
                self._rings.fail((k for k, r in replicas.items() if self._has(r)), fault)
                return
            self._moments.append(now)
            self._last = now
        if back is not None and (turn or both_fit):
            first = self._moments[0]
            queries = plan.queries(shares, over_s=first - back, small=size.small, means_apart=True)
            look = self._look(queries, back, until, means_at=first)
            words = self._trouble(lambda: self._put_before(look, replicas, plan))
            if words:  # of the present all is known; of the past, try again after a while
                log.info("the past was not looked at: %s", words)
                self._no_look_back_before = at + _AGAIN * self._interval_s
            else:
                self._moments.insert(0, back)
        oldest = now - self._rings.keep_s
        self._moments = [moment for moment in self._moments if moment >= oldest]
        self._demand.forget_starts(before=oldest)

    def _planned(
        self,
        replicas: Mapping[str, Replica],
        size: Size,
        shares: Sequence[Scope],
        *,
        names: Collection[str],
        at: float,
        over_s: float,
    ) -> tuple[Plan, Queries] | None:
        """What is fetched, and the queries for it; None before the first question."""
        alone = self._portions.count == 1
        # Of one portion out of several as many as there would be for the buckets of all.
        chosen = MOST_CHOSEN if alone else size.shares
        plan = self._demand.plan(replicas.keys(), now=at, most_chosen=chosen)
        if plan is None:
            return None
        queries = plan.queries(shares, over_s=over_s, small=size.small)
        if not alone and len(queries.texts) > self._portions.queries(size.replicas, names):
            # Those whose buckets are wanted are too many for their names to come along.
            self._of_all_until = at + _AGAIN * self._interval_s
        if plan.named and at < self._of_all_until:
            of_all = plan.of_all(replicas)
            whole = of_all.queries(shares, over_s=over_s, small=size.small)
            if len(whole.texts) <= len(queries.texts):
                return of_all, whole
        return plan, queries

    def _replicas(self) -> dict[str, Replica]:
        """The portion's, by key."""
        return {k: r for k, r in self._rings.tracked().items() if self._has(r)}

    def _has(self, replica: Replica) -> bool:
        """Whether a replica is in the portion, still: another one may look at it by now."""
        return self._portions.of(replica.namespace) == self._portion

    def _shares(self, sizes: Mapping[str, int], *, most: int) -> list[Scope]:
        """All pods of the namespaces, in as many shares as one answer must not have them all."""
        return [
            Scope(namespaces=names, labels=self._labels, part=part, parts=parts)
            for names, part, parts in cut(sizes, most)
        ]

    def _trouble(self, work: Callable[[], None]) -> str:
        """Do it; return what has gone wrong, in words."""
        try:
            work()
        except PrometheusError as error:
            if error.kind is FaultKind.LATE:  # its own words tell what was left of the deadline
                return f"{self._address} did not answer within {self._deadline_s:g} s"
            return str(error)
        except Answer as error:
            return f"{self._address} {error}"
        except Exception as error:
            log.exception("asking Prometheus failed")
            return f"asking {self._address} failed: {type(error).__name__}"
        return ""

    def _query(self, text: str, at: float, until: float) -> bytes:
        left = until - time.monotonic()
        if left <= 0:
            raise Answer(f"did not answer within {self._deadline_s:g} s")
        self.queries += 1
        return self._connection.query(text, at=at, timeout_s=left)

    def _look(
        self,
        queries: Queries,
        at: float,
        until: float,
        *,
        size: Size | None = None,
        means_at: float | None = None,
    ) -> Iterator[tuple[Where, Pod]]:
        """Every pod as it stood at a moment, with means of gauges over the time before it.

        Share by share, so that no more than one share's numbers are held at a time.

        Args:
            queries: What to ask.
            at: The moment.
            until: When the answers must be there, by the monotonic clock.
            size: Of the look, where answers that are too large shall be smaller from now on. What
                the past takes, which is soon known, says nothing of the present.
            means_at: End of the time that means of gauges are taken over, where it is another.
        """
        pods, labels = Pods(), self._labels
        asked = [(text, at) for text in queries.texts]
        if queries.gauges and means_at is not None:
            asked[1] = (queries.gauges, means_at)
        with closing(self._answers(asked, until)) as bodies:
            pods.absorb_state(next(bodies), labels)
            if queries.gauges:
                pods.absorb_values(next(bodies), labels)
            for _ in queries.chosen:
                pods.absorb_values(next(bodies), labels)
            rest = set(pods)
            for share in queries.shares:
                found: set[Where] = set()
                for _ in share:
                    body = self._of_share(bodies, size, whole=queries.whole)
                    found |= pods.absorb_values(body, labels)
                rest -= found
                yield from ((where, pods[where]) for where in found)
            yield from ((where, pods[where]) for where in rest)

    def _of_share(self, bodies: Iterator[bytes], size: Size | None, *, whole: bool) -> bytes:
        """The next answer. One that is too large was to a share: all others are about everybody."""
        try:
            return next(bodies)
        except PrometheusError as error:
            if error.too_large and size is not None:
                self._portions.too_large(size, whole=whole)
            raise

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
        pods: Iterable[tuple[Where, Pod]],
        replicas: Mapping[str, Replica],
        plan: Plan,
    ) -> None:
        missing = _by_pod(replicas)
        for where, pod in pods:
            fault = pod.fault()
            page = pod.page()
            for key in missing.pop(where, ()):
                if not self._has(replicas[key]):
                    continue  # what is older than the other portion's look would fall behind it
                if fault is not None or pod.at is None:
                    self._rings.fail([key], fault or NOT_SCRAPED)
                else:
                    fetched = plan.fetched(key)
                    self._rings.add(key, pod.at, page, means=page.gauges, fetched=fetched)
        unseen = (key for keys in missing.values() for key in keys if self._has(replicas[key]))
        self._rings.fail(unseen, NOT_SCRAPED)

    # --- the past

    def _wanted_moment(self, now: float) -> float | None:
        """The newest start of a window that no round was near to."""
        if not self._moments or now < self._no_look_back_before:
            return None  # the first round has just been: what is asked comes to know of it
        first = min(self._moments)
        missing = [
            start
            for start, length in self._demand.starts().items()
            if now - _LONGEST_REACH_S <= start < first
            and all(
                abs(moment - start) > max(1.5 * self._interval_s, length / 8)
                for moment in self._moments
            )
        ]
        return round(max(missing), 3) if missing else None

    def _put_before(
        self,
        pods: Iterable[tuple[Where, Pod]],
        replicas: Mapping[str, Replica],
        plan: Plan,
    ) -> None:
        """Put a moment of the past before all that was seen, with the means of gauges since."""
        keys = _by_pod(replicas)
        for where, pod in pods:
            if pod.fault() is not None or pod.at is None:
                continue
            page = pod.page()
            for key in keys.get(where, ()):
                if not self._has(replicas[key]):
                    continue
                fetched = plan.fetched(key)
                self._rings.prepend(key, pod.at, page, means=page.gauges, fetched=fetched)


def _by_pod(replicas: Mapping[str, Replica]) -> dict[Where, list[str]]:
    """Keys of replicas by pod; a pod that was replaced may still be there twice."""
    found: dict[Where, list[str]] = {}
    for key, replica in replicas.items():
        found.setdefault((replica.namespace, replica.id), []).append(key)
    return found
