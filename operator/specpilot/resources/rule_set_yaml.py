"""A rule set written back as the resource it can be applied from."""

from typing import Any

import yaml

from specpilot.domain.rules import GRACE, UTC_ZONE, OnUnknown, Rule, RuleSet
from specpilot.resources.base import API_VERSION
from specpilot.resources.quantities import format_duration


def rule_set_object(rule_set: RuleSet, *, namespace: str = "") -> dict[str, Any]:
    """The RuleSet object; what is at its default is left out."""
    spec: dict[str, Any] = {}
    if rule_set.description:
        spec["description"] = rule_set.description
    if rule_set.time_zone != UTC_ZONE:
        spec["timeZone"] = rule_set.time_zone
    if rule_set.parameters:
        spec["parameters"] = {k: _plain(v) for k, v in rule_set.parameters.items()}
    spec["rules"] = [_rule(rule) for rule in rule_set.rules]
    metadata = {"name": rule_set.name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": "RuleSet", "metadata": metadata, "spec": spec}


def rule_set_yaml(rule_set: RuleSet, *, namespace: str = "") -> str:
    """The same as YAML."""
    content = rule_set_object(rule_set, namespace=namespace)
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)


def _rule(rule: Rule) -> dict[str, Any]:
    written: dict[str, Any] = {"name": rule.name, "when": rule.when}
    if rule.until:
        written["until"] = rule.until
    if rule.at_least is not None:
        written["atLeast"] = {
            "windows": rule.at_least.windows,
            "of": rule.at_least.of,
            "each": format_duration(rule.at_least.each),
        }
    if rule.hold:
        written["for"] = format_duration(rule.hold)
    written["setting"] = rule.setting
    if rule.min_drafts:
        written["minDrafts"] = rule.min_drafts
    if rule.on_unknown is not OnUnknown.HOLD:
        written["onUnknown"] = str(rule.on_unknown)
    if rule.grace != GRACE:
        written["grace"] = format_duration(rule.grace)
    return written


def _plain(value: float) -> float | int:
    """Write 32, not 32.0: people write the former."""
    return int(value) if value.is_integer() else value
