"""Readiness that does not last, seen over several looks."""

from collections.abc import Iterable, Mapping

import pytest

from specpilot.domain.readiness import Seen, flapping, look
from specpilot.domain.targets import Replica
from tests.unit.domain.builders import NEW, OLD, at, replica

CANARY = replica("a", NEW)
CONTROL = replica("b", OLD)


def watched(looks: Iterable[Replica]) -> Mapping[str, Seen]:
    seen: Mapping[str, Seen] = {}
    for place, found in enumerate(looks):
        seen = look(seen, [found], now=at(10 * place))
    return seen


def _since(seconds: float) -> Replica:
    return Replica(id="a", instance="a-1", declared=NEW, ready=True, ready_since=at(seconds))


AWAY = replica("a", NEW, ready=False)


@pytest.mark.parametrize(
    ("looks", "losses", "reason"),
    [
        ([_since(0), _since(0), _since(0)], 0, "ready throughout"),
        ([AWAY, AWAY, _since(15)], 0, "one that loads has nothing to lose"),
        ([_since(0), AWAY, AWAY, _since(25)], 1, "away once, however many looks"),
        ([_since(0), AWAY, _since(15), AWAY, _since(35)], 2, "twice"),
        ([_since(0), _since(7), _since(17)], 2, "away between two looks: its own word tells"),
    ],
)
def test_losses(looks: list[Replica], losses: int, reason: str) -> None:
    assert watched(looks)["a-1"].losses == losses, reason


def test_a_lost_machine_is_not_looked_at() -> None:
    lost = replica("a", NEW, ready=False, lost=True)
    assert watched([_since(0), lost, lost])["a-1"] == Seen(ready_since=at(0))


def test_who_is_gone_is_forgotten() -> None:
    assert look({"z-1": Seen(ready_since=at(0))}, [_since(0)], now=at(5)).keys() == {"a-1"}


@pytest.mark.parametrize(
    ("canary", "control", "says", "reason"),
    [
        (Seen(ready_since=at(0)), Seen(ready_since=at(0)), "", "both steady"),
        (Seen(ready_since=at(0), losses=1), Seen(ready_since=at(0)), "", "once may happen"),
        (Seen(ready_since=at(0), losses=2), Seen(ready_since=at(0)), "2 times", "it flaps"),
        (Seen(ready_since=at(0), losses=2), Seen(ready_since=at(0), losses=1), "", "all do"),
        (Seen(ready_since=at(0), losses=1, away_since=at(0)), Seen(ready_since=at(0)),
         "was ready and is not", "away for long"),
        (Seen(ready_since=at(0), losses=1, away_since=at(290)), Seen(ready_since=at(0)), "",
         "away for a moment"),
    ],
)  # fmt: skip
def test_flapping(canary: Seen, control: Seen, says: str, reason: str) -> None:
    told = flapping(
        {"a-1": canary, "b-1": control}, canary=[CANARY], control=[CONTROL], now=at(300)
    )
    assert says in told, reason
    assert bool(told) == bool(says), reason
