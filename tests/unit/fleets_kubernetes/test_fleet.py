"""What a Deployment is reported as, from what the caches hold."""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest

from specpilot.domain.changes import Extent, Intent
from specpilot.domain.ports import FleetError
from specpilot.domain.settings import Declared
from specpilot.domain.targets import TargetProblem, TargetRef, TargetState
from specpilot.fleets.kubernetes import KubernetesFleet
from specpilot.fleets.kubernetes.channels import owned_fields
from specpilot.fleets.kubernetes.objects import slim_pod, slim_replica_set, slim_workload
from specpilot.fleets.kubernetes.request import REPLICA_SETS
from specpilot.fleets.kubernetes.wiring import CONFIG_ANNOTATION, annotations
from specpilot.fleets.kubernetes.workloads import WORKLOADS
from specpilot.fleets.kubernetes.workloads.base import Family, Workload
from tests.unit.fleets_kubernetes.fakes import (
    THEN,
    Object,
    Reply,
    Seen,
    deployment,
    engine,
    owner,
    pod,
    replica_set,
    serve,
)

REF = TargetRef(kind="Deployment", namespace="serving", name="chat")
NGRAM = Declared(setting="ngram", config='{"method":"ngram"}', change_id="c-1")


AUTOSCALERS = "/apis/autoscaling/v2/horizontalpodautoscalers"


@dataclass(frozen=True)
class Held:
    """One family, in the form in which the caches keep it."""

    found: Family | None

    def family(self, workload: Workload, namespace: str, name: str) -> Family | None:
        del workload
        assert (namespace, name) == ("serving", "chat")
        return self.found

    def pods_everywhere(self) -> None:
        return None


def family(found: Object, sets: list[Object] | None = None, *pods: Object) -> Family:
    return Family(
        root=slim_workload(found, fields=owned_fields(WORKLOADS["Deployment"])),
        members={
            REPLICA_SETS: tuple(slim_replica_set(rs) for rs in (sets or [replica_set(found)]))
        },
        pods=tuple(slim_pod(p) for p in pods),
    )


def observe(found: Family | None, *, ref: TargetRef = REF) -> TargetState:
    def answer(seen: Seen, reply: Reply) -> None:
        if seen.path == AUTOSCALERS:
            reply.json({"metadata": {}, "items": []})
        else:
            reply.failure(500, "", "not to be asked")

    with serve(answer) as server:
        state = KubernetesFleet(server.api(), source=Held(found)).observe(ref)
    asked = {seen.path for seen in server.requests}
    assert asked <= {AUTOSCALERS}, "all else is from the caches"
    return state


def pods(count: int = 3, **options: Any) -> list[Object]:
    return [pod(f"chat-{n}", **options) for n in range(count)]


def test_at_rest() -> None:
    state = observe(family(deployment(), None, *pods()))
    assert state.problem is None
    assert state.rolling == ""
    assert state.all_run(Declared())
    assert state.engine_version == "0.32.0"
    assert state.progress_deadline_s == 600


def test_labels_are_those_of_the_workload_and_not_of_its_pods() -> None:
    state = observe(family(deployment(metadata={"labels": {"tier": "gold"}}), None, *pods()))
    assert state.labels == {"tier": "gold"}
    assert observe(family(deployment(), None, *pods())).labels == {}


def held_canary(*, given: int = 1) -> Family:
    """In mid-canary: paused by us, with so many pods of the new template."""
    noted = annotations(NGRAM)
    managed = [
        {
            "manager": "specpilot",
            "fieldsV1": {
                "f:spec": {
                    "f:paused": {},
                    "f:template": {"f:metadata": {"f:annotations": {f"f:{k}": {} for k in noted}}},
                }
            },
        }
    ]
    found = deployment(
        annotations=noted,
        paused=True,
        metadata={"managedFields": managed},
        status={"replicas": 4, "updatedReplicas": 1},
    )
    sets = [replica_set(deployment(), uid="rs-1"), replica_set(found, uid="rs-2", replicas=given)]
    canary = pod("canary", annotations=noted, replica_set_uid="rs-2")
    return family(found, sets, canary, *pods())


