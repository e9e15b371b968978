"""What keeps a real Deployment from being steered, and what its pods say when they fail."""

from collections.abc import Callable

import pytest

from specpilot.domain.changes import Extent
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Replica, TargetProblem, TargetRef, TargetState
from specpilot.fleets.kubernetes import Api, KubernetesFleet, connect
from specpilot.fleets.kubernetes.wiring import ARGUMENT
from tests.cluster.cluster import Cluster
from tests.cluster.manifests import container
from tests.cluster.nodes import GPU
from tests.cluster.waiting import wait_for
from tests.integration.kubernetes.conftest import (
    NGRAM,
    MakeTarget,
    Manifest,
    Target,
    engine,
    rolling_update,
)

pytestmark = pytest.mark.cluster


def problem(target: Target) -> tuple[TargetProblem, str]:
    found = target.observe().problem
    assert found is not None
    return found.reason, found.message


def test_not_found(api: Api, namespace: str) -> None:
    ref = TargetRef(kind="Deployment", namespace=namespace, name="nobody")
    found = KubernetesFleet(api).observe(ref).problem
    assert found is not None
    assert found.reason is TargetProblem.NOT_FOUND
    assert "nobody" in found.message


def test_unsupported_kind(api: Api, namespace: str) -> None:
    ref = TargetRef(kind="DaemonSet", namespace=namespace, name="chat")
    found = KubernetesFleet(api).observe(ref).problem
    assert found is not None
    assert found.reason is TargetProblem.UNSUPPORTED_KIND
    assert "StatefulSet" in found.message


def test_not_wired_names_what_to_add_and_adding_it_helps(make_target: MakeTarget) -> None:
    target = make_target(engine(wired=False), replicas=1)
    reason, message = problem(target)
    assert reason is TargetProblem.NOT_WIRED
    assert ARGUMENT in message
    assert "fieldPath: metadata.annotations['specpilot.io/speculative-config']" in message
    state = target.observe()
    assert len(state.replicas) == 1, "what runs is told all the same"
    target.patch({"spec": {"template": {"spec": {"containers": [engine()]}}}})
    assert target.until(lambda s: s.problem is None).problem is None


def test_shadowed_by_a_literal_flag(make_target: MakeTarget) -> None:
    target = make_target(engine(f"--speculative-config={NGRAM.config}", wired=False), replicas=1)
    reason, message = problem(target)
    assert reason is TargetProblem.SHADOWED_BY_ARGS
    assert "Take it out" in message
    assert target.observe().declared == Declared(setting="unrecognised", config=NGRAM.config)


def test_the_container_must_be_known(make_target: MakeTarget) -> None:
    other = container(name="proxy", env=[{"name": "PORT", "value": "8001"}])
    other.pop("readinessProbe")
    target = make_target({**engine(), "name": "model"}, other, replicas=1)
    reason, message = problem(target)
    assert reason is TargetProblem.CONTAINER_NOT_FOUND
    assert "model, proxy" in message
    named = TargetRef(
        kind="Deployment", namespace=target.ref.namespace, name="chat", container="model"
    )
    assert target.fleet.observe(named).problem is None


def test_an_owner_is_named(make_target: MakeTarget, cluster: Cluster, namespace: str) -> None:
    """opentelemetry-operator#1300, gardener#8463: owners undo it in mid-roll."""
    parent = cluster.api.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "boss"}},
        namespace=namespace,
    )

    def owned(manifest: Manifest) -> Manifest:
        manifest["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "boss",
                "uid": parent["metadata"]["uid"],
                "controller": True,
            }
        ]
        return manifest

    reason, message = problem(make_target(replicas=1, wrap=owned))
    assert reason is TargetProblem.OWNED_BY_OTHER
    assert "ConfigMap boss" in message


def test_a_pause_of_the_users_is_theirs(make_target: MakeTarget, cluster: Cluster) -> None:
    target = make_target(replicas=2)
    cluster.run("kubectl", "-n", target.ref.namespace, "rollout", "pause", "deployment/chat")
    reason, message = problem(target)
    assert reason is TargetProblem.PAUSED_BY_USER
    assert "kubectl-rollout" in message
    assert "rollout resume deployment/chat" in message
    assert not target.observe().halted
    # Even so: an intent that is carried out does not lift it.
    target.carry_out(Declared(), Extent.ALL)
    assert target.object()["spec"]["paused"] is True


def failing(text: str) -> Callable[[TargetState], bool]:
    return lambda state: any(text in r.failure for r in state.replicas)


def replica(state: TargetState, text: str) -> Replica:
    return next(r for r in state.replicas if text in r.failure)


def test_a_setting_that_crashes_the_engine_is_told(make_target: MakeTarget) -> None:
    """The canary crashes as often as it starts; the others keep serving."""
    script = 'case "$1" in *ngram*) echo "unknown method" >&2; exit 3;; esac; exec sleep 1000'
    crashing = {
        **engine(command=["/bin/sh", "-c", script, "vllm"]),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # Without a probe it would be ready between its start and its crash, as no engine is.
        "readinessProbe": {
            "exec": {"command": ["true"]},
            "initialDelaySeconds": 1,
            "periodSeconds": 1,
        },
    }
    target = make_target(crashing)
    # The shell makes the product distrust the wiring, which is right, and beside the point here.
    state = target.reconcile(NGRAM, Extent.CANARY, failing("CrashLoopBackOff"))
    broken = replica(state, "CrashLoopBackOff")
    assert "exit 3" in broken.failure
    assert broken.restarts >= 1
    assert not broken.lost
    assert not broken.ready
    assert sum(r.ready for r in state.replicas) == 3
    target.reconcile(Declared(), Extent.ALL, lambda s: s.all_run(Declared()))


