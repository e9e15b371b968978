"""What another setting would have been worth, where measurements of both settings exist.

While a replay simulates one setting and another one really ran, the readings are of the latter. How
fast the former would have been is known in three ways, best first:

- *measured*: comparisons of arms in the same minutes (`economics`), at a like load;
- *recorded*: stretches of the same recording in which it ran, at a like load. Other hours bring
  other prompts, so this is weaker;
- *stated*: a cost that the policy states, with the acceptance that was measured.

There is no fourth. Minutes of which none of them says anything are counted as not known.

Worth is counted in output tokens at the same number of running requests. Traffic that comes at a
pace of its own would have had its answers sooner rather than more of them.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from specpilot.domain.economics import Measurement, Steps, clamped, decode_steps
from specpilot.domain.policy import CostPoint
from specpilot.domain.readings import Readings
from specpilot.domain.recall import SAME, Point, read_off, read_stated, weight
from specpilot.domain.settings import OFF_NAME, UNRECOGNISED

GAIN_SIGNALS = frozenset(
    {
        "batch_size",
        "drafts",
        "generated_tokens",
        "generation_length_mean",
        "mean_acceptance_length",
        "tokens_per_second",
        "tokens_per_second_per_request",
        "tpot_mean",
    }
)
"""What an estimate rests on."""

LEAST_WINDOWS = 3
"""A setting must have run for so many windows at a like load for its speed to be known there."""

WINDOW = timedelta(minutes=5)
"""Window of readings that do not say theirs."""


class Basis(StrEnum):
    """What an estimate rests on."""

    SAME = "same"  # what was simulated is what ran
    MEASURED = "measured"
    RECORDED = "recorded"
    STATED = "stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What is known of one setting that speculates, beside the recording.

    Attributes:
        measured: Comparisons with off, all of the same config and engine.
        stated: What the policy states.
    """

    measured: Sequence[Measurement] = ()
    stated: Sequence[CostPoint] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """The time from one moment to the next.

    Attributes:
        start: Its beginning.
        end: Its end.
        readings: At its end; they are of what ran.
        ran: The setting that ran at its end.
        ran_since: When it was first seen to run; None where that is not known to be recent.
        simulated: The setting that would have been in force.
    """

    start: datetime
    end: datetime
    readings: Readings
    ran: str
    ran_since: datetime | None
    simulated: str

    @property
    def mixed(self) -> bool:
        """Whether its readings may reach back to another setting."""
        reach = timedelta(seconds=_window_s(self.readings, "tokens_per_second"))
        return self.ran_since is not None and self.end - self.ran_since < reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What a spell was worth.

    Attributes:
        setting: The simulated setting.
        seconds: How long it was.
        ran: Output tokens that came out; None where that is not known.
        would: Those that would have come out.
        basis: What that rests on; None where it is not known.
        why: Why it is not known.
    """

    setting: str
    seconds: float
    ran: float | None = None
    would: float | None = None
    basis: Basis | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The worth of many spells.

    Attributes:
        seconds: How long each basis was used.
        not_known: Seconds of which it is not known, by the reason.
        ran: Output tokens that came out in the time another setting was simulated and its worth is
            known; None where there is no such time.
        would: Those that would have come out in that time.
    """

    seconds: Mapping[Basis, float]
    not_known: Mapping[str, float]
    ran: float | None
    would: float | None

    @property
    def judged_s(self) -> float:
        """Seconds that the estimate rests on."""
        return sum(s for basis, s in self.seconds.items() if basis is not Basis.SAME)

    @property
    def not_known_s(self) -> float:
        """Seconds of which nothing is known."""
        return sum(self.not_known.values())

    @property
    def tokens(self) -> float | None:
        """Output tokens gained; lost where negative."""
        return None if self.ran is None or self.would is None else self.would - self.ran

    @property
    def relative(self) -> float | None:
        """The same as a share of what ran."""
        return self.tokens / self.ran if self.tokens is not None and self.ran else None

    @property
    def per_second(self) -> float | None:
        """The same per second of the time it rests on."""
        return self.tokens / self.judged_s if self.tokens is not None and self.judged_s else None

    @classmethod
    def of(cls, worths: Iterable[Worth]) -> "Gain":
        """Add them up."""
        seconds: dict[Basis, float] = {}
        not_known: dict[str, float] = {}
        known: list[tuple[float, float]] = []
        for worth in worths:
            if worth.basis is None:
                not_known[worth.why] = not_known.get(worth.why, 0.0) + worth.seconds
                continue
            seconds[worth.basis] = seconds.get(worth.basis, 0.0) + worth.seconds
            if worth.basis is not Basis.SAME and worth.ran is not None and worth.would is not None:
                known.append((worth.ran, worth.would))
        ran, would = (sum(column) for column in zip(*known, strict=True)) if known else (None, None)
        return cls(seconds=seconds, not_known=not_known, ran=ran, would=would)


@dataclass(frozen=True, slots=True)
class _Look:
    """A moment at which a setting ran: at which load, how fast, and how long that stands for."""

    batch: float
    speed: float
    seconds: float
    window_s: float


_SPEEDS: Mapping[str, Callable[[float], float]] = {
    "tokens_per_second_per_request": lambda value: value,
    "tpot_mean": lambda value: 1 / value,
}
"""Signals that tell tokens a second of a running request; like is compared with like."""


