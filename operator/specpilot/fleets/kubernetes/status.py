"""Writing the status of custom resources: whole, under our manager, and only when it changed."""

from collections.abc import Callable, Mapping
from typing import Any

from specpilot.fleets.kubernetes.api import Api, ApiError
from specpilot.fleets.kubernetes.request import CUSTOM_RESOURCES, Object, Resource

Known = Callable[[Resource, str, str], Object | None]
"""Looks an object up by resource, namespace and name; None when it is not there."""

_BY_KIND = {resource.kind: resource for resource in CUSTOM_RESOURCES}


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
