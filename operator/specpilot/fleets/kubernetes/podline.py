"""What a container is really started with: its command line, its variables, its mounted files.

Follows the kubelet: `envFrom` before `env`, an entry may use the ones before it as `$(NAME)`, the
later of two wins. What a value needs and is not at hand (a Secret, the node's name) stays not
known, with the reason. It is never taken for empty.
"""

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Protocol

from specpilot.engines import Parsed, parse

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_FIELD = re.compile(r"metadata\.(annotations|labels)\['(.+)'\]")


class Lookup(Protocol):
    """Where the content of ConfigMaps and Secrets is."""

    def data(self, kind: str, name: str) -> Mapping[str, str] | None:
        """The texts of a `ConfigMap` or a `Secret` beside the pod; None when it is not at hand."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of a container.

    Attributes:
        value: Its value; None when it is not known.
        origin: Where it comes from, or why it is not known.
    """

    value: str | None
    origin: str


@dataclass(frozen=True, slots=True)
class _Names(Container[str]):
    """Names of variables with values that are not known; any other name, when there may be more."""

    names: frozenset[str]
    known: frozenset[str]
    more: bool

    def __contains__(self, name: object) -> bool:
        return name in self.names or (self.more and name not in self.known)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLine:
    """A container's start, resolved.

    Attributes:
        container: Its name.
        image: Its image.
        argv: Command and args as written.
        commands: How many of them are the command's.
        variables: Its variables by name.
        more_variables: Why there may be others that are not known; "" when there are not.
        files: Content of mounted files by path.
        file_origins: Where each of them comes from.
        faults: Mounts whose content is not known, with the reason.
    """

    container: str
    image: str = ""
    argv: tuple[str, ...] = ()
    commands: int = 0
    variables: Mapping[str, Variable] = field(default_factory=dict)
    more_variables: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    file_origins: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def env(self) -> dict[str, str]:
        """Variables with known values."""
        return {n: v.value for n, v in self.variables.items() if v.value is not None}

    @property
    def unknown(self) -> Container[str]:
        """Names of variables that there are, or may be, with values that are not known."""
        return _Names(
            frozenset(n for n, v in self.variables.items() if v.value is None),
            frozenset(self.env),
            bool(self.more_variables),
        )

    def place(self, at: int) -> str:
        """A place of `argv` in words: `args[2]`."""
        if not 0 <= at < len(self.argv):
            return ""
        return f"command[{at}]" if at < self.commands else f"args[{at - self.commands}]"

    def parse(self, *, version: str = "", variable: str = "") -> Parsed:
        """Read the engine's setting off the line."""
        known = self.env
        return parse(
            self.argv,
            version=version,
            env=known,
            files=self.files,
            variable=variable if variable in known else "",
            unknown=self.unknown,
        )


def resolve(
    container: Mapping[str, Any],
    *,
    pod: Mapping[str, Any],
    metadata: Mapping[str, Any],
    lookup: Lookup,
) -> PodLine:
    """Resolve a container.

    Args:
        container: The container.
        pod: The pod's spec, for its volumes.
        metadata: The pod's metadata, or its template's.
        lookup: Where ConfigMaps and Secrets are.
    """
    variables, more = _variables(container, pod=pod, metadata=metadata, lookup=lookup)
    files, origins, faults = _files(container, pod=pod, metadata=metadata, lookup=lookup)
    command = _texts(container.get("command"))
    return PodLine(
        container=str(container.get("name") or ""),
        image=str(container.get("image") or ""),
        argv=(*command, *_texts(container.get("args"))),
        commands=len(command),
        variables=variables,
        more_variables=more,
        files=files,
        file_origins=origins,
        faults=tuple(faults),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list | tuple) else ()


