"""The pages on lint and on test tables say what the program does."""

import re
from pathlib import Path

from specpilot.domain.buckets import DEFAULT_BOUNDS
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.linting import SEVERITY, Severity
from specpilot.domain.rule_tables import run
from specpilot.resources.packs import pack
from specpilot.resources.rule_lint import lint_text
from specpilot.resources.rule_table import load_tables, tables_for

DOCS = Path(__file__).parents[3] / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_every_code_stands_in_the_table_with_its_severity() -> None:
    rows = re.findall(r"^\| (SP\d+) \| (\w+) \|", page("rules-lint.md"), re.MULTILINE)
    assert dict(rows) == {str(code): str(severity) for code, severity in SEVERITY.items()}


def test_the_bounds_of_the_page_are_those_that_lint_uses() -> None:
    rows = dict(
        re.findall(r"^\| (`[a-z].*_p\*`) \| ([\d. ]+) \|$", page("rules-lint.md"), re.MULTILINE)
    )
    found = {
        family: tuple(float(bound) for bound in bounds.split())
        for names, bounds in rows.items()
        for family in re.findall(r"`(\w+)_p\*`", names)
    }
    assert found == DEFAULT_BOUNDS


def whole_examples() -> list[tuple[str, str]]:
    """Every rule set that a page shows from its first line to its last."""
    return [
        (f"{path.relative_to(DOCS)}", block)
        for path in sorted(DOCS.rglob("*.md"))
        for block in re.findall(
            r"^```yaml\n(.*?)^```", path.read_text("utf-8"), re.DOTALL | re.MULTILINE
        )
        if re.search(r"^apiVersion:", block, re.MULTILINE)
        and re.search(r"^kind: RuleSet$", block, re.MULTILINE)
    ]


def test_lint_has_nothing_against_the_examples() -> None:
    examples = whole_examples()
    assert "rules.md" in {name for name, _ in examples}
    wrong = [
        f"{name}: {finding.code} {finding.message}"
        for name, text in examples
        for finding in lint_text(text, source=name)
        if finding.severity is not Severity.NOTE
    ]
    assert not wrong


def test_the_example_of_a_test_table_passes() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", page("rules-tests.md"), re.DOTALL)
    rule_set = pack("hit-rate")
    (table,) = tables_for(load_tables(example, source="docs"), rule_set=rule_set, source="docs")
    results = list(run(table, rules=CompiledRuleSet(rule_set)))
    assert [r.faults for r in results] == [()] * 4