def contested() -> Family:
    """Somebody has set another value under the annotations of the change."""
    noted = {**annotations(NGRAM), CONFIG_ANNOTATION: '{"method":"suffix"}'}
    path = {"f:template": {"f:metadata": {"f:annotations": {f"f:{CONFIG_ANNOTATION}": {}}}}}
    managed = [{"manager": "kubectl-edit", "fieldsV1": {"f:spec": path}}]
    return family(deployment(annotations=noted, metadata={"managedFields": managed}))


def test_a_held_canary() -> None:
    state = observe(held_canary())
    assert state.problem is None
    assert state.halted
    assert state.declared == NGRAM
    assert [r.id for r in state.arm(NGRAM)] == ["canary"]
    assert len(state.arm(Declared())) == 3
    assert "1 of 3 replicas are of the latest template" in state.rolling
    assert state.user_template == observe(family(deployment())).user_template


@pytest.mark.parametrize(
    ("found", "declared", "extent", "asks", "reason"),
    [
        (held_canary(), NGRAM, Extent.CANARY, False, "it is there and held"),
        (held_canary(given=0), NGRAM, Extent.CANARY, True, "its pods are still to come"),
        (held_canary(), NGRAM, Extent.ALL, True, "to be let go"),
        (held_canary(), Declared(), Extent.ALL, True, "to be undone"),
        (family(deployment()), Declared(), Extent.ALL, False, "it runs"),
        (family(deployment()), NGRAM, Extent.CANARY, True, "to be begun"),
        (contested(), NGRAM, Extent.CANARY, False, "a contest is not ours to win"),
        (contested(), Declared(), Extent.ALL, True, "what is ours is to be given back"),
        (None, NGRAM, Extent.CANARY, True, "not known yet"),
    ],
)
def test_what_holds_already_costs_no_request(
    found: Family | None, declared: Declared, extent: Extent, asks: bool, reason: str
) -> None:
    wanted = Intent(
        target=REF, declared=declared, extent=extent, canary_replicas=1, previous=Declared()
    )
    with serve(lambda _, reply: reply.failure(500, "", "asked")) as server:
        fleet = KubernetesFleet(server.api(), source=Held(found))
        with pytest.raises(FleetError) if asks else nullcontext():
            fleet.carry_out(wanted)
    assert bool(server.requests) is asks, reason


def test_the_pods_are_believed_and_not_the_template() -> None:
    """An owner that takes the annotation away in mid-roll leaves a roll that looks finished.

    opentelemetry-operator#1300, grafana/agent#4495, nginx-gateway-fabric#5627.
    """
    stray = pod("chat-1", annotations=annotations(NGRAM))
    state = observe(family(deployment(), None, stray, *pods(2)))
    assert state.declared == Declared()
    assert not state.all_run(Declared())


@dataclass(frozen=True)
class Case:
    reason: str
    want: TargetProblem
    said: str
    found: Family | None
    ref: TargetRef = REF


