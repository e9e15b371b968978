"""A target's past out of Prometheus, and `rules replay` over it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specpilot.cli.main import app
from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import TargetRef
from specpilot.telemetry.connection import PrometheusError, PrometheusServer
from specpilot.telemetry.past import PastMoment, PrometheusPast, pods_of
from specpilot.telemetry.promql import State
from tests.integration.telemetry.servers import Answer, Seen, Server, serving

START = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TARGET = TargetRef(kind="Deployment", namespace="prod", name="chat")
POD, LATER, FOREIGN = "chat-5d8f9c7b6-x2x4z", "chat-5d8f9c7b6-b7b9d", "chat-big-5d8f9c7b6-x2x4z"

Element = tuple[dict[str, str], float]


def vector(elements: list[Element]) -> Answer:
    result = [{"metric": metric, "value": [0, str(value)]} for metric, value in elements]
    body = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return Answer(json.dumps(body).encode(), content_type="application/json")


@dataclass
class Past:
    """Keeps the series of some pods: a draft a second with 1.5 of 4 tokens accepted.

    Attributes:
        pods: Since when there is each, in minutes after the start.
        batch: Running requests of each pod at a minute after the start.
        broken: Whether a query at a minute is answered with an error.
    """

    pods: dict[str, float] = field(default_factory=lambda: {POD: -600.0, FOREIGN: -600.0})
    batch: Callable[[float], float] = lambda minute: 40.0 if 10 <= minute < 40 else 2.0
    broken: Callable[[str, float], bool] | None = None
    speculates: bool = True

    def __call__(self, request: Seen) -> Answer:
        query, at = request.asked["query"], float(request.asked["time"])
        minute = (at - START.timestamp()) / 60
        if self.broken is not None and self.broken(query, minute):
            return Answer(b"out of order", status=422)
        wanted = re.search(r'pod=~"([^"]*)"', query)
        assert wanted is not None, f"all pods of the namespace are asked for: {query}"
        pattern = json.loads(f'"{wanted[1]}"')
        return vector(
            [
                ({"namespace": "prod", "pod": pod} | labels, value)
                for pod, since in self.pods.items()
                if minute >= since and re.fullmatch(pattern, pod)
                for labels, value in self._of_pod(query, at, minute)
            ]
        )

    def _of_pod(self, query: str, at: float, minute: float) -> Iterator[Element]:
        if State.LIVE in query:
            yield {"job": "vllm", "series": State.LIVE}, at
        elif "avg_over_time" in query:
            yield {"series": "num_requests_running"}, self.batch(minute)
            yield {"series": "num_requests_waiting"}, 0.0
        elif "_bucket" not in query:
            since = at - START.timestamp() + 1e6
            yield {"__name__": "vllm:generation_tokens_total"}, 100 * since
            if self.speculates:
                yield {"__name__": "vllm:spec_decode_num_drafts_total"}, 10 * since
                yield {"__name__": "vllm:spec_decode_num_draft_tokens_total"}, 40 * since
                yield {"__name__": "vllm:spec_decode_num_accepted_tokens_total"}, 5 * since


@pytest.fixture
def past() -> Past:
    return Past()


@pytest.fixture
def server(past: Past) -> Iterator[Server]:
    with serving(past) as server:
        yield server


def walk(server: Server, *, minutes: int = 12, **options: Any) -> list[PastMoment]:
    given = {"target": TARGET, "window": 5 * MINUTE, "step": MINUTE, **options}
    one = PrometheusPast(server=PrometheusServer(url=server.url), **given)
    return list(one.walk(start=START, end=START + minutes * MINUTE))


@pytest.mark.parametrize(
    ("pod", "belongs"),
    [
        (POD, True),
        ("chat-7c9d-z6q8w", True),
        (FOREIGN, False),
        ("chat-0", False),
        ("webchat-5d8f9c7b6-x2x4z", False),
    ],
)
def test_pods_of_a_deployment_are_told_by_their_names(pod: str, belongs: bool) -> None:
    assert bool(re.fullmatch(pods_of(TARGET), pod)) is belongs


def test_every_step_has_the_readings_of_its_window(server: Server) -> None:
    moments = walk(server)
    assert [m.at for m in moments] == [START + minute * MINUTE for minute in range(13)]
    assert {m.replicas for m in moments} == {1}, "a pod of chat-big was taken for one of chat"
    for moment in moments[1:]:
        assert moment.readings.value("mean_acceptance_length") == pytest.approx(1.5)
    drafts = [m.readings.value("drafts") for m in moments]
    assert drafts[6:] == [pytest.approx(3000)] * 7, "ten a second for five minutes"
    assert moments[9].readings.value("batch_size") == pytest.approx(2.0)


def test_a_pod_counts_from_when_it_came(past: Past, server: Server) -> None:
    past.pods[LATER] = 4
    moments = walk(server)
    assert [m.replicas for m in moments] == [1] * 4 + [2] * 9
    assert moments[12].readings.value("drafts") == pytest.approx(6000)


def test_names_can_be_told(past: Past, server: Server) -> None:
    past.pods = {"odd-0": -600}
    assert {m.replicas for m in walk(server)} == {0}
    assert {m.replicas for m in walk(server, pods="odd-[0-9]+")} == {1}


def test_looks_that_fail_make_it_unknown_until_one_succeeds(past: Past, server: Server) -> None:
    past.broken = lambda query, minute: 2 <= minute < 7 and "spec_decode" in query
    moments = walk(server)
    assert not moments[6].readings["batch_size"].known, "the newest look is five minutes old"
    assert all(m.readings["batch_size"].known for m in moments[7:])
    assert moments[10].readings.value("drafts") == pytest.approx(1800), "from 7 to 10"


def test_without_knowing_the_replicas_there_is_an_error(past: Past, server: Server) -> None:
    past.broken = lambda query, minute: State.LIVE in query and minute == 6
    with pytest.raises(PrometheusError, match="out of order"):
        walk(server)


def test_off_is_seen_to_be_off(past: Past, server: Server) -> None:
    past.speculates = False
    assert walk(server)[5].readings["drafts"].reason is UnknownReason.NOT_EXPORTED


# --- the command

POLICY = """\
apiVersion: specpilot.io/v1alpha1
kind: SpeculationPolicy
metadata: {name: chat, namespace: prod}
spec:
  target: {kind: Deployment, name: chat}
  settings: [{name: ngram, method: ngram, numSpeculativeTokens: 4}]
  rules: {ruleSet: hit-rate}
