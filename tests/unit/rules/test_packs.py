"""The shipped packs: sound, tested by their tables, and as their pages say."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specpilot.cli.main import app
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.rule_tables import run
from specpilot.domain.rules import RuleSet
from specpilot.domain.settings import OFF_NAME, SPECULATING
from specpilot.resources.packs import pack, pack_names
from specpilot.resources.rule_table import load_tables, tables_for

ROOT = Path(__file__).parents[3]
NAMES = ("batch-guard", "break-even", "drift", "hit-rate", "latency-guard", "schedule")
_RESTS_ON = re.compile(r"\b(Published|Derived|Measured|Judgement|Yours)\b")
_PARAMETER_ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| ([\d., ]+)[^|]*\| (.+) \|$", re.MULTILINE)


def page(name: str) -> str:
    return (ROOT / "docs" / "rules" / f"{name}.md").read_text(encoding="utf-8")


def text(name: str) -> str:
    return (ROOT / "rules" / f"{name}.yaml").read_text(encoding="utf-8")


def test_these_are_shipped() -> None:
    assert pack_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_its_table_of_tests_holds(name: str) -> None:
    table = ROOT / "rules" / "tests" / f"{name}.yaml"
    result = CliRunner().invoke(app, ["rules", "test", str(table)])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", NAMES)
def test_its_table_notices_a_change_of_any_number(name: str) -> None:
    rules = pack(name)
    assert holds(rules)
    unnoticed = [what for what, changed in changes(rules) if holds(changed)]
    assert not unnoticed, "no row of the table tells these from what is shipped"


@pytest.mark.parametrize("name", NAMES)
def test_lint_finds_neither_error_nor_warning(name: str) -> None:
    result = CliRunner().invoke(app, ["rules", "lint", str(ROOT / "rules" / f"{name}.yaml")])
    assert result.exit_code == 0, result.output
    assert "0 errors, 0 warnings" in result.output


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_fires_in_its_table(name: str) -> None:
    table = (ROOT / "rules" / "tests" / f"{name}.yaml").read_text(encoding="utf-8")
    for rule in pack(name).rules:
        assert f"rule: {rule.name}," in table, f"no row expects {rule.name} to fire"


@pytest.mark.parametrize("name", NAMES)
def test_it_fits_every_policy(name: str) -> None:
    asked = {rule.setting for rule in pack(name).rules}
    assert asked <= {OFF_NAME, SPECULATING}


@pytest.mark.parametrize("name", NAMES)
def test_its_page_states_its_parameters(name: str) -> None:
    assert stated_parameters(page(name)) == dict(pack(name).parameters)


@pytest.mark.parametrize("name", NAMES)
def test_the_index_and_its_file_lead_to_its_page(name: str) -> None:
    assert f"]({name}.md)" in page("README")
    assert f"docs/rules/{name}.md" in text(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_says_what_it_rests_on(name: str) -> None:
    assert unexplained(text(name)) == []


@pytest.mark.parametrize(
    ("comment", "line"),
    [
        (" # Judgement: three windows of at least three minutes", "for: 9m"),
        (" # Judgement: below, the ratio is mostly chance", "minDrafts: 1000"),
        ("    # Published: below this, SGLang's", "quietBatch: 8"),
    ],
)
def test_a_number_without_its_source_is_found(comment: str, line: str) -> None:
    assert comment in text("hit-rate")
    assert unexplained(text("hit-rate").replace(comment, " #")) == [line]


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_on_acceptance_says_how_many_drafts_it_needs(name: str) -> None:
    for rule in pack(name).rules:
        if "mean_acceptance_length" in rule.when:
            assert rule.min_drafts >= 1000, f"{rule.name} may be judged on a handful of drafts"


@pytest.mark.parametrize("name", NAMES)
def test_what_flickers_must_last_and_has_a_second_threshold(name: str) -> None:
    rules: RuleSet = pack(name)
    for rule in rules.rules:
        if rule.setting != OFF_NAME or "time." in rule.when:
            continue
        assert rule.hold or rule.at_least, f"{rule.name} fires at the first look"
        assert rule.until or "capturedTokens" in rule.when, f"{rule.name} has one threshold only"


def holds(rules: RuleSet) -> bool:
    path = ROOT / "rules" / "tests" / f"{rules.name}.yaml"
    file = load_tables(path.read_text(encoding="utf-8"), source=str(path))
    compiled = CompiledRuleSet(rules)
    tables = tables_for(file, rule_set=rules, source=str(path))
    return not any(row.faults for table in tables for row in run(table, rules=compiled))


def changes(rules: RuleSet) -> Iterator[tuple[str, RuleSet]]:
    """The rule set with one number a little off: a tenth, one look of 15 s, or one draft."""
    for key, value in rules.parameters.items():
        if value and rules.name != "schedule":  # 0 is "not stated", and days are whole
            for factor in (0.9, 1.1):
                changed = {**rules.parameters, key: value * factor}
                yield f"{key} x {factor}", replace(rules, parameters=changed)
    look = timedelta(seconds=15)
    for at, rule in enumerate(rules.rules):
        others = [replace(rule, until="")] * bool(rule.until)
        if rule.hold:
            others += [replace(rule, hold=rule.hold + by) for by in (look, -look)]
        if rule.min_drafts:
            others += [replace(rule, min_drafts=rule.min_drafts + by) for by in (1, -1)]
        if windows := rule.at_least:
            others += [
                replace(rule, at_least=other)
                for other in (
                    replace(windows, windows=windows.windows + 1),
                    replace(windows, windows=windows.windows - 1),
                    replace(windows, of=windows.of - 1),
                    replace(windows, each=windows.each * 2),
                )
            ]
        for other in others:
            yield (
                str(other),
                replace(rules, rules=(*rules.rules[:at], other, *rules.rules[at + 1 :])),
            )


def stated_parameters(markdown: str) -> dict[str, float]:
    """The table under Parameters: names and defaults, in the order of both."""
    section = markdown.split("## Parameters", 1)[1].split("\n## ", 1)[0]
    stated: dict[str, float] = {}
    for names, defaults, _ in _PARAMETER_ROW.findall(section):
        keys = re.findall(r"`(\w+)`", names)
        values = re.findall(r"\d+(?:\.\d+)?", defaults)
        if len(values) == 1:
            values *= len(keys)
        stated.update((k, float(v)) for k, v in zip(keys, values, strict=True))
    return stated


def unexplained(yaml: str) -> list[str]:
    """Lines that set a number without a word on what it rests on.

    Parameters have a comment above, which may stand for several; rules have theirs on the line.
    """
    head, _, rules = yaml.partition("\n  rules:\n")
    found, above = [], ""
    for line in head.partition("\n  parameters:\n")[2].splitlines():
        code, _, comment = (part.strip() for part in line.partition("#"))
        if not code:
            above = f"{above} {comment}"
            continue
        if not _RESTS_ON.search(above):
            found.append(code)
        following = rest_of(head, line)
        above = "" if following.startswith("#") else above
    seen = set()
    for line in rules.splitlines():
        code, _, comment = (part.strip() for part in line.partition("#"))
        key = code.partition(":")[0]
        if key not in {"for", "atLeast", "minDrafts"}:
            continue
        if not _RESTS_ON.search(comment) and not (key == "minDrafts" and key in seen):
            found.append(code)
        seen.add(key)
    return found


def rest_of(text: str, line: str) -> str:
    """What follows a line, without its indentation."""
    return text.partition(f"{line}\n")[2].lstrip()
