"""Lint of a file: what keeps a rule set from being read, and what lint finds in it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from specpilot.domain.conditions import Condition, ConditionError
from specpilot.domain.evaluation import CompiledRuleSet, RuleSetError
from specpilot.domain.linting import Code, Finding, lint
from specpilot.domain.linting.near_misses import hint
from specpilot.domain.rules import RuleSet
from specpilot.resources import rule_set_from
from specpilot.resources.documents import Fault, ResourceError, contents, read
from specpilot.resources.positions import lines, nearest

_UNKNOWN = re.compile(
    r"there is no (?:signal|parameter) called (\S+?);"
    r"|(?:setting|target|time) (?:has no \w|is no value)"
)
_AT_LINE = re.compile(r"line (\d+), column")
_OF_CONDITION = re.compile(r"the (?:condition|until) of ")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForPolicy:
    """What lint takes of a policy.

    Attributes:
        settings: Its settings that speculate, each with the batch limit that is left to rules.
        window: The window of its signals.
    """

    settings: Mapping[str, int | None]
    window: timedelta


def lint_text(
    text: str,
    *,
    source: str,
    parameters: Mapping[str, float] | None = None,
    of: ForPolicy | None = None,
) -> list[Finding]:
    """Lint every RuleSet of a YAML text; documents of other kinds are left alone.

    Args:
        text: YAML, with `---` between documents.
        source: Name of the file.
        parameters: Values to look at the rules with, instead of their own.
        of: The policy to look at them for.
    """
    try:
        documents = contents(text, source=source)
    except ResourceError as error:
        return [_of_fault(fault, source=source, places={}) for fault in error.faults]
    places = lines(text)
    found: list[Finding] = []
    sets = 0
    for number, content in enumerate(documents, start=1):
        if isinstance(content, Mapping) and content.get("kind") == "RuleSet":
            sets += 1
            found += _document(
                content,
                source=source,
                number=number,
                places=places[number - 1],
                parameters=parameters or {},
                of=of,
            )
    if not sets:
        message = "there is no RuleSet in it; one begins with `kind: RuleSet`"
        found.append(Finding(code=Code.INVALID, where=source, message=message))
    return found


def _document(
    content: Mapping[str, Any],
    *,
    source: str,
    number: int,
    places: Mapping[str, int],
    parameters: Mapping[str, float],
    of: ForPolicy | None,
) -> list[Finding]:
    try:
        rule_set = rule_set_from(read(content, source=source, number=number))
    except ResourceError as error:
        conditions = list(_conditions(content, source=source, places=places))
        faults = [f for f in error.faults if not (conditions and _OF_CONDITION.search(f.message))]
        return [_of_fault(f, source=source, places=places) for f in faults] + conditions
    return lint_rule_set(rule_set, source=source, places=places, parameters=parameters, of=of)


def lint_rule_set(
    rule_set: RuleSet,
    *,
    source: str,
    places: Mapping[str, int] | None = None,
    parameters: Mapping[str, float] | None = None,
    of: ForPolicy | None = None,
) -> list[Finding]:
    """Lint a rule set that was read already; `places` are the lines of its fields."""
    wrong = [name for name in parameters or {} if name not in rule_set.parameters]
    if wrong:
        known = ", ".join(rule_set.parameters) or "none"
        message = f"{rule_set.name} has no parameter {', '.join(wrong)} (it has {known})"
        return [Finding(code=Code.UNKNOWN_NAME, where=source, field="parameters", message=message)]
    rule_set = replace(rule_set, parameters={**rule_set.parameters, **(parameters or {})})
    try:
        compiled = CompiledRuleSet(rule_set)
        findings: Sequence[Finding] = (
            lint(compiled, settings=of.settings, window=of.window) if of else lint(compiled)
        )
    except RuleSetError as error:
        return [Finding(code=Code.INVALID, where=source, field="rules", message=str(error))]
    numbers = {rule.name: number for number, rule in enumerate(rule_set.rules)}
    return [
        replace(f, where=source, line=nearest(places or {}, _path(f, numbers))) for f in findings
    ]


def _path(finding: Finding, numbers: Mapping[str, int]) -> str:
    if not finding.rules:
        return f"spec.{finding.field}"
    return f"spec.rules[{numbers[finding.rules[0]]}].{finding.field}"


def _of_fault(fault: Fault, *, source: str, places: Mapping[str, int]) -> Finding:
    line = nearest(places, fault.field)
    if line is None and (match := _AT_LINE.search(fault.where)):
        line = int(match.group(1))
    return Finding(
        code=Code.UNKNOWN_NAME if _UNKNOWN.search(fault.message) else Code.INVALID,
        where=source,
        field=fault.field,
        message=fault.message,
        line=line,
    )


def _conditions(
    content: Mapping[str, Any], *, source: str, places: Mapping[str, int]
) -> Iterator[Finding]:
    """Every condition that does not compile, each with its line."""
    spec = content.get("spec")
    if not isinstance(spec, Mapping) or not isinstance(spec.get("rules"), list):
        return
    parameters = spec.get("parameters")
    for number, rule in enumerate(spec["rules"]):
        if not isinstance(rule, Mapping):
            continue
        for field in ("when", "until"):
            text = rule.get(field)
            if not isinstance(text, str) or not text:
                continue
            try:
                Condition(text, parameters=parameters if isinstance(parameters, Mapping) else ())
            except ConditionError as error:
                unknown = _UNKNOWN.match(str(error))
                yield Finding(
                    code=Code.UNKNOWN_NAME if unknown else Code.INVALID,
                    rules=(str(rule.get("name")),),
                    where=source,
                    field=field,
                    message=_with_hint(str(error), unknown.group(1) if unknown else ""),
                    line=nearest(places, f"spec.rules[{number}].{field}"),
                )


def _with_hint(message: str, name: str) -> str:
    """Say what to use instead of a well-known name, rather than what is spelled like it."""
    words = hint(name) if name else ""
    if not words:
        return message
    first, newline, rest = message.partition("\n")
    return f"{first.partition(';')[0]}; {words}{newline}{rest}"
