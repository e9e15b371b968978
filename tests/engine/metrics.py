"""Read ``/metrics`` into something that two servers can be compared by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tests.engine.servers import Server

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric as exported: what a scraper sees of it, and its values.

    Attributes:
        kind: Its type as declared.
        labels: The names of its labels, without a bucket's bound.
        buckets: The bounds of its buckets, as written.
        values: Value by sample name and labels, buckets and creation times left out.
    """

    kind: str
    labels: frozenset[str]
    buckets: tuple[str, ...]
    values: Mapping[tuple[str, Labels], float]

    def total(self, suffix: str = "", **labels: str) -> float:
        """Return the sum of the samples with this name suffix and these labels."""
        wanted = set(labels.items())
        return sum(
            value
            for (name, found), value in self.values.items()
            if name.endswith(suffix) and wanted <= found
        )

    def label_values(self, label: str) -> set[str]:
        """Return the values that a label takes over all series."""
        return {value for _, labels in self.values for name, value in labels if name == label}


def scrape(server: Server) -> dict[str, Family]:
    """Return the families of a server by name; a counter's name is without ``_total``."""
    answer = server.client.get("/metrics")
    answer.raise_for_status()
    return read(answer.text)


def read(text: str) -> dict[str, Family]:
    """Return the families of an exposition in Prometheus' text format."""
    found = {}
    for family in text_string_to_metric_families(text):
        if family.name.endswith("_created"):
            continue
        bounds: dict[str, None] = {}
        names: set[str] = set()
        values: dict[tuple[str, Labels], float] = {}
        for sample in family.samples:
            names |= sample.labels.keys() - {"le"}
            if "le" in sample.labels:
                bounds[sample.labels["le"]] = None
            else:
                values[sample.name, frozenset(sample.labels.items())] = sample.value
        found[family.name] = Family(
            kind=family.type,
            labels=frozenset(names),
            buckets=tuple(bounds),
            values=values,
        )
    return found
