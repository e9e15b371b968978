"""`apply`, `get`, `explain`, `delete`, `approve`, `reject` on the embedded store of one machine."""

import getpass
import json
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Table

from specpilot.cli.state import StateDir, existing_state, open_state
from specpilot.cli.tables import add_row
from specpilot.controller.applying import apply_documents, dangling, delete_resource
from specpilot.controller.local_registry import as_object
from specpilot.controller.runner import SystemClock
from specpilot.domain.situation import Answer
from specpilot.resources import LOCAL_NAMESPACE, Document, Fault, ResourceError, load
from specpilot.store import Resource, Store

Files = Annotated[list[Path], typer.Option("--filename", "-f", help="YAML files; - is stdin.")]

ALIASES = {
    "specpol": "SpeculationPolicy",
    "policies": "SpeculationPolicy",
    "flagchanges": "FlagChange",
    "changes": "FlagChange",
    "rulesets": "RuleSet",
    "alertchannels": "AlertChannel",
    "channels": "AlertChannel",
    "localfleets": "LocalFleet",
    "fleets": "LocalFleet",
}


def kind_of(word: str) -> str:
    """A kind by any of its names: `specpol`, `flagchange`, `FlagChanges` ...

    Raises:
        BadParameter: There is no such kind.
    """
    for alias, kind in ALIASES.items():
        if word.lower() in {alias, kind.lower(), f"{kind.lower()}s", f"{kind.lower()[:-1]}ies"}:
            return kind
    known = ", ".join(sorted(set(ALIASES.values())))
    raise typer.BadParameter(f"{word}: no such kind; there are {known}")


def read_files(files: list[Path]) -> list[Document]:
    """Load documents of files; everything wrong in any of them is said at once.

    Raises:
        ResourceError: At least one document is not valid.
    """
    documents: list[Document] = []
    faults: list[Fault] = []
    for path in files:
        try:
            raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
            found = load(raw.decode(), source=str(path))
        except UnicodeDecodeError as error:
            message = f"byte {error.start} is not UTF-8; save it as UTF-8 text"
            faults.append(Fault(where=str(path), field="", message=message))
        except ResourceError as error:
            faults += error.faults
        else:
            documents += found
            if not found:
                message = "there is no document in it; nothing to apply"
                faults.append(Fault(where=str(path), field="", message=message))
    if faults:
        raise ResourceError(*faults)
    return documents


def apply(files: Files, state: StateDir) -> None:
    """Apply resources; all of them or, when one is not valid, none."""
    store = open_state(state)
    for done in apply_documents(read_files(files), store=store, clock=SystemClock()):
        print(f"{done.kind.lower()}/{done.name} {done.what}")
    for words in dangling(store):
        print(f"warning: {words}", file=sys.stderr)


def _resources(store: Store, kind: str, name: str = "") -> list[Resource]:
    with store.read() as unit:
        found = unit.resources.list(kind=kind, namespace=LOCAL_NAMESPACE)
    chosen = [r for r in found if not name or r.name == name]
    if name and not chosen:
        known = ", ".join(r.name for r in found) or "none"
        raise typer.BadParameter(f"there is no {kind} called {name} (there is {known})")
    return sorted(chosen, key=lambda r: (r.created_at, r.name))


def get(
    kind: Annotated[str, typer.Argument(help="specpol, flagchanges, rulesets, ...")],
    state: StateDir,
    name: Annotated[str, typer.Argument()] = "",
    output: Annotated[str, typer.Option("--output", "-o", help="yaml or json.")] = "",
) -> None:
    """Show resources, as `kubectl get` does in a cluster."""
    kind = kind_of(kind)
    found = _resources(existing_state(state), kind, name)
    if output:
        objects = [{**as_object(r), "status": r.status} for r in found]
        if output == "json":
            print(json.dumps(objects if not name else objects[0], indent=2))
        elif output == "yaml":
            print(yaml.safe_dump_all(objects, sort_keys=False), end="")
        else:
            raise typer.BadParameter(f"--output {output}: write yaml or json")
        return
    columns = COLUMNS.get(kind, {})
    table = Table(show_edge=False, box=None, pad_edge=False)
    table.add_column("NAME", no_wrap=True)
    for column in columns:
        table.add_column(column.upper())
    for resource in found:
        add_row(table, resource.name, *(_dig(resource, path) for path in columns.values()))
    how = "one appears when a rule or a probe asks for a change"
    if kind != "FlagChange":
        how = "`specpilot apply -f FILE` makes one"
    Console().print(table if found else f"no {kind} yet; {how}")


