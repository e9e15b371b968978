"""Conditions: CEL over signals, three-valued, with the numbers read back for evidence.

CEL (https://cel.dev) is typed, terminates, and is known from Kubernetes. Two things are added:

- Every number is a double. `batch_size > 32` would not compile (the signal is a double, `32` an
  int), so integer literals outside strings are read as doubles; positions in error messages are
  mapped back to what the user wrote.
- Unknown is not false. A signal without a value is left out of the activation; what CEL then
  cannot evaluate is an error value, and its `&&` and `||` absorb errors exactly as Kleene's do.
"""

import difflib
import functools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cel_expr_python import cel

from specpilot.domain.changes import Evidence
from specpilot.domain.readings import Readings
from specpilot.domain.signals import SIGNALS

MAX_LENGTH = 2000
"""Longest condition in characters; CEL has no loops over anything that a rule can see."""


class Truth(StrEnum):
    """Three-valued."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ConditionError(ValueError):
    """A condition that cannot be used; the message shows where with a caret."""


_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
      | (?P<int>0[xX][0-9a-fA-F]+[uU]?|\d+[uU]?)
      | (?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
      | (?P<op><=|>=|==|!=|<|>|&&|\|\||[-+*/%!?:()\[\],])
      | (?P<space>\s+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_BOUNDARY = frozenset({"&&", "||", "(", ")", "!", "?", ":", ""})
"""What may stand beside a comparison for it to be one number against another."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        yield _Token(match.lastgroup or "other", match.group(), match.start())


def _as_doubles(text: str) -> tuple[str, list[int]]:
    """Return the text with integer literals as doubles, and each character's original index."""
    pieces: list[str] = []
    origin: list[int] = []
    for token in _tokens(text):
        piece = token.text
        if token.kind == "int" and token.text.isdigit():
            piece += ".0"
        pieces.append(piece)
        origin += [token.at + min(i, len(token.text) - 1) for i in range(len(piece))]
    return "".join(pieces), [*origin, len(text)]


@functools.cache
def _environment() -> Any:
    return cel.NewEnv(
        variables={
            **dict.fromkeys(SIGNALS, cel.Type.DOUBLE),
            "params": cel.Type.Map(cel.Type.STRING, cel.Type.DOUBLE),
            "setting": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
        }
    )


def _explain(error: str, text: str, origin: list[int]) -> str:
    """Turn the library's message into one about the user's own text."""
    match = re.search(r"<input>:(\d+):(\d+): (.*)", error)
    if match is None:
        return error.splitlines()[0]
    what = match.group(3)
    converted_lines = _as_doubles(text)[0].split("\n")
    line = int(match.group(1)) - 1
    index = sum(len(row) + 1 for row in converted_lines[:line]) + int(match.group(2)) - 1
    at = origin[min(max(index, 0), len(origin) - 1)]
    row_start = text.rfind("\n", 0, at) + 1
    row_end = text.find("\n", at)
    row = text[row_start : len(text) if row_end < 0 else row_end]
    if undeclared := re.search(r"undeclared reference to '([^']+)'", what):
        name = undeclared.group(1)
        near = difflib.get_close_matches(name, [*SIGNALS, "params", "setting"], n=1)
        hint = f"did you mean {near[0]}?" if near else "see `specpilot signals --list`"
        what = f"there is no signal called {name}; {hint}"
    elif "found no matching overload" in what:
        what = f"these types do not go together: {what}"
    return f"{what}\n  {row}\n  {' ' * (at - row_start)}^"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`signal op number` as it stands in a condition; either side is a literal or a parameter."""

    signal: str
    op: str
    literal: float | None = None
    parameter: str = ""

    def threshold(self, parameters: Mapping[str, float]) -> float | None:
        """The number it compares with."""
        return self.literal if not self.parameter else parameters.get(self.parameter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a condition says of some readings, with the numbers and the words."""

    truth: Truth
    why: str
    evidence: tuple[Evidence, ...]


