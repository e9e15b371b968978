"""HTTP to a Prometheus: the client library's session, made to end in time and to stay in place.

Three things a `requests.Session` does not do by itself: end an exchange at a deadline however the
bytes come, keep credentials from other hosts, and connect anew when a client certificate rotates.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import requests
import urllib3
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import Retry

from specpilot.telemetry.promcredentials import Credentials
from specpilot.telemetry.promserver import PrometheusServer

_LONGEST_URL = 4000
"""Bytes of an encoded query that every proxy and server takes in a URL."""
_CONNECT_S = 3.0
"""Longest wait for a connection to one address of the host."""


class Client(PrometheusConnect):
    """The library's client, asked through its session.

    Its `custom_query` reads an answer to the end whatever its size, sends a POST's parameters in
    the URL, and knows no limit in time, so only its session and URL are used.
    """

    def __init__(
        self, server: PrometheusServer, *, credentials: Credentials, proxies: Mapping[str, str]
    ) -> None:
        session = _Session()
        session.trust_env = False  # no credentials from ~/.netrc, and no authority from elsewhere
        session.proxies.update(proxies)
        session.verify = str(server.ca_file) if server.ca_file else server.verify
        if server.cert_file and server.key_file:
            session.cert = (str(server.cert_file), str(server.key_file))
        session.headers.update(server.headers)
        session.headers.update({"Accept": "application/json", "Accept-Encoding": "gzip"})
        session.auth = credentials
        super().__init__(url=server.base_url, session=session, retry=Retry(total=0))
        self._adapter = _Adapter(max_retries=Retry(total=0, read=False))
        session.mount(self.url, self._adapter)

    @contextlib.contextmanager
    def open(
        self, what: str, params: Mapping[str, str], *, timeout_s: float
    ) -> Iterator[requests.Response]:
        """Send a query (`query` or `query_range`); the body is still to be read."""
        # A short query is a GET: where RBAC guards a Prometheus, a POST counts as creating.
        long = len(urlencode(params)) > _LONGEST_URL
        response = self._session.request(
            "POST" if long else "GET",
            f"{self.url}/api/v1/{what}",
            params=None if long else params,
            data=params if long else None,
            timeout=(min(_CONNECT_S, timeout_s), timeout_s),
            stream=True,
        )
        with contextlib.closing(response):
            yield response

    def drop_connections(self) -> None:
        """Close what is open; the next query connects anew."""
        self._adapter.close()


class _Session(requests.Session):
    """Follows no redirect: headers and the client certificate would go along."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Name none."""
        del resp


_watching: ContextVar["Watch | None"] = ContextVar("_watching", default=None)


class Watch:
    """Ends an exchange at its deadline, from another thread.

    A timeout of requests bounds the wait for the next byte; a server that sends one now and then
    would be listened to for ever.
    """

    def __init__(self, seconds: float) -> None:
        self.fired = False
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._fire)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._before = _watching.set(self)
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._socket = None
        self._timer.cancel()
        _watching.reset(self._before)

    def guard(self, connected: socket.socket) -> None:
        """Watch over the socket that the answer comes from."""
        with self._lock:
            self._socket = connected
            if self.fired:
                _shut(connected)

    def _fire(self) -> None:
        with self._lock:
            self.fired = True
            if self._socket is not None:
                _shut(self._socket)


def _shut(connected: socket.socket) -> None:
    """Wake the reader with an end of file."""
    with contextlib.suppress(OSError):
        # The plain socket's: that of a TLS socket takes its state away from under the reader.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


def _guard(connection: HTTPConnection) -> None:
    watch = _watching.get()
    if watch is not None and connection.sock is not None:
        watch.guard(connection.sock)


class _WatchedHTTP(HTTPConnection):
    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as in urllib3
        _guard(self)
        return super().getresponse()


class _WatchedHTTPS(HTTPSConnection):
    def send(self, data: Any) -> None:
        """Send; a server that has hung up is still listened to: it may have said why.

        With TLS 1.3 a client learns only after its handshake that its certificate is not accepted.
        """
        try:
            super().send(data)
        except ssl.SSLEOFError as error:
            raise BrokenPipeError(error.errno, error.strerror) from error

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as in urllib3
        _guard(self)
        return super().getresponse()


class _HTTPPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _WatchedHTTP


class _HTTPSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _WatchedHTTPS


class _Adapter(HTTPAdapter):
    """Makes connections that a `Watch` can end."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}

    def proxy_manager_for(self, proxy: str, **options: Any) -> urllib3.ProxyManager:
        manager: urllib3.ProxyManager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
        return manager
