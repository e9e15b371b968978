"""Increases over samples: exact on real recordings, right across restarts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.readings import Readings, UnknownReason
from specpilot.telemetry.derive import derive
from specpilot.telemetry.exposition import parse
from specpilot.telemetry.history import History
from specpilot.telemetry.looks import FRESH
from specpilot.telemetry.names import Counter, Family, Gauge, buckets_of
from specpilot.telemetry.rings import Rings
from specpilot.telemetry.windows import ReplicaWindow, Speculation
from tests import recordings
from tests.unit.telemetry.builders import (
    END,
    FrozenClock,
    arm,
    ask,
    cut,
    looked_at,
    page,
    recording,
    replica,
)


def _readings(history: History) -> Readings:
    return derive(arm(cut(history)), ready=1)


def test_0_10_has_no_tpot_series_and_gets_the_mean_from_decode_time() -> None:
    stem = "0.10.2-nospec-mixed-c4"
    pages = [(20.0, recording(f"{stem}-before.prom")), (0.0, recording(f"{stem}-after.prom"))]
    readings = _readings(looked_at(pages))
    assert readings.value("tpot_mean") == pytest.approx(105.54819534800072 / (512 - 8))
    assert readings["tpot_mean"].count == 8
    assert "decode time" in readings["tpot_mean"].message
    assert readings["tpot_p99"].reason is UnknownReason.NOT_EXPORTED
    assert "0.11" in readings["tpot_p99"].message
    assert readings.value("kv_cache_usage") == 0.0


def test_v0_counters_are_refused_but_its_latencies_are_used() -> None:
    stem = "0.8.5-ngram-v0-repetitive-c16"
    pages = [(20.0, recording(f"{stem}-before.prom")), (0.0, recording(f"{stem}-after.prom"))]
    readings = _readings(looked_at(pages))
    for signal in ("mean_acceptance_length", "drafts", "tokens_per_second", "tokens_per_step"):
        assert readings[signal].reason is UnknownReason.AMBIGUOUS
        assert "V0" in readings[signal].message
    assert readings["tpot_mean"].known
    assert readings["e2e_p99"].known


def test_an_idle_0_8_server_shows_nothing_but_is_not_broken() -> None:
    text = recording("0.8.5-ngram-v0-idle-zero-requests.prom")
    readings = _readings(looked_at([(10.0, text), (0.0, text)]))
    assert readings.value("batch_size") == 0.0
    assert readings.value("tokens_per_second") == 0.0
    assert readings["e2e_p99"].reason is UnknownReason.TOO_FEW_SAMPLES
    assert readings["acceptance_rate"].reason is UnknownReason.NOT_EXPORTED


def test_a_page_without_vllm_series_names_the_flag() -> None:
    found = cut(looked_at([(5.0, b"python_info 1\n"), (0.0, b"python_info 1\n")]))
    assert found.fault is not None
    assert found.fault.reason is UnknownReason.NOT_EXPORTED
    assert "--disable-log-stats" in found.fault.words


def test_a_recorded_series_agrees_with_its_summary() -> None:
    series = recordings.series()
    found = cut(looked_at([(100.0 - scrape.t, scrape.page) for scrape in series]))
    first, last = series[0].noted, series[-1].noted
    assert found.counters[Counter.GENERATION_TOKENS] == last["gen"] - first["gen"]
    assert found.counters[Counter.DRAFTS] == last["drafts"] - first["drafts"]
    assert found.span_s == pytest.approx(last["t"] - first["t"])
    area = sum(
        (a.noted["running"] + b.noted["running"]) / 2 * (b.t - a.t) for a, b in pairwise(series)
    )
    assert found.gauges[Gauge.RUNNING] == pytest.approx(area / found.span_s)
    assert found.speculation is Speculation.PRESENT


@dataclass(frozen=True)
class Restart:
    reason: str
    pages: list[dict[str, float | str]]
    want: float


RESTARTS = [
    Restart("steady", [{"t": 10}, {"t": 15}, {"t": 30}], 20),
    Restart("restart: what came after counts from 0", [{"t": 10}, {"t": 15}, {"t": 4}], 9),
    Restart("two restarts", [{"t": 10}, {"t": 3}, {"t": 5}, {"t": 1}], 6),
    Restart("came into being meanwhile", [{"x": 1}, {"t": 7}], 7),
    Restart("gone for a while: an 0.8 server that restarted", [{"t": 9}, {"x": 1}, {"t": 2}], 2),
    Restart(
        "a new start time is a restart although the counter is ahead already",
        [{"t": 2, "start": 100}, {"t": 8, "start": 160}],
        8,
    ),
]


@pytest.mark.parametrize("case", RESTARTS, ids=lambda case: case.reason)
def test_restarts(case: Restart) -> None:
    def text(values: dict[str, float | str]) -> bytes:
        lines = page(
            {
                "generation_tokens_total" if k == "t" else "cache_config_info": v
                for k, v in values.items()
                if k != "start"
            }
        )
        if "start" in values:
            lines += f"process_start_time_seconds {values['start']}\n".encode()
        return lines

    pages = [(50.0 - 5 * i, text(values)) for i, values in enumerate(case.pages)]
    assert cut(looked_at(pages)).counters[Counter.GENERATION_TOKENS] == case.want


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), min_size=1, max_size=6),
        min_size=1,
        max_size=5,
    )
)
def test_any_number_of_restarts_is_counted_like_an_observer_would(
    lives: list[list[tuple[int, int]]],
) -> None:
    """Each life is a list of (tokens, accepted) steps; it starts at 0 and is seen after each."""
    pages: list[tuple[float, bytes]] = []
    seen: list[tuple[int, int]] = []
    for life in lives:
        tokens = accepted = 0
        for more, taken in life:
            tokens, accepted = tokens + more, accepted + taken
            seen.append((tokens, accepted))
            lines = {
                "generation_tokens_total": tokens,
                "spec_decode_num_drafts_total": accepted + 1,
                "spec_decode_num_accepted_tokens_total": accepted,
            }
            pages.append((10_000.0 - len(pages), page(lines)))
    want_tokens = want_accepted = 0
    for (before, taken_before), (after, taken_after) in pairwise(seen):
        # A restart shows by the tokens falling; then everything counts from 0.
        fell = after < before
        want_tokens += after if fell else after - before
        want_accepted += taken_after if fell else taken_after - taken_before
    found = cut(looked_at(pages))
    assert found.counters[Counter.GENERATION_TOKENS] == want_tokens
    fault = found.faults.get(Counter.ACCEPTED_TOKENS)
    if fault is None:
        assert found.counters[Counter.ACCEPTED_TOKENS] == want_accepted
    else:
        # A restart nobody could see: the tokens had caught up, the drafts had not.
        assert fault.reason is UnknownReason.AMBIGUOUS


@pytest.mark.parametrize(
    ("value", "word"),
    [("NaN", "NaN"), ("+Inf", "inf"), ("-3", "-3")],
    ids=["nan", "inf", "negative"],
)
def test_impossible_numbers_are_refused_by_name(value: str, word: str) -> None:
    good = page({"generation_tokens_total": 5, "num_requests_running": 1})
    bad = page({"generation_tokens_total": value, "num_requests_running": value})
    readings = _readings(looked_at([(5.0, good), (0.0, bad)]))
    for signal in ("batch_size", "tokens_per_second"):
        assert readings[signal].reason in {UnknownReason.NAN, UnknownReason.AMBIGUOUS}
        assert word in readings[signal].message or "fell" in readings[signal].message


def test_gauges_that_appear_with_the_first_request_count_as_idle_before() -> None:
    idle = page({"generation_tokens_total": 0})
    busy = page({"generation_tokens_total": 0, "num_requests_running": 4})
    found = cut(looked_at([(20.0, idle), (10.0, idle), (0.0, busy)]))
    assert found.gauges[Gauge.RUNNING] == pytest.approx(1.0), "0, 0, 4: a triangle over the half"


def test_history_is_bounded_and_packed() -> None:
    history = History(keep_s=60.0)
    text = recording("0.32.0-ngram-repetitive-c16-after.prom")
    for second in range(0, 600, 5):
        history.add(float(second), parse(text))
    assert [history.samples[0].at, history.samples[-1].at] == [535.0, 595.0]
    twin = History(keep_s=60.0)
    twin.add(0.0, parse(text))
    assert twin._layout is history._layout, "what stands where is stored once for all replicas"


@pytest.mark.parametrize("interval", [1, 5, 15])
def test_old_samples_are_thinned_and_windows_stay_exact(interval: int) -> None:
    history = History(keep_s=4000.0)
    for second in range(0, 10_000, interval):
        history.add(float(second), parse(page({"generation_tokens_total": second * 3})))
        if second < 5000 or second % 7:
            continue  # at every phase of the thinning, once it is in its steady state
        for length in (60, 300, 1800, 3600):
            found = history.window(
                second - length,
                second,
                replica="a",
                interval_s=float(interval),
                declared_on=False,
            )
            assert found is not None
            assert found.counters[Counter.GENERATION_TOKENS] == pytest.approx(3 * found.span_s)
            assert found.span_s == pytest.approx(length, rel=1 / 8)
    assert len(history.samples) < 200, f"{4000 // interval} were not too old"


def test_windows_that_meet_share_a_sample() -> None:
    history = History(keep_s=1e9)
    for second in range(0, 100, 7):
        history.add(float(second), parse(page({"generation_tokens_total": second})))
    cuts = [30.0, 50.0, 70.0, 90.0]
    parts = [
        history.window(start, end, replica="a", interval_s=7.0, declared_on=False)
        for start, end in pairwise(cuts)
    ]
    total = sum(part.counters[Counter.GENERATION_TOKENS] for part in parts if part)
    assert total == 84.0 - 28.0, "from the newest sample before 30 to the newest before 90"


def test_a_warm_up_is_never_in_a_window() -> None:
    history = History(keep_s=1e9)
    for second in range(0, 100, 10):
        history.add(float(second), parse(page({"generation_tokens_total": second})))
    found = history.window(
        0.0, 90.0, replica="a", interval_s=10.0, declared_on=False, not_before=45.0
    )
    assert found is not None
    assert found.first is not None
    assert found.first.timestamp() == 50.0


def test_a_look_at_the_past_comes_before_all_others() -> None:
    busy = {"num_requests_running": 4}
    history = History(keep_s=1e9)
    history.add(300.0, parse(page({"generation_tokens_total": 900, **busy})))
    history.add(310.0, parse(page({"generation_tokens_total": 950, **busy})))
    past = parse(page({"generation_tokens_total": 100, **busy}))
    history.prepend(0.0, past, means={"num_requests_running": 2.0})
    whole = cut(history)
    assert whole.counters[Counter.GENERATION_TOKENS] == 850.0
    assert whole.gauges[Gauge.RUNNING] == pytest.approx((300 * 2 + 10 * 4) / 310)

    anew = History(keep_s=1e9)
    anew.add(300.0, parse(page({"generation_tokens_total": 40})))
    anew.prepend(0.0, past, means={})
    assert cut(anew).counters[Counter.GENERATION_TOKENS] == 40.0, "it restarted in between"


def test_numbers_fetched_from_now_on_say_nothing_of_before() -> None:
    history = History(keep_s=1e9)
    history.add(0.0, parse(page({"generation_tokens_total": 1})))
    with_buckets = page(
        {
            "generation_tokens_total": 1,
            "e2e_request_latency_seconds_sum": 9,
            "e2e_request_latency_seconds_count": 9,
        }
    )
    fetched = buckets_of(Family.E2E)
    history.add(10.0, parse(with_buckets), fetched=frozenset({fetched}))
    history.add(20.0, parse(with_buckets), fetched=frozenset({fetched}))
    assert cut(history).faults[fetched].reason is UnknownReason.TOO_FEW_SAMPLES
    later = history.window(10.0, 20.0, replica="a", interval_s=10.0, declared_on=False)
    assert later is not None
    assert fetched not in later.faults


def test_a_clock_set_back_drops_the_samples_ahead_of_it() -> None:
    history = History(keep_s=600.0)
    for at in (100.0, 105.0, 110.0, 103.0):
        history.add(at, parse(page({"generation_tokens_total": at})))
    assert [sample.at for sample in history.samples] == [100.0, 103.0]


def test_buckets_come_from_the_page() -> None:
    text = recording("0.32.0-nospec-random-c16-after.prom")
    found = cut(looked_at([(5.0, page({"cache_config_info": 1})), (0.0, text)]))
    bounds = [bound for bound, _ in found.buckets[Family.TPOT]]
    assert bounds[:3] == [0.01, 0.025, 0.05]
    assert bounds[-1] == float("inf")
    assert found.last == END


# --- pages that lost something on their way

BEFORE = recording("0.32.0-ngram-repetitive-c16-before.prom")
AFTER = recording("0.32.0-ngram-repetitive-c16-after.prom")


def _without(text: bytes, *names: str) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join(
        x for x in lines if not x.startswith(tuple(f"vllm:{n}".encode() for n in names))
    )


DAMAGED = [
    ("an error page", b"<html>Error 503</html>\n"),
    ("cut off in the middle", AFTER[: len(AFTER) // 2]),
    ("one counter is missing", _without(AFTER, "generation_tokens_total")),
    ("every count of a histogram is missing", _without(AFTER, "e2e_request_latency_seconds_count")),
    (
        "all of the engine's numbers but its info",
        _without(AFTER, "spec", "gen", "req", "num", "e2e"),
    ),
]


@pytest.mark.parametrize("bad", [text for _, text in DAMAGED], ids=[name for name, _ in DAMAGED])
def test_a_damaged_page_in_between_changes_no_count(bad: bytes) -> None:
    """It is no restart: the process's start time has not changed."""
    whole = _readings(looked_at([(30.0, BEFORE), (0.0, AFTER)]))
    found = _readings(looked_at([(30.0, BEFORE), (20.0, BEFORE), (10.0, bad), (0.0, AFTER)]))
    for signal in ("drafts", "acceptance_rate", "tpot_mean", "generated_tokens", "e2e_mean"):
        assert found.value(signal) == whole.value(signal), signal


