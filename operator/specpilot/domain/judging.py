"""Judging a canary: has a guardrail broken, and is there enough to say anything at all."""

from collections.abc import Sequence

from specpilot.domain.changes import (
    ChangeReason,
    Evidence,
    FlagChange,
    Phase,
    Transition,
)
from specpilot.domain.comparison import MIN_SLICES, Outcome, exceeds, ratio, requests
from specpilot.domain.policy import Guardrail, Policy
from specpilot.domain.readings import Readings
from specpilot.domain.settings import OFF_NAME


def undo(reason: ChangeReason, message: str, evidence: Sequence[Evidence] = ()) -> Transition:
    """Go back to what ran before."""
    return Transition(
        to=Phase.ROLLING_BACK, reason=reason, message=message, evidence=tuple(evidence)
    )


def broken_guardrail(
    guardrails: Sequence[Guardrail], change: FlagChange, canary: Readings
) -> Transition | None:
    """Return the way back when a guardrail is broken beyond doubt, None otherwise."""
    for rail in guardrails:
        if rail.max_increase is not None and change.slices:
            estimate = ratio(change.slices, rail.signal)
            if exceeds(estimate, 1 + rail.max_increase) is Outcome.YES:
                return undo(
                    ChangeReason.GUARDRAIL_BROKEN,
                    f"{estimate}; allowed is an increase of {rail.max_increase:.0%}",
                    arm_evidence(change),
                )
        reading = canary[rail.signal]
        if reading.value is None:
            continue
        for bound, over in ((rail.max_value, True), (rail.min_value, False)):
            if bound is None:
                continue
            # A quantile is known to within its bucket: only one wholly beyond the bound breaks it.
            value = reading.value
            if over and reading.low is not None:
                value = reading.low
            if not over and reading.low is not None:
                value = reading.high if reading.high is not None else bound
            if (value > bound) if over else (value < bound):
                sign = ">" if over else "<"
                return undo(
                    ChangeReason.GUARDRAIL_BROKEN,
                    f"{rail.signal} {value:.4g} {sign} {bound:.4g} on the canary",
                    [Evidence.of(reading, comparison=sign, threshold=bound, arm="canary")],
                )
    return None


def enough(change: FlagChange, policy: Policy, canary: Readings) -> tuple[bool, str]:
    """Return whether the analysis can say anything, with words on what is missing.

    A guardrail that could not be judged has not held: it is waited for like everything else.
    """
    on_canary, on_others = requests(change.slices)
    drafts = sum(s.canary_drafts for s in change.slices)
    speculates = change.wanted.setting != OFF_NAME and change.wanted.config != ""
    missing = []
    if on_canary < policy.canary.min_requests:
        missing.append(f"{on_canary:.0f} of {policy.canary.min_requests} requests on the canary")
    if on_others < policy.canary.min_requests:
        missing.append(f"{on_others:.0f} of {policy.canary.min_requests} requests on the others")
    if speculates and drafts < policy.canary.min_drafts:
        missing.append(f"{drafts:.0f} of {policy.canary.min_drafts} drafts")
    for rail in policy.guardrails:
        paired = ratio(change.slices, rail.signal).slices
        if rail.max_increase is not None and paired < MIN_SLICES:
            missing.append(f"{rail.signal}: {paired} of {MIN_SLICES} slices have both arms")
        bounded = rail.max_value is not None or rail.min_value is not None
        if bounded and not canary[rail.signal].known:
            missing.append(f"{rail.signal} is Unknown ({canary[rail.signal].reason})")
    return not missing, "; ".join(missing)


def summary(change: FlagChange) -> str:
    """Return the comparison so far in words."""
    return str(ratio(change.slices, "tpot_mean"))


def arm_evidence(change: FlagChange) -> tuple[Evidence, ...]:
    """Return the mean of each compared signal per arm, over the slices that know both."""
    found: list[Evidence] = []
    for signal in ("tpot_mean", "tokens_per_second_per_request"):
        paired = [s for s in change.slices if signal in s.canary and signal in s.control]
        if not paired:
            continue
        for arm in ("canary", "control"):
            values = [getattr(s, arm)[signal] for s in paired]
            found.append(
                Evidence(
                    signal=signal,
                    value=sum(values) / len(values),
                    at=paired[-1].end,
                    count=len(values),
                    window_s=(paired[-1].end - paired[0].start).total_seconds(),
                    arm=arm,
                )
            )
    return tuple(found)
