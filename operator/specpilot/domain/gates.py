"""Gates: may this proposal go ahead now? A chain of pure checks; the first that objects stops it.

Each answers in words that a user with nothing but kubectl can act on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from specpilot.domain.batch_limits import resume
from specpilot.domain.changes import ChangeKind, FlagChange, Phase
from specpilot.domain.economics import engine_of
from specpilot.domain.policy import Mode, Policy
from specpilot.domain.readings import Reading
from specpilot.domain.settings import Setting
from specpilot.domain.targets import TargetState


class GateReason(StrEnum):
    """Which gate objects."""

    MODE_OFF = "ModeOff"
    PAUSED = "Paused"
    TARGET_PROBLEM = "TargetProblem"
    CHANGE_IN_FLIGHT = "ChangeInFlight"
    ROLLOUT_IN_PROGRESS = "RolloutInProgress"
    SCALING = "Scaling"
    NO_REPLICAS = "NoReplicas"
    SETTING_REFUSED = "SettingRefused"
    SETTING_CHANGED = "SettingChanged"
    NO_DATA = "NoData"
    BATCH_LIMIT = "BatchLimit"
    FROZEN = "Frozen"
    CONTESTED = "Contested"
    COOLDOWN = "Cooldown"
    CONCURRENT_LIMIT = "ConcurrentLimit"
    DISAGGREGATED = "Disaggregated"
    RECENTLY_FAILED = "RecentlyFailed"
    BUDGET_SPENT = "BudgetSpent"
    WOULD_DEADLOCK = "WouldDeadlock"
    NEEDS_DOWNTIME = "NeedsDowntime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Everything the gates look at.

    Attributes:
        policy: The policy.
        state: The target as it is.
        setting: What is proposed.
        active: What runs now.
        config: What the engine would be told for it.
        refused: Why the engine's version cannot run it, "" when it can.
        limit: Running requests per replica above which it is not to run, where the engine would
            run it all the same; None otherwise.
        batch: Running requests per replica now; None when Unknown.
        unknown: What it rested on when it was made and is Unknown now; empty while it is made.
        kind: Rule or probe.
        history: Ended changes of this target, newest first, of at least a day; failures and
            successes of longer.
        frozen: Words when a freeze window is open, "" otherwise.
        contested: Words when our value was undone too often, "" otherwise.
        elsewhere: Changes of other targets that are in flight.
        most: How many may be in flight at a time; None is any number.
        now: The time.
    """

    policy: Policy
    state: TargetState
    setting: Setting
    active: Setting
    config: str
    refused: str
    limit: int | None = None
    batch: float | None = None
    unknown: Sequence[Reading] = ()
    kind: ChangeKind
    history: Sequence[FlagChange]
    frozen: str
    contested: str = ""
    elsewhere: int = 0
    most: int | None = None
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """A gate's No."""

    reason: GateReason
    message: str


def _mode(p: Proposal) -> Objection | None:
    if p.policy.mode is Mode.OFF:
        return Objection(reason=GateReason.MODE_OFF, message="spec.mode is Off")
    return None


def _paused(p: Proposal) -> Objection | None:
    if p.policy.paused:
        return Objection(
            reason=GateReason.PAUSED, message="spec.paused is true; set it to false to go on"
        )
    return None


def _problem(p: Proposal) -> Objection | None:
    if p.state.problem is not None:
        return Objection(reason=GateReason.TARGET_PROBLEM, message=p.state.problem.message)
    return None


def _rolling(p: Proposal) -> Objection | None:
    if p.state.rolling:
        return Objection(reason=GateReason.ROLLOUT_IN_PROGRESS, message=p.state.rolling)
    if p.state.scaling:
        return Objection(reason=GateReason.SCALING, message=p.state.scaling)
    if p.state.halted:
        return Objection(
            reason=GateReason.ROLLOUT_IN_PROGRESS,
            message="a roll is held after its first replicas; finish or undo it",
        )
    return None


