"""Whatever happens in whatever order: evaluator, reconciler and store are the real ones.

A target that behaves as a Deployment does is steered while processes are killed at any effect, the
API server conflicts, fails and loses answers, watches have gaps, people edit, delete and take over,
nodes are lost, the clock jumps both ways, settings crash and numbers go missing. What must hold:

- at most one change of the target is in flight;
- a change ends when the trouble does, and then every replica runs what the workload declares;
- each step of a change has one audit record, in a legal order, and the chain is whole;
- nothing is proposed, promoted or broken without numbers;
- a replica is never told anything but the two settings of the change in flight.
"""

import itertools
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from specpilot.domain.changes import (
    TRANSITIONS,
    ChangeKind,
    ChangeReason,
    FlagChange,
    Phase,
)
from specpilot.domain.policy import Mode, Policy, PolicyRef, Probe
from specpilot.domain.settings import Declared
from specpilot.domain.situation import Answer, Decision
from tests.unit.controller.model import START, Fails, ModelFleet, Modelled, Numbers
from tests.unit.controller.world import Kill
from tests.unit.domain.builders import REF

THEIRS = Declared(setting="unrecognised", config='{"method":"suffix"}', change_id="")
PROBE = Probe(every=timedelta(seconds=90), longest=timedelta(seconds=400))
JUDGED = frozenset(
    {ChangeReason.ANALYSIS_PASSED, ChangeReason.PROBE_WON, ChangeReason.GUARDRAIL_BROKEN}
)
"""Reasons that need numbers."""

STEP_S = 5.0
HEAL_S = 4000.0
"""Longer than any patience in this world, and than the clock is ever set back."""


