"""Alert channels of resources, with their secrets fetched from where they really are."""

import os
from collections.abc import Callable
from pathlib import Path

from specpilot.alerts import Channel, ChannelKind
from specpilot.resources import AlertChannelSpec
from specpilot.resources.alert_channel import SecretKeyRef, SecretSource


class SecretError(ValueError):
    """A secret that is not there; names where it was looked for, never what was found."""


def no_secrets(ref: SecretKeyRef) -> str:
    """Refuse references to Kubernetes Secrets where there is no cluster.

    Raises:
        SecretError: Always.
    """
    raise SecretError(f"secretKeyRef {ref.name}: there is no cluster here; use env or file")


def channel(
    spec: AlertChannelSpec, *, name: str, secret: Callable[[SecretKeyRef], str] = no_secrets
) -> Channel:
    """Make a channel.

    Raises:
        SecretError: A value it refers to is not there.
        ValueError: The address or the secret cannot be used.
    """
    url = spec.url if spec.url is not None else _fetch(spec.url_from, secret, "urlFrom")
    return Channel(
        name=name,
        kind=ChannelKind(str(spec.type)),
        url=url,
        secret=_fetch(spec.secret_from, secret, "secretFrom") if spec.secret_from else "",
        allow_private=spec.allow_private,
    )


def _fetch(source: SecretSource | None, secret: Callable[[SecretKeyRef], str], field: str) -> str:
    assert source is not None, "checked when the resource was read"
    if source.secret_key_ref is not None:
        return secret(source.secret_key_ref).strip()
    if source.env is not None:
        value = os.environ.get(source.env)
        if not value:
            raise SecretError(f"{field}.env: the variable {source.env} is not set")
        return value.strip()
    assert source.file is not None
    try:
        return Path(source.file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SecretError(f"{field}.file: {source.file}: {error.strerror}") from error
