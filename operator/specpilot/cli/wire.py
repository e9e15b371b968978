"""`wire`: the one-time change after which a workload's speculation can be steered."""

import json
import sys
import textwrap
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from specpilot.fleets.kubernetes import Api, connect
from specpilot.fleets.kubernetes.request import json_patch
from specpilot.fleets.kubernetes.wire import ENTRY, Plan, Wired, WireError, plan
from specpilot.fleets.kubernetes.workloads import WORKLOADS
from specpilot.fleets.kubernetes.workloads.base import Workload, merged, nested

_SHORT = {"deploy": "Deployment", "sts": "StatefulSet", "lws": "LeaderWorkerSet", "ro": "Rollout"}
_MANAGER = "specpilot-wire"


class Format(StrEnum):
    """How the change is written."""

    PATCH = "patch"
    KUSTOMIZE = "kustomize"
    HELM = "helm"
    JSON = "json"


def wire(  # noqa: PLR0917 - options of a command
    target: Annotated[
        str, typer.Argument(help="deployment/chat; may be left out with -f.", show_default=False)
    ] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Of the workload.")
    ] = "default",
    filename: Annotated[
        Path | None,
        typer.Option("--filename", "-f", help="Read manifests instead of a cluster; - is stdin."),
    ] = None,
    container: Annotated[
        str, typer.Option(help="That runs the engine; else the only one, or the one named vllm.")
    ] = "",
    version: Annotated[str, typer.Option(help="Of the engine; else what the image says.")] = "",
    output: Annotated[
        Format, typer.Option("--format", "-o", help="How to write the change.")
    ] = Format.PATCH,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make the change in the cluster; its pods restart.")
    ] = False,
    kubeconfig: Annotated[str, typer.Option(help="Path; else $KUBECONFIG or ~/.kube/config.")] = "",
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
) -> None:
    """Print, or make, the change by which a workload reads its speculation from an annotation.

    Nothing is printed for a workload that is wired already. What cannot be wired is refused, with
    what to do instead.
    """
    if filename is not None:
        if apply:
            raise typer.BadParameter(
                "--apply changes a cluster; leave -f out", param_hint="--apply"
            )
        plans = [
            plan(found, container=container, version=version)
            for found in _from_file(filename, target=target)
        ]
        for made in plans:
            _show(made, output)
        return
    workload, name = _named(target)
    api = connect(kubeconfig=kubeconfig, context=context, field_manager=_MANAGER)
    try:
        root = api.find(workload.resource, namespace=namespace, name=name)
        if root is None:
            raise WireError(f"there is no {workload.resource.kind} {name} in namespace {namespace}")
        root = {"kind": workload.resource.kind, **root}
        made = plan(root, container=container, version=version)
        if apply:
            _apply(api, made)
        else:
            _show(made, output)
    finally:
        api.close()


def _named(target: str) -> tuple[Workload, str]:
    kind, slash, name = target.partition("/")
    found = _kind(kind)
    if not slash or not name or found is None:
        kinds = ", ".join(w.resource.kind.lower() for w in WORKLOADS.values())
        raise typer.BadParameter(
            f"{target!r}: write KIND/NAME, such as deployment/chat; kinds are {kinds}",
            param_hint="TARGET",
        )
    return found, name


def _kind(word: str) -> Workload | None:
    word = word.split(".", maxsplit=1)[0].lower()
    if word in _SHORT:
        return WORKLOADS.get(_SHORT[word])
    for workload in WORKLOADS.values():
        if word in {workload.resource.kind.lower(), workload.resource.plural}:
            return workload
    return None


def _from_file(path: Path, *, target: str) -> list[dict[str, Any]]:
    text = sys.stdin.read() if str(path) == "-" else path.read_text()
    try:
        documents = [d for d in yaml.safe_load_all(text) if isinstance(d, dict)]
    except yaml.YAMLError as error:
        raise WireError(f"{path} is not YAML: {error}") from None
    items = [i for d in documents for i in (d.get("items") or [] if "items" in d else [d])]
    found = [d for d in items if d.get("kind") in WORKLOADS]
    if target:
        workload, name = _named(target)
        found = [
            d
            for d in found
            if d["kind"] == workload.resource.kind and (d.get("metadata") or {}).get("name") == name
        ]
    if not found:
        raise WireError(
            f"{path}: there is no {target or 'workload in it'}; kinds that can be steered are "
            f"{', '.join(WORKLOADS)}"
        )
    return found


