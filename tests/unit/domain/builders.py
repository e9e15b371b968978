"""Small builders, so that each test names only what it is about."""

from datetime import UTC, datetime, timedelta
from typing import Any

from specpilot.domain.changes import ChangeReason, FlagChange, Phase, Slice
from specpilot.domain.policy import Canary, Mode, Policy, PolicyRef
from specpilot.domain.readings import Reading, Readings
from specpilot.domain.settings import OFF, Declared, Setting
from specpilot.domain.targets import Replica, TargetRef, TargetState

T0 = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
REF = TargetRef(kind="Local", namespace="local", name="chat")
NGRAM = Setting(name="ngram", method="ngram", num_speculative_tokens=4)
OLD = Declared(setting="ngram", config='{"method":"ngram"}', change_id="old")
NEW = Declared(setting="off", config="", change_id="c1")


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def policy(**fields: Any) -> Policy:
    base: dict[str, Any] = {
        "ref": PolicyRef(namespace="local", name="chat", uid="u1"),
        "target": REF,
        "mode": Mode.AUTO,
        "rule_set": "hit-rate",
        "settings": {"off": OFF, "ngram": NGRAM},
        "canary": Canary(
            analysis=timedelta(seconds=60),
            min_drafts=100,
            min_requests=10,
            ready_within=timedelta(seconds=120),
        ),
    }
    return Policy(**(base | fields))


def replica(name: str, declared: Declared, *, ready: bool = True, **fields: Any) -> Replica:
    return Replica(
        id=name,
        instance=f"{name}-1",
        declared=declared,
        ready=ready,
        ready_since=T0 if ready else None,
        **fields,
    )


def state(declared: Declared, *replicas: Replica, **fields: Any) -> TargetState:
    base: dict[str, Any] = {
        "ref": REF,
        "declared": declared,
        "replicas": replicas,
        "desired_replicas": len(replicas),
        "user_template": "t1",
    }
    return TargetState(**(base | fields))


def change(phase: Phase = Phase.CANARY, **fields: Any) -> FlagChange:
    base: dict[str, Any] = {
        "id": "c1",
        "policy": PolicyRef(namespace="local", name="chat", uid="u1"),
        "target": REF,
        "origin": OLD,
        "wanted": NEW,
        "phase": phase,
        "reason": ChangeReason.RULE_FIRED,
        "created_at": T0,
        "phase_since": T0,
        "base_template": "t1",
        "seen_applied": True,
    }
    return FlagChange(**(base | fields))


def slices(*ratios: float, requests: float = 20, drafts: float = 0) -> tuple[Slice, ...]:
    """One slice per ratio of the canary's time per token to the control arm's."""
    return tuple(
        Slice(
            start=at(10 * i),
            end=at(10 * (i + 1)),
            canary={"tpot_mean": 0.02 * r, "tokens_per_second_per_request": 50 / r},
            control={"tpot_mean": 0.02, "tokens_per_second_per_request": 50.0},
            canary_requests=requests,
            control_requests=requests,
            canary_drafts=drafts,
        )
        for i, r in enumerate(ratios)
    )


def readings(**values: float) -> Readings:
    return Readings.of(Reading(signal=name, value=value) for name, value in values.items())
