"""From a series and rule sets to replays, with what a reader must know to judge them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import typer

from specpilot.cli.rules.replay_series import Series, with_what_ran
from specpilot.cli.rules.replay_view import Shown, Story, what_ran
from specpilot.cli.rules.source import Found
from specpilot.controller.replay_summary import summed_up
from specpilot.controller.replaying import TELLS, Moment, Replay
from specpilot.controller.targets import limits_left_to_rules
from specpilot.domain.batch_limits import rule_name
from specpilot.domain.economics import Measurement
from specpilot.domain.engine_run import EngineRun
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.gains import GAIN_SIGNALS, Costs, Recorded, spells, worth
from specpilot.domain.policy import Policy, PolicyRef
from specpilot.domain.readings import Readings
from specpilot.domain.rules import RuleSet, RuleSetVersion
from specpilot.domain.settings import OFF, OFF_NAME, SPECULATING, Setting
from specpilot.domain.signals import REMEMBERED
from specpilot.domain.targets import TargetRef
from specpilot.resources.row_verdicts import impossible_words


def named_signals(found: Sequence[Found]) -> frozenset[str]:
    """The signals that the rules name."""
    return frozenset(s for f in found for s in CompiledRuleSet(f.rule_set).signals)


def signals_to_fetch(found: Sequence[Found]) -> frozenset[str]:
    """Those, what tells whether speculation ran, and what a gain is estimated from."""
    return (named_signals(found) | TELLS | GAIN_SIGNALS) - REMEMBERED


def with_all_parameters(found: Sequence[Found]) -> RuleSet:
    """A rule set with the parameters of all, for the columns that a file may have."""
    parameters = {k: v for f in found for k, v in f.rule_set.parameters.items()}
    return replace(found[0].rule_set, parameters=parameters)


def story(
    series: Series,
    found: Sequence[Found],
    *,
    policy: Policy | None,
    run: EngineRun | None = None,
    ran: str = "",
    measured: Mapping[str, Sequence[Measurement]] | None = None,
) -> Story:
    """Take each rule set through the series.

    Args:
        series: The past.
        found: One rule set, or two to compare.
        policy: Whose settings, parameters and limits; None takes the names that the series and
            the rules use, and default limits.
        run: The engine of its target, where the series does not say; None is not known.
        ran: The setting that really ran, where the series does not say; "" judges by what it has.
        measured: Remembered costs of the policy's target, by setting.

    Raises:
        BadParameter: Which setting ran is not known, or is none of the policy's.
        RuleSetError: A rule set cannot be used.
    """
    used = policy or _nameless(found, [*(m.ran for m in series.moments), ran])
    notes = [*([series.failed] if series.failed else []), *series.notes]
    if ran and ran not in used.settings:
        known = ", ".join(used.settings)
        raise typer.BadParameter(
            f"the policy has no setting {ran} (it has {known})", param_hint="--ran"
        )
    if not series.dated:
        notes.append("pages do not say the date: the time of day and freeze windows are left out")
    if not series.counts_drafts and any(r.min_drafts for f in found for r in f.rule_set.rules):
        notes.append("there is no column drafts: minDrafts of the rules is taken as met")
    if series.impossible:
        notes.append(impossible_words(series.impossible))
    notes += _missing(series, found, used, measured=bool(measured))
    if policy is not None:
        notes += _limits(series, policy, run or EngineRun())
    moments = with_what_ran(series.moments, used, ran=ran)
    first = next(m.ran for m in moments if m.ran)
    told = {name: tuple(costs) for name, costs in (measured or {}).items()}
    lived = _lived(moments, first=first)
    recorded = Recorded.of(spells(lived, [""] * len(lived)))
    costs = {
        name: Costs(measured=told.get(name, ()), stated=used.cost_ratios.get(name, ()))
        for name in used.settings
    }
    shown = []
    for each in found:
        version = _version(each, counts_drafts=series.counts_drafts)
        one = Replay(version, used, names_only=policy is None, measured=told, run=run)
        steps = list(one.steps(moments, one.begin(first)))
        worths = tuple(
            part
            for spell in spells(lived, [step.active for step in steps])
            for part in worth(spell, costs=costs, recorded=recorded)
        )
        shown.append(Shown(label=each.label, replayed=summed_up(steps), worths=worths))
    if any(s.counterfactual for each in shown for s in each.replayed.stretches):
        notes.append(
            "counterfactual: while the simulated setting differs from what ran, readings are of "
            "what ran; what load and latency would have been is not known"
        )
    return Story(
        source=series.source,
        policy=str(policy.ref) if policy else "",
        ran=what_ran(moments, first=first),
        shown=tuple(shown),
        notes=tuple(notes),
        dated=series.dated,
    )


def _limits(series: Series, policy: Policy, run: EngineRun) -> Iterator[str]:
    """Who is taken to keep the batch limits of the policy's settings."""
    versions = dict.fromkeys(m.target.engine or run.version for m in series.moments)
    for version in versions:
        engine = replace(run, version=version)
        left = limits_left_to_rules(policy, engine=engine)
        said = f"on vLLM {version}" if version else "the engine's version is not known, so that"
        yield from (
            f"{said} disableAboveBatchSize {limit} of {name} is kept by the rule "
            f"{rule_name(name)} and the gate BatchLimit, which take part"
            for name, limit in left.items()
        )


