"""What rounds fetch: the series behind the questions that were asked, and no others.

Counters and means are a handful a replica and are fetched of all. Buckets are two thirds of what an
engine shows, and most are wanted of few: a bound on a percentile is held against the replicas of a
change in flight alone. So each replica has its own, for as long as somebody asks.
"""

import functools
import operator
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from specpilot.domain.ports import Ask
from specpilot.telemetry import promql
from specpilot.telemetry.behind import Series, behind
from specpilot.telemetry.looks import FRESH
from specpilot.telemetry.names import Family, buckets_of
from specpilot.telemetry.promql import Scope
from specpilot.telemetry.rings import Lacking, identity, pod_of
from specpilot.telemetry.windows import Fault

MOST_NAMED = 1000
"""Replicas that a query names one by one; of more, or of half of them all, it asks all."""

_NONE: frozenset[Family] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a round fetches.

    Attributes:
        series: Of every replica; its `buckets` of those named.
        later: Names that are fetched for the first time, of every replica.
        had: Histograms whose buckets the round before fetched, by replica.
        named: Names of the pods whose buckets are fetched; None for all.
    """

    series: Series
    later: frozenset[str]
    had: Mapping[str, frozenset[Family]]
    named: frozenset[str] | None

    def buckets(self, key: str) -> frozenset[Family]:
        """Histograms of which this replica's buckets are fetched."""
        wanted = self.named is None or pod_of(key) in self.named
        return self.series.buckets if wanted else _NONE

    def fresh(self, key: str) -> frozenset[str]:
        """Names that are fetched for the first time of this replica."""
        more = self.buckets(key) - self.had.get(key, _NONE)
        return self.later | _names(more) if more else self.later

    def dropped(self, key: str) -> frozenset[str]:
        """Names that were fetched of this replica, and are no more."""
        return _names(self.had.get(key, _NONE) - self.buckets(key))

    def queries(self, shares: Sequence[Scope], *, over_s: float) -> "Queries":
        """The queries of a round.

        Args:
            shares: Of all replicas; together they are about each of them once.
            over_s: Seconds that means of gauges are taken over.
        """
        whole, buckets = replace(shares[0], part=0, parts=1), self.series.buckets
        chosen, parts = "", [[promql.values(share, self.series)] for share in shares]
        if buckets and self.named is not None:
            chosen = promql.buckets(replace(whole, pods=self.named), buckets)
        elif buckets:
            for part, share in zip(parts, shares, strict=True):
                part.append(promql.buckets(share, buckets))
        return Queries(
            state=promql.state(whole),
            gauges=promql.gauges(whole, over_s=over_s),
            chosen=chosen,
            shares=parts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """The queries of one look.

    Attributes:
        state: When each replica was seen.
        gauges: Means of gauges.
        chosen: Buckets of the replicas that are named; "" for none.
        shares: Everything else, for one share of the replicas after the other.
    """

    state: str
    gauges: str
    chosen: str
    shares: Sequence[Sequence[str]]

    @property
    def texts(self) -> list[str]:
        """All of them in order."""
        some = [self.chosen] if self.chosen else []
        return [self.state, self.gauges, *some, *(text for share in self.shares for text in share)]


class Demand:
    """What is asked for, and what has been fetched. Threads may ask while a round is under way.

    Args:
        lasting: Rounds for which a replica's buckets are fetched after they were asked for last.
    """

    def __init__(self, *, lasting: int) -> None:
        self._lasting = lasting
        self._lock = threading.Lock()  # guards the rest
        self._round = 0
        self._series: Series | None = None  # without buckets
        self._buckets: dict[str, tuple[frozenset[Family], int]] = {}  # and the round asked before
        self._fetched = Series()  # without buckets
        self._had: Mapping[str, frozenset[Family]] = {}  # by replica, in the newest round

    @property
    def anything(self) -> bool:
        """Whether there was a question yet."""
        with self._lock:
            return self._series is not None

    def ask(self, asks: Sequence[Ask]) -> None:
        """Note what these questions need; there must be one."""
        needs = {signals: behind(signals) for signals in {ask.signals for ask in asks}}
        plain = _plain(functools.reduce(operator.or_, needs.values()))
        with self._lock:
            self._series = plain if self._series is None else self._series | plain
            for ask in asks:
                if families := needs[ask.signals].buckets:
                    for replica in ask.replicas:
                        key = identity(replica)
                        wanted, _ = self._buckets.get(key, (families, 0))
                        self._buckets[key] = (wanted | families, self._round)

    def lacking(self) -> Lacking:
        """Tells what is lacking after the newest round."""
        with self._lock:
            fetched, had = self._fetched.names(), self._had
        needs: dict[frozenset[str], tuple[frozenset[str], frozenset[Family]]] = {}

        def of(ask: Ask, keys: Collection[str]) -> Mapping[str, Mapping[str, Fault]]:
            need = needs.get(ask.signals)
            if need is None:
                series = behind(ask.signals)
                need = needs[ask.signals] = (_plain(series).names() - fetched, series.buckets)
            later, buckets = need
            names = {key: later | _names(buckets - had.get(key, _NONE)) for key in keys}
            return {key: dict.fromkeys(each, FRESH) for key, each in names.items() if each}

        return of

    # --- rounds

    def plan(self, keys: Collection[str]) -> Plan | None:
        """What the next round fetches of these replicas; None before the first question."""
        with self._lock:
            if self._series is None:
                return None
            self._round += 1
            since = self._round - self._lasting
            self._buckets = {k: each for k, each in self._buckets.items() if each[1] >= since}
            wanted = {k: families for k, (families, _) in self._buckets.items() if k in keys}
            few = len(wanted) <= MOST_NAMED and 2 * len(wanted) < len(keys)
            families = functools.reduce(operator.or_, set(wanted.values()), _NONE)
            return Plan(
                series=replace(self._series, buckets=families),
                later=self._series.names() - self._fetched.names(),
                had=self._had,
                named=frozenset(map(pod_of, wanted)) if few else None,
            )

    def done(self, plan: Plan, keys: Iterable[str]) -> None:
        """A round has fetched what it planned, of these replicas."""
        had = {key: families for key in keys if (families := plan.buckets(key))}
        with self._lock:
            self._had = had
            self._fetched |= _plain(plan.series)


def _plain(series: Series) -> Series:
    return replace(series, buckets=_NONE)


@functools.lru_cache(maxsize=64)
def _names(families: frozenset[Family]) -> frozenset[str]:
    return frozenset(map(buckets_of, families))
