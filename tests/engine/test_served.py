"""A running server answers alike: the API that loads it and the metrics that the product reads.

One server speculates up to eight requests at a time and not above, so that it shows both what
speculation does to the metrics and what a schedule does; the other does not speculate.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.engine import install
from tests.engine import series_table
from tests.engine.argument_table import scheduled
from tests.engine.metrics import Family, scrape
from tests.engine.servers import CONTEXT, MODEL_NAME, Server, Subject, deadline, started

pytestmark = pytest.mark.timeout(1200)

DEPTH = 4
QUIET, BUSY = 8, 16
REPETITIVE = "ba be bi bo bu da " * 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The two servers, and what each exported before its first request."""

    speculating: Server
    plain: Server
    at_start: dict[Server, dict[str, Family]]


@pytest.fixture(scope="module")
def pair(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    schedule = shlex.split(scheduled([1, QUIET, DEPTH], [QUIET + 1, 64, 0]))
    with started(subject, schedule, [], folder=tmp_path_factory.mktemp("served")) as servers:
        speculating, plain = (server.ready() for server in servers)
        at_start = {server: scrape(server) for server in servers}
        yield Pair(speculating=speculating, plain=plain, at_start=at_start)


@pytest.fixture(params=["speculating", "plain"])
def server(request: pytest.FixtureRequest, pair: Pair) -> Server:
    found: Server = getattr(pair, request.param)
    return found


def completion(**fields: Any) -> dict[str, Any]:
    defaults = {"prompt": REPETITIVE, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    return {"model": MODEL_NAME} | defaults | fields


def chat(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": REPETITIVE}]
    body = completion(messages=messages, **fields)
    del body["prompt"]
    return body


def events(server: Server, path: str, body: dict[str, Any]) -> list[Any]:
    """Return the data of a stream of server-sent events; the last is the text ``[DONE]``."""
    with server.client.stream("POST", path, json=body | {"stream": True}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines), lines
    words = [line.removeprefix("data: ") for line in lines]
    assert words[-1] == "[DONE]"
    return [json.loads(word) for word in words[:-1]]


class TestApi:
    @pytest.mark.parametrize("path", ["/health", "/ping"])
    def test_health_has_no_body(self, server: Server, path: str) -> None:
        answer = server.client.get(path)
        assert (answer.status_code, answer.content) == (200, b"")

    def test_version(self, server: Server) -> None:
        assert server.client.get("/version").json() == {"version": install.VERSION}

    def test_models(self, server: Server) -> None:
        answer = server.client.get("/v1/models").json()
        assert answer["object"] == "list"
        (model,) = answer["data"]
        assert (model["id"], model["max_model_len"]) == (MODEL_NAME, CONTEXT)
        assert (model["object"], model["owned_by"]) == ("model", "vllm")

    def test_completion(self, server: Server) -> None:
        answer = server.client.post("/v1/completions", json=completion()).json()
        assert answer["object"] == "text_completion"
        assert answer["id"].startswith("cmpl-")
        assert answer["model"] == MODEL_NAME
        (choice,) = answer["choices"]
        assert (choice["index"], choice["finish_reason"]) == (0, "length")
        assert choice["text"]
        usage = answer["usage"]
        assert usage["completion_tokens"] == 24
        assert usage["total_tokens"] == usage["prompt_tokens"] + 24

    def test_several_prompts_and_choices_share_one_usage(self, server: Server) -> None:
        body = completion(prompt=[REPETITIVE, "bo"], max_tokens=5)
        answer = server.client.post("/v1/completions", json=body).json()
        assert [choice["index"] for choice in answer["choices"]] == [0, 1]
        assert answer["usage"]["completion_tokens"] == 10

    def test_defaults(self, server: Server) -> None:
        body = {"prompt": REPETITIVE, "ignore_eos": True}
        answer = server.client.post("/v1/completions", json=body).json()
        assert (answer["model"], answer["usage"]["completion_tokens"]) == (MODEL_NAME, 16)

    def test_completion_stream(self, server: Server) -> None:
        options = {"stream_options": {"include_usage": True}}
        *chunks, last = events(server, "/v1/completions", completion(**options))
        assert {chunk["object"] for chunk in chunks} == {"text_completion"}
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [
            *[None] * (len(chunks) - 1),
            "length",
        ]
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == 24

    def test_a_stream_has_no_usage_unless_asked(self, server: Server) -> None:
        chunks = events(server, "/v1/completions", completion())
        assert not [chunk for chunk in chunks if chunk.get("usage")]
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"

    def test_chat(self, server: Server) -> None:
        answer = server.client.post("/v1/chat/completions", json=chat()).json()
        assert answer["object"] == "chat.completion"
        assert answer["id"].startswith("chatcmpl-")
        (choice,) = answer["choices"]
        assert choice["finish_reason"] == "length"
        assert choice["message"]["role"] == "assistant"
        assert choice["message"]["content"]
        assert answer["usage"]["completion_tokens"] == 24

    def test_chat_stream(self, server: Server) -> None:
        first, *chunks = events(server, "/v1/chat/completions", chat())
        assert first["object"] == "chat.completion.chunk"
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"

    @pytest.mark.parametrize(
        ("body", "status", "says"),
        [
            pytest.param(completion(model="other"), 404, "`other` does not exist", id="model"),
            pytest.param(completion(prompt=""), 400, "prompt", id="no prompt"),
            pytest.param(completion(max_tokens=0), 400, "at least 1, got 0", id="nothing asked"),
            pytest.param(
                completion(max_tokens=CONTEXT + 1), 400, "max_model_len=2048", id="too much asked"
            ),
        ],
    )
    def test_refusal(self, server: Server, body: dict[str, Any], status: int, says: str) -> None:
        answer = server.client.post("/v1/completions", json=body)
        assert answer.status_code == status
        error = answer.json()["error"]
        assert error["code"] == status
        assert says in error["message"]

    def test_unknown_paths_and_methods(self, server: Server) -> None:
        assert server.client.get("/nowhere").status_code == 404
        assert server.client.get("/server_info").status_code == 404, "needs the developer mode"
        assert server.client.get("/v1/completions").status_code == 405

    def test_speculation_refuses_what_it_cannot_sample(self, pair: Pair) -> None:
        body = completion(logit_bias={"5": 1})
        assert pair.plain.client.post("/v1/completions", json=body).status_code == 200
        answer = pair.speculating.client.post("/v1/completions", json=body)
        assert answer.status_code == 400
        assert "not yet supported with speculative decoding" in answer.json()["error"]["message"]


class TestSeries:
    @pytest.mark.parametrize("row", series_table.ROWS, ids=lambda row: row.name)
    def test_series(self, row: series_table.Row, pair: Pair) -> None:
        for server, families in pair.at_start.items():
            if row.speculating_only and server is pair.plain:
                assert row.name not in families, row.reason
            else:
                check_shape(row, families[row.name])
                assert families[row.name].total() == 0, "nothing has happened yet"

    def test_no_other_series(self, subject: Subject, server: Server, pair: Pair) -> None:
        families = pair.at_start[server]
        others = {row.name: row for row in series_table.OTHERS}
        known = {row.name for row in series_table.ROWS} | series_table.OTHER_SHAPES
        found = {name for name in families if name.startswith("vllm:")} - known
        assert found <= others.keys()
        assert subject.name == "simulator" or found == others.keys()
        for name in found:
            check_shape(others[name], families[name])

    def test_every_position_is_there_from_the_start(self, pair: Pair) -> None:
        family = pair.at_start[pair.speculating][series_table.SPECULATION[-1].name]
        positions = family.label_values("position")
        assert positions == {str(position) for position in range(DEPTH)}

    def test_every_way_to_finish_is_there_from_the_start(self, server: Server, pair: Pair) -> None:
        family = pair.at_start[server]["vllm:request_success"]
        reasons = family.label_values("finished_reason")
        assert reasons == series_table.FINISHED_REASONS

    def test_model_and_engine(self, server: Server, pair: Pair) -> None:
        family = pair.at_start[server]["vllm:num_requests_running"]
        ((_, labels),) = family.values
        assert labels == {("model_name", MODEL_NAME), ("engine", "0")}


def check_shape(row: series_table.Row, family: Family) -> None:
    assert family.kind == row.kind
    assert family.labels == {"model_name", "engine"} | row.labels
    bounds = tuple(float(bound) for bound in family.buckets)
    assert bounds == ((*row.buckets, float("inf")) if row.buckets else ())


class TestCounting:
    def test_identities(self, server: Server, pair: Pair) -> None:
        before = scrape(server)
        usages = load(server, requests=6, at_once=3)
        after = at_rest(server, finished=before["vllm:request_success"].total() + 6)

        def gained(family: str, suffix: str = "", **labels: str) -> float:
            old, new = before[f"vllm:{family}"], after[f"vllm:{family}"]
            return new.total(suffix, **labels) - old.total(suffix, **labels)

        generated = sum(usage["completion_tokens"] for usage in usages)
        prompts = sum(usage["prompt_tokens"] for usage in usages)
        assert gained("generation_tokens") == generated
        assert gained("request_generation_tokens", "_sum") == generated
        assert gained("prompt_tokens") == prompts
        assert gained("request_prompt_tokens", "_sum") == prompts
        assert gained("request_success", finished_reason="length") == 6
        for histogram in (
            "request_time_per_output_token_seconds",
            "time_to_first_token_seconds",
            "e2e_request_latency_seconds",
            "request_queue_time_seconds",
        ):
            assert gained(histogram, "_count") == 6
            assert gained(histogram, "_sum") > 0

        outputs = gained("inter_token_latency_seconds", "_count")
        if server is pair.plain:
            assert outputs == generated - 6, "one for each token after the first"
            return
        drafts = gained("spec_decode_num_drafts")
        drafted = gained("spec_decode_num_draft_tokens")
        accepted = gained("spec_decode_num_accepted_tokens")
        by_position = [
            gained("spec_decode_num_accepted_tokens_per_pos", position=str(position))
            for position in range(DEPTH)
        ]
        assert 0 < drafts <= drafted <= drafts * DEPTH
        assert 0 < accepted <= drafted, "loops are what n-gram drafts catch"
        assert sum(by_position) == accepted
        assert by_position == sorted(by_position, reverse=True)
        assert outputs < generated - 6, "several tokens come in one output: no judge of speculation"

    def test_gauges_follow_the_load(self, server: Server) -> None:
        with ThreadPoolExecutor(1) as pool:
            loaded = pool.submit(load, server, requests=4, at_once=4, tokens=1000)
            for _ in deadline(30, server.describe):
                families = scrape(server)
                if families["vllm:num_requests_running"].total() == 4:
                    break
            assert 0 < families["vllm:kv_cache_usage_perc"].total() <= 1
            assert families["vllm:num_requests_waiting"].total() == 0
            assert len(loaded.result()) == 4

    def test_gauges_return_to_rest(self, server: Server) -> None:
        before = scrape(server)
        load(server, requests=1, at_once=1)
        families = at_rest(server, finished=before["vllm:request_success"].total() + 1)
        for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
            assert families[f"vllm:{gauge}"].total() == 0

    def test_a_schedule_freezes_the_counters_while_busy(self, pair: Pair) -> None:
        def share(at_once: int) -> float:
            before = scrape(pair.speculating)
            # So long that all of them run together, however late a busy machine sends the last.
            usages = load(pair.speculating, requests=at_once, at_once=at_once, tokens=1000)
            after = scrape(pair.speculating)
            name = "vllm:spec_decode_num_drafts"
            generated = sum(usage["completion_tokens"] for usage in usages)
            return (after[name].total() - before[name].total()) / generated

        quiet, busy = share(2), share(BUSY)
        assert busy < quiet / 2, "above its bound the schedule drafts nothing"


def test_gauges_of_several_api_servers_are_there_from_the_first_request_on(
    subject: Subject, tmp_path: Path
) -> None:
    gauges = [f"vllm:num_requests_{what}" for what in ("running", "waiting")]
    gauges.append("vllm:kv_cache_usage_perc")
    with started(subject, ["--api-server-count", "2"], folder=tmp_path) as servers:
        server = servers[0].ready()
        # Before it they are mostly missing, in some starts of the real engine there.
        assert scrape(server)["vllm:generation_tokens"].total() == 0
        for finished in (2, 4):
            load(server, requests=2, at_once=2)
            at_rest(server, finished=finished)
            families = scrape(server)
            assert [families[name].total() for name in gauges] == [0.0] * 3, "idle, not missing"


def at_rest(server: Server, *, finished: float) -> dict[str, Family]:
    """Return the families once that many requests have been counted.

    A client may have its answer a moment before the step that completed it is accounted for.
    """
    for _ in deadline(10, server.describe):
        families = scrape(server)
        if families["vllm:request_success"].total() >= finished:
            return families
    raise AssertionError  # the deadline raises


def load(server: Server, *, requests: int, at_once: int, tokens: int = 64) -> list[dict[str, int]]:
    """Send equal requests and return their usages."""

    def one(_: int) -> dict[str, int]:
        answer = server.client.post("/v1/completions", json=completion(max_tokens=tokens))
        answer.raise_for_status()
        usage: dict[str, int] = answer.json()["usage"]
        return usage

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, range(requests)))
