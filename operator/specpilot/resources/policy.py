"""SpeculationPolicy: what to steer, and how far."""

from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from pydantic import Field, StringConstraints, field_validator, model_validator

from specpilot.domain import policy as domain
from specpilot.domain.settings import OFF, OFF_NAME
from specpilot.domain.signals import MEASURED, REMEMBERED, SIGNALS, Unit
from specpilot.domain.targets import Channel, TargetRef
from specpilot.resources.base import ObjectName, Strict, Text
from specpilot.resources.quantities import Bound, Duration, Percent, PositiveDuration
from specpilot.resources.settings import SettingSpec

LOCAL_NAMESPACE = "local"
"""The namespace of everything on one machine."""

_CRON_FIELDS = 5


class TargetKind(StrEnum):
    """Kinds of targets that have an adapter."""

    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"
    LEADER_WORKER_SET = "LeaderWorkerSet"
    ROLLOUT = "Rollout"
    INFERENCE_SERVICE = "InferenceService"
    LLM_INFERENCE_SERVICE = "LLMInferenceService"
    VLLM_RUNTIME = "VLLMRuntime"
    RAY_SERVICE = "RayService"
    DYNAMO_GRAPH_DEPLOYMENT = "DynamoGraphDeployment"
    STORM_SERVICE = "StormService"
    MODEL = "Model"
    LOCAL = "Local"


class TargetSpec(Strict):
    """The workload to steer, in the policy's namespace."""

    kind: TargetKind
    name: ObjectName
    container: Annotated[str, StringConstraints(max_length=63)] = ""


class RulesSpec(Strict):
    """Which rule set decides."""

    rule_set: ObjectName
    version: Annotated[int, Field(ge=1)] | None = None
    parameters: dict[str, float] = Field(default_factory=dict)


class TelemetrySpec(Strict):
    """Where signals come from, and over which window."""

    source: domain.TelemetrySource = domain.TelemetrySource.AUTO
    window: PositiveDuration = timedelta(minutes=5)
    warm_up: Duration = timedelta(0)
    remember_for: PositiveDuration = timedelta(days=7)


class CanarySpec(Strict):
    """How a change is tried first."""

    replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    analysis: PositiveDuration = timedelta(minutes=5)
    min_drafts: Annotated[int, Field(ge=0)] = 1000
    min_requests: Annotated[int, Field(ge=0)] = 20
    ready_within: PositiveDuration | None = None
    give_up: PositiveDuration | None = None


class RolloutSpec(Strict):
    """How a change is carried out."""

    channel: Channel = Channel.AUTO
    canary: CanarySpec = CanarySpec()
    watch: PositiveDuration | None = None
    allow_downtime: bool = False


class GuardrailSpec(Strict):
    """A bound that must hold, or the change is undone."""

    signal: Annotated[str, StringConstraints(max_length=63)]
    max_increase: Percent | None = None
    max_rise: Bound | None = None
    max: Bound | None = None
    min: Bound | None = None

    @field_validator("signal")
    @classmethod
    def _in_catalogue(cls, signal: str) -> str:
        if signal in REMEMBERED:
            raise ValueError(
                f"{signal} is remembered and no canary has a value of its own; use a signal that "
                "is measured, such as tpot_mean"
            )
        if signal not in SIGNALS:
            near = get_close_matches(signal, MEASURED, n=1)
            hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(MEASURED)}"
            raise ValueError(f"no such signal; {hint}")
        return signal

    @model_validator(mode="before")
    @classmethod
    def _units_fit(cls, data: Any) -> Any:
        """A time bounds a time and a percentage a ratio: `40%` of a latency means nothing."""
        if not isinstance(data, Mapping) or data.get("signal") not in SIGNALS:
            return data
        unit = SIGNALS[data["signal"]].unit
        for name in ("maxRise", "max", "min"):
            text = data.get(name)
            if not isinstance(text, str) or not text:
                continue
            ends = Unit.RATIO if text.endswith("%") else Unit.SECONDS
            if not text[-1].isdigit() and unit is not ends:
                raise ValueError(
                    f"{name} is {text} and {data['signal']} is in {unit}; write a bound in {unit}"
                )
        return data

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        bounds = (self.max_increase, self.max_rise, self.max, self.min)
        if all(bound is None for bound in bounds):
            raise ValueError(
                'a guardrail needs a bound; add maxIncrease: "10%", maxRise:, max: or min: in '
                f"{SIGNALS[self.signal].unit}"
            )
        return self

    def guardrail(self) -> domain.Guardrail:
        """The domain's value."""
        return domain.Guardrail(
            signal=self.signal,
            max_increase=self.max_increase,
            max_rise=self.max_rise,
            max_value=self.max,
            min_value=self.min,
        )


