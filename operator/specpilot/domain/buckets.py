"""Bounds of the engine's histograms, for judging a threshold before there is any measurement.

At run time the bounds are read from the scrape, because `--custom-histogram-buckets` may change
them. A rule is checked before it runs, so here the engine's defaults stand in for them.
"""

from bisect import bisect_left

_TPOT: tuple[float, ...] = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75)
_TPOT += (1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_TTFT: tuple[float, ...] = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75)
_TTFT += (1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
_REQUEST: tuple[float, ...] = (
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
)
_REQUEST += (120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)

DEFAULT_BOUNDS = {"tpot": _TPOT, "ttft": _TTFT, "e2e": _REQUEST, "queue_time": _REQUEST}
"""Upper bounds in seconds by the first word of the signal: vLLM 0.8.5 to 0.33.0 with defaults."""


def bounds_of(signal: str) -> tuple[float, ...]:
    """Default bounds of a percentile signal (`tpot_p99`), none for every other signal."""
    family, _, quantile = signal.rpartition("_p")
    return DEFAULT_BOUNDS.get(family, ()) if quantile.isdigit() else ()


def bucket(bounds: tuple[float, ...], value: float) -> tuple[float, float | None] | None:
    """The bucket that has the value inside it, None when it is a bound and can be told.

    The lowest bucket begins at 0; the highest has no end, and its upper bound is None.
    """
    if value <= 0 or value in bounds:
        return None
    at = bisect_left(bounds, value)
    return (bounds[at - 1] if at else 0.0, bounds[at] if at < len(bounds) else None)


def nearest(bounds: tuple[float, ...], value: float) -> float:
    """The bound nearest to a value, the smaller of two that are equally near."""
    return min(bounds, key=lambda bound: (abs(bound - value), bound))
