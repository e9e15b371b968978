"""The fast reader of exporters' pages agrees with prometheus_client, and survives anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from specpilot.telemetry.gpu.combine import by_pod
from specpilot.telemetry.gpu.page import parse
from specpilot.telemetry.gpu.samples import Line, understood
from specpilot.telemetry.gpu.vendors import EXPORTERS
from tests.unit.telemetry.gpu.examples import NAMES, example, pods

WANTED = [series.name for exporter in EXPORTERS for series in exporter.series]


def _reference(page: bytes) -> list[Line]:
    """The same series by the official parser."""
    return [
        (sample.name, dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name.removeprefix("amd_") in WANTED
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_series_of_an_example_agrees_with_prometheus_client(name: str) -> None:
    assert parse(example(name)) == _reference(example(name))


@pytest.mark.parametrize(
    ("line", "labels", "reason"),
    [
        ('{gpu="0",modelName="a}b{c"} 5', {"gpu": "0", "modelName": "a}b{c"}, "braces in a value"),
        ('{modelName="a\\"b\\\\c\\nd"} 5', {"modelName": 'a"b\\c\nd'}, "escapes"),
        ('{pod="a,b=c"} 5', {"pod": "a,b=c"}, "what looks like two labels"),
        ('{pod="a", } 5 1700000000000', {"pod": "a"}, "spaces, a last comma and a time"),
        ('{pod=""} 5', {"pod": ""}, "an empty value"),
    ],
)
def test_labels_may_hold_anything(line: str, labels: dict[str, str], reason: str) -> None:
    page = f"DCGM_FI_DEV_GPU_UTIL{line}\n".encode()
    assert parse(page) == [("DCGM_FI_DEV_GPU_UTIL", labels, 5.0)], reason


@pytest.mark.parametrize(
    "text",
    [
        'DCGM_FI_DEV_GPU_UTIL_MAX{gpu="0"} 5',
        'XDCGM_FI_DEV_GPU_UTIL{gpu="0"} 5',
        'gpu_gfx_activity_total{gpu_id="0"} 5',
        '# DCGM_FI_DEV_GPU_UTIL{gpu="0"} 5',
        "DCGM_FI_DEV_GPU_UTIL 5",
        'DCGM_FI_DEV_GPU_UTIL{gpu="0"} five',
        'DCGM_FI_DEV_GPU_UTIL{gpu="0} 5',
    ],
)
def test_other_series_and_broken_lines_are_skipped(text: str) -> None:
    assert parse(text.encode() + b"\n") == []


@given(st.binary(max_size=400))
def test_any_bytes_are_survived(junk: bytes) -> None:
    for start in (
        b"",
        b"DCGM_FI_DEV_GPU_UTIL{",
        b'xx_gpu_used_vram{gpu_id="',
        b'xpum_power_watts{u="',
    ):
        by_pod(understood(parse(start + junk)))
        by_pod(understood(parse(start + junk + b'",uuid="u",kube_pod="p",kube_namespace="n"} 1')))


@given(st.data())
def test_a_damaged_page_never_invents_a_pod_with_more_devices(data: st.DataObject) -> None:
    page = example("dcgm-plain")
    start = data.draw(st.integers(0, len(page)))
    cut = data.draw(st.integers(0, 2000))
    whole = pods(page)
    for owner, devices in pods(page[:start] + page[start + cut :]).items():
        if owner in whole:
            # A cut inside one line can make another UUID of it, once.
            assert len(set(devices.devices) - set(whole[owner].devices)) <= 1


def test_a_page_that_never_closes_its_quotes_costs_no_more_than_its_length() -> None:
    """Ten megabytes take a second; their square would take longer than a test may."""
    assert not pods(b'DCGM_FI_DEV_GPU_UTIL{gpu="' + b'\\"' * 5_000_000)
