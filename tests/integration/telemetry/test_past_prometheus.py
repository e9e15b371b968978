"""The history of a real Prometheus: two hours in which a workload was rolled to another setting."""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from bench.signals import remote_write
from bench.signals.fleet import STEP_S
from bench.signals.pages import read_by_the_product, series
from bench.signals.prometheus import running
from specpilot.cli.main import app
from specpilot.domain.readings import Reading
from specpilot.domain.signals import MEASURED
from specpilot.domain.targets import Replica, TargetRef
from specpilot.telemetry import PrometheusServer, PrometheusTelemetry
from specpilot.telemetry.past import PastArm, PrometheusPast, Ran
from tests.unit.telemetry.builders import FrozenClock, ask, replica

pytestmark = pytest.mark.cluster

NAMESPACE = "team-07"
TARGET = TargetRef(kind="Deployment", namespace=NAMESPACE, name="chat")
ON, OFF = ("chat-6b7f9c5d4-b7b9d", "chat-6b7f9c5d4-x2x4z"), ("chat-7c9d8b5f6-k4k5k",)
CAME, WENT, LAST = 236, 240, 480
"""Scrapes: when the pods without speculation came, those with it went, and the last one."""
GONE = struct.unpack("<d", (0x7FF0000000000002).to_bytes(8, "little"))[0]
"""What Prometheus itself writes when a target is gone."""
EXACT = 1e-9
MINUTE = timedelta(minutes=1)
WINDOW = 5 * MINUTE


@dataclass(frozen=True)
class Scene:
    url: str
    origin: datetime

    def at(self, scrape: int) -> datetime:
        return self.origin + timedelta(seconds=scrape * STEP_S)

    def past(self, *, step: timedelta, **fields: int) -> PrometheusPast:
        return PrometheusPast(
            server=PrometheusServer(url=self.url),
            target=TARGET,
            window=WINDOW,
            step=step,
            **fields,
        )

    def replicas(self, at: datetime, *, looked_from: datetime, step: timedelta) -> list[Replica]:
        """The pods that Kubernetes had at a time, ready since a tick first saw them."""
        found = []
        if at < self.at(WENT):
            found += [replica(name, on=True, namespace=NAMESPACE) for name in ON]
        if at >= self.at(CAME):
            ticks = math.ceil((self.at(CAME) - looked_from) / step)
            since = looked_from + ticks * step
            found += [replica(name, namespace=NAMESPACE, ready_since=since) for name in OFF]
        return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    origin = (time.time() - LAST * STEP_S - 60) // 60 * 60
    with running(tmp_path_factory.mktemp("past"), origin=origin) as server:
        for names, speculates, scrapes in (
            (ON, True, range(WENT)),
            (OFF, False, range(CAME, LAST + 1)),
        ):
            for place, name in enumerate(names):
                _write(server.url, name, place, origin=origin, scrapes=scrapes, on=speculates)
        yield Scene(server.url, datetime.fromtimestamp(origin, UTC))


def _write(
    url: str, pod: str, place: int, *, origin: float, scrapes: Sequence[int], on: bool
) -> None:
    labels = {"namespace": NAMESPACE, "pod": pod, "job": "vllm", "instance": f"10.0.0.{place}:80"}
    last = scrapes[-1] + 1
    parts = []
    for each in filter(read_by_the_product, series(on)):
        samples = [(n, each.value(f"team-{7 + place:02}", n)) for n in scrapes]
        if last < LAST:
            samples.append((last, GONE))
        timed = [(round((origin + n * STEP_S) * 1000), value) for n, value in samples]
        names = {"__name__": each.name, **dict(each.labels), **labels}
        parts.append(remote_write.time_series(names, timed))
    body = remote_write.request(b"".join(parts))
    answer = httpx.post(f"{url}/api/v1/write", content=body, headers=remote_write.HEADERS)
    assert answer.is_success, answer.text


def same(one: Reading, other: Reading, *, rel: float) -> bool:
    if one.value is None or other.value is None:
        return one.reason == other.reason
    if rel > EXACT and one.low is not None and other.low is not None:
        # A request more or less moves a rank: within the same bucket, or to the next one.
        return one.low <= (other.high or one.low) and other.low <= (one.high or other.low)
    return one.value == pytest.approx(other.value, rel=rel, abs=1e-9)


def by_speculation(arms: Sequence[PastArm]) -> dict[bool, PastArm]:
    return {arm.ran.speculates: arm for arm in arms if arm.ran is not None}


