"""The adapters one by one: objects in, answers out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from specpilot.domain.settings import UNRECOGNISED, Declared
from specpilot.domain.targets import TargetProblem
from specpilot.fleets.kubernetes.channels import choose
from specpilot.fleets.kubernetes.channels.annotation import AnnotationChannel
from specpilot.fleets.kubernetes.channels.base import View
from specpilot.fleets.kubernetes.replicas import replica_of_group
from specpilot.fleets.kubernetes.request import REPLICA_SETS, STATEFUL_SETS
from specpilot.fleets.kubernetes.wiring import CHANGE_ANNOTATION, annotations
from specpilot.fleets.kubernetes.workloads import WORKLOADS
from specpilot.fleets.kubernetes.workloads.base import Family, Workload
from specpilot.fleets.kubernetes.workloads.partitions import left_behind
from specpilot.fleets.kubernetes.workloads.strategies import resolve, room_for_canary
from tests.unit.fleets_kubernetes.fakes import Object, deployment, engine, owner, pod

NGRAM = Declared(setting="ngram", config='{"method":"ngram"}', change_id="c-1")
STS, LWS, ROLLOUT = (WORKLOADS[k] for k in ("StatefulSet", "LeaderWorkerSet", "Rollout"))


def stateful_set(*, replicas: int = 3, status: Any = None, **update: Any) -> Object:
    found = deployment(replicas=replicas, status=status)
    del found["spec"]["strategy"]
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    return {
        **found,
        "kind": "StatefulSet",
        "spec": {**found["spec"], "updateStrategy": {**strategy, **update}},
    }


def lws(
    *, replicas: int = 2, size: int = 2, leader: Object | None = None, worker: Object | None = None
) -> Object:
    def template(container: Object) -> Object:
        return {"metadata": {}, "spec": {"containers": [container]}}

    return {
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "chat", "namespace": "serving", "uid": "lws-1", "generation": 2},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {
                "size": size,
                "leaderTemplate": template(leader or engine()),
                "workerTemplate": template(worker or ray_worker()),
            },
        },
        "status": {"replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas},
    }


def ray_worker() -> Object:
    script = "ray start --address=$(LWS_LEADER_ADDRESS):6379 --block"
    return {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", "command": ["sh", "-c", script]}


def group(index: int, *, worker: Object | None = None, **options: Any) -> tuple[Object, ...]:
    """A leader, its workers' StatefulSet and one worker."""
    uid = f"uid-chat-{index}"
    leaders = owner("StatefulSet", "chat", "sts-leaders")
    own = owner("StatefulSet", f"chat-{index}", f"sts-{index}")
    leader = pod(f"chat-{index}", metadata={"ownerReferences": [leaders]}, **options)
    follower = pod(
        f"chat-{index}-1",
        container=worker or ray_worker(),
        metadata={"ownerReferences": [own]},
    )
    workers = {
        "metadata": {
            "name": f"chat-{index}",
            "namespace": "serving",
            "uid": f"sts-{index}",
            "ownerReferences": [owner("Pod", f"chat-{index}", uid)],
        }
    }
    return leader, workers, follower


def lws_family(root: Object, *groups: Sequence[Object]) -> Family:
    leaders = {
        "metadata": {
            "name": "chat",
            "namespace": "serving",
            "uid": "sts-leaders",
            "ownerReferences": [owner("LeaderWorkerSet", "chat", "lws-1")],
        }
    }
    return Family(
        root=root,
        members={STATEFUL_SETS: (leaders, *(g[1] for g in groups))},
        pods=tuple(p for g in groups for p in (g[0], g[2])),
    )


def rollout(*, steps: Sequence[Object] = (), status: Any = None, **strategy: Any) -> Object:
    found = deployment(replicas=4)
    return {
        **found,
        "kind": "Rollout",
        "spec": {**found["spec"], "strategy": {"canary": {"steps": list(steps), **strategy}}},
        "status": {
            "observedGeneration": "4",
            "replicas": 4,
            "updatedReplicas": 4,
            "availableReplicas": 4,
            "currentPodHash": "a",
            "stableRS": "a",
            **(status or {}),
        },
    }


# --- StatefulSet


