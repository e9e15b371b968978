"""One series at one moment, understood: which device, which gauge, whose pod.

Prometheus' answers and an exporter's own page come down to the same thing, a name with labels and a
number, and are read here alike.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from specpilot.telemetry.gpu.catalogue import (
    OWN_CONTAINER,
    OWN_POD,
    PLAIN,
    Exporter,
    Series,
)
from specpilot.telemetry.gpu.vendors import EXPORTERS

Owner: TypeAlias = tuple[str, str]
"""Namespace and name of a pod."""

Line: TypeAlias = tuple[str, Mapping[str, str], float]
"""Name, labels and value of a series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One number of one device.

    Attributes:
        exporter: Who says so.
        series: The row of the catalogue.
        rank: Its place in the order of preference.
        value: As exported, not scaled.
        device: The GPU, or the MIG instance or partition.
        board: The physical GPU.
        tile: The part of the device, "" for all of it.
        owner: The pod that uses it, None when nobody does or the exporter does not know.
        plain: Whether the owner is from labels that may as well name the exporter's own pod.
        target: Where it was scraped, in words.
        shared: Whether the exporter marks the device as time-sliced.
        aliases: Other names of the device on its machine.
        limit: Why the number must not be taken, "" when it may.
    """

    exporter: Exporter
    series: Series
    rank: int
    value: float
    device: str
    board: str
    tile: str = ""
    owner: Owner | None = None
    plain: bool = False
    target: str = ""
    shared: bool = False
    aliases: frozenset[str] = frozenset()
    limit: str = ""


_Row: TypeAlias = tuple[Exporter, Series, int]

_ROWS: Mapping[str, _Row] = {
    series.name: (exporter, series, rank)
    for exporter in EXPORTERS
    for rank, series in enumerate(exporter.series)
}
_PREFIXED = re.compile(
    r"[a-zA-Z0-9_]*?("
    + "|".join(
        re.escape(series.name)
        for exporter in EXPORTERS
        if exporter.prefixed
        for series in exporter.series
    )
    + ")"
)
_OWN_CONTAINER = re.compile(OWN_CONTAINER)
_OWN_POD = re.compile(OWN_POD)


def understood(lines: Iterable[Line], *, target: str = "") -> list[Sample]:
    """The samples among these series of one or many targets, with their owners.

    Args:
        lines: Series; those of no exporter, and those of no device, are left out.
        target: Where they were scraped; "" to take it from Prometheus' labels `job`, `instance`.
    """
    samples = [found for line in lines if (found := _sample(*line, target=target)) is not None]
    # A scrape names all owners in the same labels. Where some are elsewhere (`exported_pod`), a
    # series with the plain ones alone has the exporter's own pod: nobody uses that device.
    elsewhere = {
        (each.exporter.name, each.target) for each in samples if each.owner and not each.plain
    }
    return [
        replace(each, owner=None, plain=False)
        if each.plain and (each.exporter.name, each.target) in elsewhere
        else each
        for each in samples
    ]


def target_of(labels: Mapping[str, str]) -> str:
    """Where Prometheus scraped a series, "" when its labels do not say."""
    job, instance = labels.get("job", ""), labels.get("instance", "")
    return f"{job}, {instance}" if job and instance else job or instance


def _sample(name: str, labels: Mapping[str, str], value: float, *, target: str) -> Sample | None:
    row = _row(name)
    if row is None:
        return None
    exporter, series, rank = row
    for label, wanted in series.where.items():
        if labels.get(label) != wanted:
            return None
    board = _first(exporter, labels)
    if not board:
        return None
    part = labels.get(exporter.part_of_gpu, "")
    owner, plain = _owner(exporter, labels)
    return Sample(
        exporter=exporter,
        series=series,
        rank=rank,
        value=value,
        device=f"{board}/{part}" if part else board,
        board=board,
        tile=labels.get(exporter.tile, ""),
        owner=owner,
        plain=plain,
        target=target or target_of(labels),
        shared=bool(labels.get(exporter.sharing, "")),
        aliases=_aliases(exporter, labels, board=board, part=part),
        limit=_limit(series, labels) if series.limits else "",
    )


def _limit(series: Series, labels: Mapping[str, str]) -> str:
    for limit in series.limits:
        if limit.value.fullmatch(labels.get(limit.label, "")):
            return limit.words
    return ""


def _row(name: str) -> _Row | None:
    if row := _ROWS.get(name):
        return row
    prefixed = _PREFIXED.fullmatch(name)
    return _ROWS[prefixed[1]] if prefixed else None


def _first(exporter: Exporter, labels: Mapping[str, str]) -> str:
    """The physical GPU's identity, "" when the series has none."""
    for group in exporter.device:
        values = [labels.get(label, "") for label in group]
        if all(values):
            return "/".join(values)
    return ""


def _owner(exporter: Exporter, labels: Mapping[str, str]) -> tuple[Owner | None, bool]:
    for pair in exporter.owners:
        namespace, pod = labels.get(pair[0]), labels.get(pair[1])
        if not namespace or not pod:
            continue
        plain = pair == PLAIN
        if plain and _is_exporter(labels.get("container", ""), pod):
            return None, False
        return (namespace, pod), plain
    return None, False


@lru_cache(maxsize=1 << 14)
def _is_exporter(container: str, pod: str) -> bool:
    return bool(_OWN_CONTAINER.fullmatch(container) or _OWN_POD.fullmatch(pod))


def _aliases(
    exporter: Exporter, labels: Mapping[str, str], *, board: str, part: str
) -> frozenset[str]:
    if part and exporter.part_alias:
        # The index is the whole GPU's, and so is its UUID.
        return frozenset({exporter.part_alias.format(board=board, part=part)})
    return frozenset(value for label in exporter.indices if (value := labels.get(label, "")))
