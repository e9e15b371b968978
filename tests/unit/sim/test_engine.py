"""The engine's identities: what must hold whatever the requests are."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.sim.engine import Engine
from specpilot.sim.faults import Faults, Hang, change
from specpilot.sim.requests import Request
from tests.unit.sim.support import EAGLE3, NGRAM, add, config_of, finish, run

SCHEDULED = json.dumps(
    {
        "method": "eagle3",
        "model": "head",
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 64, 0]],
    }
)
LIMITED = json.dumps({"method": "ngram", "num_speculative_tokens": 4, "disable_by_batch_size": 3})


@dataclass(frozen=True)
class Work:
    """A request of a random workload."""

    prompt_tokens: int
    max_tokens: int
    accept: float
    delay: float


WORK = st.lists(
    st.builds(
        Work,
        prompt_tokens=st.integers(1, 300),
        max_tokens=st.integers(1, 60),
        accept=st.floats(0, 1).map(lambda accept: round(accept, 2)),
        delay=st.floats(0, 2),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=80)
@given(
    work=WORK,
    spec=st.sampled_from([None, NGRAM, EAGLE3, SCHEDULED]),
    v0=st.booleans(),
    seqs=st.integers(1, 12),
    budget=st.integers(1, 256),
    blocks=st.integers(1, 60),
)
def test_every_request_gets_its_tokens(
    *, work: list[Work], spec: str | None, v0: bool, seqs: int, budget: int, blocks: int
) -> None:
    """Small batches, budgets and caches: chunks, queues, preemptions, and still no token lost."""
    config = config_of(
        "--max-num-seqs", f"{seqs}", "--max-num-batched-tokens", f"{budget}",
        "--num-gpu-blocks-override", f"{blocks}", spec=spec,
        version="0.9.2" if v0 and spec in (None, NGRAM) else "0.32.0", v0=v0,
    )  # fmt: skip
    engine = Engine(config)
    requests: list[Request] = []
    now = 0.0
    for each in work:
        for _, _ in run(engine, now=now, steps=3):
            pass
        now += each.delay
        requests.append(
            add(
                engine,
                f"[accept={each.accept}]",
                prompt_tokens=each.prompt_tokens,
                max_tokens=each.max_tokens,
                now=now,
            )
        )
    finish(engine, now=now)

    stats = engine.stats
    assert [request.generated for request in requests] == [each.max_tokens for each in work]
    assert all(request.finish_reason == "length" for request in requests)
    assert stats.finished["length"] == len(work)
    assert stats.prompt_tokens == sum(each.prompt_tokens for each in work)
    if not (v0 and spec is not None):
        assert stats.generation_tokens == sum(each.max_tokens for each in work)
    assert stats.iteration_tokens.total == stats.prompt_tokens + stats.generation_tokens
    assert stats.iteration_tokens.count == stats.steps
    assert stats.request_preemptions.total == stats.preemptions
    for histogram in (stats.ttft, stats.e2e, stats.queue, stats.request_tpot):
        assert histogram.count == len(work)
    spec_counters = stats.spec
    assert sum(spec_counters.per_position) == spec_counters.accepted <= spec_counters.draft_tokens
    assert spec_counters.per_position == sorted(spec_counters.per_position, reverse=True)
    assert spec_counters.drafts <= spec_counters.draft_tokens or spec_counters.drafts == 0
    assert (stats.running, stats.waiting, stats.kv_usage) == (0, 0, 0.0)
    assert engine.outstanding == 0


@settings(max_examples=50)
@given(work=WORK, victims=st.sets(st.integers(0, 24)), steps=st.integers(0, 40))
def test_aborting_frees_everything_and_loses_nobody_else(
    work: list[Work], victims: set[int], steps: int
) -> None:
    engine = Engine(config_of("--max-num-seqs", "4", "--num-gpu-blocks-override", "40", spec=NGRAM))
    requests = [add(engine, f"[accept={each.accept}]", max_tokens=each.max_tokens) for each in work]
    now = 0.0
    for now, _ in run(engine, steps=steps):  # noqa: B007 -- the last time goes on
        pass
    seconds = engine.begin_step(now)
    done = {id(request) for request in requests if request.finished is not None}
    for index in victims:
        if index < len(requests):
            engine.abort(requests[index])
    if seconds is not None:
        now += seconds
        engine.finish_step(now)
    finish(engine, now=now)
    for index, request in enumerate(requests):
        if index in victims and id(request) not in done:
            assert request.aborted
        else:
            assert request.generated == request.max_tokens
    assert engine.stats.kv_usage == 0
    assert engine.stats.finished["abort"] + engine.stats.finished["length"] == len(requests)


def test_equal_seeds_give_equal_runs() -> None:
    def trace(seed: int) -> list[tuple[float, int]]:
        engine = Engine(config_of("--sim-seed", f"{seed}", spec=NGRAM))
        for _ in range(5):
            add(engine)
        return [(now, sum(o.tokens for o in outputs)) for now, outputs in run(engine)]

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


class TestTimes:
    def test_a_lone_request_without_speculation(self) -> None:
        """Prefill of 48 tokens, then 63 steps at the floor of the demo profile."""
        engine = Engine(config_of())
        request = add(engine)
        end = finish(engine)
        prefill = 0.001 + 48 * 1.875e-3
        assert request.first_token == pytest.approx(prefill)
        assert end == pytest.approx(prefill + 63 * 0.031, rel=1e-3)
        assert engine.stats.request_tpot.total == pytest.approx(0.031, rel=1e-3)

    def test_queue_time_runs_until_scheduled(self) -> None:
        engine = Engine(config_of("--max-num-seqs", "1"))
        first, second = add(engine), add(engine)
        finish(engine)
        assert first.scheduled == 0.0
        assert second.scheduled == first.finished
        assert engine.stats.queue.total == second.scheduled

    def test_one_latency_sample_per_output_however_many_tokens(self) -> None:
        engine = Engine(config_of(spec=EAGLE3))
        add(engine, "[accept=1]", max_tokens=41)
        finish(engine)
        assert engine.stats.inter_token.count == 10, "4 tokens an output after the first"
        per_output = engine.stats.inter_token.total / engine.stats.inter_token.count
        assert engine.stats.request_tpot.total < per_output / 3

    def test_a_single_token_has_a_tpot_of_zero(self) -> None:
        engine = Engine(config_of())
        add(engine, max_tokens=1)
        finish(engine)
        assert (engine.stats.request_tpot.count, engine.stats.request_tpot.total) == (1, 0.0)

    def test_gauges_move_once_a_step(self) -> None:
        engine = Engine(config_of())
        for _ in range(5):
            add(engine)
        assert engine.stats.running == 0, "nothing has stepped yet"
        seconds = engine.begin_step(0.0)
        assert seconds is not None
        assert engine.stats.running == 0, "the step is under way"
        engine.finish_step(seconds)
        assert engine.stats.running == 5
        assert engine.stats.kv_usage > 0


class TestSpeculation:
    def test_a_drafter_drafts_its_depth_a_lookup_only_on_a_match(self) -> None:
        head, lookup = Engine(config_of(spec=EAGLE3)), Engine(config_of(spec=NGRAM))
        for engine in (head, lookup):
            add(engine, "[accept=0.5][match=0.3]", max_tokens=400)
            finish(engine)
        decodes = head.stats.inter_token.count
        assert head.stats.spec.drafts == decodes
        assert head.stats.spec.draft_tokens == 3 * decodes
        assert lookup.stats.spec.drafts == pytest.approx(
            0.3 * lookup.stats.inter_token.count, rel=0.3
        )

    @pytest.mark.parametrize(
        ("prompt", "drafting", "accepted"),
        [
            (" ".join(["ba be bi bo bu by"] * 8), (0.5, 0.8), (0.45, 0.75)),
            (" ".join(f"w{number}" for number in range(48)), (0.02, 0.25), (0.0, 0.1)),
        ],
        ids=["repetitive", "random"],
    )
    def test_unmarked_prompts_draft_as_they_did_on_a_real_server(
        self, prompt: str, drafting: tuple[float, float], accepted: tuple[float, float]
    ) -> None:
        """0.32.0, n-gram: 0.65 of steps and 0.6 of tokens when repetitive, 0.08 and 0 if random."""
        engine = Engine(config_of(spec=NGRAM))
        for _ in range(20):
            add(engine, prompt)
        finish(engine)
        stats = engine.stats
        assert drafting[0] < stats.spec.drafts / stats.inter_token.count < drafting[1]
        assert accepted[0] <= stats.spec.accepted / stats.spec.draft_tokens < accepted[1]

    def test_the_mark_is_the_acceptance_of_each_position(self) -> None:
        engine = Engine(config_of(spec=EAGLE3))
        for _ in range(20):
            add(engine, "[accept=0.9] [accept.eagle3=0.6] ...", max_tokens=200)
        finish(engine)
        spec = engine.stats.spec
        rates = [count / spec.drafts for count in spec.per_position]
        assert rates == pytest.approx([0.6, 0.36, 0.216], abs=0.05)

    def test_a_schedule_changes_the_depth_with_the_batch_and_back(self) -> None:
        engine = Engine(config_of("--max-num-seqs", "64", spec=SCHEDULED))
        long = [add(engine, max_tokens=600) for _ in range(4)]
        short = [add(engine, max_tokens=4) for _ in range(4)]
        list(run(engine, steps=3))
        assert engine.stats.spec.drafts == 0, "eight requests: depth 0"
        finish(engine, now=1.0)
        assert engine.stats.spec.draft_tokens == 3 * engine.stats.spec.drafts > 0, "then four"
        assert all(request.finished for request in (*long, *short))

    def test_depth_zero_is_not_off(self) -> None:
        """A configured drafter costs time even if it drafts nothing (vLLM #49548)."""
        times = []
        for spec in (None, SCHEDULED):
            engine = Engine(config_of("--max-num-seqs", "64", spec=spec))
            for _ in range(16):
                add(engine, max_tokens=8)
            times.append(next(now for now, _ in run(engine)))
        off, zero = times
        assert 1.06 < zero / off < 1.22

    def test_v0_stops_drafting_for_good_at_the_limit(self) -> None:
        engine = Engine(config_of(version="0.9.2", spec=LIMITED, v0=True))
        long = [add(engine, "[accept=0.8][match=1]", max_tokens=100) for _ in range(2)]
        list(run(engine, steps=4))
        before = engine.stats.spec.drafts
        assert before > 0, "two running: below the limit of three"
        add(engine, max_tokens=4, now=1.0)
        finish(engine, now=1.0)
        assert engine.stats.spec.drafts <= before + 2, "only what was drafted already"
        assert all(request.drafts_off for request in long)
        add(engine, "[accept=0.8][match=1]", now=9.0)
        finish(engine, now=9.0)
        assert engine.stats.spec.drafts > before + 2, "new requests draft again"


class TestFaults:
    def test_slow(self) -> None:
        plain, slow = Engine(config_of()), Engine(config_of("--sim-slow", "2"))
        for engine in (plain, slow):
            add(engine)
        assert finish(slow) == pytest.approx(2 * finish(plain))

    def test_a_small_cache_makes_requests_wait_and_give_way(self) -> None:
        engine = Engine(config_of("--sim-kv-fraction", "0.002"))
        for _ in range(8):
            add(engine, prompt_tokens=100, max_tokens=200)
        waited = max(engine.stats.waiting for _ in run(engine))
        assert waited > 0
        assert engine.stats.preemptions > 0
        assert engine.stats.finished["length"] == 8

    def test_a_broken_drafter(self) -> None:
        engine = Engine(config_of("--sim-acceptance-factor", "0", spec=EAGLE3))
        add(engine)
        finish(engine)
        assert engine.stats.spec.drafts > 0
        assert engine.stats.spec.accepted == 0

    def test_a_hanging_engine_does_not_step(self) -> None:
        engine = Engine(config_of())
        add(engine)
        engine.faults = Faults(hang=Hang.ENGINE)
        assert engine.begin_step(0.0) is None
        engine.faults = Faults()
        assert engine.begin_step(0.0) is not None

    def test_a_step_that_begins_in_the_past_takes_nobody_who_came_later(self) -> None:
        """A late driver makes up for lost time; no request may have waited less than nothing."""
        engine = Engine(config_of())
        early = add(engine, now=1.0)
        late = add(engine, now=1.2)
        assert engine.begin_step(1.1) is not None
        engine.finish_step(1.15)
        assert (early.generated, late.generated) == (1, 0)
        finish(engine, now=1.2)
        assert engine.stats.queue.count == 2
        assert engine.stats.queue.total == pytest.approx(0.1)
        assert engine.begin_step(1.0) is None
        add(engine, now=9.0)
        assert engine.begin_step(8.9) is None
        assert engine.begin_step(9.0) is not None

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"slow": 0}, "slow"),
            ({"slow": "fast"}, "slow"),
            ({"kv_fraction": 2}, "kv_fraction"),
            ({"acceptance_factor": -1}, "acceptance_factor"),
            ({"hang": "maybe"}, "hang"),
            ({"typo": 1}, "typo"),
        ],
    )
    def test_nonsense_is_refused_by_name(self, changes: dict[str, object], says: str) -> None:
        with pytest.raises(ValueError, match=says):
            change(Faults(), to=changes)


def test_steps_cannot_overlap() -> None:
    engine = Engine(config_of())
    add(engine)
    with pytest.raises(RuntimeError):
        engine.finish_step(0.0)
    engine.begin_step(0.0)
    with pytest.raises(RuntimeError):
        engine.begin_step(0.0)
