"""What the operator writes of a flag change is what the schema allows."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from specpilot.domain.changes import (
    ChangeKind,
    ChangeReason,
    Evidence,
    FlagChange,
    Phase,
    RuleRef,
)
from specpilot.domain.policy import PolicyRef
from specpilot.domain.settings import Declared
from specpilot.domain.targets import TargetRef
from specpilot.resources import FlagChangeStatus, flag_change_from, read
from specpilot.resources.mirror import flag_change_spec, flag_change_status

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def change(**fields: Any) -> FlagChange:
    return FlagChange(
        **{
            "id": "chat-1",
            "policy": PolicyRef(namespace="serving", name="chat", uid="u"),
            "target": TargetRef(kind="Deployment", namespace="serving", name="vllm"),
            "origin": Declared(setting="eagle3", config='{"method":"eagle3"}', change_id="chat-0"),
            "wanted": Declared(setting="off", change_id="chat-1"),
            "phase": Phase.PENDING,
            "reason": ChangeReason.RULE_FIRED,
            "created_at": NOW,
            "phase_since": NOW,
            **fields,
        }
    )


CHANGES = [
    change(),
    change(kind=ChangeKind.PROBE, reason=ChangeReason.PROBE_DUE),
    change(
        rule=RuleRef(rule_set="hit-rate", version=3, rule="off-when-busy"),
        evidence=(
            Evidence(
                signal="batch_size",
                value=41.5,
                comparison=">",
                threshold=32,
                at=NOW,
                count=20,
                window_s=300,
            ),
            Evidence(signal="gpu_util", value=None, reason="NotExported", arm="canary"),
        ),
    ),
    change(
        phase=Phase.ROLLED_BACK,
        reason=ChangeReason.GUARDRAIL_BROKEN,
        undo_reason=ChangeReason.GUARDRAIL_BROKEN,
        ended_at=NOW + timedelta(minutes=20),
        decided_by="carol",
        message="tpot_mean rose by 14 %",
    ),
]


@pytest.mark.parametrize("given", CHANGES, ids=["plain", "probe", "rule", "ended"])
def test_a_mirrored_change_is_valid(given: FlagChange) -> None:
    document = read(
        {
            "apiVersion": "specpilot.io/v1alpha1",
            "kind": "FlagChange",
            "metadata": {"name": given.id, "namespace": "serving"},
            "spec": flag_change_spec(given),
        }
    )
    spec = flag_change_from(document)
    assert (spec.origin.setting, spec.wanted.setting) == ("eagle3", "off")
    assert len(spec.evidence) == len(given.evidence)
    status = FlagChangeStatus.model_validate_json(
        json.dumps(flag_change_status(given)), strict=True
    )
    assert (status.phase, status.reason) == (given.phase, given.reason)
