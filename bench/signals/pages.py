"""The series of a pod, over time: recorded pages of the real engine, made to move.

The shape (names, labels, buckets, order) is that of vLLM 0.32 as recorded. The numbers advance by
the recorded load every five minutes, from totals as they are after some days of service, because a
number of one digit would be cheaper to send and to read than a real one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from bench.signals.fleet import NAMESPACES, STEP_S, WINDOW_S
from specpilot.telemetry.exposition import parse
from tests import recordings

_STEMS = {True: "0.32.0-ngram-repetitive-c16", False: "0.32.0-nospec-random-c16"}

_TYPE = re.compile(r"^# TYPE (\S+) (\S+)$")
_LINE = re.compile(r"^([^\s{]+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([^=,]+)="([^"]*)"')

_SCRAPE = {
    "up": 1.0,
    "scrape_duration_seconds": 0.011973211,
    "scrape_samples_scraped": 444.0,
    "scrape_samples_post_metric_relabeling": 444.0,
    "scrape_series_added": 0.0,
}
"""What Prometheus itself writes for every target."""

_MOVING_GAUGES = ("vllm:num_requests_", "vllm:kv_cache_usage_perc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series of a page.

    Attributes:
        name: Its name.
        labels: Its labels as the page has them, without those of the scrape.
        total: The recorded number: a cumulative one after the load, a gauge under load.
        growth: By how much the load raised it; 0 for a gauge.
        whole: Whether it counts things.
        moving: Whether it is a gauge that follows the load.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    total: float
    growth: float = 0.0
    whole: bool = False
    moving: bool = False

    def value(self, namespace: str, step: int) -> float:
        """The number at a scrape; pods of different namespaces have different ones."""
        place = int(namespace[-2:])
        if self.moving:
            return self.total * (0.5 + (step + place) % 5 / 5)
        if self.growth == 0.0:
            return self.total
        loads = 200 + place + (step * STEP_S / WINDOW_S) * (1 + place / NAMESPACES)
        value = self.total + self.growth * loads
        return float(round(value)) if self.whole else value


@cache
def series(speculates: bool) -> tuple[Series, ...]:
    """The whole page of a pod, and what Prometheus adds to it."""
    stem = _STEMS[speculates]
    (load,) = (each for each in recordings.loads() if each.stem == stem)
    before = {key: value for key, value, _ in _lines(load.before)}
    during = {key: value for key, value, _ in _lines(load.during)}
    found = []
    for (name, labels), after, kind in _lines(load.after):
        if kind in {"counter", "histogram", "summary"}:
            growth = after - before.get((name, labels), 0.0)
            whole = after.is_integer() and growth.is_integer()
            found.append(Series(name=name, labels=labels, total=after, growth=growth, whole=whole))
        else:
            total = during.get((name, labels), after)
            moving = name.startswith(_MOVING_GAUGES)
            found.append(Series(name=name, labels=labels, total=total, moving=moving))
    found += [Series(name=name, labels=(), total=total) for name, total in _SCRAPE.items()]
    return tuple(found)


def read_by_the_product(each: Series) -> bool:
    """Whether the product makes anything of it, as its own reader of pages says."""
    labels = ",".join(f'{name}="{value}"' for name, value in each.labels)
    page = parse(f"{each.name}{{{labels}}} 1\n".encode())
    return bool(page.values or page.gauges) or each.name in {
        "up",
        "vllm:cache_config_info",
    }


Key = tuple[str, tuple[tuple[str, str], ...]]


def _lines(page: bytes) -> Iterator[tuple[Key, float, str]]:
    """Every number of a page, with the type of its family."""
    kind = ""
    for line in page.decode().splitlines():
        if found := _TYPE.match(line):
            kind = found[2]
        elif found := _LINE.match(line):
            labels = tuple(sorted(_LABEL.findall(found[2] or "")))
            yield (found[1], labels), float(found[3]), kind
