"""How the servers of a group are run, as the local fleet reports it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from specpilot.domain.engine_run import EngineRun, Generation, ModelRunner
from specpilot.domain.targets import TargetRef
from specpilot.fleets.local.fleet import KIND, NAMESPACE, LocalFleet
from specpilot.fleets.local.spec import LocalGroup

DEFAULT = {"generation": Generation.DEFAULT, "runner": ModelRunner.DEFAULT, "data_parallel": 1}
VARIABLES = ("VLLM_USE_V1", "VLLM_USE_V2_MODEL_RUNNER", "VLLM_DP_SIZE")
SERVE = ("vllm", "serve", "m")


class Now:
    def now(self) -> datetime:
        return datetime(2026, 3, 2, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    reason: str
    want: dict[str, Any]
    command: tuple[str, ...] = SERVE
    group: dict[str, Any] = field(default_factory=dict)
    inherited: dict[str, str] = field(default_factory=dict)
    file: str = ""


CASES = [
    Case("by default", {}),
    Case("ranks", {"data_parallel": 2}, (*SERVE, "-dp", "2")),
    Case("placeholders are no flags", {"data_parallel": 2},
         (*SERVE, "--port", "{port}", "{speculation}", "-dp", "2")),
    Case("a script", {"data_parallel": 2},
         ("sh", "-c", "exec vllm serve m --port {port} {speculation} -dp 2")),
    Case("a file", {"data_parallel": 2}, (*SERVE, "--config", "e.yaml"),
         file="data-parallel-size: 2"),
    Case("a file that is not there", {"data_parallel": None}, (*SERVE, "--config", "e.yaml")),
    Case("of the group", {"generation": Generation.V0}, group={"env": {"VLLM_USE_V1": "0"}}),
    Case("of the supervisor", {"runner": ModelRunner.V1},
         inherited={"VLLM_USE_V2_MODEL_RUNNER": "0"}),
    Case("the group's wins", {"generation": Generation.V1}, group={"env": {"VLLM_USE_V1": "1"}},
         inherited={"VLLM_USE_V1": "0"}),
    Case("servers that are run alike", {"generation": Generation.V0},
         group={"replicas": 2, "replica_env": ({"VLLM_USE_V1": "0", "GPU": "0"},
                                               {"VLLM_USE_V1": "0", "GPU": "1"})}),
    Case("servers that are not: nothing holds for all",
         {"generation": Generation.UNKNOWN, "runner": ModelRunner.UNKNOWN, "data_parallel": None},
         group={"replicas": 2, "replica_env": ({"VLLM_USE_V1": "0"}, {"VLLM_USE_V1": "1"})}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_how_a_group_is_run(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in case.inherited.items():
        monkeypatch.setenv(name, value)
    if case.file:
        (tmp_path / "e.yaml").write_text(case.file)
    group = LocalGroup(
        name="chat", command=case.command, cwd=tmp_path, engine_version="0.24.0", **case.group
    )
    fleet = LocalFleet([group], state_dir=tmp_path / "state", clock=Now())
    found = fleet.observe(TargetRef(kind=KIND, namespace=NAMESPACE, name="chat"))
    assert found.engine == EngineRun(version="0.24.0", **(DEFAULT | case.want))
