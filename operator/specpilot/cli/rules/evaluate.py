"""`specpilot rules evaluate`: what a rule set says of recorded readings, row by row."""

import json
import sys
from collections import Counter
from typing import Annotated

import typer

from specpilot.cli.rules.source import (
    STDIN,
    Database,
    RuleSetArgument,
    lines_of,
    no_rows,
    resolve,
)
from specpilot.cli.state import StateDir
from specpilot.domain.outcomes import Outcome, RowVerdict
from specpilot.resources.readings_file import read_rows
from specpilot.resources.row_verdicts import RowJudge, impossible_words

Readings = Annotated[
    str,
    typer.Option(
        "--readings",
        metavar="FILE",
        help="CSV with a header, or JSON lines; - is stdin. Columns: signals, params.NAME, "
        "setting.name|method|depth, target.name|namespace|kind|replicas|ready|engine, "
        "target.labels.NAME, and time (with a zone, or Unix seconds). Empty is Unknown.",
    ),
]


def evaluate(
    rule_set: RuleSetArgument,
    readings: Readings,
    state: StateDir,
    database: Database = "",
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="One JSON object a row, on a line: verdict, rule, setting, why."
        ),
    ] = False,
) -> None:
    """Judge recorded readings: a verdict per row.

    Rows are judged in order. With a `time` column, a condition must have held as long as its rule
    asks, over rows no further apart than the rule's grace; without one, it is taken as held.
    Without a `drafts` column a rule's minDrafts is taken as met.
    """
    if rule_set == readings == STDIN:
        raise typer.BadParameter("only one of RULESET and --readings can be standard input")
    rules = resolve(rule_set, state=state, database=database).rule_set
    judge = RowJudge(rules)
    write = _json_line if as_json else _line
    counts: Counter[RowVerdict] = Counter()
    with lines_of(readings) as lines:
        for row in read_rows(lines, rule_set=rules, source=readings):
            got = judge.judge(row)
            counts[got.verdict] += 1
            sys.stdout.write(write(row.number, got))
    if judge.gaps:
        print(
            f"note: {judge.gaps} gaps between rows are longer than the grace of a rule: what had "
            "been held began anew (set `grace`, or give rows closer in time)",
            file=sys.stderr,
        )
    if judge.impossible:
        print(f"warning: {impossible_words(judge.impossible)}", file=sys.stderr)
    if not counts:
        raise no_rows(readings)
    if not as_json:
        said = ", ".join(f"{counts[v]} {v}" for v in RowVerdict)
        print(f"{counts.total()} rows: {said}", file=sys.stderr)


def _json_line(_number: int, got: Outcome) -> str:
    said = {
        "verdict": str(got.verdict),
        "rule": got.rule or None,
        "setting": got.setting or None,
        "why": got.why,
    }
    return json.dumps(said, ensure_ascii=False) + "\n"


def _line(number: int, got: Outcome) -> str:
    asks = f"{got.rule} asks for {got.setting}: " if got.rule else ""
    return f"{number}\t{got.verdict}\t{asks}{got.why}\n"
