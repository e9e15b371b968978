"""A flip on a real Deployment: held, finished, undone, and disturbed at each point."""

import threading

import pytest

from specpilot.domain.changes import Extent
from specpilot.domain.settings import Declared
from specpilot.fleets.kubernetes.workloads import WORKLOADS
from tests.integration.kubernetes.conftest import (
    NEVER_OURS,
    NGRAM,
    OFF_AGAIN,
    MakeTarget,
    Manifest,
    all_run,
    arguments,
    held,
    rolling_update,
)

pytestmark = pytest.mark.cluster


def test_at_rest(make_target: MakeTarget) -> None:
    state = make_target().observe()
    assert state.problem is None
    assert state.rolling == ""
    assert not state.halted
    assert state.can_add_replica
    assert state.desired_replicas == 3
    assert state.declared == NEVER_OURS
    assert state.all_run(NEVER_OURS)
    assert state.progress_deadline_s == 600
    for replica in state.replicas:
        assert replica.ready_since is not None
        assert replica.started_at is not None
        assert replica.ready_since >= replica.started_at
        assert replica.endpoint.startswith("http://127.")
        assert replica.endpoint.endswith(":8000")
        assert replica.node
        assert replica.failure == ""


def test_canary_then_promote(make_target: MakeTarget) -> None:
    target = make_target()
    old = target.pods()
    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    assert len(state.arm(NGRAM)) == 1
    assert len(state.arm(NEVER_OURS)) == 3, "maxUnavailable 0: nobody else was stopped"
    assert set(old) <= set(target.pods())
    [canary] = state.arm(NGRAM)
    for name, args in arguments(state).items():
        wanted = NGRAM.config if name == canary.id else ""
        assert args == [f"--speculative-config={wanted}"]

    before = target.pods()
    for _ in range(3):
        target.carry_out(NGRAM, Extent.CANARY)
    assert target.pods() == before, "carrying it out again changes nothing"

    done = target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM))
    assert not done.halted
    assert "paused" not in target.object()["spec"]
    assert {args[0] for args in arguments(done).values()} == {
        f"--speculative-config={NGRAM.config}"
    }


def test_undoing_a_canary_starts_no_pod_and_leaves_no_trace(make_target: MakeTarget) -> None:
    target = make_target()
    before, sets = target.object(), target.replica_sets()
    old = target.pods()
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    target.reconcile(NEVER_OURS, Extent.ALL, lambda s: s.all_run(NEVER_OURS) and len(s.live()) == 3)
    assert target.pods() == old, "the three old pods served all along"
    after = target.object()
    assert after["spec"] == before["spec"]
    [(name, count)] = [(n, c) for n, c in target.replica_sets().items() if c]
    assert sets == {name: count}
    managers = {entry["manager"] for entry in after["metadata"]["managedFields"]}
    assert "specpilot" not in managers, "nothing is owned any more"


def test_going_back_to_an_earlier_setting_of_ours_finds_its_replica_set(
    make_target: MakeTarget,
) -> None:
    target = make_target()
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM))
    pods, sets = target.pods(), set(target.replica_sets())
    target.reconcile(OFF_AGAIN, Extent.CANARY, held(OFF_AGAIN))
    target.reconcile(NGRAM, Extent.ALL, lambda s: s.all_run(NGRAM) and len(s.live()) == 3)
    assert target.pods() == pods
    assert set(target.replica_sets()) - sets, "the canary had a ReplicaSet of its own"
    state = target.observe()
    assert state.declared == NGRAM


def test_a_value_that_the_user_wrote_in_another_notation_is_restored_to_the_letter(
    make_target: MakeTarget,
) -> None:
    letters = '{"method": "ngram",   "num_speculative_tokens": 2}'
    key = "specpilot.io/speculative-config"
    target = make_target(annotations={key: letters})
    origin = target.observe().declared
    assert origin == Declared(
        setting="unrecognised", config='{"method":"ngram","num_speculative_tokens":2}'
    )
    pods = target.pods()
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    target.reconcile(origin, Extent.ALL, lambda s: s.all_run(origin) and len(s.live()) == 3)
    assert target.pods() == pods
    assert target.object()["spec"]["template"]["metadata"]["annotations"] == {key: letters}


def test_several_canaries_come_up_wave_by_wave(make_target: MakeTarget) -> None:
    target = make_target(replicas=4)
    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM, ready=2), canary_replicas=2)
    assert len(state.arm(NGRAM)) == 2
    assert sum(r.ready for r in state.live()) >= 4


def test_the_roll_is_held_before_the_strategy_runs_away_with_it(make_target: MakeTarget) -> None:
    """Surge and unavailable together let the controller start up to s + u pods at once."""
    target = make_target(replicas=8, strategy=rolling_update("25%", "25%"))
    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    assert len(state.arm(NGRAM)) <= 4
    assert sum(r.ready for r in state.arm(NEVER_OURS)) >= 6


def test_without_surge_one_of_several_makes_room(make_target: MakeTarget) -> None:
    target = make_target(strategy=rolling_update(0, 1))
    assert target.observe().can_add_replica
    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    assert len(state.arm(NGRAM)) == 1
    assert len(state.arm(NEVER_OURS)) == 2
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM))


def test_one_replica_has_no_control_arm(make_target: MakeTarget) -> None:
    """The controller retires the only old pod once its successor is available, paused or not."""
    target = make_target(replicas=1)
    state = target.reconcile(
        NGRAM, Extent.CANARY, lambda s: held(NGRAM)(s) and not s.arm(NEVER_OURS)
    )
    assert len(state.arm(NGRAM)) == 1
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM))


