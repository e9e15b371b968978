"""Looking at a target the way every part of the controller does."""

from specpilot.domain.policy import Policy
from specpilot.domain.ports import Fleet, FleetError
from specpilot.domain.settings import OFF, UNRECOGNISED, Setting
from specpilot.domain.targets import Problem, TargetProblem, TargetRef, TargetState
from specpilot.engines import render


def observe(fleet: Fleet, ref: TargetRef) -> TargetState:
    """Observe a target; a fleet that does not answer is a problem of the target, not a crash."""
    try:
        return fleet.observe(ref)
    except FleetError as error:
        return TargetState(
            ref=ref, problem=Problem(reason=TargetProblem.UNREACHABLE, message=str(error))
        )


def active_setting(policy: Policy, state: TargetState) -> Setting:
    """Return which of the policy's settings runs, judged by what the engine was told."""
    for setting in policy.settings.values():
        rendered = render(setting, version=state.engine_version)
        if not rendered.refused and rendered.config == state.declared.config:
            return setting
    return OFF if not state.declared.config else Setting(name=UNRECOGNISED, method=UNRECOGNISED)
