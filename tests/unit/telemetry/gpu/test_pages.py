"""Every example page gives the numbers that a person reads off it, by either way in."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from specpilot.domain.readings import UnknownReason
from specpilot.telemetry.gpu.query import absorb
from specpilot.telemetry.gpu.samples import Owner
from specpilot.telemetry.names import DeviceGauge
from tests.unit.telemetry.gpu.examples import (
    CHAT,
    DRAM,
    MAIL,
    MEMORY,
    MIB,
    NAMES,
    POWER,
    TENSOR,
    UTIL,
    answer,
    example,
    pods,
    vector,
)

NOT_EXPORTED = UnknownReason.NOT_EXPORTED


@dataclass
class Case:
    page: str
    owner: Owner
    values: dict[DeviceGauge, float]
    reason: str
    unknown: dict[DeviceGauge, tuple[UnknownReason, str]] = field(default_factory=dict)
    notes: dict[DeviceGauge, str] = field(default_factory=dict)


TWO_H100 = {UTIL: 0.95, TENSOR: 0.2, DRAM: 0.63, MEMORY: (72912 + 72784) * MIB, POWER: 1000.0}
ONE_H100 = {UTIL: 0.97, TENSOR: 0.212345, DRAM: 0.64321, MEMORY: 72912 * MIB, POWER: 512.48}
TWO_MI300 = {UTIL: 0.92, TENSOR: 0.17, DRAM: 0.49, MEMORY: 351232 * MIB, POWER: 1340.0}
TILES_BYTES = 51539607552 + 50465865728
PARTITION = (NOT_EXPORTED, "first partition only")
PERCENT = (UnknownReason.AMBIGUOUS, "percent")

CASES = [
    Case("dcgm-plain", CHAT, TWO_H100, "shares averaged, bytes and watts added; the idle one out"),
    Case("dcgm-honor-labels-false", CHAT, TWO_H100, "the pod's name is in exported_pod"),
    Case("dcgm-old-labels", CHAT, ONE_H100, "the pod's name is in pod_name"),
    Case(
        "dcgm-without-profiling",
        CHAT,
        {UTIL: 0.95, MEMORY: TWO_H100[MEMORY], POWER: 1000.0},
        "a skipped line is not a 0",
        unknown={
            TENSOR: (NOT_EXPORTED, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
            DRAM: (NOT_EXPORTED, "profiling module"),
        },
    ),
    Case(
        "dcgm-mig",
        CHAT,
        {UTIL: 0.8712, TENSOR: 0.18, DRAM: 0.52, MEMORY: 29978 * MIB, POWER: 402.31},
        "under MIG utilisation is GR_ENGINE_ACTIVE; the power is the whole GPU's",
        notes={POWER: "of the whole GPU"},
    ),
    Case(
        "dcgm-mig",
        MAIL,
        {UTIL: 0.1123, TENSOR: 0.02, DRAM: 0.06, MEMORY: 8443 * MIB, POWER: 402.31},
        "the other instance has numbers of its own",
        notes={POWER: "of the whole GPU"},
    ),
    Case(
        "dcgm-mig",
        ("serving", "big-0"),
        {UTIL: 0.93, TENSOR: 0.187655, DRAM: 0.61679, MEMORY: 72784 * MIB, POWER: 487.52},
        "a GPU without MIG on the same node keeps GPU_UTIL",
    ),
    Case(
        "dcgm-time-sliced",
        CHAT,
        {**ONE_H100, UTIL: 0.71, MEMORY: 31744 * MIB},
        "two slices are one GPU, counted once; use and memory are the pod's own",
        notes={
            UTIL: "own processes",
            TENSOR: "whole device",
            DRAM: "shared with 1 other pod",
            MEMORY: "own processes",
            POWER: "of the whole GPU",
        },
    ),
    Case(
        "dcgm-time-sliced-before-4.5",
        MAIL,
        ONE_H100,
        "an older exporter repeats the device's numbers, and nothing in them tells",
        notes={
            UTIL: "before 4.5",
            TENSOR: "whole device",
            DRAM: "whole device",
            MEMORY: "before 4.5",
            POWER: "of the whole GPU",
        },
    ),
    Case("amd-plain", CHAT, TWO_MI300, "percent and 2^20 bytes"),
    Case("amd-prefixed", CHAT, TWO_MI300, "the prefix is the user's to choose"),
    Case(
        "amd-partitioned",
        MAIL,
        {TENSOR: 0.075, MEMORY: 20480 * MIB},
        "the 0 of a partition that is not measured is not a 0",
        unknown={UTIL: PARTITION, DRAM: PARTITION, POWER: PARTITION},
    ),
    Case(
        "intel",
        CHAT,
        {UTIL: 0.74, DRAM: 0.41, MEMORY: TILES_BYTES, POWER: 418.0},
        "tiles are only added where the GPU itself has no number",
        unknown={TENSOR: (NOT_EXPORTED, "no measure of the matrix engines")},
        notes={UTIL: "0.01", DRAM: "0.01"},
    ),
    Case(
        "intel-percent",
        CHAT,
        {MEMORY: TILES_BYTES, POWER: 418.0},
        "a share above 1 shows the scale to be percent; then no share of the target is taken",
        unknown={UTIL: PERCENT, DRAM: PERCENT, TENSOR: (NOT_EXPORTED, "matrix engines")},
    ),
    Case(
        "gaudi",
        CHAT,
        {UTIL: 0.84, MEMORY: 90194313216 + 89120571390, POWER: 809.0},
        "percent and milliwatts",
        unknown={TENSOR: (NOT_EXPORTED, "gpu_util"), DRAM: (NOT_EXPORTED, "gpu_util")},
    ),
]


@pytest.mark.parametrize("through", ["page", "Prometheus"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.page}-{c.owner[1]}")
def test_numbers_of_an_example(case: Case, through: str) -> None:
    page = example(case.page)
    target = {} if "honor" in case.page else {"job": "gpu", "instance": "10.0.0.1:9400"}
    found = pods(page) if through == "page" else absorb(answer(*vector(page, **target)))
    devices = found[case.owner]
    assert devices.gauges == pytest.approx(case.values), case.reason
    assert set(devices.faults) == set(case.unknown), case.reason
    for gauge, (reason, words) in case.unknown.items():
        assert devices.faults[gauge].reason is reason, case.reason
        assert words in devices.faults[gauge].words, case.reason
    assert set(devices.notes) == set(case.notes), case.reason
    for gauge, words in case.notes.items():
        assert words in devices.notes[gauge], case.reason


def test_every_example_is_in_the_table() -> None:
    assert sorted({case.page for case in CASES}) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_only_workloads_own_devices(name: str) -> None:
    found = pods(example(name))
    assert {namespace for namespace, _ in found} == {"serving"}
    for devices in found.values():
        assert set(devices.gauges) | set(devices.faults) == set(DeviceGauge)
        assert not set(devices.gauges) & set(devices.faults)
