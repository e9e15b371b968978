"""A condition taken apart: the numbers at which it can change its mind.

Nothing is decided here. Where a condition compares one variable with one number, its truth cannot
change between two such numbers; that is what makes it possible to try every case. The compiled
condition is then asked what it says in each of them.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from specpilot.domain.conditions.tree import (
    Binary,
    Bool,
    Choice,
    Index,
    Items,
    Logic,
    Name,
    Node,
    Number,
    Text,
    Unary,
    walk,
)

PARAMETER = "params."
LABELS = "target.labels"

COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Atom:
    """One variable against one number or text.

    Attributes:
        variable: The variable.
        op: The comparison, as if the variable stood on the left; `in` for one item of a list.
        threshold: The number or text.
    """

    variable: str
    op: str
    threshold: float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a condition consists of.

    Attributes:
        atoms: Its comparisons of one variable with one number or text.
        loose: Variables that are used otherwise: compared with each other, calculated with.
        variables: All variables, in the order of the text.
        parameters: All parameters, without `params.`.
        guards: Some part depends on parameters alone (`params.bound > 0`).
        labels: Labels with the texts that they are compared with.
    """

    atoms: tuple[Atom, ...]
    loose: frozenset[str]
    variables: tuple[str, ...]
    parameters: frozenset[str]
    guards: bool
    labels: frozenset[tuple[str, str]]


def shape(node: Node, *, parameters: Mapping[str, float]) -> Shape:
    """Take the tree of a condition apart, with these values of the parameters."""
    atoms: list[Atom] = []
    loose: set[str] = set()
    _collect(node, parameters, atoms, loose)
    names = [n.name for n in walk(node) if isinstance(n, Name)]
    return Shape(
        atoms=tuple(atoms),
        loose=frozenset(loose),
        variables=tuple(dict.fromkeys(_variables(node))),
        parameters=frozenset(n.removeprefix(PARAMETER) for n in names if n.startswith(PARAMETER)),
        guards=any(_is_guard(n) for n in walk(node)),
        labels=frozenset(_labels(node)),
    )


def _is_guard(node: Node) -> bool:
    if not isinstance(node, Binary) or node.op not in COMPARISONS:
        return False
    names = [n.name for n in walk(node) if isinstance(n, Name)]
    return bool(names) and all(n.startswith(PARAMETER) for n in names)


def _labels(node: Node) -> Iterator[tuple[str, str]]:
    for found in walk(node):
        if not isinstance(found, Binary) or not isinstance(found.right, Text):
            continue
        match found.left:
            case Index():
                yield found.left.key.text[1:-1], found.right.text[1:-1]
            case Name(name=name) if name.startswith(f"{LABELS}."):
                yield name.removeprefix(f"{LABELS}."), found.right.text[1:-1]
            case _:
                pass


def _variables(node: Node) -> Iterator[str]:
    for found in walk(node):
        if isinstance(found, Name) and not found.name.startswith(PARAMETER):
            yield LABELS if found.name.startswith(LABELS) else found.name


def _collect(
    node: Node, parameters: Mapping[str, float], atoms: list[Atom], loose: set[str]
) -> None:
    match node:
        case Logic():
            for part in node.operands:
                _collect(part, parameters, atoms, loose)
        case Unary(op="!"):
            _collect(node.operand, parameters, atoms, loose)
        case Choice():
            for part in (node.condition, node.then, node.other):
                _collect(part, parameters, atoms, loose)
        case Bool():
            pass
        case Binary() if found := _atoms(node, parameters):
            atoms.extend(found)
        case _:
            loose.update(_variables(node))


def _atoms(node: Binary, parameters: Mapping[str, float]) -> list[Atom]:
    """The comparison as atoms, one for each item of a list; none when it is something else."""
    if node.op == "in" and isinstance(node.right, Items):
        each = [_atom(node.left, "in", item, parameters) for item in node.right.items]
        return [a for a in each if a is not None] if all(each) else []
    if node.op not in COMPARISONS:
        return []
    atom = _atom(node.left, node.op, node.right, parameters) or _atom(
        node.right, _MIRRORED[node.op], node.left, parameters
    )
    return [] if atom is None else [atom]


def _atom(side: Node, op: str, other: Node, parameters: Mapping[str, float]) -> Atom | None:
    if not isinstance(side, Name) or side.name.startswith((PARAMETER, LABELS)):
        return None
    if isinstance(other, Text):
        return Atom(variable=side.name, op=op, threshold=other.text[1:-1])
    value = constant(other, parameters)
    return None if value is None else Atom(variable=side.name, op=op, threshold=value)


def constant(node: Node, parameters: Mapping[str, float]) -> float | None:
    """The number that an expression without variables comes to; None for any other."""
    match node:
        case Number():
            return node.value
        case Name() if node.name.startswith(PARAMETER):
            return parameters.get(node.name.removeprefix(PARAMETER))
        case Unary(op="-"):
            value = constant(node.operand, parameters)
            return None if value is None else -value
        case Binary() if node.op in _ARITHMETIC:
            left, right = constant(node.left, parameters), constant(node.right, parameters)
            if left is None or right is None or (node.op == "/" and right == 0):
                return None
            return _ARITHMETIC[node.op](left, right)
        case _:
            return None
