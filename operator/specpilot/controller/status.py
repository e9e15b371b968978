"""The status of a policy in the words of Kubernetes conditions."""

from datetime import datetime

from specpilot.controller.proposals import Wanted
from specpilot.controller.registry import Condition, PolicyStatus, ReplicaCount
from specpilot.domain.changes import FlagChange
from specpilot.domain.evaluation import Evaluation
from specpilot.domain.gates import Objection
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Policy
from specpilot.domain.readings import Readings, UnknownReason
from specpilot.domain.rules import RuleSetVersion
from specpilot.domain.settings import Setting
from specpilot.domain.signals import SIGNALS
from specpilot.domain.situation import CLOCK_ROOM
from specpilot.domain.targets import Keeper, Replica, TargetState

BLIND = "Blind"
"""The phase of a policy of which no rule can be judged."""

ON_TIME = "OnTime"
"""The one condition that is about the operator and not about the policy."""


def phase_word(
    change: FlagChange | None, evaluation: Evaluation | None, objection: Objection | None
) -> str:
    """Return the phase of the change in flight, else Held, Blind or Idle."""
    if change is not None:
        return str(change.phase)
    if objection is not None:
        return "Held"
    return BLIND if evaluation is not None and evaluation.blind else "Idle"


def signals_lost(evaluation: Evaluation, active: Setting) -> bool:
    """Whether no rule can be judged for want of numbers that ought to be there.

    What was never measured is not lost, nor is acceptance while nothing is drafted.
    """

    def ought(signal: str) -> bool:
        known = SIGNALS.get(signal)
        absent = known is not None and (
            known.remembered or (known.needs_speculation and active.is_off)
        )
        return not absent

    return evaluation.blind and all(
        any(e.value is None and ought(e.signal) for e in verdict.evidence)
        for verdict in evaluation.verdicts
    )


_TROUBLE = frozenset(
    {
        UnknownReason.SOURCE_ERROR,
        UnknownReason.STALE,
        UnknownReason.NAN,
        UnknownReason.AMBIGUOUS,
    }
)
"""What is wrong with a source, as against what there was not to measure."""


def why_blind(evaluation: Evaluation) -> str:
    """Why no rule can be judged, as one reason of a reading; "" when one can."""
    if not evaluation.blind:
        return ""
    found = [e.reason for v in evaluation.verdicts for e in v.evidence if e.reason]
    return next((r for r in found if r in _TROUBLE), found[0] if found else UnknownReason.NO_DATA)


def _of_signals(evaluation: Evaluation | None, trouble: str) -> str:
    """What is wrong with the numbers: at once, although those from before may still do."""
    if evaluation is None or not evaluation.blind:
        return f"what was seen before is used until it is stale: {trouble}" if trouble else ""
    return f"{evaluation.words()}; {trouble}" if trouble else evaluation.words()


def policy_status(
    policy: Policy,
    state: TargetState,
    version: RuleSetVersion,
    readings: Readings,
    *,
    memory: PolicyMemory,
    in_flight: FlagChange | None,
    clock: str,
    late: str,
    active: Setting | None = None,
    evaluation: Evaluation | None = None,
    wanted: Wanted | None = None,
    objection: Objection | None = None,
) -> PolicyStatus:
    """Put together what is shown of a policy after a tick.

    Args:
        policy: The policy.
        state: Its target.
        version: The rules in force.
        readings: What they saw.
        memory: What is remembered of the policy.
        in_flight: The change in flight.
        clock: What is wrong with the clock, "" when nothing is.
        late: What to say of ticks that come too late, "" when they do not.
        active: The setting that runs; None where the target has a problem, as with the next two.
        evaluation: Of the rules.
        wanted: What is proposed, None for nothing.
        objection: The gate that holds it, None for none.
    """
    winner = evaluation.winner if evaluation else None
    declared = "" if state.problem else state.declared.setting
    return PolicyStatus(
        policy=policy.ref,
        generation=policy.generation,
        mode=str(policy.mode),
        active=active.name if active else declared,
        desired=wanted.setting.name if wanted else "",
        phase=phase_word(in_flight, evaluation, objection),
        change_id=in_flight.id if in_flight else "",
        last_flip=memory.last_flip,
        verdict=evaluation.words() if evaluation else "",
        replicas=replica_counts(state),
        readings=readings,
        rule=f"{version.rule_set.name}@{version.version}/{winner.rule}" if winner else "",
        rule_version=version.version,
        conditions=(
            *conditions(
                policy,
                state,
                evaluation,
                in_flight,
                objection,
                clock=clock,
                trouble=readings.trouble,
            ),
            on_time(late),
        ),
    )


