"""Whether an autoscaler is in the middle of scaling a workload.

HPAs say so themselves: they want another number of replicas than there are. KEDA scales by HPAs of
its own making, so that it needs nothing more. One list for all of them, kept for a while.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from specpilot.fleets.kubernetes.api import Api, ApiError
from specpilot.fleets.kubernetes.request import HPAS, Object

_log = logging.getLogger(__name__)

FRESH_S = 15.0
"""How long a list of autoscalers is used."""


def scaling(autoscalers: Iterable[Mapping[str, Any]], *, kind: str, name: str) -> str:
    """Words when one of a namespace's autoscalers is scaling the workload, "" when none is."""
    for autoscaler in autoscalers:
        target = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
        if (target.get("kind"), target.get("name")) != (kind, name):
            continue
        status = autoscaler.get("status") or {}
        current, desired = status.get("currentReplicas"), status.get("desiredReplicas")
        # A new one, or one without metrics, has not said what it wants: 0 is its "not yet".
        if not desired or current is None or current == desired:
            continue
        return (
            f"HorizontalPodAutoscaler {autoscaler['metadata']['name']} is scaling from {current} "
            f"to {desired} replicas"
        )
    return ""


class Autoscalers:
    """The autoscalers of the cluster, as of a moment ago.

    Args:
        api: The API server.
        clock: Monotonic seconds.
        fresh_s: How long a list is used.
    """

    def __init__(self, api: Api, *, clock: Callable[[], float], fresh_s: float = FRESH_S) -> None:
        self._api = api
        self._clock = clock
        self._fresh_s = fresh_s
        self._lock = threading.Lock()
        self._everywhere = True
        self._lists: dict[str, tuple[float, dict[str, list[Object]]]] = {}

    def scaling(self, namespace: str, name: str, *, kind: str) -> str:
        """Words when the workload is being scaled, or when that is not known.

        Where Specpilot may not list autoscalers nobody is held up: it is logged once.
        """
        with self._lock:
            try:
                return scaling(self._of(namespace), kind=kind, name=name)
            except ApiError as error:
                return f"it is not known whether an autoscaler is at work: {error}"

    def _of(self, namespace: str) -> list[Object]:
        scope = "" if self._everywhere else namespace
        at, by_namespace = self._lists.get(scope, (0.0, {}))
        if scope not in self._lists or self._clock() - at > self._fresh_s:
            try:
                found, _ = self._api.all(HPAS, namespace=scope)
            except ApiError as error:
                if not error.forbidden:
                    raise
                if self._everywhere:
                    self._everywhere = False
                    return self._of(namespace)
                if scope not in self._lists:
                    _log.warning("autoscalers in %s are not looked at: %s", namespace, error)
                found = []
            by_namespace = {}
            for each in found:
                by_namespace.setdefault(each["metadata"]["namespace"], []).append(each)
            self._lists[scope] = (self._clock(), by_namespace)
        return by_namespace.get(namespace, [])
