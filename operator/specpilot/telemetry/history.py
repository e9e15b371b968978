"""What a replica's numbers were over time, so that any window can be cut out of them.

Every source feeds this: the direct scrape, Prometheus asked once a round, saved pages. Numbers are
kept as totals that only grow. A counter that restarted with its engine goes on from where it stood;
a gauge is kept as its integral. So what happened between two moments is one subtraction, whatever
lies between them, and old samples can be thinned out without changing any answer at those kept.

An engine restarts as a whole, so a restart is found once for all series: a sum and its count can
never be cut at different places.
"""

import math
import operator
from array import array
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice

from specpilot.telemetry.exposition import PROCESS_START, Key, Page
from specpilot.telemetry.growth import NOTHING, Growth, Layout, named, nothing_yet
from specpilot.telemetry.looks import (
    ABSENT,
    FELL,
    FRESH,
    MISSING,
    MUTE,
    Bad,
    grew,
    restarted,
    served,
)
from specpilot.telemetry.names import HTTP, LARGEST, LEGACY_RATE
from specpilot.telemetry.samples import Before, Edge, Sample
from specpilot.telemetry.windows import ReplicaWindow, failed_window, unusable

_LATE: frozenset[Key] = frozenset({PROCESS_START, *((counter, "") for counter in HTTP)})
"""Numbers that an engine with requests behind it may show later than others, or not at all."""
_FINE = 8
"""Samples lie closer together than an eighth of their age, or as they were taken, so the start of a
window is exact to an eighth of its length. It halves the memory of a large fleet."""
_THIN_EVERY = 8
_FOREVER = math.inf


