"""`specpilot signals --policy` finds the servers of a supervisor elsewhere, and measures them."""

import json
import threading

import httpx
import pytest
from typer.testing import CliRunner

from specpilot.cli.main import app
from specpilot.controller.applying import apply_documents
from specpilot.domain.changes import Extent
from specpilot.domain.settings import Declared, canonical_json
from specpilot.domain.signals import SIGNALS
from specpilot.domain.targets import TargetRef
from specpilot.fleets.local import running as seen_from_outside
from specpilot.resources import load
from specpilot.store import Store
from tests.integration.local.support import OFF, SystemClock, running
from tests.integration.local.test_simulator import engines

POLICY = """
apiVersion: specpilot.io/v1alpha1
kind: RuleSet
metadata: {name: r}
spec:
  rules: [{name: a, when: batch_size > 100, setting: "off"}]
---
apiVersion: specpilot.io/v1alpha1
kind: SpeculationPolicy
metadata: {name: chat}
spec:
  target: {kind: Local, name: chat}
  settings: [{name: ngram, method: ngram, numSpeculativeTokens: 4, extra: {prompt_lookup_max: 4}}]
  rules: {ruleSet: r}
"""
NGRAM = Declared(
    setting="ngram",
    config=canonical_json({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}),
    change_id="c1",
)


@pytest.fixture
def state(tmp_path):
    store = Store.open(f"sqlite:///{tmp_path / 'specpilot.sqlite'}")
    apply_documents(load(POLICY, source="test"), store=store, clock=SystemClock())
    store.close()
    return tmp_path


def signals(state, *words):
    return CliRunner().invoke(
        app,
        ["signals", "--policy", "chat", "--state", str(state), *words],
        env={"COLUMNS": "200"},
    )


def ask(url, *, end):
    """Keep one request in flight."""
    body = {"model": "model", "prompt": "[accept=0.7] say", "max_tokens": 24}
    with httpx.Client(timeout=60) as client:
        while not end.is_set():
            client.post(f"{url}/v1/completions", json=body).raise_for_status()


def test_a_canary_and_its_control_are_measured_apart(state):
    with running(engines(), state) as it:
        it.until(lambda s: s.all_run(OFF))
        it.intend(NGRAM, extent=Extent.CANARY)
        ready = it.until(
            lambda s: (
                len(s.arm(NGRAM)) == 1 and len(s.live()) == 2 and all(r.ready for r in s.live())
            )
        )
        end = threading.Event()
        clients = [
            threading.Thread(target=ask, args=(r.endpoint,), kwargs={"end": end})
            for r in ready.replicas
        ]
        for client in clients:
            client.start()
        try:
            outside = seen_from_outside(it.ref, state_dir=state)
            result = signals(state, "--for", "5", "--json", "--replicas")
            shown = signals(state, "--for", "1")
        finally:
            end.set()
            for client in clients:
                client.join()

    assert {r.endpoint: r.declared for r in outside.replicas} == {
        r.endpoint: r.declared for r in ready.replicas
    }
    assert {r.instance for r in outside.replicas} == {r.instance for r in ready.replicas}
    assert outside.engine_version == "0.32.0"
    assert outside.engine == ready.engine, "read off the processes as off the group"
    assert outside.engine.data_parallel == 1

    assert result.exit_code == 0, result.output
    assert "measuring 2 replicas of Local/local/chat for 5 s" in result.stderr
    found = json.loads(result.stdout)
    assert found["policy"] == "local/chat"
    assert found["engine"] == {"version": "0.32.0"}
    arms = {arm["setting"]: arm for arm in found["arms"]}
    assert set(arms) == {"ngram", "off"}
    for arm in arms.values():
        assert (arm["ready"], arm["replicas"]) == (1, 1)
        assert list(arm["signals"]) == list(SIGNALS)
        assert arm["signals"]["replicas_ready"]["value"] == 1
    speculating, plain = arms["ngram"]["signals"], arms["off"]["signals"]
    assert speculating["drafts"]["value"] > 0
    assert 0 < speculating["acceptance_rate"]["value"] <= 1
    assert plain["acceptance_rate"]["reason"] == "NotExported"
    assert plain["tokens_per_second"]["value"] > 0
    assert plain["batch_size"]["value"] == pytest.approx(1, abs=0.5)
    assert {r["id"]: r["setting"] for r in found["replicas"]} == {
        r.id: r.declared.setting or "off" for r in ready.replicas
    }
    assert "ngram 1 of 1 ready, off 1 of 1 ready" in shown.stdout
    assert "acceptance_rate" in shown.stdout


def test_nothing_runs(state):
    assert (
        seen_from_outside(
            TargetRef(kind="Local", namespace="local", name="chat"), state_dir=state
        ).replicas
        == ()
    )
    result = signals(state, "--for", "1")
    assert result.exit_code == 1
    assert "no replica of Local/local/chat runs" in str(result.exception)


def test_a_policy_that_is_not_there(state):
    result = CliRunner().invoke(app, ["signals", "--policy", "chaat", "--state", str(state)])
    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    assert "there is no SpeculationPolicy called chaat on this machine (there is chat)" in said
    assert "give its namespace with -n" in said
