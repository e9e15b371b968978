"""A leader that was deposed writes nothing, whatever it believes."""

from dataclasses import replace
from datetime import timedelta

import pytest

from specpilot.domain.memory import PolicyMemory
from specpilot.store import DeposedError, Leadership, Store
from tests.unit.store.examples import T0

FIRST = Leadership(lease="specpilot/specpilot", lease_created=T0, transitions=3, holder="a")
SECOND = replace(FIRST, transitions=4, holder="b")


def remember(store: Store, active: str) -> None:
    with store.begin() as unit:
        unit.memory.put("u", PolicyMemory(active=active))


def remembered(store: Store) -> str:
    with store.read() as unit:
        return unit.memory.get("u").active


def test_each_leader_writes_until_the_next_one_has(store: Store) -> None:
    first, second = store.led(FIRST), store.led(SECOND)
    remember(first, "one")
    remember(first, "two")
    remember(second, "three")
    with pytest.raises(DeposedError, match=r"nothing was written: b leads since.*transition 4"):
        remember(first, "four")
    assert remembered(first) == "three", "and it can still read"
    remember(second, "five")
    assert remembered(store) == "five"


def test_what_was_begun_by_the_old_leader_is_not_half_there(store: Store) -> None:
    remember(store.led(SECOND), "three")
    ran = []
    with pytest.raises(DeposedError), store.led(FIRST).begin() as unit:
        ran.append(unit)
    assert not ran, "refused before anything else of the transaction"


def test_an_old_leader_that_comes_late_cannot_claim_it(store: Store) -> None:
    remember(store.led(SECOND), "three")
    for _ in range(2):
        with pytest.raises(DeposedError):
            remember(store.led(FIRST), "four")


def test_a_lease_that_was_deleted_and_made_anew_counts_from_zero(store: Store) -> None:
    remember(store.led(SECOND), "three")
    anew = Leadership(
        lease=SECOND.lease, lease_created=T0 + timedelta(hours=1), transitions=0, holder="c"
    )
    remember(store.led(anew), "four")
    with pytest.raises(DeposedError):
        remember(store.led(SECOND), "five")


def test_installations_that_share_a_database_do_not_fence_each_other_off(store: Store) -> None:
    remember(store.led(SECOND), "three")
    remember(store.led(replace(FIRST, lease="other/specpilot")), "four")
    assert remembered(store) == "four"


def test_who_does_not_lead_is_not_asked(store: Store) -> None:
    remember(store.led(SECOND), "three")
    remember(store, "by hand")
    assert remembered(store) == "by hand"
