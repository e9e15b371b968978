"""The whole test cluster: control plane, kubelet with nodes, Prometheus, kubectl and Helm."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.cluster import build
from tests.cluster.api import Api
from tests.cluster.controlplane import ADMIN, DEFAULT_USERS, ControlPlane
from tests.cluster.kubelet.options import BackOff, Image, KubeletOptions, write_images
from tests.cluster.nodes import Nodes
from tests.cluster.ports import free_port
from tests.cluster.processes import Process, ProcessError
from tests.cluster.prometheus import Prometheus
from tests.cluster.waiting import wait_for

JsonObject = dict[str, Any]

_CHECKOUT = Path(__file__).parents[2]
_KUBELET_DEADLINE = 60.0
_CLAIM_PORT = 10250


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The size and pace of a cluster.

    Attributes:
        gpu_nodes: how many nodes with GPUs, named ``gpu-1`` and so on; ``cpu-1`` comes in addition.
        gpus_per_node: ``nvidia.com/gpu`` of each.
        scrape_interval: of Prometheus, in seconds.
        back_off: of containers that ended.
        users: people with tokens, and their groups.
        isolate: give containers namespaces where the kernel allows it.
    """

    gpu_nodes: int = 2
    gpus_per_node: int = 8
    scrape_interval: float = 1.0
    back_off: BackOff = field(default_factory=BackOff)
    users: Mapping[str, Sequence[str]] = field(default_factory=lambda: DEFAULT_USERS)
    isolate: bool = True


class Images:
    """Which local command stands for which image; a longer prefix wins over a shorter one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Image] = {}

    def add(
        self,
        prefix: str,
        *,
        entrypoint: Sequence[str] = (),
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Let images whose name starts with ``prefix`` run a command of this machine.

        Args:
            prefix: for example ``vllm/vllm-openai:``.
            entrypoint: the argv that a container's ``command`` would replace.
            arguments: those that a container's ``args`` would replace.
            environment: variables of the image, such as ``PYTHONPATH`` or a ``PATH`` on which a
                container's ``command`` is found.
        """
        self._known[prefix] = Image(
            entrypoint=tuple(entrypoint),
            arguments=tuple(arguments),
            environment=dict(environment or {}),
        )
        write_images(self._path, self._known)

    def remove(self, prefix: str) -> None:
        """Forget a prefix: containers started from now on get ``ImagePullBackOff``."""
        del self._known[prefix]
        write_images(self._path, self._known)


