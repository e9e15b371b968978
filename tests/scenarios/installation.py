"""Specpilot installed in the test cluster as its user would: by Helm, from this chart.

It runs as its own ServiceAccount, so what the chart's RBAC forbids fails here too.
"""

import functools
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from specpilot.domain.audit import AuditRecord, Verification
from specpilot.domain.changes import FlagChange
from specpilot.store import Store
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_for

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "specpilot"
NAMESPACE = "specpilot-system"
RELEASE = "specpilot"
WEBHOOK_SECRET = "alert-webhook"
"""The one Secret that alert channels of the tests refer to."""

START_DEADLINE = 180.0
"""Seconds until the operator is ready; generous, for a machine that is busy otherwise."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A release of the chart."""

    cluster: Cluster
    namespace: str = NAMESPACE
    release: str = RELEASE

    def pods(self) -> list[dict[str, Any]]:
        """The operator's pods, oldest first, those that are going away included."""
        return self.cluster.pods(self.namespace, labels="app.kubernetes.io/name=specpilot")

    @property
    def pod(self) -> str:
        """Name of the operator's pod.

        Raises:
            AssertionError: There is none at the moment: it is being replaced.
        """
        found = [p for p in self.pods() if "deletionTimestamp" not in p["metadata"]]
        assert len(found) == 1, f"{len(found)} pods of the operator"
        return str(found[0]["metadata"]["name"])

    @property
    def log(self) -> str:
        """What the newest pod has said."""
        found = self.pods()
        return self.cluster.log(self.namespace, found[-1]["metadata"]["name"]) if found else ""

    @property
    def database(self) -> str:
        """URL of the release's database: the file in its volume."""
        volume = self.cluster.directory / "kubelet" / "claims" / self.namespace / self.release
        return f"sqlite:///{volume / 'specpilot.sqlite'}"

    @functools.cached_property
    def store(self) -> Store:
        """The same database as the operator's, read beside it."""
        return Store.open(self.database)

    def changes(self, namespace: str) -> list[FlagChange]:
        """Flag changes of a namespace, oldest first."""
        with self.store.read() as unit:
            found = unit.changes.recent(limit=200)
        return [c for c in reversed(found) if c.target.namespace == namespace]

    def records(self, change: str) -> list[AuditRecord]:
        """Audit records of a flag change, oldest first."""
        with self.store.read() as unit:
            return unit.audit.records(change_id=change)

    def verify(self) -> Verification:
        """Walk the audit chain."""
        with self.store.read() as unit:
            return unit.audit.verify()

    def url(self, path: str) -> str:
        """A path of the operator's own server."""
        pod = self.cluster.api.get("v1", "Pod", name=self.pod, namespace=self.namespace)
        return f"http://{pod['status']['podIP']}:8080{path}"

    def ready(self) -> bool:
        """Whether the operator says that it is ready and leads."""
        try:
            ready = httpx.get(self.url("/readyz"), trust_env=False, timeout=5)
            metrics = httpx.get(self.url("/metrics"), trust_env=False, timeout=5)
        except (httpx.HTTPError, KeyError, AssertionError):
            return False
        return ready.is_success and "specpilot_leader 1.0" in metrics.text

    def process(self) -> psutil.Process | None:
        """The operator's process, None while there is none."""
        for process in psutil.Process(self.cluster.kubelet.pid).children(recursive=True):
            try:
                line = process.cmdline()
            except psutil.Error:
                continue
            if line[-1:] == ["operator"] and "sandbox" not in " ".join(line):
                return process
        return None

    def kill(self) -> None:
        """End the operator's process as a power cut would; the kubelet starts another one."""
        process = self.process()
        assert process is not None, f"the operator does not run\n{self.describe()}"
        os.kill(process.pid, signal.SIGKILL)

    def describe(self) -> str:
        return self.cluster.describe(self.namespace)


@contextmanager
def installed(
    cluster: Cluster, *, values: Mapping[str, str], namespace: str = NAMESPACE
) -> Iterator[Installation]:
    """Install the chart, wait until the operator leads, and remove it at the end.

    Args:
        cluster: Where.
        values: Of the chart, as `--set` takes them.
        namespace: Where the operator itself lives.
    """
    images(cluster)
    with cluster.namespace(namespace):
        options = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        cluster.run(
            *("helm", "install", RELEASE, str(CHART), "--namespace", namespace, *options),
            deadline=120,
        )
        installation = Installation(cluster=cluster, namespace=namespace)
        wait_for(installation.ready, deadline=START_DEADLINE, describe=installation.describe)
        with closing(installation.store):
            yield installation
        cluster.run("helm", "uninstall", RELEASE, "--namespace", namespace, deadline=120)


def images(cluster: Cluster) -> None:
    """What stands for the images: the checkout's own operator, and simulated engines."""
    cluster.images.add(
        "specpilot/specpilot:",
        entrypoint=[str(Path(sys.executable).with_name("specpilot"))],
        environment={"PYTHONPATH": str(ROOT / "operator")},
    )
    for version in ("0.32.0", "0.9.1"):
        cluster.images.add(
            f"vllm/vllm-openai:v{version}",
            entrypoint=[sys.executable, "-m", "specpilot.sim", "serve"],
            environment={
                "PYTHONPATH": str(ROOT / "operator"),
                "SPECPILOT_SIM_VERSION": version,
                "SPECPILOT_SIM_ARGS": "--sim-profile demo --sim-startup-seconds 1",
                "VLLM_SERVER_DEV_MODE": "1",
            },
        )


SCOPED = ("team-inside", "team-outside")
"""Namespaces that the scenarios' installation leaves to another one."""

VALUES = {
    "prometheus.url": "",  # filled in by the fixture
    "evaluation.intervalSeconds": "1",
    "evaluation.scrapeIntervalSeconds": "1",
    "leaderElection.leaseDurationSeconds": "9",
    "alerts.secretNames": f"{{{WEBHOOK_SECRET}}}",
}
"""A quick pace; everything else as the chart has it."""
