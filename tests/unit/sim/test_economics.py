"""When speculation pays in the simulator: at low load with good drafts, and not otherwise."""

from __future__ import annotations

import pytest

from specpilot.sim.costs import PROFILES, cost_model
from specpilot.sim.drafts import expected_length
from specpilot.sim.engine import Engine
from specpilot.sim.load.records import Objective, summarise
from specpilot.sim.load.workload import Phase, arrivals
from specpilot.sim.virtual import VirtualFleet
from tests.unit.sim.support import EAGLE3, NGRAM, closed_loop, config_of


def gain(spec: str, *, batch: int, accept: float) -> float:
    """Return the throughput with speculation over that without."""
    on = closed_loop(config_of(spec=spec), concurrency=batch, accept=accept)
    return on / closed_loop(config_of(), concurrency=batch, accept=accept)


@pytest.mark.parametrize(
    ("spec", "batch", "accept", "low", "high", "reason"),
    [
        (NGRAM, 1, 0.8, 2.0, 3.6, "quiet with good drafts"),
        (NGRAM, 4, 0.8, 1.5, 2.6, "still quiet"),
        (EAGLE3, 4, 0.8, 1.5, 2.6, "a head does as well"),
        (NGRAM, 8, 0.85, 1.1, 1.6, "mid load with good drafts"),
        (NGRAM, 8, 0.3, 0.7, 0.95, "mid load with bad drafts"),
        (EAGLE3, 8, 0.3, 0.5, 0.9, "a head has no match to wait for"),
        (NGRAM, 32, 0.8, 0.5, 0.9, "busy, though the drafts are good"),
        (EAGLE3, 32, 0.8, 0.5, 0.9, "busy with a head"),
        (EAGLE3, 32, 0.2, 0.2, 0.6, "busy with bad drafts"),
    ],
)
def test_the_demo_profile_flips(
    *, spec: str, batch: int, accept: float, low: float, high: float, reason: str
) -> None:
    assert low < gain(spec, batch=batch, accept=accept) < high, reason


@pytest.mark.parametrize(
    ("batch", "depth", "published"),
    [(1, 3, 1.31), (16, 3, 1.40), (64, 3, 1.60), (128, 3, 1.74), (256, 3, 1.88), (64, 1, 1.21),
     (64, 5, 1.98), (64, 7, 2.37)],
)  # fmt: skip
def test_the_h100_profile_has_the_break_even_lengths_of_its_source(
    batch: int, depth: int, published: float
) -> None:
    """Cost with EAGLE over cost without, Llama-3.1-8B on one H100, 1000 tokens of context each."""
    model = cost_model("h100-8b")
    kv = 1000 * batch
    off = model.step_seconds(tokens=batch, kv=kv)
    on = model.step_seconds(
        tokens=batch * (depth + 1),
        kv=kv,
        drafting=model.drafting("eagle"),
        depth=depth,
        requests=batch,
    )
    assert on / off == pytest.approx(published, rel=0.03)


def test_the_h100_profile_has_the_knee_of_its_source() -> None:
    assert cost_model("h100-8b").knee == pytest.approx(280, abs=1)


def test_the_cliff_beyond_the_largest_captured_graph() -> None:
    """DeepSeek-V4-Flash on four B300: 20.6 ms at 1024 tokens, 104 ms just above."""
    model = cost_model("b300-v4-flash")
    assert model.verify_seconds(tokens=1, kv=0) == pytest.approx(5.1e-3, rel=0.15)
    assert model.verify_seconds(tokens=1024, kv=0) == pytest.approx(20.6e-3, rel=0.05)
    assert model.verify_seconds(tokens=1025, kv=0) == pytest.approx(104e-3, rel=0.05)


@pytest.mark.parametrize("name", PROFILES)
def test_a_step_never_gets_shorter_with_more_work(name: str) -> None:
    model = PROFILES[name]
    drafting = model.drafting("eagle3")

    def seconds(batch: int, depth: int, kv: int) -> float:
        return model.step_seconds(
            tokens=batch * (1 + depth), kv=kv, drafting=drafting, depth=depth, requests=batch
        )

    for batch in (1, 4, 16, 64):
        assert seconds(batch, 3, 1000) <= seconds(batch + 1, 3, 1000)
        assert seconds(batch, 3, 1000) <= seconds(batch, 4, 1000)
        assert seconds(batch, 3, 1000) <= seconds(batch, 3, 100_000)


def test_constants_can_be_set_and_are_checked() -> None:
    assert cost_model("demo", constants={"weights": 0.5}).weights == 0.5
    with pytest.raises(ValueError, match="wieghts"):
        cost_model("demo", constants={"wieghts": 0.5})
    with pytest.raises(ValueError, match="tpu"):
        cost_model("tpu")


def test_the_expected_length_is_the_sum_of_the_positions() -> None:
    assert expected_length(0.8, depth=4) == pytest.approx(1 + 0.8 + 0.64 + 0.512 + 0.4096)
    assert expected_length(1.0, depth=4) == 5


def test_a_drafter_takes_cache_from_the_model() -> None:
    sizes = [Engine(config_of(spec=spec)).limits.num_blocks for spec in (None, EAGLE3)]
    assert sizes[1] < sizes[0]


def goodput(*, rate: float, accept: float, within: float) -> list[float]:
    """Serve the same arrivals without and with speculation, in virtual time."""
    schedule = arrivals([Phase(seconds=240, rate=rate, kind=f"accept:{accept}")], seed=7)
    result = []
    for spec in (None, NGRAM):
        fleet = VirtualFleet()
        for name in ("a", "b"):
            fleet.add(name, Engine(config_of("--max-num-seqs", "64", spec=spec)))
        fleet.submit(schedule)
        fleet.finish()
        assert len(fleet.records) == len(schedule)
        objective = Objective(e2e=within)
        result.append(summarise(fleet.records, objective=objective, span=240).goodput)
    return result


def test_open_load_quiet_speculation_meets_an_objective_that_its_absence_misses() -> None:
    off, on = goodput(rate=2, accept=0.8, within=2.0)
    assert on > 5 * off


def test_open_load_busy_speculation_collapses() -> None:
    off, on = goodput(rate=6.5, accept=0.6, within=4.0)
    assert on < 0.5 * off
