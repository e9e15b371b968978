"""A setting through the field of whoever owns the pods, on the real API server.

No owner's controller runs here: a player acts for it (see tests/cluster/owners), with real
Deployments and pods below. What the pods run is asked of the processes in them.
"""

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specpilot.domain.changes import Extent
from specpilot.domain.settings import Declared
from specpilot.domain.targets import TargetProblem, TargetRef
from specpilot.fleets.kubernetes import Api, KubernetesFleet, connect, get_text
from specpilot.fleets.kubernetes.request import JSON_PATCH, Request
from specpilot.fleets.kubernetes.workloads.vllmruntime import HASH_ANNOTATION
from tests.cluster.cluster import Cluster
from tests.cluster.owners import engine, kinds
from tests.cluster.owners.player import Player
from tests.cluster.owners.players import PLAYERS, RayServices, VLLMRuntimes
from tests.cluster.waiting import wait_for
from tests.integration.chart.test_chart import template
from tests.integration.kubernetes.conftest import (
    NEVER_OURS,
    NGRAM,
    OFF_AGAIN,
    Manifest,
    Target,
    all_run,
    arguments,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def home(cluster: Cluster) -> Path:
    kinds.install(cluster)
    return engine.install(cluster)


@pytest.fixture(params=PLAYERS, ids=lambda p: p.kind)
def player(
    request: pytest.FixtureRequest, cluster: Cluster, namespace: str, home: Path
) -> Iterator[Player]:
    found: Player = request.param(cluster.api, namespace=namespace, home=home)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def api(cluster: Cluster, player: Player) -> Iterator[Api]:
    """A client with no rights but those that the chart gives when the kind is named in `owners`."""
    values = [f"owners={{{player.kind}}}", f"watchNamespaces={{{player.namespace}}}"]
    found = [o for o in template(*values) if o["kind"] == "Role"]
    [role] = [o for o in found if o["metadata"]["namespace"] == player.namespace]
    account = {"kind": "ServiceAccount", "metadata": {"name": "specpilot"}}
    subject = {"kind": "ServiceAccount", "name": "specpilot", "namespace": player.namespace}
    rbac = "rbac.authorization.k8s.io"
    for manifest in (
        {"apiVersion": "v1", **account},
        role,
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "specpilot"},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": role["metadata"]["name"]},
            "subjects": [subject],
        },
    ):
        cluster.api.create(manifest, namespace=player.namespace)
    token = cluster.control_plane.service_account_token(
        namespace=player.namespace, name="specpilot"
    )
    kubeconfig = cluster.control_plane.write_kubeconfig(f"owners-{player.namespace}", token)
    with contextlib.closing(connect(kubeconfig=str(kubeconfig))) as connected:
        yield connected


def target_of(player: Player, cluster: Cluster, api: Api) -> Target:
    ref = TargetRef(kind=player.kind, namespace=player.namespace, name="chat")
    return Target(cluster=cluster, fleet=KubernetesFleet(api, get=get_text), ref=ref)


@pytest.fixture
def target(player: Player, cluster: Cluster, api: Api) -> Target:
    """The object as its user has applied it, at rest."""
    found = target_of(player, cluster, api)
    found.apply(player.manifest())
    found.until(all_run(NEVER_OURS), deadline=60)
    return found


def users(target: Target) -> Manifest:
    """What of the object is not the API server's or its controller's own."""
    found = copy.deepcopy(target.object())
    # The production stack needs a changed annotation to see that anything was taken back.
    config = found["spec"].get("deploymentConfig") or {}
    (config.get("podAnnotations") or {}).pop(HASH_ANNOTATION, None)
    if config.get("podAnnotations") == {}:
        del config["podAnnotations"]
    return {"spec": found["spec"], "annotations": found["metadata"].get("annotations") or {}}


def really_run(target: Target, player: Player, declared: Declared) -> bool:
    """Whether every engine's process has been given exactly that."""
    if isinstance(player, RayServices):
        return True  # its head answers for Serve, and is asked by the fleet itself
    flag = [f"--speculative-config={declared.config}"] if declared.config else []
    found = arguments(target.observe()).values()
    return bool(found) and all(
        [word for word in words if "speculative" in word] == flag for words in found
    )


