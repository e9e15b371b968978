"""Evaluating a rule set: readings in, one verdict a rule and at most one proposal out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from specpilot.domain.changes import Evidence
from specpilot.domain.conditions import Condition, ConditionError, Judgement, Truth
from specpilot.domain.context import (
    SettingFacts,
    TargetFacts,
    read_zone,
    setting_variables,
    target_variables,
    time_variables,
)
from specpilot.domain.holding import hold
from specpilot.domain.memory import Pending
from specpilot.domain.readings import Readings
from specpilot.domain.rules import MAX_WINDOWS, Rule, RuleSet
from specpilot.domain.settings import Setting


class RuleSetError(ValueError):
    """A rule set that cannot be used; the message lists every fault, with its rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one rule says now.

    Attributes:
        rule: The rule's name.
        setting: The setting it asks for.
        truth: Three-valued; its `until`, its windows and what it makes of Unknown included.
        held: How long it has held; for a rule over windows, the length of those that were true.
        fires: It is true and has held for its `for`, or in enough windows.
        why: In words, with the numbers.
        evidence: The numbers.
    """

    rule: str
    setting: str
    truth: Truth
    held: timedelta
    fires: bool
    why: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """All verdicts, the first that fires, and what to remember."""

    verdicts: tuple[Verdict, ...]
    winner: Verdict | None
    pending: Mapping[str, Pending]

    @property
    def blind(self) -> bool:
        """No rule could be judged at all."""
        return bool(self.verdicts) and all(v.truth is Truth.UNKNOWN for v in self.verdicts)

    def words(self) -> str:
        """The verdict in one line, for status and logs."""
        if self.winner is not None:
            return f"{self.winner.rule} asks for {self.winner.setting}: {self.winner.why}"
        waiting = next((v for v in self.verdicts if v.truth is Truth.TRUE), None)
        if waiting is not None:
            return f"{waiting.rule} is waiting: {waiting.why}"
        unknown = [v for v in self.verdicts if v.truth is Truth.UNKNOWN]
        if unknown:
            return f"no rule holds; {unknown[0].rule} is Unknown: {unknown[0].why}"
        return "no rule holds: " + "; ".join(v.why for v in self.verdicts)


class CompiledRuleSet:
    """A rule set, checked and ready to evaluate.

    Attributes:
        rule_set: What was compiled.
        conditions: The condition `when` of each rule, by the rule's name.
        untils: The condition `until` of those rules that have one.
    """

    def __init__(self, rule_set: RuleSet) -> None:
        """Compile every condition.

        Raises:
            RuleSetError: At least one rule cannot be used; nothing of the set is then.
        """
        self.rule_set = rule_set
        self.conditions: dict[str, Condition] = {}
        self.untils: dict[str, Condition] = {}
        faults = []
        names: set[str] = set()
        for rule in rule_set.rules:
            if rule.name in names:
                faults.append(f"rule {rule.name}: the name is used twice; rename one")
                continue
            names.add(rule.name)
            faults += [f"rule {rule.name}: {f}" for f in (*self._compile(rule), *_timing(rule))]
        if not rule_set.rules:
            faults.append("rules: there is none; add at least one")
        try:
            self._zone = read_zone(rule_set.time_zone)
        except ValueError as error:
            faults.append(f"timeZone: {error}")
        if faults:
            raise RuleSetError("\n".join(faults))
        used = {v.partition(".")[0] for c in self._all() for v in c.variables}
        self._tells_time, self._asks_target = "time" in used, "target" in used

    def _compile(self, rule: Rule) -> Iterator[str]:
        for field, text, compiled in (
            ("when", rule.when, self.conditions),
            ("until", rule.until, self.untils),
        ):
            if field == "until" and not text:
                continue
            try:
                compiled[rule.name] = Condition(text, parameters=self.rule_set.parameters)
            except ConditionError as error:
                yield f"{field}: {error}"

    def _all(self) -> Iterator[Condition]:
        yield from self.conditions.values()
        yield from self.untils.values()

    @cached_property
    def signals(self) -> frozenset[str]:
        """Every signal that a condition names."""
        return frozenset(s for c in self._all() for s in c.signals)

    def evaluate(
        self,
        readings: Readings,
        *,
        active: Setting | SettingFacts,
        parameters: Mapping[str, float | None],
        pending: Mapping[str, Pending],
        target: TargetFacts,
        now: datetime,
        assume_held: bool = False,
        time_known: bool = True,
    ) -> Evaluation:
        """Evaluate every rule; the first in order that fires wins.

        Args:
            readings: Signals of the target.
            active: The setting that runs, or what is known of it.
            parameters: Overrides of the rule set's own; None is Unknown.
            pending: Memory of the last evaluation.
            target: What is known of the target.
            now: The time.
            assume_held: The readings stand for themselves and not for a moment in a sequence:
                what is true has held for long enough, and nothing is remembered.
            time_known: Whether `now` is when the readings were taken; else `time` is Unknown.
        """
        values = {**self.rule_set.parameters, **parameters}
        context = setting_variables(active)
        if self._asks_target:
            context |= target_variables(target)
        if self._tells_time and time_known:
            context |= time_variables(now, zone=self._zone)
        verdicts: list[Verdict] = []
        remembered: dict[str, Pending] = {}
        for rule in self.rule_set.rules:
            verdict, memory = self._judge(
                rule,
                readings,
                parameters=values,
                context=context,
                memory=None if assume_held else pending.get(rule.name),
                assume_held=assume_held,
                now=now,
            )
            verdicts.append(verdict)
            if memory is not None:
                remembered[rule.name] = memory
        return Evaluation(
            verdicts=tuple(verdicts),
            winner=next((v for v in verdicts if v.fires), None),
            pending=remembered,
        )

    def _judge(
        self,
        rule: Rule,
        readings: Readings,
        *,
        parameters: Mapping[str, float | None],
        context: Mapping[str, object],
        memory: Pending | None,
        assume_held: bool,
        now: datetime,
    ) -> tuple[Verdict, Pending | None]:
        when = self.conditions[rule.name].judge(readings, parameters=parameters, context=context)
        truth, why, evidence = when.truth, when.why, when.evidence
        if rule.min_drafts and truth is Truth.TRUE:
            drafts = readings.value("drafts")
            if drafts is None:
                truth = Truth.UNKNOWN
                reason = readings["drafts"].reason
                why += f"; drafts is Unknown ({reason}), {rule.min_drafts} needed"
            elif drafts < rule.min_drafts:
                truth = Truth.UNKNOWN
                why += f"; drafts {drafts:.0f} of {rule.min_drafts} needed (TooFewSamples)"
        asked: list[Judgement] = []

        def until() -> Truth:
            over = self.untils[rule.name].judge(readings, parameters=parameters, context=context)
            asked.append(over)
            return over.truth

        held = hold(rule, truth, until=until, memory=memory, assume_held=assume_held, now=now)
        if asked:
            shown = {e.signal for e in evidence}
            evidence += tuple(e for e in asked[0].evidence if e.signal not in shown)
        verdict = Verdict(
            rule=rule.name,
            setting=rule.setting,
            truth=held.truth,
            held=held.held,
            fires=held.fires,
            why=f"{held.words}; {why}" if held.words and why else held.words or why,
            evidence=evidence,
        )
        return verdict, held.memory


def _timing(rule: Rule) -> Iterator[str]:
    windows = rule.at_least
    if windows is None:
        return
    if rule.hold:
        yield "for, atLeast: only one of them can be given; remove the other"
    if not 1 <= windows.windows <= windows.of <= MAX_WINDOWS:
        yield (
            f"atLeast: {windows.windows} of {windows.of} windows cannot be counted; write 1 or "
            f"more of at most {MAX_WINDOWS}"
        )
    if windows.each < timedelta(seconds=1):
        yield f"atLeast.each: {windows.each} is no window; write a duration such as 1m"
