"""Quantiles of merged histograms, with the bounds between which the truth lies.

The engine's buckets are coarse (nothing below 10 ms per token, nothing below 300 ms per request),
so a quantile is an interpolation. Callers get the bucket's bounds beside it: two arms that lie in
the same bucket have not been told apart.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise

Buckets = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """An estimate and its bucket; `high` None means "at least `low`"."""

    value: float
    low: float
    high: float | None


def merge(histograms: Iterable[Buckets]) -> Buckets:
    """Add cumulative buckets of several replicas, at the bounds that all of them have.

    Cumulative counts can only be added at a bound every replica reports. Replicas of one arm run
    the same engine, so nothing is lost; where bounds differ (`--custom-histogram-buckets`), the
    common ones give a coarser, still true answer.
    """
    tables = [dict(buckets) for buckets in histograms if buckets]
    if not tables:
        return ()
    bounds = sorted(set(tables[0]).intersection(*tables[1:]))
    columns = zip(*(map(table.__getitem__, bounds) for table in tables), strict=True)
    # A damaged page may have less in a bucket than in the one before it.
    rising = islice(accumulate(map(math.fsum, columns), max, initial=0.0), 1, None)
    return tuple(zip(bounds, rising, strict=True))


def quantile(buckets: Buckets, q: float) -> Quantile | None:
    """The q-quantile by linear interpolation, as Prometheus' `histogram_quantile` does it.

    None when there is nothing to estimate from: no observation, no `+Inf` bucket, or no finite
    bound in common.
    """
    if len(buckets) < 2 or buckets[-1][0] != math.inf or buckets[-1][1] <= 0:  # noqa: PLR2004
        return None
    rank = q * buckets[-1][1]
    start, below = 0.0, 0.0
    for (bound, cumulative), (after, _) in pairwise(buckets):
        if cumulative >= rank:
            low = min(start, bound)
            share = (rank - below) / (cumulative - below)
            return Quantile(value=low + (bound - low) * share, low=low, high=bound)
        if after == math.inf:
            return Quantile(value=bound, low=bound, high=None)
        start, below = bound, cumulative
    return None
