"""From a tree to a program of the CEL library.

The tree is written out anew: every number as a double (the library compares no double with an
int), units resolved, and every divisor guarded, since 1/0 and 0/0 are no knowledge and yet IEEE
has numbers for them that compare.
"""

import functools
from collections.abc import Collection
from typing import Any

from cel_expr_python import cel

from specpilot.domain.conditions.syntax import ConditionError
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
from specpilot.domain.signals import SIGNALS


def compile_tree(node: Node, *, parameters: Collection[str]) -> Any:
    """Compile.

    Args:
        node: The tree, checked.
        parameters: Those that it uses, as `params.NAME`.

    Raises:
        ConditionError: The library refuses what the checks let pass (an escape in a text).
    """
    try:
        return _environment(frozenset(parameters)).compile(written(node))
    except (RuntimeError, ValueError) as error:
        raise ConditionError(f"CEL refuses this: {str(error).splitlines()[0]}") from error


def written(node: Node) -> str:
    """Write a tree as CEL over doubles."""
    match node:
        case Unary():
            return f"{node.op}({written(node.operand)})"
        case Binary():
            right = written(node.right)
            if node.op == "/" and not isinstance(node.right, Number):
                right = f"divisor({right})"
            return f"({written(node.left)} {node.op} {right})"
        case Logic():
            return f"({f' {node.op} '.join(written(o) for o in node.operands)})"
        case Choice():
            parts = (written(n) for n in (node.condition, node.then, node.other))
            return "({} ? {} : {})".format(*parts)
        case Items():
            return f"[{', '.join(written(i) for i in node.items)}]"
        case Call():
            subject = written(node.subject)
            if node.argument is None:
                return f"{node.function}({subject})"
            return f"{subject}.{node.function}({written(node.argument)})"
        case Number() | Text() | Bool() | Name() | Index():
            return _value(node)


def _value(node: Number | Text | Bool | Name | Index) -> str:
    match node:
        case Number():
            return repr(node.value)
        case Text():
            return node.text
        case Bool():
            return "true" if node.value else "false"
        case Name():
            return node.name
        case Index():
            return f"{node.of.name}[{node.key.text}]"


def _divisor(value: float) -> float:
    if value == 0:
        raise ValueError("a divisor is 0")  # to CEL an error, which is Unknown
    return value


_TYPES = {
    Kind.NUMBER: cel.Type.DOUBLE,
    Kind.TEXT: cel.Type.STRING,
    Kind.LABELS: cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
}


@functools.lru_cache(maxsize=256)
def _environment(parameters: frozenset[str]) -> Any:
    double = cel.Type.DOUBLE
    return cel.NewEnv(
        variables={
            **dict.fromkeys(SIGNALS, double),
            **{name: _TYPES[variable.kind] for name, variable in VARIABLES.items()},
            **dict.fromkeys(parameters, double),
        },
        functions=[
            cel.FunctionDecl(
                "divisor", [cel.Overload("divisor_double", double, [double], False, _divisor)]
            )
        ],
    )
