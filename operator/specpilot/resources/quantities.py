"""Durations, percentages and bounds as people write them: `90s`, `1h30m`, `10%`, `4s`.

A bare number is refused where a duration is meant: 5 may be seconds to one reader and minutes to
the next.
"""

import math
import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import PlainValidator

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_SHORT_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNIT_WORDS = re.compile(
    r"(\d+)\s*(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)", re.IGNORECASE
)
_HOURS = {"d": 24, "w": 24 * 7}


_LONGEST = timedelta(days=366)


def parse_duration(value: object) -> timedelta:
    """Read `90s`, `5m`, `1h30m`, `62h`.

    Raises:
        ValueError: It is none; the message says what to write.
    """
    if isinstance(value, timedelta):
        return value
    match value:
        case str() if value and (parts := _DURATION.fullmatch(value)):
            hours, minutes, seconds = (int(part or 0) for part in parts.groups())
            total = hours * 3600 + minutes * 60 + seconds
            if total > _LONGEST.total_seconds():
                raise ValueError("it is longer than a year; write less")
            return timedelta(seconds=total)
        case str():
            raise ValueError(f"write {_suggested(value)}")
        case int() | float() if not isinstance(value, bool):
            raise ValueError(f"a bare number has no unit; write {value:g}s or {value:g}m")
        case _:
            raise ValueError("write a duration such as 90s, 5m or 1h30m")


def format_duration(value: timedelta) -> str:
    """Write a duration the way `parse_duration` reads it; fractions of a second are cut off."""
    rest, seconds = divmod(int(value.total_seconds()), 60)
    hours, minutes = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{n}{unit}" for n, unit in parts if n) or "0s"


def _suggested(value: str) -> str:
    match = _UNIT_WORDS.fullmatch(value.strip())
    if match is None:
        return "a duration such as 90s, 5m or 1h30m"
    number, unit = match.group(1), match.group(2)[0].lower()
    return f"{int(number) * _HOURS[unit]}h" if unit in _HOURS else f"{number}{unit}"


def parse_percent(value: object) -> float:
    """Read `10%`, `0.1` or the number 0.1; all three are 0.1.

    Raises:
        ValueError: It is none; the message says what to write.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    elif isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
        return float(match.group(1)) / 100
    elif isinstance(value, str) and _NUMBER.fullmatch(value):
        number = float(value)
    else:
        raise ValueError('write a percentage such as "10%"')
    if not 0 <= number <= 1:
        raise ValueError(
            f'a share lies between 0 and 1; for {number:g} percent write "{number:g}%"'
        )
    return number


def parse_bound(value: object) -> float:
    """Read a bound in its signal's unit: a number, `4s` or `50ms` for times, `40%` for ratios.

    Raises:
        ValueError: It is none; the message says what to write.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if isinstance(value, str):
        if match := _SHORT_TIME.fullmatch(value):
            return float(match.group(1)) * _SECONDS[match.group(2)]
        if match := _PERCENT.fullmatch(value):
            return float(match.group(1)) / 100
        if _NUMBER.fullmatch(value):
            return float(value)
    raise ValueError("write a number in the signal's unit, a time such as 4s or 50ms, or 40%")


def _positive(value: Any) -> timedelta:
    duration = parse_duration(value)
    if not duration:
        raise ValueError("it must be longer than 0s; write a duration such as 5m")
    return duration


Duration = Annotated[timedelta, PlainValidator(parse_duration)]
PositiveDuration = Annotated[timedelta, PlainValidator(_positive)]
Percent = Annotated[float, PlainValidator(parse_percent)]
Bound = Annotated[float, PlainValidator(parse_bound)]
