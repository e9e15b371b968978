"""What has changed between two versions of a rule set, in the terms of rules and not of text.

A reviewer wants to know which rule decides differently now. A text diff answers another question:
it shows a comment that moved and hides that the order of two rules, which decides who wins, did.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from specpilot.domain.rules import RuleSet


class ChangeKind(StrEnum):
    """What became of a rule."""

    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"
    MOVED = "moved"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """One field; None on the side that does not have it.

    Attributes:
        field: Its name in the stored content, such as `when` or `parameters.busyBatch`.
        before: The value before.
        after: The value after.
    """

    field: str
    before: object
    after: object


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    """What became of one rule; a rule that both moved and changed is listed under both.

    Attributes:
        rule: Its name; the new one when it was renamed.
        kind: What happened.
        fields: What differs; for `moved` the position, counted from 1.
    """

    rule: str
    kind: ChangeKind
    fields: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """All differences of two rule sets; falsy when they mean the same.

    Attributes:
        fields: Of the set itself: description, parameters, time zone.
        rules: Of its rules, in the order of the newer set, removed ones last.
    """

    fields: tuple[FieldChange, ...] = ()
    rules: tuple[RuleChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.fields or self.rules)


def difference(before: RuleSet, after: RuleSet) -> Difference:
    """Compare two rule sets."""
    old, new = before.content(), after.content()
    old_rules, new_rules = _by_name(old.pop("rules")), _by_name(new.pop("rules"))
    return Difference(
        fields=tuple(_fields(old, new)),
        rules=tuple(_rules(old_rules, new_rules)),
    )


_Fields = Mapping[str, object]


def _by_name(rules: object) -> dict[str, _Fields]:
    assert isinstance(rules, list)
    return {str(r["name"]): {k: v for k, v in r.items() if k != "name"} for r in rules}


def _rules(old: Mapping[str, _Fields], new: Mapping[str, _Fields]) -> Iterator[RuleChange]:
    removed = {name: rule for name, rule in old.items() if name not in new}
    renamed: dict[str, str] = {}
    for name, rule in new.items():
        if name not in old and (was := next((n for n, r in removed.items() if r == rule), "")):
            renamed[name] = was
            del removed[was]
    # Identity across both sets, so that a renamed rule can be seen to have kept its place.
    was_order = [name for name in old if name not in removed]
    now_order = [renamed.get(name, name) for name in new if name in old or name in renamed]
    blocks = SequenceMatcher(None, was_order, now_order, autojunk=False).get_matching_blocks()
    kept = {was_order[i] for block in blocks for i in range(block.a, block.a + block.size)}
    old_names, new_names = list(old), list(new)
    for name, rule in new.items():
        identity = renamed.get(name, name)
        if identity not in old:
            yield RuleChange(rule=name, kind=ChangeKind.ADDED, fields=tuple(_fields({}, rule)))
            continue
        if name in renamed:
            named = FieldChange(field="name", before=identity, after=name)
            yield RuleChange(rule=name, kind=ChangeKind.RENAMED, fields=(named,))
        elif changed := tuple(_fields(old[name], rule)):
            yield RuleChange(rule=name, kind=ChangeKind.CHANGED, fields=changed)
        if identity not in kept:
            position = FieldChange(
                field="position",
                before=old_names.index(identity) + 1,
                after=new_names.index(name) + 1,
            )
            yield RuleChange(rule=name, kind=ChangeKind.MOVED, fields=(position,))
    for name, rule in removed.items():
        yield RuleChange(rule=name, kind=ChangeKind.REMOVED, fields=tuple(_fields(rule, {})))


def _fields(old: _Fields, new: _Fields, *, prefix: str = "") -> Iterator[FieldChange]:
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        name = f"{prefix}{key}"
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _fields(before, after, prefix=f"{name}.")
        elif before != after:
            yield FieldChange(field=name, before=before, after=after)
