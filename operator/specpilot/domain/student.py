"""Student's t, as far as a test needs it: exact, and without a library of numerics.

For a whole number of degrees of freedom the distribution is a finite sum of powers of a cosine
(Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4).
"""

import math
from functools import lru_cache

_STEPS = 200
"""Halvings of the bracket: more than a float has digits."""


def tail(t: float, degrees: int) -> float:
    """Probability of a value above `t`, which is not negative.

    Args:
        t: The value.
        degrees: Degrees of freedom, at least 1.
    """
    angle = math.atan2(t, math.sqrt(degrees))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(3 if odd else 2, degrees - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return max(0.0, (1 - within) / 2)


@lru_cache(maxsize=4096)
def upper_quantile(probability: float, degrees: int) -> float:
    """The value that is exceeded with a probability.

    Args:
        probability: Of a value above it; above 0 and at most 0.5.
        degrees: Degrees of freedom, at least 1.
    """
    if not 0 < probability <= 0.5 or degrees < 1:  # noqa: PLR2004 - half of it lies above 0
        raise ValueError(f"no quantile of {probability} with {degrees} degrees of freedom")
    low, high = 0.0, 1.0
    while tail(high, degrees) > probability:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if tail(middle, degrees) > probability:
            low = middle
        else:
            high = middle
    return high
