"""The status of a policy as an object: conditions as Kubernetes means them."""

from datetime import UTC, datetime, timedelta

from specpilot.controller.registry import Condition, PolicyStatus
from specpilot.controller.status import replica_counts
from specpilot.controller.status_object import condition_object, status_object
from specpilot.domain.policy import PolicyRef
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Replica, TargetRef, TargetState

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


def test_replicas_are_counted_by_what_they_themselves_run() -> None:
    off, on = Declared(), Declared(setting="ngram", config="{}")
    state = TargetState(
        ref=TargetRef(kind="Deployment", namespace="serving", name="chat"),
        declared=on,
        replicas=(
            Replica(id="a", declared=off, ready=True),
            Replica(id="b", declared=on, ready=True),
            Replica(id="c", declared=on),
            Replica(id="d", declared=off, ready=True, terminating=True),
        ),
    )
    status = PolicyStatus(
        policy=PolicyRef(namespace="serving", name="chat", uid="u"),
        generation=1,
        mode="Auto",
        replicas=replica_counts(state),
    )
    assert status_object(status, previous={}, now=NOW)["replicas"] == [
        {"setting": "ngram", "total": 2, "ready": 1},
        {"setting": "off", "total": 1, "ready": 1},
    ]
