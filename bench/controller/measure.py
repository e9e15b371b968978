"""One size: start the operator, let it settle, measure at rest, then while targets flip."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

from bench.controller import audit, fleet
from bench.controller.audit import Sent
from bench.controller.rig import Rig
from bench.controller.steering import Account, Operator
from tests.cluster.waiting import wait_for

JsonObject = dict[str, Any]

FLIPPING = 0.05
"""Share of the targets whose load rises."""
_GOLDEN = (5**0.5 - 1) / 2
"""Spreads loads over the span so that no two rise at about the same moment of an interval."""
_SETTLING_TICKS = 4
_WORKLOADS = frozenset({"deployments"})
_WRITTEN = _WORKLOADS | {"speculationpolicies/status", "flagchanges"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to look.

    Attributes:
        interval_s: Seconds between evaluations.
        steady_s: Seconds of the measurement at rest.
        flipping_s: Seconds of the measurement while targets flip, from the first risen load.
    """

    interval_s: float
    steady_s: float
    flipping_s: float


def measure(rig: Rig, *, targets: int, plan: Plan, database: str) -> JsonObject:
    """Measure one operator over this many targets; the rig holds them already."""
    operator = Operator(
        directory=rig.directory,
        name=f"operator-{targets}",
        kubeconfig=rig.kubeconfig,
        database=database,
        prometheus=rig.prometheus,
        interval_s=plan.interval_s,
    )
    began = time.monotonic()
    operator.start()
    try:
        wait_for(
            lambda: _steered(rig) >= targets,
            deadline=180 + targets / 5,
            every=min(5.0, plan.interval_s),
            describe=lambda: f"{_steered(rig)} of {targets} are steered\n{operator.process.tail()}",
        )
        started_s = time.monotonic() - began
        time.sleep(_SETTLING_TICKS * plan.interval_s)
        steady = _during(rig, operator, targets=targets, seconds=plan.steady_s)
        flips = _flips(rig, operator, targets=targets, plan=plan)
    finally:
        operator.stop()
    return {"targets": targets, "started_s": started_s, "steady": steady, **flips}


def _steered(rig: Rig) -> int:
    """Policies whose status says that they are steered."""
    return sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))
        for status in (policy.get("status") or {} for policy in rig.policies())
    )


def _during(rig: Rig, operator: Operator, *, targets: int, seconds: float) -> JsonObject:
    """What the operator takes and asks in some seconds from now."""
    rig.audit.news()
    rig.asked()
    before = operator.account()
    time.sleep(seconds)
    after = operator.account()
    return _costs(rig, before, after, requests=rig.audit.news(), targets=targets)


def _costs(
    rig: Rig, before: Account, after: Account, *, requests: list[Sent], targets: int
) -> JsonObject:
    asked = rig.asked()
    seconds, ticks = after.at - before.at, after.ticks - before.ticks
    # The lease is renewed by the clock, whatever there is to steer.
    counted = [r for r in requests if r.resource != "leases"]
    reads = sum(r.verb in audit.READS for r in counted)
    writes = sum(r.verb in audit.WRITES for r in counted)
    each = max(1, ticks) * targets
    return {
        "seconds": seconds,
        "ticks": ticks,
        "late_ticks": after.late - before.late,
        "real_interval_s": seconds / max(1, ticks),
        "tick_s": (after.tick_s - before.tick_s) / max(1, ticks),
        "cpu_s_per_tick": (after.cpu_s - before.cpu_s) / max(1, ticks),
        "cores": (after.cpu_s - before.cpu_s) / seconds,
        "rss_mb": after.rss_mb,
        "peak_mb": after.peak_mb,
        "queries": len(asked.queries),
        "queries_per_tick": len(asked.queries) / max(1, ticks),
        "body_mb": asked.body_bytes / 1e6,
        "reads": reads,
        "writes": writes,
        "reads_per_policy_and_tick": reads / each,
        "writes_per_policy_and_tick": writes / each,
        "requests_per_s": len(counted) / seconds,
        "refused": sum(r.code >= 400 for r in counted),
        "by_kind": audit.table(counted),
    }


def _flips(rig: Rig, operator: Operator, *, targets: int, plan: Plan) -> JsonObject:
    """Let the load of some targets rise, spread evenly over two intervals."""
    calm = {
        policy["metadata"]["name"]
        for policy in rig.policies()
        if (policy.get("status") or {}).get("active") == "ngram"
    }
    able = [i for i in range(targets) if fleet.workload(i) in calm]
    # By chance, and the same each time: every tenth would be those of a few namespaces.
    chosen = random.Random(targets).sample(able, max(1, round(targets * FLIPPING)))
    span = 2 * plan.interval_s
    begin = time.time() + 2.0
    moments = {i: begin + span * (n * _GOLDEN % 1.0) for n, i in enumerate(chosen)}
    rig.audit.news()
    rig.asked()
    before = operator.account()
    rig.raise_load(moments)
    time.sleep(plan.flipping_s)
    after = operator.account()
    requests = rig.audit.news()
    flipping = _costs(rig, before, after, requests=requests, targets=targets)
    names = {fleet.workload(i) for i in chosen}
    phases = [
        (change.get("status") or {}).get("phase", "")
        for change in rig.changes()
        if change["spec"]["policy"] in names
    ]
    return {
        "flipping": flipping,
        "flips": {phase: phases.count(phase) for phase in sorted(set(phases))},
        "chosen": len(chosen),
        "reaction": _reaction(requests, moments, of=_WRITTEN),
        "canary": _reaction(requests, moments, of=_WORKLOADS),
    }


def _reaction(requests: list[Sent], moments: dict[int, float], *, of: frozenset[str]) -> JsonObject:
    """Seconds from a risen load to the first write of such an object that is about its target."""
    first: dict[int, float] = {}
    by_workload = {fleet.workload(i): i for i in moments}
    for request in requests:
        if request.verb not in audit.WRITES or request.resource not in of:
            continue
        # A flag change is named after its policy, with a moment and chance added.
        name = request.name if request.resource != "flagchanges" else request.name[:10]
        number = by_workload.get(name)
        if number is not None and request.at >= moments[number]:
            first.setdefault(number, request.at - moments[number])
    delays = sorted(first.values())
    if not delays:
        return {"seen": 0}
    return {
        "seen": len(delays),
        "median_s": statistics.median(delays),
        "p90_s": delays[min(len(delays) - 1, round(0.9 * len(delays)))],
        "max_s": delays[-1],
    }
