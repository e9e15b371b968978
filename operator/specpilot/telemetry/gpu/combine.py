"""From the numbers of single devices to the numbers of a pod, or why there is none.

A number is given for all of a pod's devices or not at all: the power of three GPUs out of four is
not a lower bound that anybody asked for. Shares are averaged over the devices, bytes and watts
added up, each device once however often it is reported.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from specpilot.domain.readings import UnknownReason
from specpilot.telemetry.gpu.catalogue import AVERAGED, LARGEST, Exporter, Scope
from specpilot.telemetry.gpu.samples import Owner, Sample
from specpilot.telemetry.names import DeviceGauge
from specpilot.telemetry.windows import Fault

_NO_TIMES: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDevices:
    """What is known of the devices of one pod at one moment.

    Attributes:
        gauges: A share of 1, bytes or watts, over all its devices.
        faults: Why a gauge has no number; every gauge is either here or in `gauges`.
        notes: What a number covers when that is not the pod alone, or which doubt it carries.
        devices: Its devices.
        targets: Where their numbers were scraped.
        at: Time of the sample, seconds since the epoch; None when nobody said.
    """

    gauges: Mapping[DeviceGauge, float] = field(default_factory=dict)
    faults: Mapping[DeviceGauge, Fault] = field(default_factory=dict)
    notes: Mapping[DeviceGauge, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    targets: frozenset[str] = frozenset()
    at: float | None = None


def unseen() -> Fault:
    """No exporter names this pod."""
    words = (
        "no GPU exporter reports a device of this pod: install the vendor's exporter, let it map "
        "devices to pods (NVIDIA: DCGM_EXPORTER_KUBERNETES=true, and KUBERNETES_VIRTUAL_GPUS=true "
        "where GPUs are time-sliced) and let it be scraped"
    )
    return Fault(reason=UnknownReason.NOT_EXPORTED, words=words)


def by_pod(
    samples: Sequence[Sample], *, times: Mapping[str, float] = _NO_TIMES
) -> dict[Owner, PodDevices]:
    """The devices of every pod that has any.

    Args:
        samples: Of one moment, of all pods that are of interest: who shares a device is seen here.
        times: When each target was scraped, seconds since the epoch.
    """
    owned: dict[Owner, list[Sample]] = {}
    for sample in samples:
        if sample.owner is not None:
            owned.setdefault(sample.owner, []).append(sample)
    context = _Context.of(samples, times)
    return {owner: _pod(mine, context) for owner, mine in owned.items()}


def of_devices(
    mine: Sequence[Sample], *, among: Sequence[Sample], times: Mapping[str, float] = _NO_TIMES
) -> PodDevices | None:
    """These devices, which somebody says are theirs whatever the exporter says; None of none."""
    return _pod(mine, _Context.of(among, times)) if mine else None


@dataclass(frozen=True, slots=True)
class _Context:
    """What has to be known of all pods to understand one of them.

    Attributes:
        users: Pods by device and by board.
        numbers: Values by series, device and pod.
        percent: Exporters and targets whose shares are not shares of 1.
        times: When each target was scraped.
    """

    users: Mapping[str, frozenset[Owner]]
    numbers: Mapping[tuple[str, str], Mapping[Owner, float]]
    percent: frozenset[tuple[str, str]]
    times: Mapping[str, float]

    @classmethod
    def of(cls, samples: Iterable[Sample], times: Mapping[str, float]) -> "_Context":
        users: dict[str, set[Owner]] = {}
        numbers: dict[tuple[str, str], dict[Owner, float]] = {}
        percent = set()
        for sample in samples:
            if sample.owner is not None:
                for name in (sample.device, sample.board):
                    users.setdefault(name, set()).add(sample.owner)
                of_device = numbers.setdefault((sample.series.name, sample.device), {})
                of_device[sample.owner] = sample.value
            if sample.series.doubt and sample.value > LARGEST[sample.series.gauge]:
                percent.add((sample.exporter.name, sample.target))
        return cls(
            users={name: frozenset(owners) for name, owners in users.items()},
            numbers=numbers,
            percent=frozenset(percent),
            times=times,
        )


def _pod(samples: Sequence[Sample], context: _Context) -> PodDevices:
    devices: dict[str, list[Sample]] = {}
    for sample in samples:
        devices.setdefault(sample.device, []).append(sample)
    gauges: dict[DeviceGauge, float] = {}
    faults: dict[DeviceGauge, Fault] = {}
    notes: dict[DeviceGauge, str] = {}
    for gauge in DeviceGauge:
        answer = _over_devices(gauge, devices, context)
        if isinstance(answer, Fault):
            faults[gauge] = answer
            continue
        gauges[gauge], note = answer
        if note:
            notes[gauge] = note
    targets = frozenset(sample.target for sample in samples)
    dated = [context.times[target] for target in targets if target in context.times]
    return PodDevices(
        gauges=gauges,
        faults=faults,
        notes=notes,
        devices=tuple(sorted(devices)),
        targets=targets,
        at=min(dated, default=None),  # as old as its oldest number
    )


def _over_devices(
    gauge: DeviceGauge, devices: Mapping[str, Sequence[Sample]], context: _Context
) -> tuple[float, str] | Fault:
    values: dict[str, float] = {}  # by board where the number is the board's
    notes: list[str] = []
    missing: list[Fault] = []
    for device, samples in devices.items():
        chosen = _preferred(gauge, samples)
        if isinstance(chosen, Fault):
            missing.append(chosen)
            continue
        value = _of_device(chosen, context)
        if isinstance(value, Fault):
            return value
        first = chosen[0]
        place = first.board if first.series.scope is Scope.BOARD else device
        if values.setdefault(place, value) != value:
            words = (
                f"{first.series.name} of GPU {place} differs between its parts "
                f"({values[place]:g}, {value:g}): see whether it is scraped more than once"
            )
            return Fault(reason=UnknownReason.AMBIGUOUS, words=words)
        notes.append(_note(first, context))
    if missing:
        some = f" (for {len(missing)} of {len(devices)} devices)" if values else ""
        return Fault(reason=missing[0].reason, words=missing[0].words + some)
    total = math.fsum(values.values())
    note = "; ".join(dict.fromkeys(each for each in notes if each))
    return total / len(values) if gauge in AVERAGED else total, note


def _preferred(gauge: DeviceGauge, samples: Sequence[Sample]) -> list[Sample] | Fault:
    """The samples of the best series of this gauge that one device has."""
    found = [sample for sample in samples if sample.series.gauge is gauge]
    valid = [sample for sample in found if not sample.limit]
    if valid:
        best = min(sample.rank for sample in valid)
        return [sample for sample in valid if sample.rank == best]
    first = samples[0]
    if found:
        words = f"{first.exporter.name}: {found[0].limit}"
    else:
        words = f"{first.exporter.name} knows {first.device}, but {_remedy(first.exporter, gauge)}"
    return Fault(reason=UnknownReason.NOT_EXPORTED, words=words)


def _remedy(exporter: Exporter, gauge: DeviceGauge) -> str:
    return f"not its {gauge}: {exporter.missing[gauge]}"


def _of_device(samples: Sequence[Sample], context: _Context) -> float | Fault:
    """One number of one device from all reports of one series."""
    whole = [sample for sample in samples if not sample.tile]
    tiles: dict[str, list[Sample]] = {}
    for sample in whole or samples:
        tiles.setdefault(sample.tile, []).append(sample)
    values: list[float] = []
    for reports in tiles.values():
        for report in reports:
            if fault := _unusable(report, context):
                return fault
        if len({report.value for report in reports}) > 1:
            return _contradiction(reports)
        values.append(reports[0].value * reports[0].series.scale)
    total = math.fsum(values)
    if samples[0].series.gauge in AVERAGED:
        return min(1.0, total / len(values))
    return total


def _unusable(sample: Sample, context: _Context) -> Fault | None:
    """Why a number cannot be what the catalogue says it is."""
    name, value = sample.series.name, sample.value
    what = f"{name} of {sample.device}"
    if math.isnan(value):
        return Fault(reason=UnknownReason.NAN, words=f"{what} is NaN: see the exporter's log")
    if value < 0 or math.isinf(value):
        words = f"{what} is {value:g}, which no device can have: see the exporter's log"
        return Fault(reason=UnknownReason.NAN, words=words)
    if sample.series.doubt and (sample.exporter.name, sample.target) in context.percent:
        words = (
            f"{sample.exporter.name} at {sample.target or 'this address'} exports shares above 1: "
            f"this version's scale is percent, and a number below 1 could be either "
            f"({sample.series.doubt}); have it rescaled by a metric relabelling or a newer version"
        )
        return Fault(reason=UnknownReason.AMBIGUOUS, words=words)
    if value * sample.series.scale > LARGEST[sample.series.gauge]:
        hint = "percent exported as a ratio" if sample.series.gauge in AVERAGED else "another unit"
        words = (
            f"{what} is {value:g}, more than a device can have: usually {hint}, "
            "or the blank value of a GPU that does not measure it"
        )
        return Fault(reason=UnknownReason.NAN, words=words)
    return None


def _contradiction(reports: Sequence[Sample]) -> Fault:
    first = reports[0]
    numbers = ", ".join(f"{report.value:g}" for report in reports)
    targets = sorted({report.target for report in reports if report.target})
    if len(targets) > 1:
        words = f"is scraped {len(targets)} times ({'; '.join(targets)}) with different numbers"
        remedy = "scrape the exporter once, or choose one copy with matchers"
    else:
        words = "has several numbers for one pod"
        remedy = "see which labels tell them apart"
    words = f"{first.series.name} of {first.device} {words} ({numbers}): {remedy}"
    return Fault(reason=UnknownReason.AMBIGUOUS, words=words)


def _note(sample: Sample, context: _Context) -> str:
    """What a number covers beside the pod, "" when it is the pod's own."""
    series, doubt = sample.series, sample.series.doubt
    if series.scope is Scope.BOARD:
        others = context.users.get(sample.board, frozenset()) - {sample.owner}
        if sample.device != sample.board and sample.exporter.part_alias:
            return f"of the whole GPU {sample.board}, of which this replica has an instance"
        if others or sample.shared:
            return f"of the whole GPU {sample.board}, shared {_with(len(others))}"
        return doubt
    others = context.users.get(sample.device, frozenset()) - {sample.owner}
    if not others and not sample.shared:
        return doubt
    shared = f"device {sample.device}, shared {_with(len(others))}"
    if series.scope is Scope.DEVICE:
        return f"of the whole {shared}"
    numbers = context.numbers.get((series.name, sample.device), {})
    if len(set(numbers.values())) > 1:
        return f"of the replica's own processes on {shared}"
    return f"of {shared}: its own processes', but exporters before 4.5 repeat the device's number"


def _with(others: int) -> str:
    if not others:
        return "by time-slicing"
    return f"with {others} other {'pod' if others == 1 else 'pods'}"
