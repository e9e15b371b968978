"""Published measurements of speculative decoding against none, as values.

What a source does not state as a plain number (`0.86-0.91`, `>0.80`) is not known here either.
"""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("published.csv")
_LOADS = frozenset({"batch", "concurrency", "sessions"})
"""Loads that say how many requests run at a time; a rate of arrivals (QPS) does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One published comparison.

    Attributes:
        source: Where it is published.
        model: The model that serves.
        hardware: What it ran on.
        method: How it drafts.
        depth: Tokens drafted a step, as the source states it (`3`, `tree`).
        acceptance_rate: Accepted over drafted tokens, None where not stated.
        acceptance_length: Tokens a drafted step, the bonus token included; None where not stated.
        batch: Requests that run at a time (or clients, where only those are stated).
        speedup: Over the same without speculation; below 1 it loses.
    """

    source: str
    model: str
    hardware: str
    method: str
    depth: str
    acceptance_rate: float | None
    acceptance_length: float | None
    batch: float | None
    speedup: float

    @property
    def loses(self) -> bool:
        """Whether it would have been faster without."""
        return self.speedup < 1

    @property
    def measured(self) -> bool:
        """Whether acceptance length and batch are both known."""
        return self.acceptance_length is not None and self.batch is not None

    @property
    def cost_ratio(self) -> float | None:
        """Time of a step with speculation over one without: a step yields `acceptance_length`."""
        return None if self.acceptance_length is None else self.acceptance_length / self.speedup

    @property
    def bench(self) -> tuple[str, str, str, str, str]:
        """What must be the same for one case to say what a step costs in another."""
        return (self.source, self.model, self.hardware, self.method, self.depth)


def load(path: Path = FILE) -> tuple[Case, ...]:
    """Read the cases whose speedup over no speculation is a number."""
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_cases(csv.DictReader(file)))


def _cases(rows: Iterable[dict[str, str]]) -> Iterable[Case]:
    for row in rows:
        speedup = _number(row["speedup_vs_no_spec"])
        if speedup is None:
            continue  # compared with something else, or not a number
        load_kind, _, load_size = row["batch_or_concurrency_or_qps"].partition("=")
        yield Case(
            source=row["source"],
            model=row["model"],
            hardware=row["hardware"],
            method=row["method"],
            depth=row["gamma"],
            acceptance_rate=_number(row["acceptance_rate"]),
            acceptance_length=_number(row["mean_accept_len"]),
            batch=_number(load_size) if load_kind in _LOADS else None,
            speedup=speedup,
        )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def others_of(
    case: Case,
    cases: Iterable[Case],
    *,
    other_batch: bool = False,
    reach: float = math.inf,
) -> tuple[Case, ...]:
    """The measured cases of the same bench that are nearest in batch, in the file's order.

    Args:
        case: The one that is judged, which never stands for itself.
        cases: All.
        other_batch: Only those at another batch than its own.
        reach: Largest factor between the two batches.
    """
    if case.batch is None:
        return ()
    distances = [
        (abs(other.batch - case.batch), other)
        for other in cases
        if other is not case
        and other.bench == case.bench
        and other.acceptance_length is not None
        and other.batch is not None
        and not (other_batch and other.batch == case.batch)
        and 1 / reach <= other.batch / case.batch <= reach
    ]
    nearest = min((d for d, _ in distances), default=0.0)
    return tuple(other for d, other in distances if d == nearest)