def test_a_setting_reaches_every_pod_and_goes_back_to_the_letter(
    target: Target, player: Player
) -> None:
    before = users(target)
    state = target.observe()
    assert state.problem is None
    assert state.channel.startswith("Owner: ")
    assert state.rolling == ""
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=90)
    assert really_run(target, player, NGRAM)
    edits = target.observe().user_template
    assert edits == state.user_template, "our own write is nobody's edit"
    target.reconcile(OFF_AGAIN, Extent.ALL, all_run(OFF_AGAIN), deadline=90)
    assert really_run(target, player, OFF_AGAIN)
    target.reconcile(NEVER_OURS, Extent.ALL, all_run(NEVER_OURS), deadline=90)
    assert users(target) == before


def test_going_back_from_a_change_restores_the_users_own_notation(
    player: Player, cluster: Cluster, api: Api
) -> None:
    """The user speculates already, in a notation of their own: that comes back, not ours."""
    words = {
        "LLMInferenceService": ["--speculative-config", '\'{"method": "ngram"}\'', "--seed 1"],
        "RayService": ["speculative_config:", "  method: ngram  # theirs", "seed: 1"],
    }.get(player.kind, ["--speculative_config", '{"method": "ngram"}', "--seed=1"])
    target = target_of(player, cluster, api)
    target.apply(player.manifest(*words))
    theirs = Declared(setting="unrecognised", config='{"method":"ngram"}')
    state = target.until(all_run(theirs), deadline=60)
    assert state.problem is None
    before = users(target)
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=90)
    intent = target.intend(theirs, Extent.ALL, previous=theirs)

    def back() -> bool:
        target.fleet.carry_out(intent)
        return target.observe().all_run(theirs)

    wait_for(back, deadline=90, describe=target.describe)
    assert users(target) == before


def test_who_writes_the_field_in_between_wins(target: Target, player: Player) -> None:
    send = target.fleet._api.send
    edited: list[Manifest] = []
    word = "seed: 7" if isinstance(player, RayServices) else "--seed=7"

    def edited_in_between(request: Request, **options: Any) -> Manifest:
        if request.content_type == JSON_PATCH and not edited:
            edited.append(target.apply(player.manifest(word)))
        return send(request, **options)

    target.fleet._api.send = edited_in_between  # type: ignore[method-assign]
    target.carry_out(NGRAM, Extent.CANARY)
    assert edited, "the patch was on its way"
    found = target.object()
    assert found["spec"] == edited[0]["spec"], "nothing half-applied"
    assert "specpilot.io" not in str(found["metadata"].get("annotations"))
    target.fleet._api.send = send  # type: ignore[method-assign]
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=90)
    assert word in str(target.object()["spec"]), "theirs stays, beside ours"


def test_several_replicas_need_the_users_word_before_anything_starts(target: Target) -> None:
    state = target.observe()
    assert state.unheld
    assert state.first_wave(1) == max(state.desired_replicas, 1)
    assert not state.halted


@pytest.mark.parametrize("player", [VLLMRuntimes], ids=lambda p: p.kind, indirect=True)
def test_arguments_alone_do_nothing(target: Target) -> None:
    """Why an annotation is written with them: the pods tell that nothing has happened."""
    pods = target.pods()
    flag = f"--speculative-config={NGRAM.config}"
    target.patch({"spec": {"vllmConfig": {"extraArgs": [flag]}}})
    target.patch({"metadata": {"annotations": {"touched": "again"}}})
    wait_for(lambda: target.observe().declared.config == NGRAM.config, describe="it is read")
    assert target.pods() == pods
    state = target.observe()
    assert not state.all_run(state.declared)
    assert all(replica.declared == NEVER_OURS for replica in state.replicas)


def test_a_missing_right_is_named(
    cluster: Cluster, namespace: str, home: Path, player: Player
) -> None:
    cluster.api.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bare"}},
        namespace=namespace,
    )
    token = cluster.control_plane.service_account_token(namespace=namespace, name="bare")
    kubeconfig = cluster.control_plane.write_kubeconfig(f"bare-{namespace}", token)
    fleet = KubernetesFleet(connect(kubeconfig=str(kubeconfig)))
    found = fleet.observe(TargetRef(kind=player.kind, namespace=namespace, name="chat")).problem
    assert found is not None
    assert found.reason is TargetProblem.UNREACHABLE
    assert 'cannot get resource "' in found.message
    assert f"add {player.kind} to the chart's value owners" in found.message
