"""What a roll may do to the number of replicas, by the numbers that users write."""

import math
from collections.abc import Callable


def resolve(value: object, *, of: int, up: bool) -> int:
    """A number of replicas from an int or a percentage, rounded as the controllers round.

    Args:
        value: `1` or `25%`.
        of: Replicas that are wanted.
        up: Round up (surge) or down (unavailable).
    """
    text = str(value)
    if text.endswith("%"):
        exact = int(text[:-1]) * of / 100
        return math.ceil(exact) if up else math.floor(exact)
    return int(text)


def room_for_canary(*, wanted: int, surge: int, unavailable: int, room: Callable[[], bool]) -> bool:
    """Whether a canary can come up without fewer serving than the user's strategy allows.

    Args:
        wanted: Replicas that are wanted.
        surge: Replicas by which a roll may exceed them.
        unavailable: Replicas by which it may fall short of them.
        room: Whether nodes have what one more replica requests; asked only when that decides.
    """
    if wanted <= 1:
        # With one unavailable the controllers stop the only one at once, surge or not.
        return surge >= 1 and unavailable == 0 and room()
    # One of several may be missing by the user's own word, and makes room where it stood.
    return unavailable >= 1 or (surge >= 1 and room())
