"""Virtual time: the same engines and arrivals as over HTTP, without the waiting."""

from __future__ import annotations

import asyncio

import pytest

from specpilot.sim.engine import Engine
from specpilot.sim.fleet import SimFleet
from specpilot.sim.load.client import ClientOptions, send
from specpilot.sim.load.records import Objective, summarise
from specpilot.sim.load.workload import Arrival, Phase, arrivals
from specpilot.sim.virtual import VirtualFleet
from tests.unit.sim.support import NGRAM, config_of


def arrival(at: float, *, max_tokens: int = 64) -> Arrival:
    return Arrival(at=at, phase="a", kind="random", prompt="[accept=0.8]", max_tokens=max_tokens)


def fleet_of(*names: str) -> VirtualFleet:
    fleet = VirtualFleet()
    for name in names:
        fleet.add(name, Engine(config_of()))
    return fleet


def test_equal_arrivals_give_equal_records() -> None:
    def run() -> list[tuple[float, str | None]]:
        fleet = VirtualFleet()
        for name in ("a", "b"):
            fleet.add(name, Engine(config_of(spec=NGRAM)))
        fleet.submit(arrivals([Phase(seconds=60, rate=4)], seed=5))
        fleet.finish()
        return [(each.end, each.endpoint) for each in fleet.records]

    assert run() == run()


def test_the_least_busy_replica_gets_the_next_request() -> None:
    fleet = fleet_of("a", "b", "c")
    fleet.submit([arrival(0.0) for _ in range(9)])
    fleet.finish()
    served = [each.endpoint for each in fleet.records]
    assert {served.count(name) for name in "abc"} == {3}


def test_a_replica_serves_from_the_time_it_is_ready() -> None:
    fleet = VirtualFleet()
    fleet.add("late", Engine(config_of()), ready_at=30.0)
    fleet.submit([arrival(1.0)])
    fleet.finish()
    [record] = fleet.records
    assert record.first_token is not None
    assert record.first_token > 30.0
    assert record.latency > 29.0, "the wait is part of the latency"


def test_time_moves_as_far_as_asked() -> None:
    fleet = fleet_of("a")
    fleet.submit([arrival(0.0), arrival(50.0)])
    fleet.advance(20.0)
    assert fleet.now == 20.0
    assert len(fleet.records) == 1
    fleet.finish()
    assert len(fleet.records) == 2


def test_a_drained_replica_finishes_its_requests_and_gets_no_more() -> None:
    fleet = fleet_of("a", "b")
    fleet.submit([arrival(0.0), arrival(0.0), arrival(2.0)])
    fleet.advance(1.0)
    fleet.remove("a")
    assert "a" in fleet.engines, "it still has a request"
    fleet.finish()
    assert sorted(str(each.endpoint) for each in fleet.records) == ["a", "b", "b"]
    assert all(each.ok for each in fleet.records)
    assert set(fleet.engines) == {"b"}


def test_a_replica_killed_loses_its_requests() -> None:
    fleet = fleet_of("a")
    fleet.submit([arrival(0.0), arrival(3.0)])
    fleet.advance(1.0)
    fleet.remove("a", drain=False)
    fleet.add("b", Engine(config_of()), ready_at=10.0)
    fleet.finish()
    lost, served = fleet.records
    assert (lost.error, lost.end) == ("aborted", 1.0)
    assert (served.ok, served.endpoint) == (True, "b")


def test_misuse_is_refused_by_name() -> None:
    fleet = fleet_of("a")
    with pytest.raises(ValueError, match="'a' is taken"):
        fleet.add("a", Engine(config_of()))
    fleet.advance(5.0)
    with pytest.raises(ValueError, match=r"4\.0 is before 5\.0"):
        fleet.submit([arrival(4.0)])


def test_http_and_virtual_time_agree() -> None:
    """Both run the same engine; HTTP adds the machine's own delays and nothing else."""
    schedule = arrivals([Phase(seconds=3, rate=4, kind="accept:0.8", output_tokens=32)], seed=2)
    config = config_of(spec=NGRAM)
    fleet = VirtualFleet()
    fleet.add("a", Engine(config))
    fleet.submit(schedule)
    fleet.finish()

    async def over_http() -> float:
        async with SimFleet() as real:
            await real.add(config)
            records = await send(schedule, endpoints=real.urls, options=ClientOptions(stream=True))
            assert all(record.ok for record in records)
            return summarise(records, objective=Objective(), span=3).latency_mean or 0.0

    virtual = summarise(fleet.records, objective=Objective(), span=3).latency_mean
    assert virtual is not None
    measured = asyncio.run(asyncio.wait_for(over_http(), timeout=60))
    # The draws differ as soon as a step begins at another moment; hence the slack downwards.
    assert 0.75 * virtual < measured < 2.5 * virtual