@pytest.mark.parametrize(
    ("replicas", "canaries", "want", "reason"),
    [
        (3, 1, 2, "the highest ordinal"),
        (4, 2, 2, "the two highest"),
        (1, 1, 0, "the only one"),
        (2, 5, 0, "more than there are"),
    ],
)
def test_a_stateful_set_is_held_from_the_first_write(
    replicas: int, canaries: int, want: int, reason: str
) -> None:
    root = stateful_set(replicas=replicas)
    assert STS.hold_at_once(root, canaries=canaries) == want, reason
    assert STS.hold(root, lambda: Family(root=root), canaries=canaries) == want


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, ""),
        ({"observedGeneration": 3}, "has not acted on the latest change"),
        ({"updatedReplicas": 1}, "1 of 3 replicas are of the latest template"),
        ({"replicas": 2}, "2 replicas exist and 3 are wanted"),
        ({"availableReplicas": 2}, "2 of 3 are available"),
    ],
)
def test_a_stateful_set_rolls(status: Object, said: str) -> None:
    words = STS.rolling(Family(root=stateful_set(status=status)))
    assert said in words
    assert bool(words) is bool(said)


def test_who_set_a_partition_is_told_how_to_let_go() -> None:
    words = STS.how_to_release(stateful_set(rollingUpdate={"partition": 2}))
    assert "spec.updateStrategy.rollingUpdate.partition is 2" in words
    assert words.endswith("set it to 0")


def test_only_pods_that_a_change_left_and_that_do_not_serve_are_in_the_way() -> None:
    broken = {"conditions": {"Ready": "False"}}
    ours = annotations(NGRAM)
    pods = [
        pod("serves", annotations=ours),
        pod("stuck", annotations=ours, **broken),
        pod("never-ours", **broken),
        pod("present", annotations={CHANGE_ANNOTATION: "c-2"}, **broken),
        pod("going", annotations=ours, metadata={"deletionTimestamp": "now"}, **broken),
    ]
    assert [p["metadata"]["name"] for p in left_behind(pods, change_id="c-2")] == ["stuck"]


def test_nothing_is_deleted_at_rest() -> None:
    def look() -> Family:
        raise AssertionError("not to be asked")

    assert STS.unblock(stateful_set(), look, back=True) == ()


# --- LeaderWorkerSet


def test_a_group_is_one_replica() -> None:
    family = lws_family(lws(), group(0), group(1))
    groups = LWS.replicas(family)
    assert [[p["metadata"]["name"] for p in g] for g in groups] == [
        ["chat-0", "chat-0-1"],
        ["chat-1", "chat-1-1"],
    ]
    replicas = [replica_of_group(g, container="vllm") for g in groups]
    assert [r.id for r in replicas] == ["chat-0", "chat-1"]
    assert all(r.ready for r in replicas)


def test_a_group_is_no_better_than_its_worst_pod() -> None:
    leader, _, worker = group(0, annotations=annotations(NGRAM))
    for condition in worker["status"]["conditions"]:
        if condition["type"] != "PodScheduled":
            condition["status"] = "False"
    worker["status"]["containerStatuses"][0] |= {
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }
    found = replica_of_group((leader, worker), container="vllm")
    assert not found.ready
    assert found.ready_since is None
    assert found.restarts == 3
    assert found.failure.startswith("chat-0-1: CrashLoopBackOff")
    assert found.declared == NGRAM, "a worker of Ray is told nothing itself"


def test_a_worker_that_is_told_something_else_makes_the_group_unrecognised() -> None:
    """With --nnodes each pod runs the engine by its own command line."""
    leader, _, worker = group(0, worker=engine(), annotations=annotations(NGRAM))
    found = replica_of_group((leader, worker), container="vllm")
    assert found.declared.setting == UNRECOGNISED
    assert found.declared != NGRAM
    worker["metadata"]["annotations"] = annotations(NGRAM)
    assert replica_of_group((leader, worker), container="vllm").declared == NGRAM


def test_headless_workers_have_to_be_wired_too() -> None:
    unwired = engine(args=["serve", "m", "--nnodes=2", "--headless"], env=[])
    channel = AnnotationChannel()
    problem = channel.problem(View(workload=LWS, root=lws(worker=unwired), container="vllm"))
    assert problem is not None
    assert problem.reason is TargetProblem.NOT_WIRED
    assert "Leader and workers have to be told the same" in problem.message
    for worker in (engine(), ray_worker()):
        view = View(workload=LWS, root=lws(worker=worker), container="vllm")
        assert channel.problem(view) is None


