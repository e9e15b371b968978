"""From a condition's truth at one moment to a rule's truth over time.

Three memories may stand between them: for how long the condition has held, in which windows it
held, and that it has held at all while its `until` has not come. All of them live in `Pending`,
so that a restart or another leader goes on where the last one stopped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from specpilot.domain.conditions import Truth
from specpilot.domain.memory import Pending
from specpilot.domain.rules import OnUnknown, Rule

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A rule over time.

    Attributes:
        truth: Three-valued, with `until` and `onUnknown` taken into account.
        fires: It is true and has been for long enough, or in enough windows.
        held: How long it has held.
        words: What to say of it before the numbers, "" for nothing.
        memory: What to remember; None for nothing.
    """

    truth: Truth
    fires: bool
    held: timedelta
    words: str
    memory: Pending | None


def hold(
    rule: Rule,
    when: Truth,
    *,
    until: Callable[[], Truth],
    memory: Pending | None,
    assume_held: bool,
    now: datetime,
) -> Held:
    """Take the next step.

    Args:
        rule: The rule.
        when: Its condition now.
        until: Asks its `until`, which only matters at times.
        memory: What the last step remembered.
        assume_held: There is no time: a condition that is true has held for long enough.
        now: The time of this step.
    """
    truth, latched, words = _latched(rule, when, until=until, memory=memory)
    if truth is Truth.UNKNOWN and rule.on_unknown is not OnUnknown.HOLD:
        counts = rule.on_unknown is OnUnknown.FIRE
        truth = Truth.TRUE if counts else Truth.FALSE
        latched = counts and bool(rule.until)
        words = [*words, f"Unknown counts as {'true' if counts else 'false'}"]
    if assume_held:
        return Held(
            truth=truth,
            fires=truth is Truth.TRUE,
            held=rule.hold if truth is Truth.TRUE else timedelta(0),
            words="; ".join(words),
            memory=None,
        )
    step = _in_windows if rule.at_least is not None else _at_a_stretch
    return step(rule, truth, latched=latched, memory=memory, words=words, now=now)


def _latched(
    rule: Rule, when: Truth, *, until: Callable[[], Truth], memory: Pending | None
) -> tuple[Truth, bool, list[str]]:
    """Apply `until`: the truth, whether it is latched, and words on it."""
    latched = memory is not None and memory.latched
    if not rule.until or (not latched and when is not Truth.TRUE):
        return when, False, []
    over = until()
    if over is Truth.TRUE:
        return Truth.FALSE, False, [f"over, for until holds: {rule.until}"]
    if when is Truth.UNKNOWN and over is Truth.UNKNOWN:
        return Truth.UNKNOWN, True, []  # nothing is known at all: what was latched stays so
    words = [] if when is Truth.TRUE else [f"stays true until {rule.until}"]
    return Truth.TRUE, True, words


def _at_a_stretch(
    rule: Rule,
    truth: Truth,
    *,
    latched: bool,
    memory: Pending | None,
    words: list[str],
    now: datetime,
) -> Held:
    held = timedelta(0)
    remembered = memory
    fresh = memory is not None and now - memory.last_true <= rule.grace
    match truth:
        case Truth.TRUE:
            # A leader whose clock is behind must not see a time that has not begun.
            since = min(memory.since, now) if memory is not None and fresh else now
            remembered = Pending(since=since, last_true=now, latched=latched)
            held = now - since
            if rule.hold:
                words = [f"held {spell(min(held, rule.hold))} of {spell(rule.hold)}", *words]
        case Truth.FALSE:
            remembered = None
        case Truth.UNKNOWN:
            if memory is not None and not fresh and not latched:
                remembered = None
    fires = truth is Truth.TRUE and held >= rule.hold
    return Held(truth=truth, fires=fires, held=held, words="; ".join(words), memory=remembered)


def _in_windows(
    rule: Rule,
    truth: Truth,
    *,
    latched: bool,
    memory: Pending | None,
    words: list[str],
    now: datetime,
) -> Held:
    wanted = rule.at_least
    assert wanted is not None
    last_known = None if memory is None else memory.last_known or memory.last_true
    fresh = last_known is not None and now - last_known <= rule.grace
    current = window_start(now, each=wanted.each)
    oldest = current - wanted.of * wanted.each
    windows = []
    if memory is not None and fresh:
        windows = [w for w in memory.windows if oldest <= w <= current]
    if truth is not Truth.UNKNOWN:
        last_known = now
        windows = [w for w in windows if w != current]
        windows += [current] * (truth is Truth.TRUE)
    count = sum(w != current for w in windows)
    fires = truth is not Truth.UNKNOWN and count >= wanted.windows
    remembered = None
    if windows or latched:
        last_true = now if truth is Truth.TRUE or memory is None else memory.last_true
        remembered = Pending(
            since=windows[0] if windows else last_true,
            last_true=last_true,
            last_known=last_known,
            latched=latched,
            windows=tuple(windows),
        )
    counted = f"{count} of {wanted.of} windows"
    if count < wanted.windows:
        counted += f", {wanted.windows} needed"
    return Held(
        truth=Truth.TRUE if fires else truth,
        fires=fires,
        held=count * wanted.each,
        words="; ".join((counted, *words)),
        memory=remembered,
    )


def window_start(now: datetime, *, each: timedelta) -> datetime:
    """When the window that a moment lies in began; windows begin at multiples since 1970 (UTC)."""
    return now - (now - _EPOCH) % each


def spell(span: timedelta) -> str:
    """Write a time for people: `45s`, `3m20s`, `2h`."""
    minutes, seconds = divmod(round(span.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m" if minutes else f"{hours}h"
    if not minutes:
        return f"{seconds}s"
    return f"{minutes}m{seconds:02d}s" if seconds else f"{minutes}m"
