"""A setting: one complete speculation configuration under a name the policy gives it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

OFF_NAME = "off"
"""The setting that always exists."""

SPECULATING = "speculating"
"""What a rule asks for that means "on", whatever the policy calls it (see `domain.asking`)."""

UNRECOGNISED = "unrecognised"
"""Stands for what runs when it is none of the policy's settings."""


def canonical_json(value: object) -> str:
    """JSON that is equal exactly when the values are: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the user wants of speculation, before it is rendered for an engine version.

    Attributes:
        name: The policy's name for it.
        method: The engine's method (`ngram`, `eagle3`, ...); None means no speculation at all.
        model: Draft model or head, where the method needs one.
        num_speculative_tokens: Depth, tokens drafted per step.
        disable_above_batch_size: Intent: do not speculate in steps with more running requests.
        extra: Further keys of the engine's speculative config.
    """

    name: str
    method: str | None = None
    model: str | None = None
    num_speculative_tokens: int | None = None
    disable_above_batch_size: int | None = None
    extra: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)

    @property
    def is_off(self) -> bool:
        """Whether this setting is "no speculation"."""
        return self.method is None


OFF = Setting(name=OFF_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a target (or one replica) is told to run: carried by the workload itself.

    Kept together because they are written together: rolling back re-applies all three, so that
    the workload returns to the very revision it had.

    Attributes:
        setting: Name of the setting, `unrecognised` when it is none of the policy's.
        config: Canonical JSON of the engine's speculative config; "" means off.
        change_id: The flag change that put it there; "" when it was never ours.
    """

    setting: str = OFF_NAME
    config: str = ""
    change_id: str = ""