class Condition:
    """A compiled condition."""

    def __init__(self, text: str, *, parameters: Collection[str] = ()) -> None:
        """Compile and check.

        Args:
            text: The expression.
            parameters: Names that exist under `params`.

        Raises:
            ConditionError: It is not a boolean expression over known names.
        """
        self.text = text
        if len(text) > MAX_LENGTH:
            raise ConditionError(f"{len(text)} characters; at most {MAX_LENGTH} are allowed")
        converted, origin = _as_doubles(text)
        try:
            self._program = _environment().compile(converted)
        except RuntimeError as error:
            raise ConditionError(_explain(str(error), text, origin)) from error
        if self._program.return_type() not in (cel.Type.BOOL, cel.Type.DYN):
            raise ConditionError(
                f"the condition must be true or false; compare it with something\n  {text}"
            )
        tokens = [t for t in _tokens(text) if t.kind != "space"]
        self._check_parameters(tokens, parameters)
        self.signals = tuple(
            dict.fromkeys(t.text for t in tokens if t.kind == "name" and t.text in SIGNALS)
        )
        """Signals it uses, in order of appearance."""
        self.comparisons = tuple(_comparisons(tokens))
        """Comparisons of one signal with one number."""

    def _check_parameters(self, tokens: list[_Token], parameters: Collection[str]) -> None:
        for token in tokens:
            if token.kind != "name" or not token.text.startswith("params."):
                continue
            name = token.text.split(".", 1)[1]
            if name in parameters:
                continue
            near = difflib.get_close_matches(name, parameters, n=1)
            hint = f"did you mean {near[0]}?" if near else "add it under `parameters`"
            raise ConditionError(
                f"there is no parameter called {name}; {hint}\n  {self.text}\n  {' ' * token.at}^"
            )

    def judge(
        self,
        readings: Readings,
        *,
        parameters: Mapping[str, float],
        setting: Mapping[str, object],
    ) -> Judgement:
        """Evaluate.

        Args:
            readings: Signals; unknown ones make what depends on them Unknown.
            parameters: Values of `params`.
            setting: `name`, `method` and `depth` of the active setting.
        """
        data: dict[str, object] = {"params": dict(parameters), "setting": dict(setting)}
        data |= {s: v for s in self.signals if (v := readings.value(s)) is not None}
        value = self._program.eval(data=data)
        plain = value.plain_value() if value.type() == cel.Type.BOOL else None
        truth = Truth.UNKNOWN if plain is None else Truth.TRUE if plain else Truth.FALSE
        return Judgement(
            truth=truth,
            why=self._why(readings, parameters, truth, str(value)),
            evidence=self._evidence(readings, parameters),
        )

    def _evidence(
        self, readings: Readings, parameters: Mapping[str, float]
    ) -> tuple[Evidence, ...]:
        found = [
            Evidence.of(readings[c.signal], comparison=c.op, threshold=c.threshold(parameters))
            for c in self.comparisons
        ]
        compared = {c.signal for c in self.comparisons}
        found += [Evidence.of(readings[s]) for s in self.signals if s not in compared]
        return tuple(found)

    def _why(
        self, readings: Readings, parameters: Mapping[str, float], truth: Truth, raw: str
    ) -> str:
        words = []
        for item in self._evidence(readings, parameters):
            if item.value is None:
                words.append(f"{item.signal} is Unknown ({item.reason})")
            elif item.threshold is None:
                words.append(f"{item.signal} {item.value:.4g}")
            else:
                ok = _holds(item.value, item.comparison, item.threshold)
                sign = item.comparison if ok else f"not {item.comparison}"
                words.append(f"{item.signal} {item.value:.4g} {sign} {item.threshold:.4g}")
        if truth is Truth.UNKNOWN and all(readings[s].known for s in self.signals):
            words.append(raw.removeprefix("UNKNOWN: "))
        return "; ".join(words)


def _holds(value: float, op: str, threshold: float) -> bool:
    match op:
        case "<":
            return value < threshold
        case "<=":
            return value <= threshold
        case ">":
            return value > threshold
        case ">=":
            return value >= threshold
        case "==":
            return value == threshold
        case _:
            return value != threshold


def _comparisons(tokens: list[_Token]) -> Iterator[Comparison]:
    def text(index: int) -> str:
        return tokens[index].text if 0 <= index < len(tokens) else ""

    for i, token in enumerate(tokens):
        if token.kind != "op" or token.text not in _COMPARISONS or not 0 < i < len(tokens) - 1:
            continue
        if text(i - 2) not in _BOUNDARY or text(i + 2) not in _BOUNDARY:
            continue  # part of a longer expression: no single number stands on the other side
        for signal, other, op in (
            (tokens[i - 1], tokens[i + 1], token.text),
            (tokens[i + 1], tokens[i - 1], _MIRRORED[token.text]),
        ):
            if signal.text not in SIGNALS:
                continue
            if other.kind in {"int", "float"}:
                yield Comparison(signal=signal.text, op=op, literal=float(other.text))
            elif other.text.startswith("params."):
                yield Comparison(
                    signal=signal.text, op=op, parameter=other.text.removeprefix("params.")
                )
