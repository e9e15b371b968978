"""Two replicas of the operator over one PostgreSQL: a leader that was stopped writes no more."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from specpilot.store import Store
from specpilot.store.database import WRITER_LOCK
from tests.cluster.cluster import Cluster
from tests.cluster.ports import free_port
from tests.cluster.processes import Process
from tests.cluster.waiting import wait_for

psycopg = pytest.importorskip("psycopg", reason="needs specpilot[postgres]")
from tests.unit.store import postgres  # noqa: E402 - imports psycopg

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
LEASE_S = 6.0
DEADLINE = 120.0
"""Seconds for a step; a machine busy with other things takes many times its few."""


@pytest.fixture
def database() -> Iterator[str]:
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres.server())
        except postgres.NoPostgresError as problem:
            pytest.skip(str(problem))
        yield stack.enter_context(postgres.database(server, name="leaders"))


class Replica:
    """One operator."""

    def __init__(self, cluster: Cluster, directory: Path, *, name: str, database: str, where: str):
        self.port = free_port()
        self.process = Process(
            name=name,
            command=[
                *(sys.executable, "-m", "specpilot", "operator", "--interval", "1"),
                *("--database", database, "--namespaces", where),
                *("--lease-namespace", where, "--lease-duration", f"{LEASE_S:g}"),
                *("--bind", "127.0.0.1", "--port", str(self.port)),
            ],
            log=directory / f"{name}.log",
            environment={
                **os.environ,
                "KUBECONFIG": str(cluster.kubeconfig),
                "PYTHONPATH": str(ROOT / "operator"),
            },
        )

    def leads(self) -> bool:
        try:
            page = httpx.get(f"http://127.0.0.1:{self.port}/metrics", trust_env=False, timeout=5)
        except httpx.HTTPError:
            return False
        return "specpilot_leader 1.0" in page.text

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


def rule_set(batch: int) -> dict[str, Any]:
    rule = {"name": "busy", "when": f"batch_size > {batch}", "setting": "off"}
    return {
        "apiVersion": "specpilot.io/v1alpha1",
        "kind": "RuleSet",
        "metadata": {"name": "guard"},
        "spec": {"rules": [rule]},
    }


@pytest.fixture
def apply(cluster: Cluster, namespace: str) -> Callable[[int], None]:
    """Apply the rule set, as a user does."""
    for path in sorted((ROOT / "charts" / "specpilot" / "crds").glob("*.yaml")):
        cluster.api.apply(yaml.safe_load(path.read_text()))

    def apply(batch: int) -> None:
        def accepted() -> bool:
            cluster.run(
                *("kubectl", "-n", namespace, "apply", "-f", "-"),
                stdin=yaml.safe_dump(rule_set(batch)),
            )
            return True

        wait_for(accepted, deadline=DEADLINE, describe="the custom resources are served")

    return apply


def test_a_leader_that_was_stopped_in_mid_transaction_neither_blocks_nor_overwrites_the_next_one(
    cluster: Cluster,
    namespace: str,
    database: str,
    apply: Callable[[int], None],
    tmp_path: Path,
) -> None:
    """kubeai#67, keda#1030: two that both act, and one that is gone and keeps the lock."""
    apply(1)
    first, second = (
        Replica(cluster, tmp_path, name=name, database=database, where=namespace)
        for name in ("first", "second")
    )
    with ExitStack() as stack:
        store = stack.enter_context(closing(Store.open(database)))

        def version() -> int:
            with store.read() as unit:
                found = unit.rules.latest(namespace=namespace, name="guard")
            return 0 if found is None else found.version

        for replica in (first, second):
            replica.process.start()
            stack.callback(replica.process.stop)
            if replica is first:
                replica.process.wait_ready(lambda: first.leads() and version() == 1, deadline=120)

        # Somebody else writes just now, so that the first leader's transaction has to wait.
        other = stack.enter_context(closing(psycopg.connect(database, autocommit=True)))
        other.execute("SELECT pg_advisory_lock(%s)", [WRITER_LOCK])
        apply(2)
        wait_for(
            lambda: other.execute(
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            ).fetchone(),
            deadline=DEADLINE,
            every=0.02,
            describe=lambda: f"the leader waits to write\n{first.process.tail()}",
        )
        first.signal(signal.SIGSTOP)
        try:
            other.execute("SELECT pg_advisory_unlock(%s)", [WRITER_LOCK])
            wait_for(second.leads, deadline=DEADLINE, describe=second.process.tail)
            wait_for(
                lambda: version() == 2,
                deadline=DEADLINE,
                describe=lambda: f"the next leader writes\n{second.process.tail()}",
            )
        finally:
            first.signal(signal.SIGCONT)
        wait_for(
            lambda: not first.process.running,
            deadline=DEADLINE,
            describe=lambda: f"the old leader ends by itself\n{first.process.tail()}",
        )
        with store.read() as unit:
            applied = [r for r in unit.audit.records() if r.draft.action == "RuleSetApplied"]
        assert [r.draft.after["version"] for r in applied] == [1, 2], "each once"
        holders = other.execute("SELECT holder, transitions FROM leadership").fetchall()
        assert [transitions for _, transitions in holders] == [1], "the second leader's"
        assert second.leads()
        assert "leadership lost" in first.process.log.read_text()
