"""The JSON of Prometheus' HTTP API, read into typed structures without the labels nobody needs.

Decoding is the main cost of a round with thousands of pods. Numbers stand there as text, and nearly
all of them are numbers that msgspec reads by itself; an answer with one that it does not (`+Inf`,
which JSON has not) is read once more, text by text.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from specpilot.telemetry.promql import Labels


class Answer(Exception):  # noqa: N818 - raised for an answer that is none
    """Not the answer to a query; the text says what is wrong with it."""


def number(text: str) -> float:
    """A number as Prometheus writes it; NaN for what is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


class _Point(msgspec.Struct, array_like=True, gc=False):
    """Time and number. Not a tuple: the garbage collector would look at a million of them."""

    at: float
    number: float


class _Text(msgspec.Struct, array_like=True, gc=False):
    """The same with the number as it is written."""

    at: float
    number: str

    def read(self) -> _Point:
        """The number."""
        return _Point(self.at, number(self.number))


class Element(msgspec.Struct):
    """An element of an instant vector, with all its labels.

    Attributes:
        metric: The labels, the name among them.
        value: Time of the evaluation, seconds since the epoch, and the number; NaN for none.
    """

    metric: dict[str, str]
    value: _Point


@dataclass(frozen=True, slots=True)
class _Form:
    """How an answer is read.

    Attributes:
        kind: `vector` or `matrix`.
        quick: Reads numbers.
        careful: Reads whatever stands in their place.
    """

    kind: str
    quick: msgspec.json.Decoder[Any]
    careful: msgspec.json.Decoder[Any]

    def decode(self, body: bytes) -> Iterable[Any]:
        """The elements of an answer.

        Raises:
            Answer: It is none.
        """
        try:
            try:
                response = self.quick.decode(body)
            except msgspec.ValidationError:
                response = self.careful.decode(body)
                for element in response.data.result:
                    if self.kind == "vector":
                        element.value = element.value.read()
                    else:
                        element.values = [point.read() for point in element.values]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Answer(f"does not answer like Prometheus ({error}); check the URL") from error
        found = response.data.resultType
        if response.status != "success" or found != self.kind:
            raise Answer(f"answers with a {found} where a {self.kind} was asked for")
        if partial := next((w for w in response.warnings if "partial" in w.lower()), None):
            raise Answer(f"gave a partial answer, which is none: {partial[:200]}")
        elements: Iterable[Any] = response.data.result
        return elements


def _decoder(element: Any, *, strict: bool) -> msgspec.json.Decoder[Any]:
    data = msgspec.defstruct("Data", [("resultType", str), ("result", list[element])])
    none: Any = msgspec.field(default_factory=list)
    fields: list[Any] = [("status", str), ("data", data), ("warnings", list[str], none)]
    return msgspec.json.Decoder(msgspec.defstruct("Response", fields), strict=strict)


def _vector(metric: Any, element: Any = None) -> _Form:
    """Reads an instant vector."""

    def of(point: Any) -> Any:
        return msgspec.defstruct("Element", [("metric", metric), ("value", point)], gc=False)

    return _Form(
        "vector",
        _decoder(element or of(_Point), strict=False),
        _decoder(of(_Text), strict=True),
    )


def _matrix(metric: Any) -> _Form:
    """Reads the answer to a range query."""

    def of(point: Any) -> Any:
        return msgspec.defstruct("Series", [("metric", metric), ("values", list[point])])

    return _Form("matrix", _decoder(of(_Point), strict=False), _decoder(of(_Text), strict=True))


def _metric(labels: Labels) -> Any:
    """A structure of only the labels that are read."""
    fields = {
        "name": "__name__",
        "namespace": labels.namespace,
        "pod": labels.pod,
        "le": "le",
        "position": "position",
        "status": "status",
        "series": "series",
    }
    names = [(name, str, "") for name in fields]
    return msgspec.defstruct("Metric", names, rename=fields, gc=False)


_WHOLE = _vector(dict[str, str], Element)
_WHOLE_SERIES = _matrix(dict[str, str])


@lru_cache(maxsize=8)
def _slim(labels: Labels) -> _Form:
    return _vector(_metric(labels))


@lru_cache(maxsize=8)
def _slim_series(labels: Labels) -> _Form:
    return _matrix(_metric(labels))


def elements(body: bytes) -> Iterable[Element]:
    """The elements of an answer to an instant query.

    Raises:
        Answer: It is none.
    """
    return _WHOLE.decode(body)


def slim(body: bytes, labels: Labels) -> Iterable[Any]:
    """The same with only the labels that are read, as attributes: `namespace`, `pod`, `name`, ...

    Args:
        body: The answer.
        labels: How this Prometheus names namespace and pod.

    Raises:
        Answer: It is none.
    """
    return _slim(labels).decode(body)


class _At(msgspec.Struct, gc=False):
    """One point of a series, in the form of an element of an instant vector."""

    metric: Any
    value: _Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The moments of a range query.

    Attributes:
        start_ms: The first, milliseconds since the epoch.
        step_ms: Between two of them.
        count: How many there are.
    """

    start_ms: int
    step_ms: int
    count: int

    @property
    def end_ms(self) -> int:
        """The last moment."""
        return self.start_ms + (self.count - 1) * self.step_ms


def vectors(body: bytes, labels: Labels, *, grid: Grid, whole: bool = False) -> list[list[Any]]:
    """An answer to a range query as instant vectors, one for each moment.

    Args:
        body: The answer.
        labels: How this Prometheus names namespace and pod.
        grid: What was asked for.
        whole: With all labels, for `Pods.take_state`; else those that the others read.

    Raises:
        Answer: It is none, or one of other moments (a proxy may align them).
    """
    form = _WHOLE_SERIES if whole else _slim_series(labels)
    found: list[list[Any]] = [[] for _ in range(grid.count)]
    for series in form.decode(body):
        for point in series.values:
            place, off = divmod(round(point.at * 1000) - grid.start_ms, grid.step_ms)
            if off or not 0 <= place < grid.count:
                raise Answer(
                    "answers a range query with moments that were not asked for; ask the server "
                    "itself, or have its proxy leave start and step as they are"
                )
            found[place].append(_At(series.metric, point))
    return found
