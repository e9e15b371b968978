"""Adding to a tick's readings what no window shows: the remembered cost and the baseline.

Both are read from the database, so that a restart or a change of leader forgets nothing, and kept
until they change: costs when a target has another measurement, baselines, which rest on whole
hours alone, when a new hour has begun.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from specpilot.domain.asking import speculating
from specpilot.domain.economics import Measurement, config_hash, engine_of
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Policy
from specpilot.domain.probing import candidate
from specpilot.domain.readings import Readings, UnknownReason, unknown
from specpilot.domain.recall import (
    BASELINE,
    AcceptanceHour,
    Subject,
    acceptance_baseline,
    cost_ratio,
    hour_of,
)
from specpilot.domain.settings import Declared, Setting
from specpilot.domain.signals import REMEMBERED
from specpilot.domain.targets import TargetState
from specpilot.engines import render_for
from specpilot.store import AcceptanceSample, UnitOfWork

EVERY = timedelta(minutes=1)
"""How often the acceptance length of a target is noted."""

LEAST_DRAFTS = 100
"""Drafts in the window of a value that is noted: fewer make an acceptance length of chance."""

KEPT = timedelta(hours=48)
"""How long hours are kept: twice what a baseline looks back."""


class Remembering:
    """What is remembered of targets. Belongs to one evaluator."""

    def __init__(self) -> None:
        self._measurements: dict[str, Sequence[Measurement]] = {}
        self._stamps: dict[str, tuple[int, datetime]] = {}
        self._hours: dict[str, dict[str, list[AcceptanceHour]]] = {}
        self._hour: datetime | None = None
        self._noted: dict[tuple[str, str], datetime] = {}
        self._samples: list[AcceptanceSample] = []
        self._pruned: datetime | None = None

    def load(self, uow: UnitOfWork, policies: Sequence[Policy], *, now: datetime) -> None:
        """Read what a tick over these policies needs, in the transaction it reads everything in."""
        self._samples = []  # of a tick that could not be written
        hour = hour_of(now)
        if hour != self._hour:
            self._hour, self._hours = hour, {}
            self._measurements, self._stamps = {}, {}  # of targets that are gone, too
        targets = [str(policy.target) for policy in policies]
        stamps = uow.measurements.stamps(targets)
        stale = [target for target in stamps if stamps[target] != self._stamps.get(target)]
        for target in self._stamps.keys() & set(targets) - stamps.keys():
            self._stamps.pop(target)
            self._measurements.pop(target, None)
        self._measurements |= uow.measurements.of(stale)
        self._stamps |= stamps  # last: what could not be read is not known
        missing = [target for target in targets if target not in self._hours]
        if not missing:
            return
        self._hours.update((target, {}) for target in missing)
        for (target, config), hours in uow.acceptance.of(missing, since=hour - BASELINE).items():
            self._hours[target][config] = hours

    def add(
        self,
        readings: Readings,
        *,
        policy: Policy,
        state: TargetState,
        memory: PolicyMemory,
        active: Setting,
        declared: Declared,
        now: datetime,
    ) -> Readings:
        """Return the readings with the remembered signals, and note the acceptance length.

        While speculation is off both are about the setting that a probe would try.

        Args:
            readings: Of the replicas that run what is in force.
            policy: The policy.
            state: The target.
            memory: What is remembered of the policy.
            active: The setting in force.
            declared: What its replicas were told.
            now: The time.
        """
        subject = _subject(policy, state, memory, active, declared)
        if subject is None:
            words = "the policy has no setting that speculates and this engine version can run"
            added = [unknown(name, UnknownReason.NO_DATA, words) for name in sorted(REMEMBERED)]
            return readings.merged(added)
        target = str(policy.target)
        if subject.runs:
            self._note(readings, target=target, config=subject.config, now=now)
        cost = cost_ratio(
            subject,
            batch=readings["batch_size"],
            measurements=self._measurements.get(target, ()),
            stated=policy.cost_ratios.get(subject.name, ()),
            max_age=policy.remember_for,
            now=now,
        )
        hours = self._hours.get(target, {}).get(subject.config, ())
        baseline = acceptance_baseline(subject.name, hours=hours, now=now)
        return readings.merged([cost, baseline])

    @property
    def unwritten(self) -> bool:
        """Whether this tick noted anything."""
        return bool(self._samples)

    def write(self, uow: UnitOfWork, *, now: datetime) -> None:
        """Write what this tick noted, within the transaction it writes everything in."""
        uow.acceptance.add(self._samples)
        self._samples = []
        hour = hour_of(now)
        if hour != self._pruned:
            uow.acceptance.prune(before=hour - KEPT)
            self._pruned = hour

    def _note(self, readings: Readings, *, target: str, config: str, now: datetime) -> None:
        last = self._noted.get((target, config))
        if last is not None and last <= now < last + EVERY:
            return
        length, drafts = readings.value("mean_acceptance_length"), readings.value("drafts")
        if length is None or (drafts or 0) < LEAST_DRAFTS:
            return
        self._noted[target, config] = now
        self._samples.append(AcceptanceSample(target=target, config=config, at=now, value=length))


def _subject(
    policy: Policy,
    state: TargetState,
    memory: PolicyMemory,
    active: Setting,
    declared: Declared,
) -> Subject | None:
    """The setting that the signals are about; None where the policy has none that can run."""
    name, config = active.name, declared.config
    if active.is_off:
        tried = candidate(policy, memory) or speculating(policy, memory)
        if tried is None:
            return None
        rendered = render_for(tried, state.engine)
        if rendered.refused:
            return None
        name, config = tried.name, rendered.config
    return Subject(
        name=name,
        config=config_hash(config),
        engine=engine_of(state),
        template=state.user_template,
        runs=not active.is_off,
    )