class ProbeSpec(Strict):
    """When and how speculation is tried again while it is off."""

    enabled: bool = True
    setting: Annotated[str, StringConstraints(max_length=63)] = ""
    every: PositiveDuration = timedelta(minutes=45)
    back_off: Annotated[float, Field(ge=1, le=100)] = 2.0
    longest: PositiveDuration = timedelta(hours=8)
    margin: Percent = 0.05

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.longest < self.every:
            raise ValueError("longest is shorter than every; make it at least as long")
        return self

    def probe(self) -> domain.Probe | None:
        """The domain's value; None when switched off."""
        if not self.enabled:
            return None
        return domain.Probe(
            setting=self.setting,
            every=self.every,
            back_off=self.back_off,
            longest=self.longest,
            margin=self.margin,
        )


class LimitsSpec(Strict):
    """How often a target may be flipped."""

    cooldown: Duration = timedelta(minutes=10)
    flips_per_hour: Annotated[int, Field(ge=0, le=1000)] = 2
    flips_per_day: Annotated[int, Field(ge=0, le=1000)] = 6
    approval_expiry: PositiveDuration = timedelta(hours=24)
    four_eyes: bool = False
    contests: Annotated[int, Field(ge=1, le=20)] = 3
    contest_window: PositiveDuration = timedelta(hours=1)


class FreezeWindowSpec(Strict):
    """A recurring time in which nothing is flipped."""

    schedule: Annotated[str, StringConstraints(max_length=128)]
    duration: PositiveDuration
    time_zone: Annotated[str, StringConstraints(max_length=64)] = "UTC"
    reason: Text = ""

    @field_validator("time_zone")
    @classmethod
    def _zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ValueError, OSError, KeyError):
            raise ValueError("no such time zone; write one such as Europe/Berlin or UTC") from None
        return name

    @field_validator("schedule")
    @classmethod
    def _crontab(cls, schedule: str) -> str:
        fields = schedule.split()
        if len(fields) != _CRON_FIELDS:
            raise ValueError(
                'write five fields: minute, hour, day, month, weekday, such as "0 18 * * FRI"'
            )
        if any(char.isdigit() for char in fields[4]):
            raise ValueError(
                "name the weekdays (MON, TUE ... or MON-FRI): whether 0 or 1 is Monday differs "
                "between crons"
            )
        try:
            CronTrigger.from_crontab(schedule, timezone="UTC")
        except (ValueError, LookupError) as error:
            raise ValueError(f'{error}; write a schedule such as "0 18 * * FRI"') from None
        return schedule

    def window(self) -> domain.FreezeWindow:
        """The domain's value."""
        return domain.FreezeWindow(
            schedule=self.schedule,
            duration=self.duration,
            time_zone=self.time_zone,
            reason=self.reason,
        )


class AlertRouteSpec(Strict):
    """Which events go to which channel; no list means all events."""

    channel: ObjectName
    events: tuple[domain.Event, ...] = ()