@pytest.mark.parametrize("bad", [text for _, text in DAMAGED], ids=[name for name, _ in DAMAGED])
@pytest.mark.parametrize("place", [0, 2], ids=["first", "last"])
def test_a_damaged_page_at_an_end_makes_unknown_and_never_wrong(bad: bytes, place: int) -> None:
    pages = [BEFORE, BEFORE, AFTER]
    true = _readings(looked_at(list(zip((20.0, 10.0, 0.0), pages, strict=True))))
    pages[place] = bad
    found = _readings(looked_at(list(zip((20.0, 10.0, 0.0), pages, strict=True))))
    for signal in ("drafts", "acceptance_rate", "mean_acceptance_length", "tpot_mean", "e2e_mean"):
        got = found.value(signal)
        assert got is None or got == true.value(signal), signal


def test_a_counter_that_vanishes_is_unknown_and_not_0() -> None:
    gone = _without(AFTER, "spec_decode_num_accepted_tokens_total")
    found = _readings(looked_at([(20.0, BEFORE), (10.0, gone), (0.0, gone)]))
    for signal in ("acceptance_rate", "mean_acceptance_length"):
        assert found[signal].reason is UnknownReason.NO_DATA
        assert "missing" in found[signal].message
    assert found["drafts"].known


def test_a_gauge_that_vanishes_is_unknown_and_not_idle() -> None:
    busy = page({"generation_tokens_total": 9, "num_requests_running": 30})
    gone = page({"generation_tokens_total": 99})
    history = looked_at([(40.0, busy), (30.0, busy), (20.0, gone), (10.0, gone), (0.0, busy)])
    assert _readings(history)["batch_size"].reason is UnknownReason.NO_DATA
    before = history.window(
        END.timestamp() - 40, END.timestamp() - 30, replica="a", interval_s=5.0, declared_on=False
    )
    assert before is not None
    assert before.gauges[Gauge.RUNNING] == 30.0, "what was whole stays known"
    assert Gauge.RUNNING not in before.faults


