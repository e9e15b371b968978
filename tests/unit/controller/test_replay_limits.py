"""A batch limit that rules keep: the past is judged as the live loop judges the present."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from specpilot.controller.replay_summary import Replayed, summed_up
from specpilot.controller.replaying import Moment, Replay
from specpilot.domain.context import TargetFacts
from specpilot.domain.engine_run import EngineRun, Generation, ModelRunner
from specpilot.domain.rules import RuleSetVersion
from specpilot.domain.settings import OFF, Declared
from specpilot.engines import render_for
from tests.unit.controller.model import Modelled
from tests.unit.controller.world import RULES
from tests.unit.domain.builders import NGRAM, at, readings

LIMITED = replace(NGRAM, disable_above_batch_size=4)
GUARD = "disableAboveBatchSize:ngram"
KEPT = EngineRun(version="0.24.0", runner=ModelRunner.DEFAULT, data_parallel=1)

BUSY, NOT_CALM, CALM = 15.0, 3.5, 3.0
"""RULES say nothing of the first, and ask for ngram at both others; the limit is 4."""


def series(batches: list[tuple[float, float]]) -> list[tuple[datetime, float]]:
    """A batch size every 5 s: each for so many seconds."""
    found, second = [], 0.0
    for batch, seconds in batches:
        for _ in range(int(seconds / 5)):
            second += 5
            found.append((at(second), batch))
    return found


def replayed(world: Modelled, past: list[tuple[datetime, float]], run: EngineRun) -> Replayed:
    version = RuleSetVersion(
        namespace="local", version=1, rule_set=RULES, content_hash=RULES.content_hash(),
        author="", source="test",
    )  # fmt: skip
    assert world.policy is not None
    one = Replay(version, world.policy, names_only=False, run=run)
    moments = [Moment(at=when, readings=readings(batch_size=batch)) for when, batch in past]
    return summed_up(one.steps(moments, one.begin("ngram")))


@pytest.mark.parametrize(
    ("run", "flips", "reason"),
    [
        (KEPT, [], "the engine keeps it by a schedule"),
        (replace(KEPT, data_parallel=2), ["off", "ngram"], "it ignores one with two ranks"),
        (replace(KEPT, data_parallel=None), ["off", "ngram"], "it may have two ranks"),
        (EngineRun(version="0.9.2", generation=Generation.V0), [], "V0 reads the key"),
        (EngineRun(version="0.9.2", generation=Generation.V1), ["off", "ngram"], "V1 does not"),
        (EngineRun(version="0.17.0"), ["off", "ngram"], "neither key nor schedule"),
    ],
)
def test_a_replay_flips_as_the_loop_does(
    run: EngineRun, flips: list[str], reason: str, tmp_path: Path
) -> None:
    world = Modelled(tmp_path, probe=None, settings={"off": OFF, "ngram": LIMITED})
    start = Declared(setting="ngram", config=render_for(LIMITED, run).config, change_id="")
    world.model.run, world.model.declared = run, start
    for pod in world.model.pods:
        pod.replica = replace(pod.replica, declared=start)
    past = series([(BUSY, 500), (NOT_CALM, 300), (CALM, 400)])
    held = set()
    for _, batch in past:
        world.numbers.batch = batch
        world.run(5)
        if not any(not change.phase.ended for change in world.changes()):
            held |= {c.reason for c in world.status().conditions if c.type == "Held" and c.status}
    live = world.changes()
    found = replayed(world, past, run)
    assert [change.wanted.setting for change in live] == flips, reason
    assert [flip.setting for flip in found.flips] == flips, reason
    assert [flip.rule for flip in found.flips] == [change.rule.rule for change in live]
    if flips:
        assert found.flips[0].at == live[0].created_at
        assert found.flips[0].rule == GUARD
        assert found.flips[1].at == live[1].created_at, "both wait for the batch to be calm"
        assert "BatchLimit" in held
        assert "BatchLimit" in {h.gate.reason for h in found.held_back}


def test_the_engine_of_a_moment_counts_where_it_is_recorded(tmp_path: Path) -> None:
    world = Modelled(tmp_path, probe=None, settings={"off": OFF, "ngram": LIMITED})
    version = RuleSetVersion(
        namespace="local", version=1, rule_set=RULES, content_hash=RULES.content_hash(),
        author="", source="test",
    )  # fmt: skip
    assert world.policy is not None
    one = Replay(version, world.policy, names_only=False, run=KEPT)
    moments = [
        Moment(
            at=when,
            readings=readings(batch_size=batch),
            target=TargetFacts(engine="0.24.0" if number < 60 else "0.17.0"),
        )
        for number, (when, batch) in enumerate(series([(BUSY, 900)]))
    ]
    (flip,) = summed_up(one.steps(moments, one.begin("ngram"))).flips
    assert (flip.at, flip.rule) == (at(305 + 180), GUARD), "three windows after the image changed"
