"""RuleSet: rules and their parameters, checked when they are read and not when they fire."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationInfo, field_validator

from specpilot.domain.conditions import MAX_LENGTH, Condition, ConditionError
from specpilot.domain.rules import Rule, RuleSet
from specpilot.resources.base import Name, Strict, Text
from specpilot.resources.quantities import Duration


class RuleSpec(Strict):
    """One rule."""

    name: Name
    when: Annotated[str, StringConstraints(min_length=1, max_length=MAX_LENGTH)]
    hold: Annotated[Duration, Field(alias="for")] = timedelta(0)
    setting: Name
    min_drafts: Annotated[int, Field(ge=0)] = 0


class RuleSetSpec(Strict):
    """The spec of a RuleSet."""

    description: Text = ""
    parameters: dict[str, float] = Field(default_factory=dict)
    rules: Annotated[tuple[RuleSpec, ...], Field(min_length=1, max_length=64)]

    @field_validator("rules")
    @classmethod
    def _sound(cls, rules: tuple[RuleSpec, ...], info: ValidationInfo) -> tuple[RuleSpec, ...]:
        names = [r.name for r in rules]
        if twice := next((n for n in names if names.count(n) > 1), None):
            raise ValueError(f"two rules are named {twice}; give each a name of its own")
        if "parameters" not in info.data:
            return rules  # they are at fault themselves, and the conditions could not be judged
        for rule in rules:
            try:
                Condition(rule.when, parameters=info.data["parameters"])
            except ConditionError as error:
                raise ValueError(f"the condition of {rule.name}: {error}") from None
        return rules


def rule_set(spec: RuleSetSpec, *, name: str) -> RuleSet:
    """Make the domain's rule set of a spec."""
    return RuleSet(
        name=name,
        description=spec.description,
        parameters=spec.parameters,
        rules=tuple(
            Rule(
                name=r.name,
                when=r.when,
                hold=r.hold,
                setting=r.setting,
                min_drafts=r.min_drafts,
            )
            for r in spec.rules
        ),
    )
