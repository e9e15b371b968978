"""Which statuses are worth a write."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest

from specpilot.controller.writing import Worth, without_numbers

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
BEGAN = NOW - 60 * MINUTE
Status = dict[str, Any]


def status(
    *,
    message: str = "2 of 3 replicas are ready",
    batch: float = 12.0,
    phase: str = "Idle",
    on_time: str = "True",
) -> Status:
    return {
        "phase": phase,
        "message": message,
        "verdict": f"batch_size {batch}",
        "readings": [{"signal": "batch_size", "value": batch}],
        "conditions": [
            {"type": "Ready", "status": "True", "message": message},
            {"type": "OnTime", "status": on_time, "message": ""},
        ],
    }


def worth(uid: str = "u", *, at: datetime = NOW) -> Worth:
    """One that has written a status at a moment."""
    made = Worth(began=BEGAN)
    made.wrote(uid, now=at)
    return made


@pytest.mark.parametrize(
    ("wanted", "after", "written", "reason"),
    [
        (status(phase="Held"), SECOND, True, "news"),
        (status(message="paused by ann"), SECOND, True, "other words are news"),
        (status(), MINUTE * 60, True, "so that it does not look forgotten"),
        (status(message="3 of 3 replicas are ready"), SECOND, False, "the same words"),
        (status(message="3 of 3 replicas are ready"), MINUTE, True, "after a minute"),
        (status(batch=13.0), SECOND, False, "readings alone"),
        (status(batch=13.0), MINUTE, True, "after a minute"),
        (status(on_time="False"), SECOND, False, "not of the policy: a thousand writes otherwise"),
        (status(on_time="False"), MINUTE, True, "with the readings"),
    ],
)
def test_writing(wanted: Status, after: timedelta, written: bool, reason: str) -> None:
    now = NOW + after
    found = worth().writing("u", wanted, gist=0, there=status(), crowd=1, now=now)
    assert found is written, reason


def test_a_status_that_somebody_else_changed_is_put_right_at_once() -> None:
    assert worth().writing("u", status(), gist=0, there={}, crowd=1, now=NOW)


def test_a_new_process_writes_nothing_that_is_there_already() -> None:
    made = Worth(began=BEGAN)
    assert not made.writing("u", status(batch=13.0), gist=0, there=status(), crowd=1, now=NOW)
    assert made.writing("u", status(batch=13.0), gist=0, there=status(), crowd=1, now=NOW + MINUTE)


@pytest.mark.parametrize(
    ("wanted", "there", "after", "written", "reason"),
    [
        (status(phase="Blind"), status(), 59 * SECOND, False, "it has only begun to look"),
        (status(phase="Blind"), status(), MINUTE, True, "by now it should have seen something"),
        (status(phase="Blind"), {}, SECOND, True, "somebody waits for a first word"),
        (status(phase="Held"), status(), SECOND, True, "that it knows without signals"),
    ],
)
def test_a_new_leader_does_not_say_that_all_signals_are_lost(
    wanted: Status, there: Status, after: timedelta, written: bool, reason: str
) -> None:
    made = Worth(began=NOW)
    assert made.writing("u", wanted, gist=0, there=there, crowd=1, now=NOW + after) is written, (
        reason
    )


def test_a_clock_that_is_set_back_does_not_silence_it_for_long() -> None:
    made = worth(at=NOW + 60 * MINUTE)
    moved = status(batch=13.0)
    assert not made.writing("u", moved, gist=0, there=status(), crowd=1, now=NOW)
    assert made.writing("u", moved, gist=0, there=status(), crowd=1, now=NOW + MINUTE)


THERE = status()


@pytest.mark.parametrize(
    ("gist", "there", "after", "quiet", "reason"),
    [
        ("same", THERE, SECOND, True, "nothing has changed"),
        ("other", THERE, SECOND, False, "there is something else to say"),
        (
            "same",
            status(),
            SECOND,
            False,
            "it was written anew, by whomever: it is looked at again",
        ),
        ("same", THERE, MINUTE, False, "its readings are old"),
        ("same", THERE, -SECOND, False, "the clock was set back: the look puts that right"),
    ],
)
def test_a_status_that_is_right_is_not_put_together(
    gist: str, there: Status, after: timedelta, quiet: bool, reason: str
) -> None:
    made = worth()
    assert not made.quiet("u", "same", there=THERE, crowd=1, now=NOW), "nobody has looked yet"
    assert not made.writing("u", status(batch=13.0), gist="same", there=THERE, crowd=1, now=NOW)
    assert made.quiet("u", gist, there=there, crowd=1, now=NOW + after) is quiet, reason


def test_a_status_that_waits_for_its_turn_is_never_quiet() -> None:
    made, moved = worth(), status(message="3 of 3 replicas are ready")
    assert not made.writing("u", moved, gist="moved", there=THERE, crowd=1, now=NOW + SECOND)
    assert not made.quiet("u", "moved", there=THERE, crowd=1, now=NOW + SECOND)


def test_readings_of_many_policies_are_written_at_a_bounded_rate_and_spread_out() -> None:
    crowd, made = 600, Worth(began=BEGAN)
    uids = [str(uuid5(NAMESPACE_OID, str(n))) for n in range(crowd)]
    moved, there, now = status(batch=13.0), status(), NOW
    a_tick: list[int] = []
    for _ in range(120):
        due = [
            uid
            for uid in uids
            if made.writing(uid, moved, gist=0, there=there, crowd=crowd, now=now)
        ]
        for uid in due:
            made.wrote(uid, now=now)
        a_tick.append(len(due))
        now += 15 * SECOND
    assert sum(a_tick) / len(a_tick) <= 1.5 * 2 * 15, "two a second, and half as many more"
    assert max(a_tick[40:]) <= 3 * 2 * 15, "no flood"
    assert sum(a_tick) > 4 * crowd, "each of them"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("cooling down until 2026-11-29 12:00:07 UTC", "cooling down until #-#-# # UTC"),
        ("batch_size 49.73 > 14", "batch_size # > #"),
        ("paused", "paused"),
    ],
)
def test_without_numbers(text: str, left: str) -> None:
    assert without_numbers(text) == left
