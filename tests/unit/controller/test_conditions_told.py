"""What `TargetReady` says: what is wrong first, then what goes on, then how settings travel."""

from dataclasses import replace

import pytest

from specpilot.controller.status import conditions
from specpilot.domain.targets import Problem, TargetProblem, TargetState
from tests.unit.domain.builders import OLD, policy, replica, state

AT_REST = replace(state(OLD, replica("a", OLD)), channel="Args: asked for")
PROBLEM = Problem(reason=TargetProblem.NOT_WIRED, message="add this")


@pytest.mark.parametrize(
    ("seen", "reason", "message"),
    [
        (AT_REST, "Found", "Args: asked for"),
        (replace(AT_REST, rolling="2 of 3"), "Found", "2 of 3"),
        (replace(AT_REST, problem=PROBLEM, rolling="2 of 3"), "NotWired", "add this"),
    ],
)
def test_target_ready(seen: TargetState, reason: str, message: str) -> None:
    told = next(c for c in conditions(policy(), seen, None, None, None) if c.type == "TargetReady")
    assert (told.reason, told.message) == (reason, message)
    assert told.status is (seen.problem is None)
