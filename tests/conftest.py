"""Fixtures that every test may use, and how tests share the machine."""

import pytest

pytest_plugins = ["tests.cluster.fixtures"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of the cluster on one worker: it is started once, and shared."""
    for item in items:
        if item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.xdist_group("cluster"))
