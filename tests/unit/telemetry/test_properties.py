"""What holds for any scrape times, any restarts, any order of pods, and any page whatever."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.domain.readings import Readings, UnknownReason
from specpilot.domain.signals import MEASURED, SIGNALS, Unit
from specpilot.telemetry.derive import derive
from specpilot.telemetry.reads import put_together
from specpilot.telemetry.windows import Arm
from tests import recordings
from tests.unit.telemetry.measuring import Pages, measured, measured_arm, window_over

SERIES: Pages = [(scrape.t, scrape.page) for scrape in recordings.series()]
WHOLE = measured(SERIES)
MOMENTARY = {"batch_size", "queue_depth", "kv_cache_usage", "tokens_per_second_per_request"}
"""What depends on when one looked; everything else is a difference of two totals."""
COUNTED = set(MEASURED) - MOMENTARY

PAGES = [
    "0.32.0-ngram-repetitive-c16-after.prom",
    "0.32.0-nospec-random-c16-during.prom",
    "0.10.2-nospec-mixed-c4-after.prom",
    "0.8.5-ngram-v0-repetitive-c16-after.prom",
]

QUICK = settings(max_examples=15)
"""An example measures dozens of pages of 50 kB, and the machine may be busy."""

HARD = settings(max_examples=60, report_multiple_bugs=False)


def same(one: Readings, other: Readings, *, signals: set[str] | None = None) -> None:
    for name in signals or set(MEASURED):
        a, b = one[name], other[name]
        assert a.reason == b.reason, f"{name}: {a} is not {b}"
        for got, want in ((a.value, b.value), (a.low, b.low), (a.high, b.high)):
            assert got == (want if want is None else pytest.approx(want, rel=1e-9)), name


# --- when one looked


@QUICK
@given(st.sets(st.integers(1, len(SERIES) - 2)))
def test_any_scrapes_between_the_ends_give_the_same_counts(between: set[int]) -> None:
    chosen = [SERIES[0], *(SERIES[i] for i in sorted(between)), SERIES[-1]]
    same(measured(chosen), WHOLE, signals=COUNTED)


@QUICK
@given(st.data())
def test_windows_that_meet_add_up(data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(SERIES) - 2), min_size=1, max_size=6)))
    edges = [0, *cuts, len(SERIES) - 1]
    parts = [measured(SERIES[a : b + 1]) for a, b in pairwise(edges)]
    for signal in ("drafts", "draft_tokens", "preemptions"):
        assert math.fsum(part.value(signal) or 0.0 for part in parts) == WHOLE.value(signal)
    for signal in ("batch_size", "queue_depth", "kv_cache_usage", "tokens_per_second"):
        weighed = math.fsum((p.value(signal) or 0.0) * (p[signal].window_s or 0.0) for p in parts)
        total = WHOLE.value(signal)
        assert total is not None
        assert weighed == pytest.approx(total * (WHOLE[signal].window_s or 0.0)), signal


# --- several replicas


@QUICK
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(25, 51)), min_size=2, max_size=5))
def test_replicas_put_together_say_what_they_say_one_by_one(spans: list[tuple[int, int]]) -> None:
    """The short cut for arms whose replicas differ in numbers alone."""
    windows = [
        window_over(SERIES[first : last + 1], replica=f"pod-{place}")
        for place, (first, last) in enumerate(spans)
    ]
    last = max(window.last for window in windows if window.last is not None)
    arm = Arm(source="pages", end=last, window_s=60.0, replicas=tuple(windows), stale_floor_s=99.0)
    apart = replace(arm, replicas=tuple(replace(window, growth=None) for window in windows))
    assert put_together(arm.replicas) is not None
    assert put_together(apart.replicas) is None
    same(derive(arm, ready=len(spans)), derive(apart, ready=len(spans)))


# --- restarts

COUNTS = re.compile(
    rb"^(vllm:[a-z0-9_:]+(?:_total|_count|_sum|_bucket))(\{[^\n]*\})? ([^ \n]+)$", re.MULTILINE
)
START = re.compile(rb"^process_start_time_seconds ([^ \n]+)$", re.MULTILINE)


def reborn(page: bytes, at_start: bytes, *, start_time: float | None) -> bytes:
    """The page of an engine that began at 0 when the other page was scraped.

    Args:
        page: A later page of the engine that did not restart.
        at_start: Its page at the moment of the restart.
        start_time: What the process says of its start; None when it does not say.
    """
    base = {(m[1], m[2]): float(m[3]) for m in COUNTS.finditer(at_start)}

    def less(match: re.Match[bytes]) -> bytes:
        value = float(match[3]) - base.get((match[1], match[2]), 0.0)
        return b"%b%b %s" % (match[1], match[2] or b"", repr(value).encode())

    found = COUNTS.sub(less, page)
    line = b"" if start_time is None else b"process_start_time_seconds %f" % start_time
    return START.sub(line, found)


def without_start(page: bytes) -> bytes:
    return START.sub(b"", page)


SAYS_START = st.tuples(
    st.lists(st.integers(9, len(SERIES) - 3), min_size=1, max_size=3, unique=True), st.just(True)
)
DOES_NOT = st.tuples(
    st.lists(st.integers(20, len(SERIES) - 3), min_size=1, max_size=1), st.just(False)
)
"""Then a restart shows only while the new process has counted less than the old one had."""


@QUICK
@given(st.one_of(SAYS_START, DOES_NOT), st.sets(st.integers(1, len(SERIES) - 2), max_size=12))
def test_restarts_lose_nothing_that_was_seen(
    case: tuple[list[int], bool], between: set[int]
) -> None:
    """A restart right after a scrape: nothing goes by unseen, so nothing may be missing."""
    births, says_start = sorted(case[0]), case[1]
    pages: list[tuple[float, bytes]] = []
    since: int | None = None
    for i, (at, page) in enumerate(SERIES):
        shown = page if says_start else without_start(page)
        if since is not None:
            started = 2e9 + 100 * since if says_start else None
            shown = reborn(page, SERIES[since][1], start_time=started)
        if i in {0, len(SERIES) - 1} or i in between or i in births or i - 1 in births:
            pages.append((at, shown))
        if i in births:
            since = i
    # Without a start time it is not known either whether one API server counts the steps.
    same(measured(pages), WHOLE, signals=COUNTED if says_start else COUNTED - {"tokens_per_step"})


@QUICK
@given(st.integers(9, len(SERIES) - 3), st.booleans())
def test_what_a_restart_hides_is_missing_never_negative(restart: int, says_start: bool) -> None:
    """Only the ends are seen: the first life's counts are lost, and nothing is made up."""
    started = 2e9 if says_start else None
    first = SERIES[5][1] if says_start else without_start(SERIES[5][1])
    last = reborn(SERIES[-1][1], SERIES[restart][1], start_time=started)
    got = measured([(SERIES[5][0], first), (SERIES[-1][0], last)])
    sane(got)
    for signal in ("drafts", "draft_tokens"):
        value, whole = got.value(signal), WHOLE.value(signal)
        assert whole is not None
        if value is not None:
            assert value <= whole
        else:
            assert got[signal].reason is UnknownReason.AMBIGUOUS


