"""What a user asks of Specpilot for one target, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from specpilot.domain.settings import OFF, OFF_NAME, Setting
from specpilot.domain.targets import TargetRef


class Mode(StrEnum):
    """How far Specpilot may go.

    `Propose` is for teams that change through Git: the patch is written down, somebody else applies
    it, and that is recognised.
    """

    OFF = "Off"
    ADVISORY = "Advisory"
    PROPOSE = "Propose"
    APPROVE = "Approve"
    AUTO = "Auto"

    @property
    def asks(self) -> bool:
        """Whether a proposal waits for a person."""
        return self in {Mode.APPROVE, Mode.PROPOSE}


class TelemetrySource(StrEnum):
    """Where signals come from."""

    PROMETHEUS = "prometheus"
    SCRAPE = "scrape"
    AUTO = "auto"


class Event(StrEnum):
    """What an alert channel can subscribe to."""

    ADVISED = "Advised"
    APPROVAL_NEEDED = "ApprovalNeeded"
    STARTED = "Started"
    FLIPPED = "Flipped"
    ROLLED_BACK = "RolledBack"
    ABORTED = "Aborted"
    PROBE_KEPT = "ProbeKept"
    PROBE_UNDONE = "ProbeUndone"
    CONTESTED = "Contested"
    SIGNALS_LOST = "SignalsLost"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRef:
    """Identity of a policy: the uid tells a re-created one from the old one."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail:
    """A bound that must hold during and after a flag change.

    Attributes:
        signal: Name of the signal, measured on the replicas that run the new setting.
        max_increase: Largest relative increase against the control arm (0.1 is 10 %).
        max_rise: Largest increase against the control arm in the signal's unit, for what is often
            0 and has no ratio (an error rate: 0.02 is two in a hundred more).
        max_value: Largest value, in the signal's unit.
        min_value: Smallest value, in the signal's unit.
        where_exported: It does not stand in the way where no engine exports the signal; for
            guardrails that nobody asked for.
    """

    signal: str
    max_increase: float | None = None
    max_rise: float | None = None
    max_value: float | None = None
    min_value: float | None = None
    where_exported: bool = False

    @property
    def bounded(self) -> bool:
        """Whether it has a bound of its own, apart from the control arm."""
        return self.max_value is not None or self.min_value is not None

    @property
    def compares(self) -> bool:
        """Whether it has a bound against the control arm, or what was there before."""
        return self.max_increase is not None or self.max_rise is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPoint:
    """What a user states of a setting's cost: the signal `cost_ratio` where nothing is measured.

    Attributes:
        batch: Running requests per replica it holds for; None is any.
        ratio: Mean acceptance length at which the setting breaks even: the time of a step with it
            over that of one without.
    """

    batch: float | None = None
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """How a flag change is tried before it is rolled out.

    Attributes:
        replicas: Replicas that try the setting first.
        analysis: How long they are compared with the others.
        min_drafts: Drafts the canary must have verified, where it speculates.
        min_requests: Requests each arm must have finished.
        ready_within: Limit for the canary to become ready; None derives it from the workload.
        give_up: Longest analysis without enough data before the change is undone.
    """

    replicas: int = 1
    analysis: timedelta = timedelta(minutes=5)
    min_drafts: int = 1000
    min_requests: int = 20
    ready_within: timedelta | None = None
    give_up: timedelta | None = None

    @property
    def patience(self) -> timedelta:
        """Longest analysis, stated or by default."""
        return self.give_up or max(4 * self.analysis, timedelta(minutes=30))


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Off is not for ever: when and how one replica tries speculation again.

    Attributes:
        setting: What to try; "" takes the setting that ran last, else the first that speculates.
        every: Time off before the first probe.
        back_off: Factor by which the time grows after each probe that lost.
        longest: Upper limit of that time.
        margin: By how much the canary must beat the control arm (0.05 is 5 %).
    """

    setting: str = ""
    every: timedelta = timedelta(minutes=45)
    back_off: float = 2.0
    longest: timedelta = timedelta(hours=8)
    margin: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How often a target may be flipped.

    Attributes:
        cooldown: Time between two changes.
        flips_per_hour: Changes in any hour.
        flips_per_day: Changes in any day.
        approval_expiry: How long a proposal waits for a decision.
        contests: Times that somebody else may undo our value within `contest_window`.
        contest_window: See `contests`.
        four_eyes: Who wrote the rules that ask may not approve what they ask for.
    """

    cooldown: timedelta = timedelta(minutes=10)
    flips_per_hour: int = 2
    flips_per_day: int = 6
    approval_expiry: timedelta = timedelta(hours=24)
    contests: int = 3
    contest_window: timedelta = timedelta(hours=1)
    four_eyes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeWindow:
    """A time in which nothing is flipped: starts by a cron schedule in a zone, lasts a while."""

    schedule: str
    duration: timedelta
    time_zone: str = "UTC"
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRoute:
    """Which events go to which channel."""

    channel: str
    events: frozenset[Event] = frozenset()


DEFAULT_GUARDRAILS = (
    Guardrail(signal="tpot_mean", max_increase=0.10),
    Guardrail(signal="error_rate", max_rise=0.02, where_exported=True),
)
"""Used when a policy names none: a flip that makes tokens slower than the control arm, or refuses
more requests (`min_p` and `logit_bias` turn 400 with speculation), is undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A SpeculationPolicy, checked.

    Attributes:
        ref: Its identity.
        generation: Generation of the spec it was read from.
        target: What it steers.
        mode: How far it may go.
        paused: The user's pause; finishes a change in flight, starts none.
        settings: By name; "off" always among them.
        rule_set: Name of the rule set, in the policy's namespace.
        rule_version: Pinned version; None follows the latest.
        parameters: Overrides of the rule set's parameters.
        source: Where signals come from.
        window: Window of every signal a rule sees.
        warm_up: Time after a replica became ready in which its numbers are not used.
        remember_for: How long a measured cost of a setting is used.
        cost_ratios: Costs stated by the user, by setting.
        watch: How long a change is watched after it was rolled out, and undone when a bound breaks;
            None is as long as the analysis.
        allow_downtime: Whether a lone replica may be replaced without a second one beside it.
    """

    ref: PolicyRef
    generation: int = 1
    target: TargetRef
    mode: Mode = Mode.ADVISORY
    paused: bool = False
    settings: Mapping[str, Setting] = field(default_factory=lambda: {OFF_NAME: OFF})
    rule_set: str
    rule_version: int | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)
    source: TelemetrySource = TelemetrySource.AUTO
    window: timedelta = timedelta(minutes=5)
    warm_up: timedelta = timedelta(seconds=0)
    remember_for: timedelta = timedelta(days=7)
    cost_ratios: Mapping[str, tuple[CostPoint, ...]] = field(default_factory=dict)
    canary: Canary = Canary()
    watch: timedelta | None = None
    allow_downtime: bool = False
    guardrails: tuple[Guardrail, ...] = DEFAULT_GUARDRAILS
    probe: Probe | None = Probe()
    limits: Limits = Limits()
    freeze_windows: tuple[FreezeWindow, ...] = ()
    alerts: tuple[AlertRoute, ...] = ()
