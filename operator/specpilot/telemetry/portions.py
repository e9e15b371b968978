"""A large fleet is looked at in portions, spread over the interval, namespace by namespace.

A look at ten thousand replicas takes seconds, and so does a tick over their policies; what has
changed waits for both. In six portions it waits for a sixth of that, and the load is even. Each
portion has queries of its own, so there are few portions, and fewer when answers must be cut.
"""

import math
import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from specpilot.telemetry.promql import (
    DEFAULT_LABELS,
    MOST_PARTS,
    Labels,
    Scope,
    choice,
    quoted,
)

MOST_PORTIONS = 6

WORTH = 1000
"""Replicas that are worth a look of their own."""

_STAYS = 0.8
"""Share of the replicas wanted for so many portions at which there are fewer again."""

_GROWTH = 1.1
"""Times its weight and its letters for which a portion must be affordable when it is made: else one
surge pod or one namespace more would have all namespaces moved, and one less moved back."""

_UNEVEN = 1.5
"""Times the heaviest portion there need be that one may weigh before all are spread anew."""

_LETTERS_SHORT = 900
"""Letters that say which namespaces a portion has, up to which counters, gauges and the buckets of
all fit into one query; they stand in it a dozen times."""

MOST_QUERIES = 14
"""An interval never takes more; with the two for GPUs that makes 16."""

PODS_A_SHARE = 4000
"""Pods whose numbers are fetched in one answer: some 50 MB."""

_TURNS = 3
"""At most one of so many portions looks back at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Of a look.

    Attributes:
        replicas: How many are looked at.
        shares: Answers that their numbers come in.
        small: Whether so few that the answer has room for all their buckets as well.
    """

    replicas: int
    shares: int
    small: bool


class NamespacePortions:
    """Cuts namespaces into portions, and portions into shares that fit one answer.

    Namespaces stay where they are while that is good enough: one that moves is looked at earlier or
    later than an interval after the look before. Safe to ask from any thread while one divides.

    Args:
        most: Portions there may be.
        a_share: Replicas whose numbers are fetched in one answer.
        labels: How the server names things: what every query says makes it longer.
    """

    def __init__(
        self,
        *,
        most: int = MOST_PORTIONS,
        a_share: int = PODS_A_SHARE,
        labels: Labels = DEFAULT_LABELS,
    ) -> None:
        self.most = most
        self._labels = labels
        self._a_share = a_share
        self._state: tuple[int, Mapping[str, int]] = (1, {})  # both at once: others look meanwhile
        self._lock = threading.Lock()  # guards the two below
        self._newest: deque[bool] = deque(maxlen=most)  # looks: whether at the past
        self._since: dict[int, int] = {}  # looks of each portion since it looked at the past

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
        kept = self._joined(sizes, there, count)
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

    def looks_back(self, portion: int, *, wanted: bool) -> bool:
        """Count a look, and say whether it is one at the past, which takes a query more.

        Of as many looks in a row as there are portions, whosever they are, only some are, so that
        every stretch of an interval's length stays within the queries. None has a turn again before
        the others could have had theirs, and each sees the present in between.

        Args:
            portion: Whose look.
            wanted: Whether there is something to look up.
        """
        with self._lock:
            count, most = self.count, _most_back(self.count)
            newest = [*self._newest][-(count - 1) :] if count > 1 else []
            since = self._since.get(portion, count)
            turn = wanted and sum(newest) < most and since >= math.ceil(count / most)
            self._newest.append(turn)
            self._since[portion] = 0 if turn else since + 1
            return turn

    def size(self, replicas: int) -> Size:
        """Of a look at so many replicas."""
        return Size(replicas=replicas, shares=self._shares(replicas), small=self._small(replicas))

    def queries(self, replicas: float, names: Collection[str], *, more: float = 1.0) -> int:
        """Queries that a look at so many replicas takes at most.

        One says who is there. Everything else comes in one, or numbers and buckets in two for each
        share; where many namespaces make queries long, gauges have one of their own.

        Args:
            replicas: How many there are.
            names: Their namespaces.
            more: Times as many replicas, and as many letters of namespaces, for which to answer.
        """
        if not names:
            return 0
        said = Scope(namespaces=names, labels=self._labels).matchers()
        short = more * len(said) <= _LETTERS_SHORT
        if short and self._small(more * replicas):
            return 2
        return 1 + 2 * self._shares(more * replicas) + (not short)

    def too_large(self, size: Size, *, whole: bool) -> None:
        """An answer to a share was too large: ask for less.

        Args:
            size: Of the look.
            whole: Whether the answer was to hold the buckets of all as well.
        """
        least = size.replicas if whole else math.ceil(size.replicas / (2 * size.shares))
        self._a_share = min(self._a_share, least)

    def _shares(self, replicas: float) -> int:
        return min(MOST_PARTS, max(1, math.ceil(replicas / self._a_share)))

    def _small(self, replicas: float) -> bool:
        return 2 * replicas <= self._a_share

    def _spread(self, sizes: Mapping[str, int]) -> tuple[int, Mapping[str, int]]:
        """Into as many portions as there may be, the heaviest namespaces first."""
        total = sum(sizes.values())
        heaviest_first = dict(sorted(sizes.items(), key=lambda each: (-each[1], each[0])))
        for count in range(min(self.most, len(sizes)), 1, -1):
            found = self._joined(heaviest_first, {}, count)
            weights = _weights(found, sizes, count)
            if total >= count * WORTH and self._affordable(weights, found, more=_GROWTH):
                return count, found
        return 1, dict.fromkeys(sizes, 0)

    def _affordable(
        self, weights: Sequence[int], portions: Mapping[str, int], *, more: float = 1.0
    ) -> bool:
        names: list[list[str]] = [[] for _ in weights]
        for name, portion in portions.items():
            names[portion].append(name)
        looks = sum(
            self.queries(weight, some, more=more)
            for weight, some in zip(weights, names, strict=True)
        )
        return looks + _most_back(len(weights)) <= MOST_QUERIES

    def _joined(
        self, sizes: Mapping[str, int], there: Mapping[str, int], count: int
    ) -> dict[str, int]:
        """Portions of namespaces: who is there stays, who comes joins the lightest with room."""
        found = {name: there[name] for name in sizes if name in there}
        weights = _weights(found, sizes, count)
        bare = len(Scope(namespaces=(), labels=self._labels).matchers())
        room = [_LETTERS_SHORT / _GROWTH - bare] * count
        for name, portion in found.items():
            room[portion] -= _letters(name)
        for name, size in sizes.items():
            if name not in found:
                letters = _letters(name)
                roomy = [each for each in range(count) if room[each] >= letters] or range(count)
                found[name] = min(roomy, key=lambda each: (weights[each], each))
                weights[found[name]] += size
                room[found[name]] -= letters
        return found


def _letters(namespace: str) -> int:
    """Of a namespace in a choice of them."""
    return len(quoted(choice([namespace]))) - 1


def _most_back(portions: int) -> int:
    """Looks at the past within an interval; they take one query more than those at the present."""
    return math.ceil(portions / _TURNS)


def _weights(portions: Mapping[str, int], sizes: Mapping[str, int], count: int) -> list[int]:
    """Replicas in each portion."""
    weights = [0] * count
    for name, portion in portions.items():
        weights[portion] += sizes[name]
    return weights
