"""Following one resource: list, then watch from there, and never believe a silent connection.

Each watch is a thread that ends up in one of two places: following a stream, or waiting to try
again. A cut stream is resumed from the last resource version (bookmarks keep it recent while
nothing happens); a version that the server no longer has (410) means listing again. The server is
asked to end each stream after a while, and a read that stays silent beyond that time is a dead
connection, whatever TCP thinks of it.
"""

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from specpilot.domain.ports import Clock
from specpilot.fleets.kubernetes.api import Api, ApiError, Stream, refusal_event
from specpilot.fleets.kubernetes.request import Object, Resource
from specpilot.fleets.kubernetes.request import watch as watch_request
from specpilot.fleets.kubernetes.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Times of a watch, in seconds.

    Attributes:
        server_timeout_s: After which the server ends a stream; varied by a fifth.
        grace_s: Silence beyond that which means the connection is dead.
        first_delay_s: Wait after a first failure; doubled with each further one.
        longest_delay_s: Upper limit of it. The actual wait is between half of it and all of it.
        chance: Source of chance, uniform in [0, 1).
    """

    server_timeout_s: float = 120.0
    grace_s: float = 15.0
    first_delay_s: float = 0.25
    longest_delay_s: float = 30.0
    chance: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchState:
    """How a watch is doing.

    Attributes:
        kind: What is watched.
        namespace: Where; "" means everywhere.
        synced: A whole list has been read.
        last_contact: When the server was last heard of, None when never.
        broken_since: Since when there has been no connection, None while there is one.
        error: Why, "" while there is one.
    """

    kind: str
    namespace: str
    synced: bool
    last_contact: datetime | None
    broken_since: datetime | None
    error: str


class Watch:
    """Keeps a store in step with one resource of the API server.

    Args:
        api: The API server.
        resource: What to watch.
        namespace: Where; "" means all namespaces.
        field_selector: Which objects there; "" means all of them.
        store: Kept up to date.
        keep: Turns an object into what the store keeps of it.
        notify: Called with each object that appeared, changed or went, from the watch's thread.
        clock: For `WatchState`.
        pace: Times.
    """

    def __init__(
        self,
        *,
        api: Api,
        resource: Resource,
        namespace: str,
        field_selector: str = "",
        store: Store,
        keep: Callable[[Object], Object],
        notify: Callable[[Resource, Object], None],
        clock: Clock,
        pace: Pace,
    ) -> None:
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._field_selector = field_selector
        self._store = store
        self._keep = keep
        self._notify = notify
        self._clock = clock
        self._pace = pace
        self._stopping = threading.Event()
        self._synced = threading.Event()
        self._stream: Stream | None = None
        self._version = ""
        self._failures = 0
        self._last_contact: datetime | None = None
        self._broken_since: datetime | None = clock.now()
        self._error = "not connected yet"
        where = namespace or "all"
        self._thread = threading.Thread(
            target=self._run, name=f"watch-{resource.plural}-{where}", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, *, timeout_s: float) -> None:
        """End, at once even in mid-read."""
        self._stopping.set()
        stream = self._stream
        if stream is not None:
            stream.close()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def wait_synced(self, timeout_s: float) -> bool:
        """Wait for the first whole list."""
        return self._synced.wait(timeout_s)

    @property
    def state(self) -> WatchState:
        """How it is doing."""
        return WatchState(
            kind=self._resource.kind,
            namespace=self._namespace,
            synced=self._synced.is_set(),
            last_contact=self._last_contact,
            broken_since=self._broken_since,
            error=self._error,
        )

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if not self._version:
                    self._list()
                heard = self._follow()
            except ApiError as error:
                if error.expired:
                    self._version = ""
                self._failed(str(error))
            except Exception as error:  # noqa: BLE001 - a dead thread would go unnoticed
                _log.exception("watch of %s failed; it is started anew", self._resource.plural)
                self._version = ""
                self._failed(repr(error))
            else:
                if heard:
                    continue
                # Ended before anything was heard: as good as a refusal, and no reason to spin.
                self._failed("the server ended the watch at once")

    def _list(self) -> None:
        objs, version = self._api.all(
            self._resource, namespace=self._namespace, field_selector=self._field_selector
        )
        changed = self._store.replace([self._keep(o) for o in objs], namespace=self._namespace)
        self._version = version
        self._contact()
        self._synced.set()
        for obj in changed:
            self._tell(obj)

    def _follow(self) -> bool:
        limit = self._pace.server_timeout_s * (0.8 + 0.4 * self._pace.chance())
        opened = self._clock.now()
        stream = self._api.stream(
            watch_request(
                self._resource,
                namespace=self._namespace,
                field_selector=self._field_selector,
                resource_version=self._version,
                timeout_s=limit,
            ),
            read_timeout_s=limit + self._pace.grace_s,
        )
        self._stream = stream
        heard = False
        try:
            self._connected()
            if self._stopping.is_set():
                stream.close()
            for event in stream:
                self._take(event)
                heard = True
        finally:
            self._stream = None
        lasted = (self._clock.now() - opened).total_seconds()
        return heard or lasted >= min(limit, 1.0)

    def _take(self, event: Object) -> None:
        obj: Object = event.get("object") or {}
        kind = event.get("type")
        if kind == "ERROR":
            raise refusal_event(self._resource, obj)
        self._version = str(obj["metadata"]["resourceVersion"])
        self._contact()
        if kind == "BOOKMARK":
            return
        obj = self._keep(obj)
        news = self._store.drop(obj) if kind == "DELETED" else self._store.put(obj)
        if news:
            self._tell(obj)

    def _tell(self, obj: Object) -> None:
        try:
            self._notify(self._resource, obj)
        except Exception:  # noqa: BLE001 - the listener's fault must not cost us the store
            _log.exception("a listener failed on a change of %s", self._resource.kind)

    def _connected(self) -> None:
        if self._failures > 1:
            _log.info("watch of %s is back", self._resource.plural)
        self._broken_since = None
        self._error = ""
        self._last_contact = self._clock.now()

    def _contact(self) -> None:
        self._failures = 0
        self._last_contact = self._clock.now()

    def _failed(self, error: str) -> None:
        if self._stopping.is_set():
            return
        self._failures += 1
        self._broken_since = self._broken_since or self._clock.now()
        self._error = error
        longest = min(
            self._pace.first_delay_s * 2 ** min(self._failures - 1, 20), self._pace.longest_delay_s
        )
        delay = longest * (0.5 + 0.5 * self._pace.chance())
        level = logging.DEBUG if self._failures == 1 else logging.WARNING
        _log.log(level, "%s; trying again in %.1f s", error, delay)
        self._stopping.wait(delay)
