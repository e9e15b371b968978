"""Reading raw objects, and keeping only what is read."""

import copy
import functools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.fleets.kubernetes.channels import owned_fields
from specpilot.fleets.kubernetes.channels.annotation import annotation_path
from specpilot.fleets.kubernetes.objects import (
    instant,
    owners,
    slim_workload,
    user_template,
)
from specpilot.fleets.kubernetes.wiring import ANNOTATIONS, CONFIG_ANNOTATION
from specpilot.fleets.kubernetes.workloads import WORKLOADS
from specpilot.fleets.kubernetes.workloads.base import POD_TEMPLATE
from tests.unit.fleets_kubernetes.fakes import deployment

DEPLOYMENT = WORKLOADS["Deployment"]
slim_deployment = functools.partial(slim_workload, fields=owned_fields(DEPLOYMENT))

ours = st.dictionaries(st.sampled_from(ANNOTATIONS), st.text(max_size=8))
theirs = st.dictionaries(st.sampled_from(["a", "kubectl.kubernetes.io/restartedAt"]), st.text())


def template(**metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"containers": [{"name": "vllm"}]}}


@given(one=ours, other=ours, rest=theirs)
def test_our_annotations_are_no_edit(
    one: dict[str, str], other: dict[str, str], rest: dict[str, str]
) -> None:
    assert user_template(template(annotations=one | rest)) == user_template(
        template(annotations=other | rest)
    )


@pytest.mark.parametrize(
    ("first", "second", "same", "reason"),
    [
        (template(annotations={}), template(), True, "an empty map is no map"),
        (template(creationTimestamp=None), template(), True, "old servers write a null"),
        (
            template(labels={"a": "1"}),
            template(labels={"a": "1", "pod-template-hash": "x"}),
            True,
            "a ReplicaSet's template is the Deployment's",
        ),
        (template(labels={"a": "1"}), template(labels={"a": "2"}), False, "a label"),
        (
            template(annotations={"kubectl.kubernetes.io/restartedAt": "now"}),
            template(),
            False,
            "a restart by kubectl is an edit",
        ),
        (template(), {**template(), "spec": {"containers": []}}, False, "the spec"),
    ],
)
def test_user_template(
    first: dict[str, Any], second: dict[str, Any], same: bool, reason: str
) -> None:
    assert (user_template(first) == user_template(second)) is same, reason


def managed() -> dict[str, Any]:
    def entry(manager: str, fields: dict[str, Any], **rest: str) -> dict[str, Any]:
        return {"manager": manager, "operation": "Apply", "fieldsV1": fields, **rest}

    annotation = {f"f:{CONFIG_ANNOTATION}": {}}
    at = {"f:template": {"f:metadata": {"f:annotations": annotation}}}
    return deployment(
        metadata={
            "managedFields": [
                entry("specpilot", {"f:spec": {"f:paused": {}, **at}}),
                entry("kubectl", {"f:spec": {"f:replicas": {}, "f:strategy": {"f:type": {}}}}),
                entry("kubectl-rollout", {"f:spec": {"f:paused": {}}}),
                entry("controller", {"f:spec": {"f:paused": {}}}, subresource="status"),
            ]
        }
    )


@pytest.mark.parametrize("keep", [lambda o: o, slim_deployment], ids=["whole", "kept"])
def test_owners(keep: Any) -> None:
    found = keep(copy.deepcopy(managed()))
    assert owners(found, *DEPLOYMENT.hold_field) == {"specpilot", "kubectl-rollout"}
    assert owners(found, *annotation_path(POD_TEMPLATE, CONFIG_ANNOTATION)) == {"specpilot"}
    assert owners(found, *annotation_path(POD_TEMPLATE, "other")) == frozenset()


def test_what_is_kept_of_managed_fields_is_what_is_read() -> None:
    kept = slim_deployment(managed())["metadata"]["managedFields"]
    assert [entry["manager"] for entry in kept] == ["specpilot", "kubectl-rollout"]
    assert "f:replicas" not in str(kept)


def test_times() -> None:
    whole, fraction = instant("2026-11-29T11:00:00Z"), instant("2026-11-29T12:00:00.5+01:00")
    assert whole is not None
    assert fraction is not None
    assert (fraction - whole).total_seconds() == 0.5
    assert instant(None) is None
