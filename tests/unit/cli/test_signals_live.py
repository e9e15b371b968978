"""`specpilot signals --policy`, with the fleet and the source played by the test."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from specpilot.cli import live
from specpilot.cli import signals as command
from specpilot.cli.main import app
from specpilot.domain.engine_run import EngineRun
from specpilot.domain.policy import Policy, PolicyRef
from specpilot.domain.ports import Ask, FleetError
from specpilot.domain.settings import Declared, Setting
from specpilot.domain.signals import SIGNALS
from specpilot.domain.targets import Replica, TargetRef, TargetState
from specpilot.engines import render
from specpilot.telemetry.names import Gauge
from specpilot.telemetry.windows import Arm
from tests import recordings
from tests.unit.fleets_kubernetes.fakes import (
    Reply,
    Seen,
    deployment,
    engine,
    pod,
    replica_set,
    serve,
)
from tests.unit.telemetry.builders import arm, window

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
REF = TargetRef(kind="Deployment", namespace="serving", name="llm")
NGRAM = Setting(name="ngram", method="ngram", num_speculative_tokens=4)
POLICY = Policy(
    ref=PolicyRef(namespace="serving", name="chat", uid="u"),
    target=REF,
    rule_set="r",
    settings={"off": Setting(name="off"), "ngram": NGRAM},
    window=timedelta(minutes=2),
)
ON = Declared(setting="ngram", config=render(NGRAM, version="0.32.0").config, change_id="c")


@dataclass
class Clock:
    at: datetime = NOW

    def now(self) -> datetime:
        return self.at


@dataclass
class Source:
    """Notes what it is told and asked."""

    asks: list[Sequence[Ask]] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    lag_s: float = 0.0

    def track(self, replicas: Sequence[Replica]) -> None:
        self.order.append(f"track {len(replicas)}")

    def sample(self) -> None:
        self.order.append("sample")

    def windows(self, asks: Sequence[Ask], *, deadline_s: float) -> Mapping[str, Arm]:
        assert deadline_s == 0.0, "memory answers at once"
        self.asks.append(asks)
        self.order.append("ask")
        return {ask.key: self._arm(ask) for ask in asks}

    def _arm(self, ask: Ask) -> Arm:
        """As many requests run on each replica as are asked for together."""
        running = {Gauge.RUNNING: float(len(ask.replicas))}
        return arm(
            *(window(r.id, gauges=running, last=ask.end) for r in ask.replicas if r.ready),
            end=ask.end,
        )


def replica(name: str, declared: Declared, **fields: Any) -> Replica:
    return Replica(id=name, declared=declared, **{"ready": True, **fields})


STATE = TargetState(
    ref=REF,
    engine=EngineRun(version="0.32.0"),
    replicas=(
        replica("a", Declared()),
        replica("b", Declared(), ready=False, failure="CrashLoopBackOff: exit 1"),
        replica("c", ON),
        replica("gone", ON, terminating=True),
    ),
)


def measurement(source: Source, clock: Clock, **fields: Any) -> live.Measurement:
    return live.Measurement(
        policy=POLICY, observe=lambda: STATE, telemetry=source, clock=clock, **fields
    )


def test_arms_are_by_what_replicas_run_and_each_replica_is_asked_for_too() -> None:
    source, clock = Source(), Clock()
    it = measurement(source, clock)
    it.look()
    clock.at += timedelta(seconds=15)
    found = it.answer()
    assert {ask.key: [r.id for r in ask.replicas] for ask in source.asks[-1]} == {
        "arm/ngram": ["c"],
        "arm/off": ["a", "b"],
        "replica/a": ["a"],
        "replica/b": ["b"],
        "replica/c": ["c"],
    }
    assert {name: found.counts(name) for name in found.arms} == {"ngram": (1, 1), "off": (1, 2)}
    data = found.as_data(with_replicas=True)
    assert [each["setting"] for each in data["arms"]] == ["ngram", "off"]
    assert [r["id"] for r in data["replicas"]] == ["a", "b", "c"]
    assert list(data["arms"][0]["signals"]) == list(SIGNALS)
    assert "replicas" not in found.as_data(with_replicas=False)
    json.dumps(data, allow_nan=False)


def test_a_source_is_asked_before_it_samples() -> None:
    """It may fetch only what it was asked for."""
    source = Source()
    measurement(source, Clock()).look()
    assert source.order == ["track 3", "ask", "sample"]


@pytest.mark.parametrize(
    ("knows_past", "seconds", "length", "reason"),
    [
        (False, 15, 15, "a scrape knows nothing from before the first look"),
        (False, 600, 120, "and no more is asked than the policy's window"),
        (True, 15, 120, "Prometheus knows what was before"),
    ],
)
def test_the_window(knows_past: bool, seconds: int, length: int, reason: str) -> None:
    source, clock = Source(), Clock()
    it = measurement(source, clock, knows_past=knows_past)
    it.look()
    clock.at += timedelta(seconds=seconds)
    found = it.answer()
    assert found.window == timedelta(seconds=length), reason
    assert {ask.end - ask.start for ask in source.asks[-1]} == {found.window}


def test_a_person_sees_counts_failures_and_each_arm() -> None:
    it = measurement(Source(), Clock())
    it.look()
    console = Console(width=120, file=io.StringIO())
    console.print(command._page(it.answer(), with_replicas=True))
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "serving/chat, Deployment/serving/llm, vLLM 0.32.0" in shown
    assert "replicas: ngram 1 of 1 ready, off 1 of 2 ready" in shown
    assert "b: CrashLoopBackOff: exit 1" in shown
    assert "c (ngram)" in shown
    assert "NoData: kept by the operator and not measured here" in shown


def test_variables_of_other_commands_are_no_options_of_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPECPILOT_PROMETHEUS_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SPECPILOT_GPU_MATCHERS", "a='b'")
    page = tmp_path / "a.prom"
    page.write_bytes(recordings.series()[0].page)
    result = CliRunner().invoke(app, ["signals", "--recording", str(page), "--json"])
    assert result.exit_code == 0, result.output


# --- a cluster

SPEC = {
    "target": {"kind": "Deployment", "name": "chat"},
    "settings": [{"name": "ngram", "method": "ngram", "numSpeculativeTokens": 4}],
    "rules": {"ruleSet": "r"},
}


class Cluster:
    """An API server with one policy; the pod's engine answers at the same address."""

    def __init__(self) -> None:
        self.port = 0
        self.pages = iter([scrape.page for scrape in recordings.series()[8:]])
        self.looks_left = 1000

    def __call__(self, seen: Seen, reply: Reply) -> None:
        workload = deployment(replicas=1)
        kind = seen.path.rsplit("/", 2 if seen.path.endswith("/chat") else 1)[1]
        match kind:
            case "metrics":
                reply.json(next(self.pages))
            case "speculationpolicies" if seen.path.endswith("/chat"):
                meta = {"name": "chat", "namespace": "serving", "uid": "p", "generation": 1}
                reply.json(
                    {
                        "apiVersion": "specpilot.io/v1alpha1",
                        "kind": "SpeculationPolicy",
                        "metadata": meta,
                        "spec": SPEC,
                    }
                )
            case "deployments" if self.looks_left > 0:
                self.looks_left -= 1
                reply.json(workload)
            case "replicasets":
                reply.json({"metadata": {}, "items": [replica_set(workload, replicas=1)]})
            case "pods":
                listens = engine(args=["serve", "m", "--port", str(self.port)])
                reply.json({"metadata": {}, "items": [pod(container=listens, podIP="127.0.0.1")]})
            case _:
                reply.failure(404, "NotFound", f"there is no {seen.path}")


