"""docs/rules.md says what is so: its examples compile, and its errors are the real ones."""

import re
from pathlib import Path

import pytest

from specpilot.domain.conditions import MAX_DEPTH, MAX_LENGTH, Condition, ConditionError
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.resources import load, rule_set_from

PAGE = (Path(__file__).parents[3] / "docs" / "rules.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


def blocks(kind: str) -> list[str]:
    found = [text for name, text in BLOCKS if name == kind]
    assert found, f"there is no {kind} block"
    return found


def refused(text: str) -> str:
    with pytest.raises(ConditionError) as caught:
        Condition(text)
    return str(caught.value)


def test_the_rule_set_can_be_applied() -> None:
    for text in blocks("yaml"):
        (document,) = load(text)
        CompiledRuleSet(rule_set_from(document))


def test_the_conditions_compile() -> None:
    for line in "".join(blocks("cel")).splitlines():
        Condition(line, parameters=["low", "busy"])


def test_the_caret_stands_where_it_does() -> None:
    for text in blocks("text"):
        assert refused(text.splitlines()[1].strip()) == text.rstrip("\n")


def test_what_is_refused_is_refused_with_these_words() -> None:
    _, _, table = PAGE.partition("| refused | because |\n|---|---|\n")
    rows = re.findall(r"^\| `(.*?)` \| (.*?) \|$", table.split("\n\n")[0], re.MULTILINE)
    assert len(rows) > 3
    for condition, words in rows:
        assert refused(condition).splitlines()[0] == words


def test_the_limits_are_these() -> None:
    assert f"at most {MAX_LENGTH} characters and {MAX_DEPTH} levels" in PAGE
