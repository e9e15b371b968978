"""Faults that an engine can be told to have, at start or while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum


class Hang(StrEnum):
    """What stops answering."""

    NO = "no"
    ENGINE = "engine"
    """The engine no longer steps; HTTP answers, ``/health`` stays 200, as a stuck CUDA kernel."""
    HTTP = "http"
    """The engine no longer steps and every request hangs without an answer."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults in force.

    Attributes:
        slow: factor on every step's duration.
        hang: what stops.
        kv_fraction: part of the KV cache that is usable; small values make requests wait and
            preempt each other.
        acceptance_factor: factor on every acceptance probability: a broken drafter, whose pod a
            restart would mend.
    """

    slow: float = 1.0
    hang: Hang = Hang.NO
    kv_fraction: float = 1.0
    acceptance_factor: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.slow < float("inf"):
            raise ValueError(f"slow: {self.slow} must be positive and finite; 1 means no fault")
        if not 0 < self.kv_fraction <= 1:
            raise ValueError(f"kv_fraction: {self.kv_fraction} must be in (0, 1]")
        if not 0 <= self.acceptance_factor <= 1:
            raise ValueError(f"acceptance_factor: {self.acceptance_factor} must be in [0, 1]")


def change(faults: Faults, *, to: Mapping[str, object]) -> Faults:
    """Return ``faults`` with some fields replaced, from untrusted JSON.

    Raises:
        ValueError: unknown field, or a value outside its range.
    """
    known = {field.name for field in fields(Faults)}
    changes: dict[str, object] = {}
    for name, value in to.items():
        if name not in known:
            raise ValueError(f"{name}: not a fault; known are {', '.join(sorted(known))}")
        if name == "hang":
            try:
                changes[name] = Hang(str(value))
            except ValueError:
                raise ValueError(f"hang: {value!r}; write one of {', '.join(Hang)}") from None
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name}: {value!r} is not a number")
        else:
            changes[name] = float(value)
    return replace(faults, **changes)  # type: ignore[arg-type] # checked by name just above
