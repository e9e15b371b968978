"""A reading as people write it: `40`, `120ms`, `80%`, `60GiB`, in the unit of its signal."""

from specpilot.domain.conditions.units import read_literal
from specpilot.domain.signals import SIGNALS


def parse_measure(text: str, *, signal: str = "") -> float:
    """Read a number in the product's units.

    Args:
        text: What is written.
        signal: The signal that it is a reading of; "" accepts every unit.

    Raises:
        ValueError: It is no number, or its unit is not the signal's; says what to write.
    """
    sign, digits = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
    value, unit = read_literal(digits)
    if signal and unit is not None and unit is not SIGNALS[signal].unit:
        raise ValueError(f"{signal} is in {SIGNALS[signal].unit}, and this is in {unit}")
    return sign * value
