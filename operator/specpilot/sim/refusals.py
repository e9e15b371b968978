"""How a release words a start that it refuses after parsing: a traceback, and exit code 1.

Since 0.10 the configuration is checked by pydantic; before, by plain Python. Users search logs for
these words, so they are kept apart from the rules that lead to them.
"""

from __future__ import annotations

from packaging.version import Version

from specpilot.sim import catalogue
from specpilot.sim.launch import LaunchRefused

UNEXPECTED = "unexpected_keyword_argument"
"""Pydantic's kind of error for a key that the release does not know."""


def wrong_field(
    key: str, value: object, *, reason: str, kind: str, owner: str, version: Version
) -> LaunchRefused:
    """Word one wrong field of a config class.

    Args:
        key: The field; dots lead into it.
        value: What was given.
        reason: Pydantic's message.
        kind: Pydantic's name of the error.
        owner: The config class that checks it.
        version: The release.
    """
    if version in catalogue.PYDANTIC:
        return _pydantic(owner, f"\n{key}\n  {reason}", kind=kind, value=value)
    if kind == UNEXPECTED:
        return LaunchRefused(
            f"TypeError: {owner}.__init__() got an unexpected keyword argument {key!r}"
        )
    return LaunchRefused(f"ValueError: {key}: {reason} ({value!r}).")


def wrong_together(message: str, *, owner: str, version: Version) -> LaunchRefused:
    """Word a check across several fields of a config class."""
    if version in catalogue.PYDANTIC:
        return LaunchRefused(
            f"{_headline(owner)}\n  Value error, {message} [type=value_error, "
            "input_value=ArgsKwargs((), {}), input_type=ArgsKwargs]"
        )
    return LaunchRefused(f"ValueError: {message}")


def no_mapping(value: object) -> LaunchRefused:
    """Word what Python says when a mapping was meant."""
    return LaunchRefused(
        f"AttributeError: {type(value).__name__!r} object has no attribute 'items'"
    )


def _pydantic(owner: str, text: str, *, kind: str, value: object) -> LaunchRefused:
    return LaunchRefused(
        f"{_headline(owner)}{text} "
        f"[type={kind}, input_value={value!r}, input_type={type(value).__name__}]"
    )


def _headline(owner: str) -> str:
    return f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {owner}"