def _replicas(p: Proposal) -> Objection | None:
    ready = [r for r in p.state.live() if r.ready]
    if not ready:
        return Objection(
            reason=GateReason.NO_REPLICAS,
            message=f"none of {p.state.desired_replicas} replicas is ready to compare with",
        )
    return None


def _refused(p: Proposal) -> Objection | None:
    if p.refused:
        return Objection(
            reason=GateReason.SETTING_REFUSED, message=f"setting {p.setting.name}: {p.refused}"
        )
    return None


def _no_data(p: Proposal) -> Objection | None:
    """A proposal that waited must not begin blind: nobody could tell whether it helps or harms."""
    if not p.unknown:
        return None
    signals = "; ".join(
        f"{r.signal} is Unknown ({r.reason}{f': {r.message}' if r.message else ''})"
        for r in p.unknown
    )
    return Objection(
        reason=GateReason.NO_DATA,
        message=f"what it was proposed on is not known now: {signals}",
    )


def _batch_limit(p: Proposal) -> Objection | None:
    if p.limit is None or p.batch is None or p.batch < resume(p.limit):
        return None
    return Objection(
        reason=GateReason.BATCH_LIMIT,
        message=f"setting {p.setting.name} is not to run above a batch of {p.limit} "
        f"(disableAboveBatchSize), which this engine would not keep to by itself; it may come back "
        f"when batch_size is below {resume(p.limit):g} (it is {p.batch:.1f})",
    )


def _disaggregated(p: Proposal) -> Objection | None:
    """Both halves of a pair that hands its KV cache over need the same drafter; depth is free."""
    before, after = p.active, p.setting
    same = (before.method, before.model) == (after.method, after.model)
    if not p.state.kv_transfer or same:
        return None
    return Objection(
        reason=GateReason.DISAGGREGATED,
        message=f"the engine hands its KV cache over (--kv-transfer-config), so that going from "
        f"{before.name} to {after.name} would leave the pair with unlike drafters; only settings "
        "of the same method and model can be switched between, with another depth",
    )


def _contested(p: Proposal) -> Objection | None:
    if p.contested:
        return Objection(reason=GateReason.CONTESTED, message=p.contested)
    return None


def _concurrent(p: Proposal) -> Objection | None:
    if p.most is None or p.elsewhere < p.most:
        return None
    return Objection(
        reason=GateReason.CONCURRENT_LIMIT,
        message=f"{p.elsewhere} changes of other targets are in flight, and the operator allows "
        f"{p.most} at a time; it waits for one to end",
    )


def _frozen(p: Proposal) -> Objection | None:
    if p.frozen:
        return Objection(reason=GateReason.FROZEN, message=p.frozen)
    return None


def _cooldown(p: Proposal) -> Objection | None:
    ended = [c.ended_at for c in p.history if c.ended_at and _replaced_replicas(c)]
    if not ended:
        return None
    until = max(ended) + p.policy.limits.cooldown
    if p.now >= until:
        return None
    return Objection(
        reason=GateReason.COOLDOWN, message=f"cooling down until {until:%Y-%m-%d %H:%M:%S} UTC"
    )


def _replaced_replicas(change: FlagChange) -> bool:
    return change.phase in {Phase.SUCCEEDED, Phase.ROLLED_BACK, Phase.ABORTED}


_UNWANTED = {Phase.ROLLED_BACK: "rolled back", Phase.REJECTED: "rejected"}
"""Ends of a change after which its setting is not proposed again at once, and the word for each."""


_DOUBLINGS = 20
"""More would overflow, and 20 make a second more than a day."""


LONGEST = timedelta(days=7)
"""Longest time after which a setting that failed is tried again."""


