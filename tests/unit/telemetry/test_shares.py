"""How what one answer must not hold is cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.telemetry.promql import MOST_PARTS, Labels, Scope
from specpilot.telemetry.shares import Share, cut

DRAWN = "bcdfghjklmnpqrstvwxz2456789"


def test_one_share_is_everybody() -> None:
    (share,) = cut({"a": 3, "b": 4}, 1)
    assert sorted(share.namespaces) == ["a", "b"]
    assert (share.part, share.parts) == (0, 1)


def test_namespaces_are_cut_before_the_names_in_them() -> None:
    """The pods of twelve StatefulSets all end in -0: nothing else tells them apart."""
    shares = cut({f"team-{n}": 100 for n in range(12)}, 6)
    assert [len(share.namespaces) for share in shares] == [2] * 6
    assert {share.parts for share in shares} == {1}


def test_a_heavy_namespace_is_cut_by_name_and_leaves_room_for_the_others() -> None:
    shares = cut({"serving": 9000, "test": 10, "dev": 5}, 4)
    assert shares == [Share(["serving"], n, 3) for n in range(3)] + [Share(["test", "dev"])]


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 5000), min_size=1),
    st.integers(1, MOST_PARTS),
)
def test_everybody_is_in_exactly_one_share_and_no_share_is_much_too_heavy(
    sizes: dict[str, int], most: int
) -> None:
    shares = cut(sizes, most)
    assert 1 <= len(shares) <= most
    for name in sizes:
        own = [share for share in shares if name in share.namespaces]
        assert [share.part for share in own] == list(range(own[0].parts))
        assert len(own) == own[0].parts
    weights = [sum(sizes[name] for name in s.namespaces) / s.parts for s in shares]
    assert max(weights) <= 2 * sum(sizes.values()) / most + 1


@pytest.mark.parametrize("parts", range(2, MOST_PARTS + 1))
@pytest.mark.parametrize(
    ("endings", "least", "reason"),
    [
        (DRAWN, 0.6, "pods of ReplicaSets, as Kubernetes draws their names"),
        ("0123456789", 0.5, "ordinals of a large StatefulSet"),
    ],
)
def test_names_are_cut_evenly(parts: int, endings: str, least: float, reason: str) -> None:
    found = [0] * parts
    for ending in endings:
        for part in range(parts):
            scope = Scope(namespaces=["a"], labels=Labels(), part=part, parts=parts)
            pattern = re.search(r'pod=~"([^"]*)"', scope.matchers())
            assert pattern
            found[part] += re.fullmatch(pattern[1], f"chat-{ending}") is not None
    assert sum(found) == len(endings), "each name is in one part"
    assert min(found) >= least * max(found), reason