def test_a_policy_of_a_cluster_is_measured_by_scraping_its_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "EVERY_S", 0.2)
    cluster = Cluster()
    with serve(cluster) as server:
        cluster.port = int(server.url.rpartition(":")[2])
        monkeypatch.setattr(command, "connect", lambda **_: server.api())
        words = ["signals", "-p", "chat", "-n", "serving", "--json", "--replicas"]
        result = CliRunner().invoke(app, [*words, "--for", "1"])
        missing = CliRunner().invoke(app, ["signals", "-p", "other", "-n", "serving"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["policy"] == "serving/chat"
    assert found["target"] == "Deployment/serving/chat"
    assert found["engine"] == {"version": "0.32.0"}
    (arm,) = found["arms"]
    assert (arm["ready"], arm["replicas"]) == (1, 1)
    assert arm["signals"]["drafts"]["value"] > 0
    assert arm["signals"]["drafts"]["at"]
    assert [r["id"] for r in found["replicas"]] == ["chat-1"]
    assert missing.exit_code == 2
    assert "there is no SpeculationPolicy called other in namespace serving" in " ".join(
        missing.stderr.replace("│", " ").split()
    )


@pytest.mark.parametrize("as_json", [True, False])
def test_watching_goes_on_until_there_is_nothing_to_watch(
    monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    monkeypatch.setattr(command, "EVERY_S", 0.1)
    cluster = Cluster()
    cluster.looks_left = 4
    words = ["signals", "-p", "chat", "-n", "serving", "--watch", *(["--json"] if as_json else [])]
    with serve(cluster) as server:
        cluster.port = int(server.url.rpartition(":")[2])
        monkeypatch.setattr(command, "connect", lambda **_: server.api())
        result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert isinstance(result.exception, FleetError)
    assert "there is no Deployment chat" in str(result.exception)
    if as_json:
        answers = [json.loads(line) for line in result.stdout.splitlines()]
        drafts = [each["arms"][0]["signals"]["drafts"]["value"] for each in answers]
        assert len(drafts) == 4
        assert drafts[0] is None
        assert drafts[-1] > 0
    else:
        assert "off 1 of 1 ready" in result.stdout
