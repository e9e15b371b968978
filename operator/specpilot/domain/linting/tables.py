"""In which of the tried situations each rule is true."""

import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from zoneinfo import ZoneInfo

from specpilot.domain.conditions import Condition, Truth
from specpilot.domain.evaluation import CompiledRuleSet, Evaluation
from specpilot.domain.linting.syntax import shape
from specpilot.domain.linting.worlds import (
    ANOTHER,
    SETTING,
    Situation,
    State,
    Value,
    axes,
    situation,
)
from specpilot.domain.rules import OnUnknown, Rule, RuleSet
from specpilot.domain.settings import OFF_NAME, SPECULATING

MOST = 4096
"""Situations tried for one condition in one state; of more, so many are drawn."""

Row = tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truths:
    """Where a condition is true in one state.

    Attributes:
        variables: What a row has values of, in this order.
        true: The rows.
        tried: How many rows were tried.
        sizes: How many values of each variable.
        complete: Whether they stand for all there are.
    """

    variables: tuple[str, ...]
    true: tuple[Row, ...]
    tried: int
    sizes: tuple[int, ...]
    complete: bool

    def known(self, row: Row) -> dict[str, Value]:
        """A row by variable, without what is Unknown."""
        return {n: v for n, v in zip(self.variables, row, strict=True) if v is not None}

    def index(self, shared: tuple[str, ...]) -> dict[Row, list[Row]]:
        """The rows by their values of some of the variables."""
        places = [self.variables.index(name) for name in shared]
        found: dict[Row, list[Row]] = {}
        for row in self.true:
            found.setdefault(tuple(row[p] for p in places), []).append(row)
        return found


