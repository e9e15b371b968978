"""The same flips on workloads that are no Deployments, and on containers that nobody has wired."""

import pytest
import yaml

from specpilot.domain.changes import ChangeReason, Phase
from tests.cluster.conditions import is_rolled_out
from tests.scenarios.serving import (
    ENGINE,
    NGRAM,
    ON_WHEN_USED,
    POLICY,
    Object,
    Serving,
    Watcher,
    changed,
    restarts,
    sim,
    steps,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

OF_STATEFUL_SET = changed(POLICY, "spec", "target", "kind", to="StatefulSet")


def as_stateful_set(manifest: str) -> str:
    found = yaml.safe_load(manifest)
    spec = found["spec"]
    for key in ("strategy", "progressDeadlineSeconds"):
        del spec[key]
    return yaml.safe_dump({**found, "kind": "StatefulSet", "spec": {**spec, "serviceName": "chat"}})


def unwired(manifest: str) -> str:
    """As before anybody had heard of Specpilot."""
    found = yaml.safe_load(manifest)
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["args"] = [w for w in container["args"] if not w.startswith("--speculative")]
    container["env"] = [e for e in container["env"] if not e["name"].startswith("SPECPILOT_SPEC")]
    return yaml.safe_dump(found)


def stateful_set(serving: Serving) -> Object:
    return serving.get("StatefulSet", "chat", api_version="apps/v1")


def serve(serving: Serving, manifest: str) -> None:
    serving.apply(as_stateful_set(manifest))
    serving.until(lambda: is_rolled_out(stateful_set(serving)))


def test_a_stateful_set_is_flipped_one_ordinal_first(serving: Serving) -> None:
    serve(serving, ENGINE)
    before = stateful_set(serving)
    serving.apply(ON_WHEN_USED, OF_STATEFUL_SET)
    serving.until(lambda: serving.status().get("active") == "off")
    with serving.load(), Watcher(serving) as watcher:
        serving.until_phase(Phase.ANALYSING, Phase.PROMOTING)
        tried = [engine for engine in serving.engines() if engine is not None]
        assert len(tried) == 1, "one replica tries it first"
        change = serving.until_phase(Phase.SUCCEEDED)
    assert watcher.fewest >= 2, "a StatefulSet replaces one at a time"
    serving.until(lambda: is_rolled_out(stateful_set(serving)))
    assert serving.engines() == [NGRAM] * 3
    spec = stateful_set(serving)["spec"]
    assert spec["updateStrategy"] == before["spec"]["updateStrategy"]
    assert steps(serving.installation, change)[-1] == "Succeeded"


def test_a_stateful_sets_canary_that_crash_loops_does_not_block_the_way_back(
    serving: Serving,
) -> None:
    """kubernetes#67250: with OrderedReady a broken pod is waited for, whatever is asked for."""
    serve(serving, sim(ENGINE, "--sim-crash-if-method ngram"))
    before = stateful_set(serving)
    pods = {p["metadata"]["uid"]: restarts(p) for p in serving.pods()}
    serving.apply(ON_WHEN_USED, changed(OF_STATEFUL_SET, "spec", "limits", "cooldown", to="10m"))
    with serving.load(), Watcher(serving) as watcher:
        change = serving.until_phase(Phase.ROLLED_BACK)
        serving.until(lambda: is_rolled_out(stateful_set(serving)))
    assert change.undo_reason is ChangeReason.REPLICA_FAILED
    assert watcher.fewest == 2
    assert stateful_set(serving)["spec"] == before["spec"]
    assert serving.engines() == [None] * 3
    now = {p["metadata"]["uid"]: restarts(p) for p in serving.pods()}
    assert len(now.items() & pods.items()) == 2, "the others were left alone"


def test_arguments_are_patched_where_the_policy_asks_for_it(serving: Serving) -> None:
    serving.serve(unwired(ENGINE))
    before = serving.deployment()["spec"]["template"]["spec"]["containers"][0]["args"]
    serving.apply(ON_WHEN_USED, POLICY)
    serving.until(lambda: serving.condition("TargetReady").get("reason") == "NotWired")
    serving.apply(changed(POLICY, "spec", "rollout", "channel", to="Args"))
    serving.until(lambda: serving.condition("TargetReady").get("status") == "True")
    assert "Args: " in serving.condition("TargetReady")["message"]
    with serving.load():
        serving.until_phase(Phase.SUCCEEDED)
    serving.until(lambda: is_rolled_out(serving.deployment()))
    assert serving.engines() == [NGRAM] * 3
    args = serving.deployment()["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[: len(before)] == before
    assert len(args) == len(before) + 1
    serving.until(lambda: serving.status().get("active") == "ngram")


def test_wire_makes_a_workload_ready_to_be_steered(serving: Serving) -> None:
    serving.serve(unwired(ENGINE))
    serving.apply(ON_WHEN_USED, POLICY)
    serving.until(lambda: serving.condition("TargetReady").get("reason") == "NotWired")
    said = serving.specpilot("wire", "deployment/chat", "-n", serving.namespace, "--apply")
    assert "is wired" in said
    serving.until(lambda: serving.condition("TargetReady").get("status") == "True")
    serving.until(lambda: is_rolled_out(serving.deployment()))
    with serving.load():
        serving.until_phase(Phase.SUCCEEDED)
    assert serving.engines() == [NGRAM] * 3