class Machine(RuleBasedStateMachine):
    """Steps of the world and of everybody in it."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory(prefix="machine-", dir=_memory())
        self.world: Modelled
        self.policy: Policy
        self.known: dict[str, FlagChange] = {}
        self.uids = 1

    @initialize(
        size=st.integers(1, 4),
        mode=st.sampled_from([Mode.AUTO, Mode.AUTO, Mode.APPROVE]),
        lag_s=st.sampled_from([0.0, 30.0]),
    )
    def start(self, size: int, mode: Mode, lag_s: float) -> None:
        """Begin; where numbers take their time, a change that waits is not looked at each step."""
        self.world = Modelled(Path(self._directory.name), size=size, mode=mode, probe=PROBE)
        self.world.numbers.lag_s = lag_s
        assert self.world.policy is not None
        self.policy = self.world.policy
        self.all_is_well_and_a_flip_is_asked_for(1, "off", 0.02, 0.0)

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self._heals()
        finally:
            if hasattr(self, "world"):
                self.world.store.close()
            self._directory.cleanup()

    # --- time

    @rule(
        times=st.integers(1, 30),
        wants=st.sampled_from(["off", "ngram", "nothing"]),
        tpot=st.sampled_from([0.01, 0.02, 0.02, 0.04]),
        refused=st.sampled_from([0.0, 0.0, 0.3]),
    )
    def all_is_well_and_a_flip_is_asked_for(
        self, times: int, wants: str, tpot: float, refused: float
    ) -> None:
        """Trouble is drawn so often that, left alone, hardly anything would ever be begun."""
        self._well()
        self.world.numbers.tpot[wants] = tpot
        self.world.numbers.refuses[wants] = refused
        self.world.numbers.batch = {"off": 40.0, "ngram": 1.0, "nothing": 10.0}[wants]
        if self.world.policy is None:
            self.the_policy_is_there_again()
        assert self.world.policy is not None
        mode = self.policy.mode
        self.world.policy = replace(self.world.policy, mode=mode, paused=False)
        self.time_passes(times)

    @rule(times=st.integers(1, 12))
    def time_passes(self, times: int) -> None:
        for _ in range(times):
            self._step()

    def _step(self, seconds: float = STEP_S) -> None:
        world = self.world
        world.clock.at += timedelta(seconds=seconds)
        world.model.move()
        blind = world.numbers.blind
        try:
            world.evaluator.tick()
            world.reconciler.run()
        except Kill:
            world.mortality.dies_at = None
            world.boot()
        self._look(blind=blind)

    @rule(seconds=st.integers(30, 3600))
    def clock_jumps(self, seconds: int) -> None:
        self.world.clock.at += timedelta(seconds=seconds)

    @rule(seconds=st.integers(1, 600))
    def clock_is_set_back(self, seconds: int) -> None:
        self.world.clock.at -= timedelta(seconds=seconds)

    # --- load and numbers

    @rule(batch=st.sampled_from([1.0, 10.0, 40.0]))
    def load_changes(self, batch: float) -> None:
        self.world.numbers.batch = batch

    @rule(numbers=st.sampled_from(Numbers))
    def numbers_change(self, numbers: Numbers) -> None:
        self.world.numbers.numbers = numbers

    @rule(setting=st.sampled_from(["off", "ngram"]), tpot=st.sampled_from([0.01, 0.02, 0.04]))
    def a_setting_has_another_speed(self, setting: str, tpot: float) -> None:
        self.world.numbers.tpot[setting] = tpot

    @rule(setting=st.sampled_from(["off", "ngram"]), share=st.sampled_from([0.0, 0.3]))
    def a_setting_refuses_requests(self, setting: str, share: float) -> None:
        self.world.numbers.refuses[setting] = share

    @rule(setting=st.sampled_from(["off", "ngram"]))
    def a_setting_crashes_or_does_no_more(self, setting: str) -> None:
        self.world.model.crashing ^= {setting}

    # --- processes and the API server

    @rule(after=st.integers(1, 8))
    def the_operator_is_killed(self, after: int) -> None:
        mortality = self.world.mortality
        mortality.dies_at = mortality.effects + after

    @rule(times=st.integers(1, 20))
    def the_api_server_is_away(self, times: int) -> None:
        self.world.model.unreachable = times

    @rule(fails=st.lists(st.sampled_from(Fails), min_size=1, max_size=4))
    def writes_fail(self, fails: list[Fails]) -> None:
        self.world.model.fails = list(fails)

    @rule()
    def a_watch_has_a_gap(self) -> None:
        self.world.model.old = self.world.model.now(REF)

    @precondition(lambda self: self.world.model.old is not None)
    @rule()
    def the_watch_catches_up(self) -> None:
        self.world.model.old = None

    # --- people

    @rule()
    def somebody_edits_the_workload(self) -> None:
        self.world.model.edit()

    @rule(theirs=st.sampled_from([THEIRS, START, Declared()]))
    def somebody_takes_our_fields_over(self, theirs: Declared) -> None:
        self.world.model.take_over(theirs)

    @rule(undoes=st.booleans())
    def an_owner_undoes_at_once_what_we_write(self, undoes: bool) -> None:
        self.world.model.undone_at_once = undoes

    @rule(size=st.integers(1, 5))
    def somebody_scales(self, size: int) -> None:
        self.world.model.desired = size

    @rule()
    def the_workload_is_deleted(self) -> None:
        self.world.model.gone, self.world.model.pods = True, []

    @precondition(lambda self: self.world.model.gone)
    @rule()
    def the_workload_is_there_again(self) -> None:
        self._recreate()

    def _recreate(self) -> None:
        old = self.world.model
        fresh = ModelFleet(self.world.clock, size=max(1, old.desired), declared=START)
        fresh.crashing, fresh.template = old.crashing, old.template
        self.world.model = fresh
        self.world.fleet = fresh  # type: ignore[assignment]
        self.world.boot()

    @rule(index=st.integers(0, 4))
    def a_node_is_lost(self, index: int) -> None:
        self.world.model.lose_node(index)

    @rule(index=st.integers(0, 4))
    def a_replica_flaps(self, index: int) -> None:
        self.world.model.flap(index)

    @rule(mode=st.sampled_from(Mode), paused=st.booleans())
    def the_policy_is_edited(self, mode: Mode, paused: bool) -> None:
        if self.world.policy is not None:
            self.world.policy = replace(self.world.policy, mode=mode, paused=paused)

    @rule()
    def the_policy_is_deleted(self) -> None:
        self.world.policy = None

    @precondition(lambda self: self.world.policy is None)
    @rule()
    def the_policy_is_there_again(self) -> None:
        self.uids += 1
        ref = PolicyRef(namespace="local", name="chat", uid=f"u{self.uids}")
        self.world.policy = replace(self.policy, ref=ref)

    @rule(answer=st.sampled_from(Answer))
    def somebody_decides(self, answer: Answer) -> None:
        for change in self.world.changes():
            if change.phase is Phase.PENDING:
                self.world.registry.decisions[change.id] = Decision(answer=answer, by="ann")

    # --- what must hold

    def _look(self, *, blind: bool) -> None:
        """Compare with the look before: what is new must have had a reason."""
        for change in self.world.changes():
            before = self.known.get(change.id)
            if before is None:
                assert not blind, f"{change.id} was proposed blind: {change.message}"
                numbers = [e for e in change.evidence if e.value is not None]
                assert numbers, f"{change.id} has no evidence"
                if change.kind is ChangeKind.RULE:
                    assert any(e.threshold is not None for e in numbers)
            if change.reason in JUDGED and (before is None or before.reason is not change.reason):
                judged = change.slices if before is None or not before.watched else before.watched
                assert len(judged) >= 3, f"{change.id} judged on {len(judged)} slices"
            self.known[change.id] = change

    @invariant()
    def one_change_at_a_time(self) -> None:
        if hasattr(self, "world"):
            with self.world.store.read() as unit:
                assert len(unit.changes.open()) <= 1

    @invariant()
    def nothing_but_the_changes_settings_was_said(self) -> None:
        if not hasattr(self, "world"):
            return
        said = {i.declared for i in self.world.model.spoken}
        theirs = {THEIRS, START, Declared()}
        ours = {d for c in self.world.changes() for d in (c.origin, c.wanted)}
        assert said <= ours | theirs

    def _well(self) -> None:
        world = self.world
        world.mortality.dies_at = None
        if world.model.gone:
            self._recreate()
        world.model.unreachable, world.model.fails, world.model.old = 0, [], None
        world.model.crashing, world.model.undone_at_once = set(), False
        world.numbers.numbers, world.numbers.batch = Numbers.KNOWN, 10.0
        world.numbers.tpot, world.numbers.refuses = {}, {}

    def _heals(self) -> None:
        """All trouble ends: so does every change, and the target is at rest."""
        self._well()
        world = self.world
        if world.policy is not None:
            # Nothing new, so that what is in flight can be seen to end.
            world.policy = replace(world.policy, paused=True, mode=Mode.AUTO)
        for _ in range(int(HEAL_S / 20)):
            self._step(20.0)
            with world.store.read() as unit:
                if not unit.changes.open() and self._at_rest():
                    break
        with world.store.read() as unit:
            left = unit.changes.open()
        assert all(c.phase is Phase.PENDING for c in left), f"{left[0].phase}: never ended"
        assert self._at_rest(), "a mixture, or a roll that is held for ever"
        self._audited()

    def _at_rest(self) -> bool:
        model = self.world.model
        return (
            not model.held
            and len(model.pods) == model.desired
            and all(p.replica.declared == model.declared and p.replica.ready for p in model.pods)
        )

    def _audited(self) -> None:
        with self.world.store.read() as unit:
            assert unit.audit.verify().ok
        for change in self.world.changes():
            phases = [Phase(word) for word in self.world.phases(change.id)]
            note(f"{change.id}: {' '.join(phases)}")
            assert phases[-1] is change.phase
            assert len(phases) == change.step + 1, "one record a step"
            assert all(b in TRANSITIONS[a] for a, b in itertools.pairwise(phases))


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
)
