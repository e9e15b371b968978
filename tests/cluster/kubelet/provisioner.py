"""Gives each PersistentVolumeClaim a volume, so that pods with claims are scheduled.

The volume is an empty directory of the kubelet's, at the place where :mod:`.volumes` looks for the
claim; it ends with the claim.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from pathlib import Path
from typing import Any

import httpx

from tests.cluster.kubelet.client import Client

JsonObject = dict[str, Any]

_log = logging.getLogger(__name__)


async def provision(client: Client, *, directory: Path) -> None:
    """Serve claims for ever; ``directory`` gets one directory for each, by namespace and name."""
    async for event in client.observe("/api/v1/persistentvolumeclaims"):
        if isinstance(event, list):
            for claim in event:
                await _bind(client, claim, directory=directory)
        elif event["type"] == "DELETED":
            await _release(client, event["object"], directory=directory)
        else:
            await _bind(client, event["object"], directory=directory)


def _volume_name(claim: JsonObject) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def _place(claim: JsonObject, *, directory: Path) -> Path:
    return directory / str(claim["metadata"]["namespace"]) / str(claim["metadata"]["name"])


async def _bind(client: Client, claim: JsonObject, *, directory: Path) -> None:
    """Offer a volume for this claim alone; the control plane's own controller binds the two."""
    metadata, spec = claim["metadata"], claim["spec"]
    if spec.get("volumeName"):
        return
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": _volume_name(claim)},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "storageClassName": spec.get("storageClassName") or "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": reference,
            "hostPath": {"path": str(_place(claim, directory=directory))},
        },
    }
    try:
        await client.post("/api/v1/persistentvolumes", volume)
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.CONFLICT:  # offered already
            _log.warning("claim %s: %s", metadata["name"], error)


async def _release(client: Client, claim: JsonObject, *, directory: Path) -> None:
    name = _volume_name(claim)
    with contextlib.suppress(httpx.HTTPStatusError):
        volume = await client.get(f"/api/v1/persistentvolumes/{name}")
        if volume:
            await client.delete_now(
                f"/api/v1/persistentvolumes/{name}", uid=volume["metadata"]["uid"]
            )
    shutil.rmtree(_place(claim, directory=directory), ignore_errors=True)
