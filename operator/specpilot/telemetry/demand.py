"""What rounds fetch: the series behind the questions that were asked, and no others.

Counters and means are a handful a replica and are fetched of all. Buckets are two thirds of what an
engine shows, and most are wanted of few: a bound on a percentile is held against the replicas of a
change in flight alone. So each replica has its own, for as long as somebody asks. What was really
fetched of a replica, and since when, is known to its history (`History.fetched`).
"""

import functools
import operator
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from specpilot.domain.ports import Ask
from specpilot.telemetry import promql
from specpilot.telemetry.behind import Series, behind
from specpilot.telemetry.names import Family
from specpilot.telemetry.promql import Scope
from specpilot.telemetry.rings import pod_of

MOST_LETTERS = 8000
"""Letters of the names in one query that names pods one by one; VictoriaMetrics takes 16,384."""

MOST_LETTERS_TOGETHER = 14_000
"""Letters of a query for counters and gauges or buckets as well, for the same reason."""

MOST_CHOSEN = 4
"""So many such queries are put at most: of more pods, or of half of them all, the buckets of all
come."""

_NONE: frozenset[Family] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a round fetches.

    Attributes:
        series: Of every replica; its `buckets` of `takers` alone.
        takers: Replicas whose buckets are fetched.
        named: Names of their pods, a query each; None where it is everybody.
        plain: Names that are fetched of every replica.
        whole: Names that are fetched of those whose buckets are.
    """

    series: Series
    takers: frozenset[str]
    named: Sequence[Sequence[str]] | None
    plain: frozenset[str]
    whole: frozenset[str]

    def fetched(self, key: str) -> frozenset[str]:
        """Names that are fetched of this replica."""
        return self.whole if key in self.takers else self.plain

    def of_all(self, keys: Iterable[str]) -> "Plan":
        """The same with the buckets of all replicas."""
        return replace(self, takers=frozenset(keys), named=None)

    def queries(
        self,
        shares: Sequence[Scope],
        *,
        over_s: float,
        small: bool = False,
        means_apart: bool = False,
    ) -> "Queries":
        """The queries of a round. What is short enough comes in one.

        Args:
            shares: Of all replicas; together they are about each of them once.
            over_s: Seconds that means of gauges are taken over.
            small: Whether the answer for a share may hold the buckets of all as well.
            means_apart: Gauges have a query of their own, for they are of another moment.
        """
        everybody = {name for share in shares for name in share.namespaces}
        scope = replace(shares[0], namespaces=everybody, part=0, parts=1)
        families = self.series.buckets
        values = [promql.values(share, self.series) for share in shares]
        gauges = [promql.gauges(share, over_s=over_s) for share in shares]
        apart = means_apart or not all(map(_fit, values, gauges))
        parts = [[text] for text in (values if apart else map(promql.together, values, gauges))]
        named = [promql.buckets(replace(scope, pods=some), families) for some in self.named or ()]
        if self.named is None:
            for part, share in zip(parts, shares, strict=True):
                _join(part, promql.buckets(share, families), together=small)
        elif len(parts) == len(named) == 1:
            _join(parts[0], named.pop(), together=True)
        alone = len(parts) == len(parts[0]) == 1
        return Queries(
            whole=self.named is None and alone,
            state=promql.state(scope),
            gauges=promql.gauges(scope, over_s=over_s) if apart else "",
            chosen=named,
            shares=parts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """The queries of one look.

    Attributes:
        whole: Whether the buckets of all come with everything else.
        state: When each replica was seen.
        gauges: Means of gauges; "" where they come with everything else.
        chosen: Buckets of the replicas that are named.
        shares: Everything else, for one share of the replicas after the other.
    """

    whole: bool
    state: str
    gauges: str
    chosen: Sequence[str]
    shares: Sequence[Sequence[str]]

    @property
    def texts(self) -> list[str]:
        """All of them in order."""
        gauges = [self.gauges] if self.gauges else []
        return [self.state, *gauges, *self.chosen, *(t for share in self.shares for t in share)]


class Demand:
    """What is asked for. Threads may ask while rounds are under way.

    Args:
        lasting_s: Seconds for which a replica's buckets are fetched after they were asked for last.
    """

    def __init__(self, *, lasting_s: float) -> None:
        self._lasting_s = lasting_s
        self._lock = threading.Lock()  # guards the rest
        self._series: Series | None = None  # without buckets
        self._asked: dict[tuple[str, frozenset[Family]], float] = {}  # when, of a replica
        self._starts: dict[float, float] = {}  # start of a window: its length

    @property
    def anything(self) -> bool:
        """Whether there was a question yet."""
        with self._lock:
            return self._series is not None

    def ask(self, asks: Sequence[Ask], *, now: float) -> None:
        """Note what these questions need; there must be one."""
        needs = {signals: behind(signals) for signals in {ask.signals for ask in asks}}
        plain = _plain(functools.reduce(operator.or_, needs.values()))
        with self._lock:
            self._series = plain if self._series is None else self._series | plain
            for ask in asks:
                if families := needs[ask.signals].buckets:
                    asked = ((replica.key, families) for replica in ask.replicas)
                    self._asked |= dict.fromkeys(asked, now)
                self._starts[ask.start.timestamp()] = (ask.end - ask.start).total_seconds()

    def starts(self) -> Mapping[float, float]:
        """Starts of windows that were asked for, and their lengths in seconds."""
        with self._lock:
            return self._starts.copy()

    def forget_starts(self, *, before: float) -> None:
        """Forget starts that are too long ago."""
        with self._lock:
            self._starts = {s: length for s, length in self._starts.items() if s >= before}

    def plan(
        self, keys: Collection[str], *, now: float, most_chosen: int = MOST_CHOSEN
    ) -> Plan | None:
        """What the next round fetches of these replicas; None before the first question.

        Args:
            keys: The replicas.
            now: When it is.
            most_chosen: Queries that name pods one by one.
        """
        with self._lock:
            if self._series is None:
                return None
            since = now - self._lasting_s
            self._asked = {each: asked for each, asked in self._asked.items() if asked >= since}
            plain, wanted = self._series, [each for each in self._asked if each[0] in keys]
        series = replace(
            plain, buckets=functools.reduce(operator.or_, {f for _, f in wanted}, _NONE)
        )
        choosers = {key for key, _ in wanted}
        pods = {pod_of(key) for key in choosers}
        chosen = _queries_of(pods)
        named: list[list[str]] | None = chosen
        if choosers and (len(chosen) > most_chosen or 2 * len(choosers) >= len(keys)):
            takers, named = frozenset(keys), None
        else:
            takers = frozenset(key for key in keys if pod_of(key) in pods) if pods else frozenset()
        return Plan(
            series=series, takers=takers, named=named, plain=plain.names(), whole=series.names()
        )


@functools.lru_cache(maxsize=256)
def _names_behind(signals: frozenset[str]) -> frozenset[str]:
    return behind(signals).names()


def needed(ask: Ask) -> frozenset[str]:
    """Names of the series that a question needs."""
    return _names_behind(ask.signals)


def _plain(series: Series) -> Series:
    return replace(series, buckets=_NONE)


def _fit(*texts: str) -> bool:
    """Whether servers take them as one query."""
    return len(promql.together(*texts)) <= MOST_LETTERS_TOGETHER


def _join(part: list[str], text: str, *, together: bool) -> None:
    """Have a query put together with the last one of a share, or after it."""
    if together and _fit(part[-1], text):
        part[-1] = promql.together(part[-1], text)
    else:
        part.append(text)


def _queries_of(pods: Iterable[str]) -> list[list[str]]:
    """Names in as many parts as there must be queries for them."""
    parts: list[list[str]] = []
    left = 0
    for pod in sorted(pods):
        size = len(pod) + 1
        if size > left:
            parts.append([])
            left = MOST_LETTERS
        parts[-1].append(pod)
        left -= size
    return parts
