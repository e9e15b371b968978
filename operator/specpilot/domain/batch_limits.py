"""A setting's own batch limit, kept to by a rule where the engine does not.

`disableAboveBatchSize` is an intent. Some releases are told it, some would crash on it, some accept
and ignore it. Where the engine will not switch speculation off above the limit, a rule that nobody
has to write does, before all others, and a gate keeps the setting from coming back too early. Both
have the patience and the dead band of the shipped batch-guard pack.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from specpilot.domain.rules import Rule, RuleSet
from specpilot.domain.settings import OFF_NAME

WINDOWS = 3
"""How many of the policy's windows the batch must have been above the limit."""

DEAD_BAND = 0.2
"""Speculation may come back only this far below the limit, as a share of it."""


_PREFIX = "disableAboveBatchSize:"


def rule_name(setting: str) -> str:
    """Name of the rule that keeps to a setting's limit."""
    return _PREFIX + setting


def limited_setting(rule: Rule) -> str:
    """The setting whose limit a generated rule keeps."""
    return rule.name.removeprefix(_PREFIX)


def resume(limit: int) -> float:
    """Running requests per replica below which the setting may come back."""
    return limit * (1 - DEAD_BAND)


def with_limits(rule_set: RuleSet, limits: Mapping[str, int], *, window: timedelta) -> RuleSet:
    """The rule set, with a rule before the others for every limit that rules must enforce.

    Args:
        rule_set: What the user wrote.
        limits: Running requests per replica, by the setting that is not to run above them.
        window: The window of the policy's signals.
    """
    guards = tuple(
        Rule(
            name=rule_name(setting),
            when=f'setting.name == "{setting}" && batch_size > {limit}',
            until=f'batch_size < {resume(limit):g} || setting.name != "{setting}"',
            hold=WINDOWS * window,
            setting=OFF_NAME,
        )
        for setting, limit in sorted(limits.items())
    )
    return replace(rule_set, rules=(*guards, *rule_set.rules)) if guards else rule_set
