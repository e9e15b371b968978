"""What a rule set would have done: the decisions of a tick, over readings of the past.

It is the live tick's own functions (evaluation, proposal, gates, freeze windows, memory) with the
time injected and a target that takes each flip at once. What the past cannot know is not made up:
readings are those of what ran, and each step says so where that was another setting. One thing is
known, though: while speculation is off its series do not exist, so they are withheld.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from specpilot.controller.evaluator import remember_active
from specpilot.controller.freeze import frozen
from specpilot.controller.gatekeeper import HISTORY
from specpilot.controller.proposals import Wanted, proposal
from specpilot.controller.targets import limits_left_to_rules
from specpilot.domain.asking import speculating
from specpilot.domain.batch_limits import with_limits
from specpilot.domain.changes import ChangeReason, FlagChange, Phase
from specpilot.domain.context import SettingFacts, TargetFacts
from specpilot.domain.economics import Measurement
from specpilot.domain.engine_run import EngineRun
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.gates import Objection, Proposal, check
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Mode, Policy
from specpilot.domain.readings import Readings, UnknownReason, unknown
from specpilot.domain.recall import Subject, cost_ratio
from specpilot.domain.rules import RuleSetVersion
from specpilot.domain.settings import UNRECOGNISED, Declared, Setting
from specpilot.domain.signals import SIGNALS
from specpilot.domain.targets import Replica, TargetState
from specpilot.engines import Rendered, render_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is known of one moment of the past.

    Attributes:
        at: When.
        readings: Signals of the target, over the window that ends then.
        ran: Name of the setting that really ran, "" where that is not known: as before, then.
        target: What is known of the target.
        parameters: Overrides of the policy's parameters; None is Unknown.
        dated: Whether `at` is a date; else it counts from some start, and the time of day is
            Unknown.
    """

    at: datetime
    readings: Readings
    ran: str = ""
    target: TargetFacts = field(default_factory=TargetFacts)
    parameters: Mapping[str, float | None] = field(default_factory=dict)
    dated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayMemory:
    """All that is carried from one moment to the next.

    Attributes:
        policy: What a live tick remembers; its active setting is the simulated one.
        ran: The setting that really ran at the last moment.
        history: Flips that were made, newest first, as far back as a gate looks.
    """

    policy: PolicyMemory
    ran: str
    history: tuple[FlagChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one moment led to.

    Attributes:
        at: When.
        before: The simulated setting that was in force when it was judged.
        active: The one afterwards.
        ran: The setting that really ran, whose readings were judged.
        wanted: What was proposed, if anything.
        objection: The gate's No to it; None where it went ahead.
        blind: No rule could be judged at all.
        memory: For the next moment.
    """

    at: datetime
    before: str
    active: str
    ran: str
    wanted: Wanted | None
    objection: Objection | None
    blind: bool
    memory: ReplayMemory

    @property
    def flipped(self) -> bool:
        """Whether the setting changed."""
        return self.wanted is not None and self.objection is None

    @property
    def counterfactual(self) -> bool:
        """Whether the readings that were judged are of another setting than the simulated one."""
        return self.before != self.ran


TELLS = frozenset({"drafts", "generated_tokens"})
"""Signals that tell whether something speculated."""


def speculates(readings: Readings) -> bool | None:
    """Whether what was measured speculated; None where the readings do not tell."""
    if any(r.known and SIGNALS[name].needs_speculation for name, r in readings.items()):
        return True
    absent = readings["drafts"].reason is UnknownReason.NOT_EXPORTED
    return False if absent and readings["generated_tokens"].known else None


class Replay:
    """One rule set of one policy, ready to be taken through the past."""

    def __init__(
        self,
        version: RuleSetVersion,
        policy: Policy,
        *,
        names_only: bool,
        measured: Mapping[str, Sequence[Measurement]] | None = None,
        run: EngineRun | None = None,
    ) -> None:
        """Compile.

        Args:
            version: The rules.
            policy: Settings, parameters, limits and freeze windows; its mode, pause and probe do
                not count: the question is what the rules would have done.
            names_only: The settings of the policy are only names, and nobody said what is behind
                them: `setting.method` and `setting.depth` are Unknown, and no engine is asked.
            measured: Remembered costs by setting; each serves from the time it was measured on.
            run: The engine, where a moment does not say; None is not known.

        Raises:
            RuleSetError: The rule set cannot be used.
        """
        self._version = version
        self._rules = CompiledRuleSet(version.rule_set)
        self._policy = replace(policy, mode=Mode.AUTO, paused=False, probe=None)
        self._names_only = names_only
        self._measured = measured or {}
        self._run = run or EngineRun()
        self._with_limits: dict[EngineRun, CompiledRuleSet] = {}

    def begin(self, ran: str) -> ReplayMemory:
        """Memory to begin with: what really ran is also what the replay begins with."""
        name = self._named(ran)
        return ReplayMemory(policy=PolicyMemory(active=name), ran=name)

    def steps(self, moments: Iterable[Moment], memory: ReplayMemory) -> Iterator[Step]:
        """Take the rules through moments in order of time, one step each."""
        for moment in moments:
            step = self.step(moment, memory)
            memory = step.memory
            yield step

    def step(self, moment: Moment, memory: ReplayMemory) -> Step:
        """Decide at one moment, and take what the gates let pass as done."""
        now = moment.at
        ran = self._named(moment.ran) if moment.ran else memory.ran
        active = self._setting(memory.policy.active)
        remembered = replace(memory.policy, active_since=memory.policy.active_since or now)
        remembered = remember_active(remembered, active, now=now)
        readings = self._with_known_cost(
            _existing(moment.readings, active), active=active, memory=remembered, now=now
        )
        engine = replace(self._run, version=moment.target.engine or self._run.version)
        evaluation = self._in_force(engine).evaluate(
            readings,
            active=self._facts(active),
            parameters={**self._policy.parameters, **moment.parameters},
            pending=remembered.pending,
            target=moment.target,
            now=now,
            time_known=moment.dated,
        )
        remembered = replace(remembered, pending=evaluation.pending)
        wanted = proposal(
            self._policy,
            version=self._version,
            evaluation=evaluation,
            readings=readings,
            memory=remembered,
            active=active,
            now=now,
        )
        history = tuple(c for c in memory.history if now - c.created_at <= HISTORY)
        objection = None
        after = active
        if wanted is not None:
            objection = self._objection(
                wanted, active, moment, engine=engine, readings=readings, history=history
            )
            if objection is None:
                after = wanted.setting
                history = (self._change(wanted, active, now=now), *history)
                remembered = remember_active(remembered, after, now=now)
                remembered = replace(remembered, last_flip=now)
        return Step(
            at=now,
            before=active.name,
            active=after.name,
            ran=ran,
            wanted=wanted,
            objection=objection,
            blind=evaluation.blind,
            memory=ReplayMemory(policy=remembered, ran=ran, history=history),
        )

    def _in_force(self, engine: EngineRun) -> CompiledRuleSet:
        """The rules, and those that keep the limits which an engine would not."""
        if self._names_only:
            return self._rules
        found = self._with_limits.get(engine)
        if found is None:
            limits = limits_left_to_rules(self._policy, engine=engine)
            rules = with_limits(self._version.rule_set, limits, window=self._policy.window)
            found = CompiledRuleSet(rules) if limits else self._rules
            self._with_limits[engine] = found
        return found

    def _named(self, name: str) -> str:
        return name if name in self._policy.settings else UNRECOGNISED

    def _setting(self, name: str) -> Setting:
        unnamed = Setting(name=UNRECOGNISED, method=UNRECOGNISED)
        return self._policy.settings.get(name, unnamed)

    def _facts(self, active: Setting) -> Setting | SettingFacts:
        if not self._names_only or active.is_off:
            return active
        return SettingFacts(name=active.name)

    def _with_known_cost(
        self, readings: Readings, *, active: Setting, memory: PolicyMemory, now: datetime
    ) -> Readings:
        """The readings with the cost that a tick would have known: measured by then, or stated."""
        if "cost_ratio" in readings.by_signal or "cost_ratio" not in self._rules.signals:
            return readings
        about = speculating(self._policy, memory) if active.is_off else active
        if about is None:
            return readings
        known = [m for m in self._measured.get(about.name, ()) if m.at <= now]
        config, engine, template = "", "", ""
        if known:  # all of one config and engine: which ones count was decided when they were read
            config, engine, template = known[-1].config, known[-1].engine, known[-1].template
        cost = cost_ratio(
            Subject(
                name=about.name,
                config=config,
                engine=engine,
                template=template,
                runs=not active.is_off,
            ),
            batch=readings["batch_size"],
            measurements=known,
            stated=self._policy.cost_ratios.get(about.name, ()),
            max_age=self._policy.remember_for,
            now=now,
        )
        return Readings({**readings.by_signal, cost.signal: cost})

    def _objection(
        self,
        wanted: Wanted,
        active: Setting,
        moment: Moment,
        *,
        engine: EngineRun,
        readings: Readings,
        history: tuple[FlagChange, ...],
    ) -> Objection | None:
        rendered = Rendered() if self._names_only else render_for(wanted.setting, engine)
        return check(
            Proposal(
                policy=self._policy,
                state=self._state(moment.target, engine),
                setting=wanted.setting,
                active=active,
                config="",
                refused=rendered.refused if engine.version else "",
                limit=rendered.guard,
                batch=readings.value("batch_size"),
                kind=wanted.kind,
                history=history,
                frozen=frozen(self._policy, now=moment.at) if moment.dated else "",
                now=moment.at,
            )
        )

    def _state(self, target: TargetFacts, engine: EngineRun) -> TargetState:
        """The target as far as it is known: at rest, with room, and serving unless known not to."""
        serving = target.ready is None or target.ready > 0
        replica = Replica(id="replayed", declared=Declared(), ready=True)
        return TargetState(
            ref=self._policy.target,
            desired_replicas=1 if target.replicas is None else target.replicas,
            replicas=(replica,) if serving else (),
            engine=engine,
        )

    def _change(self, wanted: Wanted, active: Setting, *, now: datetime) -> FlagChange:
        return FlagChange(
            id=f"replay-{now:%Y%m%d%H%M%S}",
            policy=self._policy.ref,
            target=self._policy.target,
            kind=wanted.kind,
            origin=Declared(setting=active.name),
            wanted=Declared(setting=wanted.setting.name),
            rule=wanted.rule,
            evidence=wanted.evidence,
            phase=Phase.SUCCEEDED,
            reason=ChangeReason.RULE_FIRED,
            message=wanted.message,
            created_at=now,
            phase_since=now,
            ended_at=now,
        )


def _existing(readings: Readings, active: Setting) -> Readings:
    """The readings without those that the simulated setting would not have had."""
    if not active.is_off:
        return readings
    words = "speculation would be off, so this series would not exist"
    gone = {
        name: unknown(name, UnknownReason.NOT_EXPORTED, words)
        for name, reading in readings.items()
        if reading.known and SIGNALS[name].needs_speculation
    }
    return Readings({**readings.by_signal, **gone}) if gone else readings
