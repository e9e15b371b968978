"""Fixtures that every test may use, and what is told at the end."""

import hypothesis
import pytest

from tests.order import ordered

pytest_plugins = ["tests.cluster.fixtures"]

# A test is never about how fast this machine is just now.
hypothesis.settings.register_profile("specpilot", parent=hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("specpilot")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let a parallel run begin with what takes longest; one by one, files come as named."""
    if hasattr(config, "workerinput"):
        root = config.rootpath
        items[:] = ordered((item.path.relative_to(root), item) for item in items)


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
