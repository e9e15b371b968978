"""The one door to the API server: requests are built here as values, and sent here alone.

The generated client's typed methods are not used: their pydantic models cost 1.2 s of import and
most of the time of a list, refuse a response that lacks a required field, and a typed `patch_*`
turns a server-side apply into a strategic merge *silently* when the content type is left out. What
is used of the client is what is hard to get right: kubeconfig, rotating tokens, TLS, proxies.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from kubernetes import config as kubeconfig_loader
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from specpilot.domain.ports import FleetError
from specpilot.fleets.kubernetes.request import Object, Request, Resource, apply, page, read

FIELD_MANAGER = "specpilot"
"""Default name under which fields are owned."""


class ApiError(FleetError):
    """The API server refused a request, or did not answer.

    Attributes:
        status: HTTP status; 0 when there was no answer.
        reason: The server's reason (`Conflict`, `Expired` ...), "" when it gave none.
    """

    def __init__(self, message: str, *, status: int, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def not_found(self) -> bool:
        """The object, or the whole resource, does not exist."""
        return self.status == 404  # noqa: PLR2004 - an HTTP status reads best as its number

    @property
    def conflict(self) -> bool:
        """Somebody else wrote in between, or the object is another one of the same name."""
        return self.status == 409  # noqa: PLR2004 - as above

    @property
    def test_failed(self) -> bool:
        """A JSON patch rested on a value that is not there any more (or the object is invalid)."""
        return self.status == 422  # noqa: PLR2004 - as above

    @property
    def expired(self) -> bool:
        """The resource version is too old; list again."""
        return self.status == 410  # noqa: PLR2004 - as above

    @property
    def forbidden(self) -> bool:
        """RBAC does not allow it."""
        return self.status == 403  # noqa: PLR2004 - as above


class Stream:
    """The events of a watch, one JSON object each."""

    def __init__(self, response: BaseHTTPResponse, *, request: Request) -> None:
        self._response = response
        self._request = request

    def __iter__(self) -> Iterator[Object]:
        """Yield events until the server ends the watch.

        Raises:
            ApiError: The connection broke or went silent, or it does not speak JSON.
        """
        rest = b""
        try:
            for chunk in self._response.stream(65536, decode_content=True):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield msgspec.json.decode(line)
        except (HTTPError, OSError, ValueError) as error:
            raise ApiError(f"{self._request}: the watch broke: {error}", status=0) from error
        finally:
            self._response.close()

    def close(self) -> None:
        """End it from another thread; whoever iterates gets an end or an `ApiError`."""
        try:
            self._response.shutdown()
        except (OSError, ValueError, RuntimeError):
            self._response.close()


class Api:
    """Sends requests to one API server. Safe for use by several threads.

    Args:
        client: A configured client; see `connect`.
        field_manager: Name under which fields are owned. Not one that begins with `kubectl`:
            Flux takes such fields away.
        timeout_s: Limit of a request that states none of its own.
        may_write: Asked before each request that changes something.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        field_manager: str = FIELD_MANAGER,
        timeout_s: float = 10.0,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._may_write = may_write
        self.field_manager = field_manager
        self.timeout_s = timeout_s

    def led(self, leads: Callable[[], bool]) -> "Api":
        """The same server, for a leader: what would change something is not sent once it is none.

        Args:
            leads: Whether this process leads, by its own clock.
        """
        return Api(
            self._client,
            field_manager=self.field_manager,
            timeout_s=self.timeout_s,
            may_write=leads,
        )

    def send(self, request: Request, *, timeout_s: float | None = None) -> Object:
        """Send a request and return the object in the answer.

        Raises:
            ApiError: Refused, or no answer.
        """
        response = self._open(request, timeout=timeout_s or self.timeout_s)
        try:
            answer = msgspec.json.decode(response.data)
        except (HTTPError, OSError, ValueError) as error:
            raise ApiError(f"{request}: the answer broke off: {error}", status=0) from error
        if not isinstance(answer, dict):
            raise ApiError(f"{request}: the answer is not an object", status=0)
        return answer

    def stream(self, request: Request, *, read_timeout_s: float) -> Stream:
        """Open a watch.

        Raises:
            ApiError: Refused, or no answer.
        """
        timeout = (min(self.timeout_s, read_timeout_s), read_timeout_s)
        return Stream(self._open(request, timeout=timeout), request=request)

    def find(self, resource: Resource, *, namespace: str = "", name: str) -> Object | None:
        """Return one object, or None when it does not exist."""
        try:
            return self.send(read(resource, namespace=namespace, name=name))
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def all(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> tuple[list[Object], str]:
        """Return a whole list, page by page, and the resource version it stands for."""
        found: list[Object] = []
        token = ""
        while True:
            answer = self.send(
                page(
                    resource,
                    namespace=namespace,
                    label_selector=label_selector,
                    field_selector=field_selector,
                    token=token,
                )
            )
            found += answer.get("items") or []
            metadata = answer.get("metadata") or {}
            token = metadata.get("continue") or ""
            if not token:
                return found, str(metadata.get("resourceVersion") or "")

    def apply(
        self, resource: Resource, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        """Server-side apply under our field manager; see the function of the same name."""
        return self.send(
            apply(resource, body, field_manager=self.field_manager, subresource=subresource)
        )

    def close(self) -> None:
        """Drop pooled connections."""
        self._client.rest_client.close()

    def _open(self, request: Request, *, timeout: float | tuple[float, float]) -> BaseHTTPResponse:
        if request.method != "GET" and not self._may_write():
            raise ApiError(f"{request}: not sent, this process does not lead any more", status=0)
        headers = {"Accept": "application/json"}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        try:
            method, url, headers, body, _ = self._client.param_serialize(
                method=request.method,
                resource_path=request.path,
                query_params=list(request.query),
                header_params=headers,
                body=_plain(request.body),
                auth_settings=["BearerToken"],
            )
            # A server that accepts and never answers must not hold a thread for ever.
            answer = self._client.call_api(method, url, headers, body, _request_timeout=timeout)
            response: BaseHTTPResponse = answer.response
            if response.status >= 400:  # noqa: PLR2004 - an HTTP status reads best as its number
                raise _refusal(request, response)
        except ApiException as error:
            raise ApiError(f"{request}: {error.reason}", status=int(error.status or 0)) from error
        except (HTTPError, OSError) as error:
            raise ApiError(
                f"{request}: the API server does not answer: {error}", status=0
            ) from error
        return response


def _plain(body: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> Any:
    """The client serialises plain dicts and lists only."""
    if body is None or isinstance(body, Mapping):
        return None if body is None else dict(body)
    return [dict(part) for part in body]


_REMEDIES = {
    401: "the credentials are not accepted; check the kubeconfig or the service account's token",
    403: "grant this to the service account that Specpilot runs as (see the chart's RBAC)",
    429: "the API server is busy; it is tried again",
}


def _refusal(request: Request, response: BaseHTTPResponse) -> ApiError:
    text = response.data.decode(errors="replace")
    try:
        status = msgspec.json.decode(text)
        message, reason = str(status.get("message") or ""), str(status.get("reason") or "")
    except (ValueError, AttributeError):
        message, reason = text.strip()[:300], ""
    words = f"{request}: {response.status} {message or response.reason or reason}"
    if remedy := _REMEDIES.get(response.status):
        words += f"; {remedy}"
    return ApiError(words, status=response.status, reason=reason)


def refusal_event(resource: Resource, status: Mapping[str, Any]) -> ApiError:
    """Turn the object of an ERROR event in a watch into the error it stands for."""
    code = int(status.get("code") or 0)
    return ApiError(
        f"watch of {resource.plural}: {code} {status.get('message') or status.get('reason') or ''}",
        status=code,
        reason=str(status.get("reason") or ""),
    )


def connect(
    *,
    kubeconfig: str = "",
    context: str = "",
    in_cluster: bool = False,
    field_manager: str = FIELD_MANAGER,
) -> Api:
    """Connect as the kubeconfig says, or as the pod's service account.

    Args:
        kubeconfig: Path; "" means `$KUBECONFIG` or `~/.kube/config`.
        context: Context in it; "" means the current one.
        in_cluster: Use the service account of the pod this runs in.
        field_manager: See `Api`.

    Raises:
        FleetError: There is no usable configuration.
    """
    configuration = Configuration()
    try:
        if in_cluster:
            kubeconfig_loader.load_incluster_config(  # type: ignore[no-untyped-call]  # not annotated there
                client_configuration=configuration
            )
        else:
            kubeconfig_loader.load_kube_config(  # type: ignore[no-untyped-call]  # not annotated there
                config_file=kubeconfig or None,
                context=context or None,
                client_configuration=configuration,
            )
    except (kubeconfig_loader.ConfigException, OSError, ValueError) as error:
        where = "the pod's service account" if in_cluster else (kubeconfig or "the kubeconfig")
        raise FleetError(f"no connection to Kubernetes: {where}: {error}") from error
    # Every caller here is level-triggered and comes back; a retry inside would only hide the
    # delay from the deadline that the caller set.
    configuration.retries = False
    configuration.keep_alive = True
    configuration.connection_pool_maxsize = 32
    return Api(ApiClient(configuration), field_manager=field_manager)
