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
from specpilot.telemetry.promql import Labels

_NO_LABELS = Labels()


def query(namespaces: Collection[str], labels: Labels = _NO_LABELS) -> str:
    """Numbers of all devices that pods of these namespaces use, to be asked at one moment.

    Args:
        namespaces: At least one.
        labels: Only `matchers` counts, and it must hold for the exporters' series, not the
            engine's. The labels of pods are the exporters' own, whatever the scrape adds.
    """
    return " or ".join(_selectors(namespaces, labels))


def times(namespaces: Collection[str], labels: Labels = _NO_LABELS) -> str:
    """When the exporters behind `query` were last scraped, in seconds since the epoch."""
    own = f"{{{labels.matchers}}}" if labels.matchers else ""
    return f"timestamp(up{own}) and on (job, instance) ({query(namespaces, labels)})"


def absorb(
    elements: Iterable[object], moments: Iterable[object] = ()
) -> Mapping[Owner, PodDevices]:
    """The devices of every pod, by (namespace, pod).

    Args:
        elements: The answer to `query`.
        moments: The answer to `times`; without it `at` is not known.

    Raises:
        ValueError: An answer is not an instant vector.
    """
    dated: dict[str, float] = {}
    for element in moments:
        _, metric, value = _line(element)
        where = target_of(metric)
        dated[where] = min(value, dated.get(where, value))
    return by_pod(understood(map(_line, elements)), times=dated)


def _selectors(namespaces: Collection[str], labels: Labels) -> Iterable[str]:
    """One selector per exporter and way of naming the owner; no series matches two of them."""
    for exporter in EXPORTERS:
        for place, (namespace, pod) in enumerate(exporter.owners):
            matchers = [
                f"__name__=~{_quoted(_names(exporter))}",
                f"{namespace}=~{_quoted('|'.join(map(re.escape, sorted(set(namespaces)))))}",
                f'{pod}!=""',
                *(f'{better}=""' for better, _ in exporter.owners[:place]),
            ]
            if (namespace, pod) == PLAIN:
                matchers += [
                    f"container!~{_quoted(OWN_CONTAINER)}",
                    f"{pod}!~{_quoted(OWN_POD)}",
                ]
            if labels.matchers:
                matchers.append(labels.matchers)
            yield "{" + ",".join(matchers) + "}"


def _names(exporter: Exporter) -> str:
    names = "|".join(series.name for series in exporter.series)
    return f"[a-zA-Z0-9_]*({names})" if exporter.prefixed else names


def _line(element: object) -> Line:
    if isinstance(element, dict):
        metric, point = element.get("metric"), element.get("value")
        if isinstance(metric, dict) and isinstance(point, list) and len(point) == 2:  # noqa: PLR2004 - time and value
            return metric.get("__name__", ""), metric, float(str(point[1]))
    raise ValueError(f"not an element of an instant vector: {str(element)[:80]}")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
