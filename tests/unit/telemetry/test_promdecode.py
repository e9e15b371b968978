"""Prometheus' answers become looks at pods; several accounts of a pod are told apart."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.readings import UnknownReason
from specpilot.telemetry.names import LEGACY_RATE, POSITIONS, Counter, Family, Gauge
from specpilot.telemetry.promdecode import Pod, Pods
from specpilot.telemetry.promql import Labels, State
from specpilot.telemetry.promwire import Answer

LABELS = Labels()
WHERE = ("serving", "a")
JOB = {"job": "vllm", "instance": "10.0.0.1:8000"}
TWIN = {"job": "pods", "instance": "10.0.0.1:8000"}


def answer(*elements: tuple[dict[str, str], float | str]) -> bytes:
    result = [{"metric": metric, "value": [1000.0, str(value)]} for metric, value in elements]
    return json.dumps(
        {"status": "success", "data": {"resultType": "vector", "result": result}}
    ).encode()


@dataclass
class Scene:
    """Answers under construction for one pod."""

    pods: Pods = field(default_factory=Pods)

    def _absorb(self, how: str, labels: dict[str, str], value: float | str) -> Scene:
        metric = {"namespace": "serving", "pod": "a"} | labels
        getattr(self.pods, how)(answer((metric, value)), LABELS)
        return self

    def value(self, name: str, value: float | str, **labels: str) -> Scene:
        return self._absorb("absorb_values", {"__name__": name} | labels, value)

    def gauge(self, wire: str, value: float | str) -> Scene:
        return self._absorb("absorb_values", {"series": wire}, value)

    def state(self, series: str, value: float, labels: dict[str, str] | None = None) -> Scene:
        return self._absorb("absorb_state", {"series": series} | (labels or {}), value)

    @property
    def pod(self) -> Pod:
        return self.pods.get(WHERE, Pod())


def test_a_pod_in_use() -> None:
    scene = Scene().state(State.LIVE, 995.0, JOB)
    scene.value("vllm:generation_tokens_total", 600).value("process_start_time_seconds", 7)
    scene.value("vllm:request_time_per_output_token_seconds_sum", 0.5)
    scene.value("vllm:request_time_per_output_token_seconds_bucket", 4, le="0.05")
    scene.value("vllm:request_time_per_output_token_seconds_bucket", 9, le="+Inf")
    scene.value(f"vllm:{POSITIONS}_total", 3, position="2")
    scene.gauge("num_requests_running", 3)
    assert scene.pod.fault() is None
    assert scene.pod.at == 995.0
    page = scene.pod.page()
    assert page.values == {
        (Counter.GENERATION_TOKENS, ""): 600.0,
        ("process_start_time_seconds", ""): 7.0,
        (Family.TPOT, "sum"): 0.5,
        (Family.TPOT, 0.05): 4.0,
        (Family.TPOT, float("inf")): 9.0,
        (POSITIONS, "2"): 3.0,
    }
    assert page.gauges == {Gauge.RUNNING: 3.0}
    assert page.engine
    assert not page.legacy


def test_the_newest_name_of_a_series_wins_in_any_order() -> None:
    for names in (("kv_", "gpu_"), ("gpu_", "kv_")):
        scene = Scene().state(State.LIVE, 1.0, JOB)
        for name in names:
            scene.gauge(f"{name}cache_usage_perc", 0.25 if name == "kv_" else 0.75)
        assert scene.pod.page().gauges == {Gauge.KV_CACHE: 0.25}


def test_the_v0_engine_is_recognised() -> None:
    scene = Scene().state(State.LIVE, 1.0, JOB)
    scene.value("vllm:spec_decode_num_emitted_tokens_total", 5).gauge(LEGACY_RATE, 0.5)
    assert scene.pod.page().legacy
    assert scene.pod.page().gauges == {LEGACY_RATE: 0.5}


def test_an_idle_engine_of_0_8_has_nothing_but_its_info() -> None:
    pod = Scene().state(State.INFO, 990.0).state(State.UP, 1.0).pod
    assert pod.fault() is None
    assert pod.at == 990.0
    assert pod.page().engine


@dataclass(frozen=True)
class Case:
    reason: str
    scene: Scene
    want: UnknownReason
    says: str


CASES = [
    Case("nothing known", Scene(), UnknownReason.NO_DATA, "PodMonitor"),
    Case("its scrape fails", Scene().state(State.UP, 0), UnknownReason.NO_DATA, "cannot scrape"),
    Case(
        "scraped, but no series of the engine",
        Scene().state(State.UP, 1),
        UnknownReason.NOT_EXPORTED,
        "--disable-log-stats",
    ),
    Case(
        "seen, and yet without numbers",
        Scene().state(State.LIVE, 1, JOB).state(State.UP, 1),
        UnknownReason.SOURCE_ERROR,
        "contradict",
    ),
    Case(
        "its time is no time",
        Scene().state(State.LIVE, float("nan"), JOB),
        UnknownReason.NO_DATA,
        "PodMonitor",
    ),
    Case(
        "two jobs scrape it",
        Scene().state(State.LIVE, 1, JOB).state(State.LIVE, 2, TWIN),
        UnknownReason.AMBIGUOUS,
        "job: pods, vllm",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_why_there_is_no_number(case: Case) -> None:
    fault = case.scene.pod.fault()
    assert fault is not None
    assert fault.reason is case.want
    assert case.says in fault.words


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<html>", "does not answer like Prometheus"),
        (b'{"status": "success", "data": {"resultType": "matrix", "result": []}}', "matrix"),
        (b'{"status": "success", "data": {"resultType": "vector", "result": [{}]}}', "metric"),
        (b'{"status": "success"}', "data"),
        (b"", "does not answer"),
    ],
)
def test_what_is_no_answer(body: bytes, says: str) -> None:
    for how in ("absorb_values", "absorb_state"):
        with pytest.raises(Answer, match=says):
            getattr(Pods(), how)(body, LABELS)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
)


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_comes_back_is_an_answer_or_named_as_none(body: bytes) -> None:
    for how in ("absorb_values", "absorb_state"):
        try:
            getattr(Pods(), how)(body, LABELS)
        except Answer:
            continue


def test_numbers_that_are_none_are_kept_for_the_reader_to_refuse() -> None:
    scene = Scene().state(State.LIVE, 1.0, JOB).value("vllm:generation_tokens_total", "NaN")
    (value,) = scene.pod.page().values.values()
    assert value != value  # noqa: PLR0124 - the definition of NaN


def test_a_partial_answer_is_none_and_a_remark_is_not() -> None:
    body = json.loads(answer(({"__name__": "vllm:generation_tokens_total"}, 1)))
    body["warnings"] = ["PromQL info: metric might not be a counter"]
    Pods().absorb_values(json.dumps(body).encode(), LABELS)
    body["warnings"] = ["No StoreAPIs matched: partial response"]
    with pytest.raises(Answer, match="partial answer"):
        Pods().absorb_values(json.dumps(body).encode(), LABELS)
