"""How a target's engine is run, as the fleet reads it off templates, pods and owners' fields."""

from dataclasses import dataclass
from typing import Any

import pytest

from specpilot.domain.engine_run import EngineRun, Generation, ModelRunner
from specpilot.domain.targets import Channel, TargetRef
from specpilot.fleets.kubernetes.objects import slim_pod
from specpilot.fleets.kubernetes.running_engines import engine_run
from tests.unit.fleets_kubernetes.fakes import ARGUMENT, Object, deployment, engine, pod
from tests.unit.fleets_kubernetes.test_fleet import REF, family, observe, pods
from tests.unit.fleets_kubernetes.test_owners import (
    EVAL,
    USERS,
    channel_of,
    engine_pod,
    isvc,
    ray,
    view_of,
)

DEFAULT = {"generation": Generation.DEFAULT, "runner": ModelRunner.DEFAULT, "data_parallel": 1}


def ran(**how: Any) -> EngineRun:
    return EngineRun(version="0.32.0", **(DEFAULT | how))


@dataclass(frozen=True)
class Case:
    reason: str
    container: Object
    want: EngineRun


def with_env(*entries: Object, **changes: Any) -> Object:
    wired = engine(**changes)
    return {**wired, "env": [*wired["env"], *entries]}


CASES = [
    Case("wired, and nothing else said", engine(), ran()),
    Case("ranks", engine(args=["serve", "m", "-dp", "2", ARGUMENT]), ran(data_parallel=2)),
    Case("variables", with_env({"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}),
         ran(runner=ModelRunner.V1)),
    Case("a variable of another", with_env({"name": "N", "value": "1"},
                                           {"name": "VLLM_USE_V1", "value": "$(N)"}),
         ran(generation=Generation.V1)),
    Case("from a ConfigMap, which the operator does not read",
         with_env({"name": "VLLM_USE_V1", "valueFrom": {"configMapKeyRef": {"name": "c"}}}),
         ran(generation=Generation.UNKNOWN)),
    Case("all of a Secret may hold any name", engine(envFrom=[{"secretRef": {"name": "s"}}]),
         EngineRun(version="0.32.0")),
    Case("... but what the container says itself wins over it",
         with_env({"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "1"},
                  {"name": "VLLM_USE_V1", "value": "1"}, {"name": "VLLM_DP_SIZE", "value": "1"},
                  envFrom=[{"secretRef": {"name": "s"}}]),
         ran(generation=Generation.V1, runner=ModelRunner.V2)),
    Case("an address of the pod is no flag", engine(
        args=["serve", "m", "--host=$(POD_IP)", "--data-parallel-address", "$(POD_IP)", "-dp", "2",
              ARGUMENT],
        env=[*engine()["env"],
             {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]),
         ran(data_parallel=2)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_a_container(case: Case) -> None:
    assert engine_run(case.container, version="0.32.0") == case.want
    kept = slim_pod(pod(container=case.container))["spec"]["containers"][0]
    assert engine_run(kept, version="0.32.0") == case.want, "the caches keep what it takes"


@pytest.mark.parametrize("channel", [Channel.AUTO, Channel.ARGS])
def test_the_template_counts_and_not_the_pods_of_before(channel: Channel) -> None:
    wired = [ARGUMENT] if channel is Channel.AUTO else []
    found = deployment(engine(args=["serve", "m", "-dp", "2", *wired]))
    ref = TargetRef(kind=REF.kind, namespace=REF.namespace, name=REF.name, channel=channel)
    state = observe(family(found, None, *pods()), ref=ref)
    assert state.engine == ran(data_parallel=2)


def test_a_version_that_the_tables_cannot_place_hides_nothing_else() -> None:
    found = engine_run(engine(args=["serve", "m", "-dp", "2", ARGUMENT]), version="house-7")
    assert (found.version, found.data_parallel) == ("house-7", 2)


OWNERS = [
    (isvc(), engine_pod("kserve-container", "python", "-m",
                        "vllm.entrypoints.openai.api_server", "-dp", "2"),
     ran(data_parallel=2), "by the pod that its controller made"),
    (USERS["LLMInferenceService"],
     engine_pod("main", "/bin/bash", "-c", EVAL, env=[
         {"name": "VLLM_ADDITIONAL_ARGS", "value": "--data-parallel-size 2"}]),
     ran(data_parallel=2), "by what eval makes of it"),
    (USERS["DynamoGraphDeployment"],
     engine_pod("main", "python3", "-m", "dynamo.vllm", "--data-parallel-size", "4"),
     ran(data_parallel=4), "its own entry point"),
    (ray(), engine_pod("ray-head", "ray", "start", "--head"),
     EngineRun(version="0.32.0", data_parallel=1), "nothing in engine_kwargs"),
    (ray("        data_parallel_size: 2\n"), engine_pod("ray-head", "ray", "start", "--head"),
     EngineRun(version="0.32.0", data_parallel=2), "by engine_kwargs, not by what starts Ray"),
    (ray("        data_parallel_size: many\n"), engine_pod("ray-head", "ray", "start", "--head"),
     EngineRun(version="0.32.0"), "no number"),
]  # fmt: skip


@pytest.mark.parametrize(("obj", "found", "want", "reason"), OWNERS)
def test_owners(obj: Object, found: Object, want: EngineRun, reason: str) -> None:
    view = view_of(obj, found)
    container = found["spec"]["containers"][0]
    assert channel_of(obj).engine_run(view, container) == want, reason
