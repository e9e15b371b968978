"""Fixtures that every test may use, and how tests share the machine."""

import pytest

pytest_plugins = ["tests.cluster.fixtures"]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares something costly.

    The tests of the cluster get two workers: each starts one cluster, and shares it. Of the other
    integration tests a file goes to one worker, which sets up its servers once.
    """
    for item in items:
        parts = item.path.parts
        if item.get_closest_marker("cluster"):
            group = "scenarios" if "scenarios" in parts else "cluster"
        elif "integration" in parts:
            group = item.path.stem
        else:
            continue
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was run on which engine version, as a table."""
    runs = [
        value
        for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
        for name, value in getattr(report, "user_properties", ())
        if name == "version run" and report.when == "call"
    ]
    if runs:
        terminalreporter.section("settings on engine versions")
        for version, setting, what, outcome in runs:
            terminalreporter.write_line(f"{version:8} {setting:10} {outcome}; {what}")
