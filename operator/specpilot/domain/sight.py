"""What of a change in flight cannot be seen just now: numbers that were there and are gone.

An analysis that had enough numbers before its source fell silent must not end on them, for better
or worse, and a watch must not end well for want of anything to see.
"""

from collections.abc import Sequence

from specpilot.domain.changes import Slice
from specpilot.domain.policy import Guardrail
from specpilot.domain.readings import Reading, Readings, UnknownReason


def unseen(slices: Sequence[Slice], guardrails: Sequence[Guardrail]) -> str:
    """Name a guardrail's signal that was measured and is missing in the newest slice.

    Args:
        slices: Of the analysis so far, oldest first.
        guardrails: Of the policy.

    Returns:
        Words with the time of its newest number, "" when nothing is missing.
    """
    for rail in guardrails:
        seen = [part for part in slices if _sees(part, rail)]
        if seen and seen[-1] is not slices[-1]:
            return f"{rail.signal} was not measured since {seen[-1].end:%H:%M:%S} UTC"
    return ""


def _sees(part: Slice, rail: Guardrail) -> bool:
    return rail.signal in part.canary and (not rail.compares or rail.signal in part.control)


def unread_bounds(canary: Readings, guardrails: Sequence[Guardrail]) -> str:
    """Name the bounds that cannot be held against anything; "" when all can.

    Where nothing happened that could be measured, nothing can have broken a bound. That it has been
    looked at for too short a time yet is another thing: then nobody knows what happened.
    """
    return "; ".join(
        f"{rail.signal} is Unknown ({canary[rail.signal].reason})"
        for rail in guardrails
        if rail.bounded
        and not rail.where_exported
        and not canary[rail.signal].known
        and not _nothing_happened(canary[rail.signal])
    )


def _nothing_happened(reading: Reading) -> bool:
    return reading.reason is UnknownReason.TOO_FEW_SAMPLES and reading.count == 0
