"""Every signal on every recording of a real server, against two independent witnesses.

One is the load generator's own count, noted beside the recording. The other is computed here from
the pages by prometheus_client's parser and a few lines of arithmetic that share nothing with the
code under test. And for every signal that has no value, the table says which reason it must have:
the sets are complete, so a signal that silently appears or disappears fails a row.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from specpilot.domain.readings import Readings, UnknownReason
from specpilot.domain.signals import MEASURED, POSITIONS, position_signal
from tests import recordings
from tests.unit.telemetry.measuring import measured

DEPTH = 4
"""Of every recorded server that speculates."""

AT = {position_signal(i) for i in range(POSITIONS)}
RATES = {"acceptance_rate", "mean_acceptance_length"}
DEEPER = AT - {position_signal(i) for i in range(DEPTH)}
SHALLOW = AT - DEEPER
SPECULATION = RATES | AT | {"drafts", "draft_tokens"}
GPU = {name for name in MEASURED if name.startswith("gpu_")}
PERCENTILES = (50, 90, 95, 99)
TPOT_PERCENTILES = {f"tpot_p{q}" for q in PERCENTILES}
LATENCIES = {
    f"{what}_{how}"
    for what in ("tpot", "ttft", "e2e", "queue_time")
    for how in ("mean", *(f"p{q}" for q in PERCENTILES))
}
LENGTHS = {"prompt_length_mean", "generation_length_mean"}
PER_REQUEST = "tokens_per_second_per_request"
IDLE = LATENCIES | LENGTHS | {PER_REQUEST, "tokens_per_step", "prefix_cache_hit_rate"}
"""What has no value while nothing is asked of a server."""

EXPORTED = set(MEASURED) - GPU - {"replicas_ready", "error_rate"}
"""What a page has from its start, or never; calls are counted from the first one on."""

NOT = UnknownReason.NOT_EXPORTED
FEW = UnknownReason.TOO_FEW_SAMPLES
VAGUE = UnknownReason.AMBIGUOUS
NAN = UnknownReason.NAN


@dataclass(frozen=True)
class Row:
    """Recordings of one kind, and which signals have no value on them, why: all others have one."""

    reason: str
    pages: str
    unknown: Mapping[UnknownReason, set[str]]
    besides: str = ""


LOADS = [
    Row(
        "without speculation its series do not exist, and everything else does",
        "0.32.0-nospec-*",
        {NOT: SPECULATION | GPU, FEW: {PER_REQUEST}},
    ),
    Row(
        "n-gram and a draft model of depth 4: all is known down to the depth",
        "0.32.0-[nd][gr]*",
        {NOT: DEEPER | GPU, FEW: {PER_REQUEST}},
    ),
    Row(
        "a schedule that drafts at this batch, or when the batch shrinks at the end of the load",
        "0.32.0-dynamic-*",
        {NOT: DEEPER | GPU, FEW: {PER_REQUEST}},
        besides="0.32.0-dynamic-repetitive-c16",
    ),
    Row(
        "a schedule with K = 0 at this batch: acceptance is 0/0, which is not 0",
        "0.32.0-dynamic-repetitive-c16",
        {NOT: DEEPER | GPU, FEW: RATES | SHALLOW | {PER_REQUEST}},
    ),
    Row(
        "0.10 has no time per output token of a request, but its mean follows from decode time",
        "0.10.2-nospec-*",
        {NOT: SPECULATION | GPU | TPOT_PERCENTILES, FEW: {PER_REQUEST}},
    ),
    Row(
        "V0: its own gauge is the rate; its counters add up running totals and are never used",
        "0.8.5-ngram-v0-*",
        {
            NOT: GPU | TPOT_PERCENTILES | {"prefix_cache_hit_rate", "error_rate"},
            VAGUE: (SPECULATION - {"acceptance_rate"})
            | {"generated_tokens", "tokens_per_second", PER_REQUEST, "tokens_per_step"},
        },
        besides="0.8.5-ngram-v0-repetitive-c[24]",
    ),
    Row(
        "V0 before it has reported drafts: its gauge is NaN",
        "0.8.5-ngram-v0-repetitive-c[24]",
        {
            NOT: GPU | TPOT_PERCENTILES | {"prefix_cache_hit_rate", "error_rate"},
            VAGUE: (SPECULATION - {"acceptance_rate"})
            | {"generated_tokens", "tokens_per_second", PER_REQUEST, "tokens_per_step"},
            NAN: {"acceptance_rate"},
        },
    ),
]

PAUSES = [
    Row(
        "off and idle: not exported is told from nothing happened",
        "0.32.0-nospec-idle-*",
        {NOT: SPECULATION | GPU | {"error_rate"}, FEW: IDLE},
    ),
    Row(
        "a draft model or a schedule, idle: no draft is a fact (0), acceptance is not known",
        "0.32.0-d*-idle-*",
        {NOT: DEEPER | GPU | {"error_rate"}, FEW: IDLE | RATES | SHALLOW},
    ),
    Row(
        "n-gram, idle: the same",
        "0.32.0-ngram-idle-*",
        {NOT: DEEPER | GPU | {"error_rate"}, FEW: IDLE | RATES | SHALLOW},
    ),
    Row(
        "0.10, idle",
        "0.10.2-nospec-idle-*",
        {NOT: SPECULATION | GPU | {"error_rate"} | TPOT_PERCENTILES, FEW: IDLE - TPOT_PERCENTILES},
    ),
]


def _matching(row: Row, stems: Sequence[str]) -> list[str]:
    return [s for s in stems if fnmatchcase(s, row.pages) and not fnmatchcase(s, row.besides)]


STEMS = [load.stem for load in recordings.loads()]
IDLE_PAGES = recordings.names("*-idle-*.prom")
BY_STEM = {load.stem: load for load in recordings.loads()}


def judge(readings: Readings, row: Row) -> None:
    """Exactly the signals of the row are unknown, for exactly its reasons, in words."""
    assert set(readings) == set(MEASURED)
    found: dict[UnknownReason, set[str]] = defaultdict(set)
    for name, reading in readings.items():
        if reading.reason is not None:
            found[reading.reason].add(name)
            assert reading.message, f"{name} is {reading.reason} without a word"
    assert found == {reason: set(names) for reason, names in row.unknown.items()}, row.reason


@pytest.mark.parametrize(
    ("row", "stem"),
    [pytest.param(row, stem, id=stem) for row in LOADS for stem in _matching(row, STEMS)],
)
def test_a_load(row: Row, stem: str) -> None:
    load = BY_STEM[stem]
    readings = measured([(0.0, load.before), (load.seconds, load.after)])
    judge(readings, row)
    agree(readings, [(0.0, load.before), (load.seconds, load.after)])
    if load.result:
        agree_with_the_load_generator(readings, load.result)


@pytest.mark.parametrize(
    ("row", "name"),
    [pytest.param(row, name, id=name) for row in PAUSES for name in _matching(row, IDLE_PAGES)],
)
def test_a_pause(row: Row, name: str) -> None:
    pages = [(0.0, recordings.read(name)), (10.0, recordings.read(name))]
    readings = measured(pages)
    judge(readings, row)
    agree(readings, pages)
    if "nospec" not in name:
        assert readings.value("drafts") == readings.value("draft_tokens") == 0
    assert readings.value("batch_size") == readings.value("tokens_per_second") == 0


def test_every_recording_is_in_exactly_one_row() -> None:
    loads = [stem for row in LOADS for stem in _matching(row, STEMS)]
    assert sorted(loads) == sorted(STEMS)
    pauses = [name for row in PAUSES for name in _matching(row, IDLE_PAGES)]
    assert sorted([*pauses, "0.8.5-ngram-v0-idle-zero-requests.prom"]) == sorted(IDLE_PAGES)


def test_v0_before_its_first_request_exports_nothing_yet() -> None:
    page = recordings.read("0.8.5-ngram-v0-idle-zero-requests.prom")
    readings = measured([(0.0, page), (10.0, page)])
    for name in SPECULATION:
        assert readings[name].reason is NOT
    for name in LATENCIES - TPOT_PERCENTILES:
        assert readings[name].reason is FEW
    assert readings.value("tokens_per_second") == readings.value("batch_size") == 0


@pytest.mark.parametrize("stem", STEMS)
def test_the_first_second_of_a_load(stem: str) -> None:
    """Pages scraped while the engine is at work agree with the parser too."""
    load = BY_STEM[stem]
    for pages in (
        [(0.0, load.before), (1.0, load.during)],
        [(0.0, load.during), (load.seconds, load.after)],
        [(0.0, load.before), (1.0, load.during), (load.seconds, load.after)],
    ):
        agree(measured(pages), pages)


@pytest.mark.parametrize("name", recordings.names("*-during.prom"))
def test_one_page_tells_of_no_change(name: str) -> None:
    """But what an engine never exports shows at once."""
    readings = measured([(0.0, recordings.read(name))])
    absent = {signal for signal in EXPORTED if readings[signal].reason is NOT}
    few = {signal for signal in EXPORTED if readings[signal].reason is FEW}
    assert absent | few == EXPORTED, "one page is no window"
    if "0.32.0-nospec" in name:
        assert absent == SPECULATION
    elif "0.32.0" in name:
        assert absent == DEEPER
    elif "0.10.2" in name:
        assert absent == SPECULATION | TPOT_PERCENTILES
    assert readings.value("replicas_ready") == 1


def test_the_series_as_a_whole() -> None:
    series = recordings.series()
    readings = measured([(scrape.t, scrape.page) for scrape in series])
    judge(readings, Row("queueing: every signal has a value", "", {NOT: DEEPER | GPU}))
    agree(readings, [(scrape.t, scrape.page) for scrape in series])
    first, last = series[0].noted, series[-1].noted
    drafted, accepted = (last[n] - first[n] for n in ("draft_tokens", "accepted"))
    assert readings.value("acceptance_rate") == accepted / drafted
    assert readings.value("drafts") == last["drafts"] - first["drafts"]


@pytest.mark.parametrize("length", [2, 5, 10])
def test_windows_of_the_series(length: int) -> None:
    """Each window of so many scrapes, whatever happens to go on in it."""
    scrapes = [(scrape.t, scrape.page) for scrape in recordings.series()]
    for start in range(0, len(scrapes) - length, length):
        pages = scrapes[start : start + length + 1]
        agree(measured(pages), pages)


# --- the load generator's count


def agree_with_the_load_generator(readings: Readings, result: Mapping[str, float]) -> None:
    """What it sent and what came back; every number it noted is used."""
    seconds = result["secs"]
    assert readings.value("generated_tokens") == result["gen_metric"]
    assert readings.value("tokens_per_second") == result["gen_metric"] / seconds
    assert readings.value("requests_per_second") == result["n"] / seconds
    assert readings.value("tokens_per_step") == result["gen_metric"] / result["steps"]
    assert readings["tokens_per_step"].count == result["steps"]
    for signal in LATENCIES | LENGTHS:
        assert readings[signal].count == result["n"]
    assert readings.value("generation_length_mean") == result["max_tokens"]
    assert readings.value("prompt_length_mean") == result["prompt_metric"] / result["n"]
    if result["server"] == "nospec":
        return
    drafts, drafted, accepted = (result[k] for k in ("drafts", "draft_tokens", "accepted"))
    assert readings.value("drafts") == drafts
    assert readings.value("draft_tokens") == drafted
    if not drafts:
        return
    assert readings["acceptance_rate"].count == drafts
    assert readings.value("acceptance_rate") == accepted / drafted
    assert round(accepted / drafted, 4) == result["accept_rate"]
    assert readings.value("mean_acceptance_length") == 1 + accepted / drafts
    assert round(1 + accepted / drafts, _digits(result["mean_len"])) == result["mean_len"]
    at = [readings.value(position_signal(i)) for i in range(DEPTH)]
    assert all(rate is not None for rate in at)
    assert math.fsum(rate or 0.0 for rate in at) == pytest.approx(accepted / drafts), (
        "the positions add up to what was accepted"
    )
    assert at == sorted(at, key=lambda rate: -(rate or 0.0)), "a later one needs the earlier ones"


def _digits(value: float) -> int:
    return len(str(value).partition(".")[2])


# --- the pages, read by the official parser


@dataclass
class Witness:
    """Sums of a page by series name; buckets and positions apart."""

    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    buckets: dict[str, dict[float, float]] = field(default_factory=lambda: defaultdict(dict))
    positions: dict[int, float] = field(default_factory=dict)


@cache
def witness(page: bytes) -> Witness:
    found = Witness()
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            name = sample.name.removeprefix("vllm:")
            if name == "http_requests_total" and sample.labels["method"] == "POST":
                found.sums["calls"] += sample.value
                found.sums["calls refused"] += sample.value * (sample.labels["status"] > "4")
            if name == sample.name:
                continue
            if name.endswith("_bucket"):
                found.buckets[name.removesuffix("_bucket")][float(sample.labels["le"])] = (
                    sample.value
                )
            elif "per_pos" in name:
                if name.endswith("_total"):
                    found.positions[int(sample.labels["position"])] = sample.value
            else:
                found.sums[name] += sample.value
    return found


def agree(readings: Readings, pages: Sequence[tuple[float, bytes]]) -> None:
    """Every known reading equals what the pages say; no expected one is missing."""
    want = expected(pages)
    for name, reading in readings.items():
        if reading.value is None:
            continue
        assert name in want, f"{name} has a value that the pages do not have"
        assert reading.value == pytest.approx(want[name], rel=1e-12), name
    if b'engine="' not in pages[-1][1]:
        return  # the V0 engine counts wrongly, and exports some series later than others
    missing = {name for name in want if not readings[name].known}
    assert not missing, f"the pages have {missing}"


def expected(pages: Sequence[tuple[float, bytes]]) -> dict[str, float]:
    """Every signal that these pages determine."""
    seen = [(at, witness(page)) for at, page in pages]
    (start, first), (end, last) = seen[0], seen[-1]
    seconds = end - start

    def grew(name: str) -> float:
        return last.sums.get(name, 0.0) - first.sums.get(name, 0.0)

    def mean(*names: str) -> float:
        def value(one: Witness) -> float:
            return next((one.sums[name] for name in names if name in one.sums), 0.0)

        return (
            math.fsum(
                (value(a) + value(b)) / 2 * (then - at) for (at, a), (then, b) in pairwise(seen)
            )
            / seconds
        )

    want = {
        "replicas_ready": 1.0,
        "batch_size": mean("num_requests_running"),
        "queue_depth": mean("num_requests_waiting"),
        "kv_cache_usage": mean("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        "preemptions": grew("num_preemptions_total"),
        "requests_per_second": grew("request_success_total") / seconds,
        "generated_tokens": grew("generation_tokens_total"),
        "tokens_per_second": grew("generation_tokens_total") / seconds,
    }
    if want["batch_size"] > 0:
        want[PER_REQUEST] = want["tokens_per_second"] / want["batch_size"]
    if (calls := grew("calls")) > 0:
        want["error_rate"] = grew("calls refused") / calls
    if (steps := grew("iteration_tokens_total_count")) > 0:
        want["tokens_per_step"] = grew("generation_tokens_total") / steps
    if (queries := grew("prefix_cache_queries_total")) > 0:
        want["prefix_cache_hit_rate"] = grew("prefix_cache_hits_total") / queries
    want |= _speculation(first, last)
    for prefix, family in {
        "tpot": "request_time_per_output_token_seconds",
        "ttft": "time_to_first_token_seconds",
        "e2e": "e2e_request_latency_seconds",
        "queue_time": "request_queue_time_seconds",
        "prompt_length": "request_prompt_tokens",
        "generation_length": "request_generation_tokens",
    }.items():
        if (count := grew(f"{family}_count")) > 0:
            want[f"{prefix}_mean"] = grew(f"{family}_sum") / count
            if "length" not in prefix:
                old = first.buckets.get(family, {})
                grown = {le: n - old.get(le, 0.0) for le, n in last.buckets[family].items()}
                want |= {f"{prefix}_p{q}": _quantile(grown, q / 100) for q in PERCENTILES}
    requests = grew("request_generation_tokens_count")
    after_first = grew("request_generation_tokens_sum") - requests
    if "tpot_mean" not in want and requests > 0 and after_first > 0:
        want["tpot_mean"] = grew("request_decode_time_seconds_sum") / after_first
    return want


def _speculation(first: Witness, last: Witness) -> dict[str, float]:
    if "spec_decode_efficiency" in last.sums:
        rate = last.sums["spec_decode_draft_acceptance_rate"]
        return {} if math.isnan(rate) else {"acceptance_rate": rate}
    if "spec_decode_num_drafts_total" not in last.sums:
        return {}
    drafts, drafted, accepted = (
        last.sums[name] - first.sums.get(name, 0.0)
        for name in (
            "spec_decode_num_drafts_total",
            "spec_decode_num_draft_tokens_total",
            "spec_decode_num_accepted_tokens_total",
        )
    )
    want = {"drafts": drafts, "draft_tokens": drafted}
    if drafts > 0:
        want["acceptance_rate"] = accepted / drafted
        want["mean_acceptance_length"] = 1 + accepted / drafts
        for position, total in last.positions.items():
            grown = total - first.positions.get(position, 0.0)
            want[position_signal(position)] = grown / drafts
    return want


def _quantile(grown: Mapping[float, float], q: float) -> float:
    """`histogram_quantile` as Prometheus documents it."""
    bounds = sorted(grown)
    rank = q * grown[math.inf]
    place = next(i for i, bound in enumerate(bounds) if grown[bound] >= rank)
    if bounds[place] == math.inf:
        return bounds[-2]
    low = bounds[place - 1] if place else 0.0
    below = grown[bounds[place - 1]] if place else 0.0
    return low + (bounds[place] - low) * (rank - below) / (grown[bounds[place]] - below)
