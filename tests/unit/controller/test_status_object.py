"""The status of a policy as an object: conditions as Kubernetes means them."""

from datetime import UTC, datetime, timedelta

from specpilot.controller.registry import Condition
from specpilot.controller.status_object import condition_object

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
READY = Condition(type="Ready", status=True, reason="Found", message="all well")


def test_a_condition_says_when_it_came_to_be_so() -> None:
    first = condition_object(READY, None, generation=3, now=NOW)
    assert first == {
        "type": "Ready",
        "status": "True",
        "reason": "Found",
        "message": "all well",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-11-29T12:00:00Z",
    }
    later = NOW + timedelta(hours=1)
    other = Condition(type="Ready", status=True, reason="Other")
    same = condition_object(other, first, generation=4, now=later)
    assert same["lastTransitionTime"] == first["lastTransitionTime"]
    assert (same["reason"], same["observedGeneration"]) == ("Other", 4)
    for status, text in ((False, "False"), (None, "Unknown")):
        turned = Condition(type="Ready", status=status, reason="Gone")
        changed = condition_object(turned, first, generation=4, now=later)
        assert changed["status"] == text
        assert changed["lastTransitionTime"] == "2026-11-29T13:00:00Z"
