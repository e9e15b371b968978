"""Custom resources are written whole, and only when that changes something."""

from datetime import UTC, datetime
from typing import Any

import pytest

from specpilot.domain.changes import ChangeReason, FlagChange, Phase
from specpilot.domain.policy import PolicyRef
from specpilot.domain.settings import Declared
from specpilot.domain.situation import Answer, Decision
from specpilot.domain.targets import TargetRef
from specpilot.fleets.kubernetes import (
    FLAG_CHANGES,
    ApiError,
    FlagChangeMirror,
    Resource,
    StatusWriter,
)
from specpilot.fleets.kubernetes.flagchanges import POLICY_UID_LABEL, decision_of
from tests.unit.fleets_kubernetes.fakes import Object, Reply, Seen, serve


def accept(seen: Seen, reply: Reply) -> None:
    reply.json({**(seen.body or {}), "status": {}})


def policy(status: Object | None = None) -> Object:
    return {"metadata": {"namespace": "a", "name": "chat"}, "status": status or {}}


@pytest.mark.parametrize(
    ("known", "wrote", "reason"),
    [
        (policy(), True, "it says nothing yet"),
        (policy({"phase": "Old"}), True, "it says something else"),
        (policy({"phase": "Idle", "more": 1}), True, "it says more"),
        (policy({"phase": "Idle"}), False, "it says so already"),
        (None, False, "it is gone"),
    ],
)
def test_status_is_written_when_it_changes(known: Object | None, wrote: bool, reason: str) -> None:
    with serve(accept) as server:
        writer = StatusWriter(server.api(), known=lambda *_: known)
        assert writer.patch_status("SpeculationPolicy", "a", "chat", {"phase": "Idle"}) is wrote
    assert len(server.requests) == wrote, reason
    for seen in server.requests:
        assert seen.path.endswith("/speculationpolicies/chat/status")
        assert seen.body["status"] == {"phase": "Idle"}


def test_a_policy_deleted_in_between_is_left_alone() -> None:
    with serve(lambda _, reply: reply.failure(404, "NotFound", "")) as server:
        writer = StatusWriter(server.api(), known=lambda *_: policy())
        assert not writer.patch_status("SpeculationPolicy", "a", "chat", {"phase": "Idle"})


def test_a_refused_status_is_an_error() -> None:
    with serve(lambda _, reply: reply.failure(422, "Invalid", "status.phase")) as server:
        writer = StatusWriter(server.api(), known=lambda *_: policy())
        with pytest.raises(ApiError, match=r"status\.phase"):
            writer.patch_status("SpeculationPolicy", "a", "chat", {"phase": "Idle"})


CHANGE = FlagChange(
    id="chat-7",
    policy=PolicyRef(namespace="a", name="chat", uid="p-1"),
    target=TargetRef(kind="Deployment", namespace="a", name="llm"),
    origin=Declared(),
    wanted=Declared(setting="ngram", config="{}", change_id="chat-7"),
    phase=Phase.PENDING,
    reason=ChangeReason.APPROVAL_NEEDED,
    created_at=datetime(2026, 11, 29, tzinfo=UTC),
    phase_since=datetime(2026, 11, 29, tzinfo=UTC),
)


class Cluster:
    """FlagChange objects, as the API server and the caches would have them."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.deleted: list[str] = []

    def __call__(self, seen: Seen, reply: Reply) -> None:
        name = seen.path.split("/flagchanges/")[1].removesuffix("/status")
        if seen.method == "DELETE":
            self.deleted.append(name)
            reply.json({})
            return
        body = {k: v for k, v in seen.body.items() if k in {"metadata", "spec", "status"}}
        part = {"status": body["status"]} if seen.path.endswith("/status") else body
        self.objects[name] = {**self.objects.get(name, {}), **part}
        reply.json(self.objects[name])

    def known(self, resource: Resource, namespace: str, name: str) -> Object | None:
        assert resource == FLAG_CHANGES
        assert namespace == "a"
        return self.objects.get(name)


def test_a_change_is_shown_and_then_left_alone() -> None:
    cluster = Cluster()
    with serve(cluster) as server:
        mirror = FlagChangeMirror(server.api(), known=cluster.known, listed=lambda _: [])
        assert mirror.show(CHANGE, waiting_for="approval")
        assert not mirror.show(CHANGE, waiting_for="approval")
        assert mirror.show(CHANGE, waiting_for="a freeze window ends"), "the status moved on"
    spec_write, status_write, third = server.requests
    assert "decision" not in spec_write.body["spec"]
    assert "decidedBy" not in spec_write.body["spec"]
    assert spec_write.body["metadata"]["labels"] == {POLICY_UID_LABEL: "p-1"}
    [reference] = spec_write.body["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"]) == ("SpeculationPolicy", "p-1")
    assert status_write.path.endswith("/status")
    assert third.path.endswith("/status"), "the spec was not written again"
    assert cluster.objects["chat-7"]["status"]["message"] == "a freeze window ends"


def decided(**spec: Any) -> Object:
    fields = {"f:spec": {"f:decision": {}}}
    managed = [
        {"manager": "kubectl-edit", "fieldsV1": fields},
        {"manager": "specpilot", "fieldsV1": {"f:spec": {"f:policy": {}}}},
    ]
    return {"metadata": {"name": "chat-7", "managedFields": managed}, "spec": spec}


@pytest.mark.parametrize(
    ("obj", "want", "reason"),
    [
        (decided(), None, "nobody has decided"),
        (decided(decision="Perhaps"), None, "no answer that means anything"),
        (
            decided(decision="Approve", decidedBy="alice"),
            Decision(answer=Answer.APPROVE, by="alice"),
            "who says so",
        ),
        (
            decided(decision="Reject"),
            Decision(answer=Answer.REJECT, by="kubectl-edit"),
            "else the manager that wrote it",
        ),
    ],
)
def test_decision(obj: Object, want: Decision | None, reason: str) -> None:
    assert decision_of(obj) == want, reason


def test_only_the_oldest_ended_changes_of_the_policy_go() -> None:
    def shown(number: int, phase: str, uid: str = "p-1") -> Object:
        return {
            "metadata": {
                "namespace": "a",
                "name": f"c-{number}",
                "uid": f"u-{number}",
                "creationTimestamp": f"2026-11-29T00:{number:02}:00Z",
                "labels": {POLICY_UID_LABEL: uid},
            },
            "status": {"phase": phase},
        }

    objs = [
        *(shown(n, "Succeeded") for n in range(14)),
        shown(20, "Canary"),
        shown(21, "Succeeded", uid="another"),
        shown(22, ""),
    ]
    cluster = Cluster()
    with serve(cluster) as server:
        mirror = FlagChangeMirror(
            server.api(), known=cluster.known, listed=lambda _: reversed(objs)
        )
        assert mirror.prune("a", policy_uid="p-1") == 4
    assert cluster.deleted == ["c-0", "c-1", "c-2", "c-3"]
    assert server.requests[0].body["preconditions"] == {"uid": "u-0"}
