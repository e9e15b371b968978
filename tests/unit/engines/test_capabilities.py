"""The table against the releases themselves.

`releases.json` was read out of the source of each release: the fields of `SpeculativeConfig`, the
names in `SpeculativeMethod`, and the flags in `engine/arg_utils.py`.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from specpilot.engines import capabilities as table
from specpilot.engines.versions import NEWEST, OLDEST, read_version

RELEASES: Mapping[str, Mapping[str, str]] = json.loads(
    (Path(__file__).parent / "releases.json").read_text()
)


def listed(version: str, what: str) -> set[str]:
    return set(RELEASES[version][what].split())


def with_(what: str) -> list[str]:
    return [v for v in RELEASES if RELEASES[v][what]]


def test_the_table_covers_what_was_read() -> None:
    assert next(iter(RELEASES)) == str(OLDEST)
    assert list(RELEASES)[-1] == str(NEWEST)


@pytest.mark.parametrize("version", with_("keys"))
def test_keys(version: str) -> None:
    release = read_version(version).release
    known = {row.name for row in table.KEYS.values() if release in row.span}
    assert known == listed(version, "keys")


NAMED_IN_CODE = {"0.8.5": {"eagle3"}, "0.9.0": {"eagle3"}}
"""Methods that those releases handle and do not check against their list."""


@pytest.mark.parametrize("version", with_("methods"))
def test_methods(version: str) -> None:
    release = read_version(version).release
    known = {row.name for row in table.METHODS.values() if release in row.span}
    assert known == listed(version, "methods") | NAMED_IN_CODE.get(version, set())


@pytest.mark.parametrize("version", with_("flags"))
def test_flags(version: str) -> None:
    release = read_version(version).release
    rows = [*table.FLAGS.values(), *table.LEGACY_FLAGS.values()]
    known = {row.name for row in rows if release in row.span and not row.name.endswith(".")}
    assert known == listed(version, "flags")


def test_every_row_has_a_source() -> None:
    rows = [
        *table.KEYS.values(),
        *table.METHODS.values(),
        *table.FLAGS.values(),
        *table.LEGACY_FLAGS.values(),
    ]
    assert [row.name for row in rows if not row.source] == []


def test_the_fate_of_the_batch_limit() -> None:
    flag = table.LEGACY_FLAGS["--speculative-disable-by-batch-size"]
    key = table.KEYS["disable_by_batch_size"]
    fate = {}
    for version in ("0.4.3", "0.8.2", "0.8.3", "0.9.2", "0.10.0", "0.16.0", "0.17.0", "0.33.0"):
        release = read_version(version).release
        fate[version] = (
            "flag " * (release in flag.span)
            + "key " * (release in key.span)
            + "ignored" * any(release in c.span for c in key.ignored)
        ).strip()
    assert fate == {
        "0.4.3": "flag",
        "0.8.2": "flag key",
        "0.8.3": "key",
        "0.9.2": "key",
        "0.10.0": "key ignored",
        "0.16.0": "key ignored",
        "0.17.0": "",
        "0.33.0": "",
    }
