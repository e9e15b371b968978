"""A whole world in memory around the real loop and a real database: fleet, numbers, clock.

The fleet and the numbers are the edge; evaluator, reconciler, recorder and store are the real
ones. A `Kill` can strike before or after any effect on the fleet or the database, as kill -9 does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from specpilot.controller.evaluator import Evaluator
from specpilot.controller.parts import Parts
from specpilot.controller.reconciler import Reconciler
from specpilot.controller.recorder import Recorder
from specpilot.controller.registry import PolicyStatus
from specpilot.domain.changes import Extent, FlagChange, Intent
from specpilot.domain.engine_run import EngineRun
from specpilot.domain.policy import Canary, Limits, Policy, PolicyRef
from specpilot.domain.portions import UNDIVIDED, Portions
from specpilot.domain.ports import Ask, FleetError
from specpilot.domain.readings import Reading, Readings, UnknownReason, unknown
from specpilot.domain.rules import Rule, RuleSet
from specpilot.domain.settings import Declared
from specpilot.domain.situation import Decision
from specpilot.domain.targets import Replica, TargetRef, TargetState
from specpilot.store import RuleOwner, Store, UnitOfWork
from tests.unit.domain.builders import REF, T0, policy
from tests.unit.store.template import open_copy

RULES = RuleSet(
    name="hit-rate",
    rules=(
        Rule(name="off-when-busy", when="batch_size > 32", setting="off"),
        Rule(name="on-when-quiet", when="batch_size < 4", setting="ngram"),
    ),
)
NGRAM_CONFIG = '{"method":"ngram","num_speculative_tokens":4}'


class Kill(BaseException):
    """The process is gone; nothing above may catch this."""


@dataclass
class Mortality:
    """Dies at the nth effect; None never dies."""

    dies_at: int | None = None
    effects: int = 0

    def strike(self) -> None:
        self.effects += 1
        if self.dies_at is not None and self.effects == self.dies_at:
            raise Kill


@dataclass
class WorldClock:
    at: datetime = T0

    def now(self) -> datetime:
        return self.at


class World:
    """One target of `size` replicas, each a step slower to get ready than instantly."""

    def __init__(self, directory: Path, *, size: int = 3, **fields: object) -> None:
        self.clock = WorldClock()
        self.store = open_copy(directory / "world.sqlite")
        self.mortality = Mortality()
        self.policy: Policy | None = policy(
            window=timedelta(seconds=60),
            canary=Canary(
                analysis=timedelta(seconds=60),
                min_drafts=10,
                min_requests=5,
                ready_within=timedelta(seconds=120),
            ),
            limits=Limits(cooldown=timedelta(seconds=30), flips_per_hour=50, flips_per_day=50),
            **fields,
        )
        start = Declared(setting="ngram", config=NGRAM_CONFIG, change_id="")
        self.fleet = FakeFleet(self.clock, size=size, declared=start)
        self.telemetry = FakeTelemetry(self.clock)
        self.most_concurrent: int | None = None
        self.portions: Portions = UNDIVIDED
        self.registry = FakeRegistry(self)
        with self.store.begin() as unit:
            unit.rules.apply(
                namespace="local",
                rule_set=RULES,
                owner=RuleOwner.FILE,
                author="test",
                source="test",
                at=T0,
            )
        self.boot()

    def boot(self) -> None:
        """A new process on the same database and the same fleet."""
        store = MortalStore(self.store, self.mortality)
        fleet = MortalFleet(self.fleet, self.mortality)
        recorder = Recorder(store=store, clock=self.clock)  # type: ignore[arg-type]
        parts = Parts(
            store=store,  # type: ignore[arg-type]
            fleet=fleet,
            telemetry=self.telemetry,
            registry=self.registry,
            recorder=recorder,
            clock=self.clock,
            most_concurrent=self.most_concurrent,
            portions=self.portions,
        )
        self.evaluator = Evaluator(parts)
        self.reconciler = Reconciler(parts)

    def run(
        self, seconds: float, *, step: float = 5.0, until: Callable[[], bool] | None = None
    ) -> None:
        """Let time pass; the fleet moves, the loop runs; a killed process is started again."""
        end = self.clock.at + timedelta(seconds=seconds)
        while self.clock.at < end and not (until is not None and until()):
            self.clock.at += timedelta(seconds=step)
            self.fleet.move()
            try:
                self.evaluator.tick()
                self.reconciler.run()
            except Kill:
                self.boot()

    def changes(self) -> list[FlagChange]:
        """All changes, oldest first."""
        with self.store.read() as unit:
            return list(reversed(unit.changes.recent(limit=200)))

    def phases(self, change_id: str) -> list[str]:
        """The audit trail of a change, as phases in order."""
        with self.store.read() as unit:
            return [r.draft.action for r in unit.audit.records(change_id=change_id, limit=200)]

    def status(self) -> PolicyStatus:
        """What the user sees."""
        return self.registry.statuses["chat"]


class FakeFleet:
    """Replaces one replica a move; it is ready a move later unless its setting is bad."""

    def __init__(self, clock: WorldClock, *, size: int, declared: Declared) -> None:
        self._clock = clock
        self.declared = declared
        self.intent: Intent | None = None
        self.reachable = True
        self.gone = False
        self.template = "t1"
        self.crashing: set[str] = set()
        """Names of settings whose replicas crash at start."""
        self.replicas = {
            f"r{i}": Replica(
                id=f"r{i}", instance=f"r{i}.0", declared=declared, ready=True, ready_since=T0
            )
            for i in range(size)
        }
        self.least_ready = size

    def observe(self, ref: TargetRef) -> TargetState:
        if not self.reachable:
            raise FleetError("the fleet does not answer")
        live = tuple(self.replicas.values())
        wrong = [r for r in live if r.declared != self.declared or not r.ready]
        held = self.intent is not None and self.intent.extent is Extent.CANARY
        return TargetState(
            ref=ref,
            declared=self.declared,
            replicas=live,
            desired_replicas=len(live),
            user_template=self.template,
            rolling=f"{len(wrong)} to go" if wrong and not held else "",
            halted=held,
            can_add_replica=len(live) > 1,
            engine=EngineRun(version="0.32.0"),
            labels={"tier": "gold"},
        )

    def carry_out(self, intent: Intent) -> bool:
        if not self.reachable:
            raise FleetError("the fleet does not answer")
        writes = self.declared != intent.declared
        self.intent, self.declared = intent, intent.declared
        return writes

    def move(self) -> None:
        """One step of the world: what was started becomes ready, one replica is replaced."""
        for name, replica in self.replicas.items():
            if not replica.ready:
                bad = replica.declared.setting in self.crashing
                self.replicas[name] = replace(
                    replica,
                    ready=not bad,
                    ready_since=None if bad else self._clock.now(),
                    restarts=replica.restarts + bad,
                    failure="exited with 1" if bad else "",
                )
        self._replace_one()
        self.least_ready = min(self.least_ready, sum(r.ready for r in self.replicas.values()))

    def _replace_one(self) -> None:
        if self.intent is None:
            return
        wanted = self.intent.declared
        has = [n for n, r in self.replicas.items() if r.declared == wanted]
        lacks = [n for n, r in self.replicas.items() if r.declared != wanted]
        most = self.intent.canary_replicas if self.intent.extent is Extent.CANARY else 99
        broken = [n for n in lacks if not self.replicas[n].ready]
        others_ready = all(r.ready for r in self.replicas.values())
        if lacks and len(has) < most and (broken or others_ready):
            name = (broken or lacks)[0]
            serial = int(self.replicas[name].instance.rsplit(".", 1)[1]) + 1
            self.replicas[name] = Replica(
                id=name, instance=f"{name}.{serial}", declared=wanted, ready=False
            )


class Steady(FakeFleet):
    """Shows the very same again while nothing of the target has changed, as a cache does."""

    shown: TargetState | None = None

    def observe(self, ref: TargetRef) -> TargetState:
        now = super().observe(ref)
        if now == self.shown:
            return self.shown
        self.shown = now
        return now


@dataclass
class FakeTelemetry:
    """Numbers by setting: `tpot["off"]` is the time per token of replicas that run off."""

    clock: WorldClock
    batch: float | None = 10.0
    tpot: dict[str, float] = field(default_factory=lambda: {"off": 0.02, "ngram": 0.02})
    length: float = 2.5
    """Acceptance length of whoever speculates, in every step."""
    silent: bool = False
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

    def _answer(self, ask: Ask) -> Readings:
        if self.silent or not ask.replicas or self.batch is None:
            return Readings.of(
                [unknown("batch_size", UnknownReason.SOURCE_ERROR, "Prometheus does not answer")]
            )
        setting = ask.replicas[0].declared.setting
        speed = self.tpot.get(setting, 0.02) * (1 + 0.01 * (ask.end.second % 3))
        values = {
            "batch_size": self.batch, "tpot_mean": speed, "e2e_mean": 1.0,
            "tokens_per_second_per_request": 1 / speed,
        }  # fmt: skip
        if setting != "off":
            values |= {
                "drafts": 1000.0, "mean_acceptance_length": self.length,
                "generated_tokens": 1000.0 * self.length,
            }  # fmt: skip
        return Readings.of(
            Reading(signal=name, value=value, count=50.0, at=ask.end)
            for name, value in values.items()
        )


class FakeRegistry:
    """Keeps what was published."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.statuses: dict[str, PolicyStatus] = {}
        self.extra: list[Policy] = []
        self.decisions: dict[str, Decision] = {}
        self.waiting: dict[str, str] = {}
        self.shown: dict[str, str] = {}
        self.invalid = False
        """The policy is there but its spec is not valid."""

    def policies(self) -> Sequence[Policy]:
        own = [self._world.policy] if self._world.policy is not None else []
        return [*([] if self.invalid else own), *self.extra]

    def exists(self, policy: PolicyRef) -> bool:
        return self._world.policy is not None and self._world.policy.ref == policy

    def decision(self, change: FlagChange) -> Decision | None:
        return self.decisions.get(change.id)

    def publish(self, status: PolicyStatus) -> None:
        self.statuses[status.policy.name] = status

    def publish_change(self, change: FlagChange, *, waiting_for: str) -> None:
        self.waiting[change.id] = waiting_for
        self.shown[change.id] = str(change.phase)
        self._world.mortality.strike()


class MortalFleet:
    """Dies before or after it is told something."""

    def __init__(self, fleet: FakeFleet, mortality: Mortality) -> None:
        self._fleet, self._mortality = fleet, mortality

    def observe(self, ref: TargetRef) -> TargetState:
        return self._fleet.observe(ref)

    def carry_out(self, intent: Intent) -> bool:
        changes = self._fleet.intent != intent
        if changes:
            self._mortality.strike()
        written = self._fleet.carry_out(intent)
        if changes:
            self._mortality.strike()
        return written


class MortalStore:
    """Dies before or after a commit."""

    def __init__(self, store: Store, mortality: Mortality) -> None:
        self._store, self._mortality = store, mortality

    @contextmanager
    def begin(self) -> Iterator[UnitOfWork]:
        with self._store.begin() as unit:
            yield unit
            self._mortality.strike()
        self._mortality.strike()

    def read(self) -> object:
        return self._store.read()


__all__ = ["REF", "Kill", "World"]
