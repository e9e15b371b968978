"""Probes and lifecycle handlers: HTTP, TCP and a command, each once or over time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

JsonObject = dict[str, Any]

_OK = range(200, 400)


class Executor(Protocol):
    """Runs a command inside a container; the answer is its exit code and output."""

    async def __call__(self, command: list[str]) -> tuple[int, str]: ...


@dataclass(frozen=True, slots=True)
class Handler:
    """How to reach one container: by its pod's address or by a command inside."""

    container: JsonObject
    ip: str
    http: httpx.AsyncClient
    execute: Executor

    async def fire(self, action: JsonObject, *, timeout: float) -> str | None:  # noqa: ASYNC109
        """Perform a probe's or hook's action; None is success, a text tells the failure.

        The timeout (seconds) is the API's ``timeoutSeconds``.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self._fire(action)
        except TimeoutError:
            return f"timed out after {timeout:g} s"

    async def _fire(self, action: JsonObject) -> str | None:
        if request := action.get("httpGet"):
            return await self._get(request)
        if target := action.get("tcpSocket"):
            return await self._connect(target)
        if command := action.get("exec"):
            code, output = await self.execute(list(command.get("command") or []))
            return None if code == 0 else f"command exited with {code}: {output[-500:]}"
        if pause := action.get("sleep"):
            await asyncio.sleep(float(pause["seconds"]))
            return None
        return f"unsupported action: {sorted(action)}"

    def _port(self, value: int | str) -> int:
        if isinstance(value, int):
            return value
        for port in self.container.get("ports") or []:
            if port.get("name") == value:
                return int(port["containerPort"])
        return int(value)

    async def _get(self, request: JsonObject) -> str | None:
        scheme = str(request.get("scheme", "HTTP")).lower()
        url = f"{scheme}://{request.get('host') or self.ip}:{self._port(request['port'])}"
        headers = {one["name"]: one["value"] for one in request.get("httpHeaders") or []}
        try:
            answer = await self.http.get(url + (request.get("path") or "/"), headers=headers)
        except httpx.HTTPError as error:
            return f"Get {url}: {str(error) or type(error).__name__}"
        if answer.status_code in _OK:
            return None
        return f"HTTP probe failed with statuscode: {answer.status_code}"

    async def _connect(self, target: JsonObject) -> str | None:
        try:
            _, writer = await asyncio.open_connection(
                target.get("host") or self.ip, self._port(target["port"])
            )
        except OSError as error:
            return str(error)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return None


async def observe(
    probe: JsonObject,
    *,
    handler: Handler,
    on_change: Callable[[bool, str], Awaitable[None]],
    initially: bool | None,
) -> None:
    """Probe for ever; report a change once its threshold is reached.

    ``on_change`` gets whether the probe holds, and the last failure. It is called for each change
    from ``initially`` (None: the first result counts as one).
    """
    known, successes, failures = initially, 0, 0
    await asyncio.sleep(float(probe.get("initialDelaySeconds") or 0))
    while True:
        failure = await handler.fire(probe, timeout=float(probe.get("timeoutSeconds") or 1))
        successes, failures = (successes + 1, 0) if failure is None else (0, failures + 1)
        holds = known
        if successes >= int(probe.get("successThreshold") or 1):
            holds = True
        elif failures >= int(probe.get("failureThreshold") or 3):
            holds = False
        if holds is not None and holds != known:
            known = holds
            await on_change(holds, failure or "")
        await asyncio.sleep(float(probe.get("periodSeconds") or 10))
