"""Rounds about GPUs against a server that answers as Prometheus does. A real one: integration."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import Replica
from specpilot.telemetry import AutoTelemetry, PrometheusServer, PrometheusTelemetry
from specpilot.telemetry.gpu import PrometheusDevices
from specpilot.telemetry.gpu.rings import KEEP_S
from specpilot.telemetry.promql import State
from specpilot.telemetry.windows import ReplicaWindow
from tests.cluster.waiting import wait_for
from tests.integration.telemetry.servers import Answer, Seen, Server, serving
from tests.unit.telemetry.builders import END, FrozenClock, WallClock, ask, replica
from tests.unit.telemetry.gpu.examples import (
    MEMORY,
    POWER,
    TENSOR,
    UTIL,
    answer,
    example,
    series,
    vector,
)

CHAT = replica("chat-0", namespace="serving")
MAIL = replica("mail-0", namespace="serving")
TARGET = {"job": "gpu", "instance": "10.0.0.1:9400"}
DOWN = Answer(status=503, body=b"upstream is away")


@dataclass
class Prometheus:
    """Scraped the exporter `age_s` before it is asked; knows an engine that makes 3 tokens a s."""

    page: bytes = field(default_factory=lambda: example("dcgm-plain"))
    age_s: float = 5.0
    up: bool = True
    gpu: Answer | None = None  # what is said about GPUs instead

    def __call__(self, request: Seen) -> Answer:
        query, at = request.asked["query"], float(request.asked["time"])
        if "DCGM" not in query:
            return Answer(answer(*self._engine(query, at)))
        if self.gpu is not None:
            return self.gpu
        if query.startswith("timestamp("):
            moments = [series("up", at - self.age_s, **TARGET)] if self.up else []
            return Answer(answer(*moments))
        return Answer(answer(*vector(self.page, **TARGET)))

    def _engine(self, query: str, at: float) -> list[dict[str, Any]]:
        where = {"namespace": "serving", "pod": "chat-0"}
        if State.LIVE in query:
            return [series("", at, job="vllm", series=State.LIVE, **where)]
        gauges = [series("", 4.0, series="num_requests_running", **where)]
        if "process_start_time" not in query:
            return gauges
        return gauges * ("avg_over_time" in query) + [
            series("vllm:generation_tokens_total", 3 * at, **where)
        ]


@dataclass
class Rounds:
    """A source whose rounds are taken one by one, 15 s apart."""

    server: Server
    prometheus: Prometheus
    clock: FrozenClock = field(default_factory=lambda: FrozenClock(END - timedelta(seconds=600)))
    matchers: str = ""

    def __post_init__(self) -> None:
        self.source = PrometheusDevices(
            server=PrometheusServer(url=self.server.url),
            clock=self.clock,
            matchers=self.matchers,
            deadline_s=5.0,
        )
        self.source.track([CHAT, MAIL])

    def round(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.at += timedelta(seconds=15)
            self.source.sample()

    def window(self, of: Replica = CHAT, seconds: float = 60.0) -> ReplicaWindow:
        question = ask(of, end=self.clock.at, seconds=seconds)
        (window,) = self.source.windows([question], deadline_s=0.0)["k"].replicas
        return window


@pytest.fixture
def rounds() -> Iterator[Rounds]:
    prometheus = Prometheus()
    with serving(prometheus) as server:
        yield Rounds(server, prometheus)


def test_two_queries_a_round_whatever_is_tracked(rounds: Rounds) -> None:
    pods = [replica(f"p-{i}", namespace=f"team-{i % 9}") for i in range(300)]
    rounds.source.track([CHAT, *pods])
    rounds.round()
    first, second = rounds.server.seen
    assert first.asked["time"] == second.asked["time"], "one moment for both"
    assert second.asked["query"].startswith("timestamp(up)")
    rounds.source.track([])
    rounds.round()
    assert len(rounds.server.seen) == 2, "nobody to ask about"


def test_a_window_holds_the_means_of_the_pods_devices(rounds: Rounds) -> None:
    rounds.round(3)
    rounds.prometheus.page = example("dcgm-plain").replace(b"} 97\n", b"} 7\n")
    rounds.round(2)
    window = rounds.window()
    assert (window.fault, window.faults, window.trouble) == (None, {}, "")
    # The exporter was scraped 5 s before each round: three at 95 %, two at 50 %.
    assert window.last == rounds.clock.at - timedelta(seconds=5)
    assert window.gauges[UTIL] == pytest.approx((0.95 + 0.95 + 0.725 + 0.5) / 4, rel=0.03)
    assert window.gauges[POWER] == pytest.approx(1000.0)
    assert window.interval_s == 15.0


def test_the_same_scrape_seen_twice_counts_once(rounds: Rounds) -> None:
    rounds.round()
    rounds.prometheus.age_s = 20.0  # not scraped since
    rounds.round()
    assert rounds.window().samples == 1


def test_samples_live_on_until_they_are_stale(rounds: Rounds) -> None:
    rounds.round(4)
    rounds.prometheus.gpu = DOWN
    rounds.round()
    window = rounds.window()
    assert window.gauges[UTIL] == pytest.approx(0.95)
    assert "503" in window.trouble
    found = AutoTelemetry(prometheus=None, scrape=None, devices=rounds.source)
    assert found.collect([ask(CHAT, end=rounds.clock.at)])["k"].value("gpu_util") is not None
    rounds.round(9)
    reading = found.collect([ask(CHAT, end=rounds.clock.at)])["k"]["gpu_util"]
    assert reading.reason is UnknownReason.STALE
    assert "503" in reading.message


@pytest.mark.parametrize(
    ("gpu", "words", "reason"),
    [
        (DOWN, "HTTP 503", "an error"),
        (Answer(b"<html>sign in</html>"), "check the URL", "no Prometheus"),
        (Answer(answer("text")), "does not answer like Prometheus", "no vector"),
    ],
)
def test_a_failed_round_is_the_reason(rounds: Rounds, gpu: Answer, words: str, reason: str) -> None:
    rounds.prometheus.gpu = gpu
    rounds.round()
    fault = rounds.window().fault
    assert fault is not None, reason
    assert fault.reason is UnknownReason.SOURCE_ERROR, reason
    assert words in fault.words, reason


def test_a_round_that_takes_too_long_is_the_reason() -> None:
    prometheus = Prometheus(gpu=Answer(answer(), delay_s=1.0))
    with serving(prometheus) as server:
        source = PrometheusDevices(
            server=PrometheusServer(url=server.url), clock=FrozenClock(), deadline_s=0.2
        )
        source.track([CHAT])
        source.sample()
        (window,) = source.windows([ask(CHAT)], deadline_s=0.0)["k"].replicas
    assert window.fault is not None
    assert "did not answer within 0.2 s" in window.fault.words


def test_what_nobody_exports_is_told_with_the_remedy(rounds: Rounds) -> None:
    assert "not looked at" in (rounds.window(MAIL).fault or pytest.fail("known")).words
    rounds.round()
    fault = rounds.window(MAIL).fault
    assert fault is not None
    assert fault.reason is UnknownReason.NOT_EXPORTED
    assert "no GPU exporter reports a device of this pod" in fault.words


def test_numbers_of_unknown_age_are_not_used(rounds: Rounds) -> None:
    rounds.prometheus.up = False
    rounds.round(2)
    fault = rounds.window().fault
    assert fault is not None
    assert "there is no `up` series" in fault.words


def test_matchers_are_its_own() -> None:
    prometheus = Prometheus()
    with serving(prometheus) as server:
        Rounds(server, prometheus, matchers='cluster="eu"').round()
        assert all('cluster="eu"' in seen.asked["query"] for seen in server.seen)


def test_a_clock_of_the_past_looks_at_the_past(rounds: Rounds) -> None:
    rounds.round(3)
    asked = [float(seen.asked["time"]) for seen in rounds.server.seen[::2]]
    assert asked == [END.timestamp() - 600 + 15 * n for n in (1, 2, 3)]
    assert rounds.window().last == END - timedelta(seconds=600 - 45 + 5)


def test_windows_longer_than_what_is_kept_are_kept_once_asked_for(rounds: Rounds) -> None:
    rounds.window(seconds=1900.0)
    rounds.round(128)
    assert rounds.window(seconds=1900.0).span_s > KEEP_S


def test_what_a_number_covers_comes_with_the_window(rounds: Rounds) -> None:
    rounds.prometheus.page = example("dcgm-time-sliced")
    rounds.round(3)
    notes = rounds.window().notes
    assert "shared with 1 other pod" in notes[POWER]
    assert set(notes) <= set(rounds.window().gauges)
    assert rounds.source.latest(CHAT) is not None


def test_what_is_not_measured_is_told_by_gauge(rounds: Rounds) -> None:
    rounds.prometheus.page = example("dcgm-without-profiling")
    rounds.round(3)
    window = rounds.window()
    assert set(window.gauges) == {UTIL, MEMORY, POWER}
    assert window.faults[TENSOR].reason is UnknownReason.NOT_EXPORTED


def test_the_engines_signals_stay_when_the_gpu_side_fails() -> None:
    prometheus = Prometheus(gpu=DOWN)
    clock = FrozenClock()
    with serving(prometheus) as http:
        server = PrometheusServer(url=http.url)
        engine = PrometheusTelemetry(server=server, clock=clock, deadline_s=5.0)
        gpu = PrometheusDevices(server=server, clock=clock, deadline_s=5.0)
        telemetry = AutoTelemetry(prometheus=engine, scrape=None, devices=gpu)
        telemetry.track([CHAT])
        telemetry.collect([ask(CHAT, end=clock.at, seconds=1.0)])
        for _ in range(5):
            clock.at += timedelta(seconds=15)
            engine.sample()
            gpu.sample()
        found = telemetry.collect([ask(CHAT, end=clock.at, seconds=60.0)])["k"]
    assert found.value("tokens_per_second") == pytest.approx(3.0)
    assert found.value("batch_size") == pytest.approx(4.0)
    assert found["gpu_util"].reason is UnknownReason.SOURCE_ERROR
    assert "503" in found["gpu_util"].message


def test_background_rounds_wait_for_the_first_question_and_end_after_the_last() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(serving(Prometheus()))
        source = stack.enter_context(
            PrometheusDevices(
                server=PrometheusServer(url=server.url),
                clock=WallClock(),
                interval_s=0.05,
                idle_s=0.5,
            )
        )
        source.start()  # again is harmless
        source.track([CHAT])
        time.sleep(0.3)  # six rounds, had anybody asked
        source.windows([], deadline_s=0.0)
        assert server.seen == []
        source.windows([ask(CHAT, end=WallClock().now())], deadline_s=0.0)
        wait_for(lambda: source.latest(CHAT), deadline=20, describe="a first round")
        wait_for(lambda: len(server.seen) >= 6, deadline=20, describe="more rounds")

        def rested() -> bool:
            before = len(server.seen)
            time.sleep(0.3)
            return len(server.seen) == before

        wait_for(rested, deadline=20, describe="the rounds to end")
        before = len(server.seen)
        source.windows([ask(CHAT, end=WallClock().now())], deadline_s=0.0)
        wait_for(lambda: len(server.seen) > before, deadline=20, describe="rounds to go on")
    assert not [t for t in threading.enumerate() if t.name == "prometheus gpu"]


def test_the_first_question_does_not_wait_for_the_next_round() -> None:
    with (
        serving(Prometheus()) as server,
        PrometheusDevices(
            server=PrometheusServer(url=server.url), clock=WallClock(), interval_s=600.0
        ) as source,
    ):
        source.track([CHAT])
        source.windows([ask(CHAT, end=WallClock().now())], deadline_s=0.0)
        wait_for(lambda: source.latest(CHAT), deadline=20, describe="a round at once")


def test_the_interval_must_be_above_zero() -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        PrometheusDevices(
            server=PrometheusServer(url="http://p"), clock=WallClock(), interval_s=0.0
        )
