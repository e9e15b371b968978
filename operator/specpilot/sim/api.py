"""The HTTP surface of ``vllm serve``, as far as a client, a prober or a scraper can tell."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from specpilot.sim.exposition import CONTENT_TYPE
from specpilot.sim.faults import Faults
from specpilot.sim.launch import Generation
from specpilot.sim.replica import Replica, Ticket
from specpilot.sim.requests import count_tokens

_CHAT_TOKENS: Final = 128
"""Length of a chat answer whose length the client left to the model."""

_COMPLETION_TOKENS: Final = 16
"""vLLM's default ``max_tokens`` of ``/v1/completions``."""

_WORD: Final = " tok"


class _BadRequest(Exception):  # noqa: N818 -- named after the status
    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


@dataclass(frozen=True, slots=True)
class _Call:
    """A generation call, checked."""

    chat: bool
    prompt: str
    prompt_tokens: int
    max_tokens: int
    natural_stop: bool
    stream: bool
    include_usage: bool


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
    return Starlette(routes=routes)


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
        except _BadRequest as refusal:
            return _error(refusal.message, status=refusal.status)
        except (TypeError, ValueError) as error:
            return _error(str(error), status=400)
        return await state(request)

    return [Route("/sim/state", state), Route("/sim/fault", fault, methods=["POST"])]


async def _generate(http: HttpRequest, replica: Replica, *, chat: bool) -> Response:
    await replica.until_answering()
    try:
        call = _read_call(await _body(http), replica=replica, chat=chat)
    except _BadRequest as refusal:
        return _error(refusal.message, status=refusal.status)
    ticket = replica.submit(
        prompt=call.prompt,
        prompt_tokens=call.prompt_tokens,
        max_tokens=call.max_tokens,
        natural_stop=call.natural_stop,
        streaming=call.stream,
    )
    if call.stream:
        return StreamingResponse(
            _events(call, ticket, replica), media_type="text/event-stream; charset=utf-8"
        )
    await _unless_gone(http, ticket)
    replica.abort(ticket)  # does nothing unless the client went away first
    return JSONResponse(_answer(call, ticket, model=replica.config.model_name))


async def _body(http: HttpRequest) -> dict[str, Any]:
    try:
        body = await http.json()
    except (ValueError, RecursionError):
        raise _BadRequest("the body is not JSON") from None
    if not isinstance(body, dict):
        raise _BadRequest("the body is not a JSON object")
    return body


async def _unless_gone(http: HttpRequest, ticket: Ticket) -> None:
    """Wait for the request to end or its client to disconnect, whichever is first."""
    # After the body, the next message can only be the disconnection.
    gone: Coroutine[Any, Any, Any] = http.receive()  # type: ignore[assignment] # an async def
    listener = asyncio.ensure_future(gone)
    try:
        await asyncio.wait({ticket.done, listener}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        listener.cancel()


def _read_call(body: dict[str, Any], *, replica: Replica, chat: bool) -> _Call:
    config = replica.config
    model = body.get("model")
    names = config.served_model_names or (config.model,)
    if model is not None and model not in names:
        raise _BadRequest(f"The model `{model}` does not exist.", status=404)
    if config.speculation is not None and config.generation is Generation.V1:
        min_p = body.get("min_p")
        if (isinstance(min_p, int | float) and min_p > 0) or body.get("logit_bias"):
            raise _BadRequest(
                "The min_p and logit_bias sampling parameters are not yet supported with "
                "speculative decoding."
            )
    text, tokens = _prompt(body, chat=chat)
    room = config.max_model_len - tokens
    asked = body.get("max_completion_tokens") if chat else None
    asked = body.get("max_tokens") if asked is None else asked
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int) or asked < 1):
        raise _BadRequest(f"max_tokens must be at least 1, got {asked!r}.")
    if room < (asked or 1):
        raise _BadRequest(
            f"This model's maximum context length is {config.max_model_len} tokens. However, you "
            f"requested {tokens + (asked or 1)} tokens ({tokens} in the messages, {asked or 1} in "
            "the completion). Please reduce the length of the messages or completion."
        )
    default = _CHAT_TOKENS if chat else _COMPLETION_TOKENS
    options = body.get("stream_options")
    return _Call(
        chat=chat,
        prompt=text,
        prompt_tokens=tokens,
        max_tokens=asked or min(default, room),
        natural_stop=chat and asked is None,
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _prompt(body: dict[str, Any], *, chat: bool) -> tuple[str, int]:
    """Return the text that drafts are judged by, and the length in tokens."""
    if not chat:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and prompt and all(isinstance(each, int) for each in prompt):
            return "", len(prompt)
        if isinstance(prompt, list) and len(prompt) == 1:
            prompt = prompt[0]
        if not isinstance(prompt, str) or not prompt:
            raise _BadRequest("prompt: write one text, or one list of token ids")
        return prompt, count_tokens(prompt)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _BadRequest("messages: write a list of at least one message")
    parts: list[str] = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            parts.append(content)
        elif isinstance(content, list):
            parts += [str(part.get("text", "")) for part in content if isinstance(part, dict)]
    text = "\n".join(parts)
    return text, count_tokens(text)


def _usage(call: _Call, generated: int) -> dict[str, int]:
    return {
        "prompt_tokens": call.prompt_tokens,
        "total_tokens": call.prompt_tokens + generated,
        "completion_tokens": generated,
    }


def _answer(call: _Call, ticket: Ticket, *, model: str) -> dict[str, Any]:
    generated = ticket.request.generated
    reason = ticket.done.result()
    text = _WORD * generated
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
    if call.chat:
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    return {
        "id": f"{'chatcmpl' if call.chat else 'cmpl'}-{uuid.uuid4().hex}",
        "object": "chat.completion" if call.chat else "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": _usage(call, generated),
    }


async def _events(call: _Call, ticket: Ticket, replica: Replica) -> AsyncIterator[str]:
    """Write server-sent events: one for each step in which the request gained tokens."""
    head = {
        "id": f"{'chatcmpl' if call.chat else 'cmpl'}-{uuid.uuid4().hex}",
        "object": "chat.completion.chunk" if call.chat else "text_completion",
        "created": int(time.time()),
        "model": replica.config.model_name,
    }
    # The envelope is the same for all events of a stream; only the text changes.
    opening = f"data: {json.dumps(head)[:-1]}, "
    field = '"delta": {"content": ' if call.chat else '"text": '
    closing = "}" if call.chat else ""

    def event(text: str, reason: str | None) -> str:
        return (
            f'{opening}"choices": [{{"index": 0, {field}{json.dumps(text)}{closing}, '
            f'"logprobs": null, "finish_reason": {json.dumps(reason)}}}]}}\n\n'
        )

    try:
        async for tokens in ticket.chunks():
            yield event(_WORD * tokens, None)
        yield event("", ticket.done.result())
        if call.include_usage:
            usage = json.dumps(_usage(call, ticket.request.generated))
            yield f'{opening}"choices": [], "usage": {usage}}}\n\n'
        yield "data: [DONE]\n\n"
    finally:
        replica.abort(ticket)


def _error(message: str, *, status: int) -> JSONResponse:
    kind = "NotFoundError" if status == 404 else "BadRequestError"  # noqa: PLR2004 -- HTTP
    body = {"message": message, "type": kind, "param": None, "code": status}
    return JSONResponse({"error": body}, status_code=status)
