"""The real API server takes what is right and refuses what is wrong, with the remedy."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cluster.api import Api, ApiError
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_for
from tests.unit.resources.examples import (
    CHANGE,
    CHANNEL,
    CRDS,
    EXAMPLES,
    GONE,
    INVALID,
    POLICY,
    RULES,
    Bad,
    changed,
    objects,
)

pytestmark = pytest.mark.cluster

API_VERSION = "specpilot.io/v1alpha1"
CRD_API = "apiextensions.k8s.io/v1"


def established(api: Api, name: str) -> bool:
    found = api.get(CRD_API, "CustomResourceDefinition", name=name).get("status") or {}
    conditions = found.get("conditions") or []  # null until the server has looked at it
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Iterator[Api]:
    for path in sorted(CRDS.glob("*.yaml")):
        crd = yaml.safe_load(path.read_text())
        cluster.api.apply(crd)
        name = crd["metadata"]["name"]
        wait_for(
            lambda name=name: established(cluster.api, name),
            describe=lambda name=name: str(
                cluster.api.get(CRD_API, "CustomResourceDefinition", name=name).get("status")
            ),
        )
    return cluster.api


def placed(content: dict[str, Any], namespace: str) -> dict[str, Any]:
    result = copy.deepcopy(content)
    result["metadata"]["namespace"] = namespace
    return result


def create(api: Api, content: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Create as kubectl does: fields that the schema does not know are an error."""
    manifest = placed(content, namespace)
    path = api.path(api_version=content["apiVersion"], kind=content["kind"], namespace=namespace)
    return api.request("POST", path, body=manifest, query={"fieldValidation": "Strict"})


@pytest.mark.parametrize("name", ["policy.yaml", "local.yaml", "deployment-wired.yaml"])
def test_examples_are_taken(api: Api, namespace: str, name: str) -> None:
    served = [o for o in objects(name) if o["kind"] != "LocalFleet"]
    for content in served:
        create(api, content, namespace)
    for content in served:
        found = api.get(
            content["apiVersion"],
            content["kind"],
            name=content["metadata"]["name"],
            namespace=namespace,
        )
        if content["apiVersion"] == API_VERSION:
            assert covers(found["spec"], content["spec"]), f"{content['kind']} lost something"


def covers(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return all(k in found and covers(found[k], v) for k, v in wanted.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(covers, found, wanted))
    return bool(found == wanted)


@pytest.mark.parametrize("bad", [b for b in INVALID if b.api_says is not None], ids=str)
def test_what_is_wrong_is_refused_with_the_remedy(api: Api, namespace: str, bad: Bad) -> None:
    with pytest.raises(ApiError) as caught:
        create(api, bad.content, namespace)
    message = str(caught.value)
    assert caught.value.code == 422, message
    assert (bad.api_field or bad.field) + ": " in message
    assert (bad.api_says or bad.says) in message


def test_unknown_fields_are_refused_and_not_dropped(api: Api, namespace: str) -> None:
    with pytest.raises(ApiError, match=r'unknown field "spec\.modes"'):
        create(api, changed(POLICY, ("spec", "modes"), "Auto"), namespace)


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (("guardrails",), [{"signal": "acceptance_rate", "min": 0.4}], "a bound with a fraction"),
        (("guardrails",), [{"signal": "acceptance_rate", "min": "40%"}], "a bound of a ratio"),
        (("guardrails",), [{"signal": "e2e_p99", "max": 4}], "a whole bound"),
        (("guardrails",), [{"signal": "tpot_p99", "max": "50ms"}], "a bound in milliseconds"),
        (("guardrails",), [], "no guardrails"),
        (("probe",), {"enabled": False}, "no probes"),
        (("probe",), GONE, "the default probe"),
        (("settings",), [{"name": "m", "method": "mtp"}], "a model that drafts for itself"),
        (("settings",), [{"name": "n", "method": "telepathy"}], "a method of a newer engine"),
        (("freezeWindows", 0, "schedule"), "*/30 8-17 1,15 * MON-FRI", "ranges, lists and steps"),
    ],
)
def test_what_is_right_is_taken(
    api: Api, namespace: str, at: tuple[str | int, ...], value: Any, reason: str
) -> None:
    del reason
    create(api, changed(POLICY, ("spec", *at), value), namespace)


def test_the_mode_defaults_to_advisory(api: Api, namespace: str) -> None:
    assert create(api, changed(POLICY, ("spec", "mode"), GONE), namespace)["spec"]["mode"] == (
        "Advisory"
    )


def test_probe_null_is_kept(api: Api, namespace: str) -> None:
    """It switches probes off; dropped, it would mean the default probe."""
    found = create(api, changed(POLICY, ("spec", "probe"), None), namespace)
    assert found["spec"]["probe"] is None


def test_a_change_is_a_record(api: Api, namespace: str) -> None:
    create(api, CHANGE, namespace)

    def patch(spec: dict[str, Any]) -> None:
        api.patch(
            API_VERSION, "FlagChange", name="chat-1", namespace=namespace, patch={"spec": spec}
        )

    edits: list[dict[str, Any]] = [
        {"to": {"setting": "ngram"}},
        {"from": {"config": ""}},
        {"policy": "other"},
        {"kind": "Probe"},
        {"target": {"name": "other"}},
        {"rule": None},
        {"rule": {"version": 4}},
        {"createdAt": "2026-03-01T12:00:06Z"},
        {"evidence": None},
        {"evidence": []},
    ]
    for edit in edits:
        with pytest.raises(ApiError, match="cannot be edited; to decide about it"):
            patch(edit)
    patch({"decision": "Approve", "decidedBy": "carol"})
    for edit in ({"decision": "Reject"}, {"decision": None, "decidedBy": None}):
        with pytest.raises(ApiError, match="the decision is made and cannot be changed"):
            patch(edit)
    with pytest.raises(ApiError, match="who decided is on record"):
        patch({"decidedBy": "mallory"})
    patch({"decision": "Approve"})


