"""A target's past out of Prometheus, and `rules replay` over it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specpilot.cli.main import app
from specpilot.domain.readings import Readings, UnknownReason
from specpilot.domain.targets import TargetRef
from specpilot.telemetry.connection import PrometheusError, PrometheusServer
from specpilot.telemetry.past import PastMoment, PrometheusPast, Ran, pods_of
from specpilot.telemetry.promql import State
from tests.cluster.ports import free_port
from tests.integration.telemetry.servers import Answer, Seen, Server, serving

START = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TARGET = TargetRef(kind="Deployment", namespace="prod", name="chat")
POD, LATER, FOREIGN = "chat-5d8f9c7b6-x2x4z", "chat-5d8f9c7b6-b7b9d", "chat-big-5d8f9c7b6-x2x4z"

Element = tuple[dict[str, str], float]


def matrix(moments: dict[float, list[Element]]) -> Answer:
    series: dict[tuple[tuple[str, str], ...], list[tuple[float, str]]] = {}
    for at, elements in moments.items():
        for metric, value in elements:
            series.setdefault(tuple(metric.items()), []).append((at, str(value)))
    result = [{"metric": dict(metric), "values": values} for metric, values in series.items()]
    body = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return Answer(json.dumps(body).encode(), content_type="application/json")


@dataclass
class Past:
    """Keeps the series of some pods: a draft a second with 1.5 of 4 tokens accepted.

    Attributes:
        pods: Since when there is each, in minutes after the start.
        batch: Running requests of each pod at a minute after the start.
        broken: What a slice is refused with, by its first and last minute; "" where it is not.
        depth: Positions counted by a pod; none where it does not speculate.
        most: Points of a series it gives at most.
        asked: First minute and number of moments of each range that was asked for.
    """

    pods: dict[str, float] = field(default_factory=lambda: {POD: -600.0, FOREIGN: -600.0})
    batch: Callable[[float], float] = lambda minute: 40.0 if 10 <= minute < 40 else 2.0
    broken: Callable[[float, float], str] = lambda _first, _last: ""
    depth: dict[str, int] = field(default_factory=dict)
    most: int = 11_000
    shift_s: float = 0.0
    asked: list[tuple[float, int]] = field(default_factory=list)

    def __call__(self, request: Seen) -> Answer:
        assert request.path.endswith("/api/v1/query_range")
        query, start = request.asked["query"], float(request.asked["start"])
        end, step = float(request.asked["end"]), float(request.asked["step"])
        count = int(round((end - start) / step, 6)) + 1
        first, last = ((at - START.timestamp()) / 60 for at in (start, end))
        self.asked.append((first, count))
        if count > self.most:
            words = "exceeded maximum resolution of 11,000 points per timeseries"
            return refused("bad_data", words, status=400)
        if words := self.broken(first, last):
            return refused("execution", words, status=422)
        wanted = re.search(r'pod=~"([^"]*)"', query)
        assert wanted is not None, f"all pods of the namespace are asked for: {query}"
        pattern = json.loads(f'"{wanted[1]}"')
        times = [start + i * step for i in range(count)]
        return matrix({at + self.shift_s: self._at(query, at, pattern) for at in times})

    def _at(self, query: str, at: float, pattern: str) -> list[Element]:
        minute = (at - START.timestamp()) / 60
        return [
            ({"namespace": "prod", "pod": pod} | labels, value)
            for pod, since in self.pods.items()
            if minute >= since and re.fullmatch(pattern, pod)
            for labels, value in self._of_pod(pod, query, at, minute)
        ]

    def _of_pod(self, pod: str, query: str, at: float, minute: float) -> Iterator[Element]:
        depth = self.depth.get(pod, 4)
        if State.LIVE in query:
            yield {"job": "vllm", "series": State.LIVE}, at
        elif "avg_over_time" in query:
            yield {"series": "num_requests_running"}, self.batch(minute)
            yield {"series": "num_requests_waiting"}, 0.0
        elif "_bucket" not in query:
            since = at - START.timestamp() + 1e6
            yield {"__name__": "vllm:generation_tokens_total"}, (100 if depth else 80) * since
            if depth:
                yield {"__name__": "vllm:spec_decode_num_drafts_total"}, 10 * since
                yield {"__name__": "vllm:spec_decode_num_draft_tokens_total"}, 40 * since
                yield {"__name__": "vllm:spec_decode_num_accepted_tokens_total"}, 5 * since
            per_position = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            for position in range(depth):
                yield {"__name__": per_position, "position": str(position)}, since


def refused(kind: str, words: str, *, status: int) -> Answer:
    body = {"status": "error", "errorType": kind, "error": words}
    return Answer(json.dumps(body).encode(), status=status, content_type="application/json")


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


def readings(moment: PastMoment) -> Readings:
    (arm,) = moment.arms
    return arm.readings


@pytest.mark.parametrize("kind", ["StatefulSet", "LeaderWorkerSet"])
@pytest.mark.parametrize(
    ("pod", "belongs"),
    [("chat-0", True), ("chat-12", True), ("chat-0-1", False), ("chat-big-0", False)],
)
def test_pods_with_ordinals(kind: str, pod: str, belongs: bool) -> None:
    assert bool(re.fullmatch(pods_of(replace(TARGET, kind=kind)), pod)) is belongs


def test_every_step_has_the_readings_of_its_window(server: Server) -> None:
    moments = walk(server)
    assert [m.at for m in moments] == [START + minute * MINUTE for minute in range(13)]
    assert {m.replicas for m in moments} == {1}, "a pod of chat-big was taken for one of chat"
    assert {arm.ran for m in moments for arm in m.arms} == {Ran(speculates=True, depth=4)}
    for moment in moments:
        assert readings(moment).value("mean_acceptance_length") == pytest.approx(1.5)
        assert readings(moment).value("drafts") == pytest.approx(3000), "the first one too"
    assert readings(moments[9]).value("batch_size") == pytest.approx(2.0)


def test_a_pod_counts_from_when_it_came(past: Past, server: Server) -> None:
    past.pods[LATER] = 4
    moments = walk(server)
    assert [m.replicas for m in moments] == [1] * 4 + [2] * 9
    assert readings(moments[12]).value("drafts") == pytest.approx(6000)


def test_a_new_pod_warms_up(past: Past, server: Server) -> None:
    past.pods = {POD: 4}
    moments = walk(server, warm_up=3 * MINUTE)
    assert not any(readings(m)["drafts"].known for m in moments[4:8])
    assert readings(moments[9]).value("drafts") == pytest.approx(1200), "from 7 to 9"


def test_pods_that_ran_something_else_are_an_arm_of_their_own(past: Past, server: Server) -> None:
    past.pods |= {LATER: 4}
    past.depth = {LATER: 0}
    moments = walk(server)
    assert [arm.ran for arm in moments[3].arms] == [Ran(speculates=True, depth=4)]
    off, on = sorted(moments[12].arms, key=lambda arm: arm.ran is not None and arm.ran.speculates)
    assert (off.ran, off.replicas, on.replicas) == (Ran(speculates=False), 1, 1)
    assert off.readings["drafts"].reason is UnknownReason.NOT_EXPORTED
    assert off.readings.value("generated_tokens") == pytest.approx(24_000)
    assert on.readings.value("generated_tokens") == pytest.approx(30_000)


def test_names_can_be_told(past: Past, server: Server) -> None:
    past.pods = {"odd-0": -600}
    assert {m.replicas for m in walk(server)} == {0}
    assert {m.replicas for m in walk(server, pods="odd-[0-9]+")} == {1}


def test_nobody_asks_for_more_points_than_prometheus_gives(past: Past, server: Server) -> None:
    few = frozenset({"generated_tokens"})
    past.pods = {}
    moments = walk(server, minutes=300, step=MINUTE / 60, target_bytes=10**9, signals=few)
    assert len(moments) == 18_001
    counts = [count for _, count in past.asked]
    assert max(counts) == past.most
    assert len(past.asked) < 30


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param({"most_points": 7}, id="seven moments each"),
        pytest.param({"target_bytes": 1}, id="one moment each, for every answer is too heavy"),
    ],
)
def test_the_slices_change_no_reading(server: Server, bounds: dict[str, int]) -> None:
    assert walk(server, minutes=100, **bounds) == walk(server, minutes=100)


def test_two_halves_are_the_whole(past: Past, server: Server) -> None:
    past.pods[LATER] = 30
    one = PrometheusPast(
        server=PrometheusServer(url=server.url), target=TARGET, window=5 * MINUTE, step=MINUTE
    )
    half = START + 50 * MINUTE
    whole = list(one.walk(start=START, end=START + 100 * MINUTE))
    first = list(one.walk(start=START, end=half))
    second = list(one.walk(start=half + MINUTE, end=START + 100 * MINUTE))
    assert first + second == whole


def test_a_slice_that_is_too_large_for_the_server_is_halved(past: Past, server: Server) -> None:
    def too_large(first: float, last: float) -> str:
        return "query processing would load too many samples" if last - first > 10 else ""

    past.broken = too_large
    moments = walk(server, minutes=60)
    assert not any(m.failed for m in moments)
    assert [m.at for m in moments] == [START + minute * MINUTE for minute in range(61)]
    assert readings(moments[60]).value("drafts") == pytest.approx(3000)


def test_the_moments_of_a_slice_that_fails_are_unknown(past: Past, server: Server) -> None:
    past.broken = lambda first, last: "a block is broken" if first <= 21 <= last else ""
    moments = walk(server, minutes=40, most_points=10)
    failed = [m for m in moments if m.failed]
    assert len(failed) == 10
    assert START + 21 * MINUTE in {m.at for m in failed}
    assert all("a block is broken" in m.failed and m.replicas is None for m in failed)
    assert not any(m.arms for m in failed)
    after = moments[moments.index(failed[-1]) + 1 :]
    assert not readings(after[0])["batch_size"].known, "a single look tells no change"
    assert readings(after[1]).value("drafts") == pytest.approx(600), "the gap is not counted"
    assert readings(after[6]).value("drafts") == pytest.approx(3000)


def test_a_server_that_refuses_every_slice_is_an_error(past: Past, server: Server) -> None:
    past.broken = lambda _first, _last: "out of order"
    with pytest.raises(PrometheusError, match="out of order"):
        walk(server)


def test_a_server_that_is_not_there_is_an_error_at_once() -> None:
    one = PrometheusPast(
        server=PrometheusServer(url=f"http://127.0.0.1:{free_port()}"),
        target=TARGET,
        window=5 * MINUTE,
        step=MINUTE,
    )
    began = time.monotonic()
    with pytest.raises(PrometheusError, match="cannot reach"):
        list(one.walk(start=START, end=START + 600 * MINUTE))
    assert time.monotonic() - began < 10


def test_a_server_that_pauses_is_asked_again(past: Past, server: Server) -> None:
    refusals = iter([200, 503, 503])
    answer = server.answer

    def sometimes(request: Seen) -> Answer:
        away = past.asked and past.asked[-1][1] != 60 and next(refusals, 200) != 200
        return refused("unavailable", "starting", status=503) if away else answer(request)

    server.answer = sometimes
    moments = walk(server, minutes=120)
    assert next(refusals, None) is None, "it was refused twice"
    assert not any(m.failed for m in moments)


def test_answers_of_other_moments_are_refused(past: Past, server: Server) -> None:
    past.shift_s = -3.0
    with pytest.raises(PrometheusError, match="moments that were not asked for"):
        walk(server)


def test_off_is_seen_to_be_off(past: Past, server: Server) -> None:
    past.depth = {POD: 0}
    moment = walk(server)[5]
    assert readings(moment)["drafts"].reason is UnknownReason.NOT_EXPORTED
    assert moment.arms[0].ran == Ran(speculates=False)


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
        look = ["--step", "60s"]
        given = ["rules", "replay", "hit-rate", *policy, *where, *stretch, *look, *words]
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
    past.broken = lambda first, last: "a block is broken" if first <= 70 <= last else ""
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
