"""The Deployment controller's arithmetic."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from specpilot.fleets.kubernetes.objects import slim_replica_set
from specpilot.fleets.kubernetes.request import REPLICA_SETS
from specpilot.fleets.kubernetes.workloads.base import Family
from specpilot.fleets.kubernetes.workloads.deployment import DeploymentWorkload, new_replica_set
from tests.unit.fleets_kubernetes.fakes import THEN, deployment, pod, replica_set

DEPLOYMENT = DeploymentWorkload()


def strategy(surge: object, unavailable: object) -> dict[str, Any]:
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    }


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "want", "reason"),
    [
        (4, "25%", "25%", (1, 1), "a quarter of four"),
        (1, "25%", "25%", (1, 0), "surge rounds up, unavailable down"),
        (3, "25%", "25%", (1, 0), "0.75"),
        (8, "25%", "25%", (2, 2), "even"),
        (10, "33%", "0%", (4, 0), "3.3"),
        (1, 0, "25%", (0, 1), "both zero: one has to go"),
        (5, 2, 1, (2, 1), "plain numbers"),
        (3, "100%", 0, (3, 0), "all at once"),
    ],
)
def test_fenceposts(
    replicas: int, surge: object, unavailable: object, want: tuple[int, int], reason: str
) -> None:
    root = deployment(replicas=replicas, strategy=strategy(surge, unavailable))
    assert DEPLOYMENT.fenceposts(root) == want, reason


def test_fenceposts_default_to_a_quarter() -> None:
    root = deployment(replicas=4, strategy={"type": "RollingUpdate"})
    assert DEPLOYMENT.fenceposts(root) == (1, 1)


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "room", "want", "reason"),
    [
        (1, 1, 0, True, True, "a second one beside the only one"),
        (1, 1, 0, False, False, "surge deadlock: no GPU for the second"),
        (1, 1, 1, True, False, "the only one is stopped at once, surge or not"),
        (1, 0, 1, True, False, "downtime"),
        (1, 0, "25%", True, False, "downtime by rounding"),
        (3, 1, 0, True, True, "beside the others"),
        (3, 1, 0, False, False, "it would wait for ever"),
        (3, 0, 1, False, True, "one makes room for its successor, as the user allows"),
        (4, "25%", "25%", False, True, "the same with surge that cannot come"),
    ],
)
def test_can_add_replica(
    *, replicas: int, surge: object, unavailable: object, room: bool, want: bool, reason: str
) -> None:
    family = Family(root=deployment(replicas=replicas, strategy=strategy(surge, unavailable)))
    assert DEPLOYMENT.can_add_replica(family, lambda _: room) is want, reason


def test_recreate_never_adds_one() -> None:
    family = Family(root=deployment(strategy={"type": "Recreate"}))
    assert not DEPLOYMENT.can_add_replica(family, lambda _: True)
    assert not DEPLOYMENT.must_surge(family)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, 600.0),
        ({"progressDeadlineSeconds": 1200}, 1200.0),
        ({"progressDeadlineSeconds": 2147483647}, 0.0),
    ],
)
def test_progress_deadline(spec: dict[str, Any], want: float) -> None:
    assert DEPLOYMENT.progress_deadline_s(deployment(**spec)) == want


@dataclass(frozen=True)
class Roll:
    reason: str
    status: dict[str, Any]
    said: str
    old: int = 0
    pods: tuple[dict[str, Any], ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


ROLLS = [
    Roll("at rest", {}, ""),
    Roll("pods of the present template", {}, "", pods=(pod(),)),
    Roll(
        "a terminating old pod does not count",
        {},
        "",
        pods=(pod(replica_set_uid="rs-0", metadata={"deletionTimestamp": THEN}),),
    ),
    Roll("not seen by the controller", {}, "has not acted", metadata={"generation": 5}),
    Roll("half way", {"updatedReplicas": 1}, "1 of 3 replicas are of the latest template"),
    Roll(
        "all new ones are there and one old one stays",
        {"replicas": 4},
        "1 of an older template are still there",
    ),
    Roll("an old pod remains", {}, "1 of an older template", pods=(pod(replica_set_uid="rs-0"),)),
    Roll("an old ReplicaSet still has pods", {}, "2 of an older template", old=2),
    Roll("scaled up", {"replicas": 2, "updatedReplicas": 2}, "2 replicas exist and 3 are wanted"),
    Roll("one is not available", {"availableReplicas": 2}, "2 of 3 are available"),
    Roll(
        "quota",
        {
            "conditions": [
                {
                    "type": "ReplicaFailure",
                    "status": "True",
                    "reason": "FailedCreate",
                    "message": "exceeded quota: gpus",
                }
            ]
        },
        "FailedCreate: exceeded quota: gpus",
    ),
    Roll(
        "deadline",
        {
            "conditions": [
                {
                    "type": "Progressing",
                    "status": "False",
                    "reason": "ProgressDeadlineExceeded",
                    "message": "timed out",
                }
            ]
        },
        "ProgressDeadlineExceeded: timed out",
    ),
]


@pytest.mark.parametrize("case", ROLLS, ids=lambda case: case.reason)
def test_rolling(case: Roll) -> None:
    found = deployment(status=case.status, metadata=case.metadata)
    sets = [replica_set(found)]
    if case.old:
        sets.append(replica_set(found, uid="rs-0", replicas=case.old, setting="old"))
    family = Family(root=found, members={REPLICA_SETS: tuple(sets)}, pods=case.pods)
    words = DEPLOYMENT.rolling(family)
    assert case.said in words
    assert bool(words) is bool(case.said)


def test_the_new_replica_set_is_the_one_of_the_same_template() -> None:
    found = deployment(annotations={"specpilot.io/setting": "ngram"})
    old, new = replica_set(found, uid="a", setting="off"), replica_set(found, uid="b")
    assert new_replica_set(found, [old, new]) is new
    kept = [slim_replica_set(old), slim_replica_set(new)]
    assert new_replica_set(found, kept) is kept[1], "the same from what the caches keep"
    other = deployment(annotations={"specpilot.io/setting": "eagle3"})
    assert new_replica_set(other, [old, new]) is None
