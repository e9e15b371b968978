"""When a probe is due, and what it tries."""

from dataclasses import replace
from datetime import timedelta

import pytest

from specpilot.domain.changes import ChangeKind, Phase
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Probe
from specpilot.domain.probing import after, candidate, due_at
from specpilot.domain.settings import OFF, Setting
from tests.unit.domain.builders import NGRAM, at, change, policy

PROBE = Probe(every=timedelta(minutes=45), back_off=2, longest=timedelta(hours=3))
EAGLE = Setting(name="eagle3", method="eagle3", model="m", num_speculative_tokens=3)
P = policy(probe=PROBE, settings={"off": OFF, "eagle3": EAGLE, "ngram": NGRAM})


def off(**fields: object) -> PolicyMemory:
    return PolicyMemory(active="off", active_since=at(0), **fields)  # type: ignore[arg-type]


def test_due_after_the_stated_time_off() -> None:
    assert due_at(P, off()) == at(45 * 60)


def test_backs_off_after_each_probe_lost_up_to_the_longest() -> None:
    waits = [
        (due_at(P, off(probes_lost=n, last_probe_ended=at(0))) or at(0)) - at(0) for n in range(4)
    ]
    assert waits == [timedelta(minutes=m) for m in (45, 90, 180, 180)]


@pytest.mark.parametrize("factor", [2.0, 100.0, 1e300])
def test_a_target_that_stays_off_for_years_goes_on_being_probed(factor: float) -> None:
    steep = replace(P, probe=replace(PROBE, back_off=factor))
    assert due_at(steep, off(probes_lost=100_000, last_probe_ended=at(0))) == at(3 * 3600)


def test_never_while_something_else_runs_or_probes_are_disabled() -> None:
    assert due_at(P, PolicyMemory(active="ngram", active_since=at(0))) is None
    assert due_at(policy(probe=None), off()) is None
    assert candidate(policy(probe=None), off()) is None


def test_tries_the_setting_named_else_the_last_that_ran_else_the_first() -> None:
    named = policy(settings=P.settings, probe=Probe(setting="ngram"))
    assert candidate(named, off(last_speculating="eagle3")) == NGRAM
    assert candidate(P, off(last_speculating="ngram")) == NGRAM
    assert candidate(P, off()) == EAGLE
    assert candidate(policy(settings={"off": OFF}), off()) is None


@pytest.mark.parametrize(
    ("phase", "lost", "reason"),
    [
        (Phase.ROLLED_BACK, 3, "a probe that lost waits longer"),
        (Phase.SUCCEEDED, 0, "one that won starts afresh"),
        (Phase.ABORTED, 2, "one that was cut short says nothing"),
    ],
)
def test_what_is_remembered_of_a_probe(phase: Phase, lost: int, reason: str) -> None:
    ended = change(phase, kind=ChangeKind.PROBE, ended_at=at(9))
    memory = after(ended, off(probes_lost=2))
    assert (memory.probes_lost, memory.last_probe_ended) == (lost, at(9)), reason
