"""Several targets at once: told at the same time, decided on one after the other."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from specpilot.controller.acts import Acts
from specpilot.controller.registry import PolicyStatus
from specpilot.domain.changes import FlagChange, Intent, Phase
from specpilot.domain.policy import Mode, PolicyRef
from specpilot.domain.ports import Ask, FleetError
from specpilot.domain.readings import Readings
from specpilot.domain.settings import Declared
from specpilot.domain.situation import Answer, Decision
from specpilot.domain.targets import Replica, TargetRef, TargetState
from specpilot.store import StoreError
from tests.cluster.waiting import wait_for
from tests.unit.controller.world import (
    NGRAM_CONFIG,
    FakeFleet,
    FakeRegistry,
    FakeTelemetry,
    Kill,
    Steady,
    World,
    WorldClock,
)

LONG_S = 30.0
NAMES = ("chat", "code", "search")


class Fleets:
    """A fleet of its own for each target."""

    def __init__(self, world: World) -> None:
        start = Declared(setting="ngram", config=NGRAM_CONFIG, change_id="")
        self.of = {name: FakeFleet(world.clock, size=3, declared=start) for name in NAMES}
        self.intent: Intent | None = None
        self.before: Callable[[Intent], object] = lambda _: None
        """What happens before a target is told something."""

    def observe(self, ref: TargetRef) -> TargetState:
        return self.of[ref.name].observe(ref)

    def carry_out(self, intent: Intent) -> bool:
        self.before(intent)
        return self.of[intent.target.name].carry_out(intent)

    def move(self) -> None:
        for fleet in self.of.values():
            fleet.move()

    @property
    def told(self) -> set[str]:
        return {name for name, fleet in self.of.items() if fleet.intent is not None}


class Told(FakeRegistry):
    """Notes in which order things are shown."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.order: list[str] = []

    def publish(self, status: PolicyStatus) -> None:
        super().publish(status)
        self.order.append("status")

    def publish_change(self, change: FlagChange, *, waiting_for: str) -> None:
        super().publish_change(change, waiting_for=waiting_for)
        self.order.append("change")


class Three(World):
    """Three targets, each with a policy, and all of them busy."""

    def __init__(self, directory: Path, **fields: object) -> None:
        super().__init__(directory, **fields)
        assert self.policy is not None
        self.registry = self.told = Told(self)
        self.registry.extra = [
            replace(
                self.policy,
                ref=PolicyRef(namespace="local", name=name, uid=f"u-{name}"),
                target=replace(self.policy.target, name=name),
            )
            for name in NAMES[1:]
        ]
        self.fleets = Fleets(self)
        self.fleet = self.fleets  # type: ignore[assignment]  # what the loop uses of it
        self.telemetry.batch = 40
        self.boot()

    def in_flight(self) -> list[str]:
        return sorted(c.target.name for c in self.changes() if c.phase.touches_replicas)


def test_the_fleet_is_told_of_all_targets_at_the_same_time(tmp_path: Path) -> None:
    world = Three(tmp_path)
    meeting = threading.Barrier(len(NAMES))
    world.fleets.before = lambda _: meeting.wait(LONG_S)
    world.evaluator.tick()
    assert world.reconciler.run() == len(NAMES)
    assert world.fleets.told == set(NAMES)
    assert not meeting.broken


def test_changes_are_opened_before_any_status_is_shown(tmp_path: Path) -> None:
    world = Three(tmp_path)
    world.evaluator.tick()
    assert world.told.order == ["change"] * 3 + ["status"] * 3


class Ordered(FakeTelemetry):
    """Notes in which order it is told and asked things."""

    def __init__(self, clock: WorldClock) -> None:
        super().__init__(clock)
        self.order: list[str] = []

    def expect(self, asks: Sequence[Ask]) -> None:
        self.order.append(f"expect {len(asks)}")

    def track(self, replicas: Sequence[Replica]) -> None:
        self.order.append(f"track {len(replicas)}")

    def collect(self, asks: Sequence[Ask]) -> Mapping[str, Readings]:
        self.order.append(f"collect {len(asks)}")
        return super().collect(asks)


