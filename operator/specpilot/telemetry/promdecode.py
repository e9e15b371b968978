"""Prometheus' answers to the queries of `promql`, as looks at replicas.

Decoding is the main cost of a round with thousands of pods, so the elements are read by msgspec
into typed structures without the labels nobody needs.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from specpilot.domain.readings import UnknownReason
from specpilot.telemetry.exposition import Key, Page, Part, Slot, Tally, add_calls, slot
from specpilot.telemetry.names import LEGACY_SPECULATION, PREFIX, PREFIXES, Counter
from specpilot.telemetry.promql import Labels, State, wire_of
from specpilot.telemetry.windows import Fault

Where = tuple[str, str]
"""Namespace and name of a pod."""

_LEGACY = frozenset(LEGACY_SPECULATION)


class Answer(Exception):  # noqa: N818 - raised for an answer that is none
    """Not the answer to a query; the text says what is wrong with it."""


@dataclass(slots=True)
class Pod:
    """What one moment's answers say of a pod.

    Attributes:
        tally: Its numbers.
        means: Means of gauges, by wire name.
        seen: By every account (labels of the scrape), when it was seen last.
        info: When a series was seen that exists before the first request.
        up: Whether its scrape succeeds; None when it is not scraped at all.
        legacy: Whether it has the V0 engine's speculation series.
    """

    tally: Tally = field(default_factory=Tally)
    means: dict[str, float] = field(default_factory=dict)
    seen: dict[frozenset[Where], float] = field(default_factory=dict)
    info: float | None = None
    up: bool | None = None
    legacy: bool = False

    @property
    def at(self) -> float | None:
        """When its numbers were true; None when there are none."""
        return max(self.seen.values()) if self.seen else self.info

    def page(self) -> Page:
        """Its numbers as one look; they are handed over and not kept."""
        tally, self.tally = self.tally, Tally()
        for wire, mean in self.means.items():
            tally.add(slot(wire, ""), mean)
        return tally.page(engine=True, legacy=self.legacy)

    def fault(self) -> Fault | None:
        """Why its numbers cannot be used."""
        if len(self.seen) > 1:
            words = (
                f"Prometheus holds {len(self.seen)} copies of this pod's series "
                f"({_difference(self.seen)}): scrape it once, or choose one copy with matchers"
            )
            return Fault(reason=UnknownReason.AMBIGUOUS, words=words)
        if self.seen and (Counter.GENERATION_TOKENS, "") not in self.tally.once:
            words = (
                "Prometheus' answers contradict each other: it has seen this pod, and gives no "
                "numbers of it"
            )
            return Fault(reason=UnknownReason.SOURCE_ERROR, words=words)
        if self.at is not None:
            return None
        if self.up:
            words = (
                f"Prometheus scrapes this pod but finds no {PREFIX} series; the engine was started "
                "with --disable-log-stats, or another port is scraped"
            )
            return Fault(reason=UnknownReason.NOT_EXPORTED, words=words)
        return NOT_SCRAPED if self.up is None else DOWN


DOWN = Fault(
    reason=UnknownReason.NO_DATA,
    words="Prometheus cannot scrape this pod; see why on its Targets page",
)
NOT_SCRAPED = Fault(
    reason=UnknownReason.NO_DATA,
    words="Prometheus has no series of this pod: add a PodMonitor (or a scrape job that sets the "
    "labels namespace and pod)",
)


class Pods(dict[Where, Pod]):
    """The answers of one moment, by pod."""

    def __missing__(self, where: Where) -> Pod:
        pod = self[where] = Pod()
        return pod

    def absorb_values(self, body: bytes, labels: Labels) -> set[Where]:
        """Add the answer to `values` or `buckets`; return the pods it is about.

        Raises:
            Answer: It is none.
        """
        return self.take_values(_decoded(body, _slim(labels.namespace, labels.pod)))

    def take_values(self, elements: Iterable[Any]) -> set[Where]:
        """Add decoded elements of `values` or `buckets`; return the pods they are about."""
        # Half a million times a round with thousands of pods: nothing is called that need not be.
        # Prometheus gives one name after the other, and each name of one pod after the other.
        found: dict[str, dict[str, tuple[Pod, dict[Key, float]]]] = {}
        namespace = name = bound = at = ""
        inside = found.setdefault(namespace, {})
        slot, legacy = _slot(name, bound, at)
        for element in elements:
            metric = element.metric
            if metric.namespace != namespace:
                namespace = metric.namespace
                inside = found.setdefault(namespace, {})
            entry = inside.get(metric.pod)
            if entry is None:
                pod = self[namespace, metric.pod]
                entry = inside[metric.pod] = (pod, pod.tally.once)
            if metric.name != name or metric.le != bound or metric.position != at:
                name, bound, at = metric.name, metric.le, metric.position
                slot, legacy = _slot(name, bound, at)
            try:
                value = float(element.value.number)
            except ValueError:
                value = math.nan
            if metric.status:
                add_calls(entry[0].tally, metric.status, value)
                continue
            if legacy:
                entry[0].legacy = True
            elif slot is not None:
                key, rank = slot
                once = entry[1]
                if rank is None and key not in once:
                    once[key] = value
                else:
                    entry[0].tally.add(slot, value)
        return {(namespace, pod) for namespace, inside in found.items() for pod in inside}

    def absorb_gauges(self, body: bytes, labels: Labels) -> None:
        """Add the answer to `gauges`.

        Raises:
            Answer: It is none.
        """
        self.take_gauges(_decoded(body, _slim(labels.namespace, labels.pod)))

    def take_gauges(self, elements: Iterable[Any]) -> None:
        """Add decoded elements of `gauges`."""
        for element in elements:
            metric = element.metric
            self[metric.namespace, metric.pod].means[metric.series] = _number(element.value.number)

    def absorb_state(self, body: bytes, labels: Labels) -> None:
        """Add the answer to `state`.

        Raises:
            Answer: It is none.
        """
        self.take_state(elements(body), labels)

    def take_state(self, elements: Iterable[Any], labels: Labels) -> None:
        """Add decoded elements of `state`."""
        for element in elements:
            metric = dict(element.metric)
            where = (metric.pop(labels.namespace, ""), metric.pop(labels.pod, ""))
            series, value = metric.pop("series", ""), _number(element.value.number)
            if not math.isfinite(value):
                continue  # no time, and no answer to whether a scrape succeeds
            pod = self[where]
            if series == State.LIVE:
                pod.seen[frozenset(metric.items())] = value
            elif series == State.INFO:
                pod.info = value
            elif series == State.UP:
                pod.up = value >= 1


@lru_cache(maxsize=4096)
def _place(name: str, bound: str, position: str) -> tuple[str | None, Part]:
    """Wire name and part of a series; no wire name for one that is not wanted."""
    for ending in ("_sum", "_count", "_bucket"):
        if name.endswith(ending) and (wire := wire_of(name.removesuffix(ending))) is not None:
            return wire, _number(bound) if ending == "_bucket" else ending[1:]
    if position:
        return wire_of(name), position
    return wire_of(name), ""


@lru_cache(maxsize=8192)
def _slot(name: str, bound: str, position: str) -> tuple[Slot | None, bool]:
    """Where a series is counted in, and whether it is one of the V0 engine's speculation."""
    wire, part = _place(name, bound, position)
    if wire is not None:
        return slot(wire, part), False
    bare = name.removesuffix("_total")
    return None, any(bare == prefix + each for prefix in PREFIXES for each in _LEGACY)