def conditions(
    policy: Policy,
    state: TargetState,
    evaluation: Evaluation | None,
    change: FlagChange | None,
    objection: Objection | None,
    *,
    clock: str = "",
    trouble: str = "",
) -> tuple[Condition, ...]:
    """Return Ready and everything it is made of, so that `kubectl describe` explains itself.

    Args:
        policy: The policy.
        state: Its target.
        evaluation: Of its rules, None when there was none.
        change: The change in flight.
        objection: The gate that holds a proposal.
        clock: What is wrong with the clock, "" when nothing is.
        trouble: What went wrong when signals were looked at last, "" when nothing did.
    """
    problem = state.problem
    failing = "; ".join(f"{r.id}: {r.failure}" for r in state.live() if r.failure)
    target = Condition(
        type="TargetReady",
        status=problem is None,
        reason=str(problem.reason) if problem else "ReplicasFailing" if failing else "Found",
        message=problem.message if problem else failing or state.rolling or state.channel,
    )
    blind = evaluation is None or evaluation.blind
    metrics = Condition(
        type="MetricsAvailable",
        status=None if evaluation is None else not blind,
        reason="NotEvaluated" if evaluation is None else why_blind(evaluation) or "Found",
        message=_of_signals(evaluation, trouble),
    )
    progressing = Condition(
        type="Progressing",
        status=change is not None,
        reason=str(change.phase) if change else "Idle",
        message=change.message if change else "",
    )
    held = Condition(
        type="Held",
        status=objection is not None,
        reason=str(objection.reason) if objection else "Free",
        message=objection.message if objection else "",
    )
    steady = Condition(
        type="ClockSteady",
        status=not clock,
        reason="ClockSetBack" if clock else "Steady",
        message=clock,
    )
    broken = next((c for c in (steady, target, metrics) if c.status is not True), None)
    ready = Condition(
        type="Ready",
        status=broken is None,
        reason=broken.reason if broken else "Steering",
        message=broken.message if broken else failing or f"mode {policy.mode}",
    )
    rules = Condition(type="RulesValid", status=True, reason="Compiled")
    found = (ready, target, metrics, rules, steady, progressing, held)
    return found if state.keeper is None else (*found, kept_elsewhere(state.keeper))


def kept_elsewhere(keeper: Keeper) -> Condition:
    """Who applies the workload, and what makes them leave our fields."""
    return Condition(
        type="GitOps",
        status=True,
        reason=keeper.tool.replace(" ", ""),
        message=f"{keeper.tool} applies this workload ({keeper.name}); so that it leaves our "
        f"annotations:\n{keeper.snippet}",
    )


def clock_trouble(*stamps: datetime | None, now: datetime) -> str:
    """Say when the clock stands behind what was written under it; "" when it does not.

    What was measured after the present cannot be placed, so readings stay Unknown until then.
    """
    latest = max((at for at in stamps if at is not None), default=now)
    if latest - now <= CLOCK_ROOM:
        return ""
    return (
        f"the clock was set back: it was {latest:%Y-%m-%d %H:%M:%S} UTC before; nothing is decided "
        "on numbers and times until it has caught up"
    )


def on_time(late: str) -> Condition:
    """Whether policies are evaluated as often as configured.

    Args:
        late: What to say when they are not, "" when they are.
    """
    return Condition(
        type=ON_TIME,
        status=not late,
        reason="TicksLate" if late else "OnTime",
        message=late,
    )


def without_rules(policy: Policy, message: str) -> PolicyStatus:
    """Status of a policy whose rules cannot be used."""
    return PolicyStatus(
        policy=policy.ref,
        generation=policy.generation,
        mode=str(policy.mode),
        phase="Held",
        conditions=(
            Condition(type="Ready", status=False, reason="RulesInvalid", message=message),
            Condition(type="RulesValid", status=False, reason="RulesInvalid", message=message),
        ),
    )


def duplicate(policy: Policy, owner: Policy) -> PolicyStatus:
    """Status of a policy whose target an older one steers."""
    message = (
        f"policy {owner.ref} is older and steers {policy.target} already; "
        "delete one of them or give this one another target"
    )
    return PolicyStatus(
        policy=policy.ref,
        generation=policy.generation,
        mode=str(policy.mode),
        phase="Held",
        conditions=(
            Condition(type="Ready", status=False, reason="DuplicateTarget", message=message),
        ),
    )


def replica_counts(state: TargetState) -> tuple[ReplicaCount, ...]:
    """Count live replicas by the setting that they themselves say they run."""
    by_setting: dict[str, list[Replica]] = {}
    for replica in state.live():
        by_setting.setdefault(replica.declared.setting, []).append(replica)
    return tuple(
        ReplicaCount(setting=name, total=len(some), ready=sum(r.ready for r in some))
        for name, some in sorted(by_setting.items())
    )
