"""The simulated metric text against that of real servers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache

import pytest
from prometheus_client.core import Metric

from specpilot.sim.engine import Engine, engines
from specpilot.sim.launch import LaunchConfig
from tests import recordings
from tests.unit.sim.support import (
    NGRAM,
    add,
    config_of,
    families,
    finish,
    render,
    value,
)

NOT_MODELLED = {
    # Needs hardware to count (only with --enable-mfu-metrics), LoRA, or a Python process.
    "vllm:estimated_flops_per_gpu", "vllm:estimated_read_bytes_per_gpu",
    "vllm:estimated_write_bytes_per_gpu", "vllm:lora_requests_info",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    recording: str
    version: str
    spec: str | None
    v0: bool
    idle: bool
    reason: str


LIMITED = json.dumps({"method": "ngram", "num_speculative_tokens": 4, "disable_by_batch_size": 8})
CASES = [
    Case("0.32.0-ngram-random-c16-after", "0.32.0", NGRAM, False, False, "V1 that speculates"),
    Case("0.32.0-nospec-idle-zero-requests", "0.32.0", None, False, True, "V1, off and idle"),
    Case("0.10.2-nospec-mixed-c4-after", "0.10.2", None, False, False, "V1 with older names"),
    Case("0.8.5-ngram-v0-repetitive-c16-after", "0.8.5", LIMITED, True, False, "V0"),
    Case("0.8.5-ngram-v0-idle-zero-requests", "0.8.5", LIMITED, True, True, "V0 before a request"),
]


@cache
def simulated(case: Case) -> str:
    # The recorded servers had --max-model-len 2048, which decides the buckets of token counts.
    config = config_of("--max-model-len", "2048", version=case.version, spec=case.spec, v0=case.v0)
    engine = Engine(config)
    if not case.idle:
        for _ in range(3):
            add(engine, "[accept=0.8]", max_tokens=900)
        assert finish(engine) > 5, "V0 reports on speculation every five seconds"
    return render(config, [engine])


def recorded(case: Case) -> str:
    return recordings.read(f"{case.recording}.prom").decode()


def vllm_families(text: str) -> dict[str, Metric]:
    return {name: family for name, family in families(text).items() if name.startswith("vllm:")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_same_families_of_the_same_kind(case: Case) -> None:
    real = {name: family.type for name, family in vllm_families(recorded(case)).items()}
    ours = {name: family.type for name, family in vllm_families(simulated(case)).items()}
    left_out = {name for name in real if name.removesuffix("_created") in NOT_MODELLED}
    assert ours == {name: kind for name, kind in real.items() if name not in left_out}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_same_series_with_the_same_labels_and_buckets(case: Case) -> None:
    def series(text: str) -> dict[str, set[tuple[tuple[str, str], ...]]]:
        result: dict[str, set[tuple[tuple[str, str], ...]]] = {}
        for name, family in vllm_families(text).items():
            if name.removesuffix("_created") in NOT_MODELLED or name == "vllm:cache_config_info":
                continue
            for sample in family.samples:
                result.setdefault(sample.name, set()).add(tuple(sorted(sample.labels.items())))
        return result

    assert series(simulated(case)) == series(recorded(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_the_cache_config_has_labels_that_the_real_one_has(case: Case) -> None:
    [real] = families(recorded(case))["vllm:cache_config_info"].samples
    [ours] = families(simulated(case))["vllm:cache_config_info"].samples
    assert ours.labels.keys() <= real.labels.keys()
    assert ours.value == real.value


def test_v0_shows_a_series_only_once_it_was_set() -> None:
    config = config_of(version="0.8.5", spec=LIMITED, v0=True)
    engine = Engine(config)
    add(engine)
    seconds = engine.begin_step(0.0)
    assert seconds is not None
    engine.finish_step(seconds)
    ours = set(vllm_families(render(config, [engine])))
    first = recordings.read("0.8.5-ngram-v0-repetitive-c2-during.prom")
    real = set(vllm_families(first.decode()))
    # The real scrape came three steps into the load, ours after one: no token latency yet.
    assert ours == real - NOT_MODELLED - {"vllm:time_per_output_token_seconds"}


def test_v0_counts_running_totals_of_speculation_and_true_gauges() -> None:
    config = config_of(version="0.8.5", spec=NGRAM, v0=True)
    engine = Engine(config)
    assert config.speculation is not None
    add(engine, "[accept=0.8]", max_tokens=3000)
    finish(engine)
    text = render(config, [engine])
    spec = engine.stats.spec
    exported = value(text, "vllm:spec_decode_num_accepted_tokens_total")
    assert exported is not None
    assert exported > spec.accepted, "a sum of sums"
    rate = value(text, "vllm:spec_decode_draft_acceptance_rate")
    assert rate == pytest.approx(spec.accepted / spec.draft_tokens, abs=0.05)


def test_v0_gauges_are_nan_before_the_first_draft() -> None:
    config = config_of(version="0.8.5", spec=NGRAM, v0=True)
    engine = Engine(config)
    add(engine, "[match=0]", max_tokens=300)
    finish(engine)
    rate = value(render(config, [engine]), "vllm:spec_decode_draft_acceptance_rate")
    assert rate is not None
    assert math.isnan(rate)


def test_v0_undercounts_generated_tokens_while_speculating() -> None:
    config = config_of(version="0.8.5", spec=NGRAM, v0=True)
    engine = Engine(config)
    add(engine, "[accept=0.9]", max_tokens=256)
    finish(engine)
    counted = value(render(config, [engine]), "vllm:generation_tokens_total")
    assert counted is not None
    assert counted < 200
    assert value(render(config, [engine]), "vllm:request_generation_tokens_sum") == 256


SPEC = "vllm:spec_decode_num_drafts_total"


class TestPresence:
    def test_off_has_no_series_of_speculation(self) -> None:
        config = config_of()
        assert "spec_decode" not in render(config, [Engine(config)])

    def test_on_and_idle_has_them_at_zero_one_for_each_position(self) -> None:
        config = config_of(spec=NGRAM)
        text = render(config, [Engine(config)])
        assert value(text, SPEC) == 0
        positions = families(text)["vllm:spec_decode_num_accepted_tokens_per_pos"].samples
        assert [sample.labels["position"] for sample in positions] == ["0", "1", "2", "3"]

    def test_v1_before_0_8_5_does_not_count_speculation(self) -> None:
        config = config_of(version="0.8.4", spec=NGRAM)
        assert "spec_decode" not in render(config, [Engine(config)])

    def test_disable_log_stats_leaves_nothing_of_vllm(self) -> None:
        config = config_of("--disable-log-stats", spec=NGRAM)
        text = render(config, [Engine(config)])
        assert "vllm:" not in text
        assert "process_start_time_seconds" in text

    @pytest.mark.parametrize(
        ("version", "present", "absent"),
        [
            ("0.8.5", "gpu_cache_usage_perc", "kv_cache_usage_perc"),
            ("0.9.2", "gpu_cache_usage_perc", "inter_token_latency_seconds_count"),
            ("0.10.2", "kv_cache_usage_perc", "request_time_per_output_token_seconds_count"),
            ("0.11.2", "time_per_output_token_seconds_count", "gpu_cache_usage_perc"),
            ("0.12.0", "inter_token_latency_seconds_count", "time_per_output_token_seconds_count"),
            ("0.33.0", "request_time_per_output_token_seconds_count", "gpu_cache_usage_perc"),
        ],
    )
    def test_names_change(self, version: str, present: str, absent: str) -> None:
        config = config_of(version=version)
        text = render(config, [Engine(config)])
        assert value(text, f"vllm:{present}") is not None
        assert value(text, f"vllm:{absent}") is None

    def test_the_engine_label_begins_with_0_8_3(self) -> None:
        for version, labels in (("0.8.2", {"model_name"}), ("0.8.3", {"model_name", "engine"})):
            config = config_of(version=version)
            [sample] = families(render(config, [Engine(config)]))["vllm:num_preemptions"].samples
            assert sample.labels.keys() == labels


def loaded(*words: str, version: str = "0.32.0") -> tuple[LaunchConfig, list[Engine]]:
    config = config_of(*words, version=version)
    cores = list(engines(config))
    for core in cores:
        add(core)
        finish(core)
    return config, cores


class TestSeveralServers:
    GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")

    def test_gauges_come_with_the_first_request_and_stay(self) -> None:
        config = config_of("--api-server-count", "2")
        cores = list(engines(config))
        text = render(config, cores)
        assert [value(text, name) for name in self.GAUGES] == [None] * 3
        add(cores[0])
        finish(cores[0])
        text = render(config, cores)
        assert [value(text, name) for name in self.GAUGES] == [0.0] * 3

    def test_no_created_and_no_process_series(self) -> None:
        config, cores = loaded("--api-server-count", "2")
        text = render(config, cores)
        assert "_created" not in text
        assert "process_" not in text

    def test_steps_count_double(self) -> None:
        config, cores = loaded("--api-server-count", "2")
        counted = value(render(config, cores), "vllm:iteration_tokens_total_count")
        assert counted == 2 * cores[0].stats.steps

    def test_each_data_parallel_engine_has_series_of_its_own(self) -> None:
        config, cores = loaded("--data-parallel-size", "2")
        text = render(config, cores)
        for rank in ("0", "1"):
            assert value(text, "vllm:generation_tokens_total", engine=rank) == 64

    def test_before_0_10_only_the_last_engine_reports(self) -> None:
        config, cores = loaded("--data-parallel-size", "2", version="0.9.2")
        text = render(config, cores)
        assert value(text, "vllm:generation_tokens_total", engine="0") is None
        assert value(text, "vllm:generation_tokens_total", engine="1") == 64


def test_label_values_are_escaped() -> None:
    config = config_of("--served-model-name", 'a"b\\c')
    text = render(config, [Engine(config)])
    [sample] = families(text)["vllm:num_preemptions"].samples
    assert sample.labels["model_name"] == 'a"b\\c'
