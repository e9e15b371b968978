"""What a condition means before it is run: every name known, every kind and unit in its place."""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from specpilot.domain.conditions.syntax import ConditionError, fault, short
from specpilot.domain.conditions.tree import (
    Binary,
    Bool,
    Call,
    Choice,
    Index,
    Items,
    Logic,
    Name,
    Node,
    Number,
    Text,
    Unary,
)
from specpilot.domain.context import VARIABLES, Kind
from specpilot.domain.signals import SIGNALS, Unit

_PARAMETER = "params."
_LABELS = "target.labels"
_ANY = ""
"""The unit of what may have any: a bare number, a parameter, an odd product."""


@dataclass(frozen=True, slots=True)
class _Meaning:
    """Kind and unit of a node.

    Attributes:
        kind: What it is.
        unit: Its unit; `_ANY` where it goes with every other.
        written: The unit stands in a literal, and so can be wrong.
        bare: It is a number without a unit, which leaves the unit of a product alone.
    """

    kind: Kind
    unit: str = _ANY
    written: bool = False
    bare: bool = False


_BOOLEAN = _Meaning(Kind.BOOLEAN)


def check(node: Node, *, text: str, parameters: Collection[str]) -> None:
    """Check a whole condition.

    Args:
        node: Its tree.
        text: Its text, for the caret.
        parameters: Names that exist under `params`.

    Raises:
        ConditionError: A name is unknown, or kinds or units do not go together.
    """
    checker = _Checker(text, parameters)
    if checker.meaning(node).kind is not Kind.BOOLEAN:
        raise fault(
            "the condition must be true or false; compare it with something", text=text, at=node.at
        )


