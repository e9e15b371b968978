"""What users of similar operators complain about, where the API server is the point."""

import pytest
import yaml

from specpilot.domain.changes import ChangeReason, Phase
from tests.cluster.conditions import is_rolled_out
from tests.scenarios.serving import CONFIG, ENGINE, NGRAM, ON_WHEN_USED, POLICY, Serving, changed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FROM_GIT = ("apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller")
"""How Flux applies what lies in Git."""


def test_a_value_that_git_puts_back_in_mid_canary_is_git_s(serving: Serving) -> None:
    """flux2#2526, argo-cd#28769, vault-secrets-operator#921: undone from Git, pods rolled twice."""
    git = changed(ENGINE, "spec", "template", "metadata", "annotations", CONFIG, to="")
    serving.serve(git)
    pods = {p["metadata"]["uid"] for p in serving.pods()}
    patient = changed(POLICY, "spec", "limits", "cooldown", to="10m")
    with serving.load():
        serving.apply(ON_WHEN_USED, patient)
        serving.until_phase(Phase.ANALYSING)
        serving.kubectl(*FROM_GIT, "-f", "-", stdin=git)
        change = serving.until_phase(Phase.ABORTED)
        serving.until(lambda: is_rolled_out(serving.deployment()))
    assert change.undo_reason is ChangeReason.CONTESTED
    assert "somebody replaced our setting ngram by off" in change.message
    assert {p["metadata"]["uid"] for p in serving.pods()} == pods, "no pod but the canary rolled"
    assert serving.engines() == [None] * 3
    assert serving.deployment()["spec"].get("paused") is not True


def test_one_replica_on_the_only_gpu_is_left_alone_and_told_why(serving: Serving) -> None:
    """airunway#400, LLMKube#192, opendatahub-io/kserve#1822: 25 % of one replica is a deadlock.

    It rounds to a surge of one and none unavailable, and the GPU is taken.
    """
    node = f"lone-{serving.namespace[-6:]}"
    serving.cluster.nodes.add(node, gpus=1)
    try:
        lone = changed(ENGINE, "spec", "replicas", to=1)
        lone = changed(lone, "spec", "strategy", to=...)  # Kubernetes' own default
        where = {"kubernetes.io/hostname": node}
        lone = changed(lone, "spec", "template", "spec", "nodeSelector", to=where)
        serving.serve(lone)
        (pod,) = serving.pods()
        daring = changed(POLICY, "spec", "rollout", "allowDowntime", to=True)
        with serving.load():
            serving.apply(ON_WHEN_USED, daring)
            serving.until(lambda: serving.condition("Held").get("reason") == "WouldDeadlock")
        assert "1 nvidia.com/gpu to spare" in serving.condition("Held")["message"]
        assert serving.installation.changes(serving.namespace) == []
        assert [p["metadata"]["uid"] for p in serving.pods()] == [pod["metadata"]["uid"]]
    finally:
        serving.cluster.nodes.remove(node)


def test_an_autoscaler_and_a_held_canary_get_along(serving: Serving) -> None:
    """argo-rollouts#2857, #3848, #5019: an autoscaler and a paused canary blocked each other.

    argo-cd#12967, kserve#3768: and whoever promotes reset the replicas.
    """
    serving.serve()
    with serving.load():
        serving.apply(ON_WHEN_USED, POLICY)
        serving.until_phase(Phase.ANALYSING)
        serving.kubectl("scale", "deployment/chat", "--replicas=4")
        serving.until_phase(Phase.SUCCEEDED)
    serving.until(lambda: is_rolled_out(serving.deployment()))
    assert serving.deployment()["spec"]["replicas"] == 4
    assert [engine and engine["method"] for engine in serving.engines()] == [NGRAM["method"]] * 4


def test_an_edit_while_no_operator_runs_is_seen_by_the_next(serving: Serving) -> None:
    """Reloader#1144: what happened while leadership changed hands was missed for good."""
    serving.serve()
    patient = changed(POLICY, "spec", "limits", "cooldown", to="10m")
    with serving.load():
        serving.apply(ON_WHEN_USED, patient)
        serving.until_phase(Phase.ANALYSING)
        serving.installation.kill()
        serving.kubectl("set", "env", "deployment/chat", "GREETING=hello")
        change = serving.until_phase(Phase.ABORTED)
        serving.kubectl("patch", "specpol", "chat", "--type=merge", '-p={"spec":{"paused":true}}')
        serving.until(lambda: is_rolled_out(serving.deployment()))
    assert change.undo_reason is ChangeReason.EDITED_BY_USER
    env = yaml.safe_load(yaml.safe_dump(serving.deployment()))["spec"]["template"]["spec"]
    assert {"name": "GREETING", "value": "hello"} in env["containers"][0]["env"]
    assert serving.engines() == [None] * 3
