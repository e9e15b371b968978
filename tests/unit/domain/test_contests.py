"""Our value undone again and again: counted, stopped, and gone on with after an edit."""

from dataclasses import replace
from datetime import timedelta

import pytest

from specpilot.domain import contests
from specpilot.domain.changes import ChangeReason, FlagChange, Phase
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Limits
from specpilot.domain.settings import Declared
from tests.unit.domain.builders import NEW, OLD, at, change, policy

FOREIGN = Declared(setting="unrecognised", config='{"method":"suffix"}')
LIMITS = Limits(contests=3, contest_window=timedelta(hours=1))


def ended(phase: Phase, undo: ChangeReason | None = None) -> FlagChange:
    return change(phase, undo_reason=undo, ended_at=at(0))


@pytest.mark.parametrize(
    ("done", "left", "undone", "reason"),
    [
        (ended(Phase.SUCCEEDED), "c1", 0, "what was rolled out is ours to watch"),
        (ended(Phase.ROLLED_BACK, ChangeReason.PROBE_LOST), "old", 0, "so is what was put back"),
        (ended(Phase.ABORTED, ChangeReason.CONTESTED), "", 1, "undone in mid-flip"),
        (ended(Phase.ABORTED, ChangeReason.TARGET_GONE), "", 0, "nothing is left of it"),
        (ended(Phase.REJECTED), "before", 0, "it never touched the workload"),
        (ended(Phase.ADVISED), "before", 0, "nor did advice"),
    ],
)
def test_what_a_change_leaves(done: FlagChange, left: str, undone: int, reason: str) -> None:
    memory = contests.after(done, PolicyMemory(left="before"))
    assert (memory.left, len(memory.undone)) == (left, undone), reason


def test_what_is_replaced_at_rest_is_counted_once() -> None:
    memory = contests.after(ended(Phase.SUCCEEDED), PolicyMemory())
    assert contests.noticed(memory, NEW, now=at(60)) == memory
    seen = contests.noticed(memory, FOREIGN, now=at(60))
    assert seen.undone == (at(60),)
    assert contests.noticed(seen, FOREIGN, now=at(75)) == seen


def test_what_was_never_ours_cannot_be_undone() -> None:
    assert contests.noticed(PolicyMemory(), FOREIGN, now=at(0)) == PolicyMemory()
    assert contests.noticed(PolicyMemory(), OLD, now=at(0)) == PolicyMemory()


def test_too_often_stops_until_the_policy_is_edited() -> None:
    steered = policy(limits=LIMITS, generation=4)
    twice = PolicyMemory(undone=(at(0), at(60)))
    assert contests.weighed(twice, steered, now=at(120)).contested is None
    often = replace(twice, undone=(*twice.undone, at(120)))
    stopped = contests.weighed(often, steered, now=at(120))
    assert "3 time(s)" in contests.words(stopped, steered)
    assert "edit the policy" in contests.words(stopped, steered)
    later = contests.weighed(stopped, steered, now=at(30 * 86_400))
    assert contests.words(later, steered), "not by time alone"
    edited = replace(steered, generation=5)
    again = contests.weighed(later, edited, now=at(31 * 86_400))
    assert not contests.words(again, edited)
    assert again.undone == ()


def test_seldom_enough_is_no_contest() -> None:
    seldom = PolicyMemory(undone=(at(0), at(4000), at(8000)))
    assert contests.weighed(seldom, policy(limits=LIMITS), now=at(8000)).contested is None
