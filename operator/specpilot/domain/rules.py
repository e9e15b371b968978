"""Rules as data: a condition over signals that asks for a setting."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from specpilot.domain.settings import canonical_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule.

    Attributes:
        name: Unique in its rule set.
        when: CEL expression over signals and `params`; must be boolean.
        hold: How long the condition must have held (`for` in YAML).
        setting: Setting it asks for.
        min_drafts: Drafts the window must contain for the rule to be judged at all.
    """

    name: str
    when: str
    setting: str
    hold: timedelta = timedelta(0)
    min_drafts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """An ordered list of rules with parameters; the content of one version.

    Attributes:
        name: Name in its namespace.
        rules: First match wins.
        parameters: Numbers the conditions use as `params.NAME`.
        description: For people.
    """

    name: str
    rules: tuple[Rule, ...]
    parameters: Mapping[str, float] = field(default_factory=dict)
    description: str = ""

    def content(self) -> dict[str, object]:
        """Plain data, equal exactly when the rules mean the same."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": {k: float(v) for k, v in self.parameters.items()},
            "rules": [
                {
                    "name": r.name,
                    "when": r.when,
                    "setting": r.setting,
                    "for_s": r.hold.total_seconds(),
                    "min_drafts": r.min_drafts,
                }
                for r in self.rules
            ],
        }

    def content_hash(self) -> str:
        """SHA-256 of the content, hexadecimal."""
        return hashlib.sha256(canonical_json(self.content()).encode()).hexdigest()

    @classmethod
    def from_content(cls, content: Mapping[str, object]) -> "RuleSet":
        """Read back what `content` wrote."""
        parameters, rules = content["parameters"], content["rules"]
        assert isinstance(parameters, Mapping)
        assert isinstance(rules, list)
        return cls(
            name=str(content["name"]),
            description=str(content.get("description", "")),
            parameters={str(k): float(v) for k, v in parameters.items()},
            rules=tuple(
                Rule(
                    name=r["name"],
                    when=r["when"],
                    setting=r["setting"],
                    hold=timedelta(seconds=r["for_s"]),
                    min_drafts=r["min_drafts"],
                )
                for r in rules
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSetVersion:
    """An immutable version of a rule set as it stands in the database."""

    namespace: str
    version: int
    rule_set: RuleSet
    content_hash: str
    author: str
    source: str