class _Checker:
    def __init__(self, text: str, parameters: Collection[str]) -> None:
        self._text = text
        self._parameters = parameters

    def _fault(self, what: str, node: Node) -> ConditionError:
        return fault(what, text=self._text, at=node.at)

    def meaning(self, node: Node) -> _Meaning:
        match node:
            case Number() | Text() | Bool() | Name() | Index():
                return self._value(node)
            case Unary():
                wanted = Kind.BOOLEAN if node.op == "!" else Kind.NUMBER
                return self._wanted(node.operand, wanted, f"after {node.op}")
            case Logic():
                for operand in node.operands:
                    self._wanted(operand, Kind.BOOLEAN, f"beside {node.op}")
                return _BOOLEAN
            case Choice():
                return self._choice(node)
            case Call():
                return self._call(node)
            case Items():
                raise self._fault("a list can only stand after `in`", node)
            case Binary():
                return self._binary(node)

    def _value(self, node: Number | Text | Bool | Name | Index) -> _Meaning:
        match node:
            case Number():
                bare = node.unit is None
                return _Meaning(Kind.NUMBER, node.unit or _ANY, written=not bare, bare=bare)
            case Text():
                return _Meaning(Kind.TEXT)
            case Bool():
                return _BOOLEAN
            case Name():
                return self._name(node)
            case Index():
                if self._name(node.of).kind is not Kind.LABELS:
                    raise self._fault(f"only {_LABELS} has entries", node)
                return _Meaning(Kind.TEXT)

    def _wanted(self, node: Node, kind: Kind, where: str) -> _Meaning:
        found = self.meaning(node)
        if found.kind is not kind:
            raise self._fault(f"{where} must stand {kind}, and this is {found.kind}", node)
        return found

    # --- names

    def _name(self, node: Name) -> _Meaning:
        name = node.name
        if name in SIGNALS:
            return _Meaning(Kind.NUMBER, SIGNALS[name].unit)
        if name in VARIABLES:
            return _Meaning(VARIABLES[name].kind, VARIABLES[name].unit)
        if name.startswith(_PARAMETER):
            if name.removeprefix(_PARAMETER) in self._parameters:
                return _Meaning(Kind.NUMBER)
        elif name.startswith(f"{_LABELS}."):
            return self._label(node)
        raise self._fault(self._unknown(short(name)), node)

    def _label(self, node: Name) -> _Meaning:
        label = node.name.removeprefix(f"{_LABELS}.")
        if "." in label:
            raise self._fault(f"a label with a dot is written {_LABELS}['{label}']", node)
        return _Meaning(Kind.TEXT)

    def _unknown(self, name: str) -> str:
        if name.startswith(_PARAMETER):
            name = name.removeprefix(_PARAMETER)
            hint = _nearest(name, self._parameters) or "; add it under `parameters`"
            return f"there is no parameter called {name}{hint}"
        owner, dot, member = name.partition(".")
        members = [v.partition(".")[2] for v in VARIABLES if v.startswith(f"{owner}.")]
        if members and dot:
            near = _nearest(member, members, prefix=f"{owner}.")
            return f"{owner} has no {member}{near or '; it has ' + ', '.join(members)}"
        if members:
            return f"{name} is no value; name one of {', '.join(f'{owner}.{m}' for m in members)}"
        near = _nearest(name, [*SIGNALS, *VARIABLES, *(f"params.{p}" for p in self._parameters)])
        return (
            f"there is no signal called {name}"
            f"{near or '; docs/reference/signals.md lists all of them'}"
        )

    # --- what is built of them

    def _call(self, node: Call) -> _Meaning:
        if node.argument is None:
            if not isinstance(node.subject, Name) or not node.subject.name.startswith(
                f"{_LABELS}."
            ):
                raise self._fault(f"has() asks for a label: has({_LABELS}.NAME)", node)
            self._label(node.subject)
            return _BOOLEAN
        self._wanted(node.subject, Kind.TEXT, f"before .{node.function}")
        self._wanted(node.argument, Kind.TEXT, f"in {node.function}()")
        return _BOOLEAN

    def _choice(self, node: Choice) -> _Meaning:
        self._wanted(node.condition, Kind.BOOLEAN, "before ?")
        then = self.meaning(node.then)
        other = self._wanted(node.other, then.kind, "after :")
        return then if then.unit == other.unit else _Meaning(then.kind)

    def _binary(self, node: Binary) -> _Meaning:
        if node.op == "in":
            return self._in(node)
        left, right = self.meaning(node.left), self.meaning(node.right)
        if node.op in {"+", "-", "*", "/", "%"}:
            return self._calculation(node, left, right)
        if left.kind is not right.kind or left.kind is Kind.LABELS:
            raise self._fault(
                f"these do not go together: {left.kind} {node.op} {right.kind}"
                f"{_chained(left, node)}",
                node,
            )
        if left.kind is not Kind.NUMBER and node.op not in {"==", "!="}:
            hint = "; compare versions by target.release" if left.kind is Kind.TEXT else ""
            raise self._fault(f"only numbers have an order, and this is {left.kind}{hint}", node)
        self._same_unit(node.left, node.right, left, right)
        return _BOOLEAN

    def _in(self, node: Binary) -> _Meaning:
        left = self.meaning(node.left)
        if not isinstance(node.right, Items):
            found = self.meaning(node.right)
            if found.kind is not Kind.LABELS or left.kind is not Kind.TEXT:
                raise self._fault(
                    f"after `in` stands a list such as [6, 7], or {_LABELS} after text", node
                )
            return _BOOLEAN
        for item in node.right.items:
            right = self._wanted(item, left.kind, "in this list")
            self._same_unit(node.left, item, left, right)
        return _BOOLEAN

    def _calculation(self, node: Binary, left: _Meaning, right: _Meaning) -> _Meaning:
        if left.kind is not Kind.NUMBER or right.kind is not Kind.NUMBER:
            raise self._fault(
                f"only numbers can be calculated with: {left.kind} {node.op} {right.kind}", node
            )
        match node.op:
            case "%":
                raise self._fault("there is no remainder of numbers; a share is written 80%", node)
            case "+" | "-":
                self._same_unit(node.left, node.right, left, right)
                if left.unit == right.unit:
                    return _Meaning(
                        Kind.NUMBER, left.unit, left.written and right.written, left.bare
                    )
                known = left if right.unit == _ANY else right if left.unit == _ANY else None
                return known or _Meaning(Kind.NUMBER)
            case "*":
                return _product(left, right)
            case _:
                if isinstance(node.right, Number) and node.right.value == 0:
                    raise self._fault("this divides by 0", node)
                return _quotient(left, right)

    def _same_unit(self, one: Node, other: Node, left: _Meaning, right: _Meaning) -> None:
        if _ANY in {left.unit, right.unit} or left.unit == right.unit:
            return
        if not (left.written or right.written):
            return  # two signals: tokens are compared with a ratio at the point of break-even
        raise self._fault(
            f"{_words(one)} is in {left.unit} and {_words(other)} is in {right.unit}: "
            "they do not go together",
            other if right.written else one,
        )


def _words(node: Node) -> str:
    match node:
        case Name():
            return node.name
        case Number():
            return node.text
        case _:
            return "the other side"


def _product(left: _Meaning, right: _Meaning) -> _Meaning:
    for one, other in ((left, right), (right, left)):
        if other.bare:
            return one
        if other.unit == Unit.RATIO:
            return _Meaning(one.kind, one.unit, one.written and one.unit != _ANY)
    return _Meaning(Kind.NUMBER)


def _quotient(left: _Meaning, right: _Meaning) -> _Meaning:
    if right.bare:
        return left
    if left.unit == right.unit and left.unit != _ANY:
        return _Meaning(Kind.NUMBER, Unit.RATIO)
    if right.unit == Unit.RATIO:
        return left
    return _Meaning(Kind.NUMBER)


def _chained(left: _Meaning, node: Binary) -> str:
    chained = left.kind is Kind.BOOLEAN and isinstance(node.left, Binary)
    return "; write 1 < x && x < 3 for 1 < x < 3" if chained else ""


def _nearest(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
