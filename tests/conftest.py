"""Fixtures that every test may use, and how tests share the machine."""

import pytest

pytest_plugins = ["tests.cluster.fixtures"]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of the cluster two workers: each starts one cluster, and shares it."""
    for item in items:
        if item.get_closest_marker("cluster"):
            scenario = "scenarios" in item.path.parts
            item.add_marker(pytest.mark.xdist_group("scenarios" if scenario else "cluster"))