# --- numbers that are looked for no more


PLAIN = frozenset({Counter.GENERATION_TOKENS, Family.E2E})
BUCKETS = frozenset({buckets_of(Family.E2E)})


def _busy(requests: float, *, buckets: bool) -> bytes:
    """A page of an engine that has served so many requests; half of them within a second."""
    name = "e2e_request_latency_seconds"
    found = {
        "generation_tokens_total": 100 * requests,
        f"{name}_sum": 2 * requests,
        f"{name}_count": requests,
    }
    if buckets:
        found |= {
            f'{name}_bucket{{le="1.0"}}': requests / 2,
            f'{name}_bucket{{le="+Inf"}}': requests,
        }
    return page({**found, "num_requests_running": 3})


@given(
    st.lists(st.integers(0, 500), min_size=2, max_size=12),
    st.integers(1, 11),
    st.sampled_from([None, 2, 5]),
)
def test_forgetting_numbers_is_like_never_having_looked_for_them(
    growth: list[int], last: int, restart: int | None
) -> None:
    forgetful, never = History(keep_s=1e9), History(keep_s=1e9)
    requests = 1000.0
    for look, more in enumerate(growth):
        requests = more if look == restart else requests + more
        at = END.timestamp() + 15 * look
        buckets = look < min(last, len(growth) - 1)
        fetched = PLAIN | BUCKETS if buckets else PLAIN
        forgetful.add(at, parse(_busy(requests, buckets=buckets)), fetched=fetched)
        never.add(at, parse(_busy(requests, buckets=False)), fetched=PLAIN)
    for start in range(len(growth) - 1):
        for end in range(start + 1, len(growth)):
            first, second = _between(forgetful, start, end), _between(never, start, end)
            assert first.buckets == second.buckets == {}
            assert dict(first.counters) == dict(second.counters)
            assert dict(first.histograms) == dict(second.histograms)
            assert dict(first.gauges) == dict(second.gauges)
            assert first.faults == second.faults


