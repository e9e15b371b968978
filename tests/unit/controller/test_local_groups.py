"""A LocalFleet becomes a group of processes."""

from specpilot.controller.local_groups import group_of
from specpilot.resources import LocalFleetSpec

SPEC = LocalFleetSpec.model_validate_json('{"command": ["vllm", "serve", "org/model"]}')


def test_labels_of_the_resource_are_labels_of_the_target() -> None:
    group = group_of("chat", SPEC, labels={"tier": "gold"})
    assert group.labels == {"tier": "gold"}
    assert group.template == group_of("chat", SPEC).template, "a label restarts no server"
