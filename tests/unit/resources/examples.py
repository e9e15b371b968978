"""Valid and invalid resources, shared by the tests of the models and of the API server."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
CRDS = ROOT / "charts" / "specpilot" / "crds"

Object = dict[str, Any]


def objects(name: str) -> list[Object]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def of_kind(name: str, kind: str) -> Object:
    return next(o for o in objects(name) if o["kind"] == kind)


POLICY = of_kind("policy.yaml", "SpeculationPolicy")
RULES = of_kind("policy.yaml", "RuleSet")
CHANNEL = of_kind("policy.yaml", "AlertChannel")
FLEET = of_kind("local.yaml", "LocalFleet")
CHANGE: Object = {
    "apiVersion": "specpilot.io/v1alpha1",
    "kind": "FlagChange",
    "metadata": {"name": "chat-1", "namespace": "serving"},
    "spec": {
        "policy": "chat",
        "target": {"kind": "Deployment", "name": "vllm-llama3-8b"},
        "kind": "Rule",
        "from": {
            "setting": "eagle3",
            "config": '{"method":"eagle3","model":"org/head","num_speculative_tokens":3}',
        },
        "to": {"setting": "off", "config": ""},
        "rule": {"ruleSet": "hit-rate", "version": 3, "rule": "off-when-drafts-stop-paying"},
        "createdAt": "2026-03-01T12:00:05Z",
        "evidence": [
            {
                "signal": "mean_acceptance_length",
                "value": 1.31,
                "comparison": "<",
                "threshold": 1.6,
                "at": "2026-03-01T12:00:00Z",
                "count": 4812,
                "windowSeconds": 300,
            },
            {"signal": "gpu_util", "reason": "NotExported"},
        ],
    },
}

GONE = object()
"""As a value: remove the field."""


@dataclass(frozen=True, kw_only=True)
class Bad:
    """A valid object with one thing wrong.

    Attributes:
        reason: What is wrong with it.
        base: The valid object.
        at: Path of the change.
        value: What is put there, GONE removes it.
        field: Path that the message must name.
        says: What the message must contain: the remedy.
        api_says: The same for the API server, where its words differ; None: it cannot tell.
    """

    reason: str
    base: Object
    at: tuple[str | int, ...]
    value: Any
    field: str
    says: str
    api_field: str = ""
    api_says: str | None = ""

    def __str__(self) -> str:
        return self.reason.replace(" ", "-")

    @property
    def content(self) -> Object:
        return changed(self.base, self.at, self.value)


def changed(base: Mapping[str, Any], at: tuple[str | int, ...], value: Any) -> Object:
    result: Object = copy.deepcopy(dict(base))
    place: Any = result
    for part in at[:-1]:
        if isinstance(place, dict) and part not in place:
            place[part] = {}
        place = place[part]
    if value is GONE:
        del place[at[-1]]
    elif isinstance(place, list) and at[-1] == len(place):
        place.append(value)
    else:
        place[at[-1]] = value
    return result


def _bad(base: Object, reason: str, at: str, value: Any, field: str, **says: Any) -> Bad:
    path = tuple(int(p) if p.isdigit() else p for p in at.split("."))
    return Bad(reason=reason, base=base, at=("spec", *path), value=value, field=field, **says)


_EAGLE = {"name": "e", "method": "eagle3", "numSpeculativeTokens": 3}

INVALID = [
    _bad(
        POLICY,
        "unknown field",
        "modes",
        "Auto",
        "spec.modes",
        says="did you mean mode?",
        api_says=None,
    ),
    _bad(
        POLICY,
        "unknown mode",
        "mode",
        "auto",
        "spec.mode",
        says="Off, Advisory, Propose, Approve or Auto",
        api_says='"Off", "Advisory", "Propose", "Approve", "Auto"',
    ),
    _bad(
        POLICY,
        "target of another kind",
        "target.kind",
        "DaemonSet",
        "spec.target.kind",
        says="write Deployment, StatefulSet, LeaderWorkerSet, Rollout, InferenceService",
        api_says='supported values: "Deployment", "StatefulSet", "LeaderWorkerSet"',
    ),
    _bad(
        POLICY,
        "no target name",
        "target.name",
        GONE,
        "spec.target.name",
        says="add it",
        api_says="Required value",
    ),
    _bad(
        POLICY,
        "no settings",
        "settings",
        [],
        "spec.settings",
        says="add one",
        api_says="at least 1",
    ),
    _bad(
        POLICY,
        "only off",
        "settings",
        [{"name": "off"}],
        "spec.settings",
        says='add a setting besides "off"',
    ),
    _bad(
        POLICY,
        "two settings of one name",
        "settings.2",
        {"name": "ngram", "method": "ngram", "numSpeculativeTokens": 2},
        "spec.settings",
        says="give each a name of its own",
    ),
    _bad(
        POLICY,
        "off with a method",
        "settings.2",
        {"name": "off", "method": "ngram", "numSpeculativeTokens": 2},
        "spec.settings[2]",
        says='the name "off" is reserved',
    ),
    _bad(
        POLICY,
        "the name that rule sets give to any setting that speculates",
        "settings.2",
        {"name": "speculating", "method": "ngram", "numSpeculativeTokens": 2},
        "spec.settings[2]",
        says='the name "speculating" is what rule sets call',
    ),
    _bad(
        POLICY,
        "no method",
        "settings.2",
        {"name": "fast"},
        "spec.settings[2]",
        says="method",
        api_says="add one, such as ngram or eagle3",
    ),
    _bad(
        POLICY,
        "eagle3 without a model",
        "settings.2",
        _EAGLE,
        "spec.settings[2]",
        says="add model:",
    ),
    _bad(
        POLICY,
        "ngram with a model",
        "settings.1.model",
        "x/y",
        "spec.settings[1]",
        says="remove model",
    ),
    _bad(
        POLICY,
        "ngram without a depth",
        "settings.1.numSpeculativeTokens",
        GONE,
        "spec.settings[1]",
        says="numSpeculativeTokens, such as 3",
    ),
    _bad(
        POLICY,
        "depth of zero",
        "settings.1.numSpeculativeTokens",
        0,
        "spec.settings[1].numSpeculativeTokens",
        says="at least 1",
        api_says="greater than or equal to 1",
    ),
    _bad(
        POLICY,
        "depth in quotes",
        "settings.1.numSpeculativeTokens",
        "4",
        "spec.settings[1].numSpeculativeTokens",
        says="write a whole number without quotes",
        api_says='must be of type integer: "string"',
    ),
    _bad(
        POLICY,
        "batch limit of zero",
        "settings.0.disableAboveBatchSize",
        0,
        "spec.settings[0].disableAboveBatchSize",
        says="at least 1",
        api_says="greater than or equal to 1",
    ),
    _bad(
        POLICY,
        "name with capitals",
        "settings.1.name",
        "NGram",
        "spec.settings[1].name",
        says="lower-case letters, digits and dashes",
    ),
    _bad(
        POLICY,
        "bare off in YAML",
        "settings.1.name",
        False,
        "spec.settings[1].name",
        says='write "off" in quotes',
        api_says='must be of type string: "boolean"',
    ),
    _bad(
        POLICY,
        "no rule set",
        "rules.ruleSet",
        GONE,
        "spec.rules.ruleSet",
        says="add it",
        api_says="Required value",
    ),
    _bad(POLICY, "no rules", "rules", GONE, "spec.rules", says="add it", api_says="Required value"),
    _bad(
        POLICY,
        "parameter in quotes",
        "rules.parameters.busyBatch",
        "48",
        "spec.rules.parameters.busyBatch",
        says="a number without quotes",
        api_says='must be of type number: "string"',
    ),
    _bad(
        POLICY,
        "duration in words",
        "telemetry.window",
        "5 minutes",
        "spec.telemetry.window",
        says="write 5m",
        api_says="write a duration such as 90s, 5m or 1h30m",
    ),
    _bad(
        POLICY,
        "duration in days",
        "probe.longest",
        "2d",
        "spec.probe.longest",
        says="write 48h",
        api_says="write a duration such as 90s, 5m or 1h30m",
    ),
    _bad(
        POLICY,
        "duration without a unit",
        "telemetry.warmUp",
        60,
        "spec.telemetry.warmUp",
        says="write 60s or 60m",
        api_says='must be of type string: "integer"',
    ),
    _bad(
        POLICY,
        "empty duration",
        "telemetry.warmUp",
        "",
        "spec.telemetry.warmUp",
        says="a duration such as 90s",
    ),
    _bad(
        POLICY,
        "window of nothing",
        "telemetry.window",
        "0s",
        "spec.telemetry.window",
        says="longer than 0s",
    ),
    _bad(
        POLICY,
        "no canary",
        "rollout.canary.replicas",
        0,
        "spec.rollout.canary.replicas",
        says="at least 1",
        api_says="every change needs a canary; write 1 or more",
    ),
    _bad(
        POLICY,
        "negative request count",
        "rollout.canary.minRequests",
        -1,
        "spec.rollout.canary.minRequests",
        says="at least 0",
        api_says="greater than or equal to 0",
    ),
    _bad(
        POLICY,
        "channel that is not there",
        "rollout.channel",
        "Volume",
        "spec.rollout.channel",
        says="Auto, Annotation, Args or Owner",
        api_says='supported values: "Auto", "Annotation", "Args", "Owner"',
    ),
    _bad(
        POLICY,
        "unknown signal",
        "guardrails.0.signal",
        "tpot_meen",
        "spec.guardrails[0].signal",
        says="did you mean tpot_mean?",
        api_says=None,
    ),
    _bad(
        POLICY,
        "guardrail on a signal that no canary has",
        "guardrails.0.signal",
        "cost_ratio",
        "spec.guardrails[0].signal",
        says="use a signal that is measured",
    ),
    _bad(
        POLICY,
        "cost of nothing",
        "settings.1.costRatio",
        0,
        "spec.settings[1].costRatio",
        says="at least 0.1",
    ),
    _bad(
        POLICY,
        "cost of being off",
        "settings.2",
        {"name": "off", "costRatio": 1.2},
        "spec.settings[2]",
        says='the name "off" is reserved',
    ),
    _bad(
        POLICY,
        "cost at one batch size twice",
        "settings.1.costRatioByBatch",
        [{"batch": 8, "ratio": 1.2}, {"batch": 8, "ratio": 1.4}],
        "spec.settings[1].costRatioByBatch",
        says="batch 8 is there twice; remove one",
        api_field="spec.settings[1].costRatioByBatch[1]",
        api_says="Duplicate value",
    ),
    _bad(
        POLICY,
        "cost at no batch size",
        "settings.1.costRatioByBatch",
        [{"ratio": 1.2}],
        "spec.settings[1].costRatioByBatch[0].batch",
        says="add it",
        api_says="Required value",
    ),
    _bad(
        POLICY,
        "costs remembered for no time",
        "telemetry.rememberFor",
        "0s",
        "spec.telemetry.rememberFor",
        says="longer than 0s",
    ),
    _bad(
        POLICY,
        "guardrail without a bound",
        "guardrails.0",
        {"signal": "tpot_mean"},
        "spec.guardrails[0]",
        says="needs a bound",
        api_field="spec.guardrails[0].maxIncrease",
        api_says="Required value",
    ),
    _bad(
        POLICY,
        "bound in words",
        "guardrails.1.max",
        "4 seconds",
        "spec.guardrails[1].max",
        says="a time such as 4s",
        api_says="should match '^-?[0-9]+",
    ),
    _bad(
        POLICY,
        "percentage of a latency",
        "guardrails.1.max",
        "40%",
        "spec.guardrails[1]",
        says="write a bound in seconds",
        api_says=None,
    ),
    _bad(
        POLICY,
        "percentage as a whole number",
        "guardrails.0.maxIncrease",
        10,
        "spec.guardrails[0].maxIncrease",
        says='write "10%"',
        api_says='must be of type string: "integer"',
    ),
    _bad(
        POLICY,
        "percentage in words",
        "guardrails.0.maxIncrease",
        "ten percent",
        "spec.guardrails[0].maxIncrease",
        says='such as "10%"',
    ),
    _bad(
        POLICY,
        "share above one",
        "probe.margin",
        "5",
        "spec.probe.margin",
        says='write "5%"',
        api_says='write a percentage in quotes, such as "10%"',
    ),
    _bad(
        POLICY,
        "probe of a setting that is not there",
        "probe.setting",
        "eagle",
        "spec",
        says="name one of",
        api_field="spec.probe",
    ),
    _bad(
        POLICY,
        "probe of off",
        "probe.setting",
        "off",
        "spec",
        says="name one of",
        api_field="spec.probe",
    ),
    _bad(
        POLICY,
        "probe that shrinks",
        "probe.backOff",
        0.5,
        "spec.probe.backOff",
        says="at least 1",
        api_says="greater than or equal to 1",
    ),
    _bad(
        POLICY,
        "longest below every",
        "probe.longest",
        "30m",
        "spec.probe",
        says="at least as long",
        api_field="spec.probe.longest",
    ),
    _bad(
        POLICY,
        "numeric weekday",
        "freezeWindows.0.schedule",
        "0 18 * * 5",
        "spec.freezeWindows[0].schedule",
        says="name the weekdays",
    ),
    _bad(
        POLICY,
        "numeric weekday range",
        "freezeWindows.0.schedule",
        "0 18 * * 1-5",
        "spec.freezeWindows[0].schedule",
        says="name the weekdays",
    ),
    _bad(
        POLICY,
        "schedule of four fields",
        "freezeWindows.0.schedule",
        "0 18 * *",
        "spec.freezeWindows[0].schedule",
        says="write five fields",
    ),
    _bad(
        POLICY,
        "hour that is not there",
        "freezeWindows.0.schedule",
        "0 25 * * FRI",
        "spec.freezeWindows[0].schedule",
        says='such as "0 18 * * FRI"',
        api_says=None,
    ),
    _bad(
        POLICY,
        "zone that is not there",
        "freezeWindows.0.timeZone",
        "Europe/Berln",
        "spec.freezeWindows[0].timeZone",
        says="such as Europe/Berlin",
        api_says=None,
    ),
    _bad(
        POLICY,
        "window without an end",
        "freezeWindows.0.duration",
        GONE,
        "spec.freezeWindows[0].duration",
        says="add it",
        api_says="Required value",
    ),
    _bad(
        POLICY,
        "unknown event",
        "alerts.0.events.0",
        "Fliped",
        "spec.alerts[0].events[0]",
        says="Flipped",
    ),
    _bad(RULES, "no rule", "rules", [], "spec.rules", says="add one", api_says="at least 1"),
    _bad(
        RULES,
        "two rules of one name",
        "rules.1.name",
        "off-when-drafts-stop-paying",
        "spec.rules",
        says="give each a name of its own",
    ),
    _bad(
        RULES,
        "condition over an unknown signal",
        "rules.1.when",
        "batch_siz < 4",
        "spec.rules",
        says="did you mean batch_size?",
        api_says=None,
    ),
    _bad(
        RULES,
        "condition over an unknown parameter",
        "rules.1.when",
        "batch_size < params.bsy",
        "spec.rules",
        says="params",
        api_says=None,
    ),
    _bad(
        RULES,
        "condition that is a number",
        "rules.1.when",
        "batch_size + 1",
        "spec.rules",
        says="true or false",
        api_says=None,
    ),
    _bad(
        RULES,
        "empty condition",
        "rules.1.when",
        "",
        "spec.rules[1].when",
        says="write something",
        api_says="at least 1 chars",
    ),
    _bad(
        RULES,
        "hold time in words",
        "rules.0.for",
        "five minutes",
        "spec.rules[0].for",
        says="such as 90s",
    ),
    _bad(
        RULES,
        "two ways to wait",
        "rules.0.atLeast",
        {"windows": 3, "of": 5, "each": "1m"},
        "spec.rules[0]",
        says="for and atLeast are two ways to wait; remove one of them",
    ),
    _bad(
        RULES,
        "more windows than are looked at",
        "rules.1",
        {
            "name": "a",
            "when": "batch_size < 4",
            "setting": "eagle3",
            "atLeast": {"windows": 6, "of": 5, "each": "1m"},
        },
        "spec.rules[1].atLeast",
        says="make windows at most of",
    ),
    _bad(
        RULES,
        "more windows than can be remembered",
        "rules.1",
        {
            "name": "a",
            "when": "batch_size < 4",
            "setting": "eagle3",
            "atLeast": {"windows": 6, "of": 61, "each": "1m"},
        },
        "spec.rules[1].atLeast.of",
        says="60",
    ),
    _bad(
        RULES,
        "windows of no length",
        "rules.1",
        {
            "name": "a",
            "when": "batch_size < 4",
            "setting": "eagle3",
            "atLeast": {"windows": 3, "of": 5, "each": "0s"},
        },
        "spec.rules[1].atLeast.each",
        says="longer than 0s",
    ),
    _bad(
        RULES,
        "unknown answer to Unknown",
        "rules.0.onUnknown",
        "ignore",
        "spec.rules[0].onUnknown",
        says="hold, fire or skip",
        api_says='"hold", "fire", "skip"',
    ),
    _bad(
        RULES,
        "grace in words",
        "rules.0.grace",
        "a minute",
        "spec.rules[0].grace",
        says="such as 90s",
    ),
    _bad(
        RULES,
        "until over an unknown signal",
        "rules.0.until",
        "batch_siz < 4",
        "spec.rules",
        says="the until of off-when-drafts-stop-paying: there is no signal called batch_siz",
        api_says=None,
    ),
    _bad(
        RULES,
        "time zone that does not exist",
        "timeZone",
        "Mars/Base",
        "spec.timeZone",
        says="write an IANA name such as UTC or Europe/Berlin",
        api_says=None,
    ),
    _bad(
        RULES,
        "unit that does not fit",
        "rules.1.when",
        "batch_size < 5m",
        "spec.rules",
        says="batch_size is in requests and 5m is in seconds",
        api_says=None,
    ),
    _bad(
        RULES,
        "rule without a setting",
        "rules.0.setting",
        GONE,
        "spec.rules[0].setting",
        says="add it",
        api_says="Required value",
    ),
    _bad(
        CHANNEL,
        "unknown type",
        "type",
        "teams",
        "spec.type",
        says="webhook or slack",
        api_says='supported values: "webhook", "slack"',
    ),
    _bad(
        CHANNEL,
        "url and urlFrom",
        "url",
        "https://example.com",
        "spec",
        says="exactly one of url and urlFrom",
    ),
    _bad(CHANNEL, "no address", "urlFrom", GONE, "spec", says="exactly one of url and urlFrom"),
    _bad(CHANNEL, "two sources", "urlFrom.env", "URL", "spec.urlFrom", says="exactly one of"),
    _bad(
        CHANNEL, "signed slack", "secretFrom", {"env": "SECRET"}, "spec", says="remove secretFrom"
    ),
    Bad(
        reason="address without a scheme",
        base=CHANNEL,
        at=("spec",),
        value={"type": "webhook", "url": "example.com/hook"},
        field="spec.url",
        says="starts with https://",
    ),
    _bad(
        CHANGE,
        "unknown decision",
        "decision",
        "approve",
        "spec.decision",
        says="Approve or Reject",
        api_says='supported values: "Approve", "Reject"',
    ),
    _bad(
        CHANGE,
        "decided by without decision",
        "decidedBy",
        "carol",
        "spec",
        says="add decision: Approve or Reject",
        api_field="spec.decidedBy",
    ),
    _bad(FLEET, "no command", "command", [], "spec.command", says="add one", api_says=None),
    _bad(FLEET, "too few ports", "ports", [8101], "spec", says="name 2", api_says=None),
    _bad(
        FLEET,
        "one port twice",
        "ports",
        [8101, 8101],
        "spec.ports",
        says="give each",
        api_says=None,
    ),
    _bad(
        FLEET,
        "gateway on a server's port",
        "ports",
        [8000, 8001],
        "spec",
        says="give it another",
        api_says=None,
    ),
    _bad(
        FLEET,
        "variables for one of two",
        "replicaEnv",
        [{"A": "1"}],
        "spec",
        says="replicaEnv: 1 entries for 2 replicas",
        api_says=None,
    ),
    _bad(
        FLEET,
        "number as a variable",
        "env",
        {"A": 1},
        "spec.env.A",
        says="write text",
        api_says=None,
    ),
    _bad(
        FLEET,
        "version in words",
        "engineVersion",
        "latest",
        "spec.engineVersion",
        says="use an image tag",
        api_says=None,
    ),
]
"""Each is wrong in one way; `api_says` None marks what only the operator can tell."""