def _between(history: History, start: int, end: int) -> ReplicaWindow:
    found = history.window(
        END.timestamp() + 15 * start,
        END.timestamp() + 15 * end,
        replica="a",
        interval_s=15.0,
        declared_on=False,
    )
    assert found is not None
    return found


def test_what_happened_while_nobody_looked_is_not_one_looks_growth() -> None:
    name = buckets_of(Family.E2E)
    history = History(keep_s=1e9)
    for look, buckets in enumerate([True, True, False, False, True, True]):
        page_ = parse(_busy(1000.0 * (look + 1), buckets=buckets))
        fetched = PLAIN | BUCKETS if buckets else PLAIN
        history.add(END.timestamp() + 15 * look, page_, fetched=fetched)
    for start in range(4):
        assert _between(history, start, 5).faults[name].reason is UnknownReason.TOO_FEW_SAMPLES
    known = _between(history, 4, 5)
    assert name not in known.faults
    assert known.buckets[Family.E2E] == ((1.0, 500.0), (math.inf, 1000.0))
    assert _between(history, 0, 5).histograms[Family.E2E].count == 5000.0


def test_a_past_that_was_looked_at_for_more_than_the_newest_look_adds_nothing_of_that() -> None:
    history = History(keep_s=1e9)
    history.add(300.0, parse(_busy(1000.0, buckets=False)), fetched=PLAIN)
    past = parse(_busy(400.0, buckets=True))
    history.prepend(0.0, past, means={}, fetched=PLAIN | BUCKETS)
    found = cut(history)
    assert found.buckets == {}
    assert found.faults == {}
    assert found.histograms[Family.E2E].count == 600.0


