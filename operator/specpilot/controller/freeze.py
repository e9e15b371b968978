"""Freeze windows: cron in a time zone, daylight saving included, by APScheduler's trigger."""

from datetime import datetime
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from specpilot.domain.policy import FreezeWindow, Policy


def open_window(window: FreezeWindow, *, now: datetime) -> datetime | None:
    """Return when the window that is open now began, or None."""
    trigger = CronTrigger.from_crontab(window.schedule, timezone=ZoneInfo(window.time_zone))
    began: datetime | None = trigger.get_next_fire_time(None, now - window.duration)
    # The window is half-open: it ends at the very moment `duration` after its start.
    if began is not None and began == now - window.duration:
        began = trigger.get_next_fire_time(began, now)
    return began if began is not None and began <= now else None


def frozen(policy: Policy, *, now: datetime) -> str:
    """Say which freeze window is open and until when; "" when none is."""
    for window in policy.freeze_windows:
        began = open_window(window, now=now)
        if began is not None:
            until = (began + window.duration).astimezone(ZoneInfo(window.time_zone))
            why = f" ({window.reason})" if window.reason else ""
            return f"frozen until {until:%Y-%m-%d %H:%M %Z}{why}"
    return ""
