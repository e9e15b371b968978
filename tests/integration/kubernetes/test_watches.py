"""Watches against a real API server that is cut off, restarted, and forgets."""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tests.cluster.api
from specpilot.domain.targets import TargetRef
from specpilot.fleets.kubernetes import (
    Api,
    ApiError,
    Cached,
    KubernetesFleet,
    Live,
    Pace,
    Resource,
    Watches,
    connect,
)
from specpilot.fleets.kubernetes.api import refusal_event
from specpilot.fleets.kubernetes.request import (
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    watch,
)
from tests.cluster.cluster import Cluster
from tests.cluster.manifests import deployment, stateful_set
from tests.cluster.ports import free_port
from tests.cluster.waiting import wait_for
from tests.integration.kubernetes.conftest import MakeTarget, Manifest, WallClock, engine

OF_DEPLOYMENTS = (DEPLOYMENTS, REPLICA_SETS, PODS)

pytestmark = pytest.mark.cluster

CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap")
QUICK = Pace(server_timeout_s=4, grace_s=3, first_delay_s=0.05, longest_delay_s=0.5)


class Changes:
    """What was reported, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    def __call__(self, kind: str, namespace: str, name: str) -> None:
        self.seen.append((kind, namespace, name))


MakeWatches = Callable[..., Watches]


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def make_watches(api: Api, changes: Changes) -> Iterator[MakeWatches]:
    with contextlib.ExitStack() as stack:

        def make(*namespaces: str, of: Api = api, pace: Pace = QUICK, **rest: object) -> Watches:
            watches = Watches(
                api=of,
                clock=WallClock(),
                on_change=changes,
                namespaces=namespaces,
                pace=pace,
                **rest,  # type: ignore[arg-type]  # a test's shorthand
            )
            watches.start()
            stack.callback(watches.stop)
            return watches

        yield make


def config_map(cluster: Cluster, namespace: str, name: str, value: str = "") -> None:
    cluster.api.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"value": value},
        },
        namespace=namespace,
    )


def known(watches: Watches, namespace: str) -> dict[str, str]:
    return {
        o["metadata"]["name"]: o["data"]["value"]
        for o in watches.store(CONFIG_MAPS).all(namespace)
        if o["metadata"]["name"].startswith("t-")
    }


@pytest.mark.parametrize("kind", [deployment, stateful_set])
def test_the_caches_say_what_the_api_says(
    make_target: MakeTarget,
    make_watches: MakeWatches,
    changes: Changes,
    api: Api,
    kind: Callable[..., Manifest],
) -> None:
    # With a GPU, so that the room on nodes is looked at too.
    target = make_target(engine(gpus=1), kind=kind)
    watches = make_watches(resources=(*OF_DEPLOYMENTS, STATEFUL_SETS))
    assert watches.wait_synced(timeout_s=20)
    fleet = KubernetesFleet(api, source=Cached(watches, live=Live(api)))
    assert fleet.observe(target.ref) == target.observe()
    changes.seen.clear()
    target.patch({"spec": {"replicas": 4}})
    wait_for(
        lambda: len(fleet.observe(target.ref).live()) == 4,
        describe=lambda: f"{fleet.observe(target.ref)}",
    )
    # Pods and ReplicaSets are reported as what owns them, and as nothing else.
    assert set(changes.seen) == {(target.ref.kind, target.ref.namespace, "chat")}
    gone = TargetRef(kind=target.ref.kind, namespace=target.ref.namespace, name="none")
    assert fleet.observe(gone).problem is not None
    wait_for(lambda: fleet.observe(target.ref) == target.observe(), describe="both agree")


def test_only_some_namespaces(
    make_target: MakeTarget, make_watches: MakeWatches, cluster: Cluster, api: Api
) -> None:
    target = make_target(replicas=1)
    with cluster.namespace("elsewhere") as other:
        watches = make_watches(other, resources=(*OF_DEPLOYMENTS, CONFIG_MAPS))
        assert watches.wait_synced(timeout_s=20)
        config_map(cluster, target.ref.namespace, "t-here", "1")
        config_map(cluster, other, "t-there", "1")
        wait_for(lambda: known(watches, other), describe="the watched namespace")
        assert known(watches, target.ref.namespace) == {}
        # A target outside is asked for, not taken for gone.
        fleet = KubernetesFleet(api, source=Cached(watches, live=Live(api)))
        assert fleet.observe(target.ref).problem is None


def test_streams_end_and_are_taken_up_again_without_a_gap(
    make_watches: MakeWatches, cluster: Cluster, namespace: str
) -> None:
    pace = Pace(server_timeout_s=1, grace_s=3, first_delay_s=0.05, longest_delay_s=0.2)
    watches = make_watches(namespace, resources=(CONFIG_MAPS,), pace=pace)
    assert watches.wait_synced(timeout_s=20)
    want = {}
    until = time.monotonic() + 5
    while time.monotonic() < until:
        name = f"t-{len(want) % 20}"
        want[name] = str(len(want))
        config_map(cluster, namespace, name, want[name])
        time.sleep(0.02)
    wait_for(lambda: known(watches, namespace) == want, describe="nothing was missed")


def test_the_api_server_restarts(
    make_watches: MakeWatches, cluster: Cluster, namespace: str
) -> None:
    watches = make_watches(namespace, resources=(CONFIG_MAPS,), stale_after_s=1.0)
    assert watches.wait_synced(timeout_s=20)
    config_map(cluster, namespace, "t-gone", "1")
    wait_for(lambda: "t-gone" in known(watches, namespace), describe="before")
    cluster.control_plane.stop_apiserver()
    try:

        def stale() -> str:
            try:
                watches.current(CONFIG_MAPS, namespace=namespace)
            except ApiError as error:
                return str(error)
            return ""

        words = wait_for(stale, describe="what is known is no longer vouched for")
        assert "no connection" in words
        [state] = watches.states()
        assert state.synced
        assert state.broken_since is not None
        assert state.error
    finally:
        cluster.control_plane.start_apiserver()
    cluster.api.delete("v1", "ConfigMap", name="t-gone", namespace=namespace)
    config_map(cluster, namespace, "t-new", "2")
    wait_for(lambda: known(watches, namespace) == {"t-new": "2"}, describe="after", deadline=30)
    assert watches.current(CONFIG_MAPS, namespace=namespace) is not None
    [state] = watches.states()
    assert state.broken_since is None
    assert state.last_contact is not None
    assert (datetime.now(UTC) - state.last_contact).total_seconds() < 30


@pytest.fixture
def parcels(cluster: Cluster) -> Iterator[Resource]:
    """A kind of its own, whose history in the server begins late.

    That of a built-in kind may reach back to version 1, when the server was quick to start.
    """
    group = f"{uuid.uuid4().hex[:6]}.example"
    name = f"parcels.{group}"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    cluster.api.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": "parcels", "singular": "parcel", "kind": "Parcel"},
                "versions": [version],
            },
        }
    )
    definition = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")

    def is_served() -> bool:
        try:
            cluster.api.list(f"{group}/v1", "Parcel")
        except (LookupError, tests.cluster.api.ApiError):  # not known yet, or being made ready
            return False
        return True

    try:
        wait_for(is_served, describe="the new kind is served")
        yield Resource(group=group, version="v1", plural="parcels", kind="Parcel")
    finally:
        cluster.api.delete(*definition, name=name)


def test_a_version_that_the_server_has_forgotten(
    make_watches: MakeWatches, cluster: Cluster, namespace: str, api: Api, parcels: Resource
) -> None:
    """A version from before what the server remembers is answered with 410: list again."""

    def parcel(name: str) -> None:
        cluster.api.apply(
            {
                "apiVersion": f"{parcels.group}/v1",
                "kind": "Parcel",
                "metadata": {"name": name},
            },
            namespace=namespace,
        )

    events = api.stream(
        watch(parcels, namespace=namespace, resource_version="1", timeout_s=2),
        read_timeout_s=5,
    )
    [event] = events
    assert refusal_event(parcels, event["object"]).expired, f"version 1 is gone for good: {event}"
    watches = make_watches(namespace, resources=(parcels,))
    assert watches.wait_synced(timeout_s=20)

    def names() -> set[str]:
        return {o["metadata"]["name"] for o in watches.store(parcels).all(namespace)}

    parcel("a")
    wait_for(lambda: names() == {"a"}, describe="in step")
    [follower] = watches._watches.values()
    follower._version = "1"
    stream = follower._stream
    if stream is not None:
        stream.close()
    parcel("b")
    wait_for(lambda: names() == {"a", "b"}, describe="relisted")
    assert int(follower._version) > 1


def test_many_objects_come_in_pages(
    make_watches: MakeWatches, cluster: Cluster, namespace: str, changes: Changes
) -> None:
    count = 1100  # three pages

    def create(part: int) -> None:
        for number in range(part, count, 4):
            config_map(cluster, namespace, f"t-{number}", str(number))

    threads = [threading.Thread(target=create, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watches = make_watches(namespace, resources=(CONFIG_MAPS,))
    assert watches.wait_synced(timeout_s=30)
    assert len(known(watches, namespace)) == count
    wait_for(
        lambda: sum(name.startswith("t-") for _, _, name in changes.seen) == count,
        describe="each was reported once",
    )


def test_a_server_that_cannot_be_reached_at_first(
    make_watches: MakeWatches, tmp_path: Path, cluster: Cluster
) -> None:
    text = cluster.kubeconfig.read_text()
    port = free_port()
    lost = tmp_path / "config"
    lost.write_text(text.replace(cluster.control_plane.server, f"https://127.0.0.1:{port}"))
    watches = make_watches(of=connect(kubeconfig=str(lost)), resources=(DEPLOYMENTS,))
    assert not watches.wait_synced(timeout_s=1)
    with pytest.raises(ApiError, match="still being listed"):
        watches.current(DEPLOYMENTS, namespace="default")


def test_stopping_does_not_wait_for_the_server(make_watches: MakeWatches, namespace: str) -> None:
    watches = make_watches(namespace, resources=OF_DEPLOYMENTS, pace=Pace())
    assert watches.wait_synced(timeout_s=20)
    begun = time.monotonic()
    watches.stop()
    assert time.monotonic() - begun < 3
    assert not [t for t in threading.enumerate() if t.name.startswith("watch-")]