class Cluster:
    """A cluster in one directory; a context manager that starts and stops it.

    Attributes:
        control_plane: etcd, API server, controllers and scheduler.
        nodes: add, cordon and remove.
        images: what stands for an image.
        prometheus: scraping the pods.
    """

    def __init__(self, *, directory: Path, options: ClusterOptions | None = None) -> None:
        self.directory = directory.resolve()
        self.options = options or ClusterOptions()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._programs = build.tools()
        self.bin = self._link_programs()
        self.control_plane = ControlPlane(
            directory=self.directory / "control-plane",
            programs=self._programs,
            users=self.options.users,
        )
        self.images = Images(self.directory / "images.json")
        self.prometheus = self.new_prometheus("prometheus")
        self._claim, self._subnet = _claim_subnet()
        self._kubelet_port = free_port()
        self.nodes = Nodes(control_plane=self.control_plane, kubelet_port=self._kubelet_port)
        self.kubelet = self._new_kubelet()

    def _link_programs(self) -> Path:
        """A directory with the programs that people call, to put on the PATH."""
        path = self.directory / "bin"
        path.mkdir(exist_ok=True)
        for name in ("kubectl", "helm"):
            link = path / name
            link.unlink(missing_ok=True)
            link.symlink_to(self._programs[name])
        return path

    def new_prometheus(
        self,
        name: str,
        *,
        scrape_interval: float | None = None,
        rules: JsonObject | None = None,
    ) -> Prometheus:
        """Another server of the same cluster, not started; the caller closes it."""
        return Prometheus(
            directory=self.directory / name,
            program=self._programs["prometheus"],
            server=self.control_plane.server,
            token=self.control_plane.token,
            ca_file=self.control_plane.ca_file,
            scrape_interval=scrape_interval or self.options.scrape_interval,
            rules=rules,
        )

    def _new_kubelet(self) -> Process:
        options_file = self.directory / "kubelet.json"
        KubeletOptions(
            server=self.control_plane.server,
            token=self.control_plane.token,
            ca_file=self.control_plane.ca_file,
            tls_cert_file=self.control_plane.ca_file,
            tls_key_file=self.control_plane.tls_key_file,
            port=self._kubelet_port,
            directory=self.directory / "kubelet",
            images_file=self.directory / "images.json",
            subnet=self._subnet,
            isolate=self.options.isolate,
            back_off=self.options.back_off,
        ).save(options_file)
        (self.directory / "kubelet").mkdir(exist_ok=True)
        return Process(
            name="kubelet",
            command=[sys.executable, "-m", "tests.cluster.kubelet", options_file],
            log=self.directory / "kubelet.log",
            directory=_CHECKOUT,
            environment={**os.environ, "PYTHONPATH": str(_CHECKOUT), "PATH": _path()},
        )

    @property
    def isolated(self) -> bool:
        """Whether containers have namespaces of their own, hence volumes at their mount paths."""
        return "namespaces of their own: yes" in self.kubelet.log.read_text()

    # -- what tests use -----------------------------------------------------------------------

    @property
    def api(self) -> Api:
        """The API as the administrator sees it."""
        return self.control_plane.api

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.control_plane.kubeconfig

    def environment(self, *, user: str = ADMIN) -> dict[str, str]:
        """This process's environment with kubectl and helm on the PATH, as ``user``."""
        home = self.directory / "home"
        return {
            **os.environ,
            "KUBECONFIG": str(self.control_plane.user(user).kubeconfig),
            "PATH": os.pathsep.join([str(self.bin), _path()]),
            "HELM_CACHE_HOME": str(home / "helm-cache"),
            "HELM_CONFIG_HOME": str(home / "helm-config"),
            "HELM_DATA_HOME": str(home / "helm-data"),
        }

    def run(
        self, *command: str, user: str = ADMIN, stdin: str | None = None, deadline: float = 60.0
    ) -> str:
        """Run ``kubectl ...`` or ``helm ...`` and return its standard output.

        Raises:
            AssertionError: it failed; with its output.
        """
        result = subprocess.run(
            command,
            env=self.environment(user=user),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=deadline,
            check=False,
        )
        assert result.returncode == 0, (
            f"{' '.join(command)}: exit {result.returncode}\n{result.stdout}{result.stderr}"
        )
        return result.stdout

    def pods(self, namespace: str, *, labels: str = "") -> list[JsonObject]:
        """The pods of a namespace, oldest first."""
        found = self.api.list("v1", "Pod", namespace=namespace, labels=labels)
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def log(
        self, namespace: str, pod: str, *, container: str | None = None, restart: int = -1
    ) -> str:
        """A container's output, also after the pod is gone.

        Args:
            namespace: of the pod.
            pod: name of the pod.
            container: may be left out when the pod has only one.
            restart: which run of the container; -1 is the latest, -2 the one before.
        """
        logs = sorted(
            (self.directory / "kubelet" / "pods").glob(
                f"{namespace}_{pod}_*/containers/{container or '*'}/*.log"
            ),
            key=lambda path: path.stat().st_mtime_ns,
        )
        if container is None and len({path.parent.name for path in logs}) > 1:
            raise ValueError(f"pod {pod} has several containers: name one")
        return logs[restart].read_text(errors="replace") if logs else ""

    def describe(self, namespace: str) -> str:
        """What a failed test wants to know of a namespace: workloads, pods, events, logs."""
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            overview = self.run(
                *("kubectl", "-n", namespace, "get", "deployments,replicasets,pods", "-o", "wide")
            )
            events = self.run(
                "kubectl", "-n", namespace, "get", "events", "--sort-by=.lastTimestamp"
            )
            logs = [
                f"--- {path.relative_to(self.directory)}\n"
                f"{path.read_text(errors='replace')[-1500:]}"
                for path in (self.directory / "kubelet" / "pods").glob(
                    f"{namespace}_*/containers/*/*.log"
                )
            ]
            return "\n".join([overview, events[-4000:], *logs[-8:]])
        return f"namespace {namespace}: kubectl failed"

    @contextlib.contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A namespace that is emptied at the end: nothing of it runs or holds a GPU afterwards."""
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        wait_for(
            lambda: self.api.exists("v1", "ServiceAccount", name="default", namespace=name),
            describe=f"ServiceAccount default of the new namespace {name}",
        )
        try:
            yield name
        finally:
            self.api.delete("v1", "Namespace", name=name)  # now nothing new can appear in it

            def empty() -> bool:
                pods = self.pods(name)
                for pod in pods:
                    self.api.delete(
                        "v1",
                        "Pod",
                        name=pod["metadata"]["name"],
                        namespace=name,
                        grace=0,
                        missing_ok=True,
                    )
                return not pods

            wait_for(empty, deadline=60.0, describe=lambda: self.describe(name))

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and add the nodes.

        Raises:
            ProcessError: a program did not become ready; with the end of its log.
        """
        self.control_plane.start()
        self.kubelet.start()
        self.prometheus.start()
        self.nodes.add("cpu-1")
        for number in range(1, self.options.gpu_nodes + 1):
            self.nodes.add(f"gpu-{number}", gpus=self.options.gpus_per_node)
        self.kubelet.wait_ready(
            lambda: "kubelet: running" in self.kubelet.log.read_text(), deadline=_KUBELET_DEADLINE
        )

    def check(self) -> None:
        """Make sure that every program still runs.

        Raises:
            ProcessError: one has ended; with the end of its log.
        """
        for process in (
            *self.control_plane.processes,
            self.kubelet,
            self.prometheus.process,
        ):
            if not process.running:
                raise ProcessError(f"{process.name} has ended\n{process.tail()}")

    def stop(self) -> None:
        """Stop everything; data and logs stay in the directory."""
        self.prometheus.close()
        self.kubelet.stop()
        self.control_plane.stop()
        self._claim.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _path() -> str:
    """The PATH with the programs of this Python first: the product's, when it is installed."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def _claim_subnet() -> tuple[socket.socket, int]:
    """Choose 127.N.0.0/16 for the pods; an open socket keeps other clusters off it."""
    for subnet in range(1, 255):
        claim = socket.socket()
        try:
            claim.bind((f"127.{subnet}.255.254", _CLAIM_PORT))
        except OSError:
            claim.close()
        else:
            return claim, subnet
    raise RuntimeError("254 test clusters run on this machine: stop some")
