"""The table against the releases themselves.

`releases.json` was read out of the source of each release: the fields of `SpeculativeConfig`, the
names in `SpeculativeMethod`, and the flags in `engine/arg_utils.py`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from specpilot.engines import On, Runtime
from specpilot.engines import capabilities as table
from specpilot.engines.capabilities import Effect, Situation, Topic
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
    known = table.known_at(Topic.KEY, read_version(version).release)
    assert set(known) == listed(version, "keys")


NAMED_IN_CODE = {"0.8.5": {"eagle3"}, "0.9.0": {"eagle3"}}
"""Methods that those releases handle and do not check against their list."""


@pytest.mark.parametrize("version", with_("methods"))
def test_methods(version: str) -> None:
    known = table.known_at(Topic.METHOD, read_version(version).release)
    assert set(known) == listed(version, "methods") | NAMED_IN_CODE.get(version, set())


@pytest.mark.parametrize("version", with_("flags"))
def test_flags(version: str) -> None:
    known = set(table.known_at(Topic.FLAG, read_version(version).release))
    assert known - {table.DOTTED_FLAG} == listed(version, "flags")


def test_every_row_has_a_source() -> None:
    assert [row.name for row in table.TABLE if not row.source] == []


def test_every_row_that_is_not_plain_says_why() -> None:
    assert [r.name for r in table.TABLE if r.effect is not Effect.WORKS and not r.why] == []


def test_rows_of_a_method_agree_on_what_it_takes() -> None:
    for row in table.METHODS:
        needs = table.METHOD_NEEDS[row.name]
        assert (row.model, row.depth) == (needs.model, needs.depth), row.name


def at(version: str, method: str = "ngram", **runtime: Any) -> Situation:
    return table.situation(read_version(version), method, Runtime(**runtime))


@pytest.mark.parametrize(
    ("version", "runtime", "flag", "key", "reason"),
    [
        ("0.4.1", {}, None, None, "not yet"),
        ("0.4.3", {}, "works", None, "#4592"),
        ("0.8.1", {}, "ignored", None, "V1 is the default and has no reader"),
        ("0.8.2", {"engine": On.V0}, "works", "works", "both"),
        ("0.8.2", {}, "ignored", "ignored", "V1"),
        ("0.8.3", {"engine": On.V0}, None, "works", "#15466 removed the flag"),
        ("0.9.2", {"engine": On.V0}, None, "works", "the last with V0"),
        ("0.9.2", {"engine": On.V1}, None, "ignored", "#25112"),
        ("0.10.0", {}, None, "ignored", "#21152"),
        ("0.16.0", {}, None, "ignored", "accepted to the end"),
        ("0.17.0", {}, None, None, "#35060: it would not start"),
        ("0.33.0", {}, None, None, "not reinstated"),
    ],
)
def test_the_fate_of_the_batch_limit(
    version: str, runtime: dict[str, On], flag: str | None, key: str | None, reason: str
) -> None:
    where = at(version, **runtime)
    rows = (
        table.effect(Topic.FLAG, table.LIMIT_FLAG, where),
        table.effect(Topic.KEY, table.LIMIT_KEY, where),
    )
    assert tuple(row and str(row.effect) for row in rows) == (flag, key), reason


@pytest.mark.parametrize(
    ("version", "method", "runtime", "expected", "reason"),
    [
        ("0.23.0", "ngram", {}, None, "not yet"),
        ("0.24.0", "ngram", {}, "works", "runner V1 is the default"),
        ("0.24.0", "ngram", {"data_parallel": 2}, "may hang", "#45963"),
        ("0.25.0", "ngram", {"data_parallel": 2, "runner": On.MRV1}, "ignored", "dropped"),
        ("0.30.0", "eagle3", {}, "ignored", "runner V2 drafts at full depth"),
        ("0.30.0", "eagle3", {"runner": On.MRV1}, "works", "runner V1 keeps to it"),
        ("0.31.0", "suffix", {}, "works", "runner V2 lacks it, so V1 runs"),
        ("0.32.0", "eagle3", {"runner": On.MRV2}, "works", "read in its code"),
        ("0.32.0", "custom_class", {}, "ignored", "the class is told no depth"),
        ("0.33.0", "eagle3", {}, "works", "on the list"),
        ("0.33.0", "deepseek_mtp", {}, "works", "another name of mtp"),
        ("0.33.0", "suffix", {}, "ignored", "not on the list"),
        ("0.33.0", "eagle3", {"data_parallel": 2}, "ignored", "dropped with a warning"),
    ],
)
def test_the_fate_of_a_schedule(
    version: str, method: str, runtime: dict[str, Any], expected: str | None, reason: str
) -> None:
    row = table.effect(Topic.KEY, table.SCHEDULE_KEY, at(version, method, **runtime))
    assert (row and str(row.effect)) == expected, reason
