"""Units in literals: `120ms` is 0.12, because the product's unit of time is the second.

A threshold with its unit cannot be misread by whoever edits it next, and it can be checked: five
minutes are no batch size.
"""

import re
from collections.abc import Mapping
from decimal import Decimal

from specpilot.domain.signals import Unit

FACTORS: Mapping[str, tuple[Unit, Decimal]] = {
    "us": (Unit.SECONDS, Decimal("1e-6")),
    "ms": (Unit.SECONDS, Decimal("1e-3")),
    "s": (Unit.SECONDS, Decimal(1)),
    "m": (Unit.SECONDS, Decimal(60)),
    "h": (Unit.SECONDS, Decimal(3600)),
    "d": (Unit.SECONDS, Decimal(86400)),
    "%": (Unit.RATIO, Decimal("0.01")),
    "kB": (Unit.BYTES, Decimal(10**3)),
    "MB": (Unit.BYTES, Decimal(10**6)),
    "GB": (Unit.BYTES, Decimal(10**9)),
    "TB": (Unit.BYTES, Decimal(10**12)),
    "KiB": (Unit.BYTES, Decimal(2**10)),
    "MiB": (Unit.BYTES, Decimal(2**20)),
    "GiB": (Unit.BYTES, Decimal(2**30)),
    "TiB": (Unit.BYTES, Decimal(2**40)),
    "W": (Unit.WATTS, Decimal(1)),
    "kW": (Unit.WATTS, Decimal(1000)),
}
"""By what is written after the number: the product's unit, and how many of it that is.

Decimal, so that 120ms is 0.12 and not the neighbour that 120 * 0.001 gives.
"""

_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)([A-Za-z]+|%)", re.ASCII)
_PLAIN = re.compile(r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def read_literal(text: str) -> tuple[float, Unit | None]:
    """Read `32`, `0.5`, `1e3`, `120ms`, `1h30m`, `80%`, `60GiB`.

    Returns:
        The number in the product's unit, and that unit; None where no unit is written.

    Raises:
        ValueError: It is no number, or its unit is unknown; says what to write.
    """
    if _PLAIN.fullmatch(text):
        return float(text), None
    parts = _PART.findall(text)
    if not parts or "".join(number + suffix for number, suffix in parts) != text:
        raise ValueError("this is no number; write it in decimal, with or without a unit")
    total, units = Decimal(0), []
    for number, suffix in parts:
        if suffix not in FACTORS:
            raise ValueError(f"{suffix[:8]} is no unit; the units are {', '.join(FACTORS)}")
        unit, factor = FACTORS[suffix]
        total += Decimal(number) * factor
        units.append(unit)
    if len(units) > 1 and set(units) != {Unit.SECONDS}:
        raise ValueError("only times can be put together, as in 1h30m")
    return float(total), units[0]
