"""A flip on a Rollout under the real controller of Argo Rollouts: through the user's own steps."""

from collections.abc import Iterator
from typing import Any

import pytest

from specpilot.domain.changes import Extent
from specpilot.domain.settings import Declared
from specpilot.domain.targets import TargetProblem
from tests.cluster.cluster import Cluster
from tests.cluster.rollouts import argo_rollouts, rollout
from tests.integration.kubernetes.conftest import (
    NEVER_OURS,
    NGRAM,
    OFF_AGAIN,
    MakeTarget,
    Target,
    all_run,
    arguments,
    held,
)

pytestmark = pytest.mark.cluster(rollouts=True)

STEPS = [
    {"setWeight": 34},
    {"pause": {}},
    {"setWeight": 67},
    {"pause": {"duration": "1s"}},
]


@pytest.fixture(scope="module", autouse=True)
def controller(cluster: Cluster) -> Iterator[None]:
    with argo_rollouts(cluster):
        yield


@pytest.fixture
def make_rollout(make_target: MakeTarget) -> MakeTarget:
    def make(**options: Any) -> Target:
        target = make_target(kind=rollout, standing=False, **options)
        target.until(lambda s: not s.rolling and len(s.live()) == s.desired_replicas, deadline=60)
        return target

    return make


def test_canary_at_the_users_first_step_then_through_the_others(make_rollout: MakeTarget) -> None:
    target = make_rollout(steps=STEPS)
    rest = target.observe()
    assert rest.problem is None
    assert rest.all_run(NEVER_OURS)
    assert rest.can_add_replica

    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM), deadline=60)
    assert len(state.arm(NGRAM)) == 1
    assert "of 4 steps are done" in state.rolling
    assert target.object()["spec"]["paused"] is True
    before = target.pods()
    for _ in range(3):
        target.carry_out(NGRAM, Extent.CANARY)
    assert target.pods() == before

    done = target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=90)
    assert not done.halted
    assert "paused" not in target.object()["spec"]
    words = {word for args in arguments(done).values() for word in args}
    assert words == {f"--speculative-config={NGRAM.config}"}


def test_undoing_a_canary_returns_to_the_stable_replicas(make_rollout: MakeTarget) -> None:
    target = make_rollout(steps=STEPS)
    before = target.object()
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM), deadline=60)
    target.reconcile(NEVER_OURS, Extent.ALL, all_run(NEVER_OURS), deadline=60)
    after = target.object()
    assert after["spec"] == before["spec"]
    assert after["status"]["stableRS"] == before["status"]["stableRS"]


def test_going_back_after_success_waits_for_nobody(make_rollout: MakeTarget) -> None:
    """The steps have a pause without end; the way back is promoted past it."""
    target = make_rollout(steps=STEPS)
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM), deadline=60)
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=90)
    target.reconcile(NEVER_OURS, Extent.ALL, all_run(NEVER_OURS), deadline=90)


def test_a_controller_that_missed_the_hold_looks_again(make_rollout: MakeTarget) -> None:
    """Nothing moves, and it does not know the latest spec: our next step makes it look."""
    target = make_rollout(steps=STEPS)
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM), deadline=60)
    before = target.pods()
    target.cluster.api.patch(
        target.api_version,
        "Rollout",
        name="chat",
        namespace=target.ref.namespace,
        subresource="status",
        patch={"status": {"observedGeneration": "0"}},
    )
    target.reconcile(
        NGRAM,
        Extent.CANARY,
        lambda s: held(NGRAM)(s) and "has not acted" not in s.rolling,
        deadline=60,
    )
    seen = target.object()
    assert seen["status"]["observedGeneration"] == str(seen["metadata"]["generation"])
    assert target.pods() == before


def test_without_steps_it_is_held_all_the_same(make_rollout: MakeTarget) -> None:
    target = make_rollout(replicas=4, canary={"maxSurge": 1, "maxUnavailable": 0})
    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM), deadline=60)
    assert len(state.arm(NGRAM)) <= 2
    assert sum(r.ready for r in state.live()) >= 4
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=90)
    target.reconcile(OFF_AGAIN, Extent.CANARY, held(OFF_AGAIN), deadline=60)
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=90)


def test_an_abort_of_its_controller_is_told_and_not_fought(make_rollout: MakeTarget) -> None:
    target = make_rollout(steps=STEPS)
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM), deadline=60)
    target.cluster.api.patch(
        target.api_version,
        "Rollout",
        name="chat",
        namespace=target.ref.namespace,
        subresource="status",
        patch={"status": {"abort": True}},
    )
    state = target.reconcile(NGRAM, Extent.CANARY, lambda s: not s.arm(NGRAM), deadline=60)
    assert "its controller has aborted the update" in state.rolling
    for _ in range(3):
        target.carry_out(NGRAM, Extent.CANARY)
    assert target.object()["status"]["abort"] is True
    target.reconcile(NEVER_OURS, Extent.ALL, all_run(NEVER_OURS), deadline=60)


def test_a_rollout_paused_by_its_user(make_rollout: MakeTarget) -> None:
    target = make_rollout(steps=STEPS)
    target.patch({"spec": {"paused": True}})
    problem = target.observe().problem
    assert problem is not None
    assert problem.reason is TargetProblem.PAUSED_BY_USER
    assert "kubectl argo rollouts promote chat" in problem.message


def test_blue_green_is_refused(make_target: MakeTarget) -> None:
    def blue_green(manifest: dict[str, Any]) -> dict[str, Any]:
        strategy = {"blueGreen": {"activeService": "chat"}}
        return {**manifest, "spec": {**manifest["spec"], "strategy": strategy}}

    target = make_target(kind=rollout, standing=False, wrap=blue_green)
    problem = target.observe().problem
    assert problem is not None
    assert problem.reason is TargetProblem.UNSUITABLE_STRATEGY
    assert "use the canary strategy" in problem.message


def test_our_value_undone_by_somebody_is_theirs(make_rollout: MakeTarget) -> None:
    target = make_rollout(steps=STEPS)
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM), deadline=60)
    theirs = '{"method":"suffix"}'
    noted = {"annotations": {"specpilot.io/speculative-config": theirs}}
    target.patch({"spec": {"template": {"metadata": noted}}})
    target.carry_out(NGRAM, Extent.CANARY)
    target.carry_out(NEVER_OURS, Extent.ALL)
    spec = target.object()["spec"]
    assert spec["template"]["metadata"] == {"labels": {"app": "chat"}, **noted}
    assert "paused" not in spec
    assert target.observe().declared == Declared(setting="unrecognised", config=theirs)