# --- which pod comes first


@QUICK
@given(st.permutations(range(4)))
def test_the_order_of_pods_does_not_matter(order: list[int]) -> None:
    pods = {f"pod-{i}": SERIES[8 * i : 8 * i + 20] for i in range(4)}
    shuffled = {f"pod-{i}": pods[f"pod-{i}"] for i in order}
    assert measured_arm(shuffled) == measured_arm(pods)


# --- pages that no engine would write

RANGES: dict[Unit, tuple[float, float]] = {
    Unit.RATIO: (0.0, 1.0),
}


def sane(readings: Readings) -> None:
    """No value is one that its unit cannot have."""
    assert set(readings) == set(MEASURED)
    for name, reading in readings.items():
        for number in (reading.value, reading.low, reading.high, reading.count):
            if number is None:
                continue
            assert math.isfinite(number), f"{name}: {reading}"
            assert number >= 0, f"{name}: {reading}"
        if reading.value is None:
            continue
        low, high = RANGES.get(SIGNALS[name].unit, (0.0, math.inf))
        assert low <= reading.value <= high, f"{name}: {reading}"
        if name == "mean_acceptance_length":
            assert reading.value >= 1, f"{name}: {reading}"
        if reading.low is not None:
            assert reading.low <= reading.value, f"{name}: {reading}"
        if reading.high is not None:
            assert reading.value <= reading.high, f"{name}: {reading}"


NUMBERS = [
    b"NaN", b"+Inf", b"-Inf", b"-1", b"-0.0", b"0", b"1e308", b"1e999", b"-1e308", b"5e-324",
    b"9007199254740993", b"1e20", b"0x10", b"1_000", b"", b"nan nan", b"\xff\xfe", b"infinity",
]  # fmt: skip
ODD_LABELS = [
    rb'{a="}",b="{"}', rb'{a="\"",le="0.5\"}"}', rb'{le="NaN"}', rb'{le="-1"}',
    rb'{le="+Inf",le="1"}', rb'{position="999"}', rb'{position="-1"}', rb'{le=""}', rb"{", rb"}",
    rb'{a="\\"}', b'{a="\xc3"}', rb'{model_name="x",engine="7"}', rb"{}", rb'{le="1e999"}',
]  # fmt: skip

