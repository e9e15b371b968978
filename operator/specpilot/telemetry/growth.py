"""How much a replica's numbers grew between two samples, worked out when asked for.

A replica has 120 numbers, a rule asks for a handful: the difference of a number is taken when it is
read, not before. What the numbers are is kept once for all samples and replicas that have the same
(`Layout`), which is what makes tens of thousands of replicas fit into memory.
"""

import math
import operator
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import zip_longest
from typing import Any, TypeVar

from specpilot.telemetry.exposition import Key, Page, Part
from specpilot.telemetry.histograms import Buckets
from specpilot.telemetry.names import (
    LEGACY_RATE,
    POSITIONS,
    SPECULATION,
    Counter,
    Family,
    buckets_of,
)
from specpilot.telemetry.windows import Histogram

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each number stands in an array of totals. Only ever extended at its end.

    Attributes:
        keys: The numbers in order.
        gauges: Those of `keys` that are integrals of gauges.
    """

    keys: tuple[Key, ...]
    gauges: frozenset[Key]

    @cached_property
    def places(self) -> dict[Key, int]:
        """Position of each number."""
        return {key: place for place, key in enumerate(self.keys)}

    @cached_property
    def gauge_places(self) -> dict[str, int]:
        """Position of each gauge."""
        return {key[0]: self.places[key] for key in self.keys if key in self.gauges}

    @cached_property
    def restart_places(self) -> tuple[int, ...]:
        """Positions that tell a restart: some are above 0 in any engine that served a request."""
        keys: list[Key] = [(counter, "") for counter in Counter if counter not in SPECULATION]
        keys += [(family, "count") for family in Family]
        return tuple(self.places[key] for key in keys if key in self.places)

    @cached_property
    def position_places(self) -> dict[int, int]:
        """Position of each of the draft's positions."""
        return {int(part): self.places[POSITIONS, part] for part in self._parts(POSITIONS)}

    @cached_property
    def bucket_places(self) -> dict[Family, tuple[tuple[float, int], ...]]:
        """Bounds and positions of each histogram's buckets, ascending."""
        found = {
            family: tuple(
                sorted(
                    (part, self.places[family, part])
                    for part in self._parts(family)
                    if isinstance(part, float)
                )
            )
            for family in Family
        }
        return {family: buckets for family, buckets in found.items() if buckets}

    @cached_property
    def counter_places(self) -> dict[Counter, int]:
        """Position of each counter."""
        return {c: self.places[c, ""] for c in Counter if (c, "") in self.places}

    @cached_property
    def total_places(self) -> dict[Family, tuple[int, int]]:
        """Positions of each histogram's sum and count."""
        return {
            f: (self.places[f, "sum"], self.places[f, "count"])
            for f in Family
            if (f, "sum") in self.places and (f, "count") in self.places
        }

    def _parts(self, name: str) -> list[Part]:
        return [part for each, part in self.keys if each == name]

    def without(self, names: frozenset[str]) -> tuple["Layout", tuple[int, ...]]:
        """The layout without the numbers of these names, and where those that stay stood."""
        return _without(self, names)

    def read(self, page: Page) -> tuple["Layout", "array[float]"]:
        """Itself, or one with the page's new numbers at its end, and the numbers by position.

        NaN stands for a number that the page lacks, 0 where the integral of a gauge goes.
        """
        layout, order = _fitted(self, tuple(page.values), tuple(page.gauges))
        numbers = (*page.values.values(), 0.0, math.nan)
        return layout, array("d", map(numbers.__getitem__, order))


@lru_cache(maxsize=4096)
def _fitted(
    base: Layout, values: tuple[Key, ...], gauges: tuple[str, ...]
) -> tuple[Layout, tuple[int, ...]]:
    """The layout that has these numbers too, and where each of its numbers stands in a page.

    Thousands of pods show the same numbers in the same order: to look each up anew would cost more
    than all that is done with it.
    """
    known = base.gauge_places.keys() | {LEGACY_RATE}
    layout = _interned(
        base,
        tuple(sorted((key for key in values if key not in base.places), key=_order)),
        tuple(sorted((name, "") for name in gauges if name not in known)),
    )
    shown = {key: place for place, key in enumerate(values)}
    zero, nan = len(values), len(values) + 1
    return layout, tuple(
        shown.get(key, zero if key in layout.gauges else nan) for key in layout.keys
    )


@lru_cache(maxsize=4096)
def _interned(base: Layout, values: tuple[Key, ...], gauges: tuple[Key, ...]) -> Layout:
    """One layout for all replicas that show the same numbers in the same order of appearance."""
    if not values and not gauges:
        return base
    return Layout(base.keys + values + gauges, base.gauges | frozenset(gauges))


NOTHING = Layout((), frozenset())
"""Before the first page."""


@lru_cache(maxsize=256)
def _without(base: Layout, names: frozenset[str]) -> tuple[Layout, tuple[int, ...]]:
    kept = tuple(place for place, key in enumerate(base.keys) if named(key) not in names)
    if len(kept) == len(base.keys):
        return base, kept
    keys = tuple(base.keys[place] for place in kept)
    return _of(keys, base.gauges.intersection(keys)), kept


