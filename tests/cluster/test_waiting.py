"""Waiting tells why it gave up."""

from __future__ import annotations

import pytest

from tests.cluster.waiting import NotInTimeError, wait_for


def test_the_answer_is_returned() -> None:
    answers = iter([None, 0, "yes"])
    assert wait_for(lambda: next(answers), every=0.001) == "yes"


def test_a_failed_assertion_counts_as_not_yet_and_is_told() -> None:
    def refuse() -> bool:
        raise AssertionError("two pods, not one")

    with pytest.raises(NotInTimeError, match=r"(?s)within 0 s: the roll.*two pods, not one"):
        wait_for(refuse, deadline=0, describe=lambda: "the roll")


def test_another_error_passes_at_once() -> None:
    def fail() -> bool:
        raise KeyError("x")

    with pytest.raises(KeyError):
        wait_for(fail)
