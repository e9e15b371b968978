"""The main job on two servers: drafts that are rejected switch speculation off, with a canary.

The pieces are those of `specpilot demo-vllm`; its last step, the probe, is left to the demo. The
simulator starts in no time and its figures hardly vary, so it is not looked at for as long.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from scripts.engine import install
from specpilot.cli.demo.backstage import backstage
from specpilot.cli.demo_vllm.engine import MODEL, REPLICAS, Engine, installed
from specpilot.cli.demo_vllm.scene import documents
from specpilot.cli.demo_vllm.story import STEPS, Moment, perform
from specpilot.domain.changes import Phase
from tests.engine.servers import Subject

pytestmark = pytest.mark.timeout(2700)


@pytest.fixture
def steered(subject: Subject) -> Engine:
    if subject.name == "engine":
        return installed(install.install_dir())
    return Engine(
        command=(
            *(sys.executable, "-m", "specpilot.sim", "serve", MODEL),
            *("--sim-version", install.VERSION, "--sim-profile", "demo"),
            *("--shutdown-timeout", "30"),
        ),
        version=install.VERSION,
        environment=[{}] * REPLICAS,
    )


def sooner(text: str) -> str:
    """The demo's documents with its times cut; what is asked for within them stays."""
    *others, policy = yaml.safe_load_all(text)
    spec = policy["spec"]
    spec["telemetry"] |= {"window": "8s", "warmUp": "2s"}
    spec["rollout"]["canary"] |= {"analysis": "16s"}
    spec["rollout"]["watch"] = "8s"
    return yaml.safe_dump_all([*others, policy], sort_keys=False)


def test_rejected_drafts_switch_speculation_off(
    subject: Subject, steered: Engine, tmp_path: Path
) -> None:
    def applied(webhook: str) -> str:
        text = documents(steered, webhook=webhook)
        return text if subject.name == "engine" else sooner(text)

    moments: list[Moment] = []
    with backstage(applied, name="flip", parent=tmp_path) as stage:
        outcome = perform(stage, steered, steps=STEPS[:2], within=2400, show=moments.append)

    last = moments[-1].watched
    assert outcome.missing() == ["a probe switched it on again"], last
    (change,) = outcome.recorded.succeeded
    assert (change.origin.setting, change.wanted.setting) == ("ngram", "off")
    (asked,) = (e for e in change.evidence if e.signal == "mean_acceptance_length")
    assert asked.value < asked.threshold
    steps = [r.draft.action for r in outcome.recorded.records if r.draft.change_id == change.id]
    assert steps == ["Canary", "Analysing", "Promoting", "Watching", "Succeeded"]
    # On cores that others use, a first try may break the guardrail; then it must have been undone.
    others = [c for c in outcome.recorded.changes if c.id != change.id]
    assert {c.phase for c in others} <= {Phase.ROLLED_BACK}, [c.message for c in others]
    assert all("off" in words for words in last.replicas)
    assert last.reading("mean_acceptance_length") is None, "nothing drafts any more"
