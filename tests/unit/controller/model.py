"""A target as a Deployment behaves, with everything that can go wrong around it.

It rolls one replica at a time to the newest template, holds a roll after its first replicas, and
keeps what somebody else has written. What is asked of it may fail before or after it has taken
effect, and what is seen of it may be old.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from specpilot.domain.changes import Extent, Intent
from specpilot.domain.engine_run import EngineRun
from specpilot.domain.ports import Ask, FleetError
from specpilot.domain.readings import Reading, Readings, UnknownReason, unknown
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Problem, Replica, TargetProblem, TargetRef, TargetState
from tests.unit.controller.world import NGRAM_CONFIG, World, WorldClock

START = Declared(setting="ngram", config=NGRAM_CONFIG, change_id="")
"""What a modelled target runs at first; never ours."""


class Fails(StrEnum):
    """How the API server fails."""

    NOT = "not"
    BEFORE = "before"  # a conflict, a 5xx: nothing has happened
    AFTER = "after"  # the answer is lost: it has


@dataclass
class Pod:
    """A replica and the template it was made of."""

    replica: Replica
    template: int


class ModelFleet:
    """One target of some replicas."""

    def __init__(self, clock: WorldClock, *, size: int, declared: Declared) -> None:
        self._clock = clock
        self._serial = 0
        self.declared = declared
        self.template = 1
        self.desired = size
        self.run = EngineRun(version="0.32.0")
        self.foreign = False
        """Somebody else owns what is declared."""
        self.undone_at_once = False
        """An owner puts the template back before anybody can look."""
        self.held = False
        """Paused by us: nothing rolls, lost replicas come back."""
        self.gone = False
        self.unreachable = 0
        """Looks that will fail."""
        self.fails: list[Fails] = []
        """What becomes of the next words."""
        self.shown: TargetState | None = None
        """What a look showed last: the same again while nothing has changed."""
        self.old: TargetState | None = None
        """What a watch with a gap goes on showing."""
        self.crashing: set[str] = set()
        """Names of settings whose replicas crash at start."""
        self.slow: set[str] = set()
        """Names of settings whose replicas load and load, and do not get ready meanwhile."""
        self.pods: list[Pod] = []
        for _ in range(size):
            self._start(ready=True)
        self.spoken: list[Intent] = []

    def _start(self, *, ready: bool = False) -> None:
        self._serial += 1
        now = self._clock.now()
        self.pods.append(
            Pod(
                replica=Replica(
                    id=f"r{self._serial}",
                    instance=f"i{self._serial}",
                    namespace="serving",
                    declared=self.declared,
                    ready=ready,
                    ready_since=now if ready else None,
                    started_at=now,
                ),
                template=self.template,
            )
        )

    @property
    def intent(self) -> Intent | None:
        """What it was told last."""
        return self.spoken[-1] if self.spoken else None

    # --- what the product sees and says

    def observe(self, ref: TargetRef) -> TargetState:
        if self.unreachable:
            self.unreachable -= 1
            raise FleetError("the API server does not answer")
        now = self.now(ref)
        if now != self.shown:
            self.shown = now
        return self.old or self.shown

    def now(self, ref: TargetRef) -> TargetState:
        if self.gone:
            return TargetState(
                ref=ref, problem=Problem(reason=TargetProblem.NOT_FOUND, message="no workload")
            )
        replicas = tuple(pod.replica for pod in self.pods)
        stale = [p for p in self.pods if not self._current(p)]
        unready = [r for r in replicas if not r.ready]
        moving = stale or unready or len(replicas) != self.desired
        return TargetState(
            ref=ref,
            declared=self.declared,
            replicas=replicas,
            desired_replicas=self.desired,
            user_template=f"t{self.template}",
            rolling="some are replaced" if moving and not self.held else "",
            halted=self.held,
            engine=self.run,
        )

    def _current(self, pod: Pod) -> bool:
        return pod.template == self.template and pod.replica.declared == self.declared

    def _new(self) -> int:
        return sum(self._current(pod) for pod in self.pods)

    def carry_out(self, intent: Intent) -> bool:
        fails = self.fails.pop(0) if self.fails else Fails.NOT
        if fails is Fails.BEFORE:
            raise FleetError("409: the object has been modified")
        writes = not self.gone and self._take(intent)
        if self.undone_at_once and self.declared != START:
            self.declared, self.held = START, False
        if fails is Fails.AFTER:
            raise FleetError("504: the answer did not come")
        return writes

    def _take(self, intent: Intent) -> bool:
        """Whether the setting was written."""
        self.spoken.append(intent)
        canary = intent.extent is Extent.CANARY
        writes = self.declared != intent.declared
        if writes:
            if self.foreign and not canary:
                self.held = False  # theirs stays
                return False
            if self.foreign and self.declared.change_id == intent.declared.change_id:
                return False
            self.declared, self.foreign = intent.declared, False
            self.held = False
            if canary:
                self._roll()  # the first new replica comes at once
        self.held = canary and self._new() >= min(intent.canary_replicas, self.desired)
        return writes

    # --- what the world does

    @property
    def least_ready(self) -> int:
        """For the world's own look; here it is not noted."""
        return sum(pod.replica.ready for pod in self.pods)

    def move(self) -> None:
        """What was started becomes ready, and the roll goes on by one replica."""
        now = self._clock.now()
        for pod in self.pods:
            r = pod.replica
            if r.ready or r.lost or r.declared.setting in self.slow:
                continue
            bad = r.declared.setting in self.crashing
            pod.replica = replace(
                r,
                ready=not bad,
                ready_since=None if bad else now,
                restarts=r.restarts + bad,
                failure="exited with 1" if bad else "",
            )
        if self.gone:
            return
        while len(self.pods) > self.desired:
            stale = [p for p in self.pods if not self._current(p)]
            self.pods.remove((stale or self.pods)[0])
        lost = next((p for p in self.pods if p.replica.lost), None)
        if lost is not None:
            self.pods.remove(lost)
        if len(self.pods) < self.desired:
            self._replace(lost)
            return
        if not self.held:
            self._roll()

    def _roll(self) -> None:
        stale = [p for p in self.pods if not self._current(p)]
        broken = [p for p in stale if not p.replica.ready]
        all_ready = all(p.replica.ready for p in self.pods)
        if stale and (broken or all_ready):
            self.pods.remove((broken or stale)[0])
            self._start()

    def _replace(self, lost: Pod | None) -> None:
        """A held roll brings a lost replica back in the revision it had."""
        self._start()
        if lost is not None and self.held:
            fresh = self.pods[-1]
            fresh.template = lost.template
            fresh.replica = replace(fresh.replica, declared=lost.replica.declared)

    def lose_node(self, index: int) -> None:
        """The machine of a replica is gone, and with it the replica."""
        if self.pods:
            pod = self.pods[index % len(self.pods)]
            pod.replica = replace(pod.replica, ready=False, lost=True, failure="node lost")

    def flap(self, index: int) -> None:
        """A replica stops to serve for a while."""
        if self.pods:
            pod = self.pods[index % len(self.pods)]
            pod.replica = replace(pod.replica, ready=False)

    def edit(self) -> None:
        """A user changes the template: image, memory, what not."""
        self.template += 1

    def take_over(self, theirs: Declared) -> None:
        """Somebody writes another value into our fields."""
        self.declared, self.foreign = theirs, True


