"""`specpilot rules apply`: a new version in the database, or none."""

import getpass
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from specpilot.cli.rules.lint import finding_words
from specpilot.cli.rules.source import PACK, Database, read_text, writable
from specpilot.cli.state import StateDir
from specpilot.controller.followers import misfits
from specpilot.controller.rule_versions import RuleSetFile, apply_rule_sets
from specpilot.controller.runner import SystemClock
from specpilot.domain.linting import Finding, Severity
from specpilot.resources import LOCAL_NAMESPACE, Fault, ResourceError, load, rule_set_from
from specpilot.resources.packs import pack, pack_names
from specpilot.resources.positions import lines
from specpilot.resources.rule_lint import lint_rule_set

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...", help="YAML files, - (stdin), or shipped packs (pack:hit-rate)."
    ),
]


def apply(
    files: Files,
    *,
    state: StateDir,
    database: Database = "",
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace of the rule sets.",
            show_default=f"that of each file, else {LOCAL_NAMESPACE}",
        ),
    ] = "",
    author: Annotated[
        str, typer.Option("--author", help="For the record.", show_default="you")
    ] = "",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Apply nothing when lint finds an error or a warning."),
    ] = False,
) -> None:
    """Write rule sets into the database as new versions; all of them or, at any fault, none.

    What lint finds is said on standard error, and hinders only with --strict.
    """
    given: list[_Given] = []
    faults: list[Fault] = []
    for path in files:
        try:
            given += _rule_sets(path, namespace=namespace)
        except ResourceError as error:
            faults += error.faults
    if faults:
        raise ResourceError(*faults)
    findings = [] if not strict else _findings(given)
    if findings:
        _print_findings(findings, done="nothing applied")
        raise typer.Exit(1)
    with writable(state=state, database=database) as store:
        done = apply_rule_sets(
            [each.file for each in given],
            store=store,
            author=author or getpass.getuser(),
            clock=SystemClock(),
        )
        with store.read() as unit:
            warnings = [words for version, _ in done for words in misfits(unit, version)]
    for version, changed in done:
        what = "applied" if changed else "unchanged"
        name = f"{version.namespace}/{version.rule_set.name}@{version.version}"
        print(f"{name} {what} {version.content_hash}")
    for words in warnings:
        print(f"warning: {words}", file=sys.stderr)
    if not strict and (findings := _findings(given)):
        _print_findings(findings, done="applied")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """A rule set to apply, and on which lines of its file the fields stand."""

    file: RuleSetFile
    places: Mapping[str, int] = field(default_factory=dict)


def _findings(given: list[_Given]) -> list[Finding]:
    """What lint finds in them that is more than a note, each with its line."""
    return [
        finding
        for each in given
        for finding in lint_rule_set(
            each.file.rule_set, source=each.file.source, places=each.places
        )
        if finding.severity is not Severity.NOTE
    ]


def _print_findings(findings: list[Finding], *, done: str) -> None:
    for finding in findings:
        print(finding_words(finding), file=sys.stderr)
    counts = Counter(f.severity for f in findings)
    said = ", ".join(f"{n} {s}{'' if n == 1 else 's'}" for s in Severity if (n := counts[s]))
    print(f"{done}; lint: {said}, see `specpilot rules lint`", file=sys.stderr)


def _rule_sets(path: str, *, namespace: str) -> list[_Given]:
    if path.startswith(PACK):
        rule_set = pack(path.removeprefix(PACK))
        file = RuleSetFile(namespace=namespace or LOCAL_NAMESPACE, rule_set=rule_set, source=path)
        return [_Given(file=file)]
    if path in pack_names() and not Path(path).exists():
        message = f"there is no such file; for the shipped pack write {PACK}{path}"
        raise ResourceError(Fault(where=path, field="", message=message))
    found, faults = [], []
    text = read_text(path)
    documents = load(text, source=str(path))
    places = lines(text)
    for document in documents:
        where = f"{path}: document {document.number}: {document}"
        said = document.metadata.namespace
        if document.kind != "RuleSet":
            message = f"only RuleSets are applied here; use `specpilot apply -f {path}`"
            faults.append(Fault(where=where, field="kind", message=message))
        elif namespace and said and said != namespace:
            message = f"{said!r} is not --namespace {namespace}; remove one of the two"
            faults.append(Fault(where=where, field="metadata.namespace", message=message))
        else:
            file = RuleSetFile(
                namespace=namespace or said or LOCAL_NAMESPACE,
                rule_set=rule_set_from(document),
                source=str(path),
            )
            found.append(_Given(file=file, places=places[document.number - 1]))
    if not documents:
        message = "there is no document in it; nothing to apply"
        faults.append(Fault(where=str(path), field="", message=message))
    if faults:
        raise ResourceError(*faults)
    return found
