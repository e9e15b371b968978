"""A flip on a real StatefulSet: held by the partition, finished, undone, disturbed and stuck."""

import threading
from typing import Any

import pytest

from specpilot.domain.changes import Extent
from specpilot.domain.settings import Declared
from specpilot.domain.targets import TargetProblem
from specpilot.fleets.kubernetes.request import Request
from tests.cluster.manifests import stateful_set
from tests.integration.kubernetes.conftest import (
    NEVER_OURS,
    NGRAM,
    OFF_AGAIN,
    MakeTarget,
    Manifest,
    Target,
    all_run,
    arguments,
    engine,
    held,
)

pytestmark = pytest.mark.cluster

BROKEN = Declared(setting="broken", config='{"method":"no-such"}', change_id="chat-9")


def partition(target: Target) -> int:
    return int(target.object()["spec"]["updateStrategy"]["rollingUpdate"]["partition"])


def fragile_engine() -> Manifest:
    """An engine that does not start with the setting `broken`, as vLLM with a method it lacks."""
    found = engine()
    return {**found, "env": [*found["env"], {"name": "REFUSES", "value": "no-such"}]}


def test_canary_then_promote(make_target: MakeTarget) -> None:
    target = make_target(kind=stateful_set)
    rest = target.observe()
    assert rest.problem is None
    assert rest.rolling == ""
    assert rest.can_add_replica
    assert rest.all_run(NEVER_OURS)

    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    assert [r.id for r in state.arm(NGRAM)] == ["chat-2"]
    assert len(state.arm(NEVER_OURS)) == 2
    assert partition(target) == 2
    assert arguments(state)["chat-2"] == [f"--speculative-config={NGRAM.config}"]
    before = target.pods()
    for _ in range(3):
        target.carry_out(NGRAM, Extent.CANARY)
    assert target.pods() == before, "carrying it out again changes nothing"

    done = target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=60)
    assert not done.halted
    assert partition(target) == 0
    assert {args[0] for args in arguments(done).values()} == {
        f"--speculative-config={NGRAM.config}"
    }


def test_undoing_a_canary_leaves_no_trace(make_target: MakeTarget) -> None:
    target = make_target(kind=stateful_set)
    before, old = target.object(), target.pods()
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    target.reconcile(NEVER_OURS, Extent.ALL, all_run(NEVER_OURS))
    after = target.object()
    assert after["spec"] == before["spec"]
    kept = {uid for uid, name in old.items() if name != "chat-2"}
    assert kept <= set(target.pods()), "the others served all along"
    assert "specpilot" not in {entry["manager"] for entry in after["metadata"]["managedFields"]}
    assert after["status"]["updateRevision"] == before["status"]["updateRevision"]


def test_the_first_write_already_holds(make_target: MakeTarget) -> None:
    """One write carries setting and partition: a crash after it leaves a canary, not a roll."""
    target = make_target(kind=stateful_set)
    sent: list[Request] = []
    send = target.fleet._api.send

    def count(request: Request, **options: Any) -> dict[str, Any]:
        if request.method != "GET":
            sent.append(request)
        return send(request, **options)

    target.fleet._api.send = count  # type: ignore[method-assign]
    target.carry_out(NGRAM, Extent.CANARY)
    assert len(sent) == 1
    assert partition(target) == 2
    state = target.until(held(NGRAM))
    assert len(state.arm(NGRAM)) == 1


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_a_canary_that_never_starts_does_not_block_the_way_back(
    make_target: MakeTarget, policy: str
) -> None:
    """kubernetes#67250: the controller waits for a broken pod even when its revision is gone."""
    target = make_target(fragile_engine(), kind=stateful_set, podManagementPolicy=policy)
    target.reconcile(
        BROKEN, Extent.CANARY, lambda s: any(r.restarts > 0 and r.failure for r in s.arm(BROKEN))
    )
    assert len([r for r in target.observe().live() if r.ready]) == 2
    target.reconcile(NEVER_OURS, Extent.ALL, all_run(NEVER_OURS), deadline=60)


