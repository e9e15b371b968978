"""What proves to a Prometheus who asks, and what keeps that out of every message.

A server may echo a request in its error, and a message ends up in a status, a log and an alert. So
the one place that puts secrets into a request also knows them all when words come back.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, urlsplit

import requests

from specpilot.telemetry.promserver import (
    PrometheusServer,
    read_header,
    read_password,
    read_token,
)

_LONGEST_WORDS = 300
_SHORTEST_SECRET = 4
"""A tenant named "1" is no secret, and hiding it would garble every number."""


class Credentials(requests.auth.AuthBase):
    """Puts the credentials of a server into each request; files are read each time.

    Args:
        server: The server they are for.
        proxies: URLs of proxies, which may hold a password.

    Raises:
        ServerError: When called, a file that was fine at the start cannot be read any more.
    """

    def __init__(self, server: PrometheusServer, *, proxies: Iterable[str] = ()) -> None:
        self._server = server
        fixed = [*server.headers.values()]
        if server.user_and_password:
            fixed += [_basic(*server.user_and_password), server.user_and_password[1]]
        fixed += [urlsplit(proxy).password or "" for proxy in proxies]
        self._fixed = frozenset(fixed)
        self._newest: frozenset[str] = frozenset()

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Complete a request."""
        server = self._server
        secrets: set[str] = set()
        for name, path in server.header_files.items():
            value = read_header(name, path)
            request.headers[name] = value
            secrets.add(value)
        if server.bearer_token_file:
            token = read_token(server.bearer_token_file)
            request.headers["Authorization"] = f"Bearer {token}"
            secrets.add(token)
        elif server.password_file:
            password = read_password(server.password_file)
            basic = _basic(server.username, password)
            request.headers["Authorization"] = f"Basic {basic}"
            secrets |= {password, basic}
        elif server.user_and_password:
            request.headers["Authorization"] = f"Basic {_basic(*server.user_and_password)}"
        self._newest = frozenset(secrets)
        return request

    def described(self) -> str:
        """What was sent, in words that tell none of it."""
        server = self._server
        sent: list[str] = []
        if server.bearer_token_file:
            sent.append(f"the bearer token of {server.bearer_token_file}")
        elif server.password_file:
            sent.append(f"user {server.username!r} with the password of {server.password_file}")
        elif server.user_and_password:
            sent.append("user and password of the URL")
        if server.cert_file:
            sent.append(f"the client certificate {server.cert_file}")
        sent += [f"header {name}" for name in server.headers]
        sent += [f"header {name} of {path}" for name, path in server.header_files.items()]
        return ", ".join(sent) or "no credentials"

    def hide(self, words: str) -> str:
        """The words without secrets, on one line, at a readable length."""
        secrets = {form for secret in self._fixed | self._newest for form in _forms(secret)}
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                words = words.replace(secret, "***")
        words = " ".join(words.split())
        return words if len(words) <= _LONGEST_WORDS else words[:_LONGEST_WORDS] + "..."


def _basic(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def _forms(secret: str) -> Iterator[str]:
    """A secret as a server could write it back."""
    yield secret
    yield secret.rpartition(" ")[2]  # without the scheme of `Authorization: Bearer ...`
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield json.dumps(secret)[1:-1]
