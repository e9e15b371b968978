"""What a user asks for is done, waited on, or refused with the remedy; who may decide is RBAC's."""

import json

import pytest
import yaml

from specpilot.domain.changes import ChangeKind, ChangeReason, Phase
from tests.scenarios.installation import WEBHOOK_SECRET
from tests.scenarios.serving import (
    CHANNEL,
    ENGINE,
    ON_WHEN_USED,
    POLICY,
    Object,
    Serving,
    changed,
    steps,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def bound(group: str, role: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": group},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": role,
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    }


def decide(serving: Serving, change: str, answer: str, *, user: str) -> str:
    spec = {"decision": answer, "decidedBy": user}
    return serving.kubectl(
        *("patch", "flagchange", change, "--type=merge", "-p", json.dumps({"spec": spec})),
        user=user,
    )


def test_a_change_waits_for_somebody_who_may_approve_it(serving: Serving) -> None:
    for group, role in (("developers", "edit"), ("approvers", "specpilot-approver")):
        serving.cluster.api.create(bound(group, role), namespace=serving.namespace)
    serving.serve()
    asking = changed(POLICY, "spec", "mode", to="Approve")
    serving.until(lambda: serving.apply(ON_WHEN_USED, asking, user="alice"))
    with serving.load():
        first = serving.until_phase(Phase.PENDING)
        serving.until(serving.shown)
        assert serving.status()["phase"] in {"Pending", "Idle"}
        with pytest.raises(AssertionError, match='User "alice" cannot patch resource'):
            decide(serving, first.id, "Approve", user="alice")
        with pytest.raises(AssertionError, match="cannot be edited; to decide about it"):
            serving.kubectl(
                *("patch", "flagchange", first.id, "--type=merge"),
                '-p={"spec":{"to":{"setting":"off"}}}',
                user="carol",
            )
        decide(serving, first.id, "Reject", user="carol")
        rejected = serving.until_phase(Phase.REJECTED)
        assert rejected.decided_by == "carol"
        assert steps(serving.installation, rejected) == ["Pending", "Rejected"]
        assert serving.deployment()["metadata"]["generation"] == 1, "nothing was touched"

        second = serving.until_phase(Phase.PENDING, after=1)
        serving.until(lambda: len(serving.shown()) == 2)
        decide(serving, second.id, "Approve", user="carol")
        approved = serving.until_phase(Phase.ANALYSING, after=1)
    assert approved.decided_by == "carol"
    records = serving.installation.records(approved.id)
    assert [(r.draft.action, r.draft.actor) for r in records][:2] == [
        ("Pending", "rule:hit-rate@1/on-when-used"),
        ("Canary", "carol"),
    ]


def test_a_second_policy_for_a_target_is_not_applied_and_says_why(serving: Serving) -> None:
    serving.serve()
    serving.apply(ON_WHEN_USED, changed(POLICY, "spec", "mode", to="Advisory"))
    serving.until(serving.is_ready)
    serving.apply(changed(POLICY, "metadata", "name", to="later"))
    serving.until(lambda: serving.condition("Ready", name="later"))
    said = serving.condition("Ready", name="later")
    assert (said["status"], said["reason"]) == ("False", "DuplicateTarget")
    assert f"policy {serving.namespace}/chat is older" in said["message"]
    with serving.load():
        advised = serving.until_phase(Phase.ADVISED)
        assert advised.policy.name == "chat"
        # It takes over when the older one goes, without being applied again.
        serving.kubectl("delete", "specpol", "chat")
        change = serving.until_phase(Phase.CANARY, Phase.ANALYSING, after=1)
    assert change.policy.name == "later"
    assert serving.is_ready("later")


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("spec", "mode"), "Automatic", 'spec.mode: Unsupported value: "Automatic"'),
        (("spec", "settings", 0, "numSpeculativeTokens"), ..., "numSpeculativeTokens"),
        (("spec", "telemetry", "window"), "5 minutes", "write a duration such as 90s, 5m or 1h30m"),
        (("spec", "probe", "setting"), "eagle", "name one of them, or leave it out"),
        (("spec", "modus"), "Auto", 'unknown field "spec.modus"'),
    ],
    ids=lambda v: ".".join(map(str, v)) if isinstance(v, tuple) else "",
)
def test_an_invalid_policy_is_refused_with_the_field_and_the_remedy(
    serving: Serving, path: tuple[str | int, ...], value: object, says: str
) -> None:
    with pytest.raises(AssertionError) as refused:
        serving.apply(changed(POLICY, *path, to=value))
    assert says in str(refused.value)
    assert str(path[-1]) in str(refused.value)