@dataclass(slots=True)
class Recorded:
    """How fast each setting was, at which load, over a whole recording."""

    _looks: dict[tuple[str, str], list[_Look]] = field(default_factory=dict)

    @classmethod
    def of(cls, spells: Iterable[Spell]) -> "Recorded":
        """Note what each spell shows of the setting that ran."""
        found = cls()
        for spell in spells:
            batch = spell.readings.value("batch_size")
            if batch is None or spell.mixed:
                continue
            for signal in _SPEEDS:
                if (speed := _speed(spell.readings, signal)) is not None:
                    look = _Look(batch, speed, _covered(spell), _window_s(spell.readings, signal))
                    found._looks.setdefault((spell.ran, signal), []).append(look)
        return found

    def speed(self, setting: str, signal: str, *, batch: float) -> float | None:
        """Median speed of a setting at a like load; None where it ran too little there."""
        at = clamped(batch)
        like = [
            look
            for look in self._looks.get((setting, signal), ())
            if 1 / SAME <= clamped(look.batch) / at <= SAME
        ]
        needed = LEAST_WINDOWS * max((look.window_s for look in like), default=0.0)
        if not like or sum(look.seconds for look in like) < needed:
            return None
        return statistics.median(look.speed for look in like)


def spells(
    moments: Sequence[tuple[datetime, Readings, str]], simulated: Sequence[str]
) -> list[Spell]:
    """The spells between moments.

    Args:
        moments: Time, readings and the setting that ran.
        simulated: The setting in force after each of them.
    """
    found: list[Spell] = []
    since: datetime | None = None
    for (before, after), setting in zip(pairwise(moments), simulated, strict=False):
        if before[2] != after[2]:
            since = after[0]
        found.append(
            Spell(
                start=before[0],
                end=after[0],
                readings=after[1],
                ran=after[2],
                ran_since=since,
                simulated=setting,
            )
        )
    return found


def worth(spell: Spell, *, costs: Mapping[str, Costs], recorded: Recorded) -> list[Worth]:
    """What the simulated setting would have been worth in a spell.

    Returns:
        One, and another for the part of a spell that its readings do not reach back to.
    """
    seconds, length = _covered(spell), (spell.end - spell.start).total_seconds()
    found = [_of_covered(spell, seconds, costs=costs, recorded=recorded)]
    if length > seconds:
        rest = length - seconds
        why = "nothing was measured in between"
        found.append(Worth(setting=spell.simulated, seconds=rest, why=why))
    return found


def _of_covered(
    spell: Spell, seconds: float, *, costs: Mapping[str, Costs], recorded: Recorded
) -> Worth:
    def not_known(why: str) -> Worth:
        return Worth(setting=spell.simulated, seconds=seconds, why=why)

    tokens = spell.readings.value("tokens_per_second")
    ran = None if tokens is None else tokens * seconds
    if spell.ran == spell.simulated:
        return Worth(setting=spell.simulated, seconds=seconds, ran=ran, would=ran, basis=Basis.SAME)
    if spell.mixed:
        return not_known("what ran had changed within the window")
    if UNRECOGNISED in {spell.ran, spell.simulated}:
        return not_known("what ran is none of the policy's settings")
    if ran is None:
        return not_known("tokens_per_second is Unknown")
    batch = spell.readings.value("batch_size")
    if batch is None:
        return not_known("batch_size is Unknown")
    for basis, ratio in (
        (Basis.MEASURED, _by_cost(spell, costs, batch, stated=False)),
        (Basis.RECORDED, _by_recording(spell, recorded, batch)),
        (Basis.STATED, _by_cost(spell, costs, batch, stated=True)),
    ):
        if ratio is not None:
            return Worth(
                setting=spell.simulated,
                seconds=seconds,
                ran=ran,
                would=ran * ratio,
                basis=basis,
            )
    return not_known(f"no measurement of {spell.simulated} and {spell.ran} at a like load")


def _by_recording(spell: Spell, recorded: Recorded, batch: float) -> float | None:
    for signal in _SPEEDS:
        then = recorded.speed(spell.simulated, signal, batch=batch)
        now = _speed(spell.readings, signal)
        if then is not None and now is not None:
            return then / now
    return None


def _by_cost(
    spell: Spell, costs: Mapping[str, Costs], batch: float, *, stated: bool
) -> float | None:
    """Speed of the simulated setting over that of the one that ran, each against off."""
    ran = _running_speedup(spell, costs.get(spell.ran, Costs()), batch, stated=stated)
    other = _measured(costs.get(spell.simulated, Costs()), batch, lambda m: m.speedup)
    would = 1.0 if spell.simulated == OFF_NAME else other
    return None if ran is None or would is None else would / ran


def _running_speedup(spell: Spell, costs: Costs, batch: float, *, stated: bool) -> float | None:
    """Speed over off of the setting that ran: what its drafts brought over what a step cost."""
    if spell.ran == OFF_NAME:
        return 1.0
    steps = decode_steps(
        {name: r.value for name, r in spell.readings.items() if r.value is not None}
    )
    ratio = spell.readings.value("cost_ratio")  # a series may have what was known at the time
    if ratio is None and stated:
        ratio = read_stated(costs.stated, batch)
    elif ratio is None:
        ratio = _measured(costs, batch, lambda m: m.ratio)
    if ratio is None or not isinstance(steps, Steps):
        return None
    return steps.per_step / (1 + steps.share * (ratio - 1))


def _measured(costs: Costs, batch: float, what: Callable[[Measurement], float]) -> float | None:
    points = [Point(batch=m.batch, ratio=what(m), weight=weight(m)) for m in costs.measured]
    found = read_off(points, batch)
    return found.ratio if found is not None else None


def _speed(readings: Readings, signal: str) -> float | None:
    value = readings.value(signal)
    return _SPEEDS[signal](value) if value is not None and value > 0 else None


def _window_s(readings: Readings, signal: str) -> float:
    return readings[signal].window_s or WINDOW.total_seconds()


def _covered(spell: Spell) -> float:
    """Seconds of a spell that the readings at its end speak of."""
    length = (spell.end - spell.start).total_seconds()
    return min(length, _window_s(spell.readings, "tokens_per_second"))
