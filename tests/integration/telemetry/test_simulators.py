"""Living servers of several releases, scraped: what was sent is what is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from specpilot.domain.readings import Readings, UnknownReason
from specpilot.domain.signals import MEASURED, POSITIONS, position_signal
from specpilot.telemetry import ScrapeTelemetry
from tests.cluster.waiting import wait_for
from tests.integration.telemetry.simulators import NGRAM, Simulator, healthy, start
from tests.unit.telemetry.builders import FrozenClock, ask

Starter = Callable[..., Simulator]
PROMPTS = [f"[accept=0.8] [match=0.9] tell me story {i} and again story {i}" for i in range(6)]


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Starter]:
    started: list[Simulator] = []

    def run(name: str, *flags: str, **options: str) -> Simulator:
        started.append(start(name, *flags, directory=tmp_path, **options))
        return started[-1]

    yield run
    for each in started:
        each.process.stop()


def _measure(*simulators: Simulator, prompts: list[str]) -> tuple[Readings, int]:
    """Readings of ten seconds in which the prompts were answered, and the tokens that came."""
    clock = FrozenClock()
    scrape = ScrapeTelemetry(clock=clock, timeout_s=20)
    replicas = [each.replica() for each in simulators]
    scrape.track(replicas)
    scrape.sample()
    tokens = sum(each.complete(prompts) for each in simulators) if prompts else 0
    clock.at += timedelta(seconds=10)
    scrape.sample()
    return scrape.collect([ask(*replicas, end=clock.at, seconds=60)])["k"], tokens


def test_two_speculating_replicas(starter: Starter) -> None:
    arm = [starter(name, NGRAM) for name in ("a", "b")]
    readings, tokens = _measure(*arm, prompts=PROMPTS)
    assert readings.value("tokens_per_second") == tokens / 10
    assert readings["tpot_mean"].count == 12
    assert readings.value("generation_length_mean") == tokens / 12
    drafts, drafted = readings.value("drafts"), readings.value("draft_tokens")
    assert drafts is not None
    assert drafted is not None
    assert 0 < drafts <= drafted <= 4 * drafts
    assert 0.4 < (readings.value("acceptance_rate") or 0) <= 1
    assert 1 < (readings.value("mean_acceptance_length") or 0) <= 5
    p50 = readings["e2e_p50"]
    assert p50.low is not None
    assert p50.value is not None
    assert p50.low <= p50.value
    unknown = {r.signal for r in readings.values() if not r.known}
    deeper = {position_signal(index) for index in range(4, POSITIONS)}
    gpu = {name for name in MEASURED if name.startswith("gpu_")}
    assert unknown - deeper - gpu == {"tokens_per_second_per_request"}, "nothing ran at either end"
    assert unknown >= deeper | gpu


def test_an_idle_speculating_replica(starter: Starter) -> None:
    readings, _ = _measure(starter("a", NGRAM), prompts=[])
    assert readings.value("batch_size") == readings.value("drafts") == 0.0
    assert readings["acceptance_rate"].reason is UnknownReason.TOO_FEW_SAMPLES
    assert readings["tpot_p99"].reason is UnknownReason.TOO_FEW_SAMPLES


def test_a_replica_that_does_not_speculate(starter: Starter) -> None:
    readings, tokens = _measure(starter("a"), prompts=PROMPTS)
    assert readings.value("tokens_per_second") == tokens / 10
    assert readings["acceptance_rate"].reason is UnknownReason.NOT_EXPORTED
    assert "speculation is off" in readings["acceptance_rate"].message


def test_several_api_servers_export_no_gauges_until_the_first_request(starter: Starter) -> None:
    simulator = starter("a", "--api-server-count", "2")
    readings, _ = _measure(simulator, prompts=[])
    assert readings.value("batch_size") == readings.value("queue_depth") == 0.0
    readings, tokens = _measure(simulator, prompts=PROMPTS)
    assert readings.value("tokens_per_second") == tokens / 10


def test_two_engines_in_one_replica_are_one(starter: Starter) -> None:
    simulator = starter("a", "--data-parallel-size", "2")
    readings, tokens = _measure(simulator, prompts=PROMPTS)
    assert readings.value("tokens_per_second") == tokens / 10
    assert readings["e2e_mean"].count == 6


def test_without_statistics_the_flag_is_named(starter: Starter) -> None:
    readings, _ = _measure(starter("a", "--disable-log-stats"), prompts=PROMPTS)
    for signal in ("batch_size", "tpot_mean", "acceptance_rate", "tokens_per_second"):
        assert readings[signal].reason is UnknownReason.NOT_EXPORTED
        assert "--disable-log-stats" in readings[signal].message


def test_0_10_has_the_mean_time_per_token_but_no_quantile(starter: Starter) -> None:
    readings, tokens = _measure(starter("a", version="0.10.2"), prompts=PROMPTS)
    assert readings.value("tokens_per_second") == tokens / 10
    assert readings["tpot_mean"].count == 6
    assert 0.005 < (readings.value("tpot_mean") or 0) < 1
    assert readings["tpot_p50"].reason is UnknownReason.NOT_EXPORTED
    assert readings["kv_cache_usage"].known


def test_v0_is_not_believed(starter: Starter) -> None:
    simulator = starter("a", NGRAM, version="0.8.5", v1="0")

    def reported() -> bool:
        """V0 exports its speculation series a few seconds after the first request."""
        simulator.complete(PROMPTS[:1])
        return "spec_decode_efficiency" in httpx.get(f"{simulator.url}/metrics").text

    wait_for(reported, deadline=60, describe="the V0 speculation series")
    readings, _ = _measure(simulator, prompts=PROMPTS)
    for signal in ("mean_acceptance_length", "drafts", "acceptance_rate_pos_0"):
        assert readings[signal].reason is UnknownReason.AMBIGUOUS
    assert "since its start" in readings["acceptance_rate"].message, "its gauge, not its counters"
    assert 0.0 <= (readings.value("acceptance_rate") or 0.0) <= 1.0
    assert readings["tokens_per_second"].reason is UnknownReason.AMBIGUOUS
    assert readings["e2e_mean"].count == 6


def test_a_restart_in_place_loses_nothing_that_was_seen(starter: Starter) -> None:
    clock = FrozenClock()
    scrape = ScrapeTelemetry(clock=clock, timeout_s=20)
    simulator = starter("a", NGRAM)
    found = simulator.replica()
    scrape.track([found])
    scrape.sample()
    seen = 0
    for prompts in (PROMPTS, PROMPTS[:2]):
        seen += simulator.complete(prompts)
        clock.at += timedelta(seconds=5)
        scrape.sample()
        simulator.process.stop()
        simulator.process.start()
        simulator.process.wait_ready(lambda: healthy(simulator.url), deadline=60)
        clock.at += timedelta(seconds=5)
        scrape.sample()
    readings = scrape.collect([ask(found, end=clock.at, seconds=60)])["k"]
    assert readings.value("tokens_per_second") == pytest.approx(seen / 20)
    assert readings["requests_per_second"].count == 8
