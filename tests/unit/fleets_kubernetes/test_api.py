"""Requests as they go over the wire, and answers of every kind in words."""

import contextlib
import socket
import threading
import time
from pathlib import Path

import pytest
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.config.incluster_config import InClusterConfigLoader

from specpilot.domain.ports import FleetError
from specpilot.fleets.kubernetes import DEPLOYMENTS, POLICIES, Api, ApiError, connect
from specpilot.fleets.kubernetes.request import PODS, delete, watch
from tests.unit.fleets_kubernetes.fakes import Reply, Seen, serve


def echo(_: Seen, reply: Reply) -> None:
    reply.json({"metadata": {}, "items": []})


def test_paths() -> None:
    assert DEPLOYMENTS.path(namespace="a", name="b", subresource="status") == (
        "/apis/apps/v1/namespaces/a/deployments/b/status"
    )
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path(namespace="../x", name="a/b") == "/api/v1/namespaces/..%2Fx/pods/a%2Fb"


def test_an_apply_is_a_server_side_apply() -> None:
    """The client turns a PATCH without this content type into a strategic merge, silently."""
    with serve(echo) as server:
        server.api(field_manager="acme").apply(
            POLICIES,
            {"metadata": {"namespace": "a", "name": "b"}, "status": {}},
            subresource="status",
        )
    [seen] = server.requests
    assert seen.method == "PATCH"
    assert seen.path == "/apis/specpilot.io/v1alpha1/namespaces/a/speculationpolicies/b/status"
    assert seen.headers["content-type"] == "application/apply-patch+yaml"
    assert seen.query == {"fieldManager": "acme", "force": "true"}
    assert seen.body == {
        "apiVersion": "specpilot.io/v1alpha1",
        "kind": "SpeculationPolicy",
        "metadata": {"namespace": "a", "name": "b"},
        "status": {},
    }


def test_who_does_not_lead_any_more_reads_and_changes_nothing() -> None:
    leading = [True]
    with serve(echo) as server:
        api = server.api().led(lambda: leading[0])
        api.apply(POLICIES, {"metadata": {"namespace": "a", "name": "b"}})
        leading[0] = False
        api.all(PODS)
        with pytest.raises(ApiError, match=r"PATCH .* not sent, this process does not lead"):
            api.apply(POLICIES, {"metadata": {"namespace": "a", "name": "b"}})
        with pytest.raises(ApiError, match="not sent"):
            api.send(delete(POLICIES, namespace="a", name="b", uid="u-1"))
    assert [seen.method for seen in server.requests] == ["PATCH", "GET"]


def test_a_delete_is_of_one_object_only() -> None:
    with serve(echo) as server:
        server.api().send(delete(POLICIES, namespace="a", name="b", uid="u-1"))
    assert server.requests[0].body["preconditions"] == {"uid": "u-1"}


def test_a_list_is_read_to_its_end() -> None:
    def pages(seen: Seen, reply: Reply) -> None:
        number = int(seen.query.get("continue", "0"))
        more = {"continue": str(number + 1)} if number < 2 else {}
        reply.json({"metadata": {"resourceVersion": "42", **more}, "items": [{"n": number}]})

    with serve(pages) as server:
        found, version = server.api().all(PODS, namespace="a", label_selector="app=x")
    assert [o["n"] for o in found] == [0, 1, 2]
    assert version == "42"
    assert {s.query["labelSelector"] for s in server.requests} == {"app=x"}


@pytest.mark.parametrize(
    ("code", "attribute", "said"),
    [
        (401, "", "check the kubeconfig"),
        (403, "forbidden", "grant this"),
        (404, "not_found", "no such thing"),
        (409, "conflict", "no such thing"),
        (410, "expired", "no such thing"),
        (429, "", "tried again"),
        (500, "", "no such thing"),
    ],
)
def test_refusals_in_words(code: int, attribute: str, said: str) -> None:
    with serve(lambda _, reply: reply.failure(code, "Why", "no such thing")) as server:
        api = server.api()
        with pytest.raises(ApiError, match=said) as caught:
            api.send(watch(PODS, resource_version="1", timeout_s=1))
    error = caught.value
    assert isinstance(error, FleetError)
    assert (error.status, error.reason) == (code, "Why")
    assert f"GET /api/v1/pods: {code}" in str(error)
    for name in ("forbidden", "not_found", "conflict", "expired"):
        assert getattr(error, name) is (name == attribute)


