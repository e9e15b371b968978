"""Numbers that must not be taken are refused in words; numbers of several devices are combined."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.readings import UnknownReason
from specpilot.telemetry.gpu.catalogue import AVERAGED, LARGEST
from specpilot.telemetry.gpu.combine import PodDevices, by_pod
from specpilot.telemetry.gpu.samples import Line, understood
from specpilot.telemetry.names import DeviceGauge
from tests.unit.telemetry.gpu.examples import CHAT, MAIL, MEMORY, MIB, POWER, TENSOR, UTIL

IN_CHAT = {"namespace": "serving", "pod": "chat-0"}
IN_MAIL = {"namespace": "serving", "pod": "mail-0"}
NAN = UnknownReason.NAN
AMBIGUOUS = UnknownReason.AMBIGUOUS
NOT_EXPORTED = UnknownReason.NOT_EXPORTED


def dcgm(field: str, value: float, uuid: str = "GPU-a", **labels: str) -> Line:
    return (f"DCGM_FI_{field}", {"UUID": uuid, **(labels or IN_CHAT)}, value)


def pod(*lines: Line, times: Mapping[str, float] | None = None) -> PodDevices:
    return by_pod(understood(lines), times=times or {})[CHAT]


@pytest.mark.parametrize(
    ("field", "value", "gauge", "words", "reason"),
    [
        ("DEV_GPU_UTIL", math.nan, UTIL, "is NaN", "not a number"),
        ("DEV_GPU_UTIL", -1, UTIL, "no device can have", "below 0"),
        ("DEV_FB_USED", math.inf, MEMORY, "no device can have", "infinite"),
        ("DEV_GPU_UTIL", 9700, UTIL, "percent exported as a ratio", "percent of a percent"),
        ("PROF_PIPE_TENSOR_ACTIVE", 21, TENSOR, "percent exported as a ratio", "percent"),
        ("PROF_PIPE_TENSOR_ACTIVE", 1.02, TENSOR, "more than a device can have", "not rounding"),
        ("DEV_POWER_USAGE", 512480, POWER, "another unit", "milliwatts"),
        ("DEV_FB_USED", 2147483632 * 4096, MEMORY, "blank value", "DCGM's blank integer"),
    ],
)
def test_impossible_numbers_are_refused(
    field: str, value: float, gauge: DeviceGauge, words: str, reason: str
) -> None:
    found = pod(dcgm(field, value))
    assert gauge not in found.gauges, reason
    assert found.faults[gauge].reason is NAN, reason
    assert words in found.faults[gauge].words, reason
    assert "GPU-a" in found.faults[gauge].words, reason


def test_a_bad_number_is_not_hidden_by_a_lesser_series() -> None:
    found = pod(dcgm("DEV_GPU_UTIL", math.nan), dcgm("PROF_GR_ENGINE_ACTIVE", 0.5))
    assert found.faults[UTIL].reason is NAN


def test_rounding_above_one_is_cut() -> None:
    assert pod(dcgm("PROF_PIPE_TENSOR_ACTIVE", 1.0004)).gauges == {TENSOR: 1.0}


def test_a_gpu_without_its_number_leaves_the_pod_without() -> None:
    found = pod(
        dcgm("DEV_FB_USED", 10, "GPU-a"),
        dcgm("DEV_FB_USED", 20, "GPU-b"),
        dcgm("DEV_POWER_USAGE", 300, "GPU-b"),
    )
    assert found.gauges == {MEMORY: 30 * MIB}
    assert found.devices == ("GPU-a", "GPU-b")
    assert found.faults[POWER].reason is NOT_EXPORTED
    assert "(for 1 of 2 devices)" in found.faults[POWER].words


@pytest.mark.parametrize(
    ("second", "known", "reason"),
    [(97.0, True, "two jobs with one number are one copy"), (95.0, False, "two that differ")],
)
def test_a_device_scraped_twice(second: float, known: bool, reason: str) -> None:
    found = pod(
        dcgm("DEV_GPU_UTIL", 97, **IN_CHAT, job="dcgm", instance="10.0.0.1:9400"),
        dcgm("DEV_GPU_UTIL", second, **IN_CHAT, job="node", instance="10.0.0.1:9400"),
    )
    assert (UTIL in found.gauges) is known, reason
    if not known:
        assert found.faults[UTIL].reason is AMBIGUOUS
        assert "dcgm, 10.0.0.1:9400; node, 10.0.0.1:9400" in found.faults[UTIL].words
        assert "scrape the exporter once" in found.faults[UTIL].words


def test_one_target_with_two_numbers_for_one_pod() -> None:
    found = pod(
        dcgm("DEV_FB_USED", 10, **IN_CHAT, container="a"),
        dcgm("DEV_FB_USED", 20, **IN_CHAT, container="b"),
    )
    assert found.faults[MEMORY].reason is AMBIGUOUS
    assert "several numbers for one pod" in found.faults[MEMORY].words


def test_power_of_two_instances_of_one_gpu_is_counted_once() -> None:
    lines = [dcgm("DEV_POWER_USAGE", 400, **IN_CHAT, GPU_I_ID=instance) for instance in ("1", "2")]
    memory = [dcgm("DEV_FB_USED", 10, **IN_CHAT, GPU_I_ID=instance) for instance in ("1", "2")]
    found = pod(*lines, *memory)
    assert found.gauges == {POWER: 400, MEMORY: 20 * MIB}
    assert "of the whole GPU GPU-a" in found.notes[POWER]


def test_power_that_differs_between_instances_is_of_two_scrapes() -> None:
    found = pod(
        dcgm("DEV_POWER_USAGE", 400, **IN_CHAT, GPU_I_ID="1"),
        dcgm("DEV_POWER_USAGE", 410, **IN_CHAT, GPU_I_ID="2"),
    )
    assert found.faults[POWER].reason is AMBIGUOUS


def test_only_gpu_util_under_mig_is_told_what_to_enable() -> None:
    found = pod(dcgm("DEV_GPU_UTIL", 90, **IN_CHAT, GPU_I_ID="1"))
    assert found.faults[UTIL].reason is NOT_EXPORTED
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in found.faults[UTIL].words


@pytest.mark.parametrize(
    ("labels", "words", "reason"),
    [
        ({}, "", "alone on its GPU"),
        ({"vgpu": "1"}, "by time-slicing", "marked as sliced, no other pod in sight"),
    ],
)
def test_a_shared_device_is_said_so(labels: dict[str, str], words: str, reason: str) -> None:
    found = pod(dcgm("PROF_PIPE_TENSOR_ACTIVE", 0.5, **IN_CHAT, **labels))
    assert found.gauges == {TENSOR: 0.5}, reason
    assert words in found.notes.get(TENSOR, ""), reason
    assert bool(found.notes) is bool(words), reason


def test_other_pods_on_the_device_are_counted() -> None:
    lines = [
        dcgm("DEV_POWER_USAGE", 400, namespace="serving", pod=name) for name in ("chat-0", "b", "c")
    ]
    assert "with 2 other pods" in pod(*lines).notes[POWER]


def test_percent_of_one_intel_target_spoils_no_other() -> None:
    def intel(value: float, uuid: str, pod_name: str, instance: str) -> Line:
        labels = {"uuid": uuid, "kube_pod": pod_name, "kube_namespace": "serving"}
        return ("xpum_engine_ratio", {**labels, "job": "x", "instance": instance}, value)

    found = by_pod(
        understood(
            [
                intel(0.4, "u1", "chat-0", "a"),
                intel(87.0, "u2", "other", "a"),
                intel(0.5, "u3", "mail-0", "b"),
            ]
        )
    )
    assert found[CHAT].faults[UTIL].reason is AMBIGUOUS
    assert "x, a exports shares above 1" in found[CHAT].faults[UTIL].words
    assert found[MAIL].gauges[UTIL] == 0.5


def test_of_intels_groups_of_engines_only_compute_is_a_use() -> None:
    labels = {"uuid": "u", "kube_pod": "chat-0", "kube_namespace": "serving"}
    groups = {"media": 0.9, "compute": 0.6, "copy": 0.1}
    found = pod(*(("xpum_engine_group_ratio", {**labels, "type": t}, v) for t, v in groups.items()))
    assert found.gauges == {UTIL: 0.6}


def test_a_reading_is_as_old_as_its_oldest_scrape() -> None:
    lines = [
        dcgm("DEV_FB_USED", 10, "GPU-a", **IN_CHAT, job="j", instance="a"),
        dcgm("DEV_FB_USED", 10, "GPU-b", **IN_CHAT, job="j", instance="b"),
    ]
    assert pod(*lines, times={"j, a": 100.0, "j, b": 70.0}).at == 70.0
    assert pod(*lines).at is None


numbers = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1) | st.floats(0, 1000)
names = st.sampled_from(
    ["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"]
) | st.sampled_from(
    ["DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE", "gpu_used_vram", "xpum_engine_ratio"]
)
some_labels = st.fixed_dictionaries(
    {"UUID": st.sampled_from("ab"), "uuid": st.just("x"), "pod": st.sampled_from("pq")},
    optional={
        "GPU_I_ID": st.sampled_from("12"),
        "kube_pod": st.just("p"),
        "kube_namespace": st.just("n"),
        "sub_dev": st.sampled_from("01"),
        "gpu_uuid": st.just("g"),
        "vgpu": st.sampled_from("01"),
    },
)


@given(st.lists(st.tuples(names, some_labels, numbers), max_size=12))
def test_whatever_is_exported_a_number_given_is_possible(
    lines: list[tuple[str, dict[str, str], float]],
) -> None:
    found = by_pod(understood([(n, {**labels, "namespace": "n"}, v) for n, labels, v in lines]))
    for devices in found.values():
        assert set(devices.gauges) | set(devices.faults) == set(DeviceGauge)
        for gauge, value in devices.gauges.items():
            most = 1.0 if gauge in AVERAGED else LARGEST[gauge] * 2 * len(devices.devices)
            assert 0 <= value <= most
        for fault in devices.faults.values():
            assert len(fault.words) > 20
