"""YAML files -> values, and errors that name the field, the value and the remedy."""

from datetime import timedelta
from typing import Any

import pytest

from specpilot.domain.policy import DEFAULT_GUARDRAILS, CostPoint, Event, Mode, TelemetrySource
from specpilot.domain.settings import OFF
from specpilot.resources import (
    Document,
    ResourceError,
    channel_from,
    flag_change_from,
    load,
    local_fleet_from,
    policy_from,
    read,
    rule_set_from,
)
from tests.unit.resources.examples import (
    CHANGE,
    CHANNEL,
    EXAMPLES,
    FLEET,
    INVALID,
    POLICY,
    RULES,
    Bad,
    changed,
)

HEAD = "apiVersion: specpilot.io/v1alpha1\n"


def faults(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(ResourceError) as caught:
        load(text, source="file.yaml")
    return [(f.where, f.field, f.message) for f in caught.value.faults]


@pytest.mark.parametrize("name", ["policy.yaml", "local.yaml"])
def test_examples_load(name: str) -> None:
    documents = load((EXAMPLES / name).read_text(), source=name)
    assert {d.kind for d in documents} >= {"SpeculationPolicy", "RuleSet", "AlertChannel"}
    policies = [policy_from(d) for d in documents if d.kind == "SpeculationPolicy"]
    rule_sets = {d.metadata.name: rule_set_from(d) for d in documents if d.kind == "RuleSet"}
    channels = {d.metadata.name for d in documents if d.kind == "AlertChannel"}
    for policy in policies:
        rules = rule_sets[policy.rule_set]
        assert {r.setting for r in rules.rules} <= set(policy.settings)
        assert set(policy.parameters) <= set(rules.parameters)
        assert {a.channel for a in policy.alerts} <= channels


def test_costs_are_stated_for_a_setting_at_any_batch_size_or_at_some() -> None:
    stated = changed(POLICY, ("spec", "settings", 0, "costRatio"), 1.4)
    both = changed(
        stated,
        ("spec", "settings", 1),
        {
            "name": "ngram",
            "method": "ngram",
            "numSpeculativeTokens": 4,
            "costRatio": 1.1,
            "costRatioByBatch": [{"batch": 64, "ratio": 1.3}],
        },
    )
    policy = policy_from(read(changed(both, ("spec", "telemetry", "rememberFor"), "36h")))
    assert policy.remember_for == timedelta(hours=36)
    assert policy.cost_ratios == {
        "eagle3": (CostPoint(ratio=1.4),),
        "ngram": (CostPoint(batch=64, ratio=1.3), CostPoint(ratio=1.1)),
    }
    assert policy_from(read(POLICY)).cost_ratios == {}
    assert policy_from(read(POLICY)).remember_for == timedelta(days=7)


def test_the_policy_says_what_the_file_says() -> None:
    policy = policy_from(read(POLICY), uid="u-1", generation=7)
    assert (policy.ref.namespace, policy.ref.name, policy.ref.uid) == ("serving", "chat", "u-1")
    assert policy.generation == 7
    assert str(policy.target) == "Deployment/serving/vllm-llama3-8b"
    assert policy.target.container == "vllm"
    assert policy.mode is Mode.ADVISORY
    assert set(policy.settings) == {"off", "eagle3", "ngram"}
    assert policy.settings["off"] == OFF
    assert policy.settings["eagle3"].disable_above_batch_size == 32
    assert policy.settings["ngram"].extra == {"prompt_lookup_max": 4}
    assert (policy.rule_set, policy.rule_version) == ("hit-rate", None)
    assert policy.parameters == {"busyBatch": 48.0}
    assert policy.source is TelemetrySource.PROMETHEUS
    assert policy.warm_up == timedelta(minutes=1)
    assert policy.canary.min_drafts == 1000
    assert [(g.signal, g.max_increase, g.max_value) for g in policy.guardrails] == [
        ("tpot_mean", 0.1, None),
        ("e2e_p99", None, 4.0),
    ]
    assert policy.probe is not None
    assert policy.probe.margin == pytest.approx(0.05)
    assert policy.limits.approval_expiry == timedelta(hours=24)
    assert policy.freeze_windows[0].duration == timedelta(hours=62)
    assert policy.alerts[0].events == {
        Event.FLIPPED,
        Event.ROLLED_BACK,
        Event.CONTESTED,
        Event.SIGNALS_LOST,
    }


def minimal(**spec: Any) -> Document:
    content = {
        **POLICY,
        "spec": {
            "target": {"kind": "Deployment", "name": "x"},
            "settings": [{"name": "n", "method": "ngram", "numSpeculativeTokens": 4}],
            "rules": {"ruleSet": "r"},
            **spec,
        },
    }
    return read(content)


def test_what_is_left_out_is_safe() -> None:
    policy = policy_from(minimal())
    assert policy.mode is Mode.ADVISORY
    assert policy.guardrails == DEFAULT_GUARDRAILS
    assert policy.probe is not None
    assert not policy.allow_downtime
    assert not policy.paused


@pytest.mark.parametrize(
    ("probe", "reason"),
    [(None, "null"), ({"enabled": False}, "enabled: false, which survives kubectl apply")],
)
def test_probes_can_be_switched_off(probe: object, reason: str) -> None:
    assert policy_from(minimal(probe=probe)).probe is None, reason


def test_no_guardrails_is_not_the_default_guardrails() -> None:
    assert policy_from(minimal(guardrails=[])).guardrails == ()


def test_off_may_be_listed() -> None:
    settings = [{"name": "off"}, {"name": "n", "method": "ngram", "numSpeculativeTokens": 4}]
    assert policy_from(minimal(settings=settings)).settings["off"] == OFF


def test_an_unknown_method_is_left_to_the_engine() -> None:
    settings = [{"name": "n", "method": "telepathy"}]
    assert policy_from(minimal(settings=settings)).settings["n"].method == "telepathy"


def test_a_local_policy_is_in_the_local_namespace() -> None:
    policy = policy_from(minimal(target={"kind": "Local", "name": "chat"}))
    assert policy.target.namespace == "local"


def test_the_other_kinds() -> None:
    rules = rule_set_from(read(RULES))
    assert rules.rules[0].hold == timedelta(minutes=5)
    assert rules.rules[0].setting == "off"
    channel = channel_from(read(CHANNEL))
    assert channel.url_from is not None
    assert channel.url_from.secret_key_ref is not None
    fleet = local_fleet_from(read(FLEET))
    assert fleet.drain == timedelta(minutes=1)
    assert fleet.gateway is not None
    assert fleet.gateway.port == 8000
    change = flag_change_from(read(CHANGE))
    assert (change.origin.setting, change.wanted.setting) == ("eagle3", "off")
    assert change.rule is not None
    assert (change.rule.version, change.decision) == (3, None)


@pytest.mark.parametrize("bad", INVALID, ids=str)
def test_invalid_resources_say_where_and_what_to_write(bad: Bad) -> None:
    with pytest.raises(ResourceError) as caught:
        read(bad.content, source="file.yaml", number=2)
    found = caught.value.faults
    assert [f.field for f in found] == [bad.field], str(caught.value)
    assert bad.says in found[0].message
    name = bad.base["metadata"]["name"]
    assert found[0].where == f"file.yaml: document 2: {bad.base['kind']}/{name}"


def test_the_base_of_every_invalid_resource_is_valid() -> None:
    for bad in INVALID:
        read(bad.base)


@pytest.mark.parametrize(
    ("content", "field", "says", "reason"),
    [
        ({**POLICY, "kind": "Policy"}, "kind", "SpeculationPolicy", "unknown kind"),
        ({**POLICY, "apiVersion": "v1"}, "apiVersion", "specpilot.io/v1alpha1", "other group"),
        ({**POLICY, "specs": {}}, "specs", "did you mean spec?", "unknown top level"),
        ({**POLICY, "metadata": {}}, "metadata.name", "write one", "no name"),
        ({k: v for k, v in RULES.items() if k != "spec"}, "spec", "add it", "no spec"),
        ("text", "", "no object", "not a mapping"),
        ([], "", "no object", "a list"),
    ],
)
def test_envelopes(content: object, field: str, says: str, reason: str) -> None:
    with pytest.raises(ResourceError) as caught:
        read(content)
    found = [(f.field, f.message) for f in caught.value.faults]
    assert any(f == field and says in m for f, m in found), (reason, found)


def test_all_that_is_wrong_is_said_at_once() -> None:
    bad = changed(POLICY, ("spec", "mode"), "auto")
    bad = changed(bad, ("spec", "telemetry", "window"), 5)
    bad = changed(bad, ("spec", "rules", "ruleSet"), False)
    with pytest.raises(ResourceError) as caught:
        read(bad)
    assert [f.field for f in caught.value.faults] == [
        "spec.mode",
        "spec.rules.ruleSet",
        "spec.telemetry.window",
    ]


def test_a_key_given_twice_is_refused() -> None:
    text = HEAD + "kind: RuleSet\nmetadata: {name: a, name: b}\nspec: {}\n"
    [(where, _, message)] = faults(text)
    assert where == "file.yaml: document 1: line 3, column 21"
    assert message == "name is given twice; keep one"


def test_text_that_is_no_yaml() -> None:
    [(where, _, message)] = faults("a: 1\n---\na: [1\nb: 2")
    assert where.startswith("file.yaml: document 2: line 4")
    assert "mind the indentation" in message


def test_two_documents_of_one_name() -> None:
    text = (EXAMPLES / "policy.yaml").read_text()
    found = faults(text + "\n---\n" + text)
    assert {f for _, f, _ in found} == {"metadata.name"}
    assert len(found) == 3


def test_empty_documents_count_but_do_not_matter() -> None:
    text = "---\n---\n# nothing\n---\n" + HEAD + "kind: RuleSet\nmetadata: {name: a}\nspec: 3\n"
    [(where, field, message)] = faults(text)
    assert where == "file.yaml: document 3: RuleSet/a"
    assert (field, message) == (
        "spec",
        "3 is not a mapping (key: value); write a mapping (key: value)",
    )


def test_dates_stay_text() -> None:
    text = HEAD + "kind: RuleSet\nmetadata: {name: a, labels: {since: 2026-03-01}}\nspec: {rules: "
    text += '[{name: a, when: batch_size > 1, setting: "off"}]}'
    assert load(text)[0].metadata.labels == {"since": "2026-03-01"}
