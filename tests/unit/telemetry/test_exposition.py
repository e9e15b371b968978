"""The fast reader agrees with prometheus_client on real pages, and survives anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from specpilot.telemetry.exposition import PROCESS_START, Key, parse
from specpilot.telemetry.names import (
    COUNTER_NAMES,
    GAUGE_NAMES,
    HTTP_SERIES,
    LEGACY_RATE,
    POSITIONS,
    QUANTILES,
    Counter,
    Family,
)
from tests import recordings
from tests.unit.telemetry.builders import page, recording

PAGES = recordings.names("*.prom")


@dataclass(frozen=True)
class Wire:
    """What a series of a page is called here, and which newer ones take its place."""

    name: str
    newer: frozenset[str] = frozenset()


def _wires(table: Mapping[Any, tuple[str, ...]], ending: str = "") -> dict[str, Wire]:
    return {
        wire + ending: Wire(str(name), frozenset(f"vllm:{w}{ending}" for w in wires[:rank]))
        for name, wires in table.items()
        for rank, wire in enumerate(wires)
    }


GAUGES = _wires(GAUGE_NAMES) | {LEGACY_RATE: Wire(LEGACY_RATE)}
COUNTERS = _wires(COUNTER_NAMES, "_total") | {f"{POSITIONS}_total": Wire(POSITIONS)}
PARTS = {
    f"{family}_{part}": (family, part)
    for family in Family
    for part in ("sum", "count", "bucket")
    if part != "bucket" or family in QUANTILES
}


def _reference(text: str) -> tuple[dict[Key, float], dict[str, float]]:
    """The same numbers by the official parser."""
    families = list(text_string_to_metric_families(text))
    there = {sample.name for family in families for sample in family.samples}
    values: dict[Key, float] = {}
    gauges: dict[str, float] = {}
    for sample in (sample for family in families for sample in family.samples):
        name = sample.name.removeprefix("vllm:")
        if sample.name == HTTP_SERIES and sample.labels["method"] == "POST":
            failed = sample.labels["status"][0] in "45"
            for counter, counts in ((Counter.HTTP_REQUESTS, True), (Counter.HTTP_FAILED, failed)):
                values[counter, ""] = values.get((counter, ""), 0.0) + sample.value * counts
        elif sample.name == "process_start_time_seconds":
            values[PROCESS_START] = sample.value
        elif name in GAUGES and not there & GAUGES[name].newer:
            gauges[GAUGES[name].name] = sample.value
        elif name in COUNTERS and not there & COUNTERS[name].newer:
            key: Key = (COUNTERS[name].name, sample.labels.get("position", ""))
            values[key] = values.get(key, 0.0) + sample.value
        elif name in PARTS:
            family, part = PARTS[name]
            values[family, float(sample.labels["le"]) if part == "bucket" else part] = sample.value
    return values, gauges


def test_calls_are_counted_by_how_they_ended() -> None:
    """Lists of models and searches for files are no calls; each status has a line of its own."""
    lines = [
        ("/v1/completions", "POST", "2xx", 90),
        ("/v1/chat/completions", "POST", "2xx", 6),
        ("/v1/completions", "POST", "4xx", 3),
        ("/v1/completions", "POST", "5xx", 1),
        ("/v1/models", "GET", "2xx", 500),
        ("none", "GET", "4xx", 70),
    ]
    text = "".join(
        f'http_requests_total{{handler="{handler}",method="{method}",status="{status}"}} {count}\n'
        for handler, method, status, count in lines
    )
    found = parse(text.encode()).values
    assert found == {(Counter.HTTP_REQUESTS, ""): 100.0, (Counter.HTTP_FAILED, ""): 4.0}


@pytest.mark.parametrize("name", PAGES)
def test_every_number_of_a_real_page_agrees_with_prometheus_client(name: str) -> None:
    text = recording(name)
    found = parse(text)
    values, gauges = _reference(text.decode())
    assert found.values == values
    assert found.gauges == pytest.approx(gauges, nan_ok=True, abs=0.0, rel=0.0)
    assert found.engine == (b"\nvllm:" in text)
    assert found.legacy == (b"\nvllm:spec_decode_efficiency" in text)


def test_engines_and_models_are_added_up_and_shares_averaged() -> None:
    found = parse(
        page(
            {
                'generation_tokens_total{engine="0",model_name="m"}': 10,
                'generation_tokens_total{engine="1",model_name="m"}': 5,
                'num_requests_running{engine="0"}': 3,
                'num_requests_running{engine="1"}': 4,
                'kv_cache_usage_perc{engine="0"}': 0.2,
                'kv_cache_usage_perc{engine="1"}': 0.4,
                'time_to_first_token_seconds_bucket{engine="0",le="0.5"}': 1,
                'time_to_first_token_seconds_bucket{engine="1",le="0.5"}': 2,
            }
        )
    )
    assert found.values == {
        ("generation_tokens", ""): 15,
        ("time_to_first_token_seconds", 0.5): 3,
    }
    assert found.gauges == {
        "num_requests_running": 7,
        "kv_cache_usage_perc": pytest.approx(0.3),
    }


@pytest.mark.parametrize("first", ["gpu_cache_usage_perc", "kv_cache_usage_perc"])
def test_the_newer_name_of_a_gauge_wins_in_any_order(first: str) -> None:
    second = {"gpu_cache_usage_perc", "kv_cache_usage_perc"}.difference({first}).pop()
    lines = {f'{name}{{engine="0"}}': 0.7 if name[0] == "k" else 0.1 for name in (first, second)}
    assert parse(page(lines)).gauges == {"kv_cache_usage_perc": 0.7}


def test_a_renamed_histogram_is_counted_once_under_its_newest_name() -> None:
    old = {"time_in_queue_requests_sum": 4, 'time_in_queue_requests_bucket{le="0.5"}': 1}
    new = {"request_queue_time_seconds_sum": 3, 'request_queue_time_seconds_bucket{le="0.5"}': 2}
    sums = ("request_queue_time_seconds", "sum"), ("request_queue_time_seconds", 0.5)
    assert parse(page(old)).values == dict(zip(sums, (4, 1), strict=True))
    for lines in (old | new, new | old):
        assert parse(page(lines)).values == dict(zip(sums, (3, 2), strict=True))


def test_a_line_that_is_there_twice_counts_once() -> None:
    """A proxy that puts pages together may repeat what they share; Prometheus takes the first."""
    line = 'vllm:generation_tokens_total{engine="0"} 5\n'
    other = 'vllm:generation_tokens_total{engine="1"} 2\n'
    found = parse((line + other + line.replace(" 5", " 6")).encode())
    assert found.values == {("generation_tokens", ""): 7}


def test_counters_are_read_without_their_suffix_too() -> None:
    assert parse(page({"num_preemptions": 3})).values == {("num_preemptions", ""): 3}


def test_labels_may_hold_braces_quotes_and_what_looks_like_a_bound() -> None:
    label = 'model_name="a}b\\",le=\\"9\\" c{d",le="0.5"'
    found = parse(page({f"time_to_first_token_seconds_bucket{{{label}}}": "4 1700000000000"}))
    assert found.values == {("time_to_first_token_seconds", 0.5): 4}


@pytest.mark.parametrize("bad", ["NaN", "-1", "+Inf"])
def test_one_bad_engine_spoils_the_sum_instead_of_hiding_in_it(bad: str) -> None:
    lines = {'num_requests_running{engine="0"}': 5, 'num_requests_running{engine="1"}': bad}
    value = parse(page(lines)).gauges["num_requests_running"]
    assert math.isnan(value) or value == float(bad)


def test_a_page_of_another_program_is_no_engine() -> None:
    found = parse(b"# HELP vllm:nothing x\npython_info 1\nprocess_start_time_seconds 17\n")
    assert not found.engine
    assert found.values == {PROCESS_START: 17.0}


@given(st.binary(max_size=400))
def test_any_bytes_are_survived(junk: bytes) -> None:
    parse(junk)
    parse(b"vllm:generation_tokens_total" + junk)
    parse(b'vllm:time_to_first_token_seconds_bucket{le="' + junk)


@given(st.data())
def test_a_damaged_page_never_invents_a_series(data: st.DataObject) -> None:
    text = recording("0.32.0-draft-random-c4-after.prom")
    whole = parse(text).values
    start = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 3000))
    damaged = parse(text[:start] + text[start + cut :]).values
    # A cut through a bound can make another number of it; everything else is one of the whole's.
    assert {key for key in damaged if isinstance(key[1], str)} <= whole.keys()
    assert {name for name, _ in damaged} <= {name for name, _ in whole}


def test_ray_serve_exports_the_same_under_names_of_its_own() -> None:
    text = (
        b'ray_vllm_generation_tokens_total{ReplicaId="x",WorkerId="w1"} 3\n'
        b'ray_vllm_generation_tokens_total{ReplicaId="y",WorkerId="w2"} 4\n'
        b'ray_vllm_num_requests_running{ReplicaId="x"} 2\n'
    )
    found = parse(text)
    assert found.engine
    assert found.values == {("generation_tokens", ""): 7}
    assert found.gauges == {"num_requests_running": 2}


def test_positions_of_a_draft_are_told_apart() -> None:
    wire = "spec_decode_num_accepted_tokens_per_pos_total"
    lines = {f'{wire}{{engine="{e}",position="{p}"}}': 10 - p for e in (0, 1) for p in (0, 1)}
    assert parse(page(lines)).values == {(POSITIONS, "0"): 20, (POSITIONS, "1"): 18}
