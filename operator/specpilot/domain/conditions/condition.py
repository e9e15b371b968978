"""A compiled condition: three-valued, with the numbers read back for evidence.

Unknown is not false. What has no value is left out of the activation; what CEL then cannot
evaluate is an error value, and its `&&` and `||` absorb errors exactly as Kleene's do.
"""

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cel_expr_python import cel

from specpilot.domain.changes import Evidence
from specpilot.domain.conditions.checking import check
from specpilot.domain.conditions.compiling import compile_tree
from specpilot.domain.conditions.syntax import parse
from specpilot.domain.conditions.tree import Binary, Bool, Index, Name, Node, Number, Text, walk
from specpilot.domain.context import VARIABLES
from specpilot.domain.readings import Readings
from specpilot.domain.signals import REMEMBERED, SIGNALS

_HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_LABELS = "target.labels"
_CODE = re.compile(r"^[A-Z_]+: ")
_MISSING = re.compile(r'No value with name "([^"]+)" found in Activation')


class Truth(StrEnum):
    """Three-valued."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`signal op number` as it stands in a condition; either side is a literal or a parameter.

    Attributes:
        signal: The signal.
        op: As if the signal stood on the left.
        literal: The number in the signal's unit, None where it is a parameter.
        parameter: Name of the parameter, "" where it is a literal.
    """

    signal: str
    op: str
    literal: float | None = None
    parameter: str = ""

    def threshold(self, parameters: Mapping[str, float | None]) -> float | None:
        """The number it compares with."""
        return self.literal if not self.parameter else parameters.get(self.parameter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a condition says of some readings, with the numbers and the words."""

    truth: Truth
    why: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class _Mention:
    """A variable in a condition, with what it is compared with: for the words only."""

    name: str
    label: str = ""
    op: str = ""
    other: float | str | None = None
    parameter: str = ""


class Condition:
    """A compiled condition.

    Attributes:
        text: As it was written.
        tree: Its parts.
        signals: Signals it uses, in order of appearance.
        comparisons: Comparisons of one signal with one number.
        variables: Members of `setting`, `target` and `time` that it uses.
    """

    def __init__(self, text: str, *, parameters: Collection[str] = ()) -> None:
        """Compile and check.

        Args:
            text: The expression.
            parameters: Names that exist under `params`.

        Raises:
            ConditionError: It is not a boolean expression over known names.
        """
        self.text = text
        self.tree: Node = parse(text)
        check(self.tree, text=text, parameters=parameters)
        names = dict.fromkeys(n.name for n in walk(self.tree) if isinstance(n, Name))
        self.signals = tuple(n for n in names if n in SIGNALS)
        self.variables = tuple(
            dict.fromkeys(
                _LABELS if n.startswith(_LABELS) else n
                for n in names
                if n in VARIABLES or n.startswith(_LABELS)
            )
        )
        self._parameters = tuple(n for n in names if n.startswith("params."))
        self._program = compile_tree(self.tree, parameters=self._parameters)
        found = list(_comparisons(self.tree))
        self.comparisons = tuple(c for c in found if isinstance(c, Comparison))
        compared = {c.signal for c in self.comparisons}
        self._uncompared = tuple(s for s in self.signals if s not in compared)
        self._mentions = (*(m for m in found if isinstance(m, _Mention)), *self._alone(found))

    def _alone(self, found: list["Comparison | _Mention"]) -> Iterator[_Mention]:
        """Variables that are compared with no single value are told of once."""
        compared = {m.name for m in found if isinstance(m, _Mention)}
        for name in self.variables:
            if name not in compared and name != _LABELS:
                yield _Mention(name)

    def judge(
        self,
        readings: Readings,
        *,
        parameters: Mapping[str, float | None],
        context: Mapping[str, object],
    ) -> Judgement:
        """Evaluate.

        Args:
            readings: Signals; unknown ones make what depends on them Unknown.
            parameters: Values of `params`; None is Unknown.
            context: Values of the other variables by name; one left out is Unknown.
        """
        data: dict[str, object] = {}
        for signal in self.signals:
            value = readings.value(signal)
            if value is not None:
                data[signal] = value
        for name in self._parameters:
            parameter = parameters[name.removeprefix("params.")]
            if parameter is not None:
                data[name] = float(parameter)
        for name in self.variables:
            if name in context:
                data[name] = context[name]
        answer = self._program.eval(data=data)
        truth = _truth(answer)
        evidence = self._evidence(readings, parameters)
        words = [_said(e, readings) for e in evidence]
        words += [_told(m, context, parameters) for m in self._mentions]
        if truth is Truth.UNKNOWN and not any("Unknown" in w or "not set" in w for w in words):
            words.append(_MISSING.sub(r"\1 is Unknown", _CODE.sub("", str(answer))))
        return Judgement(truth=truth, why="; ".join(words), evidence=evidence)

    def truth(self, values: Mapping[str, object]) -> Truth:
        """Evaluate on bare values by name, without the words: for whoever asks very often.

        Args:
            values: Signals, `params.NAME` and the other variables; one left out is Unknown.
        """
        used = (*self.signals, *self._parameters, *self.variables)
        return _truth(self._program.eval(data={n: values[n] for n in used if n in values}))

    def _evidence(
        self, readings: Readings, parameters: Mapping[str, float | None]
    ) -> tuple[Evidence, ...]:
        found = [
            Evidence.of(readings[c.signal], comparison=c.op, threshold=c.threshold(parameters))
            for c in self.comparisons
        ]
        found += [Evidence.of(readings[s]) for s in self._uncompared]
        return tuple(found)


def _truth(answer: cel.Value) -> Truth:
    if answer.type() != cel.Type.BOOL:
        return Truth.UNKNOWN
    return Truth.TRUE if answer.plain_value() else Truth.FALSE


def _comparisons(tree: Node) -> Iterator[Comparison | _Mention]:
    for node in walk(tree):
        if not isinstance(node, Binary) or node.op not in _HOLDS:
            continue
        for one, other, op in (
            (node.left, node.right, node.op),
            (node.right, node.left, _MIRRORED[node.op]),
        ):
            parameter = ""
            constant: float | str | None = None
            match other:
                case Number() | Bool():
                    constant = other.value
                case Text():
                    constant = other.text[1:-1]
                case Name(name=name) if name.startswith("params."):
                    parameter = name.removeprefix("params.")
                case _:
                    continue
            match one:
                case Name(name=name) if name in SIGNALS and not isinstance(constant, str):
                    yield Comparison(signal=name, op=op, literal=constant, parameter=parameter)
                case Name(name=name) if name.startswith(f"{_LABELS}."):
                    label = name.removeprefix(f"{_LABELS}.")
                    yield _Mention(_LABELS, label, op, constant, parameter)
                case Name(name=name) if name in VARIABLES:
                    yield _Mention(name, "", op, constant, parameter)
                case Index():
                    yield _Mention(_LABELS, one.key.text[1:-1], op, constant, parameter)


def _said(item: Evidence, readings: Readings) -> str:
    if item.value is None:
        # Why a measured signal is missing is told by the status; what would make a remembered one
        # known is a step for the user.
        remedy = readings[item.signal].message if item.signal in REMEMBERED else ""
        return f"{item.signal} is Unknown ({item.reason}{remedy and ': ' + remedy})"
    if item.threshold is None:
        return f"{item.signal} {item.value:.4g}"
    holds = _HOLDS[item.comparison](item.value, item.threshold)
    sign = item.comparison if holds else f"not {item.comparison}"
    return f"{item.signal} {item.value:.4g} {sign} {item.threshold:.4g}"


def _told(
    mention: _Mention, context: Mapping[str, object], parameters: Mapping[str, float | None]
) -> str:
    name, value = mention.name, context.get(mention.name)
    if mention.label:
        name = f"{name}.{mention.label}"
        if isinstance(value, Mapping):
            value = value.get(mention.label)
            if value is None:
                return f"{name} is not set"
    if value is None:
        return f"{name} is Unknown"
    if not mention.op:
        return f"{name} {_shown(value)}"
    other = parameters[mention.parameter] if mention.parameter else mention.other
    if other is None:
        return f"{name} {_shown(value)}; params.{mention.parameter} is Unknown"
    sign = mention.op if _HOLDS[mention.op](value, other) else f"not {mention.op}"
    return f"{name} {_shown(value)} {sign} {_shown(other)}"


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"'{value}'"
