"""Rows of readings: what every cell means, and errors that name row and column."""

from datetime import UTC, datetime
from itertools import count, islice

import pytest

from specpilot.domain.readings import UnknownReason
from specpilot.domain.rules import Rule, RuleSet
from specpilot.resources import ResourceError
from specpilot.resources.readings_file import ReadingsRow, read_rows

RULES = RuleSet(
    name="r",
    rules=(Rule(name="a", when="batch_size > params.busy", setting="off"),),
    parameters={"busy": 32.0},
)


def rows(text: str) -> list[ReadingsRow]:
    return list(read_rows(text.splitlines(keepends=True), rule_set=RULES, source="r"))


def test_csv_and_json_lines_say_the_same() -> None:
    (csv,) = rows(
        "batch_size,tpot_p99,params.busy,setting.name,setting.method,setting.depth,"
        "target.engine,target.ready,target.labels.tier,time\n"
        "40,120ms,16,e3,eagle3,3,0.32.0,2,chat,2026-01-05T08:00:00Z\n"
    )
    (lines,) = rows(
        '{"batch_size": 40, "tpot_p99": 0.12, "params.busy": 16, "setting.name": "e3", '
        '"setting.method": "eagle3", "setting.depth": 3, "target.engine": "0.32.0", '
        '"target.ready": 2, "target.labels": {"tier": "chat"}, "time": 1767600000}\n'
    )
    assert csv == lines
    assert csv.readings.value("tpot_p99") == pytest.approx(0.12)
    assert csv.parameters == {"busy": 16.0}
    assert csv.target.labels == {"tier": "chat"}
    assert csv.time == datetime(2026, 1, 5, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cell", "reason_of", "reason"),
    [
        ("", UnknownReason.NO_DATA, "an empty cell is Unknown and never 0"),
        ("  ", UnknownReason.NO_DATA, "spaces are nothing either"),
        ("NaN", UnknownReason.NAN, "0/0 is no number to act on"),
        ("inf", UnknownReason.NAN, "nor is infinity"),
    ],
)
def test_what_is_unknown(cell: str, reason_of: UnknownReason, reason: str) -> None:
    (row,) = rows(f"queue_depth,batch_size\n1,{cell}\n")
    assert row.readings["batch_size"].reason is reason_of, reason


def test_a_parameter_that_is_left_empty_is_unknown_and_not_the_default() -> None:
    (row,) = rows("batch_size,params.busy\n40,\n")
    assert row.parameters == {"busy": None}


def test_off_says_everything_about_a_setting() -> None:
    (row,) = rows("setting.name\noff\n")
    assert (row.setting.method, row.setting.depth) == ("", 0.0)


def test_a_setting_of_which_only_the_name_is_given_has_an_unknown_depth() -> None:
    (row,) = rows("setting.name\neagle3\n")
    assert (row.setting.name, row.setting.method, row.setting.depth) == ("eagle3", None, None)


def test_rows_are_read_as_they_come() -> None:
    endless = (f'{{"batch_size": {n}}}\n' for n in count())
    found = list(islice(read_rows(endless, rule_set=RULES, source="r"), 3))
    assert [r.readings.value("batch_size") for r in found] == [0, 1, 2]


def test_of_a_single_column_an_empty_line_is_an_empty_cell() -> None:
    found = rows("batch_size\n40\n\n41\n")
    assert [r.readings.value("batch_size") for r in found] == [40, None, 41]


def test_a_header_alone_has_no_rows() -> None:
    assert rows("batch_size\n") == []


@pytest.mark.parametrize("text", ["", "\n", "\ufeff", "batch_size\n"])
def test_a_file_without_rows_has_none(text: str) -> None:
    assert rows(text) == []


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    (row,) = rows("\ufeffbatch_size\n40\n")
    assert row.readings.value("batch_size") == 40


