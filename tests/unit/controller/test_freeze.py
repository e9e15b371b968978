"""Freeze windows: cron, zone, duration, daylight saving."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from specpilot.controller.freeze import open_window
from specpilot.domain.policy import FreezeWindow

BERLIN = ZoneInfo("Europe/Berlin")


def local(*when: int, fold: int = 0) -> datetime:
    return datetime(*when, tzinfo=BERLIN, fold=fold)  # type: ignore[misc, arg-type]


WEEKEND = FreezeWindow(
    schedule="0 18 * * FRI", duration=timedelta(hours=62), time_zone="Europe/Berlin"
)
LOST = FreezeWindow(schedule="30 2 * * *", duration=timedelta(hours=1), time_zone="Europe/Berlin")
NIGHT = FreezeWindow(schedule="0 1 * * *", duration=timedelta(hours=2), time_zone="Europe/Berlin")


@pytest.mark.parametrize(
    ("window", "when", "frozen", "reason"),
    [
        (WEEKEND, local(2026, 3, 6, 17, 59), False, "a minute before it begins"),
        (WEEKEND, local(2026, 3, 6, 18, 0), True, "at its first moment"),
        (WEEKEND, local(2026, 3, 8, 12, 0), True, "on Sunday"),
        (WEEKEND, local(2026, 3, 9, 7, 59), True, "a minute before it ends"),
        (WEEKEND, local(2026, 3, 9, 8, 0), False, "at the moment it ends"),
        (WEEKEND, local(2026, 3, 30, 8, 30), True, "62 hours are 62 hours over the lost one"),
        (WEEKEND, local(2026, 3, 30, 9, 0), False, "and end an hour later on the clock"),
        (NIGHT, local(2026, 10, 25, 2, 59, fold=0), True, "01:00 to the first 03:00: two hours"),
        (NIGHT, local(2026, 10, 25, 2, 0, fold=1), False, "the hour that comes twice is no third"),
        (LOST, local(2026, 3, 29, 3, 29), False, "a start in the lost hour comes as late as ever"),
        (LOST, local(2026, 3, 29, 3, 30), True, "which is 03:30 on the new clock"),
        (LOST, local(2026, 3, 29, 4, 29), True, "and lasts an hour"),
        (LOST, local(2026, 3, 29, 4, 30), False, "not longer"),
        (LOST, local(2026, 10, 25, 2, 30, fold=0), True, "a start that comes twice: the first"),
        (WEEKEND, local(2026, 10, 26, 6, 59), True, "62 hours over the hour that comes twice"),
        (WEEKEND, local(2026, 10, 26, 7, 0), False, "end an hour earlier on the clock"),
        (NIGHT, local(2026, 3, 29, 3, 59), True, "01:00 to 04:00 summer time is two hours"),
        (NIGHT, local(2026, 3, 29, 4, 0), False, "two hours after 01:00 winter time"),
    ],
)
def test_open(window: FreezeWindow, when: datetime, frozen: bool, reason: str) -> None:
    """Reloader#1199: no window in which nothing may happen."""
    assert (open_window(window, now=when.astimezone(UTC)) is not None) is frozen, reason