def _maps(value: object) -> list[Mapping[str, Any]]:
    """The mappings of a list; what is no list of mappings has none."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _variables(
    container: Mapping[str, Any],
    *,
    pod: Mapping[str, Any],
    metadata: Mapping[str, Any],
    lookup: Lookup,
) -> tuple[dict[str, Variable], str]:
    found: dict[str, Variable] = {}
    more = ""
    for entry in _maps(container.get("envFrom")):
        for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if key not in entry:
                continue
            name = str(_map(entry[key]).get("name") or "")
            data = lookup.data(kind, name)
            if data is None:
                more = more or f"{kind} {name} (envFrom) is not at hand"
                continue
            prefix = str(entry.get("prefix") or "")
            for item, text in data.items():
                origin = f"{kind} {name}, key {item} (envFrom)"
                found[prefix + item] = Variable(value=text, origin=origin)
    for entry in _maps(container.get("env")):
        name = str(entry.get("name") or "")
        if "valueFrom" not in entry:
            found[name] = _literal(str(entry.get("value") or ""), found, more=more)
            continue
        variable = _value_from(_map(entry["valueFrom"]), pod=pod, metadata=metadata, lookup=lookup)
        if variable is not None:
            found[name] = variable
    return found, more


def _literal(text: str, before: Mapping[str, Variable], *, more: str) -> Variable:
    """A value that is written, with references to the variables before it."""
    missing: list[str] = []
    used: list[str] = []

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        variable = before.get(name)
        if variable is None:
            if more:
                missing.append(f"{match.group()}: {more}")
            return match.group()
        used.append(f"{match.group()} from {variable.origin}")
        if variable.value is None:
            missing.append(f"{match.group()}: {variable.origin}")
            return ""
        return variable.value

    expanded = _REFERENCE.sub(value, text)
    if missing:
        return Variable(value=None, origin=f"env value with {missing[0]}")
    return Variable(value=expanded, origin="; ".join(["env value", *used]))


def _value_from(
    source: Mapping[str, Any],
    *,
    pod: Mapping[str, Any],
    metadata: Mapping[str, Any],
    lookup: Lookup,
) -> Variable | None:
    """The variable; None where an optional key makes that there is none."""
    for ref, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if ref in source:
            return _of_key(_map(source[ref]), kind=kind, lookup=lookup)
    if "fieldRef" in source:
        path = str(_map(source["fieldRef"]).get("fieldPath") or "")
        value = field_value(path, pod=pod, metadata=metadata)
        if value is None:
            return Variable(value=None, origin=f"{path} is known where the pod runs only")
        return Variable(value=value, origin=f"{path} (downward API)")
    written = ", ".join(source) or "nothing"
    return Variable(value=None, origin=f"valueFrom {written} is known where the pod runs only")


def _of_key(ref: Mapping[str, Any], *, kind: str, lookup: Lookup) -> Variable | None:
    name, key = str(ref.get("name") or ""), str(ref.get("key") or "")
    data = lookup.data(kind, name)
    if data is None:
        return Variable(value=None, origin=f"{kind} {name} is not at hand")
    if key in data:
        return Variable(value=data[key], origin=f"{kind} {name}, key {key}")
    if ref.get("optional"):
        return None
    return Variable(
        value=None, origin=f"{kind} {name} has no key {key}, and the pod does not start"
    )


def field_value(path: str, *, pod: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    """A field by the downward API; None where it is not known before the pod runs.

    An annotation or a label that is not there is "".
    """
    match = _FIELD.fullmatch(path)
    if match is not None:
        return str(_map(metadata.get(match.group(1))).get(match.group(2), ""))
    if path in {"metadata.name", "metadata.namespace"}:
        value = metadata.get(path.removeprefix("metadata."))
        return None if value is None else str(value)
    if path == "spec.serviceAccountName":
        return str(pod.get("serviceAccountName") or "default")
    return None


def _files(
    container: Mapping[str, Any],
    *,
    pod: Mapping[str, Any],
    metadata: Mapping[str, Any],
    lookup: Lookup,
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    volumes = {str(v.get("name")): v for v in _maps(pod.get("volumes"))}
    files: dict[str, str] = {}
    origins: dict[str, str] = {}
    faults: list[str] = []
    work = str(container.get("workingDir") or "")
    for mount in _maps(container.get("volumeMounts")):
        at = PurePosixPath(str(mount.get("mountPath") or "/"))
        inside = str(mount.get("subPath") or "")
        volume = volumes.get(str(mount.get("name")), {})
        for path, text, origin in _content(volume, pod=pod, metadata=metadata, lookup=lookup):
            if text is None:
                faults.append(f"{at}: {origin}")
                continue
            place = _mounted(path, at=at, inside=inside)
            if place is None or "subPathExpr" in mount:
                continue
            for name in (place, _from_work(place, work)):
                if name:
                    files[name], origins[name] = text, origin
    return files, origins, faults


def _mounted(path: str, *, at: PurePosixPath, inside: str) -> str | None:
    """Where a file of a volume appears; None when a subPath leaves it out."""
    if not inside:
        return str(at / path)
    if path == inside:
        return str(at)
    if path.startswith(inside.rstrip("/") + "/"):
        return str(at / path[len(inside.rstrip("/")) + 1 :])
    return None


def _from_work(path: str, work: str) -> str:
    """The path as seen from the working directory, "" where it is not below."""
    if work and PurePosixPath(path).is_relative_to(work):
        return str(PurePosixPath(path).relative_to(work))
    return ""


def _content(
    volume: Mapping[str, Any],
    *,
    pod: Mapping[str, Any],
    metadata: Mapping[str, Any],
    lookup: Lookup,
) -> Iterator[tuple[str, str | None, str]]:
    """Path, text (None: not known) and origin of each file of a volume."""
    parts = [volume]
    if "projected" in volume:
        parts = _maps(_map(volume["projected"]).get("sources"))
    for part in parts:
        if "downwardAPI" in part:
            for item in _maps(_map(part["downwardAPI"]).get("items")):
                field_path = str(_map(item.get("fieldRef")).get("fieldPath") or "")
                text = field_value(field_path, pod=pod, metadata=metadata)
                origin = f"{field_path} (downward API)" if text is not None else field_path
                yield str(item.get("path") or ""), text, origin
        for key, kind, named in (
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName" if part is volume else "name"),
        ):
            if key in part:
                yield from _of_volume(_map(part[key]), kind=kind, named=named, lookup=lookup)


def _of_volume(
    source: Mapping[str, Any], *, kind: str, named: str, lookup: Lookup
) -> Iterator[tuple[str, str | None, str]]:
    name = str(source.get(named) or "")
    data = lookup.data(kind, name)
    if data is None:
        yield "", None, f"{kind} {name} is not at hand"
        return
    items = _maps(source.get("items"))
    paths = (
        {str(item.get("key")): str(item.get("path")) for item in items}
        if items
        else {key: key for key in data}
    )
    for key, path in paths.items():
        if key in data:
            yield path, data[key], f"{kind} {name}, key {key}"
        else:
            yield path, None, f"{kind} {name} has no key {key}"