def test_recreate_replaces_all_at_once(make_target: MakeTarget) -> None:
    target = make_target(strategy={"type": "Recreate"})
    assert not target.observe().can_add_replica
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM, ready=3))
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM))


def test_an_edit_by_the_user_in_mid_canary_survives(make_target: MakeTarget) -> None:
    """Their new template and the old annotations, not paused: that is what an abort must yield."""
    target = make_target()
    base = target.observe().user_template
    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    assert state.user_template == base, "our own annotations are no edit"
    edit = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}}
    target.patch(edit)
    assert target.observe().user_template != base
    target.carry_out(NEVER_OURS, Extent.ALL)
    spec = target.object()["spec"]
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 7
    assert "annotations" not in spec["template"]["metadata"]
    assert "paused" not in spec
    done = target.until(lambda s: s.all_run(NEVER_OURS) and len(s.live()) == 3)
    assert done.user_template != base


def test_a_crash_between_the_two_writes_is_made_good(make_target: MakeTarget) -> None:
    """The annotations are there, the pause is not: the next call holds the roll where it is."""
    # So that the roll, which nothing holds yet, is not over before a busy machine makes the call.
    target = make_target(
        replicas=4, wrap=lambda it: {**it, "spec": {**it["spec"], "minReadySeconds": 10}}
    )
    annotations = {
        "specpilot.io/speculative-config": NGRAM.config,
        "specpilot.io/setting": NGRAM.setting,
        "specpilot.io/change-id": NGRAM.change_id,
    }
    target.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "chat"},
            "spec": {"template": {"metadata": {"annotations": annotations}}},
        },
        manager="specpilot",
    )
    target.carry_out(NGRAM, Extent.CANARY)
    state = target.until(held(NGRAM))
    assert len(state.arm(NGRAM)) < 4


def test_scaling_down_under_a_held_canary_does_not_lose_it(make_target: MakeTarget) -> None:
    target = make_target(replicas=4)
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    target.patch({"spec": {"replicas": 2}})
    state = target.reconcile(NGRAM, Extent.CANARY, lambda s: held(NGRAM)(s) and len(s.live()) <= 3)
    assert state.desired_replicas == 2
    assert state.arm(NGRAM)
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM))


def test_a_deleted_deployment_is_not_brought_back(make_target: MakeTarget) -> None:
    target = make_target()
    # Deleted between the fleet's look and its write, which only the uid in the apply can tell.
    live = target.fleet._live
    found = live.root(WORKLOADS["Deployment"], target.ref.namespace, target.ref.name)
    target.cluster.api.delete("apps/v1", "Deployment", name="chat", namespace=target.ref.namespace)
    live.root = lambda *_: found  # type: ignore[method-assign]
    target.carry_out(NGRAM, Extent.CANARY)
    assert not target.cluster.api.exists(
        "apps/v1", "Deployment", name="chat", namespace=target.ref.namespace
    )


def test_a_value_set_by_somebody_else_in_mid_flip_is_left_alone(make_target: MakeTarget) -> None:
    target = make_target()
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    theirs = '{"method":"suffix"}'
    contest = {"metadata": {"annotations": {"specpilot.io/speculative-config": theirs}}}
    target.patch({"spec": {"template": contest}})
    target.carry_out(NGRAM, Extent.CANARY)
    target.carry_out(NEVER_OURS, Extent.ALL)
    template = target.object()["spec"]["template"]
    assert template["metadata"]["annotations"] == {"specpilot.io/speculative-config": theirs}
    state = target.until(lambda s: not s.rolling)
    assert not state.halted
    assert state.declared.config == theirs


def test_nothing_but_our_four_fields_is_written(make_target: MakeTarget) -> None:
    """argo-cd#12967, kserve#3768, #4855, #2521: replicas and labels of others were reset."""
    target = make_target()

    def others(spec: Manifest) -> Manifest:
        spec = {**spec, "template": {**spec["template"]}}
        spec.pop("paused", None)
        metadata = dict(spec["template"]["metadata"])
        kept = {
            k: v
            for k, v in metadata.pop("annotations", {}).items()
            if not k.startswith("specpilot.io/")
        }
        spec["template"]["metadata"] = {**metadata, **({"annotations": kept} if kept else {})}
        return spec

    before = others(target.object()["spec"])
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    found = target.object()
    assert others(found["spec"]) == before
    owned = [e for e in found["metadata"]["managedFields"] if e["manager"] == "specpilot"]
    assert [e["fieldsV1"] for e in owned] == [
        {
            "f:spec": {
                "f:paused": {},
                "f:template": {
                    "f:metadata": {
                        "f:annotations": {
                            "f:specpilot.io/change-id": {},
                            "f:specpilot.io/setting": {},
                            "f:specpilot.io/speculative-config": {},
                        }
                    }
                },
            }
        }
    ]


def test_an_autoscaler_may_scale_all_the_while(make_target: MakeTarget) -> None:
    """argo-rollouts#2857, #3848, #5019: an autoscaler and a paused canary in a deadlock."""
    target = make_target()
    stop = threading.Event()

    def scale() -> None:
        count = 3
        while not stop.wait(0.5):
            count = 7 - count  # 3, 4, 3, 4 ...
            target.patch({"spec": {"replicas": count}})

    scaler = threading.Thread(target=scale)
    scaler.start()
    try:
        target.reconcile(NGRAM, Extent.CANARY, held(NGRAM), deadline=40)
    finally:
        stop.set()
        scaler.join()
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM))
    assert target.object()["spec"]["replicas"] == target.observe().desired_replicas