class Analysis:
    """A rule set with everything that lint asks of it more than once."""

    def __init__(self, rules: CompiledRuleSet) -> None:
        self.rule_set: RuleSet = rules.rule_set
        self.zone = ZoneInfo(rules.rule_set.time_zone)
        parameters = rules.rule_set.parameters
        self._rules = rules
        self._parameters = {f"params.{name}": value for name, value in parameters.items()}
        self.shapes = {n: shape(c.tree, parameters=parameters) for n, c in rules.conditions.items()}
        self.until_shapes = {
            n: shape(c.tree, parameters=parameters) for n, c in rules.untils.items()
        }
        self._axes = axes([*self.shapes.values(), *self.until_shapes.values()])
        named = self._axes.get("setting.name")
        self._named = named.values if named is not None else ()
        self._seen: dict[Hashable, Truths] = {}

    @property
    def states(self) -> tuple[State, ...]:
        """What can run: off, and every setting that a rule names; one of them speculates."""
        names = dict.fromkeys([OFF_NAME, *(r.setting for r in self.rule_set.rules)])
        names |= dict.fromkeys(str(v) for v in self._named if v)
        if len(names) == 1:
            names[SPECULATING] = None
        return tuple(State(setting=name) for name in names)

    @property
    def everywhere(self) -> tuple[State, ...]:
        """The same, and a setting of the policy's that no rule names."""
        return (*self.states, State(setting=ANOTHER))

    def when(self, rule: Rule, state: State) -> Truths:
        """Where its condition is true."""
        parts = self.shapes[rule.name]
        when = self._rules.conditions[rule.name]
        return self._truths(
            ("when", rule.name),
            parts.variables,
            state,
            loose=bool(parts.loose),
            true=lambda known: self._ask(when, known) is Truth.TRUE,
        )

    def until(self, rule: Rule, state: State) -> Truths:
        """Where its `until` is true."""
        parts = self.until_shapes[rule.name]
        until = self._rules.untils[rule.name]
        return self._truths(
            ("until", rule.name),
            parts.variables,
            state,
            loose=bool(parts.loose),
            true=lambda known: self._ask(until, known) is Truth.TRUE,
        )

    def fires(self, rule: Rule, state: State) -> Truths:
        """Where the rule fires once it has held: `until`, drafts and `onUnknown` included."""
        when = self._rules.conditions[rule.name]
        until = self._rules.untils.get(rule.name)
        shapes = [self.shapes[rule.name]]
        if until is not None:
            shapes.append(self.until_shapes[rule.name])
        no_drafts = state.off and rule.min_drafts > 0

        def true(known: Mapping[str, Value]) -> bool:
            truth = self._ask(when, known)
            if truth is Truth.TRUE and no_drafts:
                truth = Truth.UNKNOWN
            if truth is Truth.TRUE and until is not None:
                return self._ask(until, known) is not Truth.TRUE
            return truth is Truth.TRUE or (
                truth is Truth.UNKNOWN and rule.on_unknown is OnUnknown.FIRE
            )

        variables = tuple(dict.fromkeys(v for s in shapes for v in s.variables))
        key = ("fires", rule.name, no_drafts)
        return self._truths(key, variables, state, loose=any(s.loose for s in shapes), true=true)

    def can_fire(self, rule: Rule, state: State) -> bool:
        """Whether anything makes it fire, too few drafts included where those count as true."""
        few = rule.min_drafts > 0 and rule.on_unknown is OnUnknown.FIRE
        return bool(self.fires(rule, state).true or (few and self.when(rule, state).true))

    def _truths(
        self,
        key: Hashable,
        variables: tuple[str, ...],
        state: State,
        *,
        loose: bool,
        true: Callable[[Mapping[str, Value]], bool],
    ) -> Truths:
        values = [state.values(self._axes[name]) for name in variables]
        # States in which the same can be are not told apart by the condition.
        key = (key, *values)
        if (seen := self._seen.get(key)) is not None:
            return seen
        rows, whole = _rows(values)
        truths = [row for row in rows if true(dict(zip(variables, row, strict=True)))]
        found = self._seen[key] = Truths(
            variables=variables,
            true=tuple(sorted(truths, key=lambda row: sum(v is None for v in row))),
            tried=len(rows),
            sizes=tuple(len(v) for v in values),
            complete=whole and not loose,
        )
        return found

    def _ask(self, condition: Condition, known: Mapping[str, Value]) -> Truth:
        values: dict[str, object] = {
            name: dict(value) if isinstance(value, tuple) else value
            for name, value in known.items()
            if value is not None
        }
        return condition.truth(values | self._parameters)

    def situation(self, known: Mapping[str, Value], state: State) -> Situation:
        """What these values are while a setting runs."""
        return situation(known, state=state, zone=self.zone)

    def evaluate(self, made: Situation) -> Evaluation:
        """Ask the whole rule set, every rule taken as having held for long enough."""
        return self._rules.evaluate(
            made.readings,
            active=made.active,
            parameters={},
            pending={},
            target=made.target,
            now=made.now,
            assume_held=True,
        )

    def drafts(self) -> dict[str, Value]:
        """Drafts enough for every rule, where one asks for any."""
        most = max((r.min_drafts for r in self.rule_set.rules), default=0)
        return {"drafts": float(most)} if most else {}


def _rows(values: list[tuple[Value, ...]]) -> tuple[list[Row], bool]:
    size = prod(len(v) for v in values)
    if size <= MOST:
        return list(product(*values)), True
    draw = random.Random(size)  # noqa: S311 - which readings are tried is no secret
    return [tuple(draw.choice(v) for v in values) for _ in range(MOST)], False


def joined(one: Truths, other: Truths, *, apart: Iterable[str] = ()) -> Iterator[tuple[Row, Row]]:
    """Pairs of rows that agree in every variable that both have, but for those told apart."""
    separate = {*apart, *SETTING}
    shared = tuple(v for v in one.variables if v in other.variables and v not in separate)
    index = other.index(shared)
    places = [one.variables.index(name) for name in shared]
    for row in one.true:
        for match in index.get(tuple(row[p] for p in places), ()):
            yield row, match
