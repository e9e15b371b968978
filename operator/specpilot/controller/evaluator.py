"""One tick: for every policy, readings -> verdicts -> proposal -> gates -> a recorded change.

What telemetry answers from is fetched for all of them at once, before the tick, so that the number
of questions does not grow with the number of policies. What a tick then does, it does for a few
policies at a time: the first of a thousand need not wait until the last has its numbers. Of a large
fleet each tick is about one portion of the policies (`domain.portions`).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from specpilot.controller.gatekeeper import objection_to
from specpilot.controller.parts import Parts
from specpilot.controller.proposals import Wanted, opened, proposal
from specpilot.controller.registry import PolicyStatus
from specpilot.controller.remembering import Remembering
from specpilot.controller.rulebook import Found, Rulebook
from specpilot.controller.status import (
    clock_trouble,
    duplicate,
    policy_status,
    signals_lost,
    without_rules,
)
from specpilot.controller.superseding import no_longer
from specpilot.controller.targets import (
    ActiveSettings,
    in_force,
    limits_left_to_rules,
    observe,
)
from specpilot.controller.ticking import Case, Tick, moved_first
from specpilot.controller.wanted import flight_ask, tick_ask, wanted_signals
from specpilot.domain import contests
from specpilot.domain.changes import ChangeReason, FlagChange, Phase, Transition
from specpilot.domain.context import TargetFacts
from specpilot.domain.evaluation import CompiledRuleSet, Evaluation, RuleSetError
from specpilot.domain.gates import GateReason, Objection
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Event, Mode, Policy
from specpilot.domain.readings import Readings
from specpilot.domain.settings import UNRECOGNISED, Setting
from specpilot.domain.targets import Replica, TargetState
from specpilot.engines import render_for
from specpilot.store import StoreError, TargetBusyError

log = logging.getLogger(__name__)

AT_A_TIME = 50
"""Policies that are asked for and judged together."""

SIGNALS_LOST_AFTER = timedelta(minutes=2)
"""How long no rule may be judged for want of data before that is an alert."""


def remember_active(memory: PolicyMemory, active: Setting, *, now: datetime) -> PolicyMemory:
    """Note what runs, and since when."""
    if memory.active != active.name:
        memory = replace(memory, active=active.name, active_since=now, probes_lost=0)
    if not active.is_off and active.name != UNRECOGNISED:
        memory = replace(memory, last_speculating=active.name)
    return memory


class Evaluator:
    """Decides what to propose."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._fleet = parts.fleet
        self._telemetry = parts.telemetry
        self._registry = parts.registry
        self._recorder = parts.recorder
        self._clock = parts.clock
        self._portions = parts.portions
        self._most = parts.most_concurrent
        self._latest: datetime | None = None
        self._rulebook = Rulebook(parts.store)
        self._remembering = Remembering()
        self._active = ActiveSettings()
        self._live: dict[str, Sequence[Replica]] = {}  # of every policy's target, as seen last
        self._open: dict[str, FlagChange] = {}  # changes, as they were read last
        self._late = ""

    def tick(self, portion: int = 0, *, late: str = "") -> None:
        """Evaluate every policy of a portion once.

        Args:
            portion: Which one.
            late: What to say of ticks that come later than they should, "" when they do not.
        """
        self._late = late
        now = self._clock.now()
        mine = self._mine(portion)
        first, rest = moved_first(mine, self._live, self._telemetry.moved, most=AT_A_TIME)
        ticks: list[Tick] = []
        try:
            if first:
                ticks.append(self._begin(first, now=now))
                self._judge_all(ticks[-1])
            ticks.append(self._begin(rest, now=now))
            self._telemetry.track([each for live in self._live.values() for each in live])
            self._judge_all(ticks[-1])
        finally:
            for tick in ticks:
                self._show(tick.to_show)
        self._latest = max(now, self._latest or now)

    def _begin(self, policies: Sequence[Policy], *, now: datetime) -> Tick:
        """Read all that is to be known of some policies, and say what will be asked of them."""
        states = {p.ref.uid: observe(self._fleet, p.target) for p in policies}
        with self._store.read() as uow:
            memories = uow.memory.get_many([p.ref.uid for p in policies])
            changes = uow.changes.open(known=self._open)
            self._remembering.load(uow, policies, now=now)
            self._rulebook.load(uow)
        self._open = {change.id: change for change in changes}
        in_flight = {change.target.key: change for change in changes}
        tick = Tick(now=now, states=states, memories=memories, in_flight=in_flight)
        tick.cases.extend(self._case(policy, tick) for policy in policies)
        self._telemetry.expect([ask for case in tick.cases for ask in case.asks])
        self._live |= {uid: state.live() for uid, state in states.items()}
        return tick

    def _judge_all(self, tick: Tick) -> None:
        """Evaluate, a few at a time, and write down what is to be remembered."""
        for start in range(0, len(tick.cases), AT_A_TIME):
            self._judge(tick.cases[start : start + AT_A_TIME], tick)
        changed = {u: m for u, m in tick.after.items() if tick.memories.get(u) != m}
        if changed or self._remembering.unwritten:
            with self._store.begin() as uow:
                uow.memory.put_many(changed)
                self._remembering.write(uow, now=tick.now)

    def _mine(self, portion: int) -> list[Policy]:
        """Policies of a portion; of several for one target the oldest, the others are told so."""
        first: dict[tuple[str, str, str], Policy] = {}
        mine: list[Policy] = []
        for policy in self._registry.policies():
            owner = first.setdefault(policy.target.key, policy)
            if self._portions.of(policy.target.namespace) != portion:
                continue
            if owner is policy:
                mine.append(policy)
            else:
                self._registry.publish(duplicate(policy, owner))
        steered = {policy.ref.uid for policy in first.values()}
        self._live = {uid: live for uid, live in self._live.items() if uid in steered}
        return mine

    def _case(self, policy: Policy, tick: Tick) -> Case:
        """The rules of a policy, and what they ask."""
        state, change = tick.states[policy.ref.uid], tick.change(policy)
        limits = limits_left_to_rules(policy, engine=state.engine)
        rules = self._rulebook.find(
            policy, change=change, memory=tick.memory(policy), limits=limits
        )
        signals = wanted_signals(policy, _compiled(rules))
        asks = [tick_ask(policy, state, change, signals=signals, now=tick.now)]
        if change is not None:
            asks.append(flight_ask(policy, state, change, now=tick.now))
        return Case(policy, rules, asks)

    def _judge(self, cases: Sequence[Case], tick: Tick) -> None:
        """Have some policies' questions answered, and evaluate them."""
        answers = self._telemetry.collect([ask for case in cases for ask in case.asks])
        for case in cases:
            policy, uid = case.policy, case.policy.ref.uid
            try:
                tick.after[uid], status = self._evaluate(
                    policy,
                    tick.states[uid],
                    answers.get(uid, Readings()),
                    tick.memory(policy),
                    tick.change(policy),
                    found=case.rules,
                    now=tick.now,
                )
                tick.to_show.append((policy, status))
            except StoreError:
                raise
            except Exception:  # one policy's fault must not stop the others
                log.exception("policy %s could not be evaluated", policy.ref)

    def _show(self, statuses: Sequence[tuple[Policy, Callable[[], PolicyStatus]]]) -> None:
        """Show how all policies are, once what is to be changed has been opened."""
        for policy, status in statuses:
            try:
                self._registry.publish(status())
            except StoreError:
                raise  # the next one would fare no better
            except Exception:  # one policy's fault must not stop the others
                log.exception("policy %s could not be shown", policy.ref)

    def _evaluate(
        self,
        policy: Policy,
        state: TargetState,
        readings: Readings,
        memory: PolicyMemory,
        in_flight: FlagChange | None,
        *,
        found: Found | RuleSetError,
        now: datetime,
    ) -> tuple[PolicyMemory, Callable[[], PolicyStatus]]:
        """Return what is to be remembered of a policy, and what puts its status together."""
        if isinstance(found, RuleSetError):
            return memory, partial(without_rules, policy, str(found))
        version, rules = found
        label = f"{version.rule_set.name}@{version.version}"
        if memory.rules != label:
            memory = replace(memory, rules=label, pending={})
        status = partial(policy_status, policy, state, version, late=self._late)
        if state.problem is not None:
            clock = self._clock_trouble(memory, in_flight)
            return memory, partial(
                status, readings, memory=memory, in_flight=in_flight, clock=clock
            )
        declared = in_force(state, in_flight)
        active = self._active.of(policy, declared, engine=state.engine)
        if in_flight is None:
            memory = remember_active(memory, active, now=now)
            memory = contests.noticed(memory, declared, now=now)
        memory = self._contested(policy, memory, now=now)
        readings = self._remembering.add(
            readings,
            policy=policy,
            state=state,
            memory=memory,
            active=active,
            declared=declared,
            now=now,
        )
        evaluation = rules.evaluate(
            readings,
            active=active,
            parameters=policy.parameters,
            pending=memory.pending,
            target=TargetFacts.of(state),
            now=now,
        )
        if memory.pending != evaluation.pending:
            memory = replace(memory, pending=evaluation.pending)
        lost = signals_lost(evaluation, active)
        memory = self._signals_lost(policy, evaluation, memory, lost=lost, now=now)
        wanted = proposal(
            policy,
            version=version,
            evaluation=evaluation,
            readings=readings,
            memory=memory,
            active=active,
            now=now,
        )
        objection: Objection | None = None
        if wanted is None and memory.advised:
            memory = replace(memory, advised="")
        if in_flight is not None:
            in_flight = self._supersede(
                policy, in_flight, evaluation, memory, active=active, state=state
            )
        elif wanted is not None:
            objection, in_flight, memory = self._propose(
                policy, state, readings, memory, wanted, now=now
            )
        return memory, partial(
            status,
            readings,
            memory=memory,
            in_flight=in_flight,
            clock=self._clock_trouble(memory, in_flight),
            active=active,
            evaluation=evaluation,
            wanted=wanted,
            objection=objection,
        )

    def _signals_lost(
        self,
        policy: Policy,
        evaluation: Evaluation,
        memory: PolicyMemory,
        *,
        lost: bool,
        now: datetime,
    ) -> PolicyMemory:
        if not lost:
            if memory.signals_lost is None and not memory.signals_lost_alerted:
                return memory
            return replace(memory, signals_lost=None, signals_lost_alerted=False)
        since = memory.signals_lost or now
        memory = replace(memory, signals_lost=since)
        if memory.signals_lost_alerted or now - since < SIGNALS_LOST_AFTER:
            return memory
        self._recorder.alert(
            policy, Event.SIGNALS_LOST, key=f"{since.isoformat()}/lost", message=evaluation.words()
        )
        return replace(memory, signals_lost_alerted=True)

    def _contested(self, policy: Policy, memory: PolicyMemory, *, now: datetime) -> PolicyMemory:
        """Stop, and alert once, where our value is undone again and again."""
        weighed = contests.weighed(memory, policy, now=now)
        if weighed.contested is not None and memory.contested is None:
            self._recorder.alert(
                policy,
                Event.CONTESTED,
                key=f"{now.isoformat()}/contested",
                message=contests.words(weighed, policy),
            )
        return weighed

    def _supersede(
        self,
        policy: Policy,
        change: FlagChange,
        evaluation: Evaluation,
        memory: PolicyMemory,
        *,
        active: Setting,
        state: TargetState,
    ) -> FlagChange | None:
        """Withdraw a proposal that waits when it is no longer what would be proposed.

        An approval is one of what was shown: with another setting, another config under the same
        name, or a rule that has become false, it starts afresh.
        """
        if change.phase is not Phase.PENDING:
            return change
        why = no_longer(
            change, policy=policy, evaluation=evaluation, memory=memory, active=active, state=state
        )
        if not why:
            return change
        step = Transition(to=Phase.ABORTED, reason=ChangeReason.SUPERSEDED, message=why)
        self._registry.publish_change(self._recorder.step(change, step, policy), waiting_for="")
        return None

    def _propose(
        self,
        policy: Policy,
        state: TargetState,
        readings: Readings,
        memory: PolicyMemory,
        wanted: Wanted,
        *,
        now: datetime,
    ) -> tuple[Objection | None, FlagChange | None, PolicyMemory]:
        rendered = render_for(wanted.setting, state.engine)
        objection = objection_to(
            wanted.setting,
            wanted.kind,
            policy=policy,
            state=state,
            readings=readings,
            memory=memory,
            store=self._store,
            most=self._most,
            now=now,
        )
        if objection is not None:
            return objection, None, memory
        advice = f"{wanted.rule}:{state.declared.setting}->{wanted.setting.name}"
        if policy.mode is Mode.ADVISORY and memory.advised == advice:
            return None, None, memory
        change = opened(
            wanted,
            policy=policy,
            state=state,
            readings=readings,
            config=rendered.config,
            now=now,
        )
        try:
            stored = self._recorder.open(change, policy)
        except TargetBusyError as error:
            return (
                Objection(reason=GateReason.CHANGE_IN_FLIGHT, message=str(error)),
                None,
                memory,
            )
        log.info("%s: %s -> %s: %s", policy.ref, change.phase, wanted.setting.name, wanted.message)
        self._registry.publish_change(stored, waiting_for="")
        in_flight = None if stored.phase.ended else stored
        return None, in_flight, replace(memory, advised=advice)

    def _clock_trouble(self, memory: PolicyMemory, in_flight: FlagChange | None) -> str:
        began = in_flight.phase_since if in_flight else None
        return clock_trouble(self._latest, memory.active_since, began, now=self._clock.now())


def _compiled(found: Found | RuleSetError) -> CompiledRuleSet | None:
    return None if isinstance(found, RuleSetError) else found[1]
