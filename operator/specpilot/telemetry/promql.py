"""The queries put to Prometheus: a few for everything, however many targets and replicas.

They ask for numbers as they stand at one moment, not for what happened in a window. Windows are cut
out of what several such moments said (`history`), so a policy with a window of its own, a canary
with its slices or a thousand of them cost Prometheus nothing, and counts are exact where `increase`
would extrapolate.

`sum by (__name__, ...)` adds up the engine's own labels inside a pod. It would add up two scrapes
of one pod as well, so the state query keeps all other labels: two accounts of a pod are noticed.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from specpilot.telemetry.behind import Series
from specpilot.telemetry.exposition import CANONICAL, PROCESS_START
from specpilot.telemetry.names import (
    AVERAGED,
    CACHE_INFO,
    COUNTER_NAMES,
    ENGINE_LABELS,
    FAMILY_NAMES,
    GAUGE_NAMES,
    HTTP,
    HTTP_METHOD,
    HTTP_SERIES,
    LEGACY_RATE,
    LEGACY_SPECULATION,
    POSITIONS,
    PREFIXES,
    RAY_LABELS,
    Counter,
    Family,
)


class State(StrEnum):
    """Terms of the state query."""

    LIVE = "live"  # time of the newest sample of a counter that every engine has
    INFO = "info"  # the same of a series that exists before the first request
    UP = "up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """How this Prometheus names things.

    Attributes:
        namespace: Label that holds a pod's namespace.
        pod: Label that holds its name.
        matchers: More matchers for every selector, as PromQL (`cluster="a",job="vllm"`).
    """

    namespace: str = "namespace"
    pod: str = "pod"
    matchers: str = ""


DEFAULT_LABELS = Labels()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which pods a query is about.

    Attributes:
        namespaces: Their namespaces.
        labels: How this Prometheus names things.
        part: Which share of the pods, counted from 0.
        parts: How many shares there are.
        pods: Names of those that it is about; empty for all.
    """

    namespaces: Collection[str]
    labels: Labels
    part: int = 0
    parts: int = 1
    pods: Collection[str] = ()

    def matchers(self) -> str:
        """The matchers, without braces."""
        labels = self.labels
        names = set(self.namespaces)
        if len(names) == 1:
            namespace = f"{labels.namespace}={quoted(*names)}"
        else:
            namespace = f"{labels.namespace}=~{quoted(choice(names))}"
        share = choice(self.pods) or _share(self.part, self.parts)
        pod = f"{labels.pod}=~{quoted(share)}" if share else ""
        return ",".join(part for part in (namespace, pod, labels.matchers) if part)


_ENDINGS = "0123456789bcdfghjklmnpqrstvwxz"
"""Characters that pod names end in: those that Kubernetes draws, and all digits of an ordinal."""

MOST_PARTS = 6
"""Shares of the pods a query may be cut into."""


def choice(names: Iterable[str]) -> str:
    """Pattern of any of these names.

    Prometheus looks a choice of plain words up; a hyphen with a backslash would make it none.
    """
    return "|".join(re.escape(name).replace(r"\-", "-") for name in sorted(names))


def _share(part: int, parts: int) -> str:
    """Pattern of the pod names in one of several shares; every name is in exactly one."""
    if parts == 1:
        return ""
    if part < parts - 1:
        return f".*[{_ENDINGS[part::parts]}]"
    others = "".join(_ENDINGS[other::parts] for other in range(part))
    return f".*[^{others}]"


