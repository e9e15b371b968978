"""`specpilot rules apply`: a new version in the database, or none."""

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from specpilot.cli.rules.source import Database, read_documents, writable
from specpilot.cli.state import StateDir
from specpilot.controller.followers import misfits
from specpilot.controller.rule_versions import RuleSetFile, apply_rule_sets
from specpilot.controller.runner import SystemClock
from specpilot.resources import LOCAL_NAMESPACE, Fault, ResourceError, rule_set_from

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="YAML files; - is stdin.")]


def apply(
    files: Files,
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
) -> None:
    """Write rule sets into the database as new versions; all of them or, at any fault, none."""
    sets: list[RuleSetFile] = []
    faults: list[Fault] = []
    for path in files:
        try:
            sets += _rule_sets(path, namespace=namespace)
        except ResourceError as error:
            faults += error.faults
    if faults:
        raise ResourceError(*faults)
    with writable(state=state, database=database) as store:
        done = apply_rule_sets(
            sets, store=store, author=author or getpass.getuser(), clock=SystemClock()
        )
        with store.read() as unit:
            warnings = [words for version, _ in done for words in misfits(unit, version)]
    for version, changed in done:
        what = "applied" if changed else "unchanged"
        name = f"{version.namespace}/{version.rule_set.name}@{version.version}"
        print(f"{name} {what} {version.content_hash}")
    for words in warnings:
        print(f"warning: {words}", file=sys.stderr)


def _rule_sets(path: Path, *, namespace: str) -> list[RuleSetFile]:
    found, faults = [], []
    documents = read_documents(path)
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
            found.append(
                RuleSetFile(
                    namespace=namespace or said or LOCAL_NAMESPACE,
                    rule_set=rule_set_from(document),
                    source=str(path),
                )
            )
    if not documents:
        message = "there is no document in it; nothing to apply"
        faults.append(Fault(where=str(path), field="", message=message))
    if faults:
        raise ResourceError(*faults)
    return found
