"""`specpilot rules diff`: which rules decide differently."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta

import typer

from specpilot.cli.rules.shelf import AsJson
from specpilot.cli.rules.source import HELP, Database, resolve
from specpilot.cli.state import StateDir
from specpilot.domain.rule_diff import ChangeKind, Difference, FieldChange, difference
from specpilot.resources.quantities import format_duration

_ON_ONE_LINE = 80
"""Characters of both values together that still read well beside each other."""

_MARKS = {ChangeKind.ADDED: "+", ChangeKind.REMOVED: "-"}
_NAMES = {
    "for_s": "for",
    "grace_s": "grace",
    "min_drafts": "minDrafts",
    "at_least": "atLeast",
    "on_unknown": "onUnknown",
    "time_zone": "timeZone",
}
"""Names of the stored content, as the author of a rule writes them."""


def diff(
    before: str = typer.Argument(metavar="BEFORE", help=HELP),
    after: str = typer.Argument(metavar="AFTER", help="Likewise."),
    *,
    state: StateDir,
    database: Database = "",
    as_json: AsJson = False,
    exit_code: bool = typer.Option(False, "--exit-code", help="Exit 1 when they differ."),
) -> None:
    """Compare two rule sets rule by rule and field by field."""
    old, new = (resolve(w, state=state, database=database) for w in (before, after))
    found = difference(old.rule_set, new.rule_set)
    if as_json:
        print(json.dumps(asdict(found), indent=2, ensure_ascii=False))
    elif found:
        print("\n".join([f"{old.label} -> {new.label}", *_words(found)]))
    else:
        print(f"{old.label} and {new.label} mean the same")
    if found and exit_code:
        raise typer.Exit(1)


def _words(found: Difference) -> Iterator[str]:
    yield from (f"~ {line}" for change in found.fields for line in _field(change))
    for rule in found.rules:
        yield f"{_MARKS.get(rule.kind, '~')} rule {rule.rule} {rule.kind}"
        yield from (f"    {line}" for change in rule.fields for line in _field(change))


def _field(change: FieldChange) -> Iterator[str]:
    head, _, rest = change.field.partition(".")
    name = _NAMES.get(head, head) + (f".{rest.removesuffix('_s')}" if rest else "")
    before, after = (_value(change.field, v) for v in (change.before, change.after))
    if change.before is None:
        yield f"{name}: {after}"
    elif change.after is None:
        yield f"{name}: was {before}"
    elif "\n" in before + after or len(before) + len(after) > _ON_ONE_LINE:
        yield f"{name}:"
        yield f"  was {before}"
        yield f"  now {after}"
    else:
        yield f"{name}: {before} -> {after}"


def _value(field: str, value: object) -> str:
    match value:
        case {"windows": windows, "of": of, "each_s": each}:
            return f"{windows} of {of} windows of {_value('each_s', each)}"
        case float() if field.endswith("_s"):
            return format_duration(timedelta(seconds=value))
        case float():
            return f"{value:g}"
        case _:
            return str(value)
