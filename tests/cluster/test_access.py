"""A pod's own ServiceAccount token works for an unmodified client, and RBAC is real."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cluster.api import ApiError
from tests.cluster.cluster import Cluster
from tests.cluster.manifests import container, field, pod
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.cluster

IN_CLUSTER = """
import json, os
from kubernetes import client, config
config.load_incluster_config()
api = client.CoreV1Api()
namespace = os.environ["NAMESPACE"]
pods = [pod.metadata.name for pod in api.list_namespaced_pod(namespace).items]
try:
    api.list_namespaced_secret(namespace)
    secrets = "allowed"
except client.ApiException as error:
    secrets = error.status
print(json.dumps({"pods": pods, "secrets": secrets}))
"""


@pytest.mark.usefixtures("isolated")
def test_in_cluster_configuration(cluster: Cluster, namespace: str) -> None:
    for manifest in (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "operator"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "operator"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "operator"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "operator",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
        },
    ):
        cluster.api.create(manifest, namespace=namespace)
    main = container(
        command=[sys.executable, "-c", IN_CLUSTER], env=[field("NAMESPACE", "metadata.namespace")]
    )
    cluster.api.create(
        pod("operator", main, serviceAccountName="operator", restartPolicy="Never"),
        namespace=namespace,
    )
    wait_for(
        lambda: cluster.pods(namespace)[0]["status"].get("phase") == "Succeeded",
        describe=lambda: cluster.describe(namespace),
    )
    found = json.loads(cluster.log(namespace, "operator"))
    assert found == {"pods": ["operator"], "secrets": 403}


def test_people_are_told_apart(cluster: Cluster, namespace: str) -> None:
    alice = cluster.control_plane.api_as(cluster.control_plane.user("alice").token)
    with pytest.raises(ApiError, match='User "alice" cannot list'):
        alice.list("v1", "Pod", namespace=namespace)
    alice.close()
    answer = cluster.run("kubectl", "auth", "whoami", "-o", "json", user="carol")
    assert json.loads(answer)["status"]["userInfo"]["groups"] == [
        "approvers",
        "system:authenticated",
    ]


def test_a_token_can_be_made_for_an_account(cluster: Cluster, namespace: str) -> None:
    token = cluster.control_plane.service_account_token(namespace=namespace, name="default")
    account = cluster.control_plane.api_as(token)
    with pytest.raises(ApiError, match=f"system:serviceaccount:{namespace}:default"):
        account.list("v1", "Pod", namespace=namespace)
    account.close()