def test_a_look_that_saw_nothing_new_fetched_nothing() -> None:
    """Prometheus gives the same scrape again: what a question of just now needs was not in it."""
    rings = Rings(
        clock=FrozenClock(), source="test", interval_s=15.0, keep_s=600.0, stale_floor_s=30
    )
    pod = replica("a")
    for at, buckets in ((-30, False), (-15, False), (-15, True), (0, True)):
        seen = parse(_busy(1000.0 + at, buckets=buckets))
        fetched = PLAIN | BUCKETS if buckets else PLAIN
        rings.add(pod.key, END.timestamp() + at, seen, fetched=fetched)
        question = ask(pod, end=END + timedelta(seconds=at), seconds=60)
        (window,) = rings.arms([question], needs=lambda _: PLAIN | BUCKETS)["k"].replicas
        assert window.faults == dict.fromkeys(BUCKETS, FRESH)


@pytest.mark.parametrize(
    ("looks", "moved", "reason"),
    [
        ([], 0.0, "nobody has looked"),
        ([40.0], 0.0, "there is nothing to compare with"),
        ([40.0, 40.0], 0.0, "the load is the same"),
        ([40.0, 60.0], 0.5, "half as much again"),
        ([40.0, 60.0, 60.0], 0.0, "it is the last look that counts"),
        ([60.0, 0.0], 1.0, "all of it is gone"),
        ([0.0, 3.0], 3.0, "from nothing: as if from one request"),
        ([40.0, None, 60.0], 0.0, "it was not shown in between"),
        ([40.0, math.nan], 0.0, "no number"),
        ([math.nan, 40.0], 0.0, "no number to compare with"),
    ],
)
def test_how_much_a_load_has_changed(looks: list[float | None], moved: float, reason: str) -> None:
    rings = Rings(
        clock=FrozenClock(), source="test", interval_s=15.0, keep_s=600.0, stale_floor_s=30
    )
    pod = replica("a")
    rings.track([pod])
    page = parse(_busy(1000.0, buckets=False))
    for number, running in enumerate(looks):
        means = {} if running is None else {str(Gauge.RUNNING): running}
        rings.add(pod.key, END.timestamp() + 15 * number, page, means=means)
    assert rings.moved(pod) == moved, reason
    rings.track([])
    rings.tracked()
    assert rings.moved(pod) == 0.0, "it is gone"
