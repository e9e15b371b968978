"""pytest fixtures: one cluster for the whole session, a namespace for each test.

A ``conftest.py`` at the top of the tests takes them with ``pytest_plugins``.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from tests.cluster import build
from tests.cluster.cluster import Cluster


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test: a cold build takes longer than a test may."""
    if session.config.option.collectonly:
        return
    marks = [mark for item in session.items if (mark := item.get_closest_marker("cluster"))]
    if marks:
        build.tools()
    if any(mark.kwargs.get("rollouts") for mark in marks):
        build.tool(build.ROLLOUTS)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running cluster, shared by all tests: what a test makes belongs into its namespace."""
    with Cluster(directory=tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace named after the test, emptied afterwards."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_")).strip("-")
    with cluster.namespace(f"{words[:40].strip('-')}-{uuid.uuid4().hex[:6]}") as name:
        yield name


@pytest.fixture
def isolated(cluster: Cluster) -> None:
    """For a test whose pods rely on mount paths, PID 1 or in-cluster credentials."""
    if not cluster.isolated:
        pytest.skip("no namespaces for this user: run as root, or see tests/cluster/README.md")
