"""The controller's benchmark, with few policies: it counts what happens, and what may be asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.controller import report
from bench.controller.__main__ import run
from bench.controller.audit import AuditLog
from bench.controller.measure import Plan
from specpilot.fleets.kubernetes.autoscaling import FRESH_S

pytestmark = pytest.mark.cluster

POLICIES = 20
PLAN = Plan(interval_s=3.0, steady_s=12.0, flipping_s=45.0)
QUERIES = 2
"""Of a round without GPU signals: who is there, and all the rest."""
READ_FOR_ALL = {"list nodes", "list horizontalpodautoscalers"}
"""One list for all targets, kept for a while: whether one comes while we look is chance."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("bench")
    return run(directory, policies=[POLICIES], plan=PLAN, postgresql="")


def test_at_rest_nothing_is_read_or_written_for_a_policy(found: dict[str, Any]) -> None:
    [size] = found["sizes"]
    steady = size["steady"]
    assert steady["ticks"] >= 2
    # A window that cuts a tick in two may hold the queries of one more.
    assert steady["queries"] <= QUERIES * (steady["ticks"] + 1)
    read = {k: n for k, n in steady["by_kind"].items() if k.startswith(("get ", "list "))}
    assert set(read) <= READ_FOR_ALL
    assert all(n <= steady["seconds"] / FRESH_S + 1 for n in read.values()), read
    written = {k for k in steady["by_kind"] if k.startswith(("create ", "patch ", "update "))}
    assert written <= {"patch speculationpolicies/status"}, "readings, now and then"
    assert steady["reads_per_policy_and_tick"] <= report.READS
    assert steady["writes"] <= POLICIES, "each policy's readings once a minute at most"
    assert steady["refused"] == 0


def test_a_risen_load_is_seen_and_its_target_is_flipped(found: dict[str, Any]) -> None:
    [size] = found["sizes"]
    assert size["chosen"] == 1
    assert sum(size["flips"].values()) == 1
    flipping = size["flipping"]
    assert flipping["queries"] <= (QUERIES + 1) * (flipping["ticks"] + 1)
    kinds = flipping["by_kind"]
    assert kinds["patch deployments"] <= 3, "the canary, its hold, and the rest"
    assert kinds.get("get deployments", 0) <= 10, "not each second"
    assert flipping["refused"] == 0
    reaction = size["reaction"]
    assert reaction["seen"] == 1
    assert reaction["max_s"] < 45
    assert size["canary"]["seen"] == 1
    assert size["canary"]["max_s"] >= reaction["max_s"], "the change is shown, then carried out"


def test_the_report_prints_every_target_with_the_peers_beside_it(found: dict[str, Any]) -> None:
    json.dumps(found)
    console = Console(record=True, width=160)
    report.show(found, console)
    text = console.export_text()
    assert "Flagger 1.36.1" in text
    assert text.count(f"{POLICIES} policies") >= len([*report.targets(found)])


def test_a_line_that_is_still_being_written_is_read_next_time(tmp_path: Path) -> None:
    event = {
        "verb": "patch",
        "stage": "ResponseComplete",
        "requestReceivedTimestamp": "2026-11-29T12:00:00.5Z",
        "objectRef": {"resource": "deployments", "namespace": "a", "name": "b"},
        "responseStatus": {"code": 200},
    }
    line = json.dumps(event)
    path = tmp_path / "audit.log"
    log = AuditLog(path)
    assert log.news() == []
    path.write_text(f"{line}\n{line[:40]}")
    assert [r.resource for r in log.news()] == ["deployments"]
    path.write_text(f"{line}\n{line}\n")
    assert len(log.news()) == 1
