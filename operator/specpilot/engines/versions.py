"""Engine versions as text, and the spans of versions in which a fact holds.

An image tag is often all that is known of an engine, and it may say `latest`. What a version means
is decided here once, so that nothing else compares version strings.
"""

from dataclasses import dataclass
from functools import lru_cache

from packaging.version import InvalidVersion, Version

OLDEST = Version("0.4.1")
"""First release whose speculation is described: the first with flags for it."""

NEWEST = Version("0.33.0")
"""Newest release that is described. A later one is read as this one, and it is said."""


class VersionError(ValueError):
    """A version nothing can be said about; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Span:
    """Releases from `since` (inclusive) up to `until` (exclusive; None: still so)."""

    since: Version
    until: Version | None = None

    def __contains__(self, release: Version) -> bool:
        return self.since <= release and (self.until is None or release < self.until)

    def __str__(self) -> str:
        if self.until is None:
            return f"{self.since} and later"
        return f"{self.since} up to, not including, {self.until}"


def span(since: str, until: str = "") -> Span:
    """Write a span in words: `span("0.8.2", "0.17.0")`."""
    return Span(Version(since), Version(until) if until else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine version, read.

    Attributes:
        release: What the tables are asked for.
        note: In words, when `release` is not simply what the user's text says.
        beyond: Newer than the tables: what they do not know may exist.
    """

    release: Version
    note: str = ""
    beyond: bool = False

    def __str__(self) -> str:
        return f"vLLM {self.release}"


def read_version(text: str) -> Engine:
    """Read a version such as `0.32.0`, `v0.8.5.post1` or `0.11.1rc2.dev3+g1a2b3c`; "" is unknown.

    Raises:
        VersionError: Not a version, or older than the tables.
    """
    if not text:
        return Engine(
            release=NEWEST, note=f"the engine's version is not known and is read as {NEWEST}"
        )
    try:
        version = Version(text)
    except InvalidVersion:
        raise VersionError(
            f"engine version {text!r} is not a version; use an image tag such as v{NEWEST}, "
            "or state the version"
        ) from None
    release = Version(version.base_version)
    if release < OLDEST:
        raise VersionError(
            f"vLLM {text} is older than {OLDEST}, the first release whose speculation is "
            f"described; use vLLM {OLDEST} or later"
        )
    if release.release[:2] > NEWEST.release[:2]:
        return Engine(
            release=NEWEST,
            beyond=True,
            note=f"vLLM {text} is newer than {NEWEST}, the newest described, and is read as it",
        )
    if version.is_devrelease or version.is_prerelease:
        return Engine(release=release, note=f"vLLM {text} is read as its release {release}")
    return Engine(release=release)


@lru_cache(maxsize=64)
def readable(version: str) -> str:
    """The version, "" where it is none that the tables know how to place (a house's own build)."""
    try:
        read_version(version)
    except VersionError:
        return ""
    return version
