"""Where alerts go. A channel is checked when it is made, so that a wrong one is found at once."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import httpx

SECRET_PREFIX = "whsec_"  # noqa: S105 - the published prefix of such secrets, not one of them


class ChannelKind(StrEnum):
    """How a channel wants to be told."""

    WEBHOOK = "webhook"
    SLACK = "slack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A channel. What is or may be secret is not in its `repr`: a Slack URL is a password.

    Attributes:
        name: What policies call it.
        kind: Its kind.
        url: Where to POST to, http or https.
        secret: Signs webhooks by Standard Webhooks: `whsec_` and base64, or any text taken as it
            is; "" sends them unsigned.
        allow_private: Whether the URL may lead to a private or loopback address. Link-local and
            metadata addresses are refused in any case.
        headers: Further request headers, such as Authorization.

    Raises:
        ValueError: URL, headers or secret cannot be used; the message says how to write them.
    """

    name: str
    kind: ChannelKind
    url: str = field(repr=False)
    secret: str = field(default="", repr=False)
    allow_private: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL:
            raise ValueError(f"channel {self.name}: url is not a URL") from None
        if url.scheme not in {"http", "https"} or not url.host:
            raise ValueError(
                f"channel {self.name}: url must be http://host/... or https://host/..., "
                f"not {url.scheme or 'nothing'}:..."
            )
        for name, value in self.headers.items():
            if not (name + value).isascii() or not (name + value).isprintable():
                raise ValueError(
                    f"channel {self.name}: header {name!r} must be printable ASCII on one line"
                )
        _ = self.signing_key

    @property
    def signing_key(self) -> bytes:
        """The key of the signature; empty for none."""
        if not self.secret.startswith(SECRET_PREFIX):
            return self.secret.encode()
        try:
            key = base64.b64decode(self.secret.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error:
            key = b""
        if not key:
            raise ValueError(
                f"channel {self.name}: after {SECRET_PREFIX} the secret must be base64; "
                f"make one with: echo {SECRET_PREFIX}$(openssl rand -base64 32)"
            )
        return key
