"""The volumes of a pod as directories, and where a container mounts them.

Projected content is written anew from time to time, as the kubelet does it: a changed ConfigMap, a
changed annotation or a renewed token appears in the running pod (not under a ``subPath``).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.kubelet.client import Client
from tests.cluster.kubelet.environment import ConfigError, Configuration, PodContext, expand

JsonObject = dict[str, Any]

_RENEW_AT = 0.8
"""The share of a token's lifetime after which the kubelet asks for a new one."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of this machine, and its place in the container."""

    source: Path
    target: str
    read_only: bool


async def configuration(client: Client, pod: JsonObject) -> Configuration:
    """Fetch every ConfigMap and Secret that the pod names."""
    namespace = pod["metadata"]["namespace"]
    found: dict[str, dict[str, JsonObject]] = {"configmaps": {}, "secrets": {}}
    for resource, name in sorted(set(_references(pod["spec"]))):
        value = await client.get(f"/api/v1/namespaces/{namespace}/{resource}/{name}")
        if value is not None:
            found[resource][name] = value
    return Configuration(config_maps=found["configmaps"], secrets=found["secrets"])


def _references(spec: JsonObject) -> Iterable[tuple[str, str]]:
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        for source in container.get("envFrom") or []:
            yield from _named(source, config_map="configMapRef", secret="secretRef")
        for entry in container.get("env") or []:
            yield from _named(
                entry.get("valueFrom") or {}, config_map="configMapKeyRef", secret="secretKeyRef"
            )
    for volume in spec.get("volumes") or []:
        yield from _named(volume, config_map="configMap", secret="secret")
        for source in (volume.get("projected") or {}).get("sources") or []:
            yield from _named(source, config_map="configMap", secret="secret")


def _named(holder: JsonObject, *, config_map: str, secret: str) -> Iterable[tuple[str, str]]:
    if reference := holder.get(config_map):
        yield "configmaps", reference["name"]
    if reference := holder.get(secret):
        yield "secrets", reference.get("name") or reference["secretName"]


class Volumes:
    """All volumes of one pod.

    Args:
        client: for ConfigMaps, Secrets and tokens.
        directory: the pod's own.
        claims: where the directories of PersistentVolumeClaims are.
    """

    def __init__(self, *, client: Client, directory: Path, claims: Path) -> None:
        self._client = client
        self._directory = directory
        self._claims = claims
        self._sources: dict[str, Path] = {}
        self._renew: dict[Path, float] = {}

    async def project(self, context: PodContext) -> None:
        """Create what is missing and bring projected content up to date.

        Raises:
            ConfigError: a volume refers to something that does not exist, or is of no known kind.
        """
        known = await configuration(self._client, context.pod)
        for volume in context.pod["spec"].get("volumes") or []:
            await self._one(volume, context=context, known=known)

    async def _one(self, volume: JsonObject, *, context: PodContext, known: Configuration) -> None:
        name = volume["name"]
        namespace = context.pod["metadata"]["namespace"]
        if claim := volume.get("persistentVolumeClaim"):
            directory = self._claims / namespace / claim["claimName"]
        elif host := volume.get("hostPath"):
            self._sources[name] = Path(host["path"])
            if "OrCreate" in (host.get("type") or ""):
                self._sources[name].mkdir(parents=True, exist_ok=True)
            return
        else:
            directory = self._directory / name
        directory.mkdir(parents=True, exist_ok=True)
        self._sources[name] = directory
        if "emptyDir" in volume or "persistentVolumeClaim" in volume:
            return
        sources = (volume.get("projected") or {}).get("sources") or [volume]
        if not any(
            kind in source
            for source in sources
            for kind in ("configMap", "secret", "downwardAPI", "serviceAccountToken")
        ):
            raise ConfigError(
                f"volume {name!r}: kind {sorted(set(volume) - {'name'})} is not supported"
            )
        await self._write(directory, sources, context=context, known=known)

    async def _write(
        self,
        directory: Path,
        sources: list[JsonObject],
        *,
        context: PodContext,
        known: Configuration,
    ) -> None:
        kept: set[Path] = set()
        for source in sources:
            for relative, content in _content(source, context=context, known=known).items():
                kept.add(_replace(directory / relative, content))
            if token := source.get("serviceAccountToken"):
                kept.add(await self._token(directory / token["path"], token, context=context))
        _remove_files(directory, but=kept)

    async def _token(self, path: Path, request: JsonObject, *, context: PodContext) -> Path:
        if time.monotonic() < self._renew.get(path, 0.0):
            return path
        metadata = context.pod["metadata"]
        account = context.pod["spec"].get("serviceAccountName") or "default"
        seconds = int(request.get("expirationSeconds") or 3600)
        spec: JsonObject = {
            "expirationSeconds": seconds,
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        }
        if audience := request.get("audience"):
            spec["audiences"] = [audience]
        answer = await self._client.post(
            f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )
        self._renew[path] = time.monotonic() + _RENEW_AT * seconds
        return _replace(path, answer["status"]["token"].encode())

    def mounts(self, container: JsonObject, *, variables: dict[str, str]) -> list[Mount]:
        """Where ``container`` sees the volumes; outer mount points come first.

        Raises:
            ConfigError: a mount names no volume of the pod.
        """
        result = []
        for mount in container.get("volumeMounts") or []:
            source = self._sources.get(mount["name"])
            if source is None:
                raise ConfigError(f"volumeMount {mount['name']!r}: the pod has no such volume")
            part = mount.get("subPath") or expand(mount.get("subPathExpr") or "", variables)
            if part:
                source = source / part
                if not source.exists():
                    source.mkdir(parents=True)
            result.append(
                Mount(
                    source=source, target=mount["mountPath"], read_only=bool(mount.get("readOnly"))
                )
            )
        return sorted(result, key=lambda mount: mount.target)


def _remove_files(directory: Path, *, but: set[Path]) -> None:
    for path in directory.rglob("*"):
        if path.is_file() and path not in but:
            path.unlink()


def _content(source: JsonObject, *, context: PodContext, known: Configuration) -> dict[str, bytes]:
    if downward := source.get("downwardAPI"):
        return {
            item["path"]: _downward(item, context=context) for item in downward.get("items") or []
        }
    for kind, field in (("configmap", "configMap"), ("secret", "secret")):
        if reference := source.get(field):
            name = reference.get("name") or reference.get("secretName", "")
            optional = bool(reference.get("optional"))
            files = known.files(kind=kind, name=name, optional=optional)
            items = reference.get("items")
            if not items:
                return files
            missing = [item["key"] for item in items if item["key"] not in files]
            if missing and not optional:
                raise ConfigError(f"{kind} {name!r} has no key {missing[0]!r}")
            return {item["path"]: files[item["key"]] for item in items if item["key"] in files}
    return {}


def _downward(item: JsonObject, *, context: PodContext) -> bytes:
    if reference := item.get("fieldRef"):
        return context.field(reference["fieldPath"]).encode()
    reference = item["resourceFieldRef"]
    container = next(
        one
        for one in context.pod["spec"]["containers"]
        if one["name"] == reference["containerName"]
    )
    return context.resource(reference, container=container).encode()


def _replace(path: Path, content: bytes) -> Path:
    """Write in one step, and only what changed: a reader sees the old content or the new."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.new")
        scratch.write_bytes(content)
        scratch.replace(path)
    return path
