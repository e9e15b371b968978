"""A replica over HTTP: what a client, a prober and a scraper see from start to end."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from specpilot.sim.fleet import SimFleet
from specpilot.sim.server import KILLED, SimServer
from specpilot.telemetry.exposition import parse
from tests.unit.sim.support import NGRAM, until, value

FAST = ("--sim-profile", "demo", "--sim-time-scale", "0.1")


def in_fleet(test: Callable[[SimFleet, httpx.AsyncClient], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a fleet and a client; neither outlives it."""

    async def main() -> None:
        async with SimFleet() as fleet, httpx.AsyncClient(trust_env=False, timeout=20) as http:
            await test(fleet, http)

    asyncio.run(asyncio.wait_for(main(), timeout=60))


async def complete(http: httpx.AsyncClient, server: SimServer, **body: Any) -> httpx.Response:
    body = {"prompt": "[accept=0.8] hello", "max_tokens": 8, **body}
    return await http.post(f"{server.url}/v1/completions", json=body)


async def refuses(http: httpx.AsyncClient, server: SimServer) -> bool:
    # A new client, so that no connection is left over from before.
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=2) as fresh:
            await fresh.get(f"{server.url}/health")
    except httpx.ConnectError:
        return True
    return False


def test_the_plain_routes() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "org/m", "--served-model-name", "tiny", *FAST])
        health = await http.get(f"{server.url}/health")
        assert (health.status_code, health.content) == (200, b"")
        assert (await http.post(f"{server.url}/ping")).status_code == 200
        assert (await http.get(f"{server.url}/version")).json() == {"version": "0.32.0"}
        [card] = (await http.get(f"{server.url}/v1/models")).json()["data"]
        assert (card["id"], card["root"]) == ("tiny", "org/m")
        metrics = await http.get(f"{server.url}/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert value(metrics.text, "vllm:num_requests_running", model_name="tiny") == 0
        for path in ("/server_info", "/sim/state"):
            assert (await http.get(f"{server.url}{path}")).status_code == 404, "not by default"

    in_fleet(test)


def test_a_completion_and_a_chat() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", *FAST])
        answer = (await complete(http, server, model="m", max_tokens=5)).json()
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 5
        chat = await http.post(
            f"{server.url}/v1/chat/completions",
            json={"messages": [{"role": "user", "content": "hi"}]},
        )
        assert chat.json()["choices"][0]["finish_reason"] == "stop", "it ends by itself"
        metrics = (await http.get(f"{server.url}/metrics")).text
        assert value(metrics, "vllm:request_success_total", finished_reason="length") == 1
        assert value(metrics, "vllm:request_success_total", finished_reason="stop") == 1
        assert value(metrics, "vllm:generation_tokens_total") == 5 + 128

    in_fleet(test)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_streaming_sends_a_chunk_a_step(path: str) -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", "--speculative-config", NGRAM, *FAST])
        text = "[accept=1][match=1] x"
        body = {
            "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 21,
            "prompt": text, "messages": [{"role": "user", "content": text}],
        }  # fmt: skip
        chunks: list[dict[str, Any]] = []
        async with http.stream("POST", f"{server.url}{path}", json=body) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = [line async for line in answer.aiter_lines() if line]
        assert lines[-1] == "data: [DONE]"
        chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
        texts = [
            choice.get("text", choice.get("delta", {}).get("content"))
            for chunk in chunks
            for choice in chunk["choices"]
        ]
        role = [0] if "chat" in path else []
        assert [each.count("tok") for each in texts] == [*role, 1, 5, 5, 5, 5]
        reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]]
        assert reasons == [*[None] * (len(texts) - 1), "length"]
        assert chunks[-1]["usage"]["completion_tokens"] == 21

    in_fleet(test)


@pytest.mark.parametrize("stream", [False, True])
def test_every_prompt_has_its_choices(stream: bool) -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", *FAST])
        asked = {"prompt": ["a b c", [1, 2, 3]], "n": 2, "max_tokens": 3, "stream": stream}
        options = {"stream_options": {"include_usage": True}} if stream else {}
        answer = await complete(http, server, **asked, **options)
        if stream:
            lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
            events = [json.loads(line.removeprefix("data: ")) for line in lines]
        else:
            events = [answer.json()]
        said: dict[int, str] = {}
        for choice in (choice for event in events for choice in event["choices"]):
            said[choice["index"]] = said.get(choice["index"], "") + choice["text"]
        assert said == dict.fromkeys(range(4), " tok tok tok")
        usage = events[-1]["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (2 + 3, 12)

    in_fleet(test)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"min_p": 0.1}, 400, "min_p and logit_bias"),
        ({"logit_bias": {"5": 1}}, 400, "min_p and logit_bias"),
        ({"model": "other"}, 404, "does not exist"),
        ({"prompt": ""}, 400, "prompt"),
        ({"prompt": ["a", ""]}, 400, "prompt"),
        ({"prompt": []}, 400, "prompt"),
        ({"n": 0}, 400, "n must be at least 1"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": 9000}, 400, "max_tokens=9000 cannot be greater than max_model_len=4096"),
        ({"max_tokens": 4096}, 400, "maximum context length"),
    ],
)
def test_refused_requests(body: dict[str, Any], status: int, says: str) -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", "--speculative-config", NGRAM, *FAST])
        answer = await complete(http, server, **body)
        assert answer.status_code == status
        assert says in answer.json()["error"]["message"]

    in_fleet(test)