class PolicySpec(Strict):
    """The spec of a SpeculationPolicy."""

    target: TargetSpec
    mode: domain.Mode = domain.Mode.ADVISORY
    paused: bool = False
    settings: Annotated[tuple[SettingSpec, ...], Field(min_length=1, max_length=16)]
    rules: RulesSpec
    telemetry: TelemetrySpec = TelemetrySpec()
    rollout: RolloutSpec = RolloutSpec()
    guardrails: Annotated[tuple[GuardrailSpec, ...], Field(max_length=16)] | None = None
    probe: ProbeSpec | None = ProbeSpec()
    limits: LimitsSpec = LimitsSpec()
    freeze_windows: Annotated[tuple[FreezeWindowSpec, ...], Field(max_length=16)] = ()
    alerts: Annotated[tuple[AlertRouteSpec, ...], Field(max_length=16)] = ()

    @field_validator("settings")
    @classmethod
    def _named_once(cls, settings: tuple[SettingSpec, ...]) -> tuple[SettingSpec, ...]:
        names = [s.name for s in settings]
        if twice := next((n for n in names if names.count(n) > 1), None):
            raise ValueError(f"two settings are named {twice}; give each a name of its own")
        if all(n == OFF_NAME for n in names):
            raise ValueError('there is nothing to switch on; add a setting besides "off"')
        return settings

    @model_validator(mode="after")
    def _probe_names_a_setting(self) -> Self:
        if self.probe is None or not self.probe.setting:
            return self
        speculating = [s.name for s in self.settings if s.method is not None]
        if self.probe.setting not in speculating:
            raise ValueError(
                f"probe.setting is {self.probe.setting!r}; name one of the settings that "
                f"speculate: {', '.join(speculating)}"
            )
        return self


def policy(spec: PolicySpec, *, ref: domain.PolicyRef, generation: int) -> domain.Policy:
    """Make the domain's policy of a spec."""
    settings = {s.name: s.setting() for s in spec.settings} | {OFF_NAME: OFF}
    local = spec.target.kind is TargetKind.LOCAL
    canary, limits = spec.rollout.canary, spec.limits
    guardrails = (
        domain.DEFAULT_GUARDRAILS
        if spec.guardrails is None
        else tuple(g.guardrail() for g in spec.guardrails)
    )
    return domain.Policy(
        ref=ref,
        generation=generation,
        target=TargetRef(
            kind=spec.target.kind.value,
            namespace=LOCAL_NAMESPACE if local else ref.namespace,
            name=spec.target.name,
            container=spec.target.container,
            channel=spec.rollout.channel,
        ),
        mode=spec.mode,
        paused=spec.paused,
        settings=settings,
        rule_set=spec.rules.rule_set,
        rule_version=spec.rules.version,
        parameters=spec.rules.parameters,
        source=spec.telemetry.source,
        window=spec.telemetry.window,
        warm_up=spec.telemetry.warm_up,
        remember_for=spec.telemetry.remember_for,
        cost_ratios={s.name: points for s in spec.settings if (points := s.cost_points())},
        canary=domain.Canary(
            replicas=canary.replicas,
            analysis=canary.analysis,
            min_drafts=canary.min_drafts,
            min_requests=canary.min_requests,
            ready_within=canary.ready_within,
            give_up=canary.give_up,
        ),
        watch=spec.rollout.watch,
        allow_downtime=spec.rollout.allow_downtime,
        guardrails=guardrails,
        probe=spec.probe.probe() if spec.probe is not None else None,
        limits=domain.Limits(
            cooldown=limits.cooldown,
            flips_per_hour=limits.flips_per_hour,
            flips_per_day=limits.flips_per_day,
            approval_expiry=limits.approval_expiry,
            four_eyes=limits.four_eyes,
            contests=limits.contests,
            contest_window=limits.contest_window,
        ),
        freeze_windows=tuple(w.window() for w in spec.freeze_windows),
        alerts=tuple(
            domain.AlertRoute(channel=a.channel, events=frozenset(a.events)) for a in spec.alerts
        ),
    )
