"""What does not work is undone by itself, and the replicas that serve do not notice."""

import pytest

from specpilot.cli.demo.receiver import Receiver
from specpilot.domain.changes import ChangeReason, Phase
from tests.cluster.conditions import is_rolled_out
from tests.scenarios.serving import (
    ENGINE,
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


def standing(serving: Serving) -> dict[str, int]:
    """Uid and restarts of each pod."""
    return {p["metadata"]["uid"]: restarts(p) for p in serving.pods()}


def test_a_canary_that_crash_loops_is_rolled_back_and_nobody_notices(
    serving: Serving, receiver: Receiver
) -> None:
    # Our table of versions takes the setting, this engine does not: what no table can foresee.
    serving.serve(sim(ENGINE, "--sim-crash-if-method ngram"))
    before, pods = serving.deployment(), standing(serving)
    patient = changed(POLICY, "spec", "limits", "cooldown", to="10m")
    told = changed(patient, "spec", "alerts", to=[{"channel": "oncall", "events": ["RolledBack"]}])
    with serving.load() as load, Watcher(serving) as watcher:
        serving.apply(ON_WHEN_USED, told)
        change = serving.until_phase(Phase.ROLLED_BACK)
        serving.until(lambda: is_rolled_out(serving.deployment()))
    assert change.undo_reason is ChangeReason.REPLICA_FAILED
    assert "exit 1" in change.message
    assert steps(serving.installation, change) == ["Canary", "RollingBack", "RolledBack"]

    assert standing(serving) == pods, "the same pods, none restarted"
    assert watcher.fewest == 3, "no fewer ready at any time"
    assert load.failed == []
    assert serving.deployment()["spec"] == before["spec"], "as it was, to the letter"
    assert serving.engines() == [None] * 3

    # It is not tried again at once, and says so.
    serving.until(lambda: serving.condition("Held").get("reason") == "RecentlyFailed")
    assert "rolled back" in serving.status()["message"]
    assert len(serving.installation.changes(serving.namespace)) == 1
    serving.until(lambda: [a["event"] for a in receiver.alerts()] == ["RolledBack"])


def test_a_users_own_edit_during_a_canary_stays_and_ours_is_undone(serving: Serving) -> None:
    serving.serve()
    patient = changed(POLICY, "spec", "limits", "cooldown", to="10m")
    with serving.load():
        serving.apply(ON_WHEN_USED, patient)
        serving.until_phase(Phase.ANALYSING)
        serving.kubectl("set", "env", "deployment/chat", "GREETING=hello")
        change = serving.until_phase(Phase.ABORTED)
    assert change.undo_reason is ChangeReason.EDITED_BY_USER
    assert "their edit stays" in change.message
    pause(serving)

    def greeted(pod: Object) -> bool:
        env = pod["spec"]["containers"][0]["env"]
        return {"name": "GREETING", "value": "hello"} in env

    serving.until(lambda: is_rolled_out(serving.deployment()))
    assert all(map(greeted, serving.pods()))
    assert serving.engines() == [None] * 3


def pause(serving: Serving) -> None:
    """Nothing further is started; the next lines look at what one change has left."""
    serving.kubectl("patch", "specpol", "chat", "--type=merge", '-p={"spec":{"paused":true}}')


def test_a_policy_deleted_in_mid_flip_leaves_a_known_setting_and_no_pause(
    serving: Serving,
) -> None:
    serving.serve()
    before, pods = serving.deployment(), standing(serving)
    serving.apply(ON_WHEN_USED, POLICY)
    with serving.load():
        serving.until_phase(Phase.ANALYSING)
        serving.until(lambda: serving.deployment()["spec"].get("paused") is True)
        serving.kubectl("delete", "specpol", "chat")
        change = serving.until_phase(Phase.ABORTED)
        serving.until(lambda: is_rolled_out(serving.deployment()))
    assert change.undo_reason is ChangeReason.POLICY_DELETED
    assert serving.deployment()["spec"] == before["spec"]
    assert standing(serving) == pods
    assert serving.engines() == [None] * 3
    serving.until(lambda: serving.shown() == [])


def test_prometheus_gone_during_a_canary_is_waited_out(serving: Serving) -> None:
    """keda#3065, flagger#883, #1754: an outage was taken for an answer."""
    prometheus = serving.cluster.prometheus
    serving.serve()
    serving.apply(ON_WHEN_USED, POLICY)
    with serving.load():
        change = serving.until_phase(Phase.ANALYSING)
        prometheus.stop()
        try:
            serving.until(lambda: serving.condition("MetricsAvailable").get("status") == "False")
            assert "Unknown" in serving.status()["verdict"]
            # Longer than the analysis would have taken: unknown decides nothing, either way.
            serving.until(lambda: serving.waited(change) > 14)
            held = serving.until_phase(Phase.ANALYSING)
            assert held.id == change.id
            assert sum(engine is not None for engine in serving.engines()) == 1
        finally:
            prometheus.start()
        serving.until_phase(Phase.PROMOTING, Phase.WATCHING, Phase.SUCCEEDED)
        serving.until(lambda: serving.condition("MetricsAvailable").get("status") == "True")