def test_calls_are_counted_by_how_they_were_answered() -> None:
    """As vLLM's server counts them: not its probes, and refused ones apart."""

    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", "--speculative-config", NGRAM, *FAST])
        assert "http_requests" not in (await http.get(f"{server.url}/metrics")).text
        assert (await complete(http, server)).status_code == 200
        assert (await complete(http, server, min_p=0.1)).status_code == 400
        await http.get(f"{server.url}/v1/models")
        await http.get(f"{server.url}/health")
        text = (await http.get(f"{server.url}/metrics")).text
        lines = [x for x in text.splitlines() if x.startswith("http_requests_total")]
        call = 'handler="/v1/completions",method="POST"'
        assert lines == [
            f'http_requests_total{{{call},status="2xx"}} 1.0',
            f'http_requests_total{{{call},status="4xx"}} 1.0',
            'http_requests_total{handler="/v1/models",method="GET",status="2xx"} 1.0',
        ]
        assert parse(text.encode()).values["http_requests_failed", ""] == 1.0

    in_fleet(test)


def test_what_speculation_forbids_is_allowed_without_it() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", *FAST])
        assert (await complete(http, server, min_p=0.1)).status_code == 200

    in_fleet(test)


def test_a_body_that_is_not_json() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", *FAST])
        answer = await http.post(f"{server.url}/v1/completions", content=b"{")
        assert answer.status_code == 400

    in_fleet(test)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_place(stream: bool) -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", "--sim-profile", "demo"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(
                complete(http, server, max_tokens=3000, stream=stream), timeout=0.3
            )

        def gone() -> bool:
            return server.replica.outstanding == 0

        await until(gone, what="the request to be aborted")
        metrics = (await http.get(f"{server.url}/metrics")).text
        assert value(metrics, "vllm:request_success_total", finished_reason="abort") == 1
        assert value(metrics, "vllm:num_requests_running") == 0

    in_fleet(test)


def test_a_start_takes_its_time_and_refuses_connections_meanwhile() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        begun = time.monotonic()
        starting = asyncio.create_task(
            fleet.add(["serve", "m", "--sim-startup-seconds", "0.4", *FAST])
        )

        def bound() -> bool:
            return bool(fleet.servers)

        await until(bound, what="the port to be bound")
        assert await refuses(http, fleet.servers[0])
        server = await starting
        assert time.monotonic() - begun >= 0.4
        assert (await http.get(f"{server.url}/health")).status_code == 200

    in_fleet(test)


def test_sigterm_by_default_leaves_what_is_in_flight_hanging_until_its_client_goes() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", "--sim-profile", "demo"])
        flight = asyncio.create_task(complete(http, server, max_tokens=2000))

        def running() -> bool:
            return server.replica.outstanding == 1

        await until(running, what="the request to run")
        leaving = asyncio.create_task(server.terminate())

        def closed() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", server.port)) != 0

        await until(closed, what="the port to refuse")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(flight), timeout=0.3)
        assert server.exit_code is None
        flight.cancel()
        await asyncio.wait_for(leaving, timeout=10)
        assert server.exit_code == 0

    in_fleet(test)


def test_sigterm_cuts_what_is_in_flight_when_asked_to() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", "--sim-abort-on-term", "--sim-profile", "demo"])
        flight = asyncio.create_task(complete(http, server, max_tokens=2000))

        def running() -> bool:
            return server.replica.outstanding == 1

        await until(running, what="the request to run")
        assert await fleet.remove(server) == 0
        with pytest.raises(httpx.TransportError):
            await flight
        assert await refuses(http, server)

    in_fleet(test)


