"""One arm's windows become readings: values, bounds, and every way of not knowing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.readings import Readings, UnknownReason
from specpilot.domain.signals import MEASURED, POSITIONS, REMEMBERED, position_signal
from specpilot.telemetry.derive import derive, needs_devices
from specpilot.telemetry.names import SPECULATION, Counter, Family, Gauge
from specpilot.telemetry.windows import Arm, Fault, Histogram, ReplicaWindow, Speculation
from tests.unit.telemetry.builders import END, Busy, arm, device_window, histogram, window

DOWN = Fault(reason=UnknownReason.SOURCE_ERROR, words="connection refused")
OFF = {"without": SPECULATION, "speculation": Speculation.ABSENT}


def _idle() -> Busy:
    busy = Busy()
    return Busy(
        counters=dict.fromkeys(busy.counters, 0.0),
        histograms={
            name: Histogram(sum=0.0, count=0.0, buckets=tuple((b, 0.0) for b, _ in h.buckets))
            for name, h in busy.histograms.items()
        },
        gauges=dict.fromkeys(busy.gauges, 0.0),
    )


def _v0() -> ReplicaWindow:
    return window(speculation=Speculation.LEGACY, without={Family.TPOT})


@dataclass(frozen=True)
class Known:
    reason: str
    arm: Arm
    signal: str
    value: float
    count: float | None = None
    low: float | None = None
    high: float | None = None
    says: str = ""


SLOW = Busy()
SLOW.counters |= {
    Counter.DRAFTS: 500.0,
    Counter.DRAFT_TOKENS: 2000.0,
    Counter.ACCEPTED_TOKENS: 0.0,
    Counter.GENERATION_TOKENS: 600.0,
    Counter.REQUESTS: 90.0,
}
SLOW.histograms |= {
    Family.TPOT: histogram(9.0, 90, (0.01, 0), (0.025, 0), (0.05, 0)),
    Family.E2E: histogram(40.0, 90, (2.5, 90), (5.0, 90)),
}
SLOW.gauges |= {Gauge.RUNNING: 2.0, Gauge.WAITING: 0.0, Gauge.KV_CACHE: 0.1}
BOTH = arm(window("a"), window("b", numbers=SLOW))
ONE = arm(window())

KNOWN = [
    Known("accepted over drafted tokens", ONE, "acceptance_rate", 0.5, count=2000),
    Known("the bonus token counts", ONE, "mean_acceptance_length", 3.0, count=2000),
    Known("ratio of sums, not mean of ratios", BOTH, "acceptance_rate", 0.4, count=2500),
    Known("length is per draft of all replicas", BOTH, "mean_acceptance_length", 2.6),
    Known("a count is its own evidence", BOTH, "drafts", 2500, count=2500),
    Known("drafted tokens", BOTH, "draft_tokens", 10000),
    Known("output tokens", BOTH, "generated_tokens", 6600, count=6600),
    Known("preemptions add up", BOTH, "preemptions", 2),
    Known("batch size is per replica", BOTH, "batch_size", 3.0, count=26),
    Known("queue depth is per replica", BOTH, "queue_depth", 1.0),
    Known("KV usage is averaged", BOTH, "kv_cache_usage", 0.3),
    Known("throughput adds up over replicas", BOTH, "tokens_per_second", 110.0),
    Known("throughput over requests running", BOTH, "tokens_per_second_per_request", 110 / 6),
    Known("completions add up", BOTH, "requests_per_second", 100 / 60, count=100),
    Known("refused calls over all calls", ONE, "error_rate", 0.25, count=20),
    Known("means are exact: sums over counts", BOTH, "tpot_mean", 9.2 / 100, count=100),
    Known("a position over all drafts", ONE, "acceptance_rate_pos_2", 0.4, count=2000),
    Known("tokens over steps", BOTH, "tokens_per_step", 2.2, count=3000),
    Known("prefix cache", BOTH, "prefix_cache_hit_rate", 0.25, count=2000),
    Known(
        "V0: the engine's own figure",
        arm(replace(_v0(), legacy_rate=0.6)),
        "acceptance_rate",
        0.6,
        says="since its start",
    ),
    Known(
        "V0: the prefix cache's hit rate is a gauge",
        arm(
            window(
                without={Counter.PREFIX_QUERIES, Counter.PREFIX_HITS},
                numbers=replace(Busy(), gauges=Busy().gauges | {Gauge.HIT_RATE: 0.3}),
            )
        ),
        "prefix_cache_hit_rate",
        0.3,
        says="V0",
    ),
    Known("mean prompt", BOTH, "prompt_length_mean", 100.0, count=20),
    Known("mean output", ONE, "generation_length_mean", 591.0),
    Known("a quantile has its bucket's bounds", ONE, "tpot_p50", 0.019375, low=0.01, high=0.025),
    Known("the open bucket gives a lower bound only", ONE, "tpot_p99", 0.025, low=0.025),
    Known(
        "buckets are merged before the quantile: the slow replica has the requests",
        arm(
            window("a"),
            window(
                "b",
                numbers=replace(
                    SLOW,
                    histograms=SLOW.histograms
                    | {Family.E2E: histogram(400.0, 90, (2.5, 0), (5.0, 0))},
                ),
            ),
        ),
        "e2e_p50",
        5.0,
        count=100,
        low=5.0,
    ),
    Known("the fleet counts replicas", ONE, "replicas_ready", 7),
    Known(
        "a silent replica is left out and named",
        arm(window("a"), window("b"), window("c", fault=DOWN)),
        "batch_size",
        4.0,
        says="2 of 3 replicas; c: connection refused",
    ),
    Known(
        "half of the replicas are enough",
        arm(window("a"), window("b", fault=DOWN)),
        "tokens_per_second",
        100.0,
        says="1 of 2 replicas",
    ),
    Known("idle is a batch of 0, not Unknown", arm(window(numbers=_idle())), "batch_size", 0.0),
    Known("idle is 0 tokens/s", arm(window(numbers=_idle())), "tokens_per_second", 0.0),
    Known("speculating without a draft is 0 drafts", arm(window(numbers=_idle())), "drafts", 0.0),
    Known(
        "gauges that appear with the first request are 0 until then",
        arm(window(numbers=_idle(), without=set(Gauge))),
        "queue_depth",
        0.0,
    ),
    Known(
        "before 0.11 the mean TPOT comes from decode time and tokens",
        arm(window(without={Family.TPOT})),
        "tpot_mean",
        118.0 / 5900,
        count=10,
        says="decode time",
    ),
    Known(
        "a window that is mostly missing says so",
        arm(window(span_s=20.0)),
        "drafts",
        2000,
        says="covers 20 s of 60 s",
    ),
    Known("the source is named", ONE, "ttft_mean", 0.1, says="direct scrape"),
]


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: f"{case.signal}: {case.reason}")
def test_known(case: Known) -> None:
    found = derive(case.arm, ready=7)[case.signal]
    assert found.value == pytest.approx(case.value), found.message
    assert case.count is None or found.count == case.count
    assert (case.low is None) or (found.low, found.high) == (case.low, case.high)
    assert case.says in found.message
    assert found.at == END
    assert found.window_s == 60.0


@dataclass(frozen=True)
class Unknown:
    reason: str
    arm: Arm
    signal: str
    want: UnknownReason
    says: str


UNKNOWN = [
    Unknown("nobody serves", arm(), "batch_size", UnknownReason.NO_DATA, "no replica"),
    Unknown(
        "no sample",
        arm(ReplicaWindow(replica="a")),
        "batch_size",
        UnknownReason.NO_DATA,
        "no sample in the window",
    ),
    Unknown(
        "a minority reports",
        arm(window("a"), window("b", fault=DOWN), window("c", fault=DOWN)),
        "batch_size",
        UnknownReason.NO_DATA,
        "1 of 3 replicas; b: connection refused",
    ),
    Unknown(
        "all fail alike",
        arm(window("a", fault=DOWN), window("b", fault=DOWN)),
        "tpot_p99",
        UnknownReason.SOURCE_ERROR,
        "direct scrape: connection refused",
    ),
    Unknown(
        "the newest sample is too old, and the cause is told",
        arm(window(last=END - timedelta(seconds=31), trouble="cannot scrape 10.0.0.1: refused")),
        "queue_depth",
        UnknownReason.STALE,
        "31 s old, more than 30 s (cannot scrape 10.0.0.1: refused)",
    ),
    Unknown(
        "slow scrapes have a longer limit, but one",
        arm(window(last=END - timedelta(seconds=181), interval_s=60.0)),
        "queue_depth",
        UnknownReason.STALE,
        "more than 180 s",
    ),
    Unknown(
        "samples from the future are refused",
        arm(window(last=END + timedelta(seconds=20))),
        "batch_size",
        UnknownReason.SOURCE_ERROR,
        "compare the clocks",
    ),
    Unknown(
        "one scrape says nothing of a batch size",
        arm(window(samples=1, span_s=0.0, first=END)),
        "batch_size",
        UnknownReason.TOO_FEW_SAMPLES,
        "a single sample",
    ),
    Unknown(
        "speculation is off",
        arm(window(**OFF)),
        "acceptance_rate",
        UnknownReason.NOT_EXPORTED,
        "speculation is off",
    ),
    Unknown(
        "speculation is off: no drafts, which is not 0 drafts",
        arm(window(**OFF)),
        "drafts",
        UnknownReason.NOT_EXPORTED,
        "speculation is off",
    ),
    Unknown(
        "said to speculate, but the series are missing",
        arm(window(declared_on=True, **OFF)),
        "mean_acceptance_length",
        UnknownReason.NOT_EXPORTED,
        "older than 0.8.5",
    ),
    Unknown(
        "nothing drafted: 0/0",
        arm(window(numbers=_idle())),
        "acceptance_rate",
        UnknownReason.TOO_FEW_SAMPLES,
        "nothing was drafted",
    ),
    Unknown(
        "no request finished",
        arm(window(numbers=_idle())),
        "tpot_mean",
        UnknownReason.TOO_FEW_SAMPLES,
        "no request finished",
    ),
    Unknown(
        "no request finished: no quantile",
        arm(window(numbers=_idle())),
        "e2e_p99",
        UnknownReason.TOO_FEW_SAMPLES,
        "no request finished",
    ),
    Unknown(
        "nothing ran",
        arm(window(numbers=_idle())),
        "tokens_per_second_per_request",
        UnknownReason.TOO_FEW_SAMPLES,
        "running",
    ),
    Unknown(
        "tokens came out while the gauge was missing: not idle",
        arm(window(without={Gauge.RUNNING})),
        "batch_size",
        UnknownReason.NOT_EXPORTED,
        "vllm:num_requests_running",
    ),
    Unknown(
        "before 0.11 there is no TPOT quantile",
        arm(window(without={Family.TPOT})),
        "tpot_p99",
        UnknownReason.NOT_EXPORTED,
        "0.11",
    ),
    Unknown(
        "V0 acceptance before a draft",
        arm(replace(_v0(), legacy_rate=float("nan"))),
        "acceptance_rate",
        UnknownReason.NAN,
        "first draft",
    ),
    Unknown(
        "more accepted than drafted",
        arm(
            window(
                numbers=replace(
                    Busy(), counters=Busy().counters | {Counter.ACCEPTED_TOKENS: 9000.0}
                )
            )
        ),
        "mean_acceptance_length",
        UnknownReason.AMBIGUOUS,
        "contradict",
    ),
    Unknown("V0 length", arm(_v0()), "mean_acceptance_length", UnknownReason.AMBIGUOUS, "V0"),
    Unknown("V0 steps", arm(_v0()), "tokens_per_step", UnknownReason.AMBIGUOUS, "V0"),
    Unknown(
        "several servers count a step twice",
        arm(window(one_server=False)),
        "tokens_per_step",
        UnknownReason.AMBIGUOUS,
        "API servers",
    ),
    Unknown(
        "a position that is never drafted",
        ONE,
        "acceptance_rate_pos_4",
        UnknownReason.NOT_EXPORTED,
        "longer than 4 tokens",
    ),
    Unknown(
        "V0 says -1 without prefix caching",
        arm(
            window(
                without={Counter.PREFIX_QUERIES, Counter.PREFIX_HITS},
                numbers=replace(Busy(), gauges=Busy().gauges | {Gauge.HIT_RATE: -1.0}),
            )
        ),
        "prefix_cache_hit_rate",
        UnknownReason.NAN,
        "-1",
    ),
    Unknown("no exporter", ONE, "gpu_util", UnknownReason.NOT_EXPORTED, "no GPU exporter"),
    Unknown("V0 throughput", arm(_v0()), "tokens_per_second", UnknownReason.AMBIGUOUS, "V0"),
    Unknown(
        "a gauge that is NaN",
        arm(window(faults={Gauge.KV_CACHE: Fault(reason=UnknownReason.NAN, words="NaN")})),
        "kv_cache_usage",
        UnknownReason.NAN,
        "NaN",
    ),
    Unknown(
        "an infinite sum",
        arm(
            window(
                numbers=replace(
                    Busy(), histograms={Family.TTFT: Histogram(sum=float("inf"), count=3.0)}
                )
            )
        ),
        "ttft_mean",
        UnknownReason.NAN,
        "inf",
    ),
    Unknown(
        "a negative gauge",
        arm(window(numbers=replace(Busy(), gauges={Gauge.WAITING: -1.0}))),
        "queue_depth",
        UnknownReason.NAN,
        "-1",
    ),
    Unknown(
        "histograms without a common bucket",
        arm(
            window(
                "a", numbers=replace(Busy(), histograms={Family.E2E: histogram(1, 1, (1.0, 1))})
            ),
            window(
                "b", numbers=replace(Busy(), histograms={Family.E2E: histogram(1, 1, (2.0, 1))})
            ),
        ),
        "e2e_p50",
        UnknownReason.AMBIGUOUS,
        "no bucket in common",
    ),
]


@pytest.mark.parametrize("case", UNKNOWN, ids=lambda case: f"{case.signal}: {case.reason}")
def test_unknown(case: Unknown) -> None:
    found = derive(case.arm, ready=len(case.arm.replicas))[case.signal]
    assert found.value is None
    assert found.reason is case.want, found.message
    assert case.says in found.message


def test_every_signal_that_is_measured_is_answered() -> None:
    assert set(derive(ONE, ready=1)) == set(MEASURED)
    assert set(derive(arm(), ready=0)) == set(MEASURED)


def test_what_is_remembered_is_left_to_who_remembers() -> None:
    assert set(derive(ONE, ready=1, signals=["batch_size", *REMEMBERED])) == {"batch_size"}


def test_unknown_readings_keep_the_time_of_the_newest_sample() -> None:
    old = END - timedelta(seconds=100)
    assert derive(arm(window(last=old)), ready=1)["batch_size"].at == old


DEEPER = {position_signal(index) for index in range(4, POSITIONS)}


def test_a_healthy_arm_knows_everything() -> None:
    found = derive(ONE, ready=1, devices=arm(device_window()))
    assert {r.signal for r in found.values() if not r.known} == DEEPER, "K is 4"


def test_devices_are_averaged_over_replicas_and_judged_by_their_own_age() -> None:
    lagging = device_window("b", last=END - timedelta(seconds=80), interval_s=30.0)
    devices = arm(device_window("a"), lagging, stale_floor_s=120.0, source="GPU exporter")
    found = derive(BOTH, ready=2, devices=devices)
    assert found.value("gpu_dram_active") == pytest.approx(0.8)
    assert found["gpu_power"].message == "GPU exporter"
    stale = replace(devices, replicas=(replace(lagging, last=END - timedelta(seconds=200)),))
    found = derive(BOTH, ready=2, devices=stale)
    assert found["gpu_util"].reason is UnknownReason.STALE
    assert found["batch_size"].known, "the engine's own numbers are not touched"


@pytest.mark.parametrize(
    ("notes", "message", "reason"),
    [
        (("", ""), "Prometheus", "the replicas' own numbers"),
        (("shared", "shared"), "Prometheus; shared", "what all share is said once"),
        (("", "shared"), "Prometheus; shared", "what one has is said"),
        (("x", "y", "x", "z", "w"), "Prometheus; x; y; z", "at most three of them"),
    ],
)
def test_what_a_number_of_devices_covers_is_said(
    notes: tuple[str, ...], message: str, reason: str
) -> None:
    windows = [
        device_window(f"r{i}", notes={"gpu_power": note} if note else {})
        for i, note in enumerate(notes)
    ]
    found = derive(ONE, ready=1, devices=arm(*windows, source="Prometheus"))
    assert found["gpu_power"].message == message, reason
    assert found["gpu_util"].message == "Prometheus", "a note is of one gauge"


def test_only_what_is_asked_for_is_answered() -> None:
    wanted = frozenset({"batch_size", "tpot_p99", "tpot_p50", "gpu_util", "nonsense"})
    found = derive(ONE, ready=1, signals=wanted)
    assert set(found) == wanted
    assert found["nonsense"].reason is UnknownReason.NOT_EXPORTED
    assert needs_devices(wanted)
    assert not needs_devices({"batch_size"})


@st.composite
def windows(draw: st.DrawFn) -> list[ReplicaWindow]:
    found = []
    for index in range(draw(st.integers(1, 5))):
        busy = Busy()
        factor = draw(st.floats(0, 1e6))
        busy.counters = {name: value * factor for name, value in busy.counters.items()}
        busy.histograms = {
            name: Histogram(
                sum=each.sum * factor,
                count=each.count * factor,
                buckets=tuple((bound, count * factor) for bound, count in each.buckets),
            )
            for name, each in busy.histograms.items()
        }
        fault = draw(st.sampled_from([None, None, DOWN]))
        span = draw(st.floats(1, 600))
        found.append(window(f"pod-{index}", numbers=busy, fault=fault, span_s=span))
    return found


@given(windows(), st.randoms(use_true_random=False))
def test_the_order_of_replicas_never_matters(found: list[ReplicaWindow], random: object) -> None:
    def answer(order: list[ReplicaWindow]) -> Readings:
        return derive(arm(*order), ready=len(order))

    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis types it as object
    assert answer(shuffled).by_signal == answer(found).by_signal


def _failed(name: str, words: str, reason: UnknownReason = UnknownReason.NO_DATA) -> ReplicaWindow:
    return ReplicaWindow(replica=name, fault=Fault(reason=reason, words=words))


@pytest.mark.parametrize(
    ("windows", "says", "reason"),
    [
        ((window(), window("b")), "", "all is well"),
        (
            (window(trouble="503"), window("b", trouble="503"), window("c")),
            "503 (2 of 3 replicas)",
            "the newest look failed, and what was seen before may still do",
        ),
        (
            (window(), _failed("b", "no series of this pod")),
            "",
            "a replica of which there is nothing yet may be new",
        ),
        ((_failed("b", "no series"),), "no series (1 of 1 replicas)", "nothing of any"),
        ((_failed("b", "47 s old", UnknownReason.STALE),), "", "an age is no text for a status"),
        ((), "", "no replica serves"),
    ],
)
def test_trouble_at_the_newest_look(
    windows: tuple[ReplicaWindow, ...], says: str, reason: str
) -> None:
    assert derive(arm(*windows), ready=len(windows)).trouble == says, reason
