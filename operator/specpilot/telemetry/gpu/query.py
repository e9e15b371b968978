"""GPU signals of all pods from Prometheus: one query for the numbers and one for their times.

An instant selector gives the newest sample of every series that still exists: one that ended with
its pod or its exporter is marked stale by Prometheus and not returned. What it does not give is
when that sample was taken, and an exporter's interval and the scrape's together make up to 90 s. So
a second query asks for the time of each exporter's last scrape (`up` carries the time of all
samples of its scrape).
"""

import re
from collections.abc import Collection, Iterable, Mapping

from specpilot.telemetry.gpu.catalogue import OWN_CONTAINER, OWN_POD, PLAIN, Exporter
from specpilot.telemetry.gpu.combine import PodDevices, by_pod
from specpilot.telemetry.gpu.samples import Line, Owner, target_of, understood
from specpilot.telemetry.gpu.vendors import EXPORTERS
from specpilot.telemetry.promql import DEFAULT_LABELS, Labels, quoted
from specpilot.telemetry.promwire import Element, elements


def query(namespaces: Collection[str], labels: Labels = DEFAULT_LABELS) -> str:
    """Numbers of all devices that pods of these namespaces use, to be asked at one moment.

    Args:
        namespaces: At least one.
        labels: Only `matchers` counts, and it must hold for the exporters' series, not the
            engine's. The labels of pods are the exporters' own, whatever the scrape adds.
    """
    return " or ".join(_selectors(namespaces, labels))


def times(namespaces: Collection[str], labels: Labels = DEFAULT_LABELS) -> str:
    """When the exporters behind `query` were last scraped, in seconds since the epoch."""
    own = f"{{{labels.matchers}}}" if labels.matchers else ""
    return f"timestamp(up{own}) and on (job, instance) ({query(namespaces, labels)})"


def absorb(numbers: bytes, moments: bytes | None = None) -> Mapping[Owner, PodDevices]:
    """The devices of every pod, by (namespace, pod).

    Args:
        numbers: The answer to `query`.
        moments: The answer to `times`; without it `at` is not known.

    Raises:
        Answer: One of them is not the answer to an instant query.
    """
    dated: dict[str, float] = {}
    for moment in elements(moments) if moments is not None else ():
        where, at = target_of(moment.metric), moment.value.number
        dated[where] = min(at, dated.get(where, at))
    return by_pod(understood(map(_line, elements(numbers))), times=dated)


def _selectors(namespaces: Collection[str], labels: Labels) -> Iterable[str]:
    """One selector per exporter and way of naming the owner; no series matches two of them."""
    for exporter in EXPORTERS:
        for place, (namespace, pod) in enumerate(exporter.owners):
            matchers = [
                f"__name__=~{quoted(_names(exporter))}",
                f"{namespace}=~{quoted('|'.join(map(re.escape, sorted(set(namespaces)))))}",
                f'{pod}!=""',
                *(f'{better}=""' for better, _ in exporter.owners[:place]),
            ]
            if (namespace, pod) == PLAIN:
                matchers += [
                    f"container!~{quoted(OWN_CONTAINER)}",
                    f"{pod}!~{quoted(OWN_POD)}",
                ]
            if labels.matchers:
                matchers.append(labels.matchers)
            yield "{" + ",".join(matchers) + "}"


def _names(exporter: Exporter) -> str:
    names = "|".join(series.name for series in exporter.series)
    return f"[a-zA-Z0-9_]*({names})" if exporter.prefixed else names


def _line(element: Element) -> Line:
    return element.metric.get("__name__", ""), element.metric, element.value.number