def test_a_drain_finishes_what_is_in_flight_and_refuses_what_is_new() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", "--shutdown-timeout", "30", *FAST])
        flight = asyncio.create_task(complete(http, server, max_tokens=150))

        def running() -> bool:
            return server.replica.outstanding == 1

        await until(running, what="the request to run")
        leaving = asyncio.create_task(server.terminate())

        def draining() -> bool:
            return server.replica.draining

        await until(draining, what="the drain to begin")
        assert (await http.get(f"{server.url}/health")).status_code == 200
        assert "vllm:" in (await http.get(f"{server.url}/metrics")).text
        late = await complete(http, server)
        assert late.status_code == 500
        assert late.json()["error"]["message"] == "cannot schedule new futures after shutdown"
        answer = (await flight).json()
        assert answer["usage"]["completion_tokens"] == 150
        await leaving
        assert server.exit_code == 0
        assert await refuses(http, server)

    in_fleet(test)


def test_a_drain_ends_with_its_timeout() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", "--shutdown-timeout", "1", "--sim-profile", "demo"])
        flight = asyncio.create_task(complete(http, server, max_tokens=3000))

        def running() -> bool:
            return server.replica.outstanding == 1

        await until(running, what="the request to run")
        begun = time.monotonic()
        await server.terminate()
        assert 0.9 < time.monotonic() - begun < 10
        with pytest.raises(httpx.TransportError):
            await flight

    in_fleet(test)


def test_hanging_on_term_refuses_new_and_leaves_old_connections_hanging() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(
            ["serve", "m", "--sim-hang-on-term", "60", "--sim-profile", "demo"]
        )
        flight = asyncio.create_task(complete(http, server, max_tokens=3000))

        def running() -> bool:
            return server.replica.outstanding == 1

        await until(running, what="the request to run")
        leaving = asyncio.create_task(server.terminate())

        def closed() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", server.port)) != 0

        await until(closed, what="the port to refuse")
        assert not flight.done()
        assert server.exit_code is None
        server.kill()
        await leaving
        assert server.exit_code == KILLED
        with pytest.raises(httpx.TransportError):
            await flight

    in_fleet(test)


def test_a_crash_at_start() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", "--sim-crash-at-start", "9", *FAST])
        assert server.exit_code == 9
        assert await refuses(http, server)
        assert fleet.urls() == []

    in_fleet(test)


def test_a_crash_later() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", "--sim-crash-after", "0.1", *FAST])
        assert await server.wait() == 1
        assert await refuses(http, server)

    in_fleet(test)


def test_faults_at_run_time() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", "--sim-control", *FAST])

        async def fault(**changes: Any) -> httpx.Response:
            return await http.post(f"{server.url}/sim/fault", json=changes)

        assert (await fault(slow=3)).json()["faults"]["slow"] == 3.0
        assert (await fault(typo=3)).status_code == 400

        await fault(hang="engine")
        flight = asyncio.create_task(complete(http, server))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(flight), timeout=0.3)
        assert (await http.get(f"{server.url}/health")).status_code == 200, "HTTP does not know"
        await fault(hang="no")
        assert (await flight).status_code == 200

        await fault(hang="http")
        with pytest.raises(httpx.TimeoutException):
            await http.get(f"{server.url}/health", timeout=0.3)
        await fault(hang="no")
        assert (await http.get(f"{server.url}/health")).status_code == 200

        await fault(crash=3)
        assert await server.wait() == 3

    in_fleet(test)


def test_server_info_shows_the_effective_config_in_developer_mode() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(
            ["serve", "m", "--speculative-config", NGRAM, *FAST],
            environment={"VLLM_SERVER_DEV_MODE": "1"},
        )
        info = (await http.get(f"{server.url}/server_info?config_format=json")).json()
        assert info["vllm_config"]["speculative_config"]["num_speculative_tokens"] == 4

    in_fleet(test)


def test_many_replicas_on_addresses_of_their_own() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        first = await fleet.add(["serve", "m", *FAST], host="127.0.0.2")
        others = [
            await fleet.add(["serve", "m", *FAST], host=f"127.0.0.{last}", port=first.port)
            for last in range(3, 13)
        ]
        answers = await asyncio.gather(*(complete(http, each) for each in others))
        assert {answer.status_code for answer in answers} == {200}
        with pytest.raises(OSError, match="in use"):
            await fleet.add(["serve", "m", *FAST], host="127.0.0.2", port=first.port)

    in_fleet(test)


def test_data_parallel_engines_share_the_load() -> None:
    async def test(fleet: SimFleet, http: httpx.AsyncClient) -> None:
        server = await fleet.add(["serve", "m", "--data-parallel-size", "2", *FAST])
        await asyncio.gather(*(complete(http, server) for _ in range(4)))
        assert [core.stats.generation_tokens for core in server.replica.engines] == [16, 16]

    in_fleet(test)
