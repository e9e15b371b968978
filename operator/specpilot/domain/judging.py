"""Judging a canary: has a guardrail broken, has it held, is there enough to say anything at all.

A guardrail breaks where the test of `sequential` says so, and it has held where its estimate is
within the bound. In between lies what noise can do: neither, and more slices are waited for.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from specpilot.domain.changes import (
    ChangeKind,
    ChangeReason,
    Evidence,
    FlagChange,
    Phase,
    Slice,
    Transition,
)
from specpilot.domain.comparison import (
    Estimate,
    Outcome,
    exceeds,
    level_of,
    ratio,
    requests,
    rise,
)
from specpilot.domain.policy import Canary, Guardrail, Policy
from specpilot.domain.readings import Reading, Readings, UnknownReason
from specpilot.domain.sequential import FULL, MIN_SLICES, Looks
from specpilot.domain.settings import OFF_NAME

PROBE_LENGTH = 2
"""Analysis times after which a probe that has not clearly won is lost."""

KEPT = 2 * FULL
"""Newest slices of a roll and its watch that are kept and judged."""


def slice_length(canary: Canary) -> timedelta:
    """Length of one slice of an analysis."""
    return canary.analysis / FULL


def looks(canary: Canary, kind: ChangeKind) -> Looks:
    """How often an analysis may be looked at: as long as patience lasts."""
    longest = math.ceil(canary.patience / slice_length(canary))
    whole = FULL * PROBE_LENGTH if kind is ChangeKind.PROBE else FULL
    return Looks(longest=max(longest, whole), whole=whole)


def watch_looks(canary: Canary, lasting: timedelta) -> Looks:
    """The same for a phase of that length in which the newest `KEPT` slices are judged.

    Each look is one of many on another set of slices, so that all have the same error.
    """
    count = max(KEPT, math.ceil(lasting / slice_length(canary)))
    return Looks(longest=count, whole=count)


def undo(reason: ChangeReason, message: str, evidence: Sequence[Evidence] = ()) -> Transition:
    """Go back to what ran before."""
    return Transition(
        to=Phase.ROLLING_BACK, reason=reason, message=message, evidence=tuple(evidence)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What guardrails are judged on.

    Attributes:
        slices: Of the phase so far.
        looks: How often one may look at them.
        canary: Readings of the replicas that run the new setting, over the phase.
        least: Requests that an arm must have finished before anything is claimed.
        compared: Whether there is a control arm.
    """

    slices: Sequence[Slice]
    looks: Looks
    canary: Readings
    least: int
    compared: bool = True

    @property
    def sufficient(self) -> bool:
        """Whether enough requests have finished to claim anything."""
        on_canary, on_others = requests(self.slices)
        return on_canary >= self.least and (not self.compared or on_others >= self.least)


def broken_guardrail(guardrails: Sequence[Guardrail], trial: Trial) -> Transition | None:
    """Return the way back when a guardrail is broken beyond doubt, None otherwise."""
    if not trial.sufficient:
        return None
    for rail in guardrails:
        broken = (_relative(rail, trial) if trial.compared else None) or _absolute(rail, trial)
        if broken is not None:
            return broken
    return None


def _relative(rail: Guardrail, trial: Trial) -> Transition | None:
    for found, bound, words in _compared(rail, trial):
        if exceeds(found, bound) is Outcome.YES:
            evidence = arm_evidence(trial.slices, (rail.signal,))
            return undo(ChangeReason.GUARDRAIL_BROKEN, words, evidence)
    return None


def _compared(rail: Guardrail, trial: Trial) -> Iterator[tuple[Estimate, float, str]]:
    """Each comparison of the arms that a guardrail bounds: the estimate, its bound, the words."""
    if rail.max_increase is not None:
        found = ratio(trial.slices, rail.signal, trial.looks)
        words = f"{found}; allowed is an increase of {rail.max_increase:.0%}"
        yield found, 1 + rail.max_increase, words
    if rail.max_rise is not None:
        found = rise(trial.slices, rail.signal, trial.looks)
        yield found, rail.max_rise, f"{found}; allowed is {rail.max_rise:g} more than the others"


