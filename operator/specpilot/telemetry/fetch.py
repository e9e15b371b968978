"""Metrics pages of many addresses at once: bounded in number, time and size, and never raising.

Every page opens a new connection: the engine closes idle ones after 5 s, which is a usual sampling
interval, and a request sent into a closing connection would look like a dead replica.
"""

import asyncio
import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import httpx

from specpilot.domain.ports import Clock

_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}
"""Compressing the page would cost the engine's event loop more than the network gains."""


class FetchError(Exception):
    """An address did not give its page; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """One page.

    Attributes:
        at: When it was asked for, seconds since the epoch.
        body: The page; empty when there is an error.
        error: Why there is none, "" when there is.
    """

    at: float
    body: bytes = b""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetcher:
    """How pages are fetched.

    Attributes:
        clock: Dates the pages.
        timeout_s: Longest time for one page, from connecting to the last byte.
        concurrency: Pages at a time.
        max_bytes: Largest page; a bigger one is refused.
        verify: For addresses with HTTPS.
    """

    clock: Clock
    timeout_s: float
    concurrency: int
    max_bytes: int
    verify: bool | ssl.SSLContext

    def all(self, urls: Collection[str], *, stopped: Callable[[], bool]) -> dict[str, Fetched]:
        """Every page by its address; see `each`."""
        found: dict[str, Fetched] = {}
        self.each({url: url for url in urls}, found.__setitem__, stopped=stopped)
        return found

    def each(
        self,
        urls: Mapping[str, str],
        take: Callable[[str, Fetched], None],
        *,
        stopped: Callable[[], bool],
    ) -> None:
        """Hand every page over as it comes, so that they are not all held at once.

        Must not be called from a running event loop.

        Args:
            urls: Addresses by a key of the caller's.
            take: Called with a key and its page.
            stopped: Once it is true, no further page is begun.
        """
        asyncio.run(self._each(urls, take, stopped))

    async def _each(
        self,
        urls: Mapping[str, str],
        take: Callable[[str, Fetched], None],
        stopped: Callable[[], bool],
    ) -> None:
        limits = httpx.Limits(max_connections=self.concurrency, max_keepalive_connections=0)
        room = asyncio.Semaphore(self.concurrency)
        async with httpx.AsyncClient(
            verify=self.verify,
            limits=limits,
            timeout=self.timeout_s,
            headers=_HEADERS,
            trust_env=False,
        ) as client:

            async def one(key: str, url: str) -> None:
                async with room:
                    if not stopped():
                        take(key, await self._one(client, url))

            await asyncio.gather(*(one(key, url) for key, url in urls.items()))

    async def _one(self, client: httpx.AsyncClient, url: str) -> Fetched:
        at = self.clock.now().timestamp()
        try:
            async with asyncio.timeout(self.timeout_s):
                return Fetched(at=at, body=await self._body(client, url))
        except TimeoutError:
            error = f"no answer within {self.timeout_s:g} s"
        except (FetchError, httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as failure:
            error = str(failure) or type(failure).__name__
        return Fetched(at=at, error=f"cannot scrape {address(url)}: {error}")

    async def _body(self, client: httpx.AsyncClient, url: str) -> bytes:
        body = bytearray()
        async with client.stream("GET", url) as response:
            if response.status_code != httpx.codes.OK:
                raise FetchError(f"answers HTTP {response.status_code}")
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self.max_bytes:
                    raise FetchError(f"its page is larger than {self.max_bytes} bytes")
        return bytes(body)


def address(url: str) -> str:
    """An address without anything secret in it."""
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        return "an address that is no URL"
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.host}{port}{parts.path}"


def page_url(url: str) -> str:
    """The URL of an exporter's page.

    Raises:
        ValueError: It is no URL.
    """
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"GPU exporter address {address(url)!r}: no URL: {error}") from error
    if parts.scheme not in {"http", "https"} or not parts.host:
        raise ValueError(
            f"GPU exporter address {address(url)!r}: give it as http://host:port, with a path "
            "where that is not /metrics"
        )
    return str(parts.copy_with(path="/metrics")) if parts.path in {"", "/"} else url