def test_both_templates_are_written_and_none_where_there_is_no_leader_template() -> None:
    root = lws()
    view = View(workload=LWS, root=root, container="vllm")
    channel = AnnotationChannel()
    letters = channel.letters(view, Family(root=root), NGRAM)
    body: Any = channel.request(view, letters, hold=1, manager="specpilot").body
    written = body["spec"]["leaderWorkerTemplate"]
    assert set(written) == {"leaderTemplate", "workerTemplate"}
    assert body["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"] == {"partition": 1}
    root["spec"]["leaderWorkerTemplate"].pop("leaderTemplate")
    root["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"] = [engine()]
    body = channel.request(view, letters, hold=None, manager="specpilot").body
    assert set(body["spec"]["leaderWorkerTemplate"]) == {"workerTemplate"}


@pytest.mark.parametrize(
    ("replicas", "strategy", "room", "want", "asked", "reason"),
    [
        (2, {}, False, True, 0, "one group may be missing by default"),
        (2, {"maxUnavailable": 0, "maxSurge": 1}, True, True, 3, "a group of three fits"),
        (2, {"maxUnavailable": 0, "maxSurge": 1}, False, False, 3, "surge deadlock"),
        (1, {}, True, False, 0, "the only group"),
        (1, {"maxUnavailable": 0, "maxSurge": 1}, True, True, 3, "a second one beside it"),
    ],
)
def test_a_group_surges_as_a_whole(
    *, replicas: int, strategy: Object, room: bool, want: bool, asked: int, reason: str
) -> None:
    root = lws(replicas=replicas, size=3)
    root["spec"]["rolloutStrategy"] = {"rollingUpdateConfiguration": strategy}
    seen: list[int] = []

    def has_room(specs: Sequence[Any]) -> bool:
        seen.append(len(specs))
        return room

    assert LWS.can_add_replica(Family(root=root), has_room) is want, reason
    assert seen == ([asked] if asked else []), reason


# --- Rollout

PAUSE_FOR_EVER = {"pause": {}}


def at(index: int, *reasons: str, **status: Any) -> Object:
    return {
        "currentPodHash": "b",
        "currentStepIndex": index,
        "pauseConditions": [{"reason": reason} for reason in reasons],
        **status,
    }


@dataclass(frozen=True)
class Word:
    reason: str
    status: Object
    want: Object | None
    back: bool = False
    steps: tuple[Object, ...] = ({"setWeight": 25}, PAUSE_FOR_EVER, {"pause": {"duration": "5m"}})


WORDS = [
    Word("at rest", {}, None),
    Word("at a step of its own", at(0), None),
    Word("at a pause without end", at(1, "CanaryPauseStep"), {"pauseConditions": None}),
    Word("a pause that is not there yet", at(1), None),
    Word("a pause with an end takes its time", at(2, "CanaryPauseStep"), None),
    Word("an inconclusive analysis waits for a person", at(1, "InconclusiveAnalysisRun"), None),
    Word("on the way back", at(0), {"promoteFull": True}, back=True),
    Word("said already", at(0, promoteFull=True), None, back=True),
    Word("back at the stable one", {}, None, back=True),
    Word("not seen yet", at(1, "CanaryPauseStep", observedGeneration="3"), None),
]


@pytest.mark.parametrize("case", WORDS, ids=lambda case: case.reason)
def test_the_word_that_a_pause_waits_for(case: Word) -> None:
    root = rollout(steps=case.steps, status=case.status)
    found = ROLLOUT.unblock(root, lambda: Family(root=root), back=case.back)
    bodies: list[Any] = [request.body for request in found]
    assert [body["status"] for body in bodies] == ([case.want] if case.want else [])
    assert all(request.path.endswith("/status") for request in found)
    assert all(body["metadata"]["resourceVersion"] == "7" for body in bodies)


@dataclass(frozen=True)
class Unheard:
    reason: str
    status: Object
    wakes: bool
    paused: bool = False


