"""How much a replica's numbers grew between two samples, worked out when asked for.

A replica has 120 numbers, a rule asks for a handful: the difference of a number is taken when it is
read, not before. What the numbers are is kept once for all samples and replicas that have the same
(`Layout`), which is what makes tens of thousands of replicas fit into memory.
"""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

from specpilot.telemetry.exposition import Key, Page, Part
from specpilot.telemetry.names import (
    LEGACY_RATE,
    POSITIONS,
    SPECULATION,
    Counter,
    Family,
)
from specpilot.telemetry.windows import Histogram

K = TypeVar("K")
V = TypeVar("V")


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
    def position_places(self) -> dict[int, int]:
        """Position of each of the draft's positions."""
        return {int(part): self.places[POSITIONS, part] for part in self._parts(POSITIONS)}

    @cached_property
    def bucket_places(self) -> dict[str, tuple[tuple[float, int], ...]]:
        """Bounds and positions of each histogram's buckets, ascending."""
        return {
            family: tuple(
                sorted(
                    (part, self.places[family, part])
                    for part in self._parts(family)
                    if isinstance(part, float)
                )
            )
            for family in Family
        }

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """Histograms with both a sum and a count."""
        return tuple(f for f in Family if (f, "sum") in self.places and (f, "count") in self.places)

    @cached_property
    def counters(self) -> tuple[Counter, ...]:
        """Counters there are."""
        return tuple(c for c in Counter if (c, "") in self.places)

    def _parts(self, name: str) -> list[Part]:
        return [part for each, part in self.keys if each == name]

    def extended(self, page: Page) -> "Layout":
        """Itself, or one with the page's new numbers at its end."""
        places, gauges = self.places, self.gauge_places
        if page.values.keys() <= places.keys() and page.gauges.keys() <= gauges.keys():
            return self
        values = sorted((k for k in page.values if k not in places), key=_order)
        more = sorted(
            (name, "") for name in page.gauges if name not in gauges and name != LEGACY_RATE
        )
        if not values and not more:
            return self
        return _interned(self, tuple(values), tuple(more))


@lru_cache(maxsize=4096)
def _interned(base: Layout, values: tuple[Key, ...], gauges: tuple[Key, ...]) -> Layout:
    """One layout for all replicas that show the same numbers in the same order of appearance."""
    return Layout(base.keys + values + gauges, base.gauges | frozenset(gauges))


NOTHING = Layout((), frozenset())
"""Before the first page."""


def _order(key: Key) -> tuple[str, bool, Part]:
    name, part = key
    return (name, isinstance(part, float), part)


@dataclass(frozen=True)
class _Lazy(Mapping[K, V]):
    """A mapping with few keys whose values are made when asked for."""

    growth: "Growth"

    def known(self) -> tuple[K, ...]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[K]:
        return iter(self.known())

    def __len__(self) -> int:
        return len(self.known())


class _Counters(_Lazy[Counter, float]):
    def known(self) -> tuple[Counter, ...]:
        return self.growth.layout.counters

    def __getitem__(self, name: Counter) -> float:
        return self.growth.at(self.growth.layout.places[name, ""])


class _Positions(_Lazy[int, float]):
    def known(self) -> tuple[int, ...]:
        return tuple(self.growth.layout.position_places)

    def __getitem__(self, position: int) -> float:
        return self.growth.at(self.growth.layout.position_places[position])


class _Gauges(_Lazy[str, float]):
    def known(self) -> tuple[str, ...]:
        return tuple(self.growth.layout.gauge_places) if self.growth.span_s > 0 else ()

    def __getitem__(self, name: str) -> float:
        if self.growth.span_s <= 0:
            raise KeyError(name)
        return self.growth.at(self.growth.layout.gauge_places[name]) / self.growth.span_s


class _Histograms(_Lazy[Family, Histogram]):
    def known(self) -> tuple[Family, ...]:
        return self.growth.layout.families

    def __getitem__(self, family: Family) -> Histogram:
        growth, places = self.growth, self.growth.layout.places
        return Histogram(
            sum=growth.at(places[family, "sum"]),
            count=growth.at(places[family, "count"]),
            buckets=tuple(
                (bound, growth.at(place))
                for bound, place in growth.layout.bucket_places.get(family, ())
            ),
        )


@dataclass(frozen=True, slots=True)
class Growth:
    """Totals at the two ends of a window.

    Attributes:
        layout: What stands where; at least as long as the arrays.
        first: At the start. What lies beyond its end stood at 0.
        last: At the end.
        span_s: Seconds between them.
    """

    layout: Layout
    first: "array[float]"
    last: "array[float]"
    span_s: float

    def at(self, place: int) -> float:
        """Growth of the number at this position."""
        last = self.last[place] if place < len(self.last) else 0.0
        return last - self.first[place] if place < len(self.first) else last

    @property
    def empty(self) -> bool:
        """Whether no counter and no histogram was ever seen."""
        return not self.layout.counters and not self.layout.families and not self.gauges

    @property
    def counters(self) -> Mapping[Counter, float]:
        """Growth of each counter."""
        return _Counters(self)

    @property
    def positions(self) -> Mapping[int, float]:
        """Tokens accepted at each position of a draft."""
        return _Positions(self)

    @property
    def gauges(self) -> Mapping[str, float]:
        """Mean of each gauge; empty where no time passed."""
        return _Gauges(self)

    @property
    def histograms(self) -> Mapping[Family, Histogram]:
        """Growth of each histogram."""
        return _Histograms(self)


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
    return Growth(Layout(tuple(keys), frozenset()), array("d"), array("d"), 0.0)