"""


@dataclass
class Replay:
    directory: Path
    server: Server

    def __call__(self, *words: str, until: int = 90) -> Any:
        (self.directory / "policy.yaml").write_text(POLICY, encoding="utf-8")
        stretch = ["--from", START.isoformat(), "--to", (START + until * MINUTE).isoformat()]
        policy = ["--policy", str(self.directory / "policy.yaml")]
        where = ["--prometheus-url", self.server.url, "--state", str(self.directory / "state")]
        given = ["rules", "replay", "hit-rate", *policy, *where, *stretch, *words]
        return CliRunner().invoke(app, given, env={"COLUMNS": "200"})


@pytest.fixture
def replay(tmp_path: Path, server: Server) -> Replay:
    return Replay(tmp_path, server)


def test_a_pack_over_the_history(replay: Replay) -> None:
    result = replay("--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    (found,) = told["replays"]
    assert told["policy"] == "prod/chat"
    assert found["moments"] == 91
    assert [(f["from"], f["to"]) for f in found["flips"]] == [("ngram", "off"), ("off", "ngram")]
    down, up = (datetime.fromisoformat(f["at"]) for f in found["flips"])
    # The mean over five minutes passes 32 in four to five minutes, and is held for nine.
    assert 10 + 9 <= (down - START) / MINUTE <= 15 + 9
    assert 40 + 15 <= (up - START) / MINUTE <= 45 + 15
    assert found["flips"][1]["readings_of"] == "ngram"
    assert [s["setting"] for s in told["ran"]] == ["ngram"], "drafts were seen"


def test_failed_looks_are_told(past: Past, replay: Replay) -> None:
    past.broken = lambda query, minute: 30 <= minute < 40 and State.LIVE not in query
    result = replay("--json")
    assert result.exit_code == 0, result.output
    assert any("looks failed" in note for note in json.loads(result.stdout)["notes"])


def test_nothing_of_the_target_is_an_error_and_not_an_empty_picture(
    past: Past, replay: Replay
) -> None:
    past.pods = {}
    result = replay(until=5)
    assert result.exit_code == 2
    assert "has no vllm series of pods of Deployment/prod/chat" in " ".join(
        result.output.replace("│", " ").split()
    )


def test_a_local_policy_is_refused(replay: Replay, tmp_path: Path) -> None:
    text = POLICY.replace("kind: Deployment", "kind: Local")
    (tmp_path / "local.yaml").write_text(text, encoding="utf-8")
    result = replay("--policy", str(tmp_path / "local.yaml"))
    assert result.exit_code == 2
    assert "processes of this machine" in " ".join(result.output.replace("│", " ").split())