@lru_cache(maxsize=256)
def _of(keys: tuple[Key, ...], gauges: frozenset[Key]) -> Layout:
    return Layout(keys, gauges)


def named(key: Key) -> str:
    """What is at fault when a number is: a histogram's mean does not need its buckets."""
    name, part = key
    return buckets_of(Family(name)) if isinstance(part, float) else name


def _order(key: Key) -> tuple[str, bool, Part]:
    name, part = key
    return (name, isinstance(part, float), part)


class _Lazy(Mapping[K, V]):
    """A mapping whose values are made when asked for.

    Args:
        places: What a value is made of, by key.
        make: Makes it.
    """

    __slots__ = ("_make", "_places")

    def __init__(self, places: Mapping[K, P], make: Callable[[P], V]) -> None:
        self._places: Mapping[K, Any] = places
        self._make: Callable[[Any], V] = make

    def __getitem__(self, key: K) -> V:
        return self._make(self._places[key])

    def get(self, key: Any, default: Any = None) -> Any:
        """As Mapping's own, without an exception for what is missing: it is asked often."""
        place = self._places.get(key)
        return default if place is None else self._make(place)

    def __iter__(self) -> Iterator[K]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@dataclass(frozen=True, slots=True)
class Growth:
    """How much each number grew in a window.

    Attributes:
        layout: What stands where.
        grown: By position; what lies beyond its end did not grow.
        span_s: Seconds from the window's first to its last sample.
    """

    layout: Layout
    grown: Sequence[float]
    span_s: float

    @classmethod
    def between(
        cls, layout: Layout, first: "array[float]", last: "array[float]", *, span_s: float
    ) -> "Growth":
        """What happened between two totals; what lies beyond the end of the first stood at 0."""
        grown = list(map(operator.sub, last, first))
        if len(last) > len(first):
            grown += last[len(first) :]
        return cls(layout, grown, span_s)

    def at(self, place: int) -> float:
        """Growth of the number at this position."""
        return self.grown[place] if place < len(self.grown) else 0.0

    @classmethod
    def together(cls, parts: Sequence["Growth"]) -> "Growth":
        """Replicas of one layout as if they were one; its span is that of a replica.

        Numbers are summed. Gauges become the mean over replicas, each over its own span.
        """
        layout, count = parts[0].layout, len(parts)
        columns = zip_longest(*(part.grown for part in parts), fillvalue=0.0)
        grown = list(map(math.fsum, columns))
        for place in layout.gauge_places.values():
            mean = math.fsum(part.at(place) / part.span_s for part in parts) / count
            grown[place] = mean * parts[0].span_s
        return cls(layout, grown, parts[0].span_s)

    def arranged(self, layout: Layout) -> "Growth | None":
        """The same in the order of another layout; None where that has other numbers.

        The order is that in which the numbers came to be: a replica that showed one late has it
        elsewhere than one that had it from the start.
        """
        if layout is self.layout:
            return self
        if (order := _order_in(self.layout, layout)) is None:
            return None
        return Growth(layout, [self.at(place) for place in order], self.span_s)

    @property
    def empty(self) -> bool:
        """Whether nothing was ever seen."""
        layout = self.layout
        return not (layout.counter_places or layout.total_places or layout.gauge_places)

    @property
    def counters(self) -> Mapping[Counter, float]:
        """Growth of each counter."""
        return _Lazy(self.layout.counter_places, self.at)

    @property
    def positions(self) -> Mapping[int, float]:
        """Tokens accepted at each position of a draft."""
        return _Lazy(self.layout.position_places, self.at)

    @property
    def gauges(self) -> Mapping[str, float]:
        """Mean of each gauge; empty where no time passed."""
        if self.span_s <= 0:
            return {}
        return _Lazy(self.layout.gauge_places, lambda place: self.at(place) / self.span_s)

    @property
    def histograms(self) -> Mapping[Family, Histogram]:
        """Growth of each histogram, without its buckets: most are read for their mean alone."""
        return _Lazy(
            self.layout.total_places,
            lambda places: Histogram(sum=self.at(places[0]), count=self.at(places[1])),
        )

    @property
    def buckets(self) -> Mapping[Family, Buckets]:
        """Growth of each histogram's buckets."""
        return _Lazy(
            self.layout.bucket_places,
            lambda places: tuple((bound, self.at(place)) for bound, place in places),
        )


@lru_cache(maxsize=4096)
def _order_in(layout: Layout, other: Layout) -> tuple[int, ...] | None:
    """Where a layout has each number of another; None where the two have not the same."""
    if layout.places.keys() != other.places.keys() or layout.gauges != other.gauges:
        return None
    return tuple(layout.places[key] for key in other.keys)


@lru_cache(maxsize=1)
def nothing_yet() -> Growth:
    """An engine of 0.8 exports its series with the first request only: until then all is 0."""
    keys: list[Key] = [(name, "") for name in Counter if name not in SPECULATION]
    keys += [
        (family, part)
        for family in Family
        if family is not Family.TPOT  # these engines never had it
        for part in ("sum", "count")
    ]
    return Growth(Layout(tuple(keys), frozenset()), (), 0.0)
