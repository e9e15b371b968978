"""The form in which an exporter is described: data that the rest of this package interprets.

A new exporter, a renamed series or another unit is a row in `vendors`, not an `if`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from specpilot.telemetry.names import DeviceGauge

MIB = float(1 << 20)

AVERAGED = frozenset({DeviceGauge.UTIL, DeviceGauge.TENSOR_ACTIVE, DeviceGauge.DRAM_ACTIVE})
"""Gauges that are a share of 1: averaged over a replica's devices, where the others are summed."""

ROUNDING = 0.01
"""How far above 1 a share may lie; exporters divide counters of two clocks. It is cut to 1."""

LARGEST: Mapping[DeviceGauge, float] = {
    **dict.fromkeys(AVERAGED, 1.0 + ROUNDING),
    DeviceGauge.MEMORY_USED: float(1 << 50),
    DeviceGauge.POWER: 1e4,
}
"""What one device can be at most; DCGM's blank values and numbers of another unit lie above it."""


class Scope(StrEnum):
    """What one number covers where pods share a GPU."""

    BOARD = "board"  # the physical GPU, also when it is reported for a part of it
    DEVICE = "device"  # the GPU, or the MIG instance or partition; repeated for every pod on it
    PROCESS = "process"  # the pod's own processes (before DCGM exporter 4: the device's)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A label's value with which a series must not be taken for the device's number.

    Attributes:
        label: The label.
        value: Its values, matched as a whole; a label that is not there is "".
        words: Why, and what to use instead.
    """

    label: str
    value: re.Pattern[str]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series of an exporter.

    Attributes:
        name: Its name, without the exporter's prefix.
        gauge: What it measures.
        scale: Factor to the product's unit (a share of 1, bytes, watts).
        fact: Where name and unit are from.
        scope: What it covers.
        where: Labels it must have; other series of the name measure something else.
        limits: Where it is not valid.
        doubt: Why the scale itself is in doubt; one number above 1 then refuses all of its target.
    """

    name: str
    gauge: DeviceGauge
    scale: float
    fact: str
    scope: Scope = Scope.DEVICE
    where: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """One exporter.

    Attributes:
        name: In words.
        series: By gauge and then in order of preference.
        missing: Per gauge, what to do when the exporter knows a device but not this number.
        owners: (namespace, pod) labels of the workload, in order of preference. Prometheus moves
            an exporter's own `pod` to `exported_pod` unless its scrape honours labels.
        device: Labels that identify a GPU, the first group that is there; a series without any
            of them is of no device.
        part_of_gpu: Label of a MIG instance or a partition, which is a device of its own.
        part_alias: Name of such a part in the device list of a process, from `board` and `part`;
            "" where parts are numbered like devices.
        tile: Label of a part whose whole is exported as well.
        sharing: Label that is only there where a GPU is shared by time-slicing.
        indices: Labels that number a device on its machine.
        prefixed: Whether the user may put any prefix before the names.
    """

    name: str
    series: tuple[Series, ...]
    missing: Mapping[DeviceGauge, str]
    owners: tuple[tuple[str, str], ...]
    device: tuple[tuple[str, ...], ...]
    part_of_gpu: str = ""
    part_alias: str = ""
    tile: str = ""
    sharing: str = ""
    indices: tuple[str, ...] = ()
    prefixed: bool = False


PLAIN = ("namespace", "pod")
EXPORTED = ("exported_namespace", "exported_pod")
OLD = ("pod_namespace", "pod_name")
KUBE = ("kube_namespace", "kube_pod")

OWN_CONTAINER = r"(.*-)?exporter(-container)?"
OWN_POD = r".*(dcgm|metrics)-exporter.*"
"""An exporter's own container and pod, which Prometheus puts on series of devices nobody uses."""
