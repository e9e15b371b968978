"""The chart renders what it says, refuses what cannot work, and grants no more than is needed."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from specpilot.fleets.kubernetes.workloads import WORKLOADS
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
    variants = (EVERYTHING, TOKEN, INSECURE, GPU)
    objects = [o for values in variants for o in template(*values, "watchNamespaces={a}")]
    deployments = [o for o in objects if o["kind"] == "Deployment"]
    given = {name for each in deployments for name in environment([each])}
    passed_on = ("SPECPILOT_PROMETHEUS_", "SPECPILOT_GPU_")
    assert {n for n in known if n.startswith(passed_on)} <= given
    assert {n for n in given if n.startswith("SPECPILOT_")} <= known


def test_postgresql_needs_no_volume_and_rolls() -> None:
    objects = template("replicas=2", "database.existingSecret.name=db")
    assert "strategy" not in one(objects, "Deployment")["spec"]
    assert not [o for o in objects if o["kind"] == "PersistentVolumeClaim"]
    assert environment(objects)["SPECPILOT_DATABASE_URL"] == {
        "secretKeyRef": {"name": "db", "key": "url"}
    }


TOKEN = ("prometheus.url=http://p:9090", "prometheus.bearerTokenSecret.name=token")
EVERYTHING = (
    "prometheus.url=https://mimir.example/prometheus",
    "prometheus.basicAuth.username=ann",
    "prometheus.basicAuth.passwordSecret.name=password",
    "prometheus.tls.caConfigMap.name=roots",
    "prometheus.tls.clientCertSecret.name=client",
    "prometheus.headers.X-Scope-OrgID=team-a|team-b",
    "prometheus.headers.X-Odd=a: $(HOME) b",
    "prometheus.headersFrom[0].header=X-Api-Key",
    "prometheus.headersFrom[0].secret.name=keys",
    "prometheus.headersFrom[0].secret.key=mimir",
    "prometheus.headersFrom[1].header=X-Other",
    "prometheus.headersFrom[1].secret.name=keys",
    "prometheus.headersFrom[1].secret.key=other",
)
INSECURE = ("prometheus.url=https://p", "prometheus.tls.insecureSkipVerify=true")
GPU = (
    "prometheus.url=http://p",
    "gpu.exporters={http://10.0.0.7:9400,http://10.0.0.8:9400/gpu}",
    'gpu.matchers=cluster="a"',
)


def prometheus_files(objects: list[Object]) -> dict[str, tuple[str, str, str]]:
    """Path in the container: kind, name and key of what it comes from."""
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    mounts = {m["name"]: m for m in container(objects)["volumeMounts"]}
    [volume] = [v for v in pod["volumes"] if v["name"] == "prometheus"]
    assert mounts["prometheus"]["readOnly"] is True
    assert "subPath" not in mounts["prometheus"], "such a file would not follow its Secret"
    return {
        f"{mounts['prometheus']['mountPath']}/{item['path']}": (kind, source["name"], item["key"])
        for each in volume["projected"]["sources"]
        for kind, source in each.items()
        for item in source["items"]
    }


def test_a_prometheus_token_is_a_file() -> None:
    objects = template(*TOKEN)
    path = environment(objects)["SPECPILOT_PROMETHEUS_BEARER_TOKEN_FILE"]
    assert prometheus_files(objects) == {path: ("secret", "token", "token")}


def test_everything_about_a_prometheus_is_passed_on_and_every_secret_as_a_file() -> None:
    from specpilot.telemetry.connection import parse_headers

    objects = template(*EVERYTHING)
    given, files = environment(objects), prometheus_files(objects)
    assert given["SPECPILOT_PROMETHEUS_URL"] == "https://mimir.example/prometheus"
    assert given["SPECPILOT_PROMETHEUS_USERNAME"] == "ann"
    assert parse_headers(given["SPECPILOT_PROMETHEUS_HEADERS"], name="headers") == {
        "X-Odd": "a: $$(HOME) b",  # the kubelet makes it $(HOME)
        "X-Scope-OrgID": "team-a|team-b",
    }
    named = {
        name.removeprefix("SPECPILOT_PROMETHEUS_"): files[path]
        for name, path in given.items()
        if name.startswith("SPECPILOT_PROMETHEUS_") and name.endswith("_FILE")
    }
    assert named == {
        "PASSWORD_FILE": ("secret", "password", "password"),
        "CA_FILE": ("configMap", "roots", "ca.crt"),
        "CERT_FILE": ("secret", "client", "tls.crt"),
        "KEY_FILE": ("secret", "client", "tls.key"),
    }
    headers = parse_headers(given["SPECPILOT_PROMETHEUS_HEADER_FILES"], name="header_files")
    assert {name: files[path] for name, path in headers.items()} == {
        "X-Api-Key": ("secret", "keys", "mimir"),
        "X-Other": ("secret", "keys", "other"),
    }
    assert len(files) == len(named) + len(headers)
    assert not [v for v in given.values() if isinstance(v, dict) and "secretKeyRef" in v]


def test_an_authority_may_come_from_a_secret() -> None:
    objects = template("prometheus.url=https://p", "prometheus.tls.caSecret.name=ca")
    path = environment(objects)["SPECPILOT_PROMETHEUS_CA_FILE"]
    assert prometheus_files(objects) == {path: ("secret", "ca", "ca.crt")}


def test_without_files_there_is_no_volume() -> None:
    objects = template(*INSECURE)
    assert environment(objects)["SPECPILOT_PROMETHEUS_INSECURE_SKIP_VERIFY"] == "true"
    volumes = one(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert "prometheus" not in {v["name"] for v in volumes}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((), "the engines' /metrics are read directly"),
        (EVERYTHING, "Signals come from https://mimir.example/prometheus."),
        (INSECURE, "Whoever answers there is believed"),
        (TOKEN, "Its credentials go there unencrypted"),
    ],
)
def test_the_notes_say_where_signals_come_from(values: tuple[str, ...], says: str) -> None:
    options = [word for value in values for word in ("--set", value)]
    done = helm("install", "specpilot", str(CHART), "--dry-run=client", *options)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def test_gpu_exporters_are_passed_on() -> None:
    from specpilot.cli.gpu import exporter_urls

    given = environment(template(*GPU))
    assert exporter_urls([given["SPECPILOT_GPU_EXPORTERS"]]) == (
        "http://10.0.0.7:9400/metrics",
        "http://10.0.0.8:9400/gpu",
    )
    assert given["SPECPILOT_GPU_MATCHERS"] == 'cluster="a"'
    assert not [name for name in environment(template()) if name.startswith("SPECPILOT_GPU")]


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


def test_ignored_namespaces_are_named_to_the_operator() -> None:
    assert environment(template("ignoreNamespaces={a,b}"))["SPECPILOT_IGNORE_NAMESPACES"] == "a,b"
    assert "SPECPILOT_IGNORE_NAMESPACES" not in environment(template())


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
        (["prometheus.url=http://a:b@p"], "/prometheus/url", "a password would be in a variable"),
        (["prometheus.url=http://p/?x=y"], "/prometheus/url", "a query string"),
        (
            ["prometheus.bearerTokenSecret.name=t"],
            "there is no prometheus.url",
            "a token for nobody",
        ),
        (["prometheus.headers.X-A=b"], "there is no prometheus.url", "a header for nobody"),
        (
            ["prometheus.url=http://p", "prometheus.basicAuth.username=a"],
            "username has no password",
            "half of it",
        ),
        (
            ["prometheus.url=http://p", "prometheus.basicAuth.passwordSecret.name=a"],
            "passwordSecret belongs to no user",
            "the other half",
        ),
        (
            [
                *("prometheus.url=http://p", "prometheus.bearerTokenSecret.name=t"),
                *("prometheus.basicAuth.username=a", "prometheus.basicAuth.passwordSecret.name=b"),
            ],
            "exclude each other; keep one",
            "two kinds",
        ),
        (
            ["prometheus.url=http://p", "prometheus.tls.caSecret.name=ca"],
            "prometheus.url does not use TLS",
            "an authority of nothing",
        ),
        (
            [
                *("prometheus.url=https://p", "prometheus.tls.caSecret.name=ca"),
                "prometheus.tls.caConfigMap.name=ca",
            ],
            "name the authority once",
            "two authorities",
        ),
        (
            [
                *("prometheus.url=https://p", "prometheus.tls.caSecret.name=ca"),
                "prometheus.tls.insecureSkipVerify=true",
            ],
            "never used with insecureSkipVerify",
            "an authority unasked",
        ),
        (
            ["prometheus.url=http://p", "prometheus.headers.X A=b"],
            "'X A' not allowed",
            "no header's name",
        ),
        (
            ["prometheus.url=http://p", "prometheus.headers.X-A= b"],
            "/prometheus/headers/X-A",
            "white space at an end",
        ),
        (
            ["prometheus.url=http://p", "prometheus.headersFrom[0].header=X-A"],
            "/prometheus/headersFrom/0",
            "no secret",
        ),
        (
            [
                *("prometheus.url=http://p", "prometheus.headers.X-A=b"),
                *("prometheus.headersFrom[0].header=x-a", "prometheus.headersFrom[0].secret.key=k"),
                "prometheus.headersFrom[0].secret.name=s",
            ],
            "x-a is given twice",
            "one header twice",
        ),
        (["gpu.matchers=job=x"], "there is no prometheus.url", "a choice of nothing"),
        (
            ["prometheus.url=http://p", "gpu.matchers=\\{job=x\\}"],
            "/gpu/matchers",
            "braces are added",
        ),
        (["gpu.exporters={node-1:9400}"], "/gpu/exporters/0", "no scheme"),
        (["gpu.exporters={http://a:b@p}"], "/gpu/exporters/0", "a password in a variable"),
        (["fieldManager=kubectl-specpilot"], "/fieldManager", "GitOps tools take it away"),
        (["watchNamespaces={Chat}"], "/watchNamespaces/0", "no name of a namespace"),
        (["ignoreNamespaces={Chat}"], "/ignoreNamespaces/0", "no name of a namespace"),
        (
            ["watchNamespaces={a}", "ignoreNamespaces={b}", "rbac.readNodes=false"],
            "drop ignoreNamespaces",
            "the first says it all",
        ),
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
    ("patch", "apps", "statefulsets"),
    ("patch", "leaderworkerset.x-k8s.io", "leaderworkersets"),
    ("patch", "argoproj.io", "rollouts"),
    ("patch", "argoproj.io", "rollouts/status"),
    ("delete", "", "pods"),
    ("watch", "apps", "replicasets"),
    ("watch", "", "pods"),
)
FORBIDDEN = (
    ("list", "", "secrets"),
    ("get", "", "secrets"),
    ("delete", "apps", "deployments"),
    ("create", "apps", "deployments"),
    ("delete", "apps", "statefulsets"),
    ("patch", "apps", "replicasets"),
    ("patch", "", "pods"),
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


OWNERS = [kind for kind, workload in WORKLOADS.items() if workload.owner_channel is not None]


def rules_of(*values: str) -> list[Object]:
    objects = template(*values)
    found = [o for o in objects if o["kind"] in {"Role", "ClusterRole"}]
    return [rule for role in found for rule in role.get("rules") or ()]


def reach(rules: list[Object]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_owners_get_no_rights_unless_they_are_named() -> None:
    groups = {WORKLOADS[kind].resource.group for kind in OWNERS}
    assert OWNERS
    assert not groups & {group for group, _, _ in reach(rules_of())}


@pytest.mark.parametrize("kind", OWNERS)
def test_an_owner_that_is_named_can_be_read_and_patched_and_what_is_below_it_read(
    kind: str,
) -> None:
    workload, found = WORKLOADS[kind], reach(rules_of(f"owners={{{kind}}}"))
    root = workload.resource
    for verb in ("get", "list", "watch", "patch"):
        assert (root.group, root.plural, verb) in found
    for below in workload.between:
        assert (below.group, below.plural, "list") in found
    custom = {entry for entry in found - reach(rules_of()) if entry[1] != root.plural}
    assert not {entry for entry in custom if entry[2] not in {"get", "list"}}, "read only"


def test_an_owner_that_has_no_adapter_is_refused() -> None:
    done = helm("template", "specpilot", str(CHART), "--set", "owners={Deploymnt}")
    assert done.returncode != 0
    assert "owners" in done.stderr
