"""Values of dotted flags, put together as the engine's parser does it."""

import re
from collections.abc import Mapping, Sequence

from specpilot.domain.settings import JsonValue

_READABLE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12} | {
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}


def nested(path: Sequence[str], value: JsonValue) -> dict[str, JsonValue]:
    """The object in which the keys of a dotted flag lead to its value."""
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def merge(into: dict[str, JsonValue], update: Mapping[str, JsonValue]) -> None:
    """Merge what dotted flags say: objects by key, lists end to end, the later value else."""
    for key, value in update.items():
        present = into.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            merge(present, value)
        elif isinstance(present, list) and isinstance(value, list):
            into[key] = present + value
        else:
            into[key] = value


def readable_integer(text: str) -> JsonValue:
    """Read `1k` as 1000, `1K` as 1024 and `1_000` as 1000; anything else stays text."""
    match = _READABLE.fullmatch(text.strip())
    if match is None:
        try:
            return int(text)
        except ValueError:
            return text
    number, suffix = match.groups()
    if suffix.isupper() and "." in number:
        return text
    try:
        return int(float(number) * _FACTORS[suffix])
    except OverflowError:
        return text


def with_underscores(config: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Keys may be written with dashes."""
    return {key.replace("-", "_"): value for key, value in config.items()}
