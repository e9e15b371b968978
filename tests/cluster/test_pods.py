"""Pods of the test cluster behave as on a real node, wherever a rolling update can tell."""

from __future__ import annotations

import functools
import json
import time
from typing import Any

import httpx
import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.conditions import container_status, is_ready, is_rolled_out, waiting_reason
from tests.cluster.manifests import PORT, container, deployment, field, pod
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.cluster

ANNOTATION = "specpilot.io/speculative-config"


def run(cluster: Cluster, namespace: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """Create a pod and wait until it is ready."""
    cluster.api.create(manifest, namespace=namespace)
    name = manifest["metadata"]["name"]
    return wait_for(
        lambda: next(
            (
                one
                for one in cluster.pods(namespace)
                if one["metadata"]["name"] == name and is_ready(one)
            ),
            None,
        ),
        describe=lambda: cluster.describe(namespace),
    )


def ask(ready: dict[str, Any], path: str = "/") -> httpx.Response:
    return httpx.get(f"http://{ready['status']['podIP']}:{PORT}{path}", trust_env=False)


def test_a_deployment_rolls(cluster: Cluster, namespace: str) -> None:
    cluster.api.create(deployment("web", container(args=["one"]), replicas=2), namespace=namespace)

    def rolled_out() -> bool:
        found = cluster.api.get("apps/v1", "Deployment", name="web", namespace=namespace)
        return is_rolled_out(found)

    wait_for(rolled_out, describe=lambda: cluster.describe(namespace))
    before = {one["metadata"]["name"] for one in cluster.pods(namespace)}

    patch = {"spec": {"template": {"metadata": {"annotations": {ANNOTATION: "x"}}}}}
    cluster.api.patch("apps/v1", "Deployment", name="web", namespace=namespace, patch=patch)
    wait_for(rolled_out, describe=lambda: cluster.describe(namespace))

    pods = wait_for(
        lambda: found if len(found := cluster.pods(namespace)) == 2 else None,
        describe="the old pods are gone",
    )
    assert not before & {one["metadata"]["name"] for one in pods}
    assert all(one["metadata"]["annotations"][ANNOTATION] == "x" for one in pods)
    assert len({one["status"]["podIP"] for one in pods}) == 2


@pytest.mark.parametrize(
    ("annotations", "argument"),
    [
        ({ANNOTATION: '{"method":"ngram"}'}, '--speculative-config={"method":"ngram"}'),
        ({}, "--speculative-config="),
    ],
    ids=["present", "missing annotation is empty"],
)
def test_an_annotation_reaches_the_arguments(
    cluster: Cluster, namespace: str, annotations: dict[str, str], argument: str
) -> None:
    main = container(
        args=["--speculative-config=$(SPEC)", "$(UNDEFINED)", "$$(SPEC)"],
        env=[field("SPEC", f"metadata.annotations['{ANNOTATION}']")],
    )
    ready = run(cluster, namespace, pod("web", main, annotations=annotations))
    assert ask(ready).json()["arguments"] == [argument, "$(UNDEFINED)", "$(SPEC)"]


@pytest.mark.usefixtures("isolated")
def test_a_container_sees_its_pod_only(cluster: Cluster, namespace: str) -> None:
    ready = run(cluster, namespace, pod("web", container(env=[field("NODE", "spec.nodeName")])))
    environment = ask(ready).json()["environment"]
    assert environment["HOSTNAME"] == "web"
    assert environment["NODE"] == ready["spec"]["nodeName"]
    assert environment["POD_IP"] == ready["status"]["podIP"]
    assert "KUBECONFIG" not in environment
    assert "PYTEST_CURRENT_TEST" not in environment


@pytest.mark.usefixtures("isolated")
def test_volumes_are_at_their_mount_paths(cluster: Cluster, namespace: str) -> None:
    cluster.api.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "settings"},
            "data": {"a.yaml": "one"},
        },
        namespace=namespace,
    )
    volumes = [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "scratch", "emptyDir": {}},
        {
            "name": "about",
            "downwardAPI": {
                "items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
            },
        },
    ]
    mounts = [
        {"name": "settings", "mountPath": "/etc/product/settings", "readOnly": True},
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "about", "mountPath": "/about"},
    ]
    write = container(
        name="write",
        command=["sh", "-c", "cp /etc/product/settings/a.yaml /scratch/copy"],
        volumeMounts=mounts,
    )
    script = (
        "cat /scratch/copy /about/labels; touch /etc/product/settings/x || echo; "
        "until grep two /etc/product/settings/a.yaml; do sleep 0.1; done"
    )
    read = container(command=["sh", "-c", script], volumeMounts=mounts)
    cluster.api.create(
        pod(
            "files",
            read,
            labels={"app": "files"},
            initContainers=[write],
            volumes=volumes,
            restartPolicy="Never",
        ),
        namespace=namespace,
    )
    wait_for(
        lambda: "Read-only" in cluster.log(namespace, "files", container="main"),
        describe=lambda: cluster.describe(namespace),
    )
    cluster.api.patch(
        "v1", "ConfigMap", name="settings", namespace=namespace, patch={"data": {"a.yaml": "two"}}
    )
    wait_for(
        lambda: cluster.pods(namespace)[0]["status"]["phase"] == "Succeeded",
        describe=lambda: cluster.describe(namespace),
    )
    assert cluster.log(namespace, "files", container="main").startswith('oneapp="files"')


