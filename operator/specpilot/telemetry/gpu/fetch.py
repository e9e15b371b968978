"""Pages of many addresses at once: bounded in number, time and size, and never raising."""

import asyncio
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass

import httpx

from specpilot.domain.ports import Clock

_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}


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

    async def all(
        self, urls: Collection[str], *, stopped: Callable[[], bool]
    ) -> dict[str, Fetched]:
        """Every page by its address; those not begun when `stopped` becomes true are left out."""
        limits = httpx.Limits(max_connections=self.concurrency, max_keepalive_connections=0)
        room = asyncio.Semaphore(self.concurrency)
        async with httpx.AsyncClient(
            verify=self.verify,
            limits=limits,
            timeout=self.timeout_s,
            headers=_HEADERS,
            trust_env=False,
        ) as client:

            async def one(url: str) -> Fetched | None:
                async with room:
                    return None if stopped() else await self._one(client, url)

            pages = await asyncio.gather(*(one(url) for url in urls))
        return {url: page for url, page in zip(urls, pages, strict=True) if page is not None}

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
