"""The operator is killed at each step of a flip; the flip is finished or undone exactly once."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from specpilot.domain.changes import ChangeReason, Phase
from tests.cluster.conditions import is_rolled_out
from tests.cluster.waiting import wait_for
from tests.scenarios.installation import CHART, START_DEADLINE, Installation
from tests.scenarios.serving import (
    ENGINE,
    NGRAM,
    ON_WHEN_USED,
    POLICY,
    Serving,
    changed,
    sim,
    steps,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def kill(serving: Serving) -> None:
    """End the process with SIGKILL; the kubelet starts it again in the same pod."""
    serving.installation.kill()


def delete_pod(serving: Serving) -> None:
    """Take the pod away without grace; another one gets the volume, and another address."""
    installation = serving.installation
    serving.cluster.api.delete(
        "v1", "Pod", name=installation.pod, namespace=installation.namespace, grace=0
    )


def end_and_wait(serving: Serving, how: Callable[[Serving], None] = kill) -> None:
    """End the operator, then wait for a successor to lead: the dead one's lease must run out."""
    before = serving.installation.process()
    how(serving)

    def led_by_another() -> bool:
        now = serving.installation.process()
        return now is not None and now != before and serving.installation.ready()

    serving.until(led_by_another, deadline=START_DEADLINE)


def replica_sets(serving: Serving) -> int:
    return len(serving.cluster.api.list("apps/v1", "ReplicaSet", namespace=serving.namespace))


def test_a_flip_is_finished_once_although_the_operator_is_killed_at_each_step(
    serving: Serving,
) -> None:
    """Reloader#1144: what was missed at a hand-over never came."""
    # An engine that takes a while to start gives time to kill in Canary and in Promoting. It takes
    # longer than the next process to lead: killed between the setting and the hold of its roll, the
    # roll goes on until then (docs/limits.md), and must not have replaced the control arm.
    serving.serve(sim(ENGINE, "--sim-startup-seconds 20"))
    serving.apply(ON_WHEN_USED, POLICY)
    with serving.load():
        for phase, how in (
            (Phase.CANARY, kill),
            (Phase.ANALYSING, delete_pod),
            (Phase.PROMOTING, kill),
            (Phase.WATCHING, kill),
        ):
            serving.until_phase(phase)
            end_and_wait(serving, how)
        change = serving.until_phase(Phase.SUCCEEDED)
    assert steps(serving.installation, change) == [
        "Canary",
        "Analysing",
        "Promoting",
        "Watching",
        "Succeeded",
    ]
    assert len(serving.installation.changes(serving.namespace)) == 1
    assert serving.installation.verify().ok
    assert is_rolled_out(serving.deployment())
    assert serving.engines() == [NGRAM] * 3
    assert replica_sets(serving) == 2, "one roll: the template was written once"


def test_a_flip_is_undone_once_although_the_operator_is_killed_while_rolling_back(
    serving: Serving,
) -> None:
    serving.serve()
    before = serving.deployment()
    strict = changed(POLICY, "spec", "guardrails", to=[{"signal": "tpot_mean", "max": "1ms"}])
    serving.apply(ON_WHEN_USED, changed(strict, "spec", "limits", "cooldown", to="10m"))
    with serving.load():
        serving.until_phase(Phase.ANALYSING)
        with deployments_stand_still(serving):
            serving.until_phase(Phase.ROLLING_BACK)
            end_and_wait(serving)
            serving.until_phase(Phase.ROLLING_BACK)
        change = serving.until_phase(Phase.ROLLED_BACK)
    assert change.undo_reason is ChangeReason.GUARDRAIL_BROKEN
    assert "tpot_mean" in change.message
    assert steps(serving.installation, change) == [
        "Canary",
        "Analysing",
        "RollingBack",
        "RolledBack",
    ]
    assert serving.installation.verify().ok
    serving.until(lambda: is_rolled_out(serving.deployment()))
    assert serving.deployment()["spec"] == before["spec"]
    assert serving.engines() == [None] * 3


def test_an_upgrade_of_the_release_keeps_the_history(installation: Installation) -> None:
    before, old = installation.verify(), installation.process()
    installation.cluster.run(
        *("helm", "upgrade", installation.release, str(CHART), "-n", installation.namespace),
        *("--reuse-values", "--set", "podAnnotations.upgraded=yes"),
        deadline=120,
    )

    def upgraded() -> bool:
        pod = installation.cluster.api.get(
            "v1", "Pod", name=installation.pod, namespace=installation.namespace
        )
        annotations = pod["metadata"].get("annotations") or {}
        return "upgraded" in annotations and installation.ready()

    wait_for(upgraded, deadline=START_DEADLINE, describe=installation.describe)
    assert installation.process() != old
    with installation.store.read() as unit:
        after = unit.audit.verify(known_head=before.head)
    assert after.ok, after.message
    assert after.records >= before.records


@contextmanager
def deployments_stand_still(serving: Serving) -> Iterator[None]:
    """Nobody acts on Deployments meanwhile, so a phase that would be over in no time lasts."""
    manager = serving.cluster.control_plane.controller_manager.pid
    os.kill(manager, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(manager, signal.SIGCONT)
