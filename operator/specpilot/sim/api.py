"""The HTTP surface of ``vllm serve``, as far as a client, a prober or a scraper can tell."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from specpilot.sim.calls import Call, Refusal, read_call
from specpilot.sim.exposition import CONTENT_TYPE
from specpilot.sim.faults import Faults
from specpilot.sim.httpcount import Counted
from specpilot.sim.replica import Flight, Replica

_WORD: Final = " tok"


_KINDS: Final = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}
"""vLLM's ``type`` of an error by status."""


def build_app(replica: Replica, *, on_crash: Callable[[int], None]) -> Starlette:
    """Build the application.

    Args:
        replica: the engines to serve.
        on_crash: called with an exit code when ``POST /sim/fault`` asks for a crash.
    """
    config = replica.config
    started = int(time.time())

    async def health(_: HttpRequest) -> Response:
        await replica.until_answering()
        return Response(status_code=200)

    async def version(_: HttpRequest) -> Response:
        await replica.until_answering()
        return JSONResponse({"version": str(config.version)})

    async def models(_: HttpRequest) -> Response:
        await replica.until_answering()
        names = config.served_model_names or (config.model,)
        cards = [
            {
                "id": name,
                "object": "model",
                "created": started,
                "owned_by": "vllm",
                "root": config.model,
                "parent": None,
                "max_model_len": config.max_model_len,
            }
            for name in names
        ]
        return JSONResponse({"object": "list", "data": cards})

    async def metrics(_: HttpRequest) -> Response:
        await replica.until_answering()
        return Response(replica.metrics(), media_type=CONTENT_TYPE)

    async def server_info(_: HttpRequest) -> Response:
        speculation = config.speculation
        shown = None if speculation is None else {**speculation.given, "method": speculation.method}
        return JSONResponse({"vllm_config": {"speculative_config": shown}})

    async def completions(request: HttpRequest) -> Response:
        return await _generate(request, replica, chat=False)

    async def chat(request: HttpRequest) -> Response:
        return await _generate(request, replica, chat=True)

    routes = [
        Route("/health", health),
        Route("/ping", health, methods=["GET", "POST"]),
        Route("/version", version),
        Route("/metrics", metrics),
        Route("/v1/models", models),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chat, methods=["POST"]),
    ]
    if config.developer_mode:
        routes.append(Route("/server_info", server_info))
    if config.sim.control:
        routes += _control_routes(replica, on_crash=on_crash)
    paths = frozenset(route.path for route in routes)
    counted = Middleware(Counted, count=replica.http, handlers=paths)
    return Starlette(routes=routes, middleware=[counted])


def _control_routes(replica: Replica, *, on_crash: Callable[[int], None]) -> list[Route]:
    """Build the routes by which a test or a demo breaks the replica."""

    async def state(_: HttpRequest) -> Response:
        faults = {name: getattr(replica.faults, name) for name in Faults.__slots__}
        return JSONResponse(
            {"outstanding": replica.outstanding, "draining": replica.draining, "faults": faults}
        )

    async def fault(request: HttpRequest) -> Response:
        try:
            body = await _body(request)
            crash = body.pop("crash", None)
            replica.change_faults(body)
            if crash is not None:
                on_crash(int(crash))
        except Refusal as refusal:
            return _error(refusal)
        except (TypeError, ValueError) as error:
            return _error(Refusal(str(error)))
        return await state(request)

    return [Route("/sim/state", state), Route("/sim/fault", fault, methods=["POST"])]


async def _generate(http: HttpRequest, replica: Replica, *, chat: bool) -> Response:
    await replica.until_answering()
    try:
        call = read_call(await _body(http), config=replica.config, chat=chat)
        flight = replica.submit(call)
    except Refusal as refusal:
        return _error(refusal)
    if call.stream:
        return StreamingResponse(
            _events(call, flight, replica), media_type="text/event-stream; charset=utf-8"
        )
    await _unless_gone(http, flight)
    replica.abort(flight)  # does nothing unless the client went away first
    return JSONResponse(_answer(call, flight, model=replica.config.model_name))


async def _body(http: HttpRequest) -> dict[str, Any]:
    try:
        body = await http.json()
    except (ValueError, RecursionError):
        raise Refusal("the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refusal("the body is not a JSON object")
    return body


async def _unless_gone(http: HttpRequest, flight: Flight) -> None:
    """Wait for the call to end or its client to disconnect, whichever is first."""
    # After the body, the next message can only be the disconnection.
    gone: Coroutine[Any, Any, Any] = http.receive()  # type: ignore[assignment] # an async def
    listener = asyncio.ensure_future(gone)
    try:
        await asyncio.wait({flight.ended, listener}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        listener.cancel()


def _head(call: Call, *, model: str, kind: str) -> dict[str, Any]:
    """Return what all answers to a call begin with."""
    return {
        "id": f"{'chatcmpl' if call.chat else 'cmpl'}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }


def _answer(call: Call, flight: Flight, *, model: str) -> dict[str, Any]:
    def choice(index: int) -> dict[str, Any]:
        text = _WORD * flight.requests[index].generated
        said: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text}} if call.chat else {"text": text}
        )
        return {
            "index": index,
            **said,
            "logprobs": None,
            "finish_reason": flight.reasons[index],
        }

    return {
        **_head(call, model=model, kind="chat.completion" if call.chat else "text_completion"),
        "choices": [choice(index) for index in range(len(flight.requests))],
        "usage": call.usage(flight.generated),
    }


async def _events(call: Call, flight: Flight, replica: Replica) -> AsyncIterator[str]:
    """Write server-sent events: one for each step in which a choice gained tokens."""
    head = _head(
        call,
        model=replica.config.model_name,
        kind="chat.completion.chunk" if call.chat else "text_completion",
    )
    # The envelope is the same for all events of a stream; only the text changes.
    opening = f"data: {json.dumps(head)[:-1]}, "

    def event(index: int, said: str, reason: str | None) -> str:
        return (
            f'{opening}"choices": [{{"index": {index}, {said}, '
            f'"logprobs": null, "finish_reason": {json.dumps(reason)}}}]}}\n\n'
        )

    try:
        if call.chat:
            for index in range(len(flight.requests)):
                yield event(index, '"delta": {"role": "assistant", "content": ""}', None)
        async for gain in flight.gains():
            text = f'"{_WORD * gain.tokens}"'
            said = f'"delta": {{"content": {text}}}' if call.chat else f'"text": {text}'
            yield event(gain.index, said, gain.reason)
        if call.include_usage:
            usage = json.dumps(call.usage(flight.generated))
            yield f'{opening}"choices": [], "usage": {usage}}}\n\n'
        yield "data: [DONE]\n\n"
    finally:
        replica.abort(flight)


def _error(refusal: Refusal) -> JSONResponse:
    body = {
        "message": refusal.message,
        "type": _KINDS[refusal.status],
        "param": refusal.param,
        "code": refusal.status,
    }
    return JSONResponse({"error": body}, status_code=refusal.status)
