"""Prometheus' answers become windows; copies and ends of series are told apart."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from specpilot.domain.readings import UnknownReason
from specpilot.telemetry.names import Counter, Family, Gauge
from specpilot.telemetry.promdecode import Pods, absorb, window_of
from specpilot.telemetry.promql import Labels, State, Topic
from specpilot.telemetry.windows import ReplicaWindow, Speculation
from tests.unit.telemetry.builders import END, replica

NOW = END.timestamp()
JOB = {"job": "vllm", "instance": "10.0.0.1:8000"}


@dataclass
class Scene:
    """Answers under construction: `term(topic, series, value, labels)`."""

    pods: Pods = field(default_factory=dict)

    def term(
        self, topic: Topic, series: str, value: object, where: dict[str, str] | None = None
    ) -> Scene:
        labels = {"namespace": "serving", "pod": "a", "series": series}
        metric = labels | (JOB if where is None else where)
        absorb(self.pods, topic, [{"metric": metric, "value": [NOW, str(value)]}], Labels())
        return self

    def alive(self, where: dict[str, str] | None = None, *, tokens: float = 600.0) -> Scene:
        for term, value in (
            (State.LIVE, NOW - 5),
            (State.FIRST, NOW - 295),
            (State.LAST, NOW - 5),
            (State.SAMPLES, 30),
        ):
            self.term(Topic.STATE, term, value, where)
        return self.term(Topic.COUNTERS, Counter.GENERATION_TOKENS, tokens, where)

    def window(self) -> ReplicaWindow:
        pod = self.pods.get(("serving", "a"))
        return window_of(pod, replica(), end=NOW, length_s=300.0)


def test_a_scraped_pod() -> None:
    scene = Scene().alive().term(Topic.STATE, State.SPECULATION, NOW)
    scene.term(Topic.GAUGES, Gauge.RUNNING, 90).term(Topic.GAUGES, f"{Gauge.RUNNING}/engines", 2)
    scene.term(Topic.GAUGES, Gauge.KV_CACHE, 30).term(Topic.GAUGES, f"{Gauge.KV_CACHE}/engines", 2)
    scene.term(Topic.TOTALS, f"{Family.TPOT}_sum", 0.5).term(
        Topic.TOTALS, f"{Family.TPOT}_count", 10
    )
    for bound, count in (("0.05", 4), ("+Inf", 10)):
        scene.term(Topic.BUCKETS, Family.TPOT, count, JOB | {"le": bound})
    found = scene.window()
    assert found.fault is None
    assert found.counters == {Counter.GENERATION_TOKENS: 600.0}
    assert found.histograms[Family.TPOT].buckets == ((0.05, 4.0), (float("inf"), 10.0))
    assert found.gauges[Gauge.RUNNING] == 3.0, "engines are summed"
    assert found.gauges[Gauge.KV_CACHE] == 0.5, "shares are averaged over engines"
    assert found.speculation is Speculation.PRESENT
    assert found.interval_s == pytest.approx(10.0)
    assert found.span_s == pytest.approx(300.0), "both ends are near a sample"


def test_an_increase_that_began_in_the_window_stands_for_less_of_it() -> None:
    scene = Scene().alive().term(Topic.STATE, State.FIRST, NOW - 105)
    scene.term(Topic.STATE, State.SAMPLES, 11)
    assert scene.window().span_s == pytest.approx(100 + 10 / 2 + 5)


@dataclass(frozen=True)
class Case:
    reason: str
    scene: Scene
    want: UnknownReason
    says: str


TWIN = {"job": "pods", "instance": "10.0.0.1:8000"}
CASES = [
    Case("nothing known", Scene(), UnknownReason.NO_DATA, "PodMonitor"),
    Case(
        "its scrape fails",
        Scene().term(Topic.STATE, State.UP, 0, {}),
        UnknownReason.NO_DATA,
        "cannot scrape",
    ),
    Case(
        "scraped, but no series of the engine",
        Scene().term(Topic.STATE, State.UP, 1, {}),
        UnknownReason.NOT_EXPORTED,
        "--disable-log-stats",
    ),
    Case(
        "its series ended",
        Scene().term(Topic.STATE, State.LAST, NOW - 70),
        UnknownReason.STALE,
        "70 s",
    ),
    Case(
        "scraped twice with different numbers",
        Scene().alive().alive(TWIN, tokens=601.0),
        UnknownReason.AMBIGUOUS,
        "job: pods, vllm",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_faults(case: Case) -> None:
    fault = case.scene.window().fault
    assert fault is not None
    assert fault.reason is case.want
    assert case.says in fault.words


def test_identical_copies_are_one() -> None:
    found = Scene().alive().alive(TWIN).window()
    assert found.fault is None
    assert found.counters[Counter.GENERATION_TOKENS] == 600.0


def test_an_earlier_pod_of_the_same_name_does_not_count() -> None:
    before = {"job": "vllm", "instance": "10.0.0.9:8000"}
    scene = Scene().alive().term(Topic.COUNTERS, Counter.GENERATION_TOKENS, 9e9, before)
    scene.term(Topic.STATE, State.LAST, NOW - 200, before)
    assert scene.window().counters[Counter.GENERATION_TOKENS] == 600.0


def test_an_idle_0_8_server_is_idle() -> None:
    scene = Scene().term(Topic.STATE, State.INFO, NOW - 3, {})
    found = scene.term(Topic.STATE, State.INFO_SAMPLES, 20, {}).window()
    assert found.fault is None
    assert found.counters[Counter.GENERATION_TOKENS] == 0.0
    assert found.samples == 20


@pytest.mark.parametrize(
    ("restarts", "falls", "refused"), [(0, 0, False), (1, 1, False), (0, 1, True)]
)
def test_a_sum_that_fell_without_a_restart_is_not_believed(
    restarts: int, falls: int, refused: bool
) -> None:
    scene = Scene().alive().term(Topic.RESTARTS, Counter.GENERATION_TOKENS, restarts)
    scene.term(Topic.RESTARTS, Family.TTFT, falls)
    scene.term(Topic.TOTALS, f"{Family.TTFT}_sum", 9).term(Topic.TOTALS, f"{Family.TTFT}_count", 3)
    fault = scene.window().faults.get(Family.TTFT)
    assert (fault is not None) == refused
    assert fault is None or fault.reason is UnknownReason.AMBIGUOUS


def test_values_are_strings_nan_included() -> None:
    found = Scene().alive().term(Topic.COUNTERS, Counter.REQUESTS, "NaN").window()
    assert found.counters[Counter.REQUESTS] != found.counters[Counter.REQUESTS]


@pytest.mark.parametrize(
    "element",
    [None, {}, {"metric": {}, "value": [1]}, {"metric": {}, "value": [1, "x"]}, {"values": []}],
    ids=str,
)
def test_what_is_no_vector_is_refused(element: object) -> None:
    with pytest.raises(ValueError, match=r"vector|convert"):
        absorb({}, Topic.STATE, [element], Labels())
