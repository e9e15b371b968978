"""What a container's process sees of its pod: environment, arguments and downward API.

Pure functions with the kubelet's semantics, because the product's main channel rests on them: an
annotation of the pod template, read through the downward API into a variable, used as ``$(VAR)`` in
the arguments. Two cases decide whether that channel fails safe: a *missing annotation* yields the
empty string, and an *undefined variable* stays literal.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Any

from kubernetes.utils import quantity as quantities

JsonObject = dict[str, Any]

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['(.+)'\]$")


class ConfigError(Exception):
    """The container cannot be configured: the kubelet's ``CreateContainerConfigError``."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(NAME)``; an undefined name stays literal, ``$$`` is an escaped ``$``."""

    def substitute(found: re.Match[str]) -> str:
        name = found.group(1)
        return "$" if name is None else variables.get(name, found.group())

    return _REFERENCE.sub(substitute, text)


def _number(quantity: str) -> Decimal:
    return Decimal(quantities.parse_quantity(quantity))  # type: ignore[no-untyped-call] # untyped


@dataclass(frozen=True, slots=True)
class PodContext:
    """The pod as the kubelet runs it: the object and what is known only on the node."""

    pod: JsonObject
    ip: str
    host_ip: str

    def field(self, path: str) -> str:
        """The value of a downward API ``fieldPath``.

        Raises:
            ConfigError: the path is none that the downward API serves.
        """
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        if found := _SUBSCRIPT.match(path):
            # A key that is absent is not an error: the real kubelet looks it up in a map too.
            return str((metadata.get(found.group(1)) or {}).get(found.group(2), ""))
        if path in ("metadata.labels", "metadata.annotations"):
            values = metadata.get(path.removeprefix("metadata.")) or {}
            return "\n".join(f"{key}={json.dumps(values[key])}" for key in sorted(values))
        plain = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
            "metadata.uid": metadata["uid"],
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "status.podIP": self.ip,
            "status.podIPs": self.ip,
            "status.hostIP": self.host_ip,
            "status.hostIPs": self.host_ip,
        }
        if path not in plain:
            raise ConfigError(f"fieldPath {path!r} is not supported by the downward API")
        return str(plain[path])

    def resource(self, reference: JsonObject, *, container: JsonObject) -> str:
        """The value of a ``resourceFieldRef``: a limit or request, in units of its divisor."""
        name = reference.get("containerName", container["name"])
        owner = next(
            (one for one in self.pod["spec"]["containers"] if one["name"] == name), container
        )
        kind, _, resource = str(reference["resource"]).partition(".")
        quantity = ((owner.get("resources") or {}).get(kind) or {}).get(resource, "0")
        divisor = _number(reference.get("divisor") or "1") or Decimal(1)
        return str((_number(quantity) / divisor).to_integral_value(ROUND_CEILING))


@dataclass(frozen=True, slots=True)
class Configuration:
    """The ConfigMaps and Secrets of the namespace that the pod refers to, by name."""

    config_maps: Mapping[str, JsonObject] = field(default_factory=dict)
    secrets: Mapping[str, JsonObject] = field(default_factory=dict)

    def texts(self, *, kind: str, name: str, optional: bool) -> dict[str, str]:
        return {
            key: value.decode(errors="surrogateescape")
            for key, value in self.files(kind=kind, name=name, optional=optional).items()
        }

    def files(self, *, kind: str, name: str, optional: bool) -> dict[str, bytes]:
        """All keys of a ``configmap`` or ``secret``.

        Raises:
            ConfigError: it does not exist and is not optional.
        """
        found = (self.config_maps if kind == "configmap" else self.secrets).get(name)
        if found is None:
            if optional:
                return {}
            raise ConfigError(f'{kind} "{name}" not found')
        data: dict[str, str] = found.get("data") or {}
        if kind == "secret":
            return {key: base64.b64decode(value) for key, value in data.items()}
        binary: dict[str, str] = found.get("binaryData") or {}
        return {
            **{key: value.encode() for key, value in data.items()},
            **{key: base64.b64decode(value) for key, value in binary.items()},
        }

    def key(self, reference: JsonObject, *, kind: str) -> str | None:
        """The value of a ``configMapKeyRef`` or ``secretKeyRef``; None: optional and absent."""
        name, key = reference.get("name", ""), reference["key"]
        optional = bool(reference.get("optional"))
        values = self.texts(kind=kind, name=name, optional=optional)
        if key not in values and not optional:
            raise ConfigError(f"couldn't find key {key} in {kind} {name}")
        return values.get(key)


def environment(
    *,
    container: JsonObject,
    context: PodContext,
    configuration: Configuration,
    services: Mapping[str, str],
) -> dict[str, str]:
    """The variables that the pod gives to one container.

    ``services`` are those that the kubelet adds for the API server; everything else overrides
    them. A later entry sees the earlier ones, as does ``env`` those of ``envFrom``.

    Raises:
        ConfigError: a ConfigMap, Secret, key or field is missing and not optional.
    """
    result = dict(services)
    for source in container.get("envFrom") or []:
        for name, kind in (("configMapRef", "configmap"), ("secretRef", "secret")):
            if reference := source.get(name):
                values = configuration.texts(
                    kind=kind,
                    name=reference.get("name", ""),
                    optional=bool(reference.get("optional")),
                )
                prefix = source.get("prefix") or ""
                result.update({prefix + key: value for key, value in values.items()})
    for entry in container.get("env") or []:
        value = _value(
            entry, container=container, context=context, configuration=configuration, known=result
        )
        if value is not None:
            result[entry["name"]] = value
    return result


def _value(
    entry: JsonObject,
    *,
    container: JsonObject,
    context: PodContext,
    configuration: Configuration,
    known: Mapping[str, str],
) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return expand(entry.get("value") or "", known)
    if reference := source.get("fieldRef"):
        return context.field(reference["fieldPath"])
    if reference := source.get("resourceFieldRef"):
        return context.resource(reference, container=container)
    if reference := source.get("configMapKeyRef"):
        return configuration.key(reference, kind="configmap")
    if reference := source.get("secretKeyRef"):
        return configuration.key(reference, kind="secret")
    raise ConfigError(f"env {entry['name']!r}: no known source in {sorted(source)}")


def command_line(
    *,
    container: JsonObject,
    entrypoint: Sequence[str],
    default_arguments: Sequence[str],
    variables: Mapping[str, str],
) -> list[str]:
    """The process's argv: ``command`` replaces the image's entrypoint, ``args`` its arguments.

    As in a container runtime, a ``command`` without ``args`` drops the image's arguments too.
    """
    command = [expand(part, variables) for part in container.get("command") or []]
    arguments = [expand(part, variables) for part in container.get("args") or []]
    if command:
        return [*command, *arguments]
    return [*entrypoint, *(arguments or default_arguments)]