def _apply(api: Api, made: Plan) -> None:
    metadata = made.root["metadata"]
    words = f"{made.workload.resource.kind} {metadata['namespace']}/{metadata['name']}"
    if not made.containers:
        print(f"{words} is wired already")
        return
    unchanged = {"op": "test", "path": "/metadata/resourceVersion"}
    api.send(
        json_patch(
            made.workload.resource,
            [
                {**unchanged, "value": metadata["resourceVersion"]},
                *made.operations,
                *made.seed(),
            ],
            namespace=metadata["namespace"],
            name=metadata["name"],
            field_manager=_MANAGER,
        )
    )
    print(f"{words} is wired; its pods are replaced by its own strategy")
    _tell(made, kept=True)


def _tell(made: Plan, *, kept: bool = False) -> None:
    """What a person should know besides, where it does not disturb what is piped."""
    for wired in made.containers:
        if wired.removed:
            print(f"note: taken out of {wired.name}: {' '.join(wired.removed)}", file=sys.stderr)
        if wired.setting:
            until = (
                "It runs on, from the annotation"
                if kept
                else "Until a rule asks for it, speculation is off"
            )
            print(
                f"note: it said {wired.setting}; name it as a setting of the policy. {until}",
                file=sys.stderr,
            )
    if made.managed_by and made.containers:
        print(
            f"note: {made.managed_by} puts this object there and may take the change back; "
            f"make it in its source (--format kustomize or helm)",
            file=sys.stderr,
        )


def _show(made: Plan, output: Format) -> None:
    if output is Format.JSON:
        print(json.dumps(_json(made), indent=2))
        return
    metadata = made.root["metadata"]
    if not made.containers:
        print(f"# {made.workload.resource.kind} {metadata['name']} is wired already")
        return
    write = {
        Format.PATCH: _patch,
        Format.KUSTOMIZE: _kustomize,
        Format.HELM: _helm,
    }[output]
    print(write(made), end="")
    _tell(made)


def _json(made: Plan) -> dict[str, Any]:
    metadata = made.root["metadata"]
    return {
        "target": {
            "kind": made.workload.resource.kind,
            "namespace": metadata.get("namespace") or "",
            "name": metadata["name"],
        },
        "wired": not made.containers,
        "operations": made.operations,
        "removed": [word for wired in made.containers for word in wired.removed],
        "setting": next((w.setting for w in made.containers if w.setting), ""),
        "managedBy": made.managed_by,
    }


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=1000)


def _patch(made: Plan) -> str:
    """A strategic merge patch; for custom resources, which know none, a JSON patch."""
    resource, metadata = made.workload.resource, made.root["metadata"]
    where = f"-n {metadata['namespace']} " if metadata.get("namespace") else ""
    command = f"# kubectl {where}patch {resource.plural}.{resource.group} {metadata['name']}"
    if not resource.builtin:
        return f"{command} --type json --patch-file FILE\n{_yaml(made.operations)}"
    body: dict[str, Any] = {}
    for wired in made.containers:
        change = {"name": wired.name, "env": [dict(ENTRY)], **wired.lists}
        body = merged(body, nested((*wired.template, "spec", "containers"), [change]))
    return f"{command} --patch-file FILE\n{_yaml(body)}"


def _kustomize(made: Plan) -> str:
    resource = made.workload.resource
    target = {
        "group": resource.group,
        "version": resource.version,
        "kind": resource.kind,
        "name": made.root["metadata"]["name"],
    }
    patch = textwrap.indent(_yaml(made.operations), "    ")
    return (
        f"# into kustomization.yaml\n{_yaml({'patches': [{'target': target}]})}  patch: |\n{patch}"
    )


def _helm(made: Plan) -> str:
    """No two charts have the same values: what must come out of them, and where it goes in some."""
    lines = [
        "# Values differ from chart to chart; what must come out of them is below.",
        "# vLLM production stack: env under servingEngineSpec.modelSpec[].env, the argument under",
        "#   servingEngineSpec.modelSpec[].vllmConfig.extraArgs",
        "# llm-d modelservice: both under decode.containers[] (and prefill.containers[])",
    ]
    return "\n".join(lines) + "\n" + _yaml({w.name: _values(w) for w in made.containers})


def _values(wired: Wired) -> dict[str, Any]:
    found: dict[str, Any] = {"env": [dict(ENTRY)], **wired.lists}
    if wired.removed:
        found["remove"] = list(wired.removed)
    return found
