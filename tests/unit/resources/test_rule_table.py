"""Test tables: the format, what a row means, and errors that name table, row and field."""

from datetime import UTC, datetime, timedelta
from textwrap import dedent

import pytest

from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.outcomes import RowVerdict
from specpilot.domain.readings import UnknownReason
from specpilot.domain.rule_tables import RowResult, Table, run
from specpilot.domain.rules import Rule, RuleSet
from specpilot.resources import ResourceError
from specpilot.resources.rule_table import load_tables, tables_for

RULES = RuleSet(
    name="r",
    parameters={"busy": 32.0},
    rules=(
        Rule(
            name="poor",
            when="mean_acceptance_length < 1.6 && batch_size > params.busy",
            setting="off",
            hold=timedelta(minutes=5),
        ),
        Rule(name="quiet", when="batch_size < 4", setting="eagle3"),
    ),
)
EAGLE = "active: {name: eagle3, method: eagle3, numSpeculativeTokens: 3}"


def tables(text: str) -> tuple[Table, ...]:
    return tables_for(load_tables(dedent(text), source="t"), rule_set=RULES, source="t")


def one(rows: str, head: str = EAGLE) -> Table:
    inner = "".join(f"      - {row.strip()}\n" for row in rows.strip().splitlines())
    (table,) = tables(f"tables:\n  - name: t\n    {head}\n    rows:\n{inner}")
    return table


def results(rows: str, head: str = EAGLE) -> list[RowResult]:
    return list(run(one(rows, head), rules=CompiledRuleSet(RULES)))


def test_readings_stay_in_force_and_are_evaluated_in_between() -> None:
    found = results("""
        {reason: a, expect: "false", readings: {mean_acceptance_length: 1.2, batch_size: 40}}
        {reason: b, expect: "false", after: 4m45s}
        {reason: c, expect: {verdict: "true", rule: poor, setting: "off"}, after: 15s}
        {reason: d, expect: {verdict: "true", rule: poor, setting: "off"}, after: 1h}
    """)
    assert [r.faults for r in found] == [()] * 4


def test_a_row_that_is_not_as_expected_says_every_difference() -> None:
    (found,) = results("""
        {reason: a, readings: {batch_size: 2}, expect: {verdict: true, rule: poor, setting: "off"}}
    """)
    assert found.faults == (
        "rule: expected 'poor', got 'quiet'",
        "setting: expected 'off', got 'eagle3'",
    )


def test_words_that_are_missing_are_a_fault() -> None:
    (found,) = results("""
        {reason: a, expect: {verdict: "false", why: held 9m}, readings: {batch_size: 20}}
    """)
    assert len(found.faults) == 1
    assert "'held 9m'" in found.faults[0]


def test_unknown_can_have_a_reason() -> None:
    table = one("""
        {reason: a, expect: unknown, readings: {batch_size: unknown, ttft_p99: {unknown: NaN}}}
        {reason: b, expect: unknown, readings: {tpot_p99: {unknown: .nan}}}
    """)
    readings = table.rows[1].readings
    assert readings["batch_size"].reason is UnknownReason.NO_DATA
    assert readings["ttft_p99"].reason is UnknownReason.NAN
    assert readings["tpot_p99"].reason is UnknownReason.NAN


def test_a_bare_true_is_no_yaml_trap() -> None:
    table = one("{reason: a, expect: false}\n{reason: b, expect: {verdict: false}}")
    assert {r.expect.verdict for r in table.rows} == {RowVerdict.FALSE}


def test_while_off_acceptance_is_taken_away_and_comes_back() -> None:
    table = one("""
        {reason: a, expect: "false", readings: {mean_acceptance_length: 1.2}}
        {reason: b, expect: "false", active: "off"}
        {reason: c, expect: "false", active: {name: eagle3, method: eagle3}}
    """)
    known = [r.readings["mean_acceptance_length"].reason for r in table.rows]
    assert known == [None, UnknownReason.NOT_EXPORTED, None]


def test_target_facts_are_merged_and_units_are_read() -> None:
    table = one("""
        {reason: a, expect: "false", target: {engine: 0.32.0}, readings: {tpot_p99: 120ms}}
        {reason: b, expect: "false", target: {replicas: 3}, readings: {kv_cache_usage: "80%"}}
    """)
    assert table.rows[1].target.engine == "0.32.0"
    assert table.rows[1].target.replicas == 3
    assert table.rows[1].readings.value("tpot_p99") == pytest.approx(0.12)
    assert table.rows[1].readings.value("kv_cache_usage") == pytest.approx(0.8)


def test_time_begins_on_a_monday_or_where_the_table_says() -> None:
    assert one('{reason: a, expect: "false"}').rows[0].at == datetime(2026, 1, 5, tzinfo=UTC)
    late = one('{reason: a, expect: "false", after: 5m}', "start: 2026-03-01T22:00:00+02:00")
    assert late.rows[0].at == datetime(2026, 3, 1, 20, 5, tzinfo=UTC)


