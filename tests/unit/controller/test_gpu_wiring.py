"""What the services ask about GPUs, by what they were given."""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

import pytest

from specpilot.controller.cluster_service import ClusterOptions, ClusterService
from specpilot.controller.local_service import LocalService
from specpilot.fleets.kubernetes import ApiError
from specpilot.store import Store
from specpilot.telemetry import PrometheusServer
from specpilot.telemetry.gpu import DeviceChoice, ExporterTelemetry, PrometheusDevices
from tests.cluster.ports import free_port
from tests.cluster.waiting import wait_for
from tests.integration.telemetry.servers import Answer, serving

NOBODY = "http://127.0.0.1:1"


def gpu_threads() -> set[str]:
    return {t.name for t in threading.enumerate()} & {"gpu exporters", "prometheus gpu"}


class NoCluster:
    """An API server that has none of the kinds that come with something else."""

    def send(self, _: object) -> object:
        raise ApiError("there is no such kind", status=404)


@pytest.mark.parametrize(
    ("prometheus", "exporters", "kind", "reason"),
    [
        (False, (), type(None), "nobody is asked"),
        (True, (), PrometheusDevices, "it scrapes the exporters, or says that it knows none"),
        (False, (NOBODY,), ExporterTelemetry, "no Prometheus"),
        (True, (NOBODY,), DeviceChoice, "one after the other"),
    ],
)
def test_a_cluster(
    tmp_path: Path, prometheus: bool, exporters: tuple[str, ...], kind: type, reason: str
) -> None:
    server = PrometheusServer(url=f"http://127.0.0.1:{free_port()}") if prometheus else None
    options = ClusterOptions(prometheus=server, gpu_exporters=exporters)
    with closing(Store.open(f"sqlite:///{tmp_path / 'specpilot.sqlite'}")) as store:
        service = ClusterService(
            api=cast("Any", NoCluster()), store=store, options=options, on_lost=lambda _: None
        )
        with ExitStack() as stack:
            assert type(service._devices(stack)) is kind, reason
            assert len(gpu_threads()) == prometheus + bool(exporters)
    assert not gpu_threads()


def test_one_machine(tmp_path: Path) -> None:
    with closing(Store.open(f"sqlite:///{tmp_path / 'specpilot.sqlite'}")) as store:
        with LocalService(store=store, state_dir=tmp_path):
            assert not gpu_threads(), "nobody is asked by default"
        with (
            serving(Answer()) as exporter,
            LocalService(store=store, state_dir=tmp_path, gpu_exporters=(exporter.url,)),
        ):
            wait_for(lambda: exporter.seen, deadline=20, describe="the exporter to be asked")
            assert exporter.seen[0].path == "/metrics"
    assert not gpu_threads()
