"""`specpilot operator`: steer the workloads of a Kubernetes cluster."""

import logging
import os
import signal
import threading
from pathlib import Path
from typing import Annotated

import platformdirs
import typer

from specpilot.cli import gpu, prometheus
from specpilot.cli.state import database_url
from specpilot.controller.cluster_service import ClusterOptions, ClusterService
from specpilot.controller.metrics import registry
from specpilot.fleets.kubernetes import FIELD_MANAGER, Terms, connect
from specpilot.store import Store
from specpilot.telemetry.memory import calm_collector
from specpilot.web.probes import ProbeServer

log = logging.getLogger(__name__)

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
INTERVAL_S = 15.0
"""Seconds between evaluations unless told otherwise."""


@prometheus.options(url="Prometheus, Thanos, Mimir or VictoriaMetrics; empty: direct scrape only.")
def operator(
    *,
    database: Annotated[
        str, typer.Option(envvar="SPECPILOT_DATABASE_URL", help="Database; SQLite by default.")
    ] = "",
    namespaces: Annotated[
        str, typer.Option(envvar="SPECPILOT_NAMESPACES", help="Comma-separated; empty: all.")
    ] = "",
    ignore_namespaces: Annotated[
        str,
        typer.Option(
            envvar="SPECPILOT_IGNORE_NAMESPACES",
            help="Comma-separated: those that another installation works in.",
        ),
    ] = "",
    prometheus_options: prometheus.Options,
    gpu_exporters: gpu.Exporters = "",
    gpu_matchers: gpu.Matchers = "",
    interval: Annotated[
        float, typer.Option(envvar="SPECPILOT_INTERVAL", help="Seconds between evaluations.")
    ] = INTERVAL_S,
    scrape_interval: Annotated[
        float, typer.Option(envvar="SPECPILOT_SCRAPE_INTERVAL", help="Seconds.")
    ] = 5.0,
    field_manager: Annotated[
        str, typer.Option(envvar="SPECPILOT_FIELD_MANAGER", help="Name for server-side apply.")
    ] = FIELD_MANAGER,
    lease_namespace: Annotated[
        str, typer.Option(envvar="SPECPILOT_LEASE_NAMESPACE", help="Namespace of the lease.")
    ] = "default",
    lease_name: Annotated[
        str, typer.Option(envvar="SPECPILOT_LEASE_NAME", help="Unique per installation.")
    ] = "specpilot",
    lease_duration: Annotated[
        float, typer.Option(envvar="SPECPILOT_LEASE_DURATION", help="Seconds.")
    ] = 30.0,
    max_concurrent_changes: Annotated[
        int,
        typer.Option(
            envvar="SPECPILOT_MAX_CONCURRENT_CHANGES",
            min=0,
            help="Changes in flight at a time, in all targets; 0 is any number.",
        ),
    ] = 0,
    bind: Annotated[
        str, typer.Option(envvar="SPECPILOT_BIND", help="Address of /healthz, /readyz, /metrics.")
    ] = "0.0.0.0",  # noqa: S104 - a pod is probed and scraped on its own address
    port: Annotated[int, typer.Option(envvar="SPECPILOT_PORT", help="Port of the same.")] = 8080,
) -> None:
    """Run the operator until SIGTERM. Several replicas elect a leader; the others stand by."""
    logging.getLogger().setLevel(logging.INFO)
    server = prometheus_options.server()
    if namespaces.strip() and ignore_namespaces.strip():
        raise typer.BadParameter(
            "--namespaces names all it works in; drop --ignore-namespaces, or --namespaces"
        )
    if gpu_matchers.strip() and server is None:
        raise typer.BadParameter(
            "--gpu-matchers belongs to no server; add --prometheus-url, or drop it"
        )
    if field_manager.startswith("kubectl"):
        raise typer.BadParameter(
            f"--field-manager {field_manager}: Flux undoes what managers named kubectl* wrote; "
            "take another name, such as specpilot"
        )
    exporters = gpu.exporter_urls([gpu_exporters])
    calm_collector()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    state = platformdirs.user_state_path("specpilot")
    store = Store.open(database or database_url(state))
    api = connect(in_cluster=IN_CLUSTER.exists(), field_manager=field_manager)
    options = ClusterOptions(
        namespaces=_names(namespaces),
        ignored=_names(ignore_namespaces),
        prometheus=server,
        gpu_exporters=exporters,
        gpu_matchers=gpu_matchers.strip(),
        interval_s=interval,
        scrape_interval_s=scrape_interval,
        most_concurrent=max_concurrent_changes or None,
        lease_namespace=lease_namespace,
        lease_name=lease_name,
        terms=Terms(
            duration_s=lease_duration,
            renew_deadline_s=lease_duration * 2 / 3,
            retry_s=lease_duration / 6,
        ),
    )
    with (
        ClusterService(api=api, store=store, options=options, on_lost=_die) as service,
        ProbeServer(
            host=bind,
            port=port,
            healthy=service.healthy,
            ready=service.ready,
            metrics=registry(store=store, runner=lambda: service.runner),
        ),
    ):
        stop.wait()
        log.info("stopping")
    store.close()


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _die(why: str) -> None:
    """End at once: another process may lead already, and nothing may be written after that."""
    log.error("leadership lost: %s", why)
    os._exit(1)