def test_evidence_cannot_be_added_later(api: Api, namespace: str) -> None:
    create(api, changed(CHANGE, ("spec", "evidence"), GONE), namespace)
    with pytest.raises(ApiError, match=r"spec\.evidence: .*cannot be edited"):
        api.patch(
            API_VERSION,
            "FlagChange",
            name="chat-1",
            namespace=namespace,
            patch={"spec": {"evidence": [{"signal": "tpot_mean", "value": 0.01}]}},
        )


def test_the_status_is_a_subresource(api: Api, namespace: str) -> None:
    created = create(api, POLICY, namespace)
    status = {
        "observedGeneration": 1,
        "mode": "Advisory",
        "active": "eagle3",
        "desired": "off",
        "phase": "Idle",
        "lastFlip": "2026-03-01T12:00:00Z",
        "replicas": [{"setting": "eagle3", "total": 3, "ready": 2}],
        "readings": [
            {"signal": "batch_size", "value": 41.5, "unit": "requests", "count": 20,
             "at": "2026-03-01T12:00:00Z"},
            {"signal": "acceptance_rate", "value": None, "reason": "NoData", "at": None},
        ],
        "verdict": "on-when-quiet: batch_size 41.5 is not below 4",
        "rule": "hit-rate@3/off-when-drafts-stop-paying",
        "change": "chat-1",
        "ruleSetVersion": 3,
        "message": "Advisory: would switch to off",
        "conditions": [
            {"type": "Ready", "status": "True", "observedGeneration": 1, "reason": "Measured",
             "message": "", "lastTransitionTime": "2026-03-01T12:00:00Z"},
        ],
    }  # fmt: skip
    body = {"status": status, "spec": {"mode": "Auto"}}
    found = api.patch(
        API_VERSION,
        "SpeculationPolicy",
        name="chat",
        namespace=namespace,
        patch=body,
        subresource="status",
    )
    assert found["spec"] == created["spec"], "a write of the status changed the spec"
    assert found["metadata"]["generation"] == created["metadata"]["generation"]
    kept = copy.deepcopy(status)
    assert covers(found["status"], {k: v for k, v in kept.items() if k != "readings"})
    assert found["status"]["readings"][0]["value"] == 41.5


@pytest.mark.parametrize(
    ("kind", "content", "status", "columns"),
    [
        (
            "specpol",
            POLICY,
            {
                "active": "eagle3",
                "desired": "off",
                "phase": "Idle",
                "rule": "hit-rate@3/quiet",
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "False",
                        "reason": "NotWired",
                        "message": "",
                        "lastTransitionTime": "2026-03-01T12:00:00Z",
                    }
                ],
            },
            {
                "MODE": "Advisory",
                "ACTIVE": "eagle3",
                "DESIRED": "off",
                "PHASE": "Idle",
                "READY": "False",
                "REASON": "NotWired",
                "RULE": "hit-rate@3/quiet",
            },
        ),
        ("ruleset", RULES, {"version": 3, "hash": "ab" * 32}, {"VERSION": "3", "HASH": "ab" * 32}),
        ("alertchannel", CHANNEL, {}, {"TYPE": "slack"}),
        (
            "flagchange",
            CHANGE,
            {"phase": "Canary", "reason": "RuleFired", "phaseSince": "2026-03-01T12:00:00Z"},
            {
                "TARGET": "vllm-llama3-8b",
                "FROM": "eagle3",
                "TO": "off",
                "PHASE": "Canary",
                "REASON": "RuleFired",
            },
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_columns_of_kubectl_get(  # noqa: PLR0917 - pytest passes by name
    cluster: Cluster,
    api: Api,
    namespace: str,
    kind: str,
    content: dict[str, Any],
    status: dict[str, Any],
    columns: dict[str, str],
) -> None:
    create(api, content, namespace)
    api.patch(
        API_VERSION,
        content["kind"],
        name=content["metadata"]["name"],
        namespace=namespace,
        patch={"status": status},
        subresource="status",
    )
    head, row = cluster.run("kubectl", "-n", namespace, "get", kind, "-o", "wide").splitlines()
    shown = {name: row[at:].split("  ")[0].strip() for name, at in places(head)}
    assert {k: shown.get(k) for k in columns} == columns


def places(head: str) -> list[tuple[str, int]]:
    names = [part for part in head.split("  ") if part.strip()]
    return [(name.strip(), head.index(name.strip())) for name in names]


def test_kubectl_shows_the_remedy(cluster: Cluster, api: Api, namespace: str) -> None:
    del api
    text = (EXAMPLES / "policy.yaml").read_text().replace("window: 5m", "window: 5 minutes")
    text = text.replace("namespace: serving", f"namespace: {namespace}")
    with pytest.raises(Exception, match="write a duration such as 90s, 5m or 1h30m"):
        cluster.run("kubectl", "apply", "-f", "-", stdin=text)


def test_kubectl_explains_fields(cluster: Cluster, api: Api) -> None:
    del api
    text = cluster.run("kubectl", "explain", "specpol.spec.rollout.canary")
    assert "analysis" in text
    assert "How long they are compared with the others." in text
