"""The audit chain: whole under every writer, and no edit goes unnoticed."""

from collections.abc import Callable
from datetime import timedelta, timezone

import pytest

from specpilot.domain.audit import GENESIS
from specpilot.store import DuplicateStepError, Store
from tests.unit.store.examples import MINUTE, T0, draft

Sql = Callable[[str], list[tuple[object, ...]]]


def write(store: Store, count: int) -> None:
    with store.begin() as unit:
        for n in range(count):
            unit.audit.append(draft(change_id=f"chat-{n}", step=0), at=T0 + n * MINUTE)


def without_triggers(sql: Sql, store_url: str) -> None:
    if store_url.startswith("sqlite"):
        sql("DROP TRIGGER audit_record_no_update")
        sql("DROP TRIGGER audit_record_no_delete")
    else:
        sql("DROP TRIGGER audit_record_append_only ON audit_record")


def test_records_follow_each_other(store: Store) -> None:
    with store.begin() as unit:
        assert unit.audit.head() == (0, GENESIS)
        assert unit.audit.verify().ok
        first = unit.audit.append(draft(), at=T0)
        second = unit.audit.append(draft("Canary"), at=T0 + MINUTE)
    assert (first.seq, first.prev_hash) == (1, GENESIS)
    assert (second.seq, second.prev_hash) == (2, first.hash)
    with store.read() as unit:
        assert unit.audit.records() == [first, second]
        assert unit.audit.head() == (2, second.hash)
        verified = unit.audit.verify()
        assert (verified.ok, verified.records, verified.head) == (True, 2, second.hash)


def test_what_was_rolled_back_leaves_no_gap(store: Store) -> None:
    def fail() -> None:
        with store.begin() as unit:
            unit.audit.append(draft("Lost"), at=T0)
            raise RuntimeError("power cut")

    write(store, 1)
    with pytest.raises(RuntimeError):
        fail()
    with store.begin() as unit:
        assert unit.audit.append(draft(), at=T0).seq == 2
        assert unit.audit.verify().ok


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"before": {"a": 1e300, "b": 1e5, "c": 1.0, "d": -0.0, "e": 10**20}}, "numbers as given"),
        ({"message": "a\0b \ud800 \u2028"}, "text that a column cannot hold is replaced first"),
        ({"after": {"text": "nul \0", "nested": [{"x": None}, [True]]}}, "any JSON"),
        ({"evidence": ()}, "no evidence"),
    ],
)
def test_the_hash_survives_the_database(
    store: Store, values: dict[str, object], reason: str
) -> None:
    local = T0.astimezone(timezone(timedelta(hours=5, minutes=30)))
    with store.begin() as unit:
        unit.audit.append(draft(**values), at=local)
    with store.read() as unit:
        verified = unit.audit.verify()
    assert verified.ok, f"{reason}: {verified.message}"


def test_a_number_that_is_none_is_refused(store: Store) -> None:
    with store.begin() as unit, pytest.raises(ValueError, match="not JSON compliant"):
        unit.audit.append(draft(before={"x": float("nan")}), at=T0)


def test_a_step_is_recorded_once(store: Store) -> None:
    with store.begin() as unit:
        unit.audit.append(draft(change_id="chat-1", step=1), at=T0)
        with pytest.raises(DuplicateStepError, match="step 1 of flag change chat-1"):
            unit.audit.append(draft(change_id="chat-1", step=1), at=T0)
        unit.audit.append(draft(change_id="chat-2", step=1), at=T0)
        unit.audit.append(draft(change_id="chat-1", step=2), at=T0)
        for _ in range(2):
            unit.audit.append(draft(change_id="chat-1"), at=T0)
        with pytest.raises(ValueError, match="step 1 of no flag change"):
            unit.audit.append(draft(step=1), at=T0)
        assert unit.audit.verify().records == 5


def test_records_are_found_by_change_policy_and_page(store: Store) -> None:
    write(store, 5)
    with store.begin() as unit:
        unit.audit.append(draft(namespace="other"), at=T0)
        unit.audit.append(draft(policy="other"), at=T0)
        records = unit.audit.records
        assert [r.seq for r in records(change_id="chat-3")] == [4]
        assert [r.seq for r in records(namespace="other")] == [6]
        assert [r.seq for r in records(policy="other")] == [7]
        assert [r.seq for r in records(after=2, limit=2)] == [3, 4]
        assert [r.seq for r in records(newest_first=True, limit=2)] == [7, 6]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_record SET message = 'nothing happened' WHERE seq = 2",
        "DELETE FROM audit_record WHERE seq = 2",
        "DELETE FROM audit_record",
    ],
)
def test_the_database_refuses_to_rewrite(store: Store, sql: Sql, statement: str) -> None:
    write(store, 3)
    with pytest.raises(Exception, match="append-only"):
        sql(statement)
    with store.read() as unit:
        assert unit.audit.verify().records == 3


def test_postgresql_refuses_to_truncate(store: Store, sql: Sql, store_url: str) -> None:
    if store_url.startswith("sqlite"):
        pytest.skip("SQLite has no TRUNCATE")
    with pytest.raises(Exception, match="append-only"):
        sql("TRUNCATE audit_record")


@pytest.mark.parametrize(
    ("statement", "broken_at", "words"),
    [
        ("UPDATE audit_record SET message = 'x' WHERE seq = 2", 2, "was altered"),
        ("UPDATE audit_record SET actor = 'nobody' WHERE seq = 3", 3, "was altered"),
        ("UPDATE audit_record SET evidence = '[]' WHERE seq = 1", 1, "was altered"),
        ("UPDATE audit_record SET at = '2020-01-01 00:00:00' WHERE seq = 2", 2, "was altered"),
        ("UPDATE audit_record SET step = 7 WHERE seq = 2", 2, "was altered"),
        ("DELETE FROM audit_record WHERE seq = 2", 2, "record 2 is missing"),
        ("DELETE FROM audit_record WHERE seq = 1", 1, "record 1 is missing"),
        ("UPDATE audit_record SET prev_hash = hash WHERE seq = 3", 3, "does not follow"),
    ],
)
def test_tampering_is_found(
    store: Store, sql: Sql, store_url: str, *, statement: str, broken_at: int, words: str
) -> None:
    write(store, 4)
    without_triggers(sql, store_url)
    sql(statement)
    with store.read() as unit:
        verified = unit.audit.verify()
    assert not verified.ok
    assert verified.broken_at == broken_at
    assert words in verified.message


def test_a_cut_off_end_is_found_with_a_head_kept_elsewhere(
    store: Store, sql: Sql, store_url: str
) -> None:
    write(store, 4)
    with store.read() as unit:
        _, head = unit.audit.head()
    with store.begin() as unit:
        unit.audit.append(draft("Later"), at=T0)
        assert unit.audit.verify(known_head=head).ok, "the chain has grown since"
    without_triggers(sql, store_url)
    sql("DELETE FROM audit_record WHERE seq >= 4")
    with store.read() as unit:
        assert unit.audit.verify().ok, "a chain alone cannot know its end"
        verified = unit.audit.verify(known_head=head)
        assert verified.broken_at == 4
        assert "cut off" in verified.message
