"""Would the scheduler find a place for one more pod?"""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from specpilot.fleets.kubernetes import ApiError
from specpilot.fleets.kubernetes.capacity import Capacity, Room, requests, room_on
from tests.unit.fleets_kubernetes.fakes import Reply, Seen, serve

GPU = "nvidia.com/gpu"


def container(**asked: str) -> dict[str, Any]:
    return {"resources": {"requests": {k.replace("gpu", GPU): v for k, v in asked.items()}}}


def node(name: str = "n1", *, gpus: int = 1, **spec: Any) -> dict[str, Any]:
    labels = spec.pop("labels", {})
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110", GPU: str(gpus)}},
    }


@pytest.mark.parametrize(
    ("spec", "want", "reason"),
    [
        (
            {"containers": [container(gpu="1"), container(cpu="500m")]},
            {GPU: 1, "cpu": "0.5"},
            "sum",
        ),
        (
            {"containers": [{"resources": {"limits": {GPU: "2"}}}]},
            {GPU: 2},
            "a limit without a request is one",
        ),
        (
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]},
            {"cpu": 3},
            "the largest init container",
        ),
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [{**container(cpu="2"), "restartPolicy": "Always"}],
            },
            {"cpu": 3},
            "a sidecar runs beside the others",
        ),
        (
            {"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}},
            {"cpu": "1.25"},
            "the runtime's overhead",
        ),
        ({"containers": [{}]}, {}, "none"),
    ],
)
def test_requests(spec: dict[str, Any], want: dict[str, Any], reason: str) -> None:
    amounts = {name: Decimal(v) for name, v in want.items()}
    assert requests(spec) == {"pods": Decimal(1), **amounts}, reason


TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100"]}]},
                {"matchExpressions": [{"key": "memory", "operator": "Gt", "values": ["70"]}]},
            ]
        }
    }
}


@dataclass(frozen=True)
class Case:
    reason: str
    nodes: list[dict[str, Any]]
    want: bool
    spec: dict[str, Any] = field(default_factory=dict)
    used: dict[str, dict[str, Decimal]] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("nodes", "pods", "want", "reason"),
    [
        ([node(), node("n2")], 2, True, "one on each"),
        ([node()], 2, False, "the second pod of the group finds none"),
        ([node(gpus=2)], 2, True, "both on one"),
        ([node(gpus=2), node("n2")], 4, False, "one too many"),
    ],
)
def test_room_for_a_group(nodes: list[dict[str, Any]], pods: int, want: bool, reason: str) -> None:
    """What the first pod takes is not there for the second."""
    spec = {"containers": [container(gpu="1")]}
    found = room_on(nodes, {}, [spec] * pods)
    assert found.there is want, reason
    if not want:
        assert f"of {pods} pods have been placed" in found.message


