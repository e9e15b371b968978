"""A replay summed up: the flips, what the gates held back, and which setting was in force when."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from specpilot.controller.proposals import Wanted
from specpilot.controller.replaying import Step
from specpilot.domain.changes import Evidence
from specpilot.domain.gates import Objection


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A flip that would have been made.

    Attributes:
        at: When.
        origin: The setting before.
        setting: The setting after.
        rule: The rule that asked.
        why: In words, with the numbers.
        evidence: The numbers.
        readings_of: The setting that the readings are of, where it is not `origin`; else "".
    """

    at: datetime
    origin: str
    setting: str
    rule: str
    why: str
    evidence: tuple[Evidence, ...]
    readings_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """A proposal that a gate stopped, over the moments in a row at which it was made.

    Attributes:
        since: The first of them.
        until: The last of them.
        times: How many there were.
        origin: The setting in force.
        setting: The setting that was asked for.
        rule: The rule that asked.
        why: In words, at the first of them.
        gate: The gate's No at the first of them.
        readings_of: As for a flip, at the first of them.
    """

    since: datetime
    until: datetime
    times: int
    origin: str
    setting: str
    rule: str
    why: str
    gate: Objection
    readings_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time in which neither the simulated setting nor the one that ran changed.

    Attributes:
        since: Its start.
        until: Its end, which is the start of the next.
        setting: The simulated setting.
        ran: The setting that ran, whose readings they are.
    """

    since: datetime
    until: datetime
    setting: str
    ran: str

    @property
    def counterfactual(self) -> bool:
        """Whether the readings are of another setting."""
        return self.setting != self.ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """All steps, summed up.

    Attributes:
        flips: In order of time.
        held_back: In order of time.
        stretches: They follow each other without a gap.
        moments: How many moments were judged.
        blind: At how many of them no rule could be judged.
    """

    flips: tuple[Flip, ...]
    held_back: tuple[HeldBack, ...]
    stretches: tuple[Stretch, ...]
    moments: int
    blind: int


def summed_up(steps: Iterable[Step]) -> Replayed:
    """Sum up steps in order of time."""
    flips: list[Flip] = []
    held: list[HeldBack] = []
    stretches: list[Stretch] = []
    count = blind = 0
    stopped = False  # whether the step before was stopped by a gate
    for step in steps:
        count += 1
        blind += step.blind
        if step.flipped:
            flips.append(_flip(step))
        if step.objection is not None:
            _hold(held, step, step.objection, follows=stopped)
        stopped = step.objection is not None
        _stretch(stretches, step)
    return Replayed(
        flips=tuple(flips),
        held_back=tuple(held),
        stretches=tuple(stretches),
        moments=count,
        blind=blind,
    )


def _flip(step: Step) -> Flip:
    assert step.wanted is not None
    return Flip(
        at=step.at,
        origin=step.before,
        setting=step.active,
        rule=step.wanted.rule.rule,
        why=_why(step.wanted),
        evidence=step.wanted.evidence,
        readings_of=step.ran if step.counterfactual else "",
    )


def _hold(held: list[HeldBack], step: Step, gate: Objection, *, follows: bool) -> None:
    assert step.wanted is not None
    setting, rule = step.wanted.setting.name, step.wanted.rule.rule
    if follows and held:
        last = held[-1]
        if (last.setting, last.rule, last.gate.reason) == (setting, rule, gate.reason):
            held[-1] = replace(last, until=step.at, times=last.times + 1)
            return
    held.append(
        HeldBack(
            since=step.at,
            until=step.at,
            times=1,
            origin=step.before,
            setting=setting,
            rule=rule,
            why=_why(step.wanted),
            gate=gate,
            readings_of=step.ran if step.counterfactual else "",
        )
    )


def _stretch(stretches: list[Stretch], step: Step) -> None:
    if stretches:
        last = stretches[-1] = replace(stretches[-1], until=step.at)
        if (last.setting, last.ran) == (step.active, step.ran):
            return
    stretches.append(Stretch(since=step.at, until=step.at, setting=step.active, ran=step.ran))


def _why(wanted: Wanted) -> str:
    return wanted.message.removeprefix(f"{wanted.rule.rule}: ")
