"""Nodes of the test cluster: objects that say Ready and offer GPUs, which the scheduler counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.kubelet.status import timestamp

JsonObject = dict[str, Any]

GPU = "nvidia.com/gpu"


class Nodes:
    """Adds, cordons and removes nodes; the one test kubelet serves them all.

    Args:
        control_plane: started before the first call.
        kubelet_port: where the kubelet serves logs.
    """

    def __init__(self, *, control_plane: ControlPlane, kubelet_port: int) -> None:
        self._control_plane = control_plane
        self._kubelet_port = kubelet_port

    def add(
        self,
        name: str,
        *,
        gpus: int = 0,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[JsonObject] = (),
    ) -> None:
        """Add a node that is Ready at once.

        Args:
            name: of the node, also its label ``kubernetes.io/hostname``.
            gpus: how many ``nvidia.com/gpu`` it offers.
            labels: further labels, to select it by.
            taints: to keep other pods away.
        """
        self._control_plane.api.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {
                        "kubernetes.io/hostname": name,
                        "kubernetes.io/os": "linux",
                        "kubernetes.io/arch": "amd64",
                        **(labels or {}),
                    },
                },
                "spec": {},
            }
        )
        resources = {
            "cpu": "64",
            "memory": "512Gi",
            "ephemeral-storage": "1Ti",
            "pods": "500",
            **({GPU: str(gpus)} if gpus else {}),
        }
        now = timestamp()
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        status = {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [ready],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._kubelet_port}},
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "local://1",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.37.2",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "test",
                "systemUUID": "",
            },
        }
        self._control_plane.api.patch(
            "v1", "Node", name=name, patch={"status": status}, subresource="status"
        )
        # Admission taints a new node as not ready, and the controller that would lift it is off.
        self._control_plane.api.patch(
            "v1", "Node", name=name, patch={"spec": {"taints": list(taints)}}
        )

    def cordon(self, name: str, *, unschedulable: bool = True) -> None:
        """Keep new pods away from a node; ``unschedulable=False`` takes it back."""
        self._control_plane.api.patch(
            "v1", "Node", name=name, patch={"spec": {"unschedulable": unschedulable}}
        )

    def remove(self, name: str) -> None:
        """Lose a node: its pods are deleted by force and their processes end."""
        self._control_plane.api.delete("v1", "Node", name=name)
        for pod in self._control_plane.api.list("v1", "Pod", fields=f"spec.nodeName={name}"):
            metadata = pod["metadata"]
            self._control_plane.api.delete(
                "v1",
                "Pod",
                name=metadata["name"],
                namespace=metadata["namespace"],
                grace=0,
                missing_ok=True,
            )
