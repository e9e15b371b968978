"""Conditions: CEL over signals, three-valued, with units and with errors that point.

CEL (https://cel.dev) is typed, terminates, and is known from Kubernetes. Three things are added:
every number is a double, in the product's units; Unknown is not false; and what could run long is
left out. `syntax` reads a text, `checking` says what is wrong with it, `compiling` hands it to the
CEL library, `condition` judges readings by it.
"""

from specpilot.domain.conditions.condition import Comparison, Condition, Judgement, Truth
from specpilot.domain.conditions.syntax import MAX_DEPTH, MAX_LENGTH, ConditionError

__all__ = [
    "MAX_DEPTH",
    "MAX_LENGTH",
    "Comparison",
    "Condition",
    "ConditionError",
    "Judgement",
    "Truth",
]
