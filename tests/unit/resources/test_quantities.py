"""Durations and percentages."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.resources.quantities import (
    format_duration,
    parse_bound,
    parse_duration,
    parse_percent,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("1h30m", 5400), ("62h", 223200), ("1h0m5s", 3605), ("0s", 0)],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("5 minutes", "write 5m"),
        ("5min", "write 5m"),
        ("10 Seconds", "write 10s"),
        ("2d", "write 48h"),
        ("1 week", "write 168h"),
        ("1.5h", "write a duration such as"),
        ("m", "write a duration such as"),
        ("-5m", "write a duration such as"),
        ("30m1h", "write a duration such as"),
        ("", "write a duration such as"),
        (5, "write 5s or 5m"),
        (0.5, "write 0.5s or 0.5m"),
        (True, "write a duration such as"),
        (None, "write a duration such as"),
        ([], "write a duration such as"),
    ],
)
def test_other_durations_are_refused(value: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_duration(value)


@given(st.integers(min_value=0, max_value=10**7))
def test_durations_are_written_as_they_are_read(seconds: int) -> None:
    duration = timedelta(seconds=seconds)
    assert parse_duration(format_duration(duration)) == duration


def refusal(text: str) -> str:
    try:
        parse_duration(text)
    except ValueError as error:
        return str(error)
    return "write nothing else"


@given(st.text(max_size=12))
def test_any_other_text_is_refused_with_the_remedy(text: str) -> None:
    assert refusal(text).startswith("write ")


@pytest.mark.parametrize(
    ("value", "share"),
    [("10%", 0.1), ("2.5%", 0.025), ("150%", 1.5), (0.1, 0.1), ("0.1", 0.1), (0, 0.0), (1, 1.0)],
)
def test_percentages(value: object, share: float) -> None:
    assert parse_percent(value) == pytest.approx(share)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (10, 'write "10%"'),
        ("10", 'write "10%"'),
        (-0.1, "between 0 and 1"),
        ("-10%", "such as"),
        ("ten", "such as"),
        (True, "such as"),
        (float("nan"), "between 0 and 1"),
    ],
)
def test_other_percentages_are_refused(value: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_percent(value)


@pytest.mark.parametrize(
    ("value", "bound"),
    [(4, 4.0), (0.5, 0.5), ("4s", 4.0), ("50ms", 0.05), ("1.5m", 90.0), ("40%", 0.4), ("-2", -2.0)],
)
def test_bounds(value: object, bound: float) -> None:
    assert parse_bound(value) == pytest.approx(bound)


@pytest.mark.parametrize("value", [True, None, "", "4 s", "s", float("inf"), float("nan"), []])
def test_other_bounds_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="write a number in the signal's unit"):
        parse_bound(value)
