"""Cutting what one answer must not hold into shares: by namespace first, then by name.

The ends of names are drawn by Kubernetes for most pods, and tell as many of them apart as wanted.
Those of a StatefulSet end in an ordinal, and nearly all in `-0`: only their namespaces are sure to
be different.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Share(NamedTuple):
    """Some of the pods.

    Attributes:
        namespaces: Theirs.
        part: Which part of these namespaces' pods, by the ends of their names, counted from 0.
        parts: How many parts these are in.
    """

    namespaces: Collection[str]
    part: int = 0
    parts: int = 1


def cut(sizes: Mapping[str, int], most: int) -> list[Share]:
    """Cut pods into shares of about the same size; each pod is in exactly one.

    Args:
        sizes: Pods by namespace, at least one namespace.
        most: How many shares there may be. There are fewer where namespaces are.
    """
    even = sum(sizes.values()) / most
    light = dict(sorted(sizes.items(), key=lambda each: (-each[1], each[0])))
    shares: list[Share] = []
    for name, size in list(light.items()):
        left = most - len(shares) - (len(light) > 1)  # the others need one, too
        parts = min(round(size / even) if even else 1, left)
        if parts <= 1:
            break
        del light[name]
        shares += [Share([name], part, parts) for part in range(parts)]
    bins: list[tuple[int, list[str]]] = [(0, []) for _ in range(most - len(shares))]
    for name, size in light.items():
        lightest = min(range(len(bins)), key=lambda n: (bins[n][0], n))
        before, names = bins[lightest]
        bins[lightest] = before + size, [*names, name]
    return shares + [Share(names) for _, names in bins if names]