def values(scope: Scope, wanted: Series) -> str:
    """Counters, and sums and counts of histograms; the start time of the process they are of.

    The calls of its HTTP server come by status, which no other series has.
    """
    plain = [
        wire for name, wires in COUNTER_NAMES.items() if name in wanted.counters for wire in wires
    ]
    plain += [POSITIONS] if wanted.positions else []
    plain += [name for name in LEGACY_SPECULATION if name != LEGACY_RATE]
    totals = [
        f"{wire}_(sum|count)"
        for family, wires in FAMILY_NAMES.items()
        if family in wanted.totals
        for wire in wires
    ]
    series = _series([*(f"{name}(_total)?" for name in plain), *totals])
    keep = f"by (__name__, position, {scope.labels.namespace}, {scope.labels.pod})"
    where = scope.matchers()
    same = f"on (job, instance, {scope.labels.namespace}, {scope.labels.pod})"
    # Other containers of the pod have processes of their own: theirs may restart unnoticed.
    engine = f"{{{_series([_heartbeat()])},{where}}}"
    start = f"max {keep} ({PROCESS_START[0]}{{{where}}} and {same} {engine})"
    # `or` does not look at names: without a label of its own the start time would be left out.
    found = f"sum {keep} ({{{series},{where}}}) or {_labelled(start, PROCESS_START[0])}"
    if not wanted.counters & HTTP:
        return found
    calls = (
        f"sum by (__name__, status, {scope.labels.namespace}, {scope.labels.pod}) "
        f'({HTTP_SERIES}{{method="{HTTP_METHOD}",{where}}} and {same} {engine})'
    )
    return f"{found} or {calls}"


def buckets(scope: Scope, families: Iterable[Family]) -> str:
    """Buckets of these histograms."""
    series = _series(
        [f"{wire}_bucket" for family in sorted(families) for wire in FAMILY_NAMES[family]]
    )
    keep = f"by (__name__, le, {scope.labels.namespace}, {scope.labels.pod})"
    return f"sum {keep} ({{{series},{scope.matchers()}}})"


def gauges(scope: Scope, *, over_s: float) -> str:
    """Means of the gauges over the last seconds; a label `series` tells which."""
    by = f"by ({scope.labels.namespace}, {scope.labels.pod})"
    over = f"[{max(1, round(over_s * 1000))}ms]"
    wires = [(wire, gauge in AVERAGED) for gauge, names in GAUGE_NAMES.items() for wire in names]
    terms = [
        _labelled(
            f"{'avg' if averaged else 'sum'} {by} "
            f"(avg_over_time({{{_series([wire])},{scope.matchers()}}}{over}))",
            wire,
        )
        for wire, averaged in [*wires, (LEGACY_RATE, True)]
    ]
    return " or ".join(terms)


def together(*texts: str) -> str:
    """Answers in one: no element of `values`, `gauges` or `buckets` has the labels of another's."""
    return " or ".join(texts)


def state(scope: Scope) -> str:
    """When each pod was seen last, by every account of it.

    Of pods with no such account: when it was seen to exist, and whether its scrape succeeds. Of the
    others neither would say more.
    """
    labels, where = scope.labels, scope.matchers()
    inside = ", ".join((*ENGINE_LABELS, *RAY_LABELS))
    pod = f"({labels.namespace}, {labels.pod})"
    heartbeat = f"{{{_series([_heartbeat()])},{where}}}"
    info = f"{{{_series([CACHE_INFO])},{where}}}"
    unseen = f"unless on {pod} {heartbeat}"
    return " or ".join(
        [
            _labelled(f"max without ({inside}) (timestamp({heartbeat}))", State.LIVE),
            _labelled(f"max by {pod} (timestamp({info})) {unseen}", State.INFO),
            _labelled(f"max by {pod} (up{{{where}}}) {unseen}", State.UP),
        ]
    )


def _heartbeat() -> str:
    return f"{Counter.GENERATION_TOKENS}(_total)?"


def wire_of(name: str) -> str | None:
    """The engine's name for a series of Prometheus, without prefix and `_total`."""
    for prefix in PREFIXES:
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    stripped = name.removesuffix("_total")
    if stripped in CANONICAL:
        return stripped
    return name if name in CANONICAL else None


def _series(patterns: Iterable[str]) -> str:
    names = quoted(f"({'|'.join(PREFIXES)})({'|'.join(patterns)})")
    return f"__name__=~{names}"


def quoted(text: str) -> str:
    """A string literal of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _labelled(expression: str, series: str) -> str:
    return f'label_replace({expression}, "series", "{series}", "", "")'
