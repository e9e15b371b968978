"""Evaluating a rule set: readings in, one verdict a rule and at most one proposal out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from specpilot.domain.changes import Evidence
from specpilot.domain.conditions import Condition, ConditionError, Truth
from specpilot.domain.memory import Pending
from specpilot.domain.readings import Readings
from specpilot.domain.rules import Rule, RuleSet
from specpilot.domain.settings import Setting

GRACE = timedelta(seconds=60)
"""How long a condition may be Unknown before the time it has held is forgotten."""


class RuleSetError(ValueError):
    """A rule set that cannot be used; the message lists every fault, with its rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one rule says now.

    Attributes:
        rule: The rule's name.
        setting: The setting it asks for.
        truth: Its condition, three-valued.
        held: How long the condition has held.
        fires: It is true and has held for its `for`.
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
    """A rule set, checked and ready to evaluate."""

    def __init__(self, rule_set: RuleSet) -> None:
        """Compile every condition.

        Raises:
            RuleSetError: At least one rule cannot be used; nothing of the set is then.
        """
        self.rule_set = rule_set
        self._conditions: dict[str, Condition] = {}
        faults = []
        names: set[str] = set()
        for rule in rule_set.rules:
            if rule.name in names:
                faults.append(f"rule {rule.name}: the name is used twice; rename one")
                continue
            names.add(rule.name)
            try:
                self._conditions[rule.name] = Condition(rule.when, parameters=rule_set.parameters)
            except ConditionError as error:
                faults.append(f"rule {rule.name}: when: {error}")
        if not rule_set.rules:
            faults.append("rules: there is none; add at least one")
        if faults:
            raise RuleSetError("\n".join(faults))

    @property
    def signals(self) -> frozenset[str]:
        """Every signal that a condition names."""
        return frozenset(s for c in self._conditions.values() for s in c.signals)

    def evaluate(
        self,
        readings: Readings,
        *,
        active: Setting,
        parameters: Mapping[str, float],
        pending: Mapping[str, Pending],
        now: datetime,
    ) -> Evaluation:
        """Evaluate every rule; the first in order that fires wins.

        Args:
            readings: Signals of the target.
            active: The setting that runs.
            parameters: Overrides of the rule set's own.
            pending: Memory of the last evaluation.
            now: The time.
        """
        values = {**self.rule_set.parameters, **parameters}
        described = {
            "name": active.name,
            "method": active.method or "",
            "depth": float(active.num_speculative_tokens or 0),
        }
        verdicts: list[Verdict] = []
        remembered: dict[str, Pending] = {}
        for rule in self.rule_set.rules:
            verdict, memory = self._judge(
                rule,
                readings,
                parameters=values,
                described=described,
                memory=pending.get(rule.name),
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
        parameters: Mapping[str, float],
        described: Mapping[str, object],
        memory: Pending | None,
        now: datetime,
    ) -> tuple[Verdict, Pending | None]:
        judgement = self._conditions[rule.name].judge(
            readings, parameters=parameters, setting=described
        )
        truth, why = judgement.truth, judgement.why
        drafts = readings.value("drafts")
        if truth is Truth.TRUE and rule.min_drafts and (drafts or 0) < rule.min_drafts:
            truth = Truth.UNKNOWN
            why += f"; drafts {drafts or 0:.0f} of {rule.min_drafts} needed (TooFewSamples)"
        held = timedelta(0)
        match truth:
            case Truth.TRUE:
                fresh = memory is not None and now - memory.last_true <= GRACE
                since = memory.since if memory is not None and fresh else now
                memory = Pending(since=since, last_true=now)
                held = now - since
            case Truth.FALSE:
                memory = None
            case Truth.UNKNOWN:
                if memory is not None and now - memory.last_true > GRACE:
                    memory = None
        if truth is Truth.TRUE and rule.hold:
            why = f"held {_words(min(held, rule.hold))} of {_words(rule.hold)}; {why}"
        verdict = Verdict(
            rule=rule.name,
            setting=rule.setting,
            truth=truth,
            held=held,
            fires=truth is Truth.TRUE and held >= rule.hold,
            why=why,
            evidence=judgement.evidence,
        )
        return verdict, memory


def _words(span: timedelta) -> str:
    seconds = round(span.total_seconds())
    minutes, rest = divmod(seconds, 60)
    if not minutes:
        return f"{rest}s"
    return f"{minutes}m{rest:02d}s" if rest else f"{minutes}m"
