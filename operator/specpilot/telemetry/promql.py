"""The queries put to Prometheus: six per window, whatever the number of targets and replicas.

Each query is a union (`or`) of one term per series, told apart by a label `series` that
`label_replace` adds. A term adds up the engine's own labels (`sum without (engine, ...)`) and keeps
all others: they are Prometheus' account of where a series was scraped, and two accounts of one pod
are two copies of the same numbers, which must be noticed and not added.

Counters go by two spellings because some collectors strip `_total`; `a or b` takes the first that
a replica has.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from specpilot.telemetry.names import (
    CACHE_INFO,
    ENGINE_LABELS,
    GAUGE_NAMES,
    LEGACY_SPECULATION,
    PREFIX,
    QUANTILES,
    Counter,
    Family,
)


class Topic(StrEnum):
    """What a query is about."""

    STATE = "state"
    COUNTERS = "counters"
    TOTALS = "totals"
    BUCKETS = "buckets"
    GAUGES = "gauges"
    RESTARTS = "restarts"


class State(StrEnum):
    """Terms of the state query, beside the numbers."""

    LIVE = "live"  # time of the sample that stands at the end of the window
    FIRST = "first"  # time of the first sample
    LAST = "last"  # time of the newest sample, also when the series has ended since
    SAMPLES = "samples"
    SPECULATION = "speculation"
    LEGACY = "legacy"
    INFO = "info"  # time of the newest sample of a series that exists from the start
    INFO_SAMPLES = "info_samples"
    UP = "up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """How this Prometheus names things.

    Attributes:
        namespace: Label that holds a pod's namespace.
        pod: Label that holds its name.
        matchers: More matchers for every selector, such as `job="vllm"`.
    """

    namespace: str = "namespace"
    pod: str = "pod"
    matchers: str = ""


_WITHOUT = f"without ({', '.join(ENGINE_LABELS)})"


def queries(namespaces: Collection[str], *, length_s: float, labels: Labels) -> Mapping[Topic, str]:
    """The queries of one window of `length_s` seconds, to be evaluated at its end."""
    return {topic: " or ".join(terms) for topic, terms in _terms(namespaces, length_s, labels)}


def _terms(
    namespaces: Collection[str], length_s: float, labels: Labels
) -> Iterable[tuple[Topic, list[str]]]:
    where = _where(namespaces, labels)
    window = f"[{round(length_s * 1000)}ms]"

    def vllm(name: str) -> str:
        return f"{PREFIX}{name}{where}"

    def spellings(counter: str) -> list[str]:
        return [vllm(f"{counter}_total"), vllm(counter)]

    def each(series: str, template: str, selectors: Iterable[str]) -> list[str]:
        """One labelled term per selector; the earlier ones win."""
        return [_labelled(template.format(selector), series) for selector in selectors]

    increase = f"sum {_WITHOUT} (increase({{}}{window}))"

    yield (
        Topic.COUNTERS,
        [term for name in Counter for term in each(name, increase, spellings(name))],
    )
    yield (
        Topic.TOTALS,
        [
            term
            for name in Family
            for part in ("sum", "count")
            for term in each(f"{name}_{part}", increase, [vllm(f"{name}_{part}")])
        ],
    )
    yield (
        Topic.BUCKETS,
        [term for name in QUANTILES for term in each(name, increase, [vllm(f"{name}_bucket")])],
    )
    # Not avg_over_time: with several API servers a gauge is absent until the first request, and the
    # mean over all scrapes needs the sum and the number of scrapes. Summed over engines and divided
    # by their number afterwards, since `avg` of a share and `sum` of a count must both be possible.
    gauges: list[str] = []
    for gauge, names in GAUGE_NAMES.items():
        found = [vllm(name) for name in names]
        gauges += each(gauge, f"sum {_WITHOUT} (sum_over_time({{}}{window}))", found)
        gauges += each(f"{gauge}/engines", f"count {_WITHOUT} ({{}})", found)
    yield (Topic.GAUGES, gauges)

    heartbeat = spellings(Counter.GENERATION_TOKENS)
    # Where a sum falls although nothing restarted (a negative observation), `increase` takes it for
    # a restart and adds the whole sum again; only counting the falls tells.
    falls = f"max {_WITHOUT} (resets({{}}{window}))"
    sums = [term for name in Family for term in each(name, falls, [vllm(f"{name}_sum")])]
    yield (Topic.RESTARTS, [*each(Counter.GENERATION_TOKENS, falls, heartbeat), *sums])

    # The newest and the first sample's own times, looked up at twenty moments of the window.
    over_time = f"[{round(length_s * 1000)}ms:{max(1000, round(length_s * 50))}ms]"
    by_pod = f"max by ({labels.namespace}, {labels.pod})"
    info = [vllm(CACHE_INFO)]
    state = [
        *each(State.LIVE, f"max {_WITHOUT} (timestamp({{}}))", heartbeat),
        *each(
            State.FIRST, f"min {_WITHOUT} (min_over_time(timestamp({{}}){over_time}))", heartbeat
        ),
        *each(State.LAST, f"max {_WITHOUT} (max_over_time(timestamp({{}}){over_time}))", heartbeat),
        *each(State.SAMPLES, f"max {_WITHOUT} (count_over_time({{}}{window}))", heartbeat),
        *each(State.SPECULATION, f"max {_WITHOUT} (timestamp({{}}))", spellings(Counter.DRAFTS)),
        *each(
            State.LEGACY,
            f"max {_WITHOUT} (timestamp({{}}))",
            [vllm(LEGACY_SPECULATION[0] + "_total"), *map(vllm, LEGACY_SPECULATION)],
        ),
        *each(State.INFO, f"{by_pod} (timestamp({{}}))", info),
        *each(State.INFO_SAMPLES, f"{by_pod} (count_over_time({{}}{window}))", info),
        *each(State.UP, f"{by_pod} ({{}})", [f"up{where}"]),
    ]
    yield (Topic.STATE, state)


def _where(namespaces: Collection[str], labels: Labels) -> str:
    names = sorted(set(namespaces))
    if len(names) == 1:
        matcher = f"{labels.namespace}={_quoted(names[0])}"
    else:
        pattern = "|".join(re.escape(name) for name in names)
        matcher = f"{labels.namespace}=~{_quoted(pattern)}"
    return "{" + ",".join(part for part in (matcher, labels.matchers) if part) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _labelled(expression: str, series: str) -> str:
    return f'label_replace({expression}, "series", "{series}", "", "")'
