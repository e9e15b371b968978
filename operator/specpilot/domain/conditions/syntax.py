"""From text to a tree: the part of CEL that conditions may use, and nothing that can run long.

What is left out (macros such as `exists`, regular expressions, every function that builds
something) is what could make an expression cost more than its own length. The tree is also what
units, comparisons and lint are read from; evaluation is the CEL library's.
"""

import math
import re
from dataclasses import dataclass

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
from specpilot.domain.conditions.units import read_literal

MAX_LENGTH = 2000
"""Longest condition in characters."""

MAX_DEPTH = 24
"""How deeply a condition may be nested; the library's own limit is 32 levels."""

_SHOWN = 63

METHODS = ("contains", "endsWith", "startsWith")
"""Functions of text: `target.name.startsWith('chat')`."""


class ConditionError(ValueError):
    """A condition that cannot be used; the message shows where with a caret."""


def fault(what: str, *, text: str, at: int) -> ConditionError:
    """Make an error that shows the line and a caret under the place."""
    at = min(max(at, 0), len(text))
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    row = text[start : len(text) if end < 0 else end].expandtabs(1)
    return ConditionError(f"{what}\n  {row}\n  {' ' * (at - start)}^")


_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<number>(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+(?![A-Za-z%])|%|[A-Za-z_][\w.]*)?)
      | (?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
      | (?P<op><=|>=|==|!=|<|>|&&|\|\||[-+*/%!?:()\[\],.])
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_RELATIONS = frozenset({"<", "<=", ">", ">=", "==", "!=", "in"})
_LOGIC = ("||", "&&")
_LEVELS: tuple[frozenset[str], ...] = (
    *(frozenset({op}) for op in _LOGIC),
    _RELATIONS,
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
)
"""Operators from the loosest to the tightest; all go from left to right."""


def short(text: str) -> str:
    """Cut what stands in a message: the caret shows the place anyway."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def parse(text: str) -> Node:
    """Read a condition.

    Raises:
        ConditionError: It is too long, nested too deeply, or not of the language.
    """
    if len(text) > MAX_LENGTH:
        raise ConditionError(
            f"{len(text)} characters; at most {MAX_LENGTH} are allowed: make two rules of it"
        )
    return _Parser(text).whole()


class _Parser:
    """One pass from left to right; depth is counted where it recurs."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [
            _Token(m.lastgroup or "other", m.group(), m.start())
            for m in _TOKEN.finditer(text)
            if m.lastgroup != "space"
        ]
        self._next = 0
        self._depth = 0

    def whole(self) -> Node:
        node = self._expression()
        if self._token.text:
            raise self._unexpected("an operator such as && or >")
        return node

    @property
    def _token(self) -> _Token:
        if self._next < len(self._tokens):
            return self._tokens[self._next]
        return _Token("end", "", len(self._text.rstrip()))

    def _take(self) -> _Token:
        token = self._token
        self._next += 1
        return token

    def _expect(self, text: str) -> _Token:
        if self._token.text != text:
            raise self._unexpected(f"`{text}`")
        return self._take()

    def _fault(self, what: str, at: int) -> ConditionError:
        return fault(what, text=self._text, at=at)

    def _unexpected(self, wanted: str) -> ConditionError:
        token = self._token
        instead = {"end": "the condition ends"}.get(token.kind, f"there is {short(token.text)}")
        hints = {
            "=": "; equality is written ==",
            "&": "; write &&",
            "|": "; write ||",
            "and": "; write &&",
            "or": "; write ||",
            "not": "; write !",
            "{": "; maps cannot be made in a rule",
            '"': "; the text is not closed",
            "'": "; the text is not closed",
        }
        return self._fault(
            f"here {wanted} must stand, but {instead}{hints.get(token.text, '')}", token.at
        )

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._fault(
                f"nested more than {MAX_DEPTH} levels deep; make several rules of it",
                self._token.at,
            )

    def _expression(self) -> Node:
        self._deeper()
        condition = self._level(0)
        if self._token.text == "?":
            self._take()
            self._deeper()  # a choice costs the library two levels
            then = self._expression()
            self._expect(":")
            other = self._expression()
            self._depth -= 1
            condition = Choice(condition, then, other, condition.at)
        self._depth -= 1
        return condition

    def _level(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        node = self._level(level + 1)
        chain = [node]
        deeper = 0
        while (op := self._token).text in _LEVELS[level] and op.kind in {"op", "name"}:
            self._take()
            if op.text in _LOGIC:
                chain.append(self._level(level + 1))
                continue
            self._deeper()  # calculations lean to the left, one level for each
            deeper += 1
            node = Binary(op.text, node, self._level(level + 1), op.at)
        self._depth -= deeper
        return node if len(chain) == 1 else Logic(_LOGIC[level], tuple(chain), chain[0].at)

    def _unary(self) -> Node:
        token = self._token
        if token.kind != "op" or token.text not in {"!", "-"}:
            return self._member()
        self._take()
        self._deeper()
        operand = self._unary()
        self._depth -= 1
        return Unary(token.text, operand, token.at)

    def _member(self) -> Node:
        node = self._primary()
        if self._token.text == "[" and isinstance(node, Name):
            self._take()
            key = self._token
            if key.kind != "string":
                raise self._unexpected("the name of a label in quotes")
            self._take()
            self._expect("]")
            node = Index(node, Text(key.text, key.at), node.at)
            if self._token.text == ".":
                self._take()
                method = self._take()
                node = self._call(node, function=method.text, at=method.at)
        return node

    def _primary(self) -> Node:
        token = self._token
        match token.kind:
            case "number":
                self._take()
                return self._number(token)
            case "string":
                self._take()
                return Text(token.text, token.at)
            case "name" if token.text in {"true", "false"}:
                self._take()
                return Bool(token.text == "true", token.at)
            case "name" if token.text != "in":
                self._take()
                if self._token.text == "(":
                    owner, dot, function = token.text.rpartition(".")
                    return self._call(
                        Name(owner, token.at) if owner else None,
                        function=function,
                        at=token.at + len(owner + dot),
                    )
                return Name(token.text, token.at)
        if token.text == "(":
            self._take()
            node = self._expression()
            self._expect(")")
            return node
        if token.text == "[":
            return self._items()
        raise self._unexpected("a signal, a number or a `(`")

    def _number(self, token: _Token) -> Number:
        try:
            value, unit = read_literal(token.text)
        except ValueError as error:
            raise self._fault(f"{short(token.text)}: {error}", token.at) from None
        if not math.isfinite(value):
            raise self._fault(f"{short(token.text)} is too large to compare with", token.at)
        return Number(value, unit, token.text, token.at)

    def _items(self) -> Node:
        start = self._expect("[").at
        items: list[Node] = []
        while self._token.text != "]":
            if items:
                self._expect(",")
            items.append(self._expression())
        self._expect("]")
        return Items(tuple(items), start)

    def _call(self, subject: Node | None, *, function: str, at: int) -> Node:
        if function not in METHODS if subject else function != "has":
            raise self._fault(
                f"{function or 'nothing'} cannot be called in a rule; there are "
                f"has(target.labels.NAME) and, on text, {', '.join(METHODS)}",
                at,
            )
        self._expect("(")
        argument = self._expression()
        self._expect(")")
        if subject is None:
            return Call(function, argument, None, at)
        return Call(function, subject, argument, subject.at)
