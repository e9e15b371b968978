"""The stored form says everything there is to say, whatever the domain comes to hold."""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from enum import Enum

from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.changes import Evidence, FlagChange, Slice
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.settings import canonical_json
from specpilot.store import codec
from tests.unit.store.examples import change

_ZONES = st.integers(-12 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
_PLAIN: dict[object, st.SearchStrategy[object]] = {
    str: st.text(),
    bool: st.booleans(),
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    datetime: st.datetimes(
        datetime.fromisoformat("2000-01-01"), datetime.fromisoformat("2100-01-01"), timezones=_ZONES
    ),
}


def anything(hint: object) -> st.SearchStrategy[object]:
    """Values of a type; unlike Hypothesis's own, it also varies attributes that have a default."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    args = typing.get_args(hint)
    if typing.get_origin(hint) is types.UnionType:
        return st.one_of(*(st.none() if a is type(None) else anything(a) for a in args))
    if typing.get_origin(hint) is tuple:
        return st.lists(anything(args[0]), max_size=3).map(tuple)
    if typing.get_origin(hint) is Mapping:
        return st.dictionaries(anything(args[0]), anything(args[1]), max_size=3)
    assert isinstance(hint, type), hint
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    hints = typing.get_type_hints(hint)
    fields = {f.name: anything(hints[f.name]) for f in dataclasses.fields(hint)}
    return st.builds(hint, **fields)


def through_json(plain: object) -> dict[str, object]:
    return json.loads(canonical_json(plain))


@given(anything(FlagChange))
def test_a_flag_change_comes_back_as_it_was(value: FlagChange) -> None:
    assert codec.change_from_plain(through_json(codec.change_to_plain(value))) == value


@given(anything(PolicyMemory))
def test_memory_comes_back_as_it_was(value: PolicyMemory) -> None:
    assert codec.memory_from_plain(through_json(codec.memory_to_plain(value))) == value


@given(anything(Evidence))
def test_evidence_comes_back_as_it_was(value: Evidence) -> None:
    assert codec.evidence_from_plain(through_json(codec.evidence_to_plain(value))) == value


def test_instants_come_back_in_utc() -> None:
    local = datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    found = codec.change_from_plain(codec.change_to_plain(change(created_at=local)))
    assert found.created_at == local
    assert found.created_at.utcoffset() == timedelta(0)


def test_what_an_older_release_did_not_write_reads_as_the_default() -> None:
    required = ("id", "policy", "target", "kind", "origin", "wanted", "rule", "phase", "reason")
    plain = codec.change_to_plain(change())
    old = {k: plain[k] for k in (*required, "created_at", "phase_since")}
    found = codec.change_from_plain(old)
    assert (found.slices, found.before, found.undo_reason, found.revision) == ((), {}, None, 0)
    assert codec.memory_from_plain({}) == PolicyMemory()


def test_the_stored_form_is_a_contract() -> None:
    """Keys in databases that exist: adding one is fine, renaming one is not."""
    part = Slice(start=change().created_at, end=change().created_at, canary={"tpot_mean": 0.02})
    plain = codec.change_to_plain(change(slices=(part,)))
    written = {
        "base_template", "before", "created_at", "decided_by", "ended_at", "evidence", "id",
        "kind", "message", "origin", "phase", "phase_since", "policy", "reason", "revision",
        "rule", "seen_applied", "slices", "step", "target", "undo_reason", "wanted",
    }  # fmt: skip
    assert written <= set(plain)
    assert plain["created_at"] == "2026-03-04T05:06:07.890123+00:00"
    assert plain["origin"] == {
        "setting": "eagle3",
        "config": '{"method":"eagle3"}',
        "change_id": "chat-0",
    }