class Numbers(StrEnum):
    """What telemetry is like."""

    KNOWN = "known"
    EMPTY = "empty"
    NAN = "NaN"
    STALE = "stale"
    TWICE = "twice"
    SILENT = "silent"
    CANARY_ONLY = "of the canary only"


_WHY = {
    Numbers.NAN: UnknownReason.NAN,
    Numbers.STALE: UnknownReason.STALE,
    Numbers.TWICE: UnknownReason.AMBIGUOUS,
    Numbers.SILENT: UnknownReason.SOURCE_ERROR,
}


@dataclass
class ModelTelemetry:
    """Numbers by setting, or none."""

    clock: WorldClock
    numbers: Numbers = Numbers.KNOWN
    batch: float = 10.0
    tpot: dict[str, float] = field(default_factory=dict)
    refuses: dict[str, float] = field(default_factory=dict)
    """Share of requests refused, by setting."""
    idle: set[str] = field(default_factory=set)
    """Names of settings whose replicas nobody sends a request to."""
    lag_s: float = 0.0

    def expect(self, asks: Sequence[Ask]) -> None:
        del asks

    def track(self, replicas: Sequence[Replica]) -> None:
        del replicas

    def moved(self, replica: Replica) -> float:
        del replica
        return 0.0

    def collect(self, asks: Sequence[Ask]) -> Mapping[str, Readings]:
        return {ask.key: self._answer(ask) for ask in asks}

    @property
    def blind(self) -> bool:
        return self.numbers is not Numbers.KNOWN

    def _answer(self, ask: Ask) -> Readings:
        partial = self.numbers is Numbers.CANARY_ONLY and ask.key.endswith("/canary")
        if not ask.replicas or self.numbers is Numbers.EMPTY:
            return Readings()
        if self.numbers is not Numbers.KNOWN and not partial:
            why = _WHY.get(self.numbers, UnknownReason.NO_DATA)
            return Readings.of(
                unknown(s, why) for s in ("batch_size", "tpot_mean", "e2e_mean", "error_rate")
            )
        setting = ask.replicas[0].declared.setting
        if setting in self.idle:
            return Readings.of([Reading(signal="batch_size", value=0.0, count=50.0, at=ask.end)])
        noise = 1 + 0.01 * (int(ask.end.timestamp()) % 7 - 3) / 3
        speed = self.tpot.get(setting, 0.02) * noise
        values = {
            "batch_size": self.batch, "tpot_mean": speed, "e2e_mean": 1.0,
            "tokens_per_second_per_request": 1 / speed,
            "error_rate": self.refuses.get(setting, 0.0),
        }  # fmt: skip
        if setting != "off":
            values |= {
                "drafts": 1000.0, "mean_acceptance_length": 2.5, "generated_tokens": 2500.0
            }  # fmt: skip
        return Readings.of(
            Reading(signal=name, value=value, count=50.0, at=ask.end)
            for name, value in values.items()
        )


class Modelled(World):
    """The world with a target that behaves as a Deployment does."""

    def __init__(self, directory: Path, *, size: int = 3, **fields: object) -> None:
        super().__init__(directory, size=size, **fields)
        self.model = ModelFleet(self.clock, size=size, declared=START)
        self.numbers = ModelTelemetry(self.clock)
        self.fleet = self.model  # type: ignore[assignment]
        self.telemetry = self.numbers  # type: ignore[assignment]
        self.boot()
