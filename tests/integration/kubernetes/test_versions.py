"""Every setting on every kind of engine: it takes effect on each pod, or no pod is touched.

Real Deployments of simulated engines, from the last with V0's own flags to the newest. What the
table of engine knowledge says is put to the engine's own word after the roll; and while it rolls
nobody may miss a replica that the strategy promises.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from specpilot.domain.changes import Extent
from specpilot.domain.settings import OFF, Declared, Setting
from specpilot.domain.targets import Channel
from specpilot.engines import render, render_for
from tests.cluster.cluster import Cluster
from tests.cluster.manifests import PORT
from tests.integration.kubernetes.conftest import (
    MakeTarget,
    Manifest,
    Target,
    all_run,
    engine,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

SOURCE = Path(__file__).parents[3] / "operator"
REPLICAS = 2
IMAGE = "mirror.example/vllm/vllm-openai"
"""Other tests of this cluster run something else as `vllm/vllm-openai`."""
SCHEDULE = [[1, 8, 4], [9, 256, 0]]


def setting(name: str, method: str, **more: Any) -> Setting:
    return Setting(name=name, method=method, num_speculative_tokens=4, **more)


SETTINGS = (
    setting("ngram", "ngram", extra={"prompt_lookup_max": 4}),
    setting("draft", "draft_model", model="org/draft"),
    setting("eagle3", "eagle3", model="org/head"),
    setting("limited", "ngram", disable_above_batch_size=32, extra={"prompt_lookup_max": 4}),
    setting(
        "scheduled",
        "ngram",
        extra={"num_speculative_tokens_per_batch_size": SCHEDULE, "prompt_lookup_max": 4},
    ),
    OFF,
)

RUNS = {
    # What runs, in the order of SETTINGS; the others are refused. From the releases themselves.
    "0.8.2": ("ngram", "draft", "limited", "off"),
    "0.9.2": ("ngram", "draft", "eagle3", "limited", "off"),
    "0.10.2": ("ngram", "eagle3", "limited", "off"),
    "0.16.0": ("ngram", "draft", "eagle3", "limited", "off"),
    "0.17.0": ("ngram", "draft", "eagle3", "limited", "off"),
    "0.24.0": ("ngram", "draft", "eagle3", "limited", "scheduled", "off"),
    "0.32.0": ("ngram", "draft", "eagle3", "limited", "scheduled", "off"),
    "0.33.0": ("ngram", "draft", "eagle3", "limited", "scheduled", "off"),
}


def simulated(version: str, *arguments: str, wired: bool, env: Sequence[Manifest] = ()) -> Manifest:
    found = engine(
        "m",
        "--host=$(POD_IP)",
        f"--port={PORT}",
        *arguments,
        wired=wired,
        image=f"{IMAGE}:v{version}",
        ports=[{"name": "http", "containerPort": PORT}],
        readinessProbe={"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
    )
    return {**found, "env": [*found["env"], *env]}


def told(endpoint: str) -> dict[str, Any] | None:
    """What an engine says its speculative config is; None is off."""
    answer = httpx.get(f"{endpoint}/server_info", trust_env=False, timeout=30)
    found: dict[str, Any] | None = answer.json()["vllm_config"]["speculative_config"]
    return found


@dataclass
class Ready:
    """The fewest ready replicas that were seen."""

    fewest: int = REPLICAS


@contextmanager
def watched(target: Target) -> Iterator[Ready]:
    seen, stop = Ready(), threading.Event()

    def look() -> None:
        while not stop.wait(0.2):
            seen.fewest = min(seen.fewest, sum(r.ready for r in target.observe().replicas))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()


def publish(cluster: Cluster, version: str) -> None:
    """Make a release's image known to the nodes."""
    cluster.images.add(
        f"{IMAGE}:v{version}",
        entrypoint=[sys.executable, "-m", "specpilot.sim", "serve"],
        environment={
            "PYTHONPATH": str(SOURCE),
            "SPECPILOT_SIM_ARGS": f"--sim-version {version}",
            "VLLM_SERVER_DEV_MODE": "1",
        },
    )


