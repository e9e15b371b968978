"""AlertChannel: where alerts go, with its secrets elsewhere."""

from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import StringConstraints, field_validator, model_validator

from specpilot.resources.base import ObjectName, Strict


class ChannelType(StrEnum):
    """Kinds of channels."""

    WEBHOOK = "webhook"
    SLACK = "slack"


class SecretKeyRef(Strict):
    """A key of a Secret in the channel's namespace."""

    name: ObjectName
    key: Annotated[str, StringConstraints(min_length=1, max_length=253)]


class SecretSource(Strict):
    """Where a secret value is read from: exactly one of the three."""

    secret_key_ref: SecretKeyRef | None = None
    env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=253)] | (
        None
    ) = None
    file: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [s for s in (self.secret_key_ref, self.env, self.file) if s is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of secretKeyRef, env and file")
        return self


class AlertChannelSpec(Strict):
    """The spec of an AlertChannel.

    Attributes:
        type: `webhook` signs by Standard Webhooks; `slack` is an incoming webhook.
        url: The address, when it holds no secret.
        url_from: Where the address is read from.
        secret_from: Where the signing secret of a webhook is read from.
        allow_private: Allow addresses in private networks, which are refused otherwise.
    """

    type: ChannelType
    url: Annotated[str, StringConstraints(max_length=2048)] | None = None
    url_from: SecretSource | None = None
    secret_from: SecretSource | None = None
    allow_private: bool = False

    @field_validator("url")
    @classmethod
    def _http(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("write an address that starts with https:// or http://")
        return url

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.url is None) == (self.url_from is None):
            raise ValueError("give exactly one of url and urlFrom")
        if self.type is ChannelType.SLACK and self.secret_from is not None:
            raise ValueError("slack does not sign; remove secretFrom")
        return self