ROW = '{reason: a, expect: "false"}'


@pytest.mark.parametrize(
    ("rows", "head", "says", "reason"),
    [
        ('{expect: "false"}', "", "t, table 1, row 1: reason: it is missing", "mandatory"),
        ('{reason: "  ", expect: "false"}', "", "row 1: reason", "an empty reason is none"),
        (f"{ROW}\n{{reason: b}}", "", "row 2: expect: it is missing", "a row expects something"),
        ('{reason: a, expect: maybe}', "", "expect.verdict: 'maybe'", "three verdicts"),
        ('{reason: a, expect: "true"}', "", "needs rule and setting", "who fires"),
        ('{reason: a, expect: {verdict: unknown, rule: poor}}', "", "remove rule", "none fires"),
        ('{reason: a, expect: {verdict: "true", rule: pour, setting: "off"}}', "",
         "row 1: expect.rule: pour: rule set r has no such rule; did you mean poor?", "a typo"),
        ('{reason: a, expect: {verdict: "true", rule: poor, setting: eagle3}}', "",
         "expect.setting: eagle3: rule poor asks for off", "the rule asks for something else"),
        ('{reason: a, expect: "false", readings: {batch: 1}}', "",
         "row 1: readings", "a signal that is none"),
        ('{reason: a, expect: "false", readings: {batch_size: big}}', "",
         "batch_size: 'big'", "a reading that is no number"),
        ('{reason: a, expect: "false", readings: {batch_size: "-"}}', "",
         "with or without a unit; write unknown for Unknown", "a dash"),
        ('{reason: a, expect: "false", readings: {acceptance_rate: 60}}', "",
         "acceptance_rate: 60: 60 is no ratio", "a share of 60"),
        ('{reason: a, expect: "false", readings: {batch_size: "-4"}}', "",
         "batch_size is never below 0", "a negative count"),
        ('{reason: a, expect: "false", readings: {batch_size: {unknown: Lost}}}', "",
         "'Lost' is no reason", "a reason that is none"),
        ('{reason: a, expect: "false", readings: {batch_size: 5m}}', "",
         "batch_size is in requests, and this is in seconds", "five minutes are no batch"),
        ('{reason: a, expect: "false", readings: {batch_size: true}}', "",
         "write a number", "a boolean"),
        ('{reason: a, expect: "false", readings: [batch_size]}', "",
         "write a mapping", "a list of readings"),
        ('{reason: a, expect: "false", readings: {acceptance_rate: 0.5}}', 'active: "off"',
         "row 1: readings.acceptance_rate: 0.5: the setting is off", "it cannot be measured"),
        ('{reason: a, expect: "false", after: 5}', "", "5s or 5m", "a time needs its unit"),
        ('{reason: a, expect: "false", after: 366h}', "every: 1s",
         "row 1: after: that is more than 20000", "a table ends today"),
        ('{reason: a, expect: "false", active: off}', "", 'write "off" in quotes', "a YAML trap"),
        ('{reason: a, expect: "false", active: {name: eagle3}}', "", "needs a method", "no method"),
        ('{reason: a, expect: "false", active: {name: "off", method: ngram}}', "",
         "has no method", "off is off"),
        ('{reason: a, expect: "false", target: {engine: 0.32}}', "",
         "target.engine: 0.32 is not text", "a version is text"),
        ('{reason: a, expect: "false", wait: 5m}', "", "row 1: wait: unknown field", "a typo"),
        (ROW, "parameters: {bussy: 1}", "t, table 1: parameters.bussy", "a parameter that is none"),
        (ROW, "start: 2026-01-05T00:00:00", "table 1: start", "a time without a zone"),
        (ROW, "every: 0s", "table 1: every", "time must pass"),
    ],
)  # fmt: skip
def test_what_is_refused(rows: str, head: str, says: str, reason: str) -> None:
    with pytest.raises(ResourceError) as error:
        one(rows, head or EAGLE)
    assert says in str(error.value), reason


@pytest.mark.parametrize(
    ("text", "says", "reason"),
    [
        ("", "begins with `tables:`", "an empty file"),
        ("[1]", "begins with `tables:`", "a list"),
        ("tables: []", "tables: []: at least 1 is needed", "no table"),
        ("tables: [{name: a, rows: []}]", "rows", "no row"),
        ("tables: [{name: a", "line 1", "no YAML"),
        ("tables:\n" + 2 * '  - {name: a, rows: [{reason: a, expect: "false"}]}\n',
         "two tables are named 'a'", "one name for two"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_tables(text: str, says: str, reason: str) -> None:
    with pytest.raises(ResourceError) as error:
        tables(text)
    assert says in str(error.value), reason


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ResourceError) as error:
        one('{expect: "false"}\n{reason: a, expect: maybe, after: 5}')
    assert len(error.value.faults) == 3