@pytest.mark.parametrize("version", RUNS)
def test_it_takes_effect_on_every_pod_or_no_pod_is_touched(
    version: str, make_target: MakeTarget, cluster: Cluster, record_property: Any
) -> None:
    publish(cluster, version)
    wired = version not in {"0.8.2", "0.9.2"}  # before 0.10.1 an empty value does not start
    channel = Channel.AUTO if wired else Channel.ARGS
    target = make_target(simulated(version, wired=wired), replicas=REPLICAS, channel=channel)
    rest = target.observe()
    assert (rest.problem, rest.engine_version) == (None, version)
    ran = []
    for number, wanted in enumerate(SETTINGS):
        rendered = render(wanted, version=target.observe().engine_version)
        before = target.pods()
        if rendered.refused:
            assert target.pods() == before
            record_property("version run", (version, wanted.name, "refused", rendered.refused))
            continue
        ran.append(wanted.name)
        declared = Declared(setting=wanted.name, config=rendered.config, change_id=f"chat-{number}")
        began = time.monotonic()
        with watched(target) as ready:
            state = target.reconcile(declared, Extent.ALL, all_run(declared), deadline=120)
        words = {json.dumps(told(r.endpoint), sort_keys=True) for r in state.live()}
        assert len(words) == 1, "every pod runs the same"
        effective = json.loads(words.pop())
        assert ready.fewest >= REPLICAS, "maxUnavailable is 0"
        assert (effective or {}).items() >= json.loads(rendered.effective or "{}").items()
        assert (effective is None) == wanted.is_off
        took = f"{time.monotonic() - began:.0f} s, never fewer than {ready.fewest} ready"
        record_property("version run", (version, wanted.name, rendered.config or "off", took))
    assert tuple(ran) == RUNS[version]


@dataclass(frozen=True)
class Run:
    reason: str
    version: str
    arguments: tuple[str, ...]
    env: tuple[Manifest, ...]
    limit: dict[str, Any]
    """What the engine is told of a limit of 32; empty where a rule keeps it."""


LIMITED = setting("limited", "ngram", disable_above_batch_size=32, extra={"prompt_lookup_max": 4})
V0 = {"name": "VLLM_USE_V1", "value": "0"}
V1 = {"name": "VLLM_USE_V1", "value": "1"}
FROM_ELSEWHERE = {
    "name": "VLLM_USE_V2_MODEL_RUNNER",
    "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}},
}
FOLLOWED = {"num_speculative_tokens_per_batch_size": [[1, 32, 4], [33, 1_000_000, 0]]}

HOW = [
    Run("one rank: a schedule", "0.24.0", (), (), FOLLOWED),
    Run("two ranks: a rule", "0.24.0", ("--data-parallel-size", "2"), (), {}),
    Run("a runner that is not known: a rule", "0.24.0", (), (FROM_ELSEWHERE,), {}),
    Run("V0: its key", "0.9.1", (), (V0,), {"disable_by_batch_size": 33}),
    Run("V1: a rule", "0.9.1", (), (V1,), {}),
]


@pytest.mark.parametrize("run", HOW, ids=lambda run: run.reason)
def test_a_limit_is_told_to_an_engine_that_keeps_it_as_it_is_run(
    run: Run, make_target: MakeTarget, cluster: Cluster
) -> None:
    publish(cluster, run.version)
    wired = run.version != "0.9.1"
    target = make_target(
        simulated(run.version, *run.arguments, wired=wired, env=run.env),
        replicas=1,
        channel=Channel.AUTO if wired else Channel.ARGS,
    )
    found = target.observe().engine
    rendered = render_for(LIMITED, found)
    assert (rendered.guard is None) == bool(run.limit), found
    declared = Declared(setting="limited", config=rendered.config, change_id="chat-1")
    state = target.reconcile(declared, Extent.ALL, all_run(declared), deadline=60)
    assert state.engine == found, "what we write does not change how it is run"
    [replica] = state.live()
    heard = told(replica.endpoint) or {}
    assert {key: heard.get(key) for key in run.limit} == run.limit
    keepers = {"disable_by_batch_size", "num_speculative_tokens_per_batch_size"}
    assert not {key for key in keepers - run.limit.keys() if heard.get(key)}
