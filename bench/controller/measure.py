"""One size: start the operator, let it settle, measure at rest, then while targets flip."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

from bench.controller import audit, fleet
from bench.controller.audit import Sent
from bench.controller.rig import Asked, Rig
from bench.controller.steering import Account, Operator
from tests.cluster.waiting import wait_for

JsonObject = dict[str, Any]

FLIPPING = 0.05
"""Share of the targets whose load rises."""
_GOLDEN = (5**0.5 - 1) / 2
"""Spreads loads over the span so that no two rise at about the same moment of an interval: any of
its successive multiples do, those of a few namespaces as well as all."""
_SETTLING_TICKS = 4
_WORKLOADS = frozenset({"deployments"})
_WRITTEN = _WORKLOADS | {"flagchanges"}
"""Not statuses: the readings in them are written now and then, whatever happens."""


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
        steady, phases = _at_rest(rig, operator, targets=targets, plan=plan)
        flips = _flips(rig, operator, targets=targets, plan=plan, phases=phases)
    finally:
        operator.stop()
    return {"targets": targets, "started_s": started_s, "steady": steady, **flips}


def _steered(rig: Rig) -> int:
    """Policies whose status says that they are steered."""
    return sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))
        for status in (policy.get("status") or {} for policy in rig.policies())
    )


def _at_rest(
    rig: Rig, operator: Operator, *, targets: int, plan: Plan
) -> tuple[JsonObject, dict[str, float]]:
    """What the operator takes and asks from now on, and when in an interval it looks where."""
    rig.audit.news()
    rig.asked()
    before = operator.account()
    time.sleep(plan.steady_s)
    after = operator.account()
    asked, requests = rig.asked(), rig.audit.news()
    costs = _costs(before, after, asked=asked, requests=requests, targets=targets)
    return costs, {ns: at % plan.interval_s for at, names in asked.looks for ns in names}


def _costs(
    before: Account, after: Account, *, asked: Asked, requests: list[Sent], targets: int
) -> JsonObject:
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
        "queries": asked.queries,
        "queries_per_tick": asked.queries / max(1, ticks),
        "body_mb": asked.body_bytes / 1e6,
        "reads": reads,
        "writes": writes,
        "reads_per_policy_and_tick": reads / each,
        "writes_per_policy_and_tick": writes / each,
        "requests_per_s": len(counted) / seconds,
        "refused": sum(r.code >= 400 for r in counted),
        "by_kind": audit.table(counted),
    }


def _flips(
    rig: Rig, operator: Operator, *, targets: int, plan: Plan, phases: dict[str, float]
) -> JsonObject:
    """Let the load of some targets rise, spread evenly over two intervals.

    Evenly among those that are looked at together, too: the wait for the next look is then the same
    in every run, and the rest of a reaction is the operator's.

    Args:
        rig: Where.
        operator: Who has to see it.
        targets: How many there are.
        plan: How long to look.
        phases: When in an interval the targets of each namespace are looked at.
    """
    calm = {
        policy["metadata"]["name"]
        for policy in rig.policies()
        if (policy.get("status") or {}).get("active") == "ngram"
    }
    able = [i for i in range(targets) if fleet.workload(i) in calm]
    # By chance, and the same each time: every tenth would be those of a few namespaces.
    chosen = random.Random(targets).sample(able, max(1, round(targets * FLIPPING)))
    chosen.sort(key=lambda i: phases.get(fleet.namespace(i), 0.0))
    span = 2 * plan.interval_s
    begin = time.time() + 2.0
    moments = {i: begin + span * (n * _GOLDEN % 1.0) for n, i in enumerate(chosen)}
    rig.audit.news()
    rig.asked()
    before = operator.account()
    rig.raise_load(moments)
    time.sleep(plan.flipping_s)
    after = operator.account()
    asked, requests = rig.asked(), rig.audit.news()
    names = {fleet.workload(i) for i in chosen}
    ended = [
        (change.get("status") or {}).get("phase", "")
        for change in rig.changes()
        if change["spec"]["policy"] in names
    ]
    seen_at = _looked_at(moments, asked.looks)
    written_at = _written_at(requests, seen_at, of=_WRITTEN)
    return {
        "flipping": _costs(before, after, asked=asked, requests=requests, targets=targets),
        "flips": {phase: ended.count(phase) for phase in sorted(set(ended))},
        "chosen": len(chosen),
        "waited": _delays(seen_at, moments),
        "reaction": _delays(written_at, moments),
        "after_look": _delays(written_at, seen_at),
        "canary": _delays(_written_at(requests, seen_at, of=_WORKLOADS), moments),
    }


def _looked_at(moments: dict[int, float], looks: list[tuple[float, list[str]]]) -> dict[int, float]:
    """The moment of the first look at each target since its load rose."""
    by_namespace: dict[str, list[float]] = {}
    for at, names in sorted(looks):
        for name in names:
            by_namespace.setdefault(name, []).append(at)
    found = {}
    for number, risen in moments.items():
        since = (at for at in by_namespace.get(fleet.namespace(number), ()) if at >= risen)
        if (first := next(since, None)) is not None:
            found[number] = first
    return found


def _written_at(
    requests: list[Sent], since: dict[int, float], *, of: frozenset[str]
) -> dict[int, float]:
    """The moment of the first write, since another moment, of an object about each target."""
    first: dict[int, float] = {}
    by_workload = {fleet.workload(i): i for i in since}
    for request in sorted(requests, key=lambda each: each.at):
        if request.verb not in audit.WRITES or request.resource not in of:
            continue
        # A flag change is named after its policy, with a moment and chance added.
        name = request.name if request.resource != "flagchanges" else request.name[:10]
        number = by_workload.get(name)
        if number is not None and request.at >= since[number]:
            first.setdefault(number, request.at)
    return first


def _delays(first: dict[int, float], since: dict[int, float]) -> JsonObject:
    """Seconds that passed, over all targets where both are known."""
    delays = sorted(at - since[number] for number, at in first.items() if number in since)
    if not delays:
        return {"seen": 0}
    return {
        "seen": len(delays),
        "mean_s": statistics.mean(delays),
        "median_s": statistics.median(delays),
        "p90_s": delays[min(len(delays) - 1, round(0.9 * len(delays)))],
        "max_s": delays[-1],
    }
