"""Reading engine versions."""

import pytest

from specpilot.engines.versions import NEWEST, VersionError, read_version, span


@pytest.mark.parametrize(
    ("text", "release", "note", "reason"),
    [
        ("0.32.0", "0.32.0", "", "plain"),
        ("v0.32.0", "0.32.0", "", "an image tag"),
        ("0.32.0+cpu", "0.32.0", "", "a local version"),
        ("0.8.5.post1", "0.8.5", "", "a post-release"),
        ("0.9.0.1", "0.9.0.1", "", "four numbers"),
        ("0.33.4", "0.33.4", "", "a patch of the newest"),
        ("0.11.1rc2.dev3+g1a2b3c", "0.11.1", "is read as its release 0.11.1", "a nightly"),
        ("", str(NEWEST), "not known", "no version"),
        ("1.2.0", str(NEWEST), "is newer than", "a newer engine"),
    ],
)
def test_versions(text: str, release: str, note: str, reason: str) -> None:
    engine = read_version(text)
    assert str(engine.release) == release, reason
    assert note in engine.note
    assert engine.beyond == (text == "1.2.0")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("latest", "'latest' is not a version; use an image tag"),
        ("nightly-1a2b", "is not a version"),
        ("0.4.0.post1", "older than 0.4.1"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, says: str) -> None:
    with pytest.raises(VersionError, match=says):
        read_version(text)


def test_spans_are_half_open() -> None:
    some = span("0.8.2", "0.17.0")
    assert [read_version(v).release in some for v in ("0.8.1", "0.8.2", "0.16.9", "0.17.0")] == [
        False,
        True,
        True,
        False,
    ]
    assert str(some) == "0.8.2 up to, not including, 0.17.0"