def test_a_pod_of_the_users_own_that_is_broken_is_left_to_the_user(
    make_target: MakeTarget,
) -> None:
    target = make_target(fragile_engine(), kind=stateful_set)
    key = "specpilot.io/speculative-config"
    broken = {"metadata": {"annotations": {key: BROKEN.config}}}
    target.patch({"spec": {"template": broken}})
    target.until(lambda s: any(r.restarts > 0 for r in s.live()))
    stuck = target.pods()
    for _ in range(3):
        target.carry_out(target.observe().declared, Extent.ALL)
    assert target.pods() == stuck


def test_an_edit_by_the_user_in_mid_canary_survives(make_target: MakeTarget) -> None:
    target = make_target(kind=stateful_set)
    base = target.observe().user_template
    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    assert state.user_template == base
    target.patch({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}})
    assert target.observe().user_template != base
    done = target.reconcile(NEVER_OURS, Extent.ALL, all_run(NEVER_OURS), deadline=60)
    assert done.user_template != base
    spec = target.object()["spec"]
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 7
    assert "annotations" not in spec["template"]["metadata"]
    assert partition(target) == 0


def test_a_value_set_by_somebody_else_in_mid_flip_is_left_alone(make_target: MakeTarget) -> None:
    target = make_target(kind=stateful_set)
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    key, theirs = "specpilot.io/speculative-config", '{"method":"suffix"}'
    target.patch({"spec": {"template": {"metadata": {"annotations": {key: theirs}}}}})
    target.carry_out(NGRAM, Extent.CANARY)
    target.carry_out(NEVER_OURS, Extent.ALL)
    template = target.object()["spec"]["template"]
    assert template["metadata"]["annotations"] == {key: theirs}
    assert partition(target) == 0


def test_a_partition_of_the_users_is_respected(make_target: MakeTarget) -> None:
    update = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    target = make_target(kind=stateful_set, updateStrategy=update)
    problem = target.observe().problem
    assert problem is not None
    assert problem.reason is TargetProblem.PAUSED_BY_USER
    assert (
        "was paused by tests; spec.updateStrategy.rollingUpdate.partition is 2" in problem.message
    )


def test_on_delete_is_refused(make_target: MakeTarget) -> None:
    target = make_target(kind=stateful_set, updateStrategy={"type": "OnDelete"})
    problem = target.observe().problem
    assert problem is not None
    assert problem.reason is TargetProblem.UNSUITABLE_STRATEGY
    assert "set it to RollingUpdate" in problem.message


def test_one_replica_stops_before_its_successor_starts(make_target: MakeTarget) -> None:
    target = make_target(kind=stateful_set, replicas=1)
    assert not target.observe().can_add_replica
    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    assert len(state.live()) == 1
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM))


def test_scaling_down_in_mid_canary_takes_another_canary(make_target: MakeTarget) -> None:
    target = make_target(kind=stateful_set)
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    target.patch({"spec": {"replicas": 2}})
    state = target.reconcile(
        NGRAM, Extent.CANARY, lambda s: held(NGRAM)(s) and len(s.live()) == 2, deadline=60
    )
    assert [r.id for r in state.arm(NGRAM)] == ["chat-1"]
    assert partition(target) == 1


def test_an_autoscaler_may_scale_all_the_while(make_target: MakeTarget) -> None:
    target = make_target(kind=stateful_set)
    stop = threading.Event()

    def scale() -> None:
        count = 3
        while not stop.wait(1.0):
            count = 7 - count  # 3, 4, 3, 4 ...
            target.patch({"spec": {"replicas": count}})

    scaler = threading.Thread(target=scale)
    scaler.start()
    try:
        target.reconcile(NGRAM, Extent.CANARY, held(NGRAM), deadline=60)
    finally:
        stop.set()
        scaler.join()
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=60)
    assert target.object()["spec"]["replicas"] == target.observe().desired_replicas


def test_going_back_after_success(make_target: MakeTarget) -> None:
    target = make_target(kind=stateful_set, replicas=2)
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=60)
    target.reconcile(OFF_AGAIN, Extent.CANARY, held(OFF_AGAIN))
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=60)
    assert partition(target) == 0
