"""What a variable can be at all, whatever is measured.

Lint needs it to tell a comparison that decides nothing, and whoever reads recorded readings needs
it to refuse a number that telemetry could never have given: a rate of 60 was meant to be 60%.
"""

import math
from collections.abc import Mapping

from specpilot.domain.signals import SIGNALS, Unit

WHOLE: Mapping[str, tuple[float, float]] = {
    "time.hour": (0, 23),
    "time.minute": (0, 59),
    "time.weekday": (1, 7),
    "setting.depth": (1, 1024),
    "target.replicas": (0, math.inf),
    "target.ready": (0, math.inf),
    "target.release": (0, math.inf),
}
"""Variables that are whole numbers, with what they can be; depth is that of a speculating one."""

SHARES = frozenset(
    name
    for name, signal in SIGNALS.items()
    if signal.unit is Unit.RATIO and name != "cost_ratio"  # a multiple, not a share
)
"""Signals between 0 and 1."""

_PERCENT = 100
_FROM_ONE = frozenset({"mean_acceptance_length", "acceptance_baseline"})


def limits(variable: str) -> tuple[float, float]:
    """The least and the most that a variable can be, both included."""
    if variable in WHOLE:
        return WHOLE[variable]
    if variable in SHARES:
        return (0.0, 1.0)
    return (1.0 if variable in _FROM_ONE else 0.0, math.inf)


def share_remedy(number: float) -> str:
    """What to write instead of a number that is no share: most often percent were meant."""
    if 1 < number <= _PERCENT:
        return f"write {number:g}% or {number / _PERCENT:g}"
    return "correct it"