@pytest.mark.parametrize(
    ("text", "says", "reason"),
    [
        ("batch_sise\n1\n", "did you mean batch_size", "a misspelt signal names the nearest"),
        ("params.bussy\n1\n", "did you mean params.busy", "and so does a parameter"),
        ("target.release\n32\n", "target.engine", "a value that follows from another"),
        ("itl_p99,batch_size\n1,2\n", "header: column 'itl_p99'", "the header is named, not a row"),
        ("batch_size,batch_size\n1,2\n", "there twice", "two columns of one name"),
        ("batch_size\nmany\n", "row 1: batch_size: 'many'", "a cell names its row and column"),
        ("batch_size\n5m\n", "this is in seconds", "five minutes are no batch"),
        ("batch_size,queue_depth\n1\n", "row 1: it has 1 cells", "a row that is too short"),
        (
            "batch_size,queue_depth\n1,1\n\n2\n",
            "row 2: it has 1 cells",
            "empty lines are not counted",
        ),
        ('batch_size\n"1\n', "no CSV", "a quote that is never closed"),
        ('{"batch_size": true}\n', "write a number", "a boolean is no number"),
        ('{"batch_size": [1]}\n', "write a number", "a list is no number"),
        ('{"batch_size": 1}\n[1]\n', "row 2: no object", "JSON lines are objects"),
        ('{"batch_size": 1}\n{"batch_size"\n', "row 2: no JSON at column", "broken JSON"),
        ('{"setting.name": 3}\n', "write text in quotes", "a name is text"),
        ("time\n2026-01-05T08:00:00\n", "with its zone", "a time without a zone is no instant"),
        ("time\nyesterday\n", "with its zone", "a word is no time"),
        ("batch_size\n-\n", "row 1: batch_size: '-': this is no number", "a dash is no number"),
        ("batch_size\n-\n", "leave the cell empty for Unknown", "nor is it Unknown"),
        ("batch_size\n-4\n", "row 1: batch_size: '-4': batch_size is never below 0", "a count"),
        ("ttft_p99\n-5ms\n", "never below 0", "no time is negative"),
        ("mean_acceptance_length\n0.9\n", "never below 1", "the bonus token is counted"),
        ("acceptance_rate\n60\n", "60 is no ratio, which lies between 0 and 1; write 60% or 0.6",
         "60% was meant"),
        ("kv_cache_usage\n250\n", "250 is no ratio", "not even percent"),
        ('{"acceptance_rate": 60}\n', "row 1: acceptance_rate: 60: 60 is no ratio", "JSON too"),
        ("cost_ratio\n0\n", "0 is no cost ratio", "no step is free"),
        ("batch_size\n1_0\n", "row 1: batch_size: '1_0'", "Python's way to write 10"),
        ("batch_size\n\u0663\n", "this is no number", "a digit of another script"),
        ("batch_size\n1e999\n", "too large", "what no double holds"),
        ('{"batch_size": 1%s}\n' % ("0" * 400), "too large", "nor a whole number of JSON"),
        ('{"batch_size": 1%s}\n' % ("0" * 5000), "row 1: no JSON", "which Python does not read"),
        ("target.ready\n1.5\n", "write a whole number", "half a replica"),
        ("time\n\u0663\n", "with its zone", "seconds are ASCII too"),
        ("batch_size;queue_depth\n1;2\n", "header: its columns are separated by semicolons",
         "how a spreadsheet saves where the comma is decimal"),
        ("batch_size\tqueue_depth\n1\t2\n", "separated by tabs", "how a table is pasted"),
        ("batch_sise\n", "did you mean", "a header is looked at though no row follows"),
        ("time,batch_size\n20,1\n10,1\n", "row 2: time: 1970", "rows go forward in time"),
        ("time,batch_size\n20,1\n,1\n", "row 2: time: ''", "time is given to all rows or none"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, says: str, reason: str) -> None:
    with pytest.raises(ResourceError) as error:
        rows(text)
    assert says in str(error.value), reason


@pytest.mark.parametrize(
    ("text", "value", "reason"),
    [
        ("cost_ratio\n1.4\n", 1.4, "a cost ratio is a multiple, not a share"),
        ("acceptance_rate\n60%\n", 0.6, "a share in percent"),
        ("kv_cache_usage\n1.0000000001\n", 1.0000000001, "the rounding of a sum"),
        ("batch_size\n4e1\n", 40, "an exponent"),
        ("batch_size\n+40.\n", 40, "a sign and a bare point"),
    ],
)
def test_what_is_possible_is_read(text: str, value: float, reason: str) -> None:
    (row,) = rows(text)
    (reading,) = row.readings.values()
    assert reading.value == pytest.approx(value), reason


def test_while_off_the_signals_of_speculation_are_unknown_and_told() -> None:
    off, on = rows("setting.name,acceptance_rate,batch_size\noff,0.5,8\neagle3,0.5,8\n")
    assert off.impossible == ("acceptance_rate",)
    assert off.readings["acceptance_rate"].reason is UnknownReason.NOT_EXPORTED
    assert off.readings.value("batch_size") == 8
    assert (on.impossible, on.readings.value("acceptance_rate")) == ((), 0.5)
