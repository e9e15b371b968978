"""Spans of engine releases: the unit in which all that changes between versions is stated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from packaging.version import InvalidVersion, Version

OLDEST: Final = Version("0.6.0")
"""First release whose command line is modelled."""

NEWEST: Final = Version("0.33.0")
"""Newest release whose behaviour is known; later ones are refused rather than guessed."""

DEFAULT_VERSION: Final = "0.32.0"
"""The release that the simulator has been held against recordings of, in every test."""


@dataclass(frozen=True, slots=True)
class Span:
    """Releases from ``since`` (inclusive) to ``until`` (exclusive); ``None`` means still so."""

    since: Version | None = None
    until: Version | None = None

    def __contains__(self, version: Version) -> bool:
        if self.since is not None and version < self.since:
            return False
        return self.until is None or version < self.until


ALWAYS: Final = Span()


def span(since: str | None = None, until: str | None = None) -> Span:
    """Write a span in words: ``span("0.8.2", "0.17.0")``."""
    return Span(
        since=None if since is None else Version(since),
        until=None if until is None else Version(until),
    )


def parse_version(text: str) -> Version:
    """Read an engine version such as ``0.32.0``, ``v0.8.5.post2`` or ``0.32.0+cpu``.

    Raises:
        ValueError: not a version, or one that the simulator knows nothing about.
    """
    try:
        version = Version(text)
    except InvalidVersion:
        raise ValueError(
            f"--sim-version: {text!r} is not a version; write one such as {DEFAULT_VERSION}"
        ) from None
    if version < OLDEST or version.release[:2] > NEWEST.release[:2]:
        raise ValueError(
            f"--sim-version: {text} is not modelled; "
            f"known are {OLDEST} to {NEWEST.release[0]}.{NEWEST.release[1]}"
        )
    return version
