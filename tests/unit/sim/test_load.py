"""The load generator: what it sends follows from a seed, and what it reports from what happened."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.sim.drafts import repetitiveness
from specpilot.sim.fleet import SimFleet
from specpilot.sim.load.__main__ import main
from specpilot.sim.load.client import ClientOptions, circulate, endpoints_of_file, send
from specpilot.sim.load.records import Objective, Record, by_phase, quantile, summarise
from specpilot.sim.load.workload import (
    Arrival,
    Phase,
    arrivals,
    build_prompt,
    parse_phase,
    read_trace,
    span,
)
from tests.unit.sim.support import until

FAST = ("--sim-profile", "demo", "--sim-time-scale", "0.1")
PHASES = [
    Phase(seconds=20, rate=5, kind="accept:0.8", name="good"),
    Phase(seconds=10, rate=20, kind="random", output_tokens=100, spread=0.5, name="busy"),
]


class TestWorkload:
    def test_equal_seeds_give_equal_arrivals(self) -> None:
        assert arrivals(PHASES, seed=3) == arrivals(PHASES, seed=3)
        assert arrivals(PHASES, seed=3) != arrivals(PHASES, seed=4)

    def test_a_phase_does_not_depend_on_those_before_it(self) -> None:
        other = [Phase(seconds=20, rate=1), PHASES[1]]
        busy = [each for each in arrivals(PHASES, seed=3) if each.phase == "busy"]
        assert [each for each in arrivals(other, seed=3) if each.phase == "busy"] == busy

    def test_arrivals_are_poisson_within_their_phase(self) -> None:
        drawn = arrivals(PHASES, seed=1)
        good = [each.at for each in drawn if each.phase == "good"]
        busy = [each.at for each in drawn if each.phase == "busy"]
        assert len(good) == pytest.approx(100, abs=40)
        assert len(busy) == pytest.approx(200, abs=60)
        assert 0 <= min(good) <= max(good) < 20 <= min(busy) <= max(busy) < 30
        assert span(PHASES) == 30

    def test_lengths_vary_as_asked(self) -> None:
        tokens = [each.max_tokens for each in arrivals(PHASES, seed=1) if each.phase == "busy"]
        assert 50 <= min(tokens) < 70
        assert 130 < max(tokens) <= 150

    @given(tokens=st.integers(1, 200), kind=st.sampled_from(["repetitive", "random"]))
    def test_a_word_is_a_token_of_the_simulator(self, tokens: int, kind: str) -> None:
        import random

        prompt = build_prompt(kind, tokens=tokens, rng=random.Random(1))
        assert -(-len(prompt) // 4) == tokens

    def test_kinds_are_what_their_names_say(self) -> None:
        import random

        rng = random.Random(1)
        assert repetitiveness(build_prompt("repetitive", tokens=48, rng=rng)) > 0.8
        assert repetitiveness(build_prompt("random", tokens=48, rng=rng)) < 0.1
        assert build_prompt("accept:0.75", tokens=3, rng=rng).startswith("[accept=0.75] ")

    def test_a_phase_in_words(self) -> None:
        phase = parse_phase("seconds=60, rate=2.5, kind=accept:0.8, output_tokens=32", number=4)
        assert phase == Phase(
            seconds=60, rate=2.5, kind="accept:0.8", output_tokens=32, name="phase-4"
        )

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("seconds=60", "lacks rate"),
            ("seconds=x,rate=1", "seconds"),
            ("seconds=0,rate=1", "seconds"),
            ("seconds=1,rate=-1", "rate"),
            ("seconds=1,rate=1,colour=red", "colour"),
            ("seconds=1,rate=1,kind=nice", "kind"),
            ("seconds=1,rate=1,kind=accept:2", "kind"),
            ("seconds=1,rate=1,output_tokens=0", "output_tokens"),
            ("seconds=1,rate=1,spread=1", "spread"),
        ],
    )
    def test_a_wrong_phase_is_refused_by_name(self, text: str, says: str) -> None:
        with pytest.raises(ValueError, match=says):
            parse_phase(text)

    def test_a_trace(self, tmp_path: Path) -> None:
        path = tmp_path / "trace.csv"
        path.write_text("at,kind,prompt_tokens,output_tokens\n2.5,random,8,5\n0.5,,,\n")
        early, late = read_trace(path, seed=1)
        assert (early.at, early.kind, early.max_tokens) == (0.5, "repetitive", 64)
        assert (late.at, late.kind, late.max_tokens) == (2.5, "random", 5)

    def test_a_wrong_trace_names_its_line(self, tmp_path: Path) -> None:
        path = tmp_path / "trace.csv"
        path.write_text("at\n1\nsoon\n")
        with pytest.raises(ValueError, match="line 3"):
            read_trace(path, seed=1)


def record(at: float, end: float, **more: Any) -> Record:
    phase = more.pop("phase", "a")
    arrival = Arrival(at=at, phase=phase, kind="random", prompt="x", max_tokens=10)
    return Record(arrival, end=end, **({"tokens": 10} | more))


class TestReport:
    def test_goodput_counts_what_met_the_objective_over_the_span(self) -> None:
        records = [record(0, 1), record(1, 5), record(2, 3, error="HTTP 500", tokens=0)]
        summary = summarise(records, objective=Objective(e2e=2), span=10)
        assert (summary.requests, summary.served, summary.met) == (3, 2, 1)
        assert summary.goodput == 1.0
        assert summary.throughput == 2.0
        assert summary.errors == {"HTTP 500": 1}
        assert (summary.latency_p50, summary.latency_p99) == (1, 4)

    @pytest.mark.parametrize(
        ("objective", "seen", "met"),
        [
            (Objective(), record(0, 99), True),
            (Objective(e2e=2), record(0, 2), True),
            (Objective(e2e=2), record(0, 2.1), False),
            (Objective(e2e=2), record(0, 1, error="aborted"), False),
            (Objective(tpot=0.1), record(0, 1.0, first_token=0.1), True),
            (Objective(tpot=0.1), record(0, 1.1), False),
            (Objective(ttft=0.2), record(0, 1.0, first_token=0.1), True),
            (Objective(ttft=0.2), record(0, 1.0), False),
            (Objective(e2e=2, ttft=0.05), record(0, 1.0, first_token=0.1), False),
        ],
    )
    def test_objectives(self, objective: Objective, seen: Record, met: bool) -> None:
        assert objective.met(seen) is met

    def test_phases_are_told_apart(self) -> None:
        records = [record(0, 1), record(5, 6, phase="b"), record(6, 9, phase="b")]
        parts = by_phase(records, objective=Objective(), spans={"a": 5, "b": 5, "c": 5})
        assert {name: part.requests for name, part in parts.items()} == {"a": 1, "b": 2, "c": 0}

    def test_quantiles_by_nearest_rank(self) -> None:
        values = [float(number) for number in range(1, 101)]
        assert [quantile(values, q) for q in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
        assert quantile([], 0.5) is None


def burst(count: int, *, every: float = 0.0, max_tokens: int = 8) -> list[Arrival]:
    return [
        Arrival(
            at=number * every, phase="a", kind="random", prompt="[accept=0.8] x",
            max_tokens=max_tokens,
        )
        for number in range(count)
    ]  # fmt: skip


def serve(
    schedule: list[Arrival],
    *,
    replicas: int,
    options: ClientOptions | None = None,
    meanwhile: Callable[[SimFleet], Any] | None = None,
    words: tuple[str, ...] = FAST,
) -> tuple[list[Record], list[str]]:
    """Send a schedule to a fleet; return the records and the URLs of the replicas at the start."""

    async def go() -> tuple[list[Record], list[str]]:
        async with SimFleet() as fleet:
            for _ in range(replicas):
                await fleet.add(["serve", "m", *words])
            urls = fleet.urls()
            side = asyncio.ensure_future(meanwhile(fleet)) if meanwhile is not None else None
            records = await send(schedule, endpoints=fleet.urls, options=options)
            if side is not None:
                await side
            return records, urls

    return asyncio.run(asyncio.wait_for(go(), timeout=60))


QUICK = ClientOptions(probe_seconds=0.05, wait_for_replica=20)


class TestClient:
    @pytest.mark.parametrize("stream", [False, True])
    def test_everything_is_served_and_timed(self, stream: bool) -> None:
        records, _ = serve(burst(6, every=0.02), replicas=1, options=ClientOptions(stream=stream))
        assert [each.arrival.at for each in records] == [i * 0.02 for i in range(6)]
        assert all(each.ok and each.tokens == 8 and each.status == 200 for each in records)
        for each in records:
            assert (each.first_token is not None) is stream
            assert each.arrival.at < (each.first_token or each.end) <= each.end

    def test_the_load_is_spread_over_the_replicas(self) -> None:
        records, urls = serve(burst(12), replicas=3)
        served = [each.endpoint for each in records]
        assert {served.count(url) for url in urls} == {4}

    def test_a_refused_connection_is_tried_elsewhere(self) -> None:
        """A replica that passed its probe and is gone when the request comes."""

        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/health":
                return httpx.Response(200)
            if request.url.host == "gone":
                raise httpx.ConnectError("refused")
            choice = {"finish_reason": "length"}
            return httpx.Response(
                200, json={"choices": [choice], "usage": {"completion_tokens": 8}}
            )

        records = asyncio.run(
            send(
                burst(4),
                endpoints=lambda: ["http://gone:1", "http://stays:1"],
                transport=httpx.MockTransport(answer),
            )
        )
        assert [each.endpoint for each in records] == ["http://stays:1"] * 4
        assert all(each.ok for each in records)

    def test_any_other_failure_is_not_tried_again(self) -> None:
        posts: list[str] = []

        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/health":
                return httpx.Response(200)
            posts.append(request.url.host)
            raise httpx.ReadError("cut off")

        [seen] = asyncio.run(
            send(
                burst(1),
                endpoints=lambda: ["http://a:1", "http://b:1"],
                transport=httpx.MockTransport(answer),
            )
        )
        assert len(posts) == 1
        assert seen.error == "ReadError"

    def test_what_was_in_flight_on_a_dying_replica_is_lost_not_sent_again(self) -> None:
        async def kill(fleet: SimFleet) -> None:
            [server] = fleet.servers
            await until(lambda: server.replica.outstanding == 3, what="requests in flight")
            server.kill()

        records, _ = serve(
            burst(3, max_tokens=3000),
            replicas=1,
            options=QUICK,
            meanwhile=kill,
            words=("--sim-profile", "demo"),
        )
        assert [each.ok for each in records] == [False] * 3
        assert all(each.endpoint is not None for each in records)

    def test_requests_wait_for_the_first_replica(self) -> None:
        async def come(fleet: SimFleet) -> None:
            await asyncio.sleep(0.3)
            await fleet.add(["serve", "m", *FAST])

        records, _ = serve(burst(3), replicas=0, options=QUICK, meanwhile=come)
        assert all(each.ok for each in records)
        assert all(each.latency > 0.3 for each in records), "the wait is part of the latency"

    def test_without_a_replica_a_request_fails(self) -> None:
        records, _ = serve(burst(1), replicas=0, options=ClientOptions(wait_for_replica=0.1))
        assert records[0].error == "no replica"

    def test_a_request_refused_by_a_drain_is_a_failure(self) -> None:
        async def go() -> list[Record]:
            async with SimFleet() as fleet:
                server = await fleet.add(["serve", "m", *FAST])
                server.replica.draining = True
                return await send(burst(1), endpoints=fleet.urls)

        [seen] = asyncio.run(go())
        assert (seen.status, seen.error) == (500, "HTTP 500")

    def test_an_error_status_is_a_failure(self) -> None:
        records, _ = serve(burst(1, max_tokens=9000), replicas=1)
        assert (records[0].status, records[0].error) == (400, "HTTP 400")

    def test_a_closed_loop_keeps_so_many_in_flight(self) -> None:
        busy, most = 0, 0
        seen: list[Record] = []
        asked = iter(burst(10))

        async def answer(request: httpx.Request) -> httpx.Response:
            nonlocal busy, most
            if request.url.path == "/health":
                return httpx.Response(200)
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0.01)
            busy -= 1
            choice = {"finish_reason": "length"}
            return httpx.Response(
                200, json={"choices": [choice], "usage": {"completion_tokens": 8}}
            )

        asyncio.run(
            circulate(
                lambda: next(asked, None),
                clients=3,
                endpoints=lambda: ["http://a:1"],
                on_record=seen.append,
                transport=httpx.MockTransport(answer),
            )
        )
        assert most == 3
        assert len(seen) == 10
        assert all(record.ok and record.latency > 0 for record in seen)
        assert seen[-1].arrival.at > seen[0].arrival.at, "sent when the last one had ended"

    def test_a_request_may_state_its_temperature(self) -> None:
        bodies: list[dict[str, Any]] = []

        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/health":
                return httpx.Response(200)
            bodies.append(json.loads(request.content))
            return httpx.Response(500)

        schedule = [
            replace(each, temperature=t) for each, t in zip(burst(2), (0.0, None), strict=True)
        ]
        asyncio.run(
            send(
                schedule,
                endpoints=lambda: ["http://a:1"],
                options=ClientOptions(sampling={"temperature": 0.7}),
                transport=httpx.MockTransport(answer),
            )
        )
        assert [body["temperature"] for body in bodies] == [0.0, 0.7]

    def test_endpoints_come_from_a_file_that_is_read_anew(self, tmp_path: Path) -> None:
        path = tmp_path / "endpoints"
        read = endpoints_of_file(path)
        assert list(read()) == []
        path.write_text("http://a:1\n# not this\n\nhttp://b:2\n")
        assert list(read()) == ["http://a:1", "http://b:2"]


class TestCommandLine:
    def test_json_report(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        from threading import Event, Thread

        path, done, ready = tmp_path / "endpoints", Event(), Event()

        async def fleet_until_done() -> None:
            async with SimFleet() as fleet:
                await fleet.add(["serve", "m", *FAST])
                path.write_text("\n".join(fleet.urls()))
                ready.set()
                await until(done.is_set, what="the load to end")

        thread = Thread(target=lambda: asyncio.run(fleet_until_done()))
        thread.start()
        try:
            assert ready.wait(20)
            code = main(
                ["--endpoints-file", str(path), "--phase", "seconds=0.5,rate=20,name=p",
                 "--e2e", "60", "--json", "--stream"]
            )  # fmt: skip
        finally:
            done.set()
            thread.join(20)
        report = json.loads(capsys.readouterr().out)
        assert code == 0
        assert report["phases"]["p"]["met"] == report["total"]["served"] > 0

    def test_a_wrong_phase_is_a_usage_error(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as end:
            main(["--endpoint", "http://127.0.0.1:1", "--phase", "seconds=1"])
        assert end.value.code == 2
        assert "lacks rate" in capsys.readouterr().err
