"""Which devices a server of a local group is taken to have."""

from __future__ import annotations

from typing import Any

import pytest

from specpilot.controller.local_devices import devices_of
from specpilot.fleets.local import LocalGroup
from tests.unit.telemetry.builders import replica

GPU = "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("group", "inherited", "found", "reason"),
    [
        ({"replica_env": ({GPU: "0"}, {GPU: "1"})}, {}, (("0",), ("1",)), "each slot its own"),
        ({"env": {GPU: "0,1"}}, {}, (("0", "1"), ("0", "1")), "the group's for all"),
        (
            {"env": {GPU: "7"}, "replica_env": ({GPU: "0"}, {})},
            {},
            (("0",), ("7",)),
            "the slot's before the group's",
        ),
        ({}, {GPU: "2"}, (("2",), ("2",)), "what the supervisor itself has is inherited"),
        ({"env": {GPU: ""}}, {GPU: "2"}, ((), ()), "set to nothing is not inherited"),
        ({}, {}, ((), ()), "nothing names any"),
        ({"env": {GPU: " GPU-8f2c , 1 "}}, {}, (("GPU-8f2c", "1"),) * 2, "a UUID, and spaces"),
        ({"env": {GPU: "0,-1,1"}}, {}, (("0",),) * 2, "CUDA stops at the first that is none"),
        ({"env": {GPU: "-1"}}, {}, ((), ()), "the usual way to hide all"),
    ],
)
def test_devices(
    group: dict[str, Any],
    inherited: dict[str, str],
    found: tuple[tuple[str, ...], ...],
    reason: str,
) -> None:
    spec = LocalGroup(name="chat", command=("serve",), replicas=2, **group)
    devices = devices_of([spec], inherited=inherited)
    assert tuple(devices(replica(f"chat-{slot}")) for slot in range(2)) == found, reason
    assert devices(replica("chat-2")) == (), "no slot of the group"