@dataclass(slots=True)
class History:
    """The samples of one replica, oldest first, no older than `keep_s` seconds."""

    keep_s: float
    every: bool = False  # none is thinned out, so that nothing depends on when the first was taken
    samples: list[Sample] = field(default_factory=list)
    fetched: frozenset[str] = frozenset()  # names that the newest look was for, if not for all
    _layout: Layout = NOTHING
    _newest: Edge | None = None
    _oldest: Edge | None = None
    _bad: list[Bad] = field(default_factory=list)
    _added: int = 0

    @property
    def covers(self) -> tuple[float, float] | None:
        """Times of the oldest and the newest sample."""
        return (self.samples[0].at, self.samples[-1].at) if self.samples else None

    # --- growing

    def add(
        self,
        at: float,
        page: Page,
        *,
        means: dict[str, float] | None = None,
        fetched: frozenset[str] | None = None,
    ) -> None:
        """Append a look taken at `at` (seconds since the epoch).

        Args:
            at: When the numbers were true.
            page: The numbers.
            means: Means of gauges since the look before, where the source knows better than the
                two ends.
            fetched: Names that were looked for, None for all. That others are not there says
                nothing; what was looked for before and is no more is forgotten.
        """
        if self.samples and self.samples[-1].at >= at:
            self._set_back(at)
        if not page.engine and self.samples:
            # A page of nothing (an error page, statistics switched off) says nothing of counters.
            self._append(replace(self.samples[-1], at=at, number=self._added + 1, engine=False))
            return
        fresh: frozenset[str] = frozenset()
        if fetched is not None and fetched != self.fetched:
            fresh = fetched - self.fetched
            self._forget(self.fetched - fetched)
            self.fetched = fetched
        self._layout, raw = self._layout.read(page)
        if self._newest is None or not self.samples:
            totals, edge = self._begin(at, page, raw)
        else:
            totals, edge = self._go_on(at, page, raw, means, fresh)
        self._newest = edge
        if self._oldest is None:
            self._oldest = edge
        self._append(Sample.of(at, self._added + 1, totals, page))

    def _begin(self, at: float, page: Page, raw: "array[float]") -> tuple["array[float]", Edge]:
        """The first look: what was before is not known, and every total begins as it stands."""
        for key, value in page.values.items():
            self._refuse(named(key), value, at)
        for name, value in page.gauges.items():
            self._refuse(name, value, at)
        totals = array("d", [0.0 if math.isnan(each) else each for each in raw])
        return totals, Edge(raw, page.gauges)

    def _go_on(
        self,
        at: float,
        page: Page,
        raw: "array[float]",
        means: dict[str, float] | None,
        fresh: frozenset[str],
    ) -> tuple["array[float]", Edge]:
        """A further look."""
        layout, edge, before = self._layout, self._newest, self.samples[-1]
        assert edge is not None
        missing = len(raw) - len(before.totals)
        old, past = before.totals, edge.raw
        offsets, gauges = edge.offsets, edge.gauges
        if missing:
            old = old + array("d", bytes(8 * missing))
        if len(past) < len(raw):
            past = past + ABSENT * (len(raw) - len(past))
        if restarted(layout, past, raw):
            offsets, past, gauges = old, ABSENT * len(raw), {}
        else:
            if offsets is not None:
                offsets = offsets + array("d", bytes(8 * (len(raw) - len(offsets))))
            if missing and served(layout, past):
                self._were_missing(len(raw) - missing, page, at, fresh)
        totals = self._totals(page, raw, past, before=Before(old, offsets), at=at)
        for name, place in layout.gauge_places.items():
            mean = self._mean(name, page, gauges, means, since=before.at, at=at)
            totals[place] = old[place] + mean * (at - before.at)
        for name in fresh:
            self._bad.append(Bad(name, -_FOREVER, at, FRESH))
        return totals, Edge(raw, gauges | page.gauges, offsets)

    def _append(self, sample: Sample) -> None:
        self._added = sample.number
        self.samples.append(sample)
        self._prune(sample.at)

    def _were_missing(self, first: int, page: Page, at: float, fresh: frozenset[str]) -> None:
        """Series that an engine with requests behind it shows only now were left out before.

        Were their growth counted from 0, the engine's whole life would be taken for a window.
        """
        for key in self._layout.keys[first:]:
            name = named(key)
            if key in page.values and name not in fresh and key not in _LATE:
                self._bad.append(Bad(name, -_FOREVER, at, MISSING))

    def _mean(
        self,
        name: str,
        page: Page,
        before: dict[str, float],
        means: dict[str, float] | None,
        *,
        since: float,
        at: float,
    ) -> float:
        """The mean of a gauge since the look before, 0 where there is none.

        A gauge that was never there counts as 0: with several API servers it comes with the first
        request (see `reads.gauge`). One that was there and is gone was lost on the way.
        """
        now = page.gauges.get(name)
        if now is None:
            if name in before:
                begin = math.nextafter(since, _FOREVER)
                self._bad.append(Bad(name, begin, math.nextafter(at, _FOREVER), MISSING))
            return 0.0
        if self._refuse(name, now, at):
            return 0.0
        mean = (now + before.get(name, 0.0)) / 2 if means is None else means.get(name, now)
        return mean if 0.0 <= mean < LARGEST else 0.0

    def prepend(
        self,
        at: float,
        page: Page,
        *,
        means: dict[str, float],
        fetched: frozenset[str] = frozenset(),
    ) -> None:
        """Put a look of the past before all others.

        Args:
            at: When the numbers were true.
            page: The numbers.
            means: Means of gauges from then until the oldest look.
            fetched: Names that were looked for. Those that the newest look was not for are left
                out: nothing could be said of what happened since.
        """
        if more := fetched - self.fetched:
            values = {key: each for key, each in page.values.items() if named(key) not in more}
            page = replace(page, values=values)
        edge = self._oldest
        if edge is None or not self.samples or at >= self.samples[0].at:
            return
        first = self.samples[0]
        layout, raws = self._layout.read(page)
        self._layout = layout
        after = edge.raw + ABSENT * (len(raws) - len(edge.raw))
        anew, busy = restarted(layout, raws, after), served(layout, raws)
        totals = array("d", bytes(8 * len(layout.keys)))
        gap = first.at - at
        for place, key in enumerate(layout.keys):
            total = first.totals[place] if place < len(first.totals) else 0.0
            if key in layout.gauges:
                totals[place] = total - means.get(key[0], 0.0) * gap
                continue
            raw, then = after[place], raws[place]
            raw, then = (0.0 if math.isnan(each) else each for each in (raw, then))
            fault = unusable(raw) or unusable(then)
            if fault is None and raw < then and not anew:
                fault = FELL
            lost = busy and math.isnan(raws[place]) != math.isnan(after[place])
            if fault is None and not anew and lost and key not in _LATE:
                fault = MISSING
            if fault is not None:
                self._bad.append(Bad(named(key), at, first.at, fault))
                raw = then = 0.0
            totals[place] = total - (raw if anew else raw - then)
        for name, value in page.gauges.items():
            self._refuse(name, value, at)
        self.samples.insert(0, Sample.of(at, first.number - 1, totals, page))
        self._oldest = Edge(raws, page.gauges)

    def _forget(self, names: frozenset[str]) -> None:
        """Drop numbers that are looked for no more, as if they had never been.

        They may be looked for again: what happened meanwhile must not count as one look's growth.
        """
        layout, kept = self._layout.without(names)
        if layout is self._layout:
            return
        self.samples = [each.only(kept) for each in self.samples]
        self._layout = layout
        self._newest = self._newest and self._newest.only(kept)
        self._oldest = self._oldest and self._oldest.only(kept)
        self._bad = [bad for bad in self._bad if bad.name not in names]

    def _set_back(self, at: float) -> None:
        """The clock was set back: what lies ahead of it cannot be placed, so begin anew."""
        keep = [sample for sample in self.samples if sample.at < at]
        self.samples, self._newest, self._oldest = keep, self._newest, None
        if not keep:
            self._newest, self._layout, self._bad = None, NOTHING, []

    def _totals(
        self,
        page: Page,
        raw: "array[float]",
        past: "array[float]",
        *,
        before: Before,
        at: float,
    ) -> "array[float]":
        """The totals of a look: the raw numbers, raised by what was there before a restart."""
        totals = array("d", raw)
        places = () if grew(past, raw) else range(len(raw))
        for place in places:
            now, then = raw[place], past[place]
            if 0.0 <= then <= now < LARGEST:
                continue
            if 0.0 <= now < LARGEST and math.isnan(then):
                continue  # came into being, or has no good number to be compared with
            key, after = self._layout.keys[place], math.nextafter(at, _FOREVER)
            if key not in page.values:
                totals[place] = before.raw(place)  # as if nothing had happened meanwhile
                raw[place] = then
                if not math.isnan(then) and key != PROCESS_START:
                    self._bad.append(Bad(named(key), at, after, MISSING, ends=True))
                continue
            fault = FELL if 0.0 <= now < LARGEST else unusable(now) or FELL
            if key != PROCESS_START:
                self._bad.append(Bad(named(key), at, after, fault))
            if fault is not FELL:
                totals[place] = before.raw(place)
        if before.offsets is not None:
            totals = array("d", map(operator.add, totals, before.offsets))
        return totals

    def _refuse(self, name: str, value: float, at: float) -> bool:
        """Whether a number is impossible; it is noted that this look has none."""
        if 0.0 <= value < LARGEST or name == LEGACY_RATE:
            return False
        if fault := unusable(value):
            self._bad.append(Bad(name, at, math.nextafter(at, _FOREVER), fault))
        return True

    def _prune(self, now: float) -> None:
        oldest = now - self.keep_s
        gone = 0
        while self.samples[gone].at < oldest:
            gone += 1
        if gone:
            del self.samples[:gone]
            self._oldest = None
        if self._added % _THIN_EVERY == 0:
            if not self.every:
                self._thin(now)
            self._bad = [bad for bad in self._bad if bad.until > oldest]

    def _thin(self, now: float) -> None:
        """Drop a sample where its neighbours lie close enough together without it."""
        kept = deque(self.samples[-2:])
        for older, sample in zip(self.samples[-4::-1], self.samples[-3:0:-1], strict=True):
            if kept[0].at - older.at > (now - sample.at) / _FINE:
                kept.appendleft(sample)
        if len(self.samples) > len(kept) + 1:
            self.samples = [self.samples[0], *kept]

    # --- cutting

    def window(
        self,
        start: float,
        end: float,
        *,
        replica: str,
        interval_s: float,
        declared_on: bool,
        not_before: float = -_FOREVER,
    ) -> ReplicaWindow | None:
        """What happened from `start` to `end`; None without a sample in it.

        Both ends are the newest samples at or before them, so that windows that meet share a sample
        and nothing falls between them. Where there is none before the start, or it is too old or
        from before `not_before` (the warm-up), the window begins with its first sample.
        """
        stop = bisect_right(self.samples, end, key=_at)
        if stop == 0:
            return None
        place = bisect_right(self.samples, start, key=_at, hi=stop) - 1
        slack = max(1.5 * interval_s, (end - start) / 8)
        if place < 0 or self.samples[place].at < max(not_before, start - slack):
            place = bisect_right(self.samples, max(start, not_before), key=_at, hi=stop)
            if place > 0 and self.samples[place - 1].at == max(start, not_before):
                place -= 1
        if place >= stop:
            return None
        last = self.samples[stop - 1]
        if not last.engine:
            return failed_window(replica, MUTE, declared_on=declared_on)
        first = next(sample for sample in islice(self.samples, place, stop) if sample.engine)
        faults = {
            bad.name: bad.fault for bad in reversed(self._bad) if bad.spoils(first.at, last.at)
        }
        growth = Growth.between(self._layout, first.totals, last.totals, span_s=last.at - first.at)
        if growth.empty and not faults:
            growth = nothing_yet()
        return ReplicaWindow(
            replica=replica,
            first=datetime.fromtimestamp(first.at, UTC),
            last=datetime.fromtimestamp(last.at, UTC),
            samples=last.number - first.number + 1,
            span_s=last.at - first.at,
            interval_s=interval_s,
            counters=growth.counters,
            positions=growth.positions,
            histograms=growth.histograms,
            buckets=growth.buckets,
            growth=growth,
            gauges=growth.gauges,
            faults=faults,
            speculation=last.speculation,
            legacy_rate=last.legacy_rate,
            one_server=PROCESS_START in self._layout.places,
            declared_on=declared_on,
        )


def _at(sample: Sample) -> float:
    return sample.at
