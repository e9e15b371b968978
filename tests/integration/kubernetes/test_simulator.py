"""The whole way: annotation, downward API, argument, and an engine that then speculates."""

import sys
from pathlib import Path

import httpx
import pytest

from specpilot.domain.changes import Extent
from specpilot.fleets.kubernetes import Api, KubernetesFleet, ask_engine
from specpilot.fleets.kubernetes.wiring import ARGUMENT, FIELD_PATH, VARIABLE
from tests.cluster.cluster import Cluster
from tests.cluster.manifests import field
from tests.integration.kubernetes.conftest import NEVER_OURS, NGRAM, MakeTarget, Manifest

pytestmark = pytest.mark.cluster

SOURCE = Path(__file__).parents[3] / "operator"


def simulated(image: str) -> Manifest:
    return {
        "name": "vllm",
        "image": image,
        "args": ["serve", "m", "--host", "$(POD_IP)", "--port", "8080", ARGUMENT],
        "env": [field("POD_IP", "status.podIP"), field(VARIABLE, FIELD_PATH)],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
    }


def speculates(endpoint: str) -> bool:
    metrics = httpx.get(f"{endpoint}/metrics", trust_env=False).text
    return "vllm:spec_decode_num_drafts_total" in metrics


def test_a_flip_reaches_the_engine(make_target: MakeTarget, cluster: Cluster, api: Api) -> None:
    cluster.images.add(
        "acme/llm:",
        entrypoint=[sys.executable, "-m", "specpilot.sim"],
        environment={"PYTHONPATH": str(SOURCE)},
    )
    target = make_target(simulated("acme/llm:7"), replicas=2)
    rest = target.observe()
    assert rest.problem is None
    assert rest.engine_version == "", "a house's own image does not say"
    asking = KubernetesFleet(api, version=ask_engine)
    assert asking.observe(target.ref).engine_version == "0.32.0", "its engine does"
    assert not any(speculates(r.endpoint) for r in rest.live())
    held = target.reconcile(
        NGRAM, Extent.CANARY, lambda s: s.halted and any(r.ready for r in s.arm(NGRAM)), deadline=60
    )
    [canary] = held.arm(NGRAM)
    assert {r.id: speculates(r.endpoint) for r in held.live()} == {
        r.id: r.id == canary.id for r in held.live()
    }
    done = target.reconcile(NGRAM, Extent.ALL, lambda s: s.all_run(NGRAM), deadline=60)
    assert all(speculates(r.endpoint) for r in done.live())
    back = target.reconcile(NEVER_OURS, Extent.ALL, lambda s: s.all_run(NEVER_OURS), deadline=60)
    assert not any(speculates(r.endpoint) for r in back.live())
