"""Two places where the same numbers may come from, and which of them is believed.

The first is taken unless it knows nothing where the second does. All asks of one target of one tick
get the same: two arms measured in two ways differ by more than their settings.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from specpilot.domain.ports import Ask
from specpilot.domain.readings import UnknownReason
from specpilot.telemetry.reads import checked
from specpilot.telemetry.windows import Arm, Source, failed_arm

log = logging.getLogger(__name__)


def ask_source(
    source: Source | None, name: str, asks: Sequence[Ask], *, deadline_s: float
) -> Mapping[str, Arm]:
    """Ask one source; where it fails or is missing, every arm says so."""
    words = f"no {name} is configured"
    if source is not None:
        try:
            return source.windows(asks, deadline_s=deadline_s) if asks else {}
        except Exception as error:
            log.exception("telemetry from %s failed", name)
            words = f"failed ({type(error).__name__}); the log has the details"
    reason = UnknownReason.SOURCE_ERROR
    return {ask.key: failed_arm(ask, source=name, reason=reason, words=words) for ask in asks}


def prefer(
    asks: Sequence[Ask], first: Mapping[str, Arm], second: Mapping[str, Arm]
) -> dict[str, Arm]:
    """For every ask the arm of the first source, or that of the second with the reason why."""
    by_target: dict[tuple[str, str, str], list[Ask]] = {}
    for ask in asks:
        by_target.setdefault(ask.target.key, []).append(ask)
    arms: dict[str, Arm] = {}
    for some in by_target.values():
        lost = next((a for a in some if not usable(first[a.key]) and usable(second[a.key])), None)
        if lost is None:
            arms |= {ask.key: first[ask.key] for ask in some}
            continue
        why = f"because {first[lost.key].source} has nothing ({_first_fault(first[lost.key])})"
        for ask in some:
            arm = second[ask.key]
            arms[ask.key] = replace(arm, source=f"{arm.source}, {why}")
    return arms


def usable(arm: Arm) -> bool:
    """Whether any replica of the arm has numbers."""
    return any(checked(window, arm).fault is None for window in arm.replicas)


def _first_fault(arm: Arm) -> str:
    faults = (checked(window, arm).fault for window in arm.replicas)
    return next((fault.words for fault in faults if fault is not None), "no replica serves")