UNHEARD = [
    Unheard("at rest", {}, wakes=False),
    Unheard("at a pause, and no word was said", at(1, "CanaryPauseStep"), wakes=False),
    Unheard("before it pauses", at(1), wakes=False),
    Unheard("the word was said and it has not gone on", at(1, controllerPause=True), wakes=True),
    Unheard("the same, held by us", at(1, controllerPause=True), wakes=False, paused=True),
    Unheard("a pause with an end", at(2, controllerPause=True), wakes=False),
    Unheard("promoted, and it goes through its steps", at(0, promoteFull=True), wakes=True),
    Unheard("promoted, and its pods become ready", at(3, promoteFull=True), wakes=False),
    Unheard("a spec it has not seen", {"observedGeneration": "3"}, wakes=True),
    Unheard("a hold it has not seen", {"observedGeneration": "3"}, wakes=True, paused=True),
]


@pytest.mark.parametrize("case", UNHEARD, ids=lambda case: case.reason)
def test_a_controller_that_missed_a_write_is_made_to_look_again(case: Unheard) -> None:
    root = rollout(steps=WORDS[0].steps, status=case.status)
    if case.paused:
        root["spec"]["paused"] = True
    requests = ROLLOUT.wake(root)
    assert bool(requests) is case.wakes
    told = set()
    for request in requests:
        told.add(request.body["status"]["observedGeneration"])
        root["status"] = {**root["status"], **request.body["status"]}
    assert not ROLLOUT.observed(root) or not requests
    for request in ROLLOUT.wake(root):  # missed as well: another change, or nobody would hear of it
        told.add(request.body["status"]["observedGeneration"])
    assert len(told) == (2 if case.wakes else 0)


def test_a_rollout_is_held_when_its_new_replica_set_has_enough() -> None:
    root = rollout()
    root["spec"]["template"]["metadata"]["annotations"] = annotations(NGRAM)

    def replica_set(declared: Declared, replicas: int) -> Object:
        template = {"metadata": {"annotations": annotations(declared), "labels": {"extra": "1"}}}
        return {"spec": {"replicas": replicas, "template": template}, "metadata": {"uid": "r"}}

    family = Family(root=root, members={REPLICA_SETS: (replica_set(Declared(), 4),)})
    assert ROLLOUT.hold(root, lambda: family, canaries=1) is None, "the old one does not count"
    members = {REPLICA_SETS: (replica_set(Declared(), 3), replica_set(NGRAM, 1))}
    assert ROLLOUT.hold(root, lambda: replace(family, members=members), canaries=1) is True
    assert ROLLOUT.hold(root, lambda: replace(family, members=members), canaries=2) is None
    root["status"]["abort"] = True
    assert ROLLOUT.hold(root, lambda: replace(family, members=members), canaries=1) is None


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, ""),
        ({"observedGeneration": "3"}, "has not acted"),
        ({"abort": True, "message": "metric failed"}, "aborted the update: metric failed"),
        ({"phase": "Degraded", "message": "x"}, "Degraded: x"),
        ({"currentPodHash": "b", "currentStepIndex": 1}, "1 of 2 steps are done"),
        ({"replicas": 5}, "5 replicas exist and 4 are wanted"),
    ],
)
def test_a_rollout_rolls(status: Object, said: str) -> None:
    root = rollout(steps=[{"setWeight": 25}, PAUSE_FOR_EVER], status=status)
    words = ROLLOUT.rolling(Family(root=root))
    assert said in words
    assert bool(words) is bool(said)


def test_a_template_elsewhere_is_refused() -> None:
    root = rollout()
    root["spec"]["workloadRef"] = {"kind": "Deployment", "name": "other"}
    problem = ROLLOUT.problem(root)
    assert problem is not None
    assert problem.reason is TargetProblem.UNSUITABLE_STRATEGY
    assert "Deployment other" in problem.message


# --- all of them


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_every_kind_has_a_channel_for_auto(workload: Workload) -> None:
    from specpilot.domain.targets import Channel as Name

    assert choose(workload, Name.AUTO) is not None
    assert (choose(workload, Name.OWNER) is None) is (workload.owner_channel is None)


@pytest.mark.parametrize(
    ("value", "of", "up", "want"),
    [("25%", 4, True, 1), ("25%", 3, True, 1), ("25%", 3, False, 0), (2, 9, True, 2)],
)
def test_resolve(*, value: object, of: int, up: bool, want: int) -> None:
    assert resolve(value, of=of, up=up) == want


def test_a_single_replica_is_never_stopped_for_its_successor_by_chance() -> None:
    assert not room_for_canary(wanted=1, surge=1, unavailable=1, room=lambda: True)
    assert room_for_canary(wanted=1, surge=1, unavailable=0, room=lambda: True)
