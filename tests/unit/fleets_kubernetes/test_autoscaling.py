"""Is an autoscaler at work? HPAs of the cluster, and what becomes of it without permission."""

from typing import Any

import pytest

from specpilot.fleets.kubernetes.autoscaling import Autoscalers, scaling
from tests.unit.fleets_kubernetes.fakes import Reply, Seen, serve


def hpa(current: int | None, desired: int | None, *, target: str = "chat") -> dict[str, Any]:
    status = {"currentReplicas": current, "desiredReplicas": desired}
    return {
        "metadata": {"name": "keda-hpa-chat", "namespace": "serving"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": target}},
        "status": {key: value for key, value in status.items() if value is not None},
    }


@pytest.mark.parametrize(
    ("found", "want", "reason"),
    [
        (hpa(2, 5), True, "it wants more"),
        (hpa(5, 2), True, "it wants fewer"),
        (hpa(3, 3), False, "it has what it wants"),
        (hpa(None, 3), False, "it has not looked yet"),
        (hpa(3, 0), False, "it knows no metric"),
        (hpa(2, 5, target="other"), False, "another workload's"),
    ],
)
def test_scaling(found: dict[str, Any], want: bool, reason: str) -> None:
    told = scaling([found], kind="Deployment", name="chat")
    assert bool(told) is want, reason
    assert not want or "keda-hpa-chat" in told


def test_one_list_serves_all_for_a_while() -> None:
    asked, now = [], [0.0]

    def answer(seen: Seen, reply: Reply) -> None:
        asked.append(seen.path)
        reply.json({"metadata": {}, "items": [hpa(2, 5)]})

    with serve(answer) as server:
        found = Autoscalers(server.api(), clock=lambda: now[0])
        assert "from 2 to 5" in found.scaling("serving", "chat", kind="Deployment")
        assert not found.scaling("other", "chat", kind="Deployment")
        assert asked == ["/apis/autoscaling/v2/horizontalpodautoscalers"]
        now[0] = 16.0
        found.scaling("serving", "chat", kind="Deployment")
        assert len(asked) == 2


def test_without_permission_for_all_it_is_the_namespace_and_without_any_nobody_is_held() -> None:
    def answer(seen: Seen, reply: Reply) -> None:
        if "/namespaces/serving/" in seen.path:
            reply.json({"metadata": {}, "items": [hpa(2, 5)]})
        else:
            reply.failure(403, "Forbidden", "no")

    with serve(answer) as server:
        found = Autoscalers(server.api(), clock=lambda: 0.0)
        assert found.scaling("serving", "chat", kind="Deployment")
        assert not found.scaling("other", "chat", kind="Deployment")


def test_an_api_server_that_fails_leaves_it_unknown() -> None:
    with serve(lambda _, reply: reply.failure(500, "", "broken")) as server:
        found = Autoscalers(server.api(), clock=lambda: 0.0)
        assert "not known" in found.scaling("serving", "chat", kind="Deployment")
