"""Sends one alert over HTTP and says what came of it; knows nothing of the outbox."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus

import httpx

from specpilot import __version__
from specpilot.alerts.addresses import AddressRefusedError, Resolve, allowed_addresses
from specpilot.alerts.backoff import read_retry_after
from specpilot.alerts.channels import Channel, ChannelKind
from specpilot.alerts.messages import slack_body
from specpilot.alerts.signing import signature_headers
from specpilot.domain.settings import canonical_json

TIMEOUT_S = 5.0
"""Limit for each of: connecting, sending, waiting for the answer; and for reading the answer."""

ANSWER_BYTES = 1024
"""How much of an answer is kept for the delivery log."""

_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one attempt.

    Attributes:
        status: HTTP status, None when there was no answer.
        answer: Beginning of the answer's body.
        error: What went wrong in words, "" when the alert was taken.
        final: Trying again would not help.
        reached: The receiver answered; if not, others for the same receiver need not be tried now.
        retry_after: How long the receiver wants to be left alone.
        latency_s: Seconds the attempt took.
    """

    status: int | None = None
    answer: str = ""
    error: str = ""
    final: bool = False
    reached: bool = False
    retry_after: timedelta | None = None
    latency_s: float = 0.0


def send(
    channel: Channel,
    *,
    message_id: str,
    payload: Mapping[str, object],
    attempt: int,
    at: datetime,
    client: httpx.Client,
    resolve: Resolve,
) -> Outcome:
    """Send an alert once. Never raises for what a network or a receiver does.

    Args:
        channel: Where to.
        message_id: Stable over all attempts.
        payload: As `specpilot.alerts.messages.compose` made it.
        attempt: From 0; a host with several addresses is tried at another one each time.
        at: Now.
        client: Sends requests; its settings for redirects and timeouts are not used.
        resolve: Finds a host's addresses.
    """
    began = time.monotonic()
    try:
        request = _request(
            channel,
            message_id=message_id,
            payload=payload,
            attempt=attempt,
            at=at,
            client=client,
            resolve=resolve,
        )
        response = client.send(request, stream=True, follow_redirects=False)
        try:
            answer = _beginning(response, until=time.monotonic() + TIMEOUT_S)
        finally:
            response.close()
    except AddressRefusedError as problem:
        return Outcome(error=str(problem), final=True, latency_s=time.monotonic() - began)
    except httpx.TimeoutException as problem:
        error = f"no answer within {TIMEOUT_S:g} s ({type(problem).__name__})"
        return Outcome(error=error, latency_s=time.monotonic() - began)
    except (httpx.HTTPError, OSError, UnicodeError) as problem:
        error = f"{type(problem).__name__}: {problem}"
        return Outcome(error=error, latency_s=time.monotonic() - began)
    return _judged(response, answer=answer, at=at, latency_s=time.monotonic() - began)


def _request(
    channel: Channel,
    *,
    message_id: str,
    payload: Mapping[str, object],
    attempt: int,
    at: datetime,
    client: httpx.Client,
    resolve: Resolve,
) -> httpx.Request:
    url = httpx.URL(channel.url)
    host = url.raw_host.decode("ascii")
    addresses = allowed_addresses(
        host,
        port=url.port or _PORTS[url.scheme],
        allow_private=channel.allow_private,
        resolve=resolve,
    )
    body = canonical_json(
        slack_body(payload) if channel.kind is ChannelKind.SLACK else payload
    ).encode()
    key = channel.signing_key if channel.kind is ChannelKind.WEBHOOK else b""
    headers = httpx.Headers(dict(channel.headers))
    headers.update(
        {
            "host": url.netloc.decode("ascii"),
            "user-agent": f"specpilot/{__version__}",
            "content-type": "application/json",
            "accept-encoding": "identity",
            # A kept connection belongs to an address; the next host there has another certificate.
            "connection": "close",
            **signature_headers(message_id=message_id, at=at, body=body, key=key),
        }
    )
    return client.build_request(
        "POST",
        url.copy_with(host=addresses[attempt % len(addresses)]),
        content=body,
        headers=headers,
        timeout=TIMEOUT_S,
        extensions={"sni_hostname": host},  # the certificate is the name's, not the address's
    )


def _beginning(response: httpx.Response, *, until: float) -> str:
    kept = b""
    try:
        for chunk in response.iter_raw(ANSWER_BYTES):
            kept += chunk
            if len(kept) >= ANSWER_BYTES or time.monotonic() > until:
                break
    except httpx.HTTPError:
        pass  # the status has been given, and that is what counts
    return kept[:ANSWER_BYTES].decode("utf-8", "replace")


def _judged(response: httpx.Response, *, answer: str, at: datetime, latency_s: float) -> Outcome:
    status = response.status_code
    if response.is_success:
        return Outcome(status=status, answer=answer, reached=True, latency_s=latency_s)
    error, final = f"status {status}", False
    if response.is_redirect:
        error, final = f"status {status}: redirects are not followed; give the final URL", True
    elif response.is_client_error and status not in _AGAIN:
        final = True
    return Outcome(
        status=status,
        answer=answer,
        error=error,
        final=final,
        reached=True,
        retry_after=read_retry_after(response.headers.get("retry-after", ""), now=at),
        latency_s=latency_s,
    )
