"""A large fleet is looked at in portions, spread over the interval, namespace by namespace.

A look at ten thousand replicas takes seconds, and so does a tick over their policies; what has
changed waits for both. In four portions it waits for a quarter of that, and the load is even. Each
portion has queries of its own, so there are few portions, and fewer when the answers must be cut.
"""

import math
from collections.abc import Mapping, Sequence

from specpilot.telemetry.promql import MOST_PARTS

MOST_PORTIONS = 4

WORTH = 1000
"""Replicas that are worth a look of their own."""

_STAYS = 0.8
"""Share of the replicas wanted for so many portions at which there are fewer again."""

_UNEVEN = 1.5
"""Times the heaviest portion there need be that one may weigh before all are spread anew."""

MOST_QUERIES = 14
"""An interval never takes more; with the two for GPUs that makes 16."""

PODS_A_SHARE = 4000
"""Pods whose numbers are fetched in one answer: some 50 MB."""


def queries(shares: int) -> int:
    """Queries that a look takes at most: who is there, and numbers and buckets for each share."""
    return 1 + 2 * shares


class NamespacePortions:
    """Cuts namespaces into portions, and portions into shares that fit one answer.

    Namespaces stay where they are while that is good enough: one that moves is looked at earlier or
    later than an interval after the look before. Safe to ask from any thread while one divides.

    Args:
        most: Portions there may be.
        a_share: Replicas whose numbers are fetched in one answer.
    """

    def __init__(self, *, most: int = MOST_PORTIONS, a_share: int = PODS_A_SHARE) -> None:
        self.most = most
        self._a_share = a_share
        self._state: tuple[int, Mapping[str, int]] = (1, {})  # both at once: others look meanwhile

    @property
    def count(self) -> int:
        """How many portions there are."""
        return self._state[0]

    def of(self, namespace: str) -> int:
        """The portion of a namespace."""
        return self._state[1].get(namespace, 0)

    def divide(self, sizes: Mapping[str, int]) -> None:
        """Divide anew where that is better.

        Args:
            sizes: Replicas by namespace.
        """
        count, there = self._state
        wanted, fresh = self._spread(sizes)
        if wanted == count:
            kept = _joined(sizes, there, count)
            weights = _weights(kept, sizes, count)
            heaviest = max(_weights(fresh, sizes, count))
            if self._affordable(weights) and max(weights) <= _UNEVEN * heaviest:
                fresh = kept
        if fresh != there or wanted != count:
            self._state = (wanted, fresh)

    def shares(self, replicas: int) -> int:
        """Answers that the numbers of so many replicas come in."""
        return min(MOST_PARTS, max(1, math.ceil(replicas / self._a_share)))

    def too_large(self, replicas: int) -> None:
        """An answer was too large when so many replicas were looked at: have twice as many."""
        self._a_share = min(self._a_share, math.ceil(replicas / (2 * self.shares(replicas))))

    def _spread(self, sizes: Mapping[str, int]) -> tuple[int, Mapping[str, int]]:
        """Into as many portions as there may be, the heaviest namespaces first."""
        total = sum(sizes.values())
        heaviest_first = dict(sorted(sizes.items(), key=lambda each: (-each[1], each[0])))
        for count in range(min(self.most, len(sizes)), 1, -1):
            worth = count * WORTH * (_STAYS if count <= self.count else 1.0)
            found = _joined(heaviest_first, {}, count)
            if total >= worth and self._affordable(_weights(found, sizes, count)):
                return count, found
        return 1, dict.fromkeys(sizes, 0)

    def _affordable(self, weights: Sequence[int]) -> bool:
        if len(weights) == 1:
            return True
        # One look back takes one more, and half of the portions look back at a time.
        back = math.ceil(len(weights) / 2)
        return sum(queries(self.shares(weight)) for weight in weights) + back <= MOST_QUERIES


def _joined(sizes: Mapping[str, int], there: Mapping[str, int], count: int) -> dict[str, int]:
    """Portions of namespaces: who is there stays, who comes joins the lightest."""
    found = {name: there[name] for name in sizes if name in there}
    weights = _weights(found, sizes, count)
    for name, size in sizes.items():
        if name not in found:
            found[name] = weights.index(min(weights))
            weights[found[name]] += size
    return found


def _weights(portions: Mapping[str, int], sizes: Mapping[str, int], count: int) -> list[int]:
    """Replicas in each portion."""
    weights = [0] * count
    for name, portion in portions.items():
        weights[portion] += sizes[name]
    return weights
