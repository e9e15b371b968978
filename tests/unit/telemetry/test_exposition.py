"""The fast reader agrees with prometheus_client on real pages, and survives anything."""

from __future__ import annotations

import math
import timeit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from specpilot.telemetry.exposition import PROCESS_START, Key, parse
from specpilot.telemetry.names import QUANTILES, Counter, Family, Gauge
from tests.unit.telemetry.builders import RECORDINGS, page, recording

PAGES = sorted(path.name for path in RECORDINGS.glob("*.prom"))


def _reference(text: str) -> dict[Key, float]:
    """The same numbers by the official parser."""
    found: dict[Key, float] = {}
    old_kv = 0.0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("vllm:")
            if sample.name == "process_start_time_seconds":
                found[PROCESS_START] = sample.value
            if name == sample.name:
                continue
            if name == "gpu_cache_usage_perc":
                old_kv = sample.value
                found.setdefault((Gauge.KV_CACHE, ""), old_kv)
            if name in list(Gauge):
                found[name, ""] = sample.value
            if name.removesuffix("_total") in list(Counter):
                key: Key = (name.removesuffix("_total"), "")
                found[key] = found.get(key, 0.0) + sample.value
            for each in Family:
                if name in {f"{each}_sum", f"{each}_count"}:
                    found[each, name.removeprefix(f"{each}_")] = sample.value
                if name == f"{each}_bucket" and each in QUANTILES:
                    found[each, float(sample.labels["le"])] = sample.value
    return found


@pytest.mark.parametrize("name", PAGES)
def test_every_number_of_a_real_page_agrees_with_prometheus_client(name: str) -> None:
    text = recording(name)
    found = parse(text)
    assert found.values == _reference(text.decode())
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
    ).values
    assert found == {
        ("generation_tokens", ""): 15,
        ("num_requests_running", ""): 7,
        ("kv_cache_usage_perc", ""): pytest.approx(0.3),
        ("time_to_first_token_seconds", 0.5): 3,
    }


@pytest.mark.parametrize("first", ["gpu_cache_usage_perc", "kv_cache_usage_perc"])
def test_the_newer_name_of_a_gauge_wins_in_any_order(first: str) -> None:
    second = {"gpu_cache_usage_perc", "kv_cache_usage_perc"}.difference({first}).pop()
    lines = {f'{name}{{engine="0"}}': 0.7 if name[0] == "k" else 0.1 for name in (first, second)}
    assert parse(page(lines)).values == {("kv_cache_usage_perc", ""): 0.7}


def test_counters_are_read_without_their_suffix_too() -> None:
    assert parse(page({"num_preemptions": 3})).values == {("num_preemptions", ""): 3}


def test_labels_may_hold_braces_quotes_and_what_looks_like_a_bound() -> None:
    label = 'model_name="a}b\\",le=\\"9\\" c{d",le="0.5"'
    found = parse(page({f"time_to_first_token_seconds_bucket{{{label}}}": "4 1700000000000"}))
    assert found.values == {("time_to_first_token_seconds", 0.5): 4}


@pytest.mark.parametrize("bad", ["NaN", "-1", "+Inf"])
def test_one_bad_engine_spoils_the_sum_instead_of_hiding_in_it(bad: str) -> None:
    lines = {'num_requests_running{engine="0"}': 5, 'num_requests_running{engine="1"}': bad}
    value = parse(page(lines)).values["num_requests_running", ""]
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


def test_reading_is_much_faster_than_the_official_parser() -> None:
    text = recording("0.32.0-ngram-repetitive-c16-after.prom")
    decoded = text.decode()

    def official() -> None:
        list(text_string_to_metric_families(decoded))

    fast = min(timeit.repeat(lambda: parse(text), number=5, repeat=5))
    slow = min(timeit.repeat(official, number=5, repeat=3))
    assert slow > 4 * fast, f"own reader {fast / 5:.4f} s, official {slow / 5:.4f} s a page"