Mutation = Callable[[list[bytes], int], list[bytes]]


@dataclass(frozen=True)
class Damage:
    """One thing done to one line; prints as what it is, not as the page."""

    what: str
    mutate: Mutation = field(repr=False)
    where: int


def _number(value: bytes) -> Mutation:
    return lambda lines, i: [
        *lines[:i],
        lines[i].rpartition(b" ")[0] + b" " + value,
        *lines[i + 1 :],
    ]


def _labels(labels: bytes) -> Mutation:
    def change(lines: list[bytes], i: int) -> list[bytes]:
        name = re.split(rb"[{ ]", lines[i], maxsplit=1)[0]
        value = lines[i].rpartition(b" ")[2]
        return [*lines[: i + 1], name + labels + b" " + value, *lines[i + 1 :]]

    return change


def _twice(lines: list[bytes], i: int) -> list[bytes]:
    return [*lines[: i + 1], *lines[i:]]


def _gone(lines: list[bytes], i: int) -> list[bytes]:
    return lines[:i] + lines[i + 1 :]


def _end(lines: list[bytes], i: int) -> list[bytes]:
    return [*lines[:i], lines[i][: len(lines[i]) // 2]]


def _flip(at: int, bit: int) -> Mutation:
    def change(lines: list[bytes], i: int) -> list[bytes]:
        line = bytearray(lines[i] or b" ")
        line[at % len(line)] ^= 1 << bit
        return [*lines[:i], bytes(line), *lines[i + 1 :]]

    return change


WHATS: st.SearchStrategy[tuple[str, Mutation]] = st.one_of(
    st.sampled_from([("twice", _twice), ("gone", _gone), ("cut here", _end)]),
    st.sampled_from(NUMBERS).map(lambda value: (repr(value), _number(value))),
    st.floats().map(lambda value: (repr(value), _number(repr(value).encode()))),
    st.sampled_from(ODD_LABELS).map(lambda labels: (repr(labels), _labels(labels))),
    st.tuples(st.integers(0, 200), st.integers(0, 7)).map(
        lambda spot: (f"byte {spot[0]}, bit {spot[1]} flipped", _flip(*spot))
    ),
)
DAMAGES = st.lists(
    st.builds(lambda what, where: Damage(*what, where), WHATS, st.integers(0, 10_000)),
    min_size=1,
    max_size=4,
)

READ = re.compile(
    rb"^(?:process_start|vllm:(?!cache_config|mm_cache|estimated|engine_sleep|external|.*_created))"
)


@cache
def lines_of(name: str) -> tuple[bytes, ...]:
    """The lines of a page that say something."""
    return tuple(line for line in recordings.read(name).split(b"\n") if READ.match(line))


def slim(name: str) -> bytes:
    return b"\n".join(lines_of(name)) + b"\n"


def damaged(name: str, damages: list[Damage]) -> bytes:
    lines = list(lines_of(name))
    for damage in damages:
        if lines:
            lines = damage.mutate(lines, damage.where % len(lines))
    return b"\n".join(lines) + b"\n"


@pytest.mark.parametrize("name", PAGES)
@HARD
@given(DAMAGES, DAMAGES)
def test_no_damaged_page_makes_an_impossible_value(
    name: str, damages: list[Damage], more: list[Damage]
) -> None:
    whole, bad, again = slim(name), damaged(name, damages), damaged(name, more)
    before = slim(re.sub("after|during", "before", name))
    for pages in (
        [before, bad],
        [bad, whole],
        [whole, bad, whole],
        [bad, again],
        [before, bad, again, whole],
        [bad],
    ):
        sane(measured([(10.0 * i, page) for i, page in enumerate(pages)]))


@HARD
@given(DAMAGES, DAMAGES)
def test_no_damaged_pod_makes_an_impossible_value_of_an_arm(
    damages: list[Damage], more: list[Damage]
) -> None:
    name, before = PAGES[0], PAGES[0].replace("after", "before")
    good = [(0.0, slim(before)), (10.0, slim(name))]
    bad = [(0.0, damaged(before, damages)), (10.0, damaged(name, more))]
    sane(measured_arm({"a": good, "b": bad, "c": good}))


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=3))
def test_any_bytes_are_measured(junk: list[bytes]) -> None:
    for head in (b"", b"vllm:", b"vllm:generation_tokens_total ", b'vllm:x{le="'):
        pages = [(5.0 * i, head + each) for i, each in enumerate(junk)]
        sane(measured(pages))
