"""Carrying a flag change on: look, decide, record, act; repeatable after a crash at any line."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from specpilot.controller.acts import Acts
from specpilot.controller.analysis import (
    MEASURED_PHASES,
    arms,
    make_slice,
    next_slice,
    slice_asks,
)
from specpilot.controller.gatekeeper import objection_to
from specpilot.controller.parts import Parts
from specpilot.controller.resting import Ground, Resting
from specpilot.controller.targets import observe
from specpilot.controller.wanted import judged_signals, known_at_proposal, tick_ask
from specpilot.domain.changes import (
    ChangeReason,
    FlagChange,
    Intent,
    Phase,
    Transition,
    intent,
)
from specpilot.domain.economics import Measurement, engine_of, measure
from specpilot.domain.gates import GateReason, Objection
from specpilot.domain.judging import KEPT
from specpilot.domain.lifecycle import decide
from specpilot.domain.policy import Canary, Policy
from specpilot.domain.ports import Ask, FleetError
from specpilot.domain.readiness import look
from specpilot.domain.readings import Readings
from specpilot.domain.situation import Situation, Wait
from specpilot.domain.targets import TargetProblem, TargetState
from specpilot.engines import render_for
from specpilot.store import ConcurrentUpdateError, StoreError

log = logging.getLogger(__name__)


_DECIDED = frozenset({ChangeReason.APPROVED, ChangeReason.REJECTED})


SHOWN = 10
"""Newest changes that a new process shows again; older ones were shown by another."""


class Reconciler:
    """Moves every open change one step, or says what it waits for."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._fleet = parts.fleet
        self._telemetry = parts.telemetry
        self._registry = parts.registry
        self._recorder = parts.recorder
        self._clock = parts.clock
        self._portions = parts.portions
        self._most = parts.most_concurrent
        self._patch = parts.patch
        self._caught_up = False
        self._written: Counter[str] = Counter()  # settings of changes in flight, by change
        self._open: dict[str, FlagChange] = {}  # as they were read last
        self._resting = Resting()

    def numbers_came(self, portion: int = 0) -> None:
        """Say that there are new numbers: each change they are about is looked at in the next run.

        Args:
            portion: Which targets they are of.
        """
        for change in self._open.values():
            if self._portions.of(change.target.namespace) == portion:
                self._resting.wake(change.id)

    def run(self, *, between: Callable[[], object] = lambda: None) -> int:
        """Reconcile every open change once; return how many are still open.

        Args:
            between: Called after each change. What it lets happen to a change that is still to
                come is noticed by that change's revision. What changes ask of the fleet may still
                be under way, each of them for a change that is open in the database.
        """
        self._catch_up()
        with self._store.read() as uow:
            changes = uow.changes.open(known=self._open)
        self._open = {change.id: change for change in changes}
        if not changes:
            return 0
        policies = {p.ref.uid: p for p in self._registry.policies()}
        still_open = 0
        noted: list[FlagChange] = []
        with Acts() as acts:
            for change in changes:
                policy = policies.get(change.policy.uid)
                if policy is None and self._registry.exists(change.policy):
                    still_open += 1  # its spec is not valid now: hold, as with all that is unknown
                    continue
                acts.make_room()
                try:
                    moved = self._reconcile(change, policy, acts, noted)
                    still_open += not moved.phase.ended
                except ConcurrentUpdateError:
                    still_open += 1  # moved on by another process: seen at the next run
                except StoreError:
                    with suppress(StoreError):
                        self._note(noted)
                    raise  # the next change would fare no better
                except Exception:  # one change's fault must not stop the others
                    still_open += 1
                    log.exception("change %s could not be reconciled", change.id)
                between()
            self._note(noted)
        return still_open

    def _note(self, changes: Sequence[FlagChange]) -> None:
        stored = {change.id for change in self._recorder.note(changes)}
        for change in changes:
            if change.id not in stored:
                self._resting.wake(change.id)

    def _catch_up(self) -> None:
        """Show changes that ended when no process was there to show it any more."""
        if self._caught_up:
            return
        with self._store.read() as uow:
            newest = uow.changes.recent(limit=SHOWN)
        for change in newest:
            if change.phase.ended:
                self._registry.publish_change(change, waiting_for="")
        self._caught_up = True

    def _reconcile(
        self, change: FlagChange, policy: Policy | None, acts: Acts, noted: list[FlagChange]
    ) -> FlagChange:
        """Take every step that is due, then bring the workload closer to what the phase asks.

        A change of which more is known now and that takes no step is added to `noted`.
        """
        state = observe(self._fleet, change.target)
        pending = change.phase is Phase.PENDING
        ground = Ground(
            revision=change.revision,
            policy=policy,
            state=state,
            decision=self._registry.decision(change) if pending else None,
        )
        if self._rests(change, ground):
            return change
        self._resting.wake(change.id)
        stored = change = self._mark_applied(change, state)
        change = self._mark_ready(change, state)
        canary, stepped = Readings(), False
        if policy is not None and change.phase in MEASURED_PHASES:
            change, canary = self._measure(change, policy, state)
        waiting_for = ""
        while not change.phase.ended:
            step = decide(change, self._situation(change, policy, state, canary))
            if isinstance(step, Wait):
                waiting_for = step.message
                break
            stored = change = self._step(change, step, policy, state)
            canary, stepped = Readings(), True
        if change.phase.ended:
            del self._written[change.id]
            self._resting.wake_all()  # another one may have waited for its end
        else:
            revision = change.revision
            if change is not stored:
                noted.append(change)
                revision += 1
            if not stepped:  # a new phase looks at what the one before did not
                now = self._clock.now()
                self._resting.lay(change.id, replace(ground, revision=revision), now=now)
            self._act(change, policy.canary.replicas if policy is not None else 1, state, acts)
        self._registry.publish_change(change, waiting_for=waiting_for)
        return change

    def _rests(self, change: FlagChange, ground: Ground) -> bool:
        """Whether a look would find what the one before found."""
        now, lag_s, policy = self._clock.now(), self._telemetry.lag_s, ground.policy
        if not self._resting.rests(change, ground, lag_s=lag_s, now=now):
            return False
        if policy is None or change.phase not in MEASURED_PHASES:
            return True
        return next_slice(change, policy, lag_s=lag_s, now=now) is None

    def _mark_applied(self, change: FlagChange, state: TargetState) -> FlagChange:
        """Note that ours was applied: when it is undone, that is how somebody else is known.

        Raises:
            ConcurrentUpdateError: Somebody moved the change on.
        """
        if change.seen_applied or state.problem is not None or state.declared != change.wanted:
            return change
        if not change.phase.touches_replicas:
            return change
        # At once, unlike what else is noted: who dies before must not take it for never applied.
        stored = self._recorder.note([replace(change, seen_applied=True)])
        if not stored:
            raise ConcurrentUpdateError(f"flag change {change.id} was moved on")
        return stored[0]

    def _mark_ready(self, change: FlagChange, state: TargetState) -> FlagChange:
        """Add who is ready now: what later looks cannot see."""
        if state.problem is not None or change.phase not in MEASURED_PHASES:
            return change
        seen = look(change.seen, state.live(), now=self._clock.now())
        return change if seen == change.seen else replace(change, seen=seen)

    def _measure(
        self, change: FlagChange, policy: Policy, state: TargetState
    ) -> tuple[FlagChange, Readings]:
        """Close the slice that is over, and read the canary since the phase began."""
        now = self._clock.now()
        canary, _ = arms(change, state)
        bounds = next_slice(change, policy, lag_s=self._telemetry.lag_s, now=now)
        whole = f"{change.id}/whole"
        asks = []
        if canary and now > change.phase_since + policy.warm_up:
            asks.append(
                Ask(
                    key=whole,
                    target=change.target,
                    replicas=canary,
                    start=max(change.phase_since + policy.warm_up, now - policy.canary.analysis),
                    end=now,
                    warm_up_s=policy.warm_up.total_seconds(),
                    source=policy.source,
                    signals=judged_signals(policy),
                )
            )
        if bounds is not None:
            asks += slice_asks(change, policy, state, bounds)
        answers: Mapping[str, Readings] = self._telemetry.collect(asks) if asks else {}
        if bounds is not None and f"{change.id}/canary" in answers:
            closed = make_slice(
                change,
                bounds,
                canary=answers[f"{change.id}/canary"],
                control=answers.get(f"{change.id}/control"),
            )
            if change.phase is Phase.ANALYSING:
                change = replace(change, slices=(*change.slices, closed))
            else:
                kept = (*change.watched, closed)[-KEPT:]
                change = replace(change, watched=kept)
        return change, answers.get(whole, Readings())

    def _situation(
        self,
        change: FlagChange,
        policy: Policy | None,
        state: TargetState,
        canary: Readings,
    ) -> Situation:
        now = self._clock.now()
        pending = change.phase is Phase.PENDING
        decision = self._registry.decision(change) if pending else None
        objection: Objection | None = None
        if pending and policy is not None and (decision or not policy.mode.asks):
            objection = self._objection(change, policy, state)
        return Situation(
            policy=policy,
            state=state,
            canary=canary,
            decision=decision,
            objection=objection,
            rule_author=self._author(change) if pending else "",
            patch=self._patch(change.target, change.wanted) if pending else "",
            written=self._written[change.id],
            now=now,
        )

    def _objection(
        self, change: FlagChange, policy: Policy, state: TargetState
    ) -> Objection | None:
        """Ask the gates again: much may have happened since the proposal."""
        setting = policy.settings.get(change.wanted.setting)
        if setting is None:
            return Objection(
                reason=GateReason.SETTING_CHANGED,
                message=f"spec.settings has no {change.wanted.setting} any more",
            )
        rendered = render_for(setting, state.engine)
        if not rendered.refused and rendered.config != change.wanted.config:
            return Objection(
                reason=GateReason.SETTING_CHANGED,
                message=f"spec.settings says something else of {setting.name} than what was "
                "proposed",
            )
        now = self._clock.now()
        with self._store.read() as uow:
            memory = uow.memory.get(change.policy.uid)
        rested_on = known_at_proposal(change)
        ask = tick_ask(policy, state, None, signals=frozenset({*rested_on, "batch_size"}), now=now)
        return objection_to(
            setting,
            change.kind,
            policy=policy,
            state=state,
            readings=self._telemetry.collect([ask]).get(ask.key, Readings()),
            memory=memory,
            store=self._store,
            most=self._most,
            now=now,
            rested_on=rested_on,
        )

    def _author(self, change: FlagChange) -> str:
        """Who wrote the rules that ask for a change."""
        if not change.rule.rule_set:
            return ""
        with self._store.read() as uow:
            version = uow.rules.get(
                namespace=change.policy.namespace,
                name=change.rule.rule_set,
                version=change.rule.version,
            )
        return version.author if version is not None else ""

    def _step(
        self, change: FlagChange, step: Transition, policy: Policy | None, state: TargetState
    ) -> FlagChange:
        fields: dict[str, object] = {}
        if change.phase is Phase.PENDING and step.to is Phase.CANARY:
            # The user may have edited the workload while the proposal waited.
            fields = {
                "origin": state.declared,
                "base_template": state.user_template,
                "engine": engine_of(state),
            }
        if change.phase is Phase.PENDING and step.reason in _DECIDED:
            fields["decided_by"] = step.actor
        measured: Measurement | None = None
        if change.phase is Phase.ANALYSING:
            # Now, and not when the change has ended: no slice will be added, and what was measured
            # holds whether or not the roll that follows succeeds.
            result = measure(change, state=state, least=policy.canary if policy else Canary())
            step = replace(step, evidence=(*step.evidence, result.evidence()))
            if isinstance(result, Measurement):
                measured = result
            else:
                log.info("%s leaves no measurement of cost: %s", change.id, result.words)
        moved = self._recorder.step(change, step, policy, measured=measured, **fields)
        log.info("%s: %s -> %s: %s", change.id, change.phase, moved.phase, moved.message)
        return moved

    def _act(
        self, change: FlagChange, canary_replicas: int, state: TargetState, acts: Acts
    ) -> None:
        if state.problem is not None and state.problem.reason in {
            TargetProblem.NOT_FOUND,
            TargetProblem.UNREACHABLE,
        }:
            return
        wanted = intent(change, canary_replicas=canary_replicas, present=state.declared)
        if wanted is not None:
            acts.begin(partial(self._carry_out, change.id, wanted))

    def _carry_out(self, change_id: str, wanted: Intent) -> None:
        """In a thread of its own; the change is not looked at again before it ends."""
        done = False
        try:
            acted = self._fleet.carry_out(wanted)
            self._written[change_id] += acted
            done = not acted
        except FleetError as error:
            log.warning("%s: %s; trying again", change_id, error)
        except Exception:  # one change's fault must not stop the others
            log.exception("change %s could not be carried out", change_id)
        if not done:
            self._resting.wake(change_id)
