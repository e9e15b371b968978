"""`specpilot rules test`: run the tables that stand beside a rule set."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from specpilot.cli.rules.source import read_documents, read_text
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.rule_tables import RowResult, Table, run
from specpilot.domain.rules import RuleSet
from specpilot.resources import Fault, ResourceError, rule_set_from
from specpilot.resources.rule_table import load_tables, tables_for

Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILES...", help="Test tables; a directory stands for its *.yaml."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """A table that ran."""

    path: Path
    rule_set: RuleSet
    table: Table
    results: Sequence[RowResult]

    @property
    def failed(self) -> list[tuple[int, RowResult]]:
        return [(n, r) for n, r in enumerate(self.results, start=1) if r.faults]


def run_tables(
    files: Files,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON array of rows.")] = False,
) -> None:
    """Run test tables: readings over time, with the verdict that each row must give.

    Exits 1 when a row gives another one. The format is in docs/rules-tests.md.
    """
    ran = [r for path in _expanded(files) for r in _run_file(path)]
    if as_json:
        rows = [
            _plain(each, number, result)
            for each in ran
            for number, result in enumerate(each.results, start=1)
        ]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        for each in ran:
            _print(each)
        total = sum(len(r.results) for r in ran)
        failed = sum(len(r.failed) for r in ran)
        print(f"{len(ran)} tables, {total} rows: {total - failed} as expected, {failed} not")
    if any(r.failed for r in ran):
        raise typer.Exit(1)


def _expanded(files: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in files:
        inside = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
        if not inside:
            raise typer.BadParameter(f"{path} has no *.yaml in it")
        found += inside
    return found


def _run_file(path: Path) -> list[_Ran]:
    file = load_tables(read_text(path), source=str(path))
    rule_set = _rule_set(path, file.rule_set)
    rules = CompiledRuleSet(rule_set)
    return [
        _Ran(path=path, rule_set=rule_set, table=table, results=list(run(table, rules=rules)))
        for table in tables_for(file, rule_set=rule_set, source=str(path))
    ]


def _rule_set(path: Path, named: str | None) -> RuleSet:
    beside = path.parent / (named or f"../{path.name}")
    if not beside.is_file():
        remedy = "correct it" if named else f"name it: `ruleSet: ../{path.stem}.yaml`"
        message = f"there is no rule set at {beside}; {remedy}"
        raise ResourceError(Fault(where=str(path), field="ruleSet", message=message))
    sets = [d for d in read_documents(beside) if d.kind == "RuleSet"]
    if len(sets) != 1:
        message = f"{beside} holds {len(sets)} rule sets; a table is for one"
        raise ResourceError(Fault(where=str(path), field="ruleSet", message=message))
    return rule_set_from(sets[0])


def _print(ran: _Ran) -> None:
    mark = "FAIL" if ran.failed else "ok"
    print(f"{mark:4} {ran.path}: {ran.table.name} ({len(ran.results)} rows)")
    for number, result in ran.failed:
        since = result.row.at - ran.results[0].row.at
        print(f"     row {number}, {since} after the first: {result.row.reason}")
        for fault in result.faults:
            print(f"       {fault}")
        print(f"       the rules said: {result.got.why}")


def _plain(ran: _Ran, number: int, result: RowResult) -> dict[str, object]:
    return {
        "file": str(ran.path),
        "table": ran.table.name,
        "row": number,
        "reason": result.row.reason,
        "ok": not result.faults,
        "faults": list(result.faults),
        "verdict": str(result.got.verdict),
        "rule": result.got.rule or None,
        "setting": result.got.setting or None,
        "why": result.got.why,
    }
