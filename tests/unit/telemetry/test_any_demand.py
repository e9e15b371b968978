"""Whatever is asked, of whom and when: a percentile is what always asking tells, or is to be waited
for, and everything else is as if all had always been asked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeAlias
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.domain.ports import Ask
from specpilot.domain.readings import Reading, UnknownReason
from specpilot.domain.signals import SIGNALS
from specpilot.domain.targets import Replica
from specpilot.telemetry import PrometheusServer, PrometheusTelemetry
from tests.unit.telemetry.builders import END, FrozenClock, ask, replica
from tests.unit.telemetry.prometheus_model import ModelServer, Scraped

STEP_S = 15.0
PODS = 5
PERCENTILES = ("e2e_p99", "ttft_p50")
PLAIN = frozenset(
    {"batch_size", "drafts", "e2e_mean", "requests_per_second", "tokens_per_second", "ttft_mean"}
)
OFFERS = frozenset({*PERCENTILES, "e2e_mean", "drafts"})

Requests: TypeAlias = tuple[float, float, float]
"""Those that took up to 0.5 s, 1 s, and longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happens before a round.

    Attributes:
        wanted: Pods of which a percentile is asked, with which.
        growth: Requests served since the scrape before.
        restarted: Pods whose engine started anew.
        replaced: Pods whose name was taken over by a new one.
        unscraped: Pods that Prometheus loses sight of for this round.
        unready: Pods that are not ready.
        stalled: Nothing was scraped since the round before.
        trouble: What Prometheus answers: "" as it should, `down` or `empty`.
        reborn: The operator was started anew.
    """

    wanted: dict[int, str] = field(default_factory=dict)
    growth: Requests = (0, 0, 0)
    restarted: frozenset[int] = frozenset()
    replaced: frozenset[int] = frozenset()
    unscraped: frozenset[int] = frozenset()
    unready: frozenset[int] = frozenset()
    stalled: bool = False
    trouble: str = ""
    reborn: bool = False


_NUMBERS = st.integers(0, PODS - 1)


def _rarely(what: st.SearchStrategy[bool]) -> st.SearchStrategy[bool]:
    return st.tuples(what, what, what).map(all)


_NOBODY: frozenset[int] = frozenset()
_FEW = st.one_of(st.just(_NOBODY), st.just(_NOBODY), st.frozensets(_NUMBERS, max_size=2))
_STEPS = st.builds(
    Step,
    wanted=st.one_of(
        st.just({}),
        st.just({0: "e2e_p99"}),
        st.just(dict.fromkeys(range(PODS), "e2e_p99")),
        st.dictionaries(_NUMBERS, st.sampled_from(PERCENTILES)),
    ),
    growth=st.tuples(*[st.integers(0, 5)] * 3),
    restarted=_FEW,
    replaced=_FEW,
    unscraped=_FEW,
    unready=_FEW,
    stalled=_rarely(st.booleans()),
    trouble=st.sampled_from(["", "", "", "", "", "down", "empty"]),
    reborn=_rarely(st.booleans()),
)


@dataclass
class World:
    """Some pods, their Prometheus, and two operators: one asks for what it needs, one for all."""

    lasting_s: float
    starts_told: bool
    clock: FrozenClock = field(default_factory=FrozenClock)
    server: ModelServer = field(default_factory=ModelServer)
    births: list[int] = field(default_factory=lambda: [0] * PODS)
    started: list[float] = field(default_factory=lambda: [END.timestamp() - 5e3] * PODS)
    served: list[Requests] = field(
        default_factory=lambda: [(100.0 * n, 10.0 * n, 1.0 * n) for n in range(PODS)]
    )
    since: dict[tuple[str, str], float] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)
    lean: PrometheusTelemetry = field(init=False)
    full: PrometheusTelemetry = field(init=False)

    def __post_init__(self) -> None:
        for n in range(PODS):  # a past to look back at
            for back in range(40, 0, -1):
                fast, slow, slowest = self.served[n]
                then = max(0.0, fast - back), max(0.0, slow - back), max(0.0, slowest - back)
                self._scrape(n, self.now - STEP_S * back, then)
        self.boot()

    @property
    def now(self) -> float:
        return self.clock.at.timestamp()

    def boot(self) -> None:
        self.lean, self.full = self._source(), self._source()
        self.since, self.met = {}, set()

    def _source(self) -> PrometheusTelemetry:
        with (
            patch("specpilot.telemetry.prometheus.Connection", lambda _: self.server),
            patch("specpilot.telemetry.prometheus._LASTING_S", self.lasting_s),
        ):
            return PrometheusTelemetry(
                server=PrometheusServer(url="http://model"), clock=self.clock, interval_s=STEP_S
            )

    def _scrape(self, n: int, at: float, served: Requests) -> None:
        seen = Scraped(at, self.started[n] if self.starts_told else None, served, 2.0 + n)
        self.server.scrapes[f"pod-{n}"].append((at, seen))

    def pod(self, n: int, *, ready: bool = True) -> Replica:
        return replica(
            f"pod-{n}", namespace="serving", instance=f"uid-{n}-{self.births[n]}", ready=ready
        )

    def step(self, step: Step) -> None:
        self.clock.at += timedelta(seconds=STEP_S)
        for n in range(PODS):
            if n in step.replaced or n in step.restarted:
                self.births[n] += n in step.replaced
                self.started[n], self.served[n] = self.now - 3.0, (0.0, 0.0, 0.0)
            more = (each * (n + 1) for each in step.growth)
            a, b, c = (old + new for old, new in zip(self.served[n], more, strict=True))
            self.served[n] = a, b, c
            if n in step.unscraped:
                self.server.scrapes[f"pod-{n}"].append((self.now - 1.0, None))
            elif not step.stalled:
                self._scrape(n, self.now - 1.0, self.served[n])
        self.server.down, self.server.empty = step.trouble == "down", step.trouble == "empty"
        if step.reborn:
            self.boot()

    def note(self, step: Step) -> None:
        """Note from when on each percentile must be known: it was asked for at every look since."""
        looked = {
            n: seen.at
            for n in range(PODS)
            if n not in step.unready and not step.trouble
            if (seen := self.server.at(f"pod-{n}", self.now)) is not None
        }
        wanted = {(self.pod(n).instance, name): n for n, name in step.wanted.items()}
        self.since = {each: at for each, at in self.since.items() if each in wanted}
        for (instance, name), n in wanted.items():
            if n in looked:
                at = looked[n] if instance in self.met else -math.inf  # the past was looked up
                self.since.setdefault((instance, name), at)
        self.met |= {self.pod(n).instance for n in looked}

    def must_know(self, n: int, name: str, *, seconds: float) -> bool:
        """Whether a percentile has been looked at for a whole window."""
        since = self.since.get((self.pod(n).instance, name), math.inf)
        return since + 2 * STEP_S <= self.now - seconds

    def asks(self, *, seconds: float, wanted: dict[int, str]) -> list[Ask]:
        """What a tick asks, of the whole fleet and of each pod whose percentile is wanted."""
        pods = [self.pod(n) for n in range(PODS)]
        resting = replace(ask(*pods, end=self.clock.at, seconds=seconds), signals=PLAIN)
        named = [
            replace(
                ask(pods[n], key=f"pod-{n}", end=self.clock.at, seconds=seconds),
                signals=OFFERS - set(PERCENTILES) | {signal},
            )
            for n, signal in wanted.items()
        ]
        return [resting, *named]


def _same(found: Reading, truth: Reading) -> bool:
    """Whether two readings say the same; what is added up in another order may round otherwise."""
    if found.value is not None and truth.value is not None:
        close = math.isclose(found.value, truth.value, rel_tol=1e-12)
        return close and replace(found, value=truth.value) == truth
    return found == truth


@settings(max_examples=40, deadline=None)
@given(
    st.lists(_STEPS, min_size=3, max_size=16),
    st.sampled_from([30.0, 60.0, 150.0, 300.0]),
    st.sampled_from([30.0, 120.0]),
    st.booleans(),
)
def test_a_percentile_is_the_truth_or_unknown_and_all_else_is_as_if_always_fetched(
    steps: list[Step], seconds: float, lasting_s: float, starts_told: bool
) -> None:
    world = World(lasting_s=lasting_s, starts_told=starts_told)
    for step in steps:
        world.step(step)
        tracked = [world.pod(n, ready=n not in step.unready) for n in range(PODS)]
        asks = world.asks(seconds=seconds, wanted=step.wanted)
        everything = [replace(each, signals=frozenset()) for each in asks]
        for source, some in ((world.lean, asks), (world.full, everything)):
            source.track(tracked)
            source.collect(some)
            source.sample()
            assert source.queries <= 14
        lean, full = world.lean.collect(asks), world.full.collect(everything)
        world.note(step)
        for each in asks:
            for name in each.signals:
                found, truth = lean[each.key][name], full[each.key][name]
                if not _same(found, truth):
                    assert SIGNALS[name].percentile, (found, truth)
                    assert found.reason is UnknownReason.TOO_FEW_SAMPLES, (found, truth)
                    assert "fetched from now on" in found.message, (found, truth)
                    number = int(each.replicas[0].id.removeprefix("pod-"))
                    assert not world.must_know(number, name, seconds=seconds), truth
    quiet = Step(growth=(1, 1, 1))
    for _ in range(math.ceil(lasting_s / STEP_S) + 4):
        world.step(quiet)
        world.lean.track([world.pod(n) for n in range(PODS)])
        world.lean.collect(world.asks(seconds=seconds, wanted={}))
        world.lean.sample()
    asked = ask(*(world.pod(n) for n in range(PODS)), end=world.clock.at, seconds=seconds)
    kept = world.lean.windows([asked], deadline_s=0.0)["k"].replicas
    assert not any(window.buckets for window in kept), "what nobody asks for is given back"


@pytest.mark.parametrize(
    ("expected", "known", "reason"),
    [
        (True, True, "the first round is for all of them"),
        (False, False, "what the second question names is new to the second round"),
    ],
)
def test_what_is_said_to_be_asked_is_looked_for_from_the_first_round_on(
    expected: bool, known: bool, reason: str
) -> None:
    """A new leader asks for its policies bit by bit, and is not to be blind for a window."""
    world = World(lasting_s=120.0, starts_told=True)
    source = world.lean
    for tick in range(3):
        world.step(Step(growth=(1, 1, 1)))
        asks = world.asks(seconds=300.0, wanted={0: "e2e_p99", 1: "e2e_p99"})
        if expected:
            source.expect(asks)
        source.track([world.pod(n) for n in range(PODS)])
        source.collect(asks[:2])
        if tick == 0:
            source.sample()
        found = source.collect(asks)
        source.sample()
    assert found["pod-0"]["e2e_p99"].known
    assert found["pod-1"]["e2e_p99"].known is known, reason
