"""The kubelet's view of the API server: the few requests it makes, and a watch that never ends."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tests.cluster.kubelet.options import KubeletOptions

JsonObject = dict[str, Any]

_log = logging.getLogger(__name__)
_WATCH_SECONDS = 240


class Client:
    """Requests to the API server.

    Errors of the transport and unexpected answers come as :class:`httpx.HTTPError`; callers are
    level-triggered and try again.
    """

    def __init__(self, options: KubeletOptions) -> None:
        self._http = httpx.AsyncClient(
            base_url=options.server,
            headers={"Authorization": f"Bearer {options.token}", "User-Agent": "test-kubelet"},
            verify=ssl.create_default_context(cafile=str(options.ca_file)),
            timeout=httpx.Timeout(10.0),
            limits=httpx.Limits(max_connections=64),
            trust_env=False,
        )

    async def get(self, path: str) -> JsonObject | None:
        """The object at ``path``; None where there is none."""
        answer = await self._http.get(path)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        return _checked(answer)

    async def post(self, path: str, body: JsonObject) -> JsonObject:
        return _checked(await self._http.post(path, json=body))

    async def patch_status(self, path: str, body: JsonObject) -> JsonObject | None:
        """Strategic merge patch of the status; None where the object is gone or another one."""
        answer = await self._http.patch(
            f"{path}/status",
            content=json.dumps(body),
            headers={"Content-Type": "application/strategic-merge-patch+json"},
        )
        if answer.status_code in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
            return None
        return _checked(answer)

    async def delete_now(self, path: str, *, uid: str) -> None:
        """Remove the object with this UID at once; one that is gone already is no error."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": uid},
        }
        answer = await self._http.request("DELETE", path, json=options)
        if answer.status_code not in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
            _checked(answer)

    async def observe(
        self, path: str, *, selector: str = ""
    ) -> AsyncIterator[list[JsonObject] | JsonObject]:
        """The objects at ``path``: a list of all at first and after each loss, then watch events.

        Never ends. A lost connection, an expired resource version or an API server that is away
        leads to a new list, which is the level that the caller acts on.
        """
        query = {"fieldSelector": selector} if selector else {}
        while True:
            try:
                answer = _checked(await self._http.get(path, params=query))
                yield answer["items"]
                version = answer["metadata"]["resourceVersion"]
                async for event in self._watch(path, query=query, version=version):
                    yield event
            except (httpx.HTTPError, json.JSONDecodeError) as error:
                _log.info("watch of %s: %s: %s", path, type(error).__name__, error)
                await asyncio.sleep(random.uniform(0.1, 0.4))

    async def _watch(
        self, path: str, *, query: dict[str, str], version: str
    ) -> AsyncIterator[JsonObject]:
        parameters = {
            **query,
            "watch": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_SECONDS),
            "allowWatchBookmarks": "true",
        }
        timeout = httpx.Timeout(10.0, read=_WATCH_SECONDS + 10.0)
        async with self._http.stream("GET", path, params=parameters, timeout=timeout) as answer:
            if answer.is_error:
                await answer.aread()
            _checked_status(answer)
            async for line in answer.aiter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    _log.info("watch of %s: %s", path, event["object"].get("message"))
                    return
                if event["type"] != "BOOKMARK":
                    yield event

    async def close(self) -> None:
        await self._http.aclose()


def _checked_status(answer: httpx.Response) -> None:
    if answer.is_error:
        raise httpx.HTTPStatusError(
            f"{answer.request.method} {answer.request.url.path}: "
            f"{answer.status_code} {answer.text[:500]}",
            request=answer.request,
            response=answer,
        )


def _checked(answer: httpx.Response) -> JsonObject:
    _checked_status(answer)
    result: JsonObject = answer.json()
    return result
