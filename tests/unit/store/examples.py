"""Values for tests of the store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from specpilot.domain.audit import AuditDraft
from specpilot.domain.changes import ChangeReason, Evidence, FlagChange, Phase, RuleRef
from specpilot.domain.policy import PolicyRef
from specpilot.domain.rules import Rule, RuleSet
from specpilot.domain.settings import Declared
from specpilot.domain.targets import TargetRef

T0 = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def target(name: str = "vllm") -> TargetRef:
    return TargetRef(kind="Deployment", namespace="serving", name=name, container="engine")


def change(change_id: str = "chat-1", **values: object) -> FlagChange:
    base = FlagChange(
        id=change_id,
        policy=PolicyRef(namespace="serving", name="chat", uid="uid-chat"),
        target=target(),
        origin=Declared(setting="eagle3", config='{"method":"eagle3"}', change_id="chat-0"),
        wanted=Declared(setting="off", config="", change_id=change_id),
        rule=RuleRef(rule_set="hit-rate", version=3, rule="off-when-busy"),
        evidence=(
            Evidence(signal="batch_size", value=48.5, comparison=">", threshold=32.0, at=T0),
            Evidence(signal="acceptance_rate", value=None, reason="NoData"),
        ),
        phase=Phase.PENDING,
        reason=ChangeReason.RULE_FIRED,
        message="busy",
        created_at=T0,
        phase_since=T0,
    )
    return replace(base, **values)


def ended(change_id: str, phase: Phase = Phase.SUCCEEDED, **values: object) -> FlagChange:
    return change(change_id, **{"phase": phase, "ended_at": T0, **values})


def draft(action: str = "Proposed", **values: object) -> AuditDraft:
    base = AuditDraft(
        action=action,
        actor="rule:hit-rate@3/off-when-busy",
        namespace="serving",
        policy="chat",
        target="Deployment/serving/vllm",
        before={"setting": "eagle3", "depth": 3},
        after={"setting": "off"},
        reason="RuleFired",
        message="48.5 running requests > 32",
        evidence=({"signal": "batch_size", "value": 48.5, "small": 1e-300, "big": 1e300},),
        mode="Auto",
    )
    return replace(base, **values)


def rule_set(name: str = "hit-rate", *, busy: float = 32.0) -> RuleSet:
    return RuleSet(
        name=name,
        parameters={"busyBatch": busy},
        rules=(
            Rule(
                name="off-when-busy",
                when="batch_size > params.busyBatch",
                setting="off",
                hold=timedelta(minutes=5),
                min_drafts=1000,
            ),
        ),
    )