COLUMNS: dict[str, dict[str, str]] = {
    "SpeculationPolicy": {
        "mode": "status.mode",
        "active": "status.active",
        "desired": "status.desired",
        "phase": "status.phase",
        "last flip": "status.lastFlip",
        "verdict": "status.verdict",
    },
    "FlagChange": {
        "from": "spec.from.setting",
        "to": "spec.to.setting",
        "phase": "status.phase",
        "reason": "status.reason",
        "message": "status.message",
    },
    "LocalFleet": {"replicas": "spec.replicas", "command": "spec.command"},
    "AlertChannel": {"type": "spec.type"},
    "RuleSet": {"rules": "spec.rules.#"},
}
"""Column title to where it is in the object; `#` counts."""


def _dig(resource: Resource, path: str) -> Any:
    value: Any = {"spec": resource.spec, "status": resource.status}
    for part in path.split("."):
        if part == "#":
            return len(value)
        value = value.get(part, "") if isinstance(value, dict) else ""
    return " ".join(map(str, value)) if isinstance(value, list) else value


def explain(name: Annotated[str, typer.Argument(help="Policy.")], state: StateDir) -> None:
    """Say why a policy does what it does, or why nothing happens."""
    (resource,) = _resources(existing_state(state), "SpeculationPolicy", name)
    status: dict[str, Any] = dict(resource.status)
    console = Console()
    if not status:
        console.print("not evaluated yet: is `specpilot local` running?")
        return
    if age := _age(status):
        console.print(age, highlight=False, markup=False)
    for field in ("mode", "active", "desired", "phase", "change", "verdict", "message"):
        if status.get(field):
            console.print(f"{field:8} {status[field]}", highlight=False, markup=False)
    for count in status.get("replicas", []):
        words = f"{count['ready']} of {count['total']} ready run {count['setting']}"
        console.print(f"replicas {words}", highlight=False, markup=False)
    table = Table("condition", "status", "reason", "message", show_edge=False, box=None)
    for condition in status.get("conditions", []):
        add_row(table, *(condition[k] for k in ("type", "status", "reason", "message")))
    console.print(table)
    table = Table("signal", "value", "unit", "count", show_edge=False, box=None)
    for reading in status.get("readings", []):
        value = reading.get("value")
        add_row(
            table,
            reading["signal"],
            f"Unknown ({reading.get('reason')})" if value is None else f"{value:g}",
            reading.get("unit", ""),
            str(reading.get("count", "")),
        )
    console.print(table)


STALE_AFTER = timedelta(minutes=1)


def _age(status: dict[str, Any]) -> str:
    """Say so when what is shown is old: a status is a fact only while somebody keeps it."""
    times = [datetime.fromisoformat(r["at"]) for r in status.get("readings", []) if r.get("at")]
    if not times or (old := SystemClock().now() - max(times)) < STALE_AFTER:
        return ""
    return (
        f"as of {max(times):%Y-%m-%d %H:%M:%S} UTC, {old.total_seconds() / 60:.0f} min ago: "
        "no newer numbers; is `specpilot local` running?"
    )


def delete(
    kind: Annotated[str, typer.Argument()],
    name: Annotated[str, typer.Argument()],
    state: StateDir,
) -> None:
    """Delete a resource; a change in flight is undone first by the supervisor."""
    kind = kind_of(kind)
    if kind == "FlagChange":
        raise typer.BadParameter(
            f"{name}: flag changes are the record of what was done; to stop one that waits, reject "
            "it, to stop one in flight, set its policy's mode to Off"
        )
    if not delete_resource(kind, name, store=existing_state(state), clock=SystemClock()):
        raise typer.BadParameter(f"there is no {kind} called {name}")
    print(f"{kind.lower()}/{name} deleted")


def _decide(change: str, answer: Answer, state: Path) -> None:
    store = existing_state(state)
    with store.begin() as unit:
        found = unit.resources.get(kind="FlagChange", namespace=LOCAL_NAMESPACE, name=change)
        if found is None:
            raise typer.BadParameter(
                f"there is no flag change {change}; see `specpilot get changes`"
            )
        if found.spec.get("decision"):
            raise typer.BadParameter(f"{change} was decided already: {found.spec['decision']}")
        if found.status.get("phase") != "Pending":
            raise typer.BadParameter(f"{change} is {found.status.get('phase')}; nothing to decide")
        unit.resources.apply(
            kind="FlagChange",
            namespace=LOCAL_NAMESPACE,
            name=change,
            spec={**found.spec, "decision": str(answer), "decidedBy": getpass.getuser()},
            metadata=found.metadata,
            at=SystemClock().now(),
        )
    print(f"flagchange/{change} {answer.lower()}{'d' if answer is Answer.APPROVE else 'ed'}")


def approve(change: Annotated[str, typer.Argument()], state: StateDir) -> None:
    """Approve a flag change that waits for it (mode Approve)."""
    _decide(change, Answer.APPROVE, state)


def reject(change: Annotated[str, typer.Argument()], state: StateDir) -> None:
    """Reject a flag change that waits for approval."""
    _decide(change, Answer.REJECT, state)
