"""RuleSet: rules and their parameters, checked when they are read and not when they fire."""

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from specpilot.domain.conditions import MAX_LENGTH, Condition, ConditionError
from specpilot.domain.context import read_zone
from specpilot.domain.rules import (
    GRACE,
    MAX_WINDOWS,
    UTC_ZONE,
    AtLeast,
    OnUnknown,
    Rule,
    RuleSet,
)
from specpilot.resources.base import Name, Strict, Text
from specpilot.resources.quantities import Duration, PositiveDuration


class AtLeastSpec(Strict):
    """In how many of the last windows a condition must have been true."""

    windows: Annotated[int, Field(ge=1, le=MAX_WINDOWS)]
    of: Annotated[int, Field(ge=1, le=MAX_WINDOWS)]
    each: PositiveDuration

    @model_validator(mode="after")
    def _countable(self) -> Self:
        if self.windows > self.of:
            raise ValueError(
                f"{self.windows} of {self.of} windows can never be; make windows at most of"
            )
        return self


class RuleSpec(Strict):
    """One rule."""

    name: Name
    when: Annotated[str, StringConstraints(min_length=1, max_length=MAX_LENGTH)]
    hold: Annotated[Duration, Field(alias="for")] = timedelta(0)
    at_least: AtLeastSpec | None = None
    until: Annotated[str, StringConstraints(max_length=MAX_LENGTH)] = ""
    on_unknown: OnUnknown = OnUnknown.HOLD
    grace: Duration = GRACE
    setting: Name
    min_drafts: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _one_memory(self) -> Self:
        if self.at_least is not None and "hold" in self.model_fields_set:
            raise ValueError("for and atLeast are two ways to wait; remove one of them")
        return self


class RuleSetSpec(Strict):
    """The spec of a RuleSet."""

    description: Text = ""
    time_zone: Annotated[str, StringConstraints(max_length=64)] = UTC_ZONE
    parameters: dict[str, float] = Field(default_factory=dict)
    rules: Annotated[tuple[RuleSpec, ...], Field(min_length=1, max_length=64)]

    @field_validator("time_zone")
    @classmethod
    def _zone(cls, name: str) -> str:
        read_zone(name)
        return name

    @field_validator("rules")
    @classmethod
    def _sound(cls, rules: tuple[RuleSpec, ...], info: ValidationInfo) -> tuple[RuleSpec, ...]:
        names = [r.name for r in rules]
        if twice := next((n for n in names if names.count(n) > 1), None):
            raise ValueError(f"two rules are named {twice}; give each a name of its own")
        if "parameters" not in info.data:
            return rules  # they are at fault themselves, and the conditions could not be judged
        for rule in rules:
            for what, text in (("condition", rule.when), ("until", rule.until)):
                try:
                    if text:
                        Condition(text, parameters=info.data["parameters"])
                except ConditionError as error:
                    raise ValueError(f"the {what} of {rule.name}: {error}") from None
        return rules


def rule_set(spec: RuleSetSpec, *, name: str) -> RuleSet:
    """Make the domain's rule set of a spec."""
    return RuleSet(
        name=name,
        description=spec.description,
        time_zone=spec.time_zone,
        parameters=spec.parameters,
        rules=tuple(_rule(r) for r in spec.rules),
    )


def _rule(spec: RuleSpec) -> Rule:
    windows = spec.at_least
    return Rule(
        name=spec.name,
        when=spec.when,
        hold=spec.hold,
        at_least=None
        if windows is None
        else AtLeast(windows=windows.windows, of=windows.of, each=windows.each),
        until=spec.until,
        on_unknown=spec.on_unknown,
        grace=spec.grace,
        setting=spec.setting,
        min_drafts=spec.min_drafts,
    )
