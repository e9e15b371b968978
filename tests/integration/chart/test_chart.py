"""The chart renders what it says, refuses what cannot work, and grants no more than is needed."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import build
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.cluster  # Helm comes with the cluster's programs

CHART = Path(__file__).parents[3] / "charts" / "specpilot"

Object = dict[str, Any]


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(build.tools(quiet=True)["helm"]), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def template(*values: str, namespace: str = "ops") -> list[Object]:
    options = [word for value in values for word in ("--set", value)]
    done = helm("template", "specpilot", str(CHART), "--namespace", namespace, *options)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def one(objects: list[Object], kind: str, name: str = "") -> Object:
    [found] = [
        o for o in objects if o["kind"] == kind and (not name or o["metadata"]["name"] == name)
    ]
    return found


def container(objects: list[Object]) -> Object:
    containers: list[Object] = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    [found] = containers
    return found


def environment(objects: list[Object]) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container(objects)["env"]}


def granted(rules: list[Object]) -> set[tuple[str, str]]:
    return {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_lint() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_version_is_the_products() -> None:
    from specpilot import __version__

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


def test_every_value_is_in_the_schema_and_every_key_of_the_schema_has_a_default() -> None:
    import json

    def keys(schema: Object, values: Object, path: str) -> list[str]:
        properties = schema.get("properties", {})
        if not schema.get("additionalProperties", True):
            off = set(properties) ^ set(values) - {"global"}
            found = [f"{path}.{key}" for key in off - {"global"}]
        else:
            found = []
        for key, inner in properties.items():
            if isinstance(values.get(key), dict) and "properties" in inner:
                found += keys(inner, values[key], f"{path}.{key}")
        return found

    schema = json.loads((CHART / "values.schema.json").read_text())
    assert keys(schema, yaml.safe_load((CHART / "values.yaml").read_text()), "") == []


def test_defaults_are_safe() -> None:
    objects = template()
    deployment = one(objects, "Deployment")
    pod, main = deployment["spec"]["template"]["spec"], container(objects)
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}, "SQLite has one owner"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert main["securityContext"]["readOnlyRootFilesystem"] is True
    assert main["securityContext"]["allowPrivilegeEscalation"] is False
    assert main["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert environment(objects)["SPECPILOT_BIND"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert "SPECPILOT_PROMETHEUS_URL" not in environment(objects)
    assert main["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert main["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    claim = one(objects, "PersistentVolumeClaim")
    volumes = {v["name"]: v for v in pod["volumes"]}
    assert volumes["state"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_the_operator_understands_every_variable_it_is_given() -> None:
    from typer.main import get_command

    from specpilot.cli.main import app

    known = {
        variable
        for parameter in get_command(app).commands["operator"].params  # type: ignore[attr-defined]
        for variable in [parameter.envvar]
    }
    objects = template(
        *("prometheus.url=http://p:9090", "prometheus.tokenSecret.name=token"),
        "watchNamespaces={a}",
    )
    assert {n for n in environment(objects) if n.startswith("SPECPILOT_")} <= known


def test_postgresql_needs_no_volume_and_rolls() -> None:
    objects = template("replicas=2", "database.existingSecret.name=db")
    assert "strategy" not in one(objects, "Deployment")["spec"]
    assert not [o for o in objects if o["kind"] == "PersistentVolumeClaim"]
    assert environment(objects)["SPECPILOT_DATABASE_URL"] == {
        "secretKeyRef": {"name": "db", "key": "url"}
    }


def test_a_prometheus_token_is_a_file() -> None:
    objects = template("prometheus.url=http://p:9090", "prometheus.tokenSecret.name=token")
    mounts = {m["name"]: m for m in container(objects)["volumeMounts"]}
    path = Path(environment(objects)["SPECPILOT_PROMETHEUS_TOKEN_FILE"])
    assert str(path.parent) == mounts["prometheus-token"]["mountPath"]


def test_no_secret_can_be_listed_and_only_named_ones_read() -> None:
    assert not [
        rule
        for o in template()
        for rule in o.get("rules") or ()
        if "secrets" in rule["resources"] or "*" in rule["resources"] + rule["verbs"]
    ]
    rules = one(template("alerts.secretNames={a,b}"), "ClusterRole", "ops-specpilot")["rules"]
    [secrets] = [r for r in rules if "secrets" in r["resources"]]
    assert secrets["verbs"] == ["get"]
    assert secrets["resourceNames"] == ["a", "b"]


def test_watched_namespaces_get_roles_and_the_cluster_none() -> None:
    objects = template("watchNamespaces={chat,search}", "rbac.readNodes=false")
    roles = [o for o in objects if o["kind"] == "Role"]
    assert {r["metadata"]["namespace"] for r in roles} == {"chat", "search", "ops"}
    assert not [o for o in objects if o["kind"] == "ClusterRoleBinding"]
    assert environment(objects)["SPECPILOT_NAMESPACES"] == "chat,search"


def test_editors_do_not_approve() -> None:
    objects = template()
    edit = granted(one(objects, "ClusterRole", "specpilot-edit")["rules"])
    approver = granted(one(objects, "ClusterRole", "specpilot-approver")["rules"])
    assert ("speculationpolicies", "patch") in edit
    assert not [pair for pair in edit if pair[0] == "flagchanges"]
    assert ("flagchanges", "patch") in approver
    assert not [v for r, v in approver if r == "speculationpolicies" and v == "patch"]


@pytest.mark.parametrize(
    ("values", "says", "reason"),
    [
        (["replicas=2"], "set database.url or database.existingSecret.name", "no shared database"),
        (
            ["replicas=2", "database.url=sqlite:////data/x"],
            "to a PostgreSQL, or replicas: 1",
            "a file is not shared",
        ),
        (["replicas=0"], "/replicas", "nobody would steer"),
        (["prometheus.url=prometheus:9090"], "/prometheus/url", "no scheme"),
        (["prometheus.tokenSecret.name=t"], "there is no prometheus.url", "a token for nobody"),
        (["fieldManager=kubectl-specpilot"], "/fieldManager", "GitOps tools take it away"),
        (["watchNamespaces={Chat}"], "/watchNamespaces/0", "no name of a namespace"),
        (["prometheus.ulr=x"], "'ulr' not allowed", "misspelt"),
        (
            ["database.url=postgresql://a/b", "database.existingSecret.name=db"],
            "give the URL once",
            "two databases",
        ),
    ],
)
def test_what_cannot_work_is_refused(values: list[str], says: str, reason: str) -> None:
    options = [word for value in values for word in ("--set", value)]
    done = helm("template", "specpilot", str(CHART), *options)
    assert done.returncode != 0, reason
    assert says in done.stderr, (reason, done.stderr)


NEEDED = (
    ("watch", "specpilot.io", "speculationpolicies"),
    ("patch", "specpilot.io", "speculationpolicies/status"),
    ("create", "specpilot.io", "flagchanges"),
    ("patch", "apps", "deployments"),
    ("watch", "apps", "replicasets"),
    ("watch", "", "pods"),
)
FORBIDDEN = (
    ("list", "", "secrets"),
    ("get", "", "secrets"),
    ("delete", "apps", "deployments"),
    ("create", "apps", "deployments"),
    ("create", "", "pods"),
    ("patch", "specpilot.io", "speculationpolicies"),
    ("list", "", "nodes"),
)


def test_the_api_server_lets_it_work_there_and_nowhere_else(
    cluster: Cluster, namespace: str
) -> None:
    values = (f"watchNamespaces={{{namespace}}}", "rbac.readNodes=false", "rbac.userRoles=false")
    for each in template(*values, namespace=namespace):
        if each["kind"] in {"ServiceAccount", "Role", "RoleBinding"}:
            cluster.api.apply(each, namespace=namespace)

    def allowed(where: str, asked: tuple[tuple[str, str, str], ...]) -> list[tuple[str, str, str]]:
        return [each for each in asked if can(where, *each)]

    def can(where: str, verb: str, group: str, resource: str) -> bool:
        name, _, subresource = resource.partition("/")
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {
                "user": f"system:serviceaccount:{namespace}:specpilot",
                "resourceAttributes": {
                    "namespace": where,
                    "verb": verb,
                    "group": group,
                    "resource": name,
                    "subresource": subresource,
                },
            },
        }
        return bool(cluster.api.create(review)["status"]["allowed"])

    wait_for(
        lambda: allowed(namespace, NEEDED) == list(NEEDED),
        describe=lambda: str(allowed(namespace, NEEDED)),
    )
    assert allowed(namespace, FORBIDDEN) == []
    assert allowed("default", (*NEEDED, *FORBIDDEN)) == []
