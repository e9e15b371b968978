"""Rules as data: a condition over signals that asks for a setting."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from specpilot.domain.settings import canonical_json

GRACE = timedelta(seconds=60)
"""How long data may be missing before the time a rule has held is forgotten, unless it says."""

UTC_ZONE = "UTC"

MAX_WINDOWS = 60
"""Most windows that a rule may look back over; each true one is remembered."""


class OnUnknown(StrEnum):
    """What a rule makes of a condition that is Unknown."""

    HOLD = "hold"
    FIRE = "fire"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLeast:
    """True in N of the last M windows, for conditions that flicker.

    Time is cut into windows that begin at multiples of their length since 1970 (UTC), so that
    every process cuts it in the same places.

    Attributes:
        windows: N.
        of: M, the closed windows that are looked at.
        each: Length of one, whole seconds.
    """

    windows: int
    of: int
    each: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule.

    Attributes:
        name: Unique in its rule set.
        when: CEL expression over signals and `params`; must be boolean.
        setting: Setting it asks for.
        hold: How long the condition must have held (`for` in YAML).
        at_least: In how many windows it must have been true, instead of `hold`.
        until: Once `when` has been true the rule stays true until this is; "" for none.
        on_unknown: What an Unknown condition counts as.
        grace: How long data may be missing before what was held is forgotten.
        min_drafts: Drafts the window must contain for the rule to be judged at all.
    """

    name: str
    when: str
    setting: str
    hold: timedelta = timedelta(0)
    at_least: AtLeast | None = None
    until: str = ""
    on_unknown: OnUnknown = OnUnknown.HOLD
    grace: timedelta = GRACE
    min_drafts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """An ordered list of rules with parameters; the content of one version.

    Attributes:
        name: Name in its namespace.
        rules: First match wins.
        parameters: Numbers the conditions use as `params.NAME`.
        time_zone: IANA name of the zone that `time` is told in.
        description: For people.
    """

    name: str
    rules: tuple[Rule, ...]
    parameters: Mapping[str, float] = field(default_factory=dict)
    time_zone: str = UTC_ZONE
    description: str = ""

    def content(self) -> dict[str, object]:
        """Plain data, equal exactly when the rules mean the same.

        What is at its default is left out where the key is newer than the first release: the
        hash of a rule set that does not use it must not change, or it would become a new version.
        """
        content: dict[str, object] = {
            "name": self.name,
            "description": self.description,
            "parameters": {k: float(v) for k, v in self.parameters.items()},
            "rules": [_rule_content(r) for r in self.rules],
        }
        if self.time_zone != UTC_ZONE:
            content["time_zone"] = self.time_zone
        return content

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
            time_zone=str(content.get("time_zone", UTC_ZONE)),
            rules=tuple(_rule(r) for r in rules),
        )


def _rule_content(rule: Rule) -> dict[str, object]:
    content: dict[str, object] = {
        "name": rule.name,
        "when": rule.when,
        "setting": rule.setting,
        "for_s": rule.hold.total_seconds(),
        "min_drafts": rule.min_drafts,
    }
    if rule.at_least is not None:
        content["at_least"] = {
            "windows": rule.at_least.windows,
            "of": rule.at_least.of,
            "each_s": rule.at_least.each.total_seconds(),
        }
    if rule.until:
        content["until"] = rule.until
    if rule.on_unknown is not OnUnknown.HOLD:
        content["on_unknown"] = str(rule.on_unknown)
    if rule.grace != GRACE:
        content["grace_s"] = rule.grace.total_seconds()
    return content


def _rule(content: Mapping[str, Any]) -> Rule:
    at_least = content.get("at_least")
    return Rule(
        name=content["name"],
        when=content["when"],
        setting=content["setting"],
        hold=timedelta(seconds=content["for_s"]),
        at_least=None
        if at_least is None
        else AtLeast(
            windows=at_least["windows"],
            of=at_least["of"],
            each=timedelta(seconds=at_least["each_s"]),
        ),
        until=content.get("until", ""),
        on_unknown=OnUnknown(content.get("on_unknown", OnUnknown.HOLD)),
        grace=timedelta(seconds=content.get("grace_s", GRACE.total_seconds())),
        min_drafts=content["min_drafts"],
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
