"""Checkpoints in the *speculators* format, which turn speculation on by themselves.

The served model's `config.json` then names the target and how to draft. The engine merges a
speculative config of the command line over it, but method and draft model stay as the checkpoint
says, so that no flag switches it off.
"""

import re
from collections.abc import Mapping
from typing import Any

from specpilot.domain.settings import JsonValue

_BY_NAME = re.compile(r"speculator", re.IGNORECASE)
_METHODS: Mapping[str, dict[str, JsonValue]] = {
    "peagle": {"method": "eagle3", "parallel_drafting": True},
    "dflash2": {"method": "dflash"},
}
"""Types of the format that are told to the engine by another name (0.32.0)."""


def may_speculate_by_itself(model: str) -> bool:
    """Whether a model's name says that it is such a checkpoint; no name says that it is none."""
    return bool(_BY_NAME.search(model))


def locked(
    checkpoint: Mapping[str, Any], config: Mapping[str, JsonValue] | None, *, model: str
) -> dict[str, JsonValue] | None:
    """Return the config that the engine runs with a model.

    Args:
        checkpoint: The content of the model's `config.json`.
        config: The speculative config of the command line; None for none.
        model: The model's name, which becomes the draft model's.

    Returns:
        `config` where the checkpoint is not of that format.

    Raises:
        ValueError: It is of that format and incomplete; the engine does not start with it.
    """
    format_ = checkpoint.get("speculators_config")
    if format_ is None:
        return None if config is None else dict(config)
    try:
        kind = checkpoint["speculators_model_type"]
        depth = format_["proposal_methods"][0]["speculative_tokens"]
        format_["verifier"]["name_or_path"]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(
            f"config.json has a speculators_config without {error}; the engine does not start"
        ) from None
    own: dict[str, JsonValue] = {"num_speculative_tokens": depth}
    own |= _METHODS.get(str(kind), {"method": str(kind)})
    return {**own, **(config or {}), "method": own["method"], "model": model}
