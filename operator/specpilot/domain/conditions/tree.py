"""The tree of a condition: what units, comparisons and lint are read from.

`at` is the index in the text where an error about the node should point.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from specpilot.domain.signals import Unit


@dataclass(frozen=True, slots=True)
class Number:
    """A literal: its value in the product's unit, and that unit where one is written."""

    value: float
    unit: Unit | None
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Text:
    """A string, as written, quotes included."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Bool:
    """`true` or `false`."""

    value: bool
    at: int


@dataclass(frozen=True, slots=True)
class Name:
    """A signal, or a variable with its member (`params.low`, `target.labels.tier`)."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Unary:
    """`!a` or `-a`."""

    op: str
    operand: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class Binary:
    """A comparison or a calculation; `at` is where the operator stands."""

    op: str
    left: "Node"
    right: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class Logic:
    """`a && b && c` or `a || b || c`, flat."""

    op: str
    operands: tuple["Node", ...]
    at: int


@dataclass(frozen=True, slots=True)
class Choice:
    """`condition ? then : other`."""

    condition: "Node"
    then: "Node"
    other: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class Items:
    """A list, for `in`."""

    items: tuple["Node", ...]
    at: int


@dataclass(frozen=True, slots=True)
class Index:
    """`labels['key']`."""

    of: Name
    key: Text
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    """`has(label)`, or a method of a text."""

    function: str
    subject: "Node"
    argument: "Node | None"
    at: int


Node: TypeAlias = (
    Number | Text | Bool | Name | Unary | Binary | Logic | Choice | Items | Index | Call
)


def walk(node: Node) -> Iterator[Node]:
    """Yield a tree's nodes in the order of the text."""
    yield node
    for child in _children(node):
        yield from walk(child)


def _children(node: Node) -> tuple[Node, ...]:
    match node:
        case Unary():
            return (node.operand,)
        case Binary():
            return (node.left, node.right)
        case Logic():
            return node.operands
        case Choice():
            return (node.condition, node.then, node.other)
        case Items():
            return node.items
        case Index():
            return (node.of,)
        case Call():
            return (node.subject,) if node.argument is None else (node.subject, node.argument)
        case _:
            return ()