def _recently_failed(p: Proposal) -> Objection | None:
    """A setting that failed is not tried again at once, each time later.

    What failed is the setting as this engine and this template ran it: when its config, the
    engine's version or the workload has changed since, it starts afresh.
    """
    if p.kind is ChangeKind.PROBE:
        return None  # probes have a back-off of their own
    failures: list[FlagChange] = []
    for change in p.history:
        if not _same(change, p) or change.kind is ChangeKind.PROBE:
            continue
        if change.phase is Phase.SUCCEEDED:
            break
        if change.phase in _UNWANTED and change.ended_at is not None:
            failures.append(change)
    if not failures:
        return None
    newest = failures[0]
    assert newest.ended_at is not None
    doubled = p.policy.limits.cooldown * 2 ** min(len(failures), _DOUBLINGS)
    until = newest.ended_at + min(doubled, LONGEST)
    if p.now >= until:
        return None
    engine = f" on {newest.engine}" if newest.engine else ""
    return Objection(
        reason=GateReason.RECENTLY_FAILED,
        message=(
            f"setting {p.setting.name} was {_UNWANTED[newest.phase]}{engine} "
            f"({newest.undo_reason or newest.reason}), {len(failures)} time(s) without success; "
            f"not tried again before {until:%Y-%m-%d %H:%M:%S} UTC, or until the setting, the "
            "engine's version or the workload has changed"
        ),
    )


def _same(change: FlagChange, p: Proposal) -> bool:
    """Whether a change tried what is proposed, on what runs now."""
    if (change.wanted.setting, change.wanted.config) != (p.setting.name, p.config):
        return False
    if change.engine and change.engine != engine_of(p.state):
        return False
    return not change.base_template or change.base_template == p.state.user_template


def _budget(p: Proposal) -> Objection | None:
    if p.kind is ChangeKind.PROBE:
        return None
    started = [
        c.created_at
        for c in p.history
        if _replaced_replicas(c) and (c.kind is ChangeKind.RULE or c.phase is Phase.SUCCEEDED)
    ]
    for count, span, name in (
        (p.policy.limits.flips_per_hour, timedelta(hours=1), "flipsPerHour"),
        (p.policy.limits.flips_per_day, timedelta(days=1), "flipsPerDay"),
    ):
        recent = sorted(at for at in started if at > p.now - span)
        if len(recent) >= count:
            free = recent[-count] + span if count else None
            when = f"; the next is possible at {free:%Y-%m-%d %H:%M:%S} UTC" if free else ""
            return Objection(
                reason=GateReason.BUDGET_SPENT,
                message=f"{len(recent)} flips of limits.{name}: {count} are used{when}",
            )
    return None


def _deadlock(p: Proposal) -> Objection | None:
    """No acceptance of downtime helps here: the strategy would not use it."""
    if not p.state.deadlock:
        return None
    return Objection(reason=GateReason.WOULD_DEADLOCK, message=p.state.deadlock)


def _downtime(p: Proposal) -> Objection | None:
    if p.policy.allow_downtime:
        return None
    if p.state.unheld and p.state.desired_replicas > 1:
        return Objection(
            reason=GateReason.NEEDS_DOWNTIME,
            message=f"{p.state.unheld}, so all {p.state.desired_replicas} replicas would be "
            f"replaced before anything could be compared; set rollout.allowDowntime: true to "
            f"accept that (they are watched, and all of them go back when a guardrail breaks)",
        )
    if p.state.can_add_replica:
        return None
    what = (
        "the only replica would have to stop before the new one can start"
        if p.state.desired_replicas <= 1
        else "a canary cannot start without fewer replicas serving than the workload's strategy "
        "allows: it stops all of them first, or no node has room for one more"
    )
    return Objection(
        reason=GateReason.NEEDS_DOWNTIME,
        message=f"{what}; set rollout.allowDowntime: true to accept that, or make room",
    )


GATES: tuple[Callable[[Proposal], Objection | None], ...] = (
    _mode,
    _paused,
    _problem,
    _rolling,
    _replicas,
    _refused,
    _no_data,
    _batch_limit,
    _disaggregated,
    _contested,
    _frozen,
    _recently_failed,
    _cooldown,
    _budget,
    _deadlock,
    _downtime,
    _concurrent,
)
"""In order: what the user said, what the target is, what the past allows."""


def check(proposal: Proposal) -> Objection | None:
    """Return the first objection, or None when the proposal may go ahead."""
    for gate in GATES:
        if (objection := gate(proposal)) is not None:
            return objection
    return None
