"""The example pages, and the same series as Prometheus would return them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from specpilot.telemetry.gpu.combine import PodDevices, by_pod
from specpilot.telemetry.gpu.page import parse
from specpilot.telemetry.gpu.samples import Owner, understood
from specpilot.telemetry.names import DeviceGauge

PAGES = Path(__file__).parents[3] / "data" / "gpu"
NAMES = sorted(path.stem for path in PAGES.glob("*.prom"))

UTIL = DeviceGauge.UTIL
TENSOR = DeviceGauge.TENSOR_ACTIVE
DRAM = DeviceGauge.DRAM_ACTIVE
MEMORY = DeviceGauge.MEMORY_USED
POWER = DeviceGauge.POWER

MIB = 1024 * 1024
CHAT = ("serving", "chat-0")
MAIL = ("serving", "mail-0")
GPU_0 = "GPU-8f2c1d90-3e5a-4b7c-9d1e-5a6b7c8d9e0f"
GPU_1 = "GPU-1b2a3c4d-5e6f-4a7b-8c9d-0e1f2a3b4c5d"


def example(name: str) -> bytes:
    return (PAGES / f"{name}.prom").read_bytes()


def pods(page: bytes) -> dict[Owner, PodDevices]:
    """What a page says of pods."""
    return by_pod(understood(parse(page)))


def vector(page: bytes, **target: str) -> list[dict[str, Any]]:
    """The series of a page as an instant vector, with labels of a target that honours labels."""
    return [
        {
            "metric": {"__name__": sample.name, **target, **_present(sample.labels)},
            "value": [1_700_000_000.0, str(sample.value)],
        }
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    ]


def series(name: str, value: float | str, **labels: str) -> dict[str, Any]:
    """One element of an instant vector."""
    return {"metric": {"__name__": name, **labels}, "value": [1_700_000_000.0, str(value)]}


def answer(*elements: object) -> bytes:
    """What Prometheus sends for an instant query."""
    data = {"resultType": "vector", "result": elements}
    return json.dumps({"status": "success", "data": data}).encode()


def _present(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if value}  # Prometheus drops empty ones