@pytest.mark.parametrize(
    ("step", "rel"),
    [
        pytest.param(MINUTE, EXACT, id="a look a minute: the very same numbers"),
        pytest.param(
            MINUTE / 4, 0.08, id="a look a scrape: a live history is thinned out by a scrape"
        ),
    ],
)
def test_a_replay_says_what_a_tick_said_then(scene: Scene, step: timedelta, rel: float) -> None:
    """The live source, put to each moment with the pods that Kubernetes had, and the replay."""
    first, last = scene.at(WENT - 48), scene.at(WENT + 48)
    past = scene.past(step=step)
    began = first - past.lead * step
    clock = FrozenClock(began)
    replayed = {m.at: m for m in past.walk(start=first, end=last)}
    compared = 0
    source = PrometheusTelemetry(
        server=PrometheusServer(url=scene.url),
        clock=clock,
        interval_s=step.total_seconds(),
        settle_s=0.0,
        deadline_s=60.0,
    )
    with closing(source) as live:
        while clock.at <= last:
            pods = scene.replicas(clock.at, looked_from=began, step=step)
            live.track(pods)
            asks = {
                on: ask(*chosen, key=str(on), end=clock.at, seconds=WINDOW.total_seconds())
                for on in (True, False)
                if (chosen := [p for p in pods if bool(p.declared.config) is on])
            }
            live.windows(list(asks.values()), deadline_s=0)
            live.sample()
            answers = live.collect(list(asks.values()))
            if clock.at >= first:
                arms = by_speculation(replayed[clock.at].arms)
                assert set(arms) == set(asks), clock.at
                for on, question in asks.items():
                    assert arms[on].replicas == len(question.replicas)
                    then = answers[str(on)]
                    apart = [
                        f"{clock.at} {name}: {arms[on].readings[name]} but live {then[name]}"
                        for name in MEASURED
                        if not same(arms[on].readings[name], then[name], rel=rel)
                    ]
                    assert not apart, "\n".join(apart)
                    compared += sum(reading.known for reading in then.values())
            clock.at += step
    assert compared > 900, "there is something to compare"


def test_the_pods_and_what_they_ran_come_from_the_past(scene: Scene) -> None:
    moments = list(scene.past(step=MINUTE).walk(start=scene.at(120), end=scene.at(LAST)))
    on, off = Ran(speculates=True, depth=4), Ran(speculates=False)
    told = [[(arm.ran, arm.replicas) for arm in m.arms] for m in moments]
    before, roll = (CAME - 120) // 4, (WENT - CAME) // 4
    assert told[:before] == [[(on, 2)]] * before
    assert told[before : before + roll] == [[(on, 2), (off, 1)]] * roll
    assert told[before + roll :] == [[(off, 1)]] * (len(told) - before - roll)


def test_two_halves_and_slices_of_any_size_are_the_whole(scene: Scene) -> None:
    step = MINUTE / 4
    start, half, end = scene.at(180), scene.at(238), scene.at(300)
    whole = list(scene.past(step=step).walk(start=start, end=end))
    first = list(scene.past(step=step, most_points=13).walk(start=start, end=half))
    second = list(scene.past(step=step, target_bytes=50_000).walk(start=half + step, end=end))
    assert len(whole) == 121
    for one, other in zip(whole, [*first, *second], strict=True):
        assert one.at == other.at
        for arm, again in zip(one.arms, other.arms, strict=True):
            assert (arm.ran, arm.replicas) == (again.ran, again.replicas)
            for name in MEASURED:
                assert same(arm.readings[name], again.readings[name], rel=EXACT), name


POLICY = f"""\
apiVersion: specpilot.io/v1alpha1
kind: SpeculationPolicy
metadata: {{name: chat, namespace: {NAMESPACE}}}
spec:
  target: {{kind: Deployment, name: chat}}
  settings:
    - {{name: deep, method: ngram, numSpeculativeTokens: 7}}
    - {{name: ngram, method: ngram, numSpeculativeTokens: 4}}
  rules: {{ruleSet: idle}}
  telemetry: {{window: 5m}}
"""
IDLE = """\
apiVersion: specpilot.io/v1alpha1
kind: RuleSet
metadata: {name: idle}
spec:
  rules: [{name: always-on, when: batch_size >= 0, setting: ngram}]
"""


def test_the_command_tells_the_roll_and_what_it_cost(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "idle.yaml").write_text(IDLE, encoding="utf-8")
    stretch = ["--from", scene.at(60).isoformat(), "--to", scene.at(420).isoformat()]
    where = ["--prometheus-url", scene.url, "--policy", str(tmp_path / "policy.yaml")]
    words = ["rules", "replay", str(tmp_path / "idle.yaml"), *where, *stretch, "--json"]
    result = CliRunner().invoke(app, [*words, "--state", str(tmp_path / "state")])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [s["setting"] for s in told["ran"]] == ["ngram", "off"], "told by depth, not by order"
    (found,) = told["replays"]
    assert found["moments"] == 361
    gain = found["gain"]
    assert gain["seconds"]["same"] == pytest.approx((WENT - 60) * STEP_S, abs=2 * STEP_S)
    assert gain["seconds"]["recorded"] > 1800, "both ran at like loads in the recording"
    assert gain["tokens"] == pytest.approx(
        gain["tokens_per_second"] * gain["judged_seconds"], rel=1e-6
    )
    assert gain["judged_seconds"] + gain["not_known_seconds"] == pytest.approx(
        360 * STEP_S - gain["seconds"]["same"]
    )