def _lived(moments: Sequence[Moment], *, first: str) -> list[tuple[datetime, Readings, str]]:
    """Time, readings and what ran; a moment that does not tell is as before."""
    found, name = [], first
    for moment in moments:
        name = moment.ran or name
        found.append((moment.at, moment.readings, name))
    return found


def _version(found: Found, *, counts_drafts: bool) -> RuleSetVersion:
    rules = found.rule_set
    if not counts_drafts:
        rules = replace(rules, rules=tuple(replace(r, min_drafts=0) for r in rules.rules))
    if found.version is not None:
        return replace(found.version, rule_set=rules)
    return RuleSetVersion(
        namespace="",
        version=0,
        rule_set=rules,
        content_hash=rules.content_hash(),
        author="",
        source=found.label,
    )


def _nameless(found: Sequence[Found], ran: Sequence[str]) -> Policy:
    """A policy with the default limits and the names that the series and the rules use."""
    asked = [r.setting for f in found for r in f.rule_set.rules if r.setting != SPECULATING]
    names = [n for n in dict.fromkeys([*ran, *asked]) if n not in {"", OFF_NAME}] or [SPECULATING]
    return Policy(
        ref=PolicyRef(namespace="", name="replay", uid="replay"),
        target=TargetRef(kind="", namespace="", name=""),
        rule_set=found[0].rule_set.name,
        settings={OFF_NAME: OFF} | {name: Setting(name=name, method=name) for name in names},
    )


def _missing(
    series: Series, found: Sequence[Found], policy: Policy, *, measured: bool
) -> Iterator[str]:
    """What the rules ask for that the policy or the series does not have."""
    for each in found:
        asked = dict.fromkeys(r.setting for r in each.rule_set.rules if r.setting != SPECULATING)
        yield from (
            f"{each.label} asks for {name}, which {policy.ref} has not: it is never taken"
            for name in asked
            if name not in policy.settings
        )
    known = {"cost_ratio"} if policy.cost_ratios or measured else set()
    for name in sorted(named_signals(found) - known):
        if not any(m.readings[name].known for m in series.moments):
            reading = series.moments[-1].readings[name]
            yield f"{name} is Unknown at every moment: {reading.message or reading.reason}"
    if (gaps := _gaps(series.moments, found)) > 0:
        yield (
            f"{gaps} gaps between moments are longer than the grace of a rule: what had been held "
            "began anew (set `grace`, or a shorter --step)"
        )


def _gaps(moments: Sequence[Moment], found: Sequence[Found]) -> int:
    waiting = [r for f in found for r in f.rule_set.rules if r.hold or r.at_least is not None]
    grace = min((r.grace for r in waiting), default=timedelta.max)
    return sum(b.at - a.at > grace for a, b in pairwise(moments))