def test_a_crash_loop_is_visible(cluster: Cluster, namespace: str) -> None:
    failing = container(command=["sh", "-c", "echo no such flag >&2; exit 2"])
    cluster.api.create(pod("crash", failing), namespace=namespace)
    found = wait_for(
        lambda: next(
            (one for one in cluster.pods(namespace) if waiting_reason(one) == "CrashLoopBackOff"),
            None,
        ),
        describe=lambda: cluster.describe(namespace),
    )
    status = container_status(found)
    assert status["restartCount"] >= 1
    assert status["lastState"]["terminated"]["exitCode"] == 2
    assert not is_ready(found)
    assert cluster.log(namespace, "crash") == "no such flag\n"


@pytest.mark.parametrize(
    ("main", "reason"),
    [
        (container(image="nowhere/none:1"), "ImagePullBackOff"),
        (
            container(
                env=[{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]
            ),
            "CreateContainerConfigError",
        ),
    ],
    ids=["unknown image", "missing ConfigMap"],
)
def test_a_container_that_cannot_start_says_why(
    cluster: Cluster, namespace: str, main: dict[str, Any], reason: str
) -> None:
    cluster.api.create(pod("broken", main), namespace=namespace)
    wait_for(
        lambda: waiting_reason(cluster.pods(namespace)[0]) == reason,
        describe=lambda: cluster.describe(namespace),
    )
    assert cluster.pods(namespace)[0]["status"]["phase"] == "Pending"


def test_an_image_stands_for_a_command(cluster: Cluster, namespace: str) -> None:
    script = "import sys, os; print(sys.argv[1:], os.environ['KIND'])"
    cluster.images.add(
        "example/echo:", entrypoint=["python3", "-c", script], environment={"KIND": "echo"}
    )
    try:
        echo = container(image="example/echo:1.2", args=["a", "$(POD_IP)"])
        cluster.api.create(pod("echo", echo, restartPolicy="Never"), namespace=namespace)
        wait_for(
            lambda: cluster.pods(namespace)[0]["status"].get("phase") == "Succeeded",
            describe=lambda: cluster.describe(namespace),
        )
    finally:
        cluster.images.remove("example/echo:")
    ip = cluster.pods(namespace)[0]["status"]["podIP"]
    assert cluster.log(namespace, "echo") == f"['a', '{ip}'] echo\n"


def delete_and_time(cluster: Cluster, namespace: str, name: str) -> float:
    started = time.monotonic()
    cluster.api.delete("v1", "Pod", name=name, namespace=namespace)
    wait_for(
        lambda: not cluster.api.exists("v1", "Pod", name=name, namespace=namespace),
        describe=lambda: cluster.describe(namespace),
    )
    return time.monotonic() - started


def test_the_grace_period_is_honoured(cluster: Cluster, namespace: str) -> None:
    polite = container(env=[{"name": "LINGER", "value": "2"}])
    run(cluster, namespace, pod("polite", polite, terminationGracePeriodSeconds=20))
    assert 2 <= delete_and_time(cluster, namespace, "polite") < 10
    assert cluster.log(namespace, "polite").endswith("got SIGTERM\ndone\n")

    deaf = container(env=[{"name": "LINGER", "value": "60"}])
    run(cluster, namespace, pod("deaf", deaf, terminationGracePeriodSeconds=3))
    assert 3 <= delete_and_time(cluster, namespace, "deaf") < 10
    assert cluster.log(namespace, "deaf").endswith("got SIGTERM\n"), "SIGKILL ended it"


@pytest.mark.usefixtures("isolated")
def test_pre_stop_runs_before_sigterm(cluster: Cluster, namespace: str) -> None:
    hook = {"exec": {"command": ["sh", "-c", "sleep 1; echo pre-stop > /proc/1/fd/1"]}}
    run(cluster, namespace, pod("web", container(lifecycle={"preStop": hook})))
    assert delete_and_time(cluster, namespace, "web") >= 1
    assert cluster.log(namespace, "web").endswith("pre-stop\ngot SIGTERM\ndone\n")


@pytest.mark.usefixtures("isolated")
def test_liveness_restarts_and_readiness_follows(cluster: Cluster, namespace: str) -> None:
    probe = {
        "httpGet": {"path": "/health", "port": PORT},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    main = container(
        env=[{"name": "UNHEALTHY_FILE", "value": "/flags/unhealthy"}],
        volumeMounts=[{"name": "flags", "mountPath": "/flags"}],
        readinessProbe=probe,
        livenessProbe={**probe, "failureThreshold": 3},
    )
    run(cluster, namespace, pod("web", main, volumes=[{"name": "flags", "emptyDir": {}}]))
    uid = cluster.pods(namespace)[0]["metadata"]["uid"]
    flag = cluster.directory / f"kubelet/pods/{namespace}_web_{uid}/volumes/flags/unhealthy"
    flag.touch()
    wait_for(
        lambda: not is_ready(cluster.pods(namespace)[0]),
        describe=lambda: cluster.describe(namespace),
    )
    wait_for(
        lambda: container_status(cluster.pods(namespace)[0])["restartCount"] == 1,
        describe=lambda: cluster.describe(namespace),
    )
    flag.unlink()
    wait_for(
        lambda: is_ready(cluster.pods(namespace)[0]), describe=lambda: cluster.describe(namespace)
    )


@pytest.mark.usefixtures("isolated")
def test_a_claim_gets_a_volume_that_outlives_the_pod(cluster: Cluster, namespace: str) -> None:
    cluster.api.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
        namespace=namespace,
    )

    def wrote(name: str, text: str) -> bool:
        return cluster.log(namespace, name) == text

    for number, name in enumerate(("first", "second"), start=1):
        main = container(
            command=["sh", "-c", "echo x >> /data/file; wc -l < /data/file"],
            volumeMounts=[{"name": "data", "mountPath": "/data"}],
        )
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        cluster.api.create(
            pod(name, main, volumes=[volume], restartPolicy="Never"), namespace=namespace
        )
        wait_for(
            functools.partial(wrote, name, f"{number}\n"),
            describe=lambda: cluster.describe(namespace),
        )


def test_the_kubelet_survives_an_absent_api_server(cluster: Cluster, namespace: str) -> None:
    ready = run(cluster, namespace, pod("web", container()))
    cluster.control_plane.stop_apiserver()
    try:
        assert ask(ready, "/health").is_success, "a running pod needs no API server"
    finally:
        cluster.control_plane.start_apiserver()
    run(cluster, namespace, pod("later", container()))
    assert ask(ready).json()["environment"]["HOSTNAME"] == "web"
    assert container_status(cluster.pods(namespace)[0])["restartCount"] == 0


def test_kubectl_shows_logs(cluster: Cluster, namespace: str) -> None:
    run(cluster, namespace, pod("web", container()))
    assert "serving" in cluster.run("kubectl", "-n", namespace, "logs", "web", "--tail=5")
    names = json.loads(cluster.run("kubectl", "-n", namespace, "get", "pods", "-o", "json"))
    assert [one["metadata"]["name"] for one in names["items"]] == ["web"]
