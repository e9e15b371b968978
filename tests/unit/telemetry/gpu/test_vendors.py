"""The catalogue is whole: every gauge of every exporter has a series or a reason."""

from __future__ import annotations

import re

import pytest

from specpilot.telemetry.gpu.catalogue import AVERAGED, Exporter
from specpilot.telemetry.gpu.samples import understood
from specpilot.telemetry.gpu.vendors import AMD, DCGM, EXPORTERS
from specpilot.telemetry.names import DeviceGauge


def test_a_name_belongs_to_one_row() -> None:
    names = [series.name for exporter in EXPORTERS for series in exporter.series]
    assert len(names) == len(set(names))
    # A free prefix must not make one exporter's name of another's.
    prefixed = re.compile("[a-zA-Z0-9_]+(" + "|".join(s.name for s in AMD.series) + ")")
    assert not [name for name in names if prefixed.fullmatch(name)]


@pytest.mark.parametrize("exporter", EXPORTERS, ids=lambda e: e.name)
def test_every_gauge_has_a_remedy_and_every_row_a_source(exporter: Exporter) -> None:
    assert set(exporter.missing) == set(DeviceGauge)
    assert all(series.fact and series.scale > 0 for series in exporter.series)
    measured = {series.gauge for series in exporter.series}
    assert measured >= {DeviceGauge.UTIL, DeviceGauge.MEMORY_USED, DeviceGauge.POWER}
    # Only the scale of a share can be in doubt in a way that a number above 1 shows.
    assert all(s.gauge in AVERAGED for s in exporter.series if s.doubt)


@pytest.mark.parametrize(
    ("labels", "device", "reason"),
    [
        ({"UUID": "GPU-a", "gpu": "0"}, "GPU-a", "a whole GPU"),
        ({"uuid": "GPU-a"}, "GPU-a", "the label's older spelling"),
        ({"UUID": "GPU-a", "GPU_I_ID": "7", "GPU_I_PROFILE": "1g.10gb"}, "GPU-a/7", "a MIG one"),
        ({"gpu": "0"}, None, "an index is no identity: every node has a GPU 0"),
    ],
)
def test_identity_of_an_nvidia_device(
    labels: dict[str, str], device: str | None, reason: str
) -> None:
    found = understood([("DCGM_FI_DEV_FB_USED", labels, 1.0)])
    assert (found[0].device if found else None) == device, reason


@pytest.mark.parametrize(
    ("labels", "owner", "reason"),
    [
        ({"pod": "a", "namespace": "n"}, ("n", "a"), "labels honoured"),
        (
            {"pod": "x-1", "namespace": "gpu", "exported_pod": "a", "exported_namespace": "n"},
            ("n", "a"),
            "the plain ones are the scrape's own",
        ),
        (
            {"pod": "x-1", "namespace": "gpu", "pod_name": "a", "pod_namespace": "n"},
            ("n", "a"),
            "very old names",
        ),
        ({"pod": "a"}, None, "a pod without a namespace could be anybody's"),
        ({"pod": "", "namespace": ""}, None, "an idle device"),
        (
            {"pod": "nvidia-dcgm-exporter-7mqjg", "namespace": "gpu-operator"},
            None,
            "an idle device under the exporter's own pod",
        ),
        (
            {"pod": "p-1", "namespace": "gpu-operator", "container": "nvidia-dcgm-exporter"},
            None,
            "the same, told by the container",
        ),
    ],
)
def test_owner_of_an_nvidia_device(
    labels: dict[str, str], owner: tuple[str, str] | None, reason: str
) -> None:
    (found,) = understood([("DCGM_FI_DEV_FB_USED", {"UUID": "GPU-a", **labels}, 1.0)])
    assert found.owner == owner, reason


def test_where_one_scrape_moved_labels_the_plain_ones_are_the_exporters() -> None:
    used = {"UUID": "a", "job": "j", "instance": "i", "pod": "odd-name", "namespace": "gpu"}
    moved = {**used, "UUID": "b", "exported_pod": "chat-0", "exported_namespace": "serving"}
    elsewhere = {**used, "UUID": "c", "instance": "other"}
    found = understood(
        [("DCGM_FI_DEV_FB_USED", labels, 1.0) for labels in (used, moved, elsewhere)]
    )
    assert [sample.owner for sample in found] == [None, ("serving", "chat-0"), ("gpu", "odd-name")]


def test_indices_name_a_gpu_but_not_a_mig_instance_of_it() -> None:
    labels = {"UUID": "GPU-a", "gpu": "0", "device": "nvidia0"}
    whole, part = understood(
        [
            ("DCGM_FI_DEV_FB_USED", labels, 1.0),
            ("DCGM_FI_DEV_FB_USED", {**labels, "GPU_I_ID": "2"}, 1.0),
        ]
    )
    assert whole.aliases == {"0", "nvidia0"}
    assert part.aliases == {"MIG-GPU-a/2/0"}
    assert DCGM.part_alias