def test_what_is_not_there_is_none() -> None:
    with serve(lambda _, reply: reply.failure(404, "NotFound", "")) as server:
        assert server.api().find(DEPLOYMENTS, namespace="a", name="b") is None


@pytest.mark.parametrize("body", [b"<html>", b"[]"])
def test_an_answer_that_is_no_object(body: bytes) -> None:
    with serve(lambda _, reply: reply.json(body)) as server, pytest.raises(ApiError):
        server.api().find(DEPLOYMENTS, namespace="a", name="b")


def test_nobody_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        configuration = Configuration(host=f"http://127.0.0.1:{held.getsockname()[1]}")
        configuration.retries = False
        with pytest.raises(ApiError, match="does not answer") as caught:
            Api(ApiClient(configuration)).find(PODS, name="a")
    assert caught.value.status == 0


def test_a_server_that_accepts_and_says_nothing_costs_the_timeout_and_no_more() -> None:
    with serve(lambda _, reply: reply.hang()) as server:
        begun = time.monotonic()
        with pytest.raises(ApiError, match="does not answer"):
            server.api(timeout_s=0.3).find(PODS, name="a")
        assert time.monotonic() - begun < 3


def test_a_stream_is_read_line_by_line_however_it_is_cut_up() -> None:
    def stream(_: Seen, reply: Reply) -> None:
        reply.open_stream()
        reply.event("ADDED", {"n": 1}, split=7)
        reply.event("ADDED", {"n": "ü"}, split=40)
        reply.end_stream()

    with serve(stream) as server:
        request = watch(PODS, resource_version="1", timeout_s=1)
        events = list(server.api().stream(request, read_timeout_s=5))
    assert [e["object"]["n"] for e in events] == [1, "ü"]
    assert server.requests[0].query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "1",
        "timeoutSeconds": "1",
    }


def test_a_stream_that_goes_silent_is_dead() -> None:
    def stream(_: Seen, reply: Reply) -> None:
        reply.open_stream()
        reply.event("ADDED", {"n": 1})
        reply.hang()

    with serve(stream) as server:
        request = watch(PODS, resource_version="1", timeout_s=1)
        events = iter(server.api().stream(request, read_timeout_s=0.3))
        assert next(events)["object"] == {"n": 1}
        with pytest.raises(ApiError, match="the watch broke"):
            next(events)


def test_a_stream_is_ended_from_outside() -> None:
    def stream(_: Seen, reply: Reply) -> None:
        reply.open_stream()
        reply.event("ADDED", {"n": 1})
        reply.hang()

    with serve(stream) as server:
        request = watch(PODS, resource_version="1", timeout_s=60)
        opened = server.api().stream(request, read_timeout_s=60)
        events = iter(opened)
        next(events)
        threading.Timer(0.2, opened.close).start()
        begun = time.monotonic()
        with contextlib.suppress(ApiError):  # either is an end
            assert list(events) == []
        assert time.monotonic() - begun < 10


def test_in_cluster_the_token_is_the_files_and_follows_it(tmp_path: Path) -> None:
    """Tokens rotate hourly, and a release of the client once sent none at all (#2582)."""
    token, certificate = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first")
    certificate.write_text("not read over http")
    configuration = Configuration()
    loader = InClusterConfigLoader(
        token_filename=str(token),
        cert_filename=str(certificate),
        environ={"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"},
    )
    loader.load_and_set(configuration)
    with serve(echo) as server:
        loader.host = server.url
        configuration.host = server.url
        configuration.ssl_ca_cert = None
        loader.ssl_ca_cert = None
        api = Api(ApiClient(configuration))
        api.find(PODS, name="a")
        token.write_text("second")
        loader.token_expires_at = loader.token_expires_at.replace(year=2000)
        api.find(PODS, name="a")
    sent = [seen.headers["authorization"] for seen in server.requests]
    assert [value.lower() for value in sent] == ["bearer first", "bearer second"]


def test_no_kubeconfig_is_said_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(FleetError, match=str(path)):
        connect(kubeconfig=str(path))


def test_not_in_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(FleetError, match="service account"):
        connect(in_cluster=True)