CASES = [
    Case("a free GPU", [node()], True),
    Case("all are taken", [node()], False, used={"n1": {GPU: Decimal(1)}}),
    Case("another node has one", [node(gpus=0), node("n2")], True),
    Case("no node at all", [], False),
    Case("cordoned", [node(unschedulable=True)], False),
    Case("tainted", [node(taints=[TAINT])], False),
    Case(
        "tainted and tolerated",
        [node(taints=[TAINT])],
        True,
        {"tolerations": [{"key": GPU, "operator": "Exists"}]},
    ),
    Case(
        "tolerated by value",
        [node(taints=[TAINT])],
        True,
        {"tolerations": [{"key": GPU, "value": "present", "effect": "NoSchedule"}]},
    ),
    Case(
        "another effect is tolerated",
        [node(taints=[TAINT])],
        False,
        {"tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoExecute"}]},
    ),
    Case("a mere preference", [node(taints=[{**TAINT, "effect": "PreferNoSchedule"}])], True),
    Case("another pool", [node(labels={"gpu": "a10"})], False, {"nodeSelector": {"gpu": "h100"}}),
    Case("the pool", [node(labels={"gpu": "h100"})], True, {"nodeSelector": {"gpu": "h100"}}),
    Case("affinity, first term", [node(labels={"gpu": "h100"})], True, {"affinity": AFFINITY}),
    Case("affinity, second term", [node(labels={"memory": "80"})], True, {"affinity": AFFINITY}),
    Case("affinity, neither", [node(labels={"memory": "40"})], False, {"affinity": AFFINITY}),
    Case(
        "a GPU but no memory",
        [node()],
        False,
        {"containers": [container(gpu="1", memory="32Gi")]},
        {"n1": {"memory": Decimal(40 * 2**30)}},
    ),
    Case("too many pods", [node()], False, used={"n1": {"pods": Decimal(110)}}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_room(case: Case) -> None:
    spec = {"containers": [container(gpu="1")], **case.spec}
    found = room_on(case.nodes, case.used, [spec])
    assert found.there is case.want
    if not case.want:
        assert f"1 {GPU}" in found.message


def test_one_reading_serves_many_and_grows_old() -> None:
    pods = [{"spec": {"nodeName": "n1", "containers": [container(gpu="1")]}}]

    def answer(seen: Seen, reply: Reply) -> None:
        reply.json({"items": [node(gpus=2)] if seen.path.endswith("nodes") else pods})

    now = [0.0]
    with serve(answer) as server:
        capacity = Capacity(server.api(), clock=lambda: now[0], fresh_s=15)
        one, two = ({"containers": [container(gpu=n)]} for n in ("1", "2"))
        assert capacity.room_for([one]).there
        assert not capacity.room_for([two]).there
        assert len(server.requests) == 2
        assert server.requests[1].query["fieldSelector"] == (
            "status.phase!=Succeeded,status.phase!=Failed"
        )
        now[0] = 16.0
        capacity.room_for([one])
        assert len(server.requests) == 4


def test_an_answer_stands_while_its_reading_does() -> None:
    """An aged reading is not taken for none: what rests on it would never be asked for again."""
    now = [0.0]
    items: list[dict[str, Any]] = []
    with serve(lambda _, reply: reply.json({"items": items})) as server:
        capacity = Capacity(server.api(), clock=lambda: now[0], fresh_s=15)
        assert capacity.since is None
        assert capacity.stands(None), "nobody needed a reading"
        capacity.room_for([{"containers": [container(gpu="1")]}])
        first = capacity.since
        assert not capacity.stands(None), "now there is something to rest on"
        assert capacity.stands(first)
        now[0] = 16.0
        assert not capacity.stands(first), "it has grown old"
        assert not capacity.stands(None), "which is not the same as none"
        capacity.room_for([{"containers": [container(gpu="1")]}])
        assert capacity.stands(first), "there is a newer one that says the same"
        now[0] = 32.0
        items.append(node(gpus=2))
        capacity.room_for([{"containers": [container(gpu="1")]}])
        assert not capacity.stands(first), "it says something else"
        assert capacity.stands(capacity.since)
        beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-30T12:00:00Z"}
        second, items[0] = capacity.since, {**items[0]}
        items[0]["status"] = {**items[0]["status"], "conditions": [beat]}
        now[0] = 48.0
        capacity.room_for([{"containers": [container(gpu="1")]}])
        assert capacity.stands(second), "a heartbeat says nothing of room"


def test_a_reading_is_made_ahead_where_somebody_asks() -> None:
    now, refused = [0.0], [False]

    def answer(_: Seen, reply: Reply) -> None:
        if refused[0]:
            reply.failure(503, "", "later")
        else:
            reply.json({"items": [node(gpus=2)]})

    ask = [{"containers": [container(gpu="1")]}]
    with serve(answer) as server:
        capacity = Capacity(server.api(), clock=lambda: now[0], pods=list, fresh_s=30)

        def made(at: float) -> int:
            """Readings that are made of a nudge at this time."""
            now[0] = at
            before = len(server.requests)
            capacity.freshen()
            return len(server.requests) - before

        assert made(0) == 0, "nobody has asked"
        capacity.room_for(ask)
        assert made(10) == 0, "it is young"
        assert made(20) == 0, "it will do for some time"
        assert made(26) == 1
        assert made(54) == 0, "nobody has asked since"
        assert capacity.stands(capacity.since)
        refused[0] = True
        assert made(55) > 0
        assert capacity.room_for(ask).there, "the old one is good enough still"
        now[0] = 60
        with pytest.raises(ApiError):
            capacity.room_for(ask)


def test_a_reading_ahead_that_comes_late_is_dropped() -> None:
    """Somebody has read since, who began later."""
    now, sizes = [0.0], [2]
    late: list[Callable[[], object]] = []

    def answer(_: Seen, reply: Reply) -> None:
        size = sizes[0]
        if late:
            late.pop()()
        reply.json({"items": [node(gpus=size)]})

    ask = [{"containers": [container(gpu="2")]}]
    with serve(answer) as server:
        capacity = Capacity(server.api(), clock=lambda: now[0], pods=list, fresh_s=30)
        assert capacity.room_for(ask).there
        now[0] = 26.0

        def meanwhile() -> None:
            now[0], sizes[0] = 31.0, 1
            assert not capacity.room_for(ask).there

        late.append(meanwhile)
        capacity.freshen()
        assert not capacity.room_for(ask).there, "what was read at 31 stands"
        now[0] = 60.0
        assert len(server.requests) == 3
        capacity.room_for(ask)
        assert len(server.requests) == 3, "it is 29 s old"
        now[0] = 62.0
        capacity.room_for(ask)
        assert len(server.requests) == 4


def test_pods_that_are_at_hand_are_not_asked_for() -> None:
    spec = {"nodeName": "n1", "containers": [container(gpu="1")]}
    held = [{"spec": spec, "status": {"phase": phase}} for phase in ("Running", "Failed")]
    with serve(lambda _, reply: reply.json({"items": [node(gpus=2)]})) as server:
        capacity = Capacity(server.api(), clock=lambda: 0.0, pods=lambda: held)
        assert capacity.room_for([spec]).there, "the failed one holds nothing"
        assert [seen.path for seen in server.requests] == ["/api/v1/nodes"]


def test_nodes_are_gone_through_once_for_all_targets_of_a_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def counted(nodes: Any, used: Any, specs: Any) -> Room:
        asked.extend(specs)
        return room_on(nodes, used, specs)

    monkeypatch.setattr("specpilot.fleets.kubernetes.capacity.room_on", counted)
    one = {"containers": [container(gpu="1")]}
    alike = {"containers": [{**container(gpu="1"), "image": "another", "env": []}]}
    others = [
        {"containers": [container(gpu="2")]},
        {**one, "nodeSelector": {"gpu": "h100"}},
        {**one, "tolerations": [{"operator": "Exists"}]},
        {**one, "affinity": AFFINITY},
        {**one, "initContainers": [container(gpu="1")]},
    ]
    now = [0.0]
    nodes = [node(gpus=2)]
    with serve(lambda _, reply: reply.json({"items": nodes})) as server:
        capacity = Capacity(server.api(), clock=lambda: now[0], pods=list)
        for spec in (one, alike, one):
            assert capacity.room_for([spec]).there
        assert asked == [one]
        for spec in others:
            capacity.room_for([spec])
        assert asked == [one, *others], "what decides tells them apart"
        now[0] = 31.0
        capacity.room_for([one])
        assert len(asked) == 1 + len(others), "a new reading says the same"
        now[0], nodes[:] = 62.0, [node(gpus=1)]
        capacity.room_for([one])
        assert len(asked) == 2 + len(others), "another reading, another answer"


def test_a_pod_without_devices_asks_nobody() -> None:
    with serve(lambda _, reply: reply.failure(500, "", "")) as server:
        capacity = Capacity(server.api(), clock=lambda: 0.0)
        assert capacity.room_for([{"containers": [container(cpu="900")]}]).there
        assert server.requests == []


def test_what_may_not_be_seen_is_assumed_and_said() -> None:
    with serve(lambda _, reply: reply.failure(403, "Forbidden", "no nodes for you")) as server:
        room = Capacity(server.api(), clock=lambda: 0.0).room_for(
            [{"containers": [container(gpu="1")]}]
        )
    assert room.there
    assert "assumed" in room.message
    assert "no nodes for you" in room.message


def test_an_outage_is_not_room() -> None:
    with serve(lambda _, reply: reply.failure(503, "", "later")) as server:
        capacity = Capacity(server.api(), clock=lambda: 0.0)
        with pytest.raises(ApiError):
            capacity.room_for([{"containers": [container(gpu="1")]}])