class _Point(msgspec.Struct, array_like=True, gc=False):
    """Time and number. Not a tuple: the garbage collector would look at a million of them."""

    at: float
    number: str


class Element(msgspec.Struct):
    """An element of an instant vector, with all its labels.

    Attributes:
        metric: The labels, the name among them.
        value: Time of the evaluation, seconds since the epoch, and the number as text.
    """

    metric: dict[str, str]
    value: _Point

    @property
    def number(self) -> float:
        """The number; NaN for what is none."""
        return _number(self.value.number)


def elements(body: bytes) -> Iterable[Element]:
    """The elements of an answer to an instant query.

    Raises:
        Answer: It is none.
    """
    return _decoded(body, _WHOLE)


def _decoder(element: Any) -> msgspec.json.Decoder[Any]:
    data = msgspec.defstruct("Data", [("resultType", str), ("result", list[element])])
    none: Any = msgspec.field(default_factory=list)
    fields: list[Any] = [("status", str), ("data", data), ("warnings", list[str], none)]
    return msgspec.json.Decoder(msgspec.defstruct("Response", fields))


_WHOLE = _decoder(Element)


def _metric(namespace: str, pod: str) -> Any:
    """A structure of only the labels that are read."""
    fields = {
        "name": "__name__",
        "namespace": namespace,
        "pod": pod,
        "le": "le",
        "position": "position",
        "status": "status",
        "series": "series",
    }
    names = [(name, str, "") for name in fields]
    return msgspec.defstruct("Metric", names, rename=fields, gc=False)


@lru_cache(maxsize=8)
def _slim(namespace: str, pod: str) -> msgspec.json.Decoder[Any]:
    """Decodes elements with only the labels that are read."""
    fields = [("metric", _metric(namespace, pod)), ("value", _Point)]
    return _decoder(msgspec.defstruct("Element", fields, gc=False))


@lru_cache(maxsize=8)
def _slim_series(namespace: str, pod: str) -> msgspec.json.Decoder[Any]:
    fields = [("metric", _metric(namespace, pod)), ("values", list[_Point])]
    return _decoder(msgspec.defstruct("Series", fields))


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[_Point]


_WHOLE_SERIES = _decoder(_Series)


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
    decoder = _WHOLE_SERIES if whole else _slim_series(labels.namespace, labels.pod)
    found: list[list[Any]] = [[] for _ in range(grid.count)]
    for series in _decoded(body, decoder, kind="matrix"):
        for point in series.values:
            place, off = divmod(round(point.at * 1000) - grid.start_ms, grid.step_ms)
            if off or not 0 <= place < grid.count:
                raise Answer(
                    "answers a range query with moments that were not asked for; ask the server "
                    "itself, or have its proxy leave start and step as they are"
                )
            found[place].append(_At(series.metric, point))
    return found


def _decoded(
    body: bytes, decoder: msgspec.json.Decoder[Any], *, kind: str = "vector"
) -> Iterable[Any]:
    try:
        response = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Answer(f"does not answer like Prometheus ({error}); check the URL") from error
    if response.status != "success" or response.data.resultType != kind:
        raise Answer(f"answers with a {response.data.resultType} where a {kind} was asked for")
    if partial := next((w for w in response.warnings if "partial" in w.lower()), None):
        raise Answer(f"gave a partial answer, which is none: {partial[:200]}")
    found: Iterable[Any] = response.data.result
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _difference(accounts: Mapping[frozenset[Where], float]) -> str:
    """Which labels tell the accounts apart."""
    shared = frozenset.intersection(*accounts)
    by_label: dict[str, set[str]] = {}
    for account in accounts:
        for label, value in account - shared:
            by_label.setdefault(label, set()).add(value)
    return "; ".join(f"{label}: {', '.join(sorted(by_label[label]))}" for label in sorted(by_label))
