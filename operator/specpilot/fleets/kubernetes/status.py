"""Writing the status of custom resources: whole, under our manager, and only when it changed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from specpilot.fleets.kubernetes.api import Api, ApiError
from specpilot.fleets.kubernetes.request import CUSTOM_RESOURCES, Object, Resource
from specpilot.resources.mirror import timestamp

Known = Callable[[Resource, str, str], Object | None]
"""Looks an object up by resource, namespace and name; None when it is not there."""

_BY_KIND = {resource.kind: resource for resource in CUSTOM_RESOURCES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition as one wants it to read.

    Attributes:
        type: `Ready`, `MetricsAvailable`, ...
        status: True, False, or None for Unknown.
        reason: CamelCase, from a fixed catalogue.
        message: In words, with the next step.
        generation: Generation of the spec it speaks of.
    """

    type: str
    status: bool | None
    reason: str
    message: str = ""
    generation: int = 0


_STATUS = {True: "True", False: "False", None: "Unknown"}


def condition(wanted: Condition, *, previous: Sequence[Mapping[str, Any]], now: datetime) -> Object:
    """Write a condition; its transition time stays while its status does.

    Args:
        wanted: What it is to say.
        previous: The object's conditions so far.
        now: The time, for a status that changed.
    """
    status = _STATUS[wanted.status]
    before = next((c for c in previous if c.get("type") == wanted.type), {})
    kept = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": wanted.type,
        "status": status,
        "reason": wanted.reason,
        "message": wanted.message,
        "observedGeneration": wanted.generation,
        "lastTransitionTime": kept or timestamp(now),
    }


def conditions(
    wanted: Iterable[Condition], *, previous: Sequence[Mapping[str, Any]], now: datetime
) -> list[Object]:
    """Write several; see `condition`. One that is no longer wanted is dropped."""
    return [condition(c, previous=previous, now=now) for c in wanted]


class StatusWriter:
    """Writes statuses.

    Args:
        api: The API server.
        known: Where objects are looked up before anything is written.
    """

    def __init__(self, api: Api, *, known: Known) -> None:
        self._api = api
        self._known = known

    def patch_status(self, kind: str, namespace: str, name: str, status: Mapping[str, Any]) -> bool:
        """Make an object's status this and nothing else; whether that took a write.

        An object that is gone is left alone.

        Raises:
            ApiError: The API server refused, or did not answer.
        """
        resource = _BY_KIND[kind]
        obj = self._known(resource, namespace, name)
        # Compared as values: the server writes 4.0 as 4.
        if obj is None or (obj.get("status") or {}) == dict(status):
            return False
        body = {
            "metadata": {"namespace": namespace, "name": name},
            "status": status,
        }
        try:
            self._api.apply(resource, body, subresource="status")
        except ApiError as error:
            if error.not_found:
                return False
            raise
        return True