def test_a_workload_that_cannot_be_steered_is_explained(serving: Serving) -> None:
    unwired: Object = yaml.safe_load(ENGINE)
    container = unwired["spec"]["template"]["spec"]["containers"][0]
    container["args"] = container["args"][:-1]
    container["env"] = container["env"][1:]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vllm-stack"}}
    uid = serving.cluster.api.create(owner, namespace=serving.namespace)["metadata"]["uid"]
    owned: Object = yaml.safe_load(changed(ENGINE, "metadata", "name", to="owned"))
    owned["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "vllm-stack",
            "uid": uid,
            "controller": True,
        }
    ]
    for manifest in (unwired, owned):
        manifest["spec"]["replicas"] = 0
        serving.apply(yaml.safe_dump(manifest))
    serving.apply(ON_WHEN_USED)
    for target in ("chat", "owned", "missing"):
        policy = changed(POLICY, "metadata", "name", to=target)
        serving.apply(changed(policy, "spec", "target", "name", to=target))

    def said(name: str) -> tuple[str, str, str]:
        found = serving.until(lambda: serving.condition("Ready", name=name))
        return found["status"], found["reason"], found["message"]

    status, reason, message = said("chat")
    assert (status, reason) == ("False", "NotWired")
    assert "--speculative-config=$(SPECPILOT_SPECULATIVE_CONFIG)" in message
    assert "fieldPath: metadata.annotations['specpilot.io/speculative-config']" in message
    status, reason, message = said("owned")
    assert (status, reason) == ("False", "OwnedByOther")
    assert "managed by ConfigMap vllm-stack" in message
    status, reason, message = said("missing")
    assert (status, reason) == ("False", "NotFound")
    assert f"no Deployment missing in namespace {serving.namespace}" in message

    # The snippet is all it takes.
    serving.apply(changed(ENGINE, "spec", "replicas", to=1))
    serving.until(lambda: serving.condition("TargetReady").get("status") == "True")


def test_a_bad_version_of_a_rule_set_is_refused_whole_and_the_old_one_stays_in_force(
    serving: Serving,
) -> None:
    serving.serve(changed(ENGINE, "spec", "replicas", to=1))
    serving.apply(ON_WHEN_USED, changed(POLICY, "spec", "mode", to="Advisory"))
    serving.until(lambda: serving.status().get("ruleSetVersion") == 1)
    content = yaml.safe_load(ON_WHEN_USED)
    content["spec"]["rules"].insert(
        0, {"name": "broken", "when": "batch_sise > 32", "setting": "off"}
    )
    serving.apply(yaml.safe_dump(content))
    serving.until(
        lambda: serving.condition("Valid", name="hit-rate", of="RuleSet").get("status") == "False"
    )
    message = serving.condition("Valid", name="hit-rate", of="RuleSet")["message"]
    assert "broken" in message
    assert "there is no signal called batch_sise; did you mean batch_size?" in message
    assert "version 1 stays in force" in message
    assert serving.get("RuleSet", "hit-rate")["status"]["version"] == 1
    with serving.load(rate=2):
        advised = serving.until_phase(Phase.ADVISED)
    assert str(advised.rule) == "hit-rate@1/on-when-used"
    assert serving.status()["ruleSetVersion"] == 1

    content["spec"]["rules"][0]["when"] = "batch_size > 32"
    serving.apply(yaml.safe_dump(content))
    serving.until(lambda: serving.status().get("ruleSetVersion") == 2)
    assert serving.get("RuleSet", "hit-rate")["status"]["version"] == 2


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        (WEBHOOK_SECRET, "there is no such Secret in this namespace; create it"),
        ("database-password", "add database-password to alerts.secretNames of the chart"),
    ],
    ids=["missing", "not to be read"],
)
def test_an_alert_channel_that_cannot_be_used_says_so_before_it_is_needed(
    serving: Serving, secret: str, says: str
) -> None:
    channel = CHANNEL.format(url="https://example.com/alerts", secret=secret, key="unused")
    serving.apply(channel.split("---")[0])
    serving.until(lambda: serving.condition("Ready", name="oncall", of="AlertChannel"))
    said = serving.condition("Ready", name="oncall", of="AlertChannel")
    assert (said["status"], said["reason"]) == ("False", "Unusable")
    assert says in said["message"]


def test_off_is_not_for_ever(serving: Serving) -> None:
    """No rule asks for it; a probe tries it, sees that it pays, and keeps it."""
    rules = yaml.safe_load(ON_WHEN_USED)
    rules["spec"]["rules"] = [
        {"name": "off-when-busy", "when": "batch_size > 1000", "setting": "off"}
    ]
    serving.serve()
    probing = {"every": "3s", "backOff": 1, "longest": "3s", "margin": "10%"}
    serving.apply(yaml.safe_dump(rules), changed(POLICY, "spec", "probe", to=probing))
    with serving.load(rate=2.0, accept=0.9):
        change = serving.until_phase(Phase.PROMOTING, Phase.WATCHING)
    assert change.kind is ChangeKind.PROBE
    assert str(change.rule) == ""
    won = next(r for r in serving.installation.records(change.id) if r.draft.action == "Promoting")
    assert won.draft.reason == ChangeReason.PROBE_WON
    assert {e["arm"] for e in won.draft.evidence if e["arm"]} == {"canary", "control"}
    (cost,) = [e for e in won.draft.evidence if e["signal"] == "cost_ratio"]
    assert cost["value"] is None or cost["value"] > 0, "what was learned is on record"
