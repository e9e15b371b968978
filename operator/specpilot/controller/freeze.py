"""Freeze windows: cron in a time zone, daylight saving included, by APScheduler's trigger."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from specpilot.domain.policy import FreezeWindow, Policy

_SHIFTED = timedelta(hours=3)
"""A start in the hour that daylight saving leaves out comes later than the clock says, and is found
only by who looks from before that hour. No zone shifts by as much."""


def open_window(window: FreezeWindow, *, now: datetime) -> datetime | None:
    """Return when the window that is open now began (in UTC), or None."""
    # The window is half-open: it ends at the very moment `duration` after its start.
    for began in _starts(window, since=now - window.duration - _SHIFTED):
        if began > now:
            return None
        if began + window.duration > now:
            return began
    return None


def _starts(window: FreezeWindow, *, since: datetime) -> Iterator[datetime]:
    """Starts from a moment on, in UTC: sums of local times forget the hour that is changed."""
    trigger = CronTrigger.from_crontab(window.schedule, timezone=ZoneInfo(window.time_zone))
    start: datetime | None = trigger.get_next_fire_time(None, since)
    while start is not None:
        yield start.astimezone(UTC)
        start = trigger.get_next_fire_time(start, start)


def frozen(policy: Policy, *, now: datetime) -> str:
    """Say which freeze window is open and until when; "" when none is."""
    for window in policy.freeze_windows:
        began = open_window(window, now=now)
        if began is not None:
            until = (began + window.duration).astimezone(ZoneInfo(window.time_zone))
            why = f" ({window.reason})" if window.reason else ""
            return f"frozen until {until:%Y-%m-%d %H:%M %Z}{why}"
    return ""
