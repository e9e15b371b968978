"""A flip through the container's own arguments: what the user wrote is changed and given back."""

import json
from typing import Any

import pytest

from specpilot.domain.changes import Extent
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Channel, TargetProblem
from specpilot.fleets.kubernetes.request import JSON_PATCH, Request
from tests.cluster.cluster import Cluster
from tests.cluster.manifests import PORT, WORKLOAD, stateful_set
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

OLD_IMAGE = "arguments.example/vllm/vllm-openai:v0.8.1"
"""Before 0.10.1 an empty value does not start: no annotation can switch such an engine off."""

NEW_IMAGE = "arguments.example/vllm/vllm-openai:v0.32.0"
LEGACY = Declared(
    setting="ngram",
    config=json.dumps(
        {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4},
        separators=(",", ":"),
    ),
    change_id="chat-1",
)


@pytest.fixture(autouse=True)
def images(cluster: Cluster) -> None:
    cluster.images.add("arguments.example/vllm/vllm-openai:", entrypoint=WORKLOAD)


def unwired(*args: str, image: str = NEW_IMAGE) -> Manifest:
    """The engine's image, with arguments alone."""
    return engine(
        *args,
        wired=False,
        image=image,
        ports=[{"name": "http", "containerPort": PORT}],
        readinessProbe={"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
    )


def lists(target: Target) -> list[str]:
    [container] = target.object()["spec"]["template"]["spec"]["containers"]
    found: list[str] = container["args"]
    return found


@pytest.fixture
def make_unwired(make_target: MakeTarget) -> MakeTarget:
    def make(*args: str, image: str = NEW_IMAGE, **options: Any) -> Target:
        return make_target(unwired(*args, image=image), channel=Channel.ARGS, **options)

    return make


def test_canary_promote_and_back_to_the_letter(make_unwired: MakeTarget) -> None:
    target = make_unwired("--model", "m", "--seed=1")
    rest = target.observe()
    assert rest.problem is None
    assert rest.channel.startswith("Args: ")
    assert rest.all_run(NEVER_OURS)
    before, pods = target.object(), target.pods()

    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    assert state.user_template == rest.user_template, "our own argument is no edit"
    assert lists(target) == [
        "--model",
        "m",
        "--seed=1",
        f"--speculative-config={NGRAM.config}",
    ]
    assert len(state.arm(NGRAM)) == 1
    assert len(state.arm(NEVER_OURS)) == 3
    [canary] = state.arm(NGRAM)
    assert arguments(state)[canary.id][-1] == f"--speculative-config={NGRAM.config}"

    target.reconcile(NEVER_OURS, Extent.ALL, all_run(NEVER_OURS))
    assert target.object()["spec"] == before["spec"]
    assert target.pods() == pods, "the three old pods served all along"
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=60)
    target.reconcile(OFF_AGAIN, Extent.CANARY, held(OFF_AGAIN))
    assert lists(target) == ["--model", "m", "--seed=1"]
    target.reconcile(OFF_AGAIN, Extent.ALL, all_run(OFF_AGAIN), deadline=60)


def test_a_setting_in_the_users_own_notation_comes_back_to_the_letter(
    make_unwired: MakeTarget,
) -> None:
    own = [
        "--model",
        "m",
        "--speculative_config",
        '{"method": "ngram",  "num_speculative_tokens": 2}',
    ]
    target = make_unwired(*own)
    origin = target.observe().declared
    assert origin == Declared(
        setting="unrecognised", config='{"method":"ngram","num_speculative_tokens":2}'
    )
    pods = target.pods()
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    assert lists(target) == ["--model", "m", f"--speculative-config={NGRAM.config}"]
    target.reconcile(origin, Extent.ALL, all_run(origin))
    assert lists(target) == own
    assert target.pods() == pods


