"""Helm installs into the test cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster


def test_a_chart_is_installed(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: small\nversion: 1.0.0\n")
    (tmp_path / "templates" / "map.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: made}\n"
        "data: {who: {{ .Release.Name }}, kubernetes: {{ .Capabilities.KubeVersion.Version }}}\n"
    )
    cluster.run("helm", "install", "first", str(tmp_path), "--namespace", namespace, "--wait")
    made = cluster.api.get("v1", "ConfigMap", name="made", namespace=namespace)
    assert made["data"] == {"who": "first", "kubernetes": "v1.37.2"}
    releases = json.loads(cluster.run("helm", "list", "-n", namespace, "-o", "json"))
    assert [(one["name"], one["status"]) for one in releases] == [("first", "deployed")]
