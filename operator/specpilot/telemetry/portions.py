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

_GROWTH = 1.1
"""Times its weight for which a portion must be affordable when it is made: else one surge pod more
would have all namespaces moved, and one less moved back."""

_UNEVEN = 1.5
"""Times the heaviest portion there need be that one may weigh before all are spread anew."""

_LETTERS_SHORT = 650
"""Letters of a portion's namespaces up to which counters and gauges fit into one query."""

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
        """Divide anew where there may be more portions, or those that are there will not do.

        Args:
            sizes: Replicas by namespace.
        """
        count, there = self._state
        kept = _joined(sizes, there, count)
        wanted, fresh = self._spread(sizes)
        if wanted <= count and self._will_do(kept, sizes, count):
            wanted, fresh = count, kept
        if fresh != there or wanted != count:
            self._state = (wanted, fresh)

    def _will_do(self, portions: Mapping[str, int], sizes: Mapping[str, int], count: int) -> bool:
        if count == 1:
            return True
        total, weights = sum(sizes.values()), _weights(portions, sizes, count)
        least = max([total / count, *sizes.values()])  # that the heaviest one can weigh
        return (
            total >= _STAYS * count * WORTH
            and max(weights) <= _UNEVEN * least
            and self._affordable(weights, portions)
        )

    def shares(self, replicas: float) -> int:
        """Answers that the numbers of so many replicas come in."""
        return min(MOST_PARTS, max(1, math.ceil(replicas / self._a_share)))

    def too_large(self, replicas: int, *, shares: int) -> None:
        """An answer about a share of so many replicas was too large: have twice as many shares."""
        self._a_share = min(self._a_share, math.ceil(replicas / (2 * shares)))

    def _spread(self, sizes: Mapping[str, int]) -> tuple[int, Mapping[str, int]]:
        """Into as many portions as there may be, the heaviest namespaces first."""
        total = sum(sizes.values())
        heaviest_first = dict(sorted(sizes.items(), key=lambda each: (-each[1], each[0])))
        for count in range(min(self.most, len(sizes)), 1, -1):
            found = _joined(heaviest_first, {}, count)
            weights = [_GROWTH * weight for weight in _weights(found, sizes, count)]
            if total >= count * WORTH and self._affordable(weights, found):
                return count, found
        return 1, dict.fromkeys(sizes, 0)

    def _affordable(self, weights: Sequence[float], portions: Mapping[str, int]) -> bool:
        letters = [0] * len(weights)
        for name, portion in portions.items():
            letters[portion] += len(name) + 3
        looks = sum(queries(self.shares(weight)) for weight in weights)
        apart = sum(each > _LETTERS_SHORT for each in letters)  # gauges have a query of their own
        # One look back takes one more, and half of the portions look back at a time.
        return looks + apart + math.ceil(len(weights) / 2) <= MOST_QUERIES


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