def test_an_engine_from_before_the_json_flag(make_unwired: MakeTarget) -> None:
    target = make_unwired("--model", "m", image=OLD_IMAGE)
    assert target.observe().engine_version == "0.8.1"
    target.reconcile(LEGACY, Extent.CANARY, held(LEGACY))
    assert lists(target) == [
        "--model",
        "m",
        "--speculative-model",
        "[ngram]",
        "--num-speculative-tokens",
        "4",
        "--ngram-prompt-lookup-max",
        "4",
    ]
    target.reconcile(LEGACY, Extent.ALL, all_run(LEGACY), deadline=60)
    target.reconcile(NEVER_OURS, Extent.ALL, all_run(NEVER_OURS), deadline=60)
    assert lists(target) == ["--model", "m"]


def test_a_stateful_set(make_unwired: MakeTarget) -> None:
    target = make_unwired("--model", "m", kind=stateful_set)
    before = target.object()
    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    assert [r.id for r in state.arm(NGRAM)] == ["chat-2"]
    target.reconcile(NEVER_OURS, Extent.ALL, all_run(NEVER_OURS), deadline=60)
    assert target.object()["spec"] == before["spec"]


def test_who_writes_the_arguments_in_between_wins(make_unwired: MakeTarget) -> None:
    """The list that a patch rests on is tested in the patch itself."""
    target = make_unwired("--model", "m")
    send = target.fleet._api.send
    edits: list[None] = []

    def edited_in_between(request: Request, **options: Any) -> Manifest:
        if request.content_type == JSON_PATCH and not edits:
            edits.append(None)
            target.apply(user_manifest(target, "--model", "other"))
        return send(request, **options)

    target.fleet._api.send = edited_in_between  # type: ignore[method-assign]
    target.carry_out(NGRAM, Extent.CANARY)
    assert edits, "the patch was on its way"
    assert lists(target) == ["--model", "other"], "nothing half-applied"
    assert "annotations" not in target.object()["spec"]["template"]["metadata"]
    assert "paused" not in target.object()["spec"]
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    assert lists(target) == ["--model", "other", f"--speculative-config={NGRAM.config}"]


def user_manifest(target: Target, *args: str) -> Manifest:
    """What the user would apply again to have other arguments."""
    found = target.object()
    spec = {key: found["spec"][key] for key in ("replicas", "selector", "strategy")}
    labels = {"labels": {"app": "chat"}}
    template = {"metadata": labels, "spec": {"containers": [unwired(*args)]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat"},
        "spec": {**spec, "template": template},
    }


def test_a_user_who_applies_the_manifest_again_takes_the_setting_back(
    make_unwired: MakeTarget,
) -> None:
    """argo-cd#9678, #2913: a list is not shared with a GitOps tool, so it is not fought for."""
    target = make_unwired("--model", "m")
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    target.apply(user_manifest(target, "--model", "m"))
    assert target.observe().declared == NEVER_OURS
    target.carry_out(NGRAM, Extent.CANARY)
    assert lists(target) == ["--model", "m"], "a contest is not ours to win"
    target.carry_out(NEVER_OURS, Extent.ALL)
    spec = target.object()["spec"]
    assert "paused" not in spec
    assert "annotations" not in spec["template"]["metadata"]
    target.until(all_run(NEVER_OURS))


def test_a_crash_between_two_writes_is_made_good(make_unwired: MakeTarget) -> None:
    target = make_unwired("--model", "m")
    send = target.fleet._api.send

    def once(request: Request, **options: Any) -> Manifest:
        answer = send(request, **options)
        if request.method == "PATCH":
            raise InterruptedError
        return answer

    target.fleet._api.send = once  # type: ignore[method-assign]
    with pytest.raises(InterruptedError):
        target.carry_out(NGRAM, Extent.CANARY)
    target.fleet._api.send = send  # type: ignore[method-assign]
    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    assert state.arm(NEVER_OURS)
    target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=60)


def test_auto_never_rewrites_arguments(make_target: MakeTarget) -> None:
    target = make_target(unwired("--model", "m"))
    problem = target.observe().problem
    assert problem is not None
    assert problem.reason is TargetProblem.NOT_WIRED