CASES = [
    Case("gone", TargetProblem.NOT_FOUND, "no Deployment chat in namespace serving", None),
    Case(
        "another kind",
        TargetProblem.UNSUPPORTED_KIND,
        "target.kind DaemonSet is not supported here; supported are",
        None,
        TargetRef(kind="DaemonSet", namespace="serving", name="chat"),
    ),
    Case(
        "owned",
        TargetProblem.OWNED_BY_OTHER,
        "InferenceService llama",
        family(deployment(metadata={"ownerReferences": [owner("InferenceService", "llama", "u")]})),
    ),
    Case(
        "several containers",
        TargetProblem.CONTAINER_NOT_FOUND,
        "set target.container to one of: model, proxy",
        family(deployment(engine(name="model"), engine(name="proxy"))),
    ),
    Case(
        "a container that is not there",
        TargetProblem.CONTAINER_NOT_FOUND,
        "has no container main; set target.container to one of: vllm",
        family(deployment()),
        TargetRef(kind="Deployment", namespace="serving", name="chat", container="main"),
    ),
    Case(
        "not wired",
        TargetProblem.NOT_WIRED,
        "Deployment serving/chat",
        family(deployment(engine(env=[]))),
    ),
    Case(
        "paused by a person",
        TargetProblem.PAUSED_BY_USER,
        "paused by kubectl-rollout; resume it with `kubectl -n serving rollout resume",
        family(
            deployment(
                paused=True,
                metadata={
                    "managedFields": [
                        {"manager": "kubectl-rollout", "fieldsV1": {"f:spec": {"f:paused": {}}}}
                    ]
                },
            )
        ),
    ),
    Case(
        "paused by nobody knows whom",
        TargetProblem.PAUSED_BY_USER,
        "paused by somebody",
        family(deployment(paused=True)),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_problem(case: Case) -> None:
    problem = observe(case.found, ref=case.ref).problem
    assert problem is not None
    assert problem.reason is case.want
    assert case.said in problem.message


def test_pods_of_another_image_do_not_tell_the_version() -> None:
    asked: list[str] = []

    def ask(endpoint: str) -> str:
        asked.append(endpoint)
        return "0.33.0"

    new = deployment(engine(image="acme/llm:2"))
    old_pod = pod("chat-1", container=engine(image="acme/llm:1"))
    new_pod = pod("chat-2", container=engine(image="acme/llm:2"), podIP="10.0.0.8")
    with serve(lambda _, reply: reply.failure(500, "", "")) as server:
        fleet = KubernetesFleet(
            server.api(), source=Held(family(new, None, old_pod, new_pod)), version=ask
        )
        assert fleet.observe(REF).engine_version == "0.33.0"
    assert asked == ["http://10.0.0.8:8000"]


def test_selector() -> None:
    found = deployment(
        selector={
            "matchLabels": {"app": "chat"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "zone", "operator": "NotIn", "values": ["c"]},
                {"key": "x", "operator": "Exists"},
                {"key": "y", "operator": "DoesNotExist"},
            ],
        }
    )
    assert WORKLOADS["Deployment"].selector(found) == "app=chat,tier in (a,b),zone notin (c),x,!y"


class Changing:
    """One family, as a cache keeps it: another object where one has changed."""

    def __init__(self, found: Family) -> None:
        self.found = found

    def family(self, workload: Workload, namespace: str, name: str) -> Family | None:
        del workload, namespace, name
        return self.found

    def pods_everywhere(self) -> None:
        return None


def test_what_did_not_change_is_not_put_together_again() -> None:
    held = Changing(family(deployment(), None, *pods()))
    scaled: list[Object] = []

    def answer(_: Seen, reply: Reply) -> None:
        reply.json({"metadata": {}, "items": scaled})

    now = [0.0]
    with serve(answer) as server:
        fleet = KubernetesFleet(server.api(), source=held, clock=lambda: now[0])
        first = fleet.observe(REF)
        assert fleet.observe(REF).replicas is first.replicas
        scaled.append(
            {
                "metadata": {"name": "chat", "namespace": "serving"},
                "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "chat"}},
                "status": {"currentReplicas": 3, "desiredReplicas": 4},
            }
        )
        now[0] += 60
        again = fleet.observe(REF)
        assert again.replicas is first.replicas
        assert "scaling from 3 to 4" in again.scaling, "what its objects do not say is asked anew"
        one, *others = held.found.pods
        gone = {**one, "metadata": {**one["metadata"], "deletionTimestamp": THEN}}
        held.found = replace(held.found, pods=(gone, *others))
        assert [r.terminating for r in fleet.observe(REF).replicas] == [True, False, False]
        held.found = replace(held.found, pods=(*others,))
        assert len(fleet.observe(REF).replicas) == 2
        root = {
            **held.found.root,
            "metadata": {**held.found.root["metadata"], "labels": {"a": "b"}},
        }
        held.found = replace(held.found, root=root)
        assert fleet.observe(REF).labels == {"a": "b"}


def test_an_engine_that_has_not_answered_yet_is_asked_again() -> None:
    own = engine(image="acme/chat:7")
    held = Changing(family(deployment(own), None, *pods(container=own)))
    versions = iter([FleetError("not yet"), "0.31.0"])

    def ask(_: str) -> str:
        version = next(versions)
        if isinstance(version, FleetError):
            raise version
        return version

    def answer(_: Seen, reply: Reply) -> None:
        reply.json({"metadata": {}, "items": []})

    now = [0.0]
    with serve(answer) as server:
        fleet = KubernetesFleet(server.api(), source=held, version=ask, clock=lambda: now[0])
        assert fleet.observe(REF).engine_version == ""
        now[0] += 3600
        assert fleet.observe(REF).engine_version == "0.31.0"
        assert fleet.observe(REF).engine_version == "0.31.0", "and is believed"
