"""Turns are fair, and statuses are written beside the work."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from specpilot.controller.publisher import Publisher
from specpilot.controller.turns import Turns
from tests.cluster.waiting import wait_for

LONG_S = 30.0


def test_who_waits_gets_the_turn_that_is_offered() -> None:
    turns = Turns()
    order: list[str] = []
    waiting = threading.Event()

    def tick() -> None:
        waiting.set()
        with turns.turn():
            order.append("tick")

    other = threading.Thread(target=tick)
    with turns.turn():
        other.start()
        assert waiting.wait(LONG_S)
        wait_for(turns._queue.locked, describe="the tick waits for its turn")
        for step in ("one", "two"):
            order.append(step)
            turns.offer()
    other.join(LONG_S)
    assert order == ["one", "tick", "two"]


def test_nobody_waits_and_the_turn_stays() -> None:
    turns = Turns()
    with turns.turn():
        turns.offer()
        assert turns._turn.locked()
    with pytest.raises(ZeroDivisionError), turns.turn():
        _ = 1 / 0
    with turns.turn():
        pass


class Writes:
    """Writes that take as long as the test wants."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.may_end = threading.Event()

    def __call__(self, name: str) -> None:
        self.begun.append(name)
        assert self.may_end.wait(LONG_S)
        self.ended.append(name)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher(writers=2) as running:
        yield running


def test_putting_does_not_wait_and_only_the_newest_of_an_object_is_written(
    publisher: Publisher,
) -> None:
    writes = Writes()
    publisher.put("a", lambda: writes("a1"))
    wait_for(lambda: writes.begun == ["a1"], deadline=LONG_S)
    publisher.put("a", lambda: writes("a2"))
    publisher.put("a", lambda: writes("a3"))
    publisher.put("b", lambda: writes("b1"))
    wait_for(lambda: writes.begun == ["a1", "b1"], deadline=LONG_S)
    assert not publisher.wait_idle(timeout_s=0.01)
    writes.may_end.set()
    assert publisher.wait_idle(timeout_s=LONG_S)
    assert writes.begun == ["a1", "b1", "a3"], "in order, and never two of one object at once"


def test_what_somebody_waits_for_goes_first() -> None:
    """A new change is shown before the readings of a hundred that are under way."""
    writes = Writes()
    with Publisher(writers=1) as publisher:
        publisher.put("a", lambda: writes("a1"))
        wait_for(lambda: writes.begun == ["a1"], deadline=LONG_S)
        for name in "bcd":
            publisher.put(name, partial(writes, f"{name}1"), first=name == "d")
        publisher.put("a", lambda: writes("a2"), first=True)
        publisher.put("d", lambda: writes("d2"))
        writes.may_end.set()
        assert publisher.wait_idle(timeout_s=LONG_S)
    assert writes.begun[0] == "a1"
    assert {*writes.begun[1:3]} == {"a2", "d2"}
    assert writes.begun[3:] == ["b1", "c1"]


def test_one_that_fails_does_not_end_the_others(publisher: Publisher) -> None:
    writes = Writes()
    writes.may_end.set()
    for name in "abc":
        publisher.put(name, lambda: 1 / 0)
    publisher.put("d", lambda: writes("d1"))
    assert publisher.wait_idle(timeout_s=LONG_S)
    assert writes.ended == ["d1"]


def test_the_end_waits_for_what_is_being_written_and_leaves_the_rest() -> None:
    writes = Writes()
    with Publisher(writers=1) as publisher:
        publisher.put("a", lambda: writes("a1"))
        wait_for(lambda: writes.begun == ["a1"], deadline=LONG_S)
        publisher.put("b", lambda: writes("b1"))
        threading.Timer(0.05, writes.may_end.set).start()
    assert writes.ended == ["a1"]
    assert writes.begun == ["a1"]
