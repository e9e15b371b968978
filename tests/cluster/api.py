"""A small client of the API server for tests: objects are plain dictionaries, kinds are discovered.

The product has its own client. Tests look at the cluster through this one, so that an error in the
product's cannot hide itself.
"""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import httpx

JsonObject = dict[str, Any]


class ApiError(Exception):
    """The API server refused; ``code`` is the HTTP status and ``reason`` the API's word for it."""

    def __init__(self, answer: httpx.Response) -> None:
        try:
            body = answer.json()
        except json.JSONDecodeError:
            body = {}
        self.code = answer.status_code
        self.reason = str(body.get("reason", ""))
        message = body.get("message") or answer.text[:1000]
        super().__init__(
            f"{answer.request.method} {answer.request.url.path}: "
            f"{self.code} {self.reason}: {message}"
        )


class Api:
    """Requests as one user.

    Args:
        server: URL of the API server.
        ca_file: its certificate bundle.
        token: the user's bearer token.
    """

    def __init__(self, *, server: str, ca_file: Path, token: str) -> None:
        self._http = httpx.Client(
            base_url=server,
            headers={"Authorization": f"Bearer {token}", "User-Agent": "specpilot-tests"},
            verify=ssl.create_default_context(cafile=str(ca_file)),
            timeout=30.0,
            trust_env=False,
        )
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    def request(
        self,
        method: str,
        path: str,
        *,
        body: JsonObject | None = None,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> JsonObject:
        """Send a request of any kind.

        Raises:
            ApiError: the answer is not a success.
        """
        answer = self._http.request(
            method,
            path,
            params=query,
            content=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type},
        )
        if answer.is_error:
            raise ApiError(answer)
        found: JsonObject = answer.json() if answer.content.startswith(b"{") else {}
        return found

    def text(self, path: str) -> str:
        """A resource that is no object: ``/readyz``, a pod's log."""
        answer = self._http.get(path)
        if answer.is_error:
            raise ApiError(answer)
        return answer.text

    def path(self, *, api_version: str, kind: str, namespace: str | None, name: str = "") -> str:
        """Where objects of a kind are; asks the API server what it serves, CRDs included.

        Raises:
            LookupError: the API server serves no such kind.
        """
        plural, namespaced = self._resource(api_version, kind)
        root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
        middle = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return f"{root}{middle}/{plural}" + (f"/{name}" if name else "")

    def _resource(self, api_version: str, kind: str) -> tuple[str, bool]:
        if (api_version, kind) not in self._resources:
            root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
            for one in self.request("GET", root)["resources"]:
                if "/" not in one["name"]:
                    self._resources[api_version, one["kind"]] = (one["name"], one["namespaced"])
        try:
            return self._resources[api_version, kind]
        except KeyError:
            raise LookupError(f"the API server serves no {kind} in {api_version}") from None

    def get(
        self, api_version: str, kind: str, *, name: str, namespace: str | None = None
    ) -> JsonObject:
        return self.request(
            "GET", self.path(api_version=api_version, kind=kind, namespace=namespace, name=name)
        )

    def list(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
    ) -> list[JsonObject]:
        """All objects of a kind, in one namespace or (None) in all."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        found = self.request(
            "GET",
            self.path(api_version=api_version, kind=kind, namespace=namespace),
            query={key: value for key, value in query.items() if value},
        )
        items: list[JsonObject] = found["items"]
        return items

    def create(self, manifest: JsonObject, *, namespace: str | None = None) -> JsonObject:
        return self.request(
            "POST", self._of(manifest, namespace=namespace, named=False), body=manifest
        )

    def apply(
        self,
        manifest: JsonObject,
        *,
        namespace: str | None = None,
        manager: str = "tests",
        force: bool = True,
    ) -> JsonObject:
        """Server-side apply under a field manager."""
        return self.request(
            "PATCH",
            self._of(manifest, namespace=namespace, named=True),
            body=manifest,
            content_type="application/apply-patch+yaml",
            query={"fieldManager": manager, "force": str(force).lower()},
        )

    def replace(self, manifest: JsonObject, *, namespace: str | None = None) -> JsonObject:
        return self.request(
            "PUT", self._of(manifest, namespace=namespace, named=True), body=manifest
        )

    def patch(
        self,
        api_version: str,
        kind: str,
        *,
        name: str,
        patch: JsonObject,
        namespace: str | None = None,
        subresource: str = "",
    ) -> JsonObject:
        """JSON merge patch (RFC 7396) of an object or one of its subresources."""
        path = self.path(api_version=api_version, kind=kind, namespace=namespace, name=name)
        return self.request(
            "PATCH",
            f"{path}/{subresource}" if subresource else path,
            body=patch,
            content_type="application/merge-patch+json",
        )

    def delete(
        self,
        api_version: str,
        kind: str,
        *,
        name: str,
        namespace: str | None = None,
        grace: int | None = None,
        missing_ok: bool = False,
    ) -> None:
        """Delete in the background; ``grace`` overrides the object's own grace period (seconds)."""
        options: JsonObject = {"propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        path = self.path(api_version=api_version, kind=kind, namespace=namespace, name=name)
        try:
            self.request("DELETE", path, body=options)
        except ApiError as error:
            if not (missing_ok and error.code == httpx.codes.NOT_FOUND):
                raise

    def exists(
        self, api_version: str, kind: str, *, name: str, namespace: str | None = None
    ) -> bool:
        try:
            self.get(api_version, kind, name=name, namespace=namespace)
        except ApiError as error:
            if error.code == httpx.codes.NOT_FOUND:
                return False
            raise
        return True

    def _of(self, manifest: JsonObject, *, namespace: str | None, named: bool) -> str:
        metadata = manifest["metadata"]
        return self.path(
            api_version=manifest["apiVersion"],
            kind=manifest["kind"],
            namespace=metadata.get("namespace") or namespace,
            name=metadata["name"] if named else "",
        )

    def close(self) -> None:
        self._http.close()
