"""A reading as people write it: `40`, `120ms`, `80%`, `60GiB`, in the unit of its signal."""

import math

from specpilot.domain.conditions.units import read_literal
from specpilot.domain.ranges import SHARES, limits, share_remedy
from specpilot.domain.signals import SIGNALS

_ROUNDING = 1e-9


def parse_measure(text: str, *, signal: str = "", unknown: str = "") -> float:
    """Read a number in the product's units.

    Args:
        text: What is written.
        signal: The signal that it is a reading of; "" accepts every unit.
        unknown: What to write where nothing is known, for the message on a text without a digit.

    Raises:
        ValueError: It is no number, or its unit is not the signal's; says what to write.
    """
    sign, digits = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
    try:
        value, unit = read_literal(digits)
    except ValueError as error:
        if unknown and not any(character.isdigit() for character in text):
            raise ValueError(f"{error}; {unknown} for Unknown") from None
        raise
    if signal and unit is not None and unit is not SIGNALS[signal].unit:
        raise ValueError(f"{signal} is in {SIGNALS[signal].unit}, and this is in {unit}")
    return sign * value


def possible(value: float, *, signal: str) -> float:
    """Pass on a reading that telemetry could give.

    Raises:
        ValueError: It could not: a share above 1, a negative count, no number; says what to write.
    """
    low, high = limits(signal)
    if not math.isfinite(value):
        raise ValueError("it is too large for a number; correct it")
    if signal in SHARES and value > high + _ROUNDING:
        raise ValueError(
            f"{value:g} is no ratio, which lies between 0 and 1; {share_remedy(value)}"
        )
    if signal == "cost_ratio" and value <= 0:
        raise ValueError(
            f"{value:g} is no cost ratio, which is above 0, and 1 when a step costs "
            "the same; correct it"
        )
    if value < low - _ROUNDING:
        raise ValueError(f"{signal} is never below {low:g}; correct it")
    return value
