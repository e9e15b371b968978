"""Looking at a target the way every part of the controller does."""

from specpilot.domain.changes import FlagChange, Phase
from specpilot.domain.engine_run import EngineRun
from specpilot.domain.policy import Policy
from specpilot.domain.ports import Fleet, FleetError
from specpilot.domain.settings import OFF, UNRECOGNISED, Declared, Setting
from specpilot.domain.targets import Problem, TargetProblem, TargetRef, TargetState
from specpilot.engines import is_rendering, render_for


def observe(fleet: Fleet, ref: TargetRef) -> TargetState:
    """Observe a target; a fleet that does not answer is a problem of the target, not a crash."""
    try:
        return fleet.observe(ref)
    except FleetError as error:
        return TargetState(
            ref=ref, problem=Problem(reason=TargetProblem.UNREACHABLE, message=str(error))
        )


def in_force(state: TargetState, in_flight: FlagChange | None) -> Declared:
    """Return what most replicas run: in mid-canary that is not what the workload declares."""
    if in_flight is not None and in_flight.phase in _TRIED:
        return in_flight.origin
    return state.declared


_TRIED = frozenset({Phase.CANARY, Phase.ANALYSING, Phase.ROLLING_BACK})
"""Phases in which the wanted setting is on trial and the old one is still in force."""


def limits_left_to_rules(policy: Policy, *, engine: EngineRun) -> dict[str, int]:
    """Batch limits of the policy's settings that this engine would not keep to by itself."""
    return {
        name: limit
        for name, setting in policy.settings.items()
        if setting.disable_above_batch_size is not None
        and (limit := render_for(setting, engine).guard) is not None
    }


_MOST_KNOWN = 20_000
"""Policies that are known before all are forgotten: more than anybody has at a time."""


class ActiveSettings:
    """Knows which of a policy's settings runs, and asks again when one of the three is another."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Policy, Declared, EngineRun, Setting]] = {}

    def of(self, policy: Policy, declared: Declared, *, engine: EngineRun) -> Setting:
        """See `active_setting`."""
        known = self._known.get(policy.ref.uid)
        if known is not None and known[0] is policy and known[1] is declared and known[2] is engine:
            return known[3]
        active = active_setting(policy, declared, engine=engine)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[policy.ref.uid] = (policy, declared, engine, active)
        return active


def active_setting(policy: Policy, declared: Declared, *, engine: EngineRun) -> Setting:
    """Return which of the policy's settings runs, judged by what the engine was told."""
    for setting in policy.settings.values():
        if is_rendering(declared.config, setting, engine):
            return setting
    return OFF if not declared.config else Setting(name=UNRECOGNISED, method=UNRECOGNISED)
