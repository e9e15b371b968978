"""Prometheus discovers annotated pods, labels what it scrapes, and may go away for a while."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.manifests import container, deployment
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.cluster

SCRAPED = {"prometheus.io/scrape": "true", "prometheus.io/port": "8000"}


def test_pods_are_scraped_and_samples_survive_a_stop(cluster: Cluster, namespace: str) -> None:
    manifest = deployment("web", container(), replicas=2, annotations=SCRAPED)
    cluster.api.create(manifest, namespace=namespace)
    query = f'workload_requests_total{{namespace="{namespace}"}}'
    series = wait_for(
        lambda: found if len(found := cluster.prometheus.query(query)) == 2 else None,
        describe=lambda: f"{cluster.prometheus.targets()}\n{cluster.describe(namespace)}",
    )
    pods = {one["metadata"]["name"]: one for one in cluster.pods(namespace)}
    assert {one["metric"]["pod"] for one in series} == set(pods)
    for one in series:
        assert one["metric"]["container"] == "main"
        assert one["metric"]["node"] == pods[one["metric"]["pod"]]["spec"]["nodeName"]

    url = cluster.prometheus.url
    before = cluster.prometheus.query(f"min(min_over_time({query}[5m]))")[0]["value"][1]
    cluster.prometheus.stop()
    cluster.prometheus.start()
    assert cluster.prometheus.url == url
    after = wait_for(
        lambda: cluster.prometheus.query(f"min(min_over_time({query}[5m]))"),
        describe="the samples from before the stop",
    )
    assert float(after[0]["value"][1]) <= float(before)


def test_pods_without_the_annotation_are_left_alone(cluster: Cluster, namespace: str) -> None:
    cluster.api.create(deployment("silent", container()), namespace=namespace)
    cluster.api.create(deployment("loud", container(), annotations=SCRAPED), namespace=namespace)
    query = f'workload_requests_total{{namespace="{namespace}"}}'
    series = wait_for(lambda: cluster.prometheus.query(query), describe="the annotated pod")
    assert [one["metric"]["pod"].startswith("loud") for one in series] == [True]