def _absolute(rail: Guardrail, trial: Trial) -> Transition | None:
    """A bound breaks when the whole window is beyond it and the slices say that it was no accident.

    The window alone may be one bad minute, slices alone know nothing of a quantile's bucket.
    """
    reading = trial.canary[rail.signal]
    seen, mean = level_of(trial.slices, rail.signal, trial.looks)
    if seen < MIN_SLICES:
        return None
    for sign, bound, words in _beyond(rail, reading):
        if (mean.low > bound) if sign == ">" else (mean.high < bound):
            return undo(
                ChangeReason.GUARDRAIL_BROKEN,
                f"{words} ({mean.low:.4g} to {mean.high:.4g} in {seen} slices)",
                [Evidence.of(reading, comparison=sign, threshold=bound, arm="canary")],
            )
    return None


def _beyond(rail: Guardrail, reading: Reading) -> Iterator[tuple[str, float, str]]:
    """Each bound that a reading is beyond with the whole bucket of a quantile; sign and words."""
    value = reading.value
    if value is None:
        return
    least, most = (value, value) if reading.low is None else (reading.low, reading.high)
    for sign, bound, end in ((">", rail.max_value, least), ("<", rail.min_value, most)):
        if bound is None or end is None:
            continue
        if (end > bound) if sign == ">" else (end < bound):
            yield sign, bound, f"{rail.signal} {value:.4g} {sign} {bound:.4g} on the canary"


def enough(change: FlagChange, policy: Policy, trial: Trial) -> tuple[bool, str]:
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
        missing += _unjudged(rail, trial)
    return not missing, "; ".join(missing)


def _unjudged(rail: Guardrail, trial: Trial) -> list[str]:
    """What is missing to say that a guardrail has held."""
    reading = trial.canary[rail.signal]
    unseen = UnknownReason.NOT_EXPORTED, UnknownReason.NO_DATA, UnknownReason.TOO_FEW_SAMPLES
    if rail.where_exported and reading.reason in unseen:
        return []
    missing = []
    pairs = min((e.slices for e, _, _ in _compared(rail, trial)), default=MIN_SLICES)
    if pairs < MIN_SLICES:
        missing.append(f"{rail.signal}: {pairs} of {MIN_SLICES} slices have both arms")
    if rail.bounded and not reading.known:
        missing.append(f"{rail.signal} is Unknown ({reading.reason})")
    return missing


def doubtful(guardrails: Sequence[Guardrail], trial: Trial) -> str:
    """The guardrail whose estimate is beyond its bound without its being clear, in words, or "".

    What looks broken is not rolled out for want of proof.
    """
    for rail in guardrails:
        for found, bound, words in _compared(rail, trial):
            if found.slices and found.mean > bound:
                return words
        for _, _, words in _beyond(rail, trial.canary[rail.signal]):
            return words
    return ""


def summary(change: FlagChange, policy: Policy) -> str:
    """Return the comparison so far in words."""
    return str(ratio(change.slices, "tpot_mean", looks(policy.canary, change.kind)))


COMPARED = ("tpot_mean", "tokens_per_second_per_request")
"""Signals that go into the record of every analysis."""


def arm_evidence(
    slices: Sequence[Slice], signals: Sequence[str] = COMPARED
) -> tuple[Evidence, ...]:
    """Return the mean of each compared signal per arm, over the slices that know both."""
    found: list[Evidence] = []
    for signal in dict.fromkeys((*signals, *COMPARED)):
        known = [s for s in slices if signal in s.canary and signal in s.control]
        if not known:
            continue
        for arm in ("canary", "control"):
            values = [getattr(s, arm)[signal] for s in known]
            found.append(
                Evidence(
                    signal=signal,
                    value=sum(values) / len(values),
                    at=known[-1].end,
                    count=len(values),
                    window_s=(known[-1].end - known[0].start).total_seconds(),
                    arm=arm,
                )
            )
    return tuple(found)
