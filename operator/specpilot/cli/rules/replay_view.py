"""A replay for a person (bands and tables) and for a machine (plain data)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import cycle
from typing import Any, TypeAlias

from rich.console import Group
from rich.table import Table
from rich.text import Text

from specpilot.cli.rules.replay_worth import (
    difference_words,
    gain_words,
    plain_difference,
    plain_gain,
)
from specpilot.cli.tables import add_row
from specpilot.controller.replay_summary import Flip, HeldBack, Replayed, Stretch
from specpilot.controller.replaying import Moment
from specpilot.domain.changes import Evidence
from specpilot.domain.gains import Gain, Worth
from specpilot.domain.settings import OFF_NAME

_OFF_STYLE, _OFF_MARK = "bright_black", "░"
_ON = (("green", "█"), ("cyan", "▓"), ("magenta", "▚"), ("yellow", "▞"))
_FOREIGN = "╌"

Cell: TypeAlias = tuple[str, str]
"""A mark and its style: without colours, the mark still tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One rule set's replay under its label, and what its moments were worth."""

    label: str
    replayed: Replayed
    worths: tuple[Worth, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All that is shown.

    Attributes:
        source: What the readings are of.
        policy: The policy, "" without one.
        ran: When which setting really ran.
        shown: One replay, or two to compare.
        notes: What a reader must know to judge it.
        dated: Whether times are dates.
    """

    source: str
    policy: str
    ran: tuple[Stretch, ...]
    shown: tuple[Shown, ...]
    notes: tuple[str, ...]
    dated: bool

    @property
    def start(self) -> datetime:
        """The first moment."""
        return self.ran[0].since

    @property
    def end(self) -> datetime:
        """The last moment."""
        return self.ran[-1].until

    def when(self, at: datetime) -> str:
        """A time in words; as seconds from the start where the date is not known."""
        if self.dated:
            return f"{at:%Y-%m-%d %H:%M:%S}"
        return f"+{(at - self.start).total_seconds():g} s"


def what_ran(moments: Sequence[Moment], *, first: str) -> tuple[Stretch, ...]:
    """When which setting really ran; a moment that does not tell is as before."""
    found: list[Stretch] = []
    name = first
    for moment in moments:
        name = moment.ran or name
        if found:
            last = found.pop()
            found.append(
                Stretch(since=last.since, until=moment.at, setting=last.setting, ran=last.ran)
            )
            if last.setting == name:
                continue
        found.append(Stretch(since=moment.at, until=moment.at, setting=name, ran=name))
    return tuple(found)


# --- for a person


def view(story: Story, *, width: int) -> Group:
    """The picture, and a table of flips and of what was held back for each rule set."""
    parts: list[Any] = [_picture(story, width=width), Text()]
    for shown in story.shown:
        parts += [*_tables(story, shown), Text()]
    if len(story.shown) > 1:
        one, other = story.shown
        labels = (one.label, other.label)
        parts += [Text(difference_words(one.worths, other.worths, labels=labels)), Text()]
    parts += [Text(f"note: {note}") for note in story.notes]
    return Group(*parts)


def _picture(story: Story, *, width: int) -> Group:
    rows = [("really ran", story.ran)]
    rows += [(shown.label, shown.replayed.stretches) for shown in story.shown]
    label_width = min(max(len(label) for label, _ in rows), max(10, width // 3))
    band_width = max(10, width - label_width - 2)
    cells = _cells(story)
    lines: list[Text] = []
    foreign = False
    for label, stretches in rows:
        lines.append(_label(label, label_width) + _band(stretches, band_width, story, cells))
        marks = _sampled(
            stretches, band_width, story, lambda s: _FOREIGN if s.counterfactual else " "
        )
        if any(mark != " " for mark in marks):
            foreign = True
            lines.append(_label("", label_width) + Text("".join(marks), style="dim"))
    start, end = story.when(story.start), story.when(story.end)
    gap = " " * max(1, band_width - len(start) - len(end))
    lines.append(_label("", label_width) + Text(f"{start}{gap}{end}", style="dim"))
    legend = Text("  ").join(
        Text(mark, style=style) + Text(f" {n}") for n, (mark, style) in cells.items()
    )
    if foreign:
        legend += Text(f"  {_FOREIGN} counterfactual: readings are of what really ran")
    return Group(*lines, _label("", label_width) + legend)


def _label(text: str, width: int) -> Text:
    cut = text if len(text) <= width else f"{text[: width - 1]}…"
    return Text(f"{cut:<{width}}  ")


def _cells(story: Story) -> Mapping[str, Cell]:
    names: dict[str, None] = {}
    for stretches in (story.ran, *(s.replayed.stretches for s in story.shown)):
        names |= dict.fromkeys(stretch.setting for stretch in stretches)
    looks = cycle(_ON)
    cells: dict[str, Cell] = {}
    for name in names:
        if name == OFF_NAME:
            cells[name] = (_OFF_MARK, _OFF_STYLE)
        else:
            style, mark = next(looks)
            cells[name] = (mark, style)
    return cells


def _band(
    stretches: Sequence[Stretch], width: int, story: Story, cells: Mapping[str, Cell]
) -> Text:
    band = Text()
    for name in _sampled(stretches, width, story, lambda s: s.setting):
        mark, style = cells[name]
        band.append(mark, style=style)
    return band


def _sampled(
    stretches: Sequence[Stretch], width: int, story: Story, what: Callable[[Stretch], str]
) -> list[str]:
    """What was in force in the middle of each column."""
    whole = story.end - story.start
    found = []
    place = 0
    for column in range(width):
        at = story.start + whole * ((column + 0.5) / width)
        while place + 1 < len(stretches) and stretches[place].until <= at:
            place += 1
        found.append(what(stretches[place]))
    return found


def _tables(story: Story, shown: Shown) -> list[Any]:
    replayed = shown.replayed
    spent = ", ".join(f"{name} {_span(span)}" for name, span in _spent(replayed).items())
    head = Text(
        f"{shown.label}: {_count(len(replayed.flips), 'flip')}, "
        f"{_count(len(replayed.held_back), 'proposal')} held back; {spent}",
        style="bold",
    )
    if replayed.blind:
        head += Text(f"; {replayed.blind} of {replayed.moments} moments could not be judged")
    parts: list[Any] = [head, Text(gain_words(Gain.of(shown.worths)))]
    if replayed.flips:
        table = _table("flip at", "from", "to", "rule", "why")
        for flip in replayed.flips:
            add_row(table, story.when(flip.at), flip.origin, flip.setting, flip.rule, _reason(flip))
        parts.append(table)
    if replayed.held_back:
        table = _table("held back", "times", "from", "to", "rule", "gate", "why not")
        for held in replayed.held_back:
            add_row(
                table,
                story.when(held.since),
                held.times,
                held.origin,
                held.setting,
                held.rule,
                held.gate.reason,
                held.gate.message,
            )
        parts.append(table)
    return parts


def _table(*columns: str) -> Table:
    table = Table(show_edge=False, box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.upper(), no_wrap=column in {"flip at", "held back"})
    return table


def _reason(flip: Flip) -> str:
    if not flip.readings_of:
        return flip.why
    return f"{flip.why} (counterfactual: readings are of {flip.readings_of})"


def _spent(replayed: Replayed) -> Mapping[str, timedelta]:
    spent: dict[str, timedelta] = {}
    for stretch in replayed.stretches:
        span = stretch.until - stretch.since
        spent[stretch.setting] = spent.get(stretch.setting, timedelta()) + span
    return spent


def _span(span: timedelta) -> str:
    return str(timedelta(seconds=round(span.total_seconds())))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# --- for a machine


def plain(story: Story) -> dict[str, Any]:
    """As plain data. An interface: scripts rely on its keys."""
    return {
        "from": story.start.isoformat(),
        "to": story.end.isoformat(),
        "dated": story.dated,
        "source": story.source,
        "policy": story.policy or None,
        "ran": [_plain_stretch(s) for s in story.ran],
        "replays": [
            {
                "rule_set": shown.label,
                "moments": shown.replayed.moments,
                "blind": shown.replayed.blind,
                "flips": [_plain_flip(f) for f in shown.replayed.flips],
                "held_back": [_plain_held(h) for h in shown.replayed.held_back],
                "stretches": [
                    {
                        **_plain_stretch(s),
                        "counterfactual": s.counterfactual,
                        "readings_of": s.ran,
                    }
                    for s in shown.replayed.stretches
                ],
                "seconds": {n: s.total_seconds() for n, s in _spent(shown.replayed).items()},
                "gain": plain_gain(Gain.of(shown.worths)),
            }
            for shown in story.shown
        ],
        "difference": plain_difference(*(shown.worths for shown in story.shown))
        if len(story.shown) > 1
        else None,
        "notes": list(story.notes),
    }


def _plain_stretch(stretch: Stretch) -> dict[str, Any]:
    return {
        "since": stretch.since.isoformat(),
        "until": stretch.until.isoformat(),
        "setting": stretch.setting,
    }


def _plain_flip(flip: Flip) -> dict[str, Any]:
    return {
        "at": flip.at.isoformat(),
        "from": flip.origin,
        "to": flip.setting,
        "rule": flip.rule,
        "why": flip.why,
        "evidence": [_plain_evidence(e) for e in flip.evidence],
        "readings_of": flip.readings_of or None,
    }


def _plain_held(held: HeldBack) -> dict[str, Any]:
    return {
        "since": held.since.isoformat(),
        "until": held.until.isoformat(),
        "times": held.times,
        "from": held.origin,
        "to": held.setting,
        "rule": held.rule,
        "why": held.why,
        "gate": str(held.gate.reason),
        "message": held.gate.message,
        "readings_of": held.readings_of or None,
    }


def _plain_evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "signal": evidence.signal,
        "value": evidence.value,
        "comparison": evidence.comparison or None,
        "threshold": evidence.threshold,
        "reason": evidence.reason or None,
    }
