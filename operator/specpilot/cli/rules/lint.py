"""`specpilot rules lint`: what is wrong with rules before they run."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from specpilot.cli.engine_options import (
    DataParallel,
    EngineChoice,
    EngineVersion,
    RunnerChoice,
    stated,
)
from specpilot.cli.rules.source import HELP, STDIN, Database, read_text, resolve
from specpilot.cli.rules.steered import Namespace, PolicyOption, Steered, steered
from specpilot.cli.state import StateDir
from specpilot.domain.linting import TITLES, Code, Finding, Severity
from specpilot.resources.rule_lint import ForPolicy, lint_rule_set, lint_text

Sets = Annotated[list[str], typer.Argument(metavar="RULESET...", help=HELP)]


def lint(
    rule_sets: Sets,
    *,
    state: StateDir,
    database: Database = "",
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 on warnings too.")] = False,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="CODE", help="Leave a code out.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            metavar="NAME=VALUE",
            help="Look at the rules with this value, as a policy would set it.",
        ),
    ] = None,
    policy: PolicyOption = "",
    namespace: Namespace = "",
    engine_version: EngineVersion = "",
    engine: EngineChoice = None,
    runner: RunnerChoice = None,
    data_parallel: DataParallel = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON array of findings.")] = False,
) -> None:
    """Find what is wrong with rules: exits 1 on an error. The codes are in docs/rules-lint.md."""
    ignored, parameters = _codes(ignore or []), _parameters(parameter or [])
    run = stated(engine_version, engine=engine, runner=runner, data_parallel=data_parallel)
    try:
        of = _for(steered(policy, namespace, state=state, run=run)) if policy else None
        found = [
            finding
            for word in rule_sets
            for finding in _lint(word, parameters, of=of, state=state, database=database)
            if finding.code not in ignored
        ]
    except OSError as error:  # 1 is for findings, and here nothing was looked at
        raise typer.BadParameter(f"{error.filename}: {error.strerror}") from None
    if as_json:
        print(json.dumps([_plain(f) for f in found], indent=2, ensure_ascii=False))
    else:
        for finding in found:
            print(finding_words(finding))
        counts = Counter(f.severity for f in found)
        said = ", ".join(f"{counts[s]} {s}{'' if counts[s] == 1 else 's'}" for s in Severity)
        print(f"{len(rule_sets)} looked at: {said}")
    failing = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    if any(f.severity in failing for f in found):
        raise typer.Exit(1)


def _lint(
    word: str,
    parameters: Mapping[str, float],
    *,
    of: ForPolicy | None,
    state: Path,
    database: str,
) -> list[Finding]:
    if Path(word).is_dir():
        inside = sorted(str(path) for path in Path(word).glob("*.yaml"))
        if not inside:
            raise typer.BadParameter(f"{word} has no *.yaml in it")
        return [
            f for w in inside for f in _lint(w, parameters, of=of, state=state, database=database)
        ]
    if word == STDIN or Path(word).is_file():
        return lint_text(read_text(word), source=word, parameters=parameters, of=of)
    found = resolve(word, state=state, database=database)
    return lint_rule_set(found.rule_set, source=found.label, parameters=parameters, of=of)


def _for(found: Steered) -> ForPolicy:
    limits = found.limits
    return ForPolicy(
        settings={
            s.name: limits.get(s.name) for s in found.policy.settings.values() if not s.is_off
        },
        window=found.policy.window,
    )


def _codes(given: list[str]) -> set[Code]:
    wrong = [code for code in given if code not in set(Code)]
    if wrong:
        raise typer.BadParameter(f"--ignore {wrong[0]}: no such code; there are {', '.join(Code)}")
    return {Code(code) for code in given}


def _parameters(given: list[str]) -> dict[str, float]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        try:
            if not equals:
                raise ValueError
            found[name] = float(value)
        except ValueError:
            raise typer.BadParameter(
                f"--parameter {text}: write NAME=NUMBER, such as busyBatch=16"
            ) from None
    return found


def finding_words(finding: Finding) -> str:
    """A finding as a line, with its place, and further lines indented."""
    where = finding.where if finding.line is None else f"{finding.where}:{finding.line}"
    what = ": ".join(p for p in (finding.rules[0] if finding.rules else "", finding.field) if p)
    head = (
        f"{where}: {finding.code} {finding.severity}: {what}: "
        if what
        else (f"{where}: {finding.code} {finding.severity}: ")
    )
    return head + finding.message.replace("\n", "\n    ")


def _plain(finding: Finding) -> dict[str, Any]:
    witness = finding.witness
    return {
        "code": str(finding.code),
        "severity": str(finding.severity),
        "title": TITLES[finding.code],
        "file": finding.where,
        "line": finding.line,
        "rules": list(finding.rules),
        "field": finding.field,
        "message": finding.message,
        "witness": None
        if witness is None
        else {"readings": dict(witness.known), "active": list(witness.active)},
    }