def test_an_image_that_cannot_be_pulled(make_target: MakeTarget) -> None:
    target = make_target(
        {"name": "vllm", "image": "nowhere/none:v1", "args": [ARGUMENT]},
        replicas=1,
        standing=False,
    )
    state = target.until(failing("ImagePull"))
    assert not replica(state, "ImagePull").lost


def test_scarce_gpus(make_target: MakeTarget, cluster: Cluster, namespace: str) -> None:
    """One GPU, one replica, surge 1: a second pod would wait for ever.

    airunway#400, LLMKube#192, opendatahub-io/kserve#1822.
    """
    node = f"lone-{namespace[-6:]}"
    cluster.nodes.add(node, gpus=1)
    try:
        chosen = {"kubernetes.io/hostname": node}
        target = make_target(engine(gpus=1), replicas=1, nodeSelector=chosen)
        before = target.observe()
        assert not before.can_add_replica
        assert "none of 1 nodes that suit the pod has 1 nvidia.com/gpu to spare" in before.deadlock
        # Somebody tries all the same: the failure is told, and it is not the machine's.
        state = target.reconcile(NGRAM, Extent.CANARY, failing("Unschedulable"))
        waiting = replica(state, "Unschedulable")
        assert f"Insufficient {GPU}" in waiting.failure
        assert not waiting.lost
        assert [r.ready for r in state.arm(Declared())] == [True]
        target.reconcile(Declared(), Extent.ALL, lambda s: s.all_run(Declared()))
    finally:
        cluster.nodes.remove(node)


def test_room_is_seen_where_there_is_some(
    make_target: MakeTarget, cluster: Cluster, namespace: str
) -> None:
    node = f"pair-{namespace[-6:]}"
    cluster.nodes.add(node, gpus=2)
    try:
        chosen = {"kubernetes.io/hostname": node}
        target = make_target(engine(gpus=1), replicas=1, nodeSelector=chosen)
        assert target.observe().can_add_replica
        assert target.observe().deadlock == ""
        cluster.nodes.cordon(node)
        assert not KubernetesFleet(target.fleet._api).observe(target.ref).can_add_replica
    finally:
        cluster.nodes.remove(node)


def test_several_replicas_without_surge_need_no_room(
    make_target: MakeTarget, cluster: Cluster, namespace: str
) -> None:
    node = f"full-{namespace[-6:]}"
    cluster.nodes.add(node, gpus=2)
    try:
        target = make_target(
            engine(gpus=1),
            replicas=2,
            strategy=rolling_update(0, 1),
            nodeSelector={"kubernetes.io/hostname": node},
        )
        assert target.observe().can_add_replica
        assert target.observe().deadlock == ""
        target.reconcile(NGRAM, Extent.CANARY, lambda s: s.halted and len(s.arm(NGRAM)) == 1)
        target.reconcile(NGRAM, Extent.ALL, lambda s: s.all_run(NGRAM))
    finally:
        cluster.nodes.remove(node)


def test_without_the_right_to_see_nodes_room_is_assumed(
    make_target: MakeTarget,
    cluster: Cluster,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    target = make_target(engine(gpus=1), replicas=1)
    cluster.api.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "narrow"}},
        namespace=namespace,
    )
    rules = [
        {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    ]
    metadata = {"name": "narrow"}
    rbac = "rbac.authorization.k8s.io"
    cluster.api.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": rules,
        },
        namespace=namespace,
    )
    cluster.api.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "narrow"},
            "subjects": [{"kind": "ServiceAccount", "name": "narrow", "namespace": namespace}],
        },
        namespace=namespace,
    )
    token = cluster.control_plane.service_account_token(namespace=namespace, name="narrow")
    kubeconfig = cluster.control_plane.write_kubeconfig(f"narrow-{namespace}", token)
    fleet = KubernetesFleet(connect(kubeconfig=str(kubeconfig)))
    state = wait_for(lambda: fleet.observe(target.ref), describe="RBAC takes effect")
    assert state.can_add_replica
    assert "taken for granted" in caplog.text
    assert "grant this" in caplog.text


def test_a_lost_node_is_no_verdict_on_the_setting(
    make_target: MakeTarget, cluster: Cluster
) -> None:
    target = make_target(replicas=2)
    state = target.observe()
    [victim, other] = state.replicas
    now = "2026-01-01T00:00:00Z"
    # What the node controller and an eviction leave behind; the kubelet here does neither.
    for name, status in (
        (victim.id, {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}),
        (
            other.id,
            {
                "conditions": [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "DeletionByTaintManager",
                        "message": "node is gone",
                        "lastTransitionTime": now,
                    }
                ]
            },
        ),
    ):
        cluster.api.patch(
            "v1",
            "Pod",
            name=name,
            namespace=target.ref.namespace,
            patch={"status": status},
            subresource="status",
        )

    def replica_named(name: str, state: TargetState) -> Replica:
        return next(r for r in state.replicas if r.id == name)

    state = target.until(lambda s: replica_named(victim.id, s).lost)
    evicted = replica_named(victim.id, state)
    assert evicted.failure == "Evicted: low on memory"
    assert evicted.terminating, "it will not come back: its successor counts"