def test_what_all_will_ask_is_said_before_the_first_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a new leader's first look is for a part of them, and the rest is blind for a window."""
    monkeypatch.setattr("specpilot.controller.evaluator.AT_A_TIME", 2)
    world = Three(tmp_path)
    world.telemetry = ordered = Ordered(world.clock)
    world.boot()
    world.evaluator.tick()
    assert ordered.order == ["expect 3", "track 9", "collect 2", "collect 1"]


class ByTarget:
    """Each target is in a namespace, and a portion, of its own."""

    most = count = len(NAMES)

    def of(self, namespace: str) -> int:
        return NAMES.index(namespace)


class Apart(Three):
    """Three targets that are looked at one after the other."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        assert self.policy is not None
        self.policy, *self.registry.extra = (
            replace(each, target=replace(each.target, namespace=each.target.name))
            for each in (self.policy, *self.registry.extra)
        )
        self.telemetry = self.ordered = Ordered(self.clock)
        self.telemetry.batch = 40
        self.telemetry.lag_s = 20.0
        start = Declared(setting="ngram", config=NGRAM_CONFIG, change_id="")
        self.fleets.of = {n: Steady(self.clock, size=3, declared=start) for n in NAMES}
        self.portions = ByTarget()
        self.boot()

    def tick(self, portion: int) -> None:
        self.clock.at += timedelta(seconds=5)
        self.evaluator.tick(portion)


def test_a_tick_is_about_the_targets_of_its_portion(tmp_path: Path) -> None:
    world = Apart(tmp_path)
    for portion in range(len(NAMES)):
        world.ordered.order.clear()
        world.tick(portion)
        assert [c.target.name for c in world.changes()] == list(NAMES[: portion + 1])
        assert set(world.registry.statuses) == set(NAMES[: portion + 1])
        told = ["expect 1", f"track {3 * (portion + 1)}", "collect 1"]
        assert world.ordered.order == told, "replicas of the other portions stay tracked"


def test_a_target_of_another_portion_that_is_gone_is_tracked_no_more(tmp_path: Path) -> None:
    world = Apart(tmp_path)
    for portion in range(len(NAMES)):
        world.tick(portion)
    world.registry.extra.pop()
    world.ordered.order.clear()
    world.tick(0)
    assert "track 6" in world.ordered.order


def test_the_oldest_policy_of_a_target_is_the_one_that_counts_in_every_portion(
    tmp_path: Path,
) -> None:
    world = Apart(tmp_path)
    code = world.registry.extra[0]
    again = PolicyRef(namespace="local", name="again", uid="u-again")
    world.registry.extra.append(replace(code, ref=again))
    world.tick(0)
    assert "again" not in world.registry.statuses, "it is of another portion"
    world.tick(1)
    assert [c.policy.name for c in world.changes()] == ["chat", "code"]
    assert "code" in world.registry.statuses["again"].conditions[0].message


def test_new_numbers_wake_the_changes_they_are_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Apart(tmp_path)
    for portion in range(len(NAMES)):
        world.tick(portion)
    world.fleet.move()
    for _ in range(3):
        world.reconciler.run()
    looked: list[str] = []
    look = world.reconciler._mark_ready

    def note(change: FlagChange, state: TargetState) -> FlagChange:
        looked.append(change.target.name)
        return look(change, state)

    monkeypatch.setattr(world.reconciler, "_mark_ready", note)
    world.reconciler.run()
    assert looked == [], "they rest"
    world.reconciler.numbers_came(1)
    world.reconciler.run()
    assert looked == ["code"]


def test_whose_load_has_changed_most_is_decided_on_first(tmp_path: Path) -> None:
    """Thousands are judged one after the other, and few of them wait for it."""
    world = Three(tmp_path)
    world.telemetry.batch = 10
    moved = {"chat": 0.0, "code": 0.1, "search": 3.0}
    for name, fleet in world.fleets.of.items():
        fleet.replicas = {id_: replace(r, namespace=name) for id_, r in fleet.replicas.items()}
    world.telemetry.moved = lambda replica: moved[replica.namespace]  # type: ignore[method-assign]
    world.evaluator.tick()
    world.telemetry.batch = 40
    opened: list[str] = []
    world.told.publish_change = (  # type: ignore[method-assign]
        lambda change, waiting_for: opened.append(change.target.name)  # noqa: ARG005
    )
    world.evaluator.tick()
    assert opened == ["search", "code", "chat"]


def test_what_was_seen_of_one_is_kept_when_the_database_fails_at_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Three(tmp_path)
    world.run(20)
    assert len(world.in_flight()) == len(NAMES)
    first, second, _ = sorted(world.changes(), key=lambda change: change.id)
    look = world.reconciler._reconcile

    def fails(change: FlagChange, *rest: object) -> FlagChange:
        if change.id == second.id:
            raise StoreError("disk full")
        return look(change, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(world.reconciler, "_reconcile", fails)
    world.clock.at += timedelta(seconds=60)
    for name, replica in world.fleets.of[first.target.name].replicas.items():
        world.fleets.of[first.target.name].replicas[name] = replace(replica, ready=False)
    with pytest.raises(StoreError, match="disk full"):
        world.reconciler.run()
    after = next(change for change in world.changes() if change.id == first.id)
    assert after.seen != first.seen


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.APPROVE])
def test_no_more_are_begun_at_a_time_than_are_allowed(tmp_path: Path, mode: Mode) -> None:
    """However many ask in one tick, or are approved at one moment."""
    world = Three(tmp_path, mode=mode)
    world.most_concurrent = 1
    world.boot()
    most = 0
    for _ in range(100):
        for change in world.changes():
            if change.phase is Phase.PENDING:
                by = Decision(answer=Answer.APPROVE, by="ann")
                world.registry.decisions.setdefault(change.id, by)
        world.run(5)
        most = max(most, len(world.in_flight()))
        if len([c for c in world.changes() if c.phase is Phase.SUCCEEDED]) == len(NAMES):
            break
    else:
        pytest.fail("each of them gets its turn")
    assert most == 1


def test_one_target_that_cannot_be_told_keeps_no_other_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = Three(tmp_path)
    faults = {"chat": FleetError("does not answer"), "code": ZeroDivisionError("a fault of ours")}

    def fail(intent: Intent) -> None:
        if intent.target.name in faults:
            raise faults[intent.target.name]

    world.fleets.before = fail
    world.evaluator.tick()
    with caplog.at_level(logging.WARNING, logger="specpilot"):
        assert world.reconciler.run() == len(NAMES)
    assert world.fleets.told == {"search"}
    assert "does not answer; trying again" in caplog.text
    assert "could not be carried out" in caplog.text
    faults.clear()
    world.reconciler.run()
    assert world.fleets.told == set(NAMES), "the next run tells them"


def test_the_process_dies_while_it_tells_them(tmp_path: Path) -> None:
    world = Three(tmp_path)

    def die(intent: Intent) -> None:
        if intent.target.name == "code":
            raise Kill

    world.fleets.before = die
    world.evaluator.tick()
    with pytest.raises(Kill):
        world.reconciler.run()
    world.fleets.before = lambda _: None
    world.boot()
    world.run(400, until=lambda: all(c.phase.ended for c in world.changes()))
    assert [c.phase for c in world.changes()] == [Phase.SUCCEEDED] * 3
    with world.store.read() as unit:
        assert unit.audit.verify().ok


def test_a_tick_may_come_while_targets_are_being_told(tmp_path: Path) -> None:
    """It takes its turn between two changes, and proposes nothing for those that are in flight."""
    world = Three(tmp_path)
    world.evaluator.tick()
    may_go_on = threading.Event()
    world.fleets.before = lambda _: may_go_on.wait(LONG_S)
    ticks = 0

    def between() -> None:
        nonlocal ticks
        ticks += 1
        world.evaluator.tick()
        if ticks == len(NAMES):
            assert world.fleets.told == set(), "they are still under way"
            may_go_on.set()

    world.reconciler.run(between=between)
    assert ticks == len(NAMES)
    assert world.fleets.told == set(NAMES)
    assert len(world.changes()) == len(NAMES)


def test_acts_wait_for_room_before_the_next_look() -> None:
    may_end = threading.Event()
    looked = threading.Event()
    with Acts(at_once=2) as acts:
        for _ in range(2):
            acts.make_room()
            acts.begin(lambda: may_end.wait(LONG_S) and None)

        def look() -> None:
            acts.make_room()
            looked.set()

        looking = threading.Thread(target=look)
        looking.start()
        assert not looked.wait(0.05), "both are under way"
        may_end.set()
        wait_for(looked.is_set, deadline=LONG_S, describe="there is room again")
        looking.join(LONG_S)
