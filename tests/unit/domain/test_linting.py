"""Lint: what it finds, that a witness is one, and that what is called impossible never happens."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.domain.conditions import Truth
from specpilot.domain.context import TargetFacts
from specpilot.domain.evaluation import CompiledRuleSet, Evaluation
from specpilot.domain.linting import Code, Finding, Situation, lint
from specpilot.domain.readings import Reading, Readings
from specpilot.domain.rules import AtLeast, OnUnknown, Rule, RuleSet
from specpilot.domain.settings import OFF, Setting
from specpilot.domain.signals import SIGNALS

LONG = timedelta(minutes=5)
MINUTE = timedelta(minutes=1)
PARAMETERS = {"low": 1.6, "busy": 32.0, "bound": 0.0}


def rule(
    name: str, when: str, setting: str = "off", hold: timedelta = LONG, **more: object
) -> Rule:
    return Rule(name=name, when=when, setting=setting, hold=hold, **more)  # type: ignore[arg-type] # the fields of a rule


def find(*rules: Rule, parameters: Mapping[str, float] | None = None) -> list[Finding]:
    used = " ".join(r.when + r.until for r in rules)
    known = {k: v for k, v in PARAMETERS.items() if f"params.{k}" in used}
    if parameters is not None:
        known = dict(parameters)
    return list(lint(CompiledRuleSet(RuleSet(name="r", rules=rules, parameters=known))))


OFF_WHEN_POOR = rule("poor", "mean_acceptance_length < params.low && batch_size > params.busy")
ON_WHEN_QUIET = rule("quiet", "batch_size < 4 && queue_depth == 0", "eagle3")

TABLE: list[tuple[tuple[Rule, ...], list[tuple[Code, str]], str]] = [
    (
        (OFF_WHEN_POOR, ON_WHEN_QUIET),
        [],
        "rules that exclude each other by load are sound",
    ),
    (
        (rule("a", "batch_size > 32 && batch_size < 8"),),
        [(Code.NEVER_TRUE, "a")],
        "no number is above 32 and below 8",
    ),
    (
        (rule("a", "acceptance_rate > 60"),),
        [(Code.NEVER_TRUE, "a")],
        "a share is at most 1: 60 was meant to be 60%",
    ),
    (
        (rule("a", "mean_acceptance_length < 1"),),
        [(Code.NEVER_TRUE, "a")],
        "every drafted step gains its bonus token",
    ),
    (
        (rule("a", "cost_ratio > 1.2"),),
        [],
        "a cost ratio is a multiple and no share",
    ),
    (
        (rule("a", "batch_size > 32", until="batch_size > 16"),),
        [(Code.NEVER_TRUE, "a"), (Code.UNTIL_WITH_WHEN, "a")],
        "an until that holds whenever the condition does ends the rule before it begins",
    ),
    (
        (rule("a", "batch_size > 32", until="batch_size < 64"),),
        [(Code.UNTIL_WITH_WHEN, "a")],
        "between 32 and 64 the rule is on and off at once",
    ),
    (
        (rule("a", "batch_size > 32", until="batch_size < 24"),),
        [],
        "separate thresholds for on and off",
    ),
    (
        (rule("a", "setting.name == 'off' && batch_size > 32"),),
        [(Code.NEVER_TRUE, "a")],
        "it asks for off only where off runs already",
    ),
    (
        (rule("a", "params.bound > 0 && tpot_p99 > params.bound"),),
        [(Code.NEEDS_PARAMETER, "a")],
        "a rule may wait for the policy to state a bound",
    ),
    (
        (rule("a", "batch_size > 32"), rule("b", "batch_size > 64")),
        [(Code.SHADOWED, "b")],
        "above 64 is above 32",
    ),
    (
        (rule("a", "batch_size > 32"), rule("b", "batch_size > 64", hold=MINUTE)),
        [],
        "the later rule is quicker, so it has its use",
    ),
    (
        (rule("a", "batch_size > 64"), rule("b", "batch_size > 32")),
        [],
        "the later rule is wider",
    ),
    (
        (rule("a", "batch_size > 32", min_drafts=1000), rule("b", "batch_size > 64")),
        [],
        "without enough drafts only the later rule is true",
    ),
    (
        (OFF_WHEN_POOR, rule("on", "batch_size < 64", "eagle3")),
        [(Code.CHASE, "on")],
        "poor at a batch of 48 goes off; while off acceptance is Unknown, so 48 goes on again",
    ),
    (
        (
            rule("deep", "batch_size * (setting.depth + 1) > 64"),
            rule("on", "batch_size < 32", "eagle3"),
        ),
        [(Code.BEYOND, "deep"), (Code.CHASE, "on")],
        "a condition on the active setting changes with the flip that it causes",
    ),
    (
        (rule("off", "batch_size > 32"), rule("on", "batch_size < 64", "eagle3")),
        [(Code.OVERLAP, "on")],
        "between 32 and 64 the order decides, and one reading below 32 brings on at once",
    ),
    (
        (
            rule("off", "batch_size > 32", until="batch_size < 24"),
            rule("on", "batch_size < 64", "eagle3"),
        ),
        [],
        "the band of the upper rule keeps the lower one from its turn",
    ),
    (
        (
            rule("off", "batch_size > 32", until="batch_size < 24"),
            rule("on", "batch_size < 64", "eagle3", MINUTE),
        ),
        [(Code.THERE_AND_BACK, "on")],
        "the lower rule is quicker and is taken back",
    ),
    (
        (rule("night", "time.hour >= 22"), rule("day", "batch_size > 8", "eagle3")),
        [],
        "a clock does not flicker",
    ),
    (
        (rule("deeper", "batch_size < 8", "deep"), rule("off", "batch_size > 64")),
        [],
        "different settings at different loads",
    ),
    (
        (rule("on", "mean_acceptance_length > 2", "eagle3"), OFF_WHEN_POOR),
        [(Code.NOT_MEASURED, "on")],
        "acceptance does not exist while off, when the rule would have to fire",
    ),
    (
        (rule("on", "batch_size < 4", "eagle3", min_drafts=100),),
        [(Code.NOT_MEASURED, "on")],
        "nothing is drafted while off",
    ),
    (
        (rule("keep", "mean_acceptance_length > 2", "speculating", timedelta(0)), OFF_WHEN_POOR),
        [(Code.ONLY_KEEPS, "keep")],
        "it keeps what runs from the rule below it, which is a use",
    ),
    (
        (
            rule("deeper", "acceptance_rate > 0.8", "deep"),
            rule("shallower", "acceptance_rate < 0.5", "shallow"),
        ),
        [(Code.ONLY_KEEPS, "deeper"), (Code.ONLY_KEEPS, "shallower")],
        "between two settings that speculate acceptance exists",
    ),
    (
        (rule("a", "batch_size > 32", hold=timedelta(0)),),
        [(Code.NO_FOR, "a")],
        "one reading is enough to flip",
    ),
    (
        (
            rule("a", "batch_size > 32", hold=timedelta(0),
                 at_least=AtLeast(windows=2, of=3, each=MINUTE)),
        ),
        [],
        "windows wait as well as for does",
    ),
    (
        (rule("a", "time.hour >= 22", hold=timedelta(0)),),
        [],
        "a clock needs no for",
    ),
    (
        (rule("a", "tpot_p99 > 30ms"),),
        [(Code.INSIDE_BUCKET, "a")],
        "between 25 and 50 ms the engine's histogram cannot tell",
    ),
    (
        (rule("a", "tpot_p99 > 50ms && tpot_mean > 30ms"),),
        [],
        "a bound can be told, and a mean is exact",
    ),
    (
        (rule("a", "e2e_p99 < 200ms"),),
        [(Code.INSIDE_BUCKET, "a")],
        "nothing is counted below 300 ms",
    ),
    (
        (rule("a", "ttft_p50 > 5000s"),),
        [(Code.INSIDE_BUCKET, "a")],
        "nothing is counted above the last bound",
    ),
    (
        (rule("a", "acceptance_rate < 60"),),
        [(Code.FIXED, "a")],
        "60 was meant to be 60%, and every share is below 60",
    ),
    (
        (rule("a", "acceptance_rate < 60% && batch_size >= 1 && cost_ratio < 60"),),
        [],
        "what a reading can change",
    ),
    (
        (rule("a", "batch_size > 32 || kv_cache_usage > 80"),),
        [(Code.FIXED, "a")],
        "the other part hides that this one is never true",
    ),
    (
        (rule("a", "batch_size > 32", until="mean_acceptance_length >= 1 && batch_size < 8"),),
        [(Code.FIXED, "a")],
        "an until is looked at too",
    ),
    (
        (rule("a", "batch_size > 32 && target.release > 0.32"),),
        [(Code.FIXED, "a")],
        "a release is a whole number: 0.32 is 32",
    ),
    (
        (rule("a", "batch_size > 32 && setting.depth > 0 && setting.depth != 0"),),
        [],
        "the depth is 0 while off",
    ),
    (
        (rule("a", "batch_size > 32 && setting.name != 'OFF'"),),
        [(Code.FIXED, "a")],
        "the name of off is in small letters",
    ),
    (
        (rule("a", "batch_size > 32 && time.weekday in [0, 6]"),),
        [(Code.FIXED, "a")],
        "Sunday is 7",
    ),
    (
        (rule("a", "mean_acceptance_length < cost_ratio"),),
        [(Code.BEYOND, "a")],
        "two signals against each other are tried, not proved",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "expected", "reason"), TABLE, ids=[t[2] for t in TABLE])
def test_what_is_found(
    rules: tuple[Rule, ...], expected: list[tuple[Code, str]], reason: str
) -> None:
    found = [(f.code, f.rules[0]) for f in find(*rules)]
    assert sorted(found) == sorted(expected), reason


def test_every_code_has_its_case() -> None:
    shown = {code for _, expected, _ in TABLE for code, _ in expected}
    elsewhere = {Code.INVALID, Code.UNKNOWN_NAME, Code.UNUSED_PARAMETER}
    of_limits = {code for _, _, codes, _ in LIMITS for code in codes}
    assert shown | elsewhere | of_limits == set(Code)


def test_a_parameter_that_nothing_uses_is_named() -> None:
    (finding,) = find(rule("a", "batch_size > 32"), parameters={"spare": 1.0})
    assert (finding.code, finding.field) == (Code.UNUSED_PARAMETER, "parameters.spare")


@pytest.mark.parametrize(
    ("when", "says"),
    [
        (
            "acceptance_rate < 60",
            "always true: acceptance_rate lies between 0 and 1; write 60% or 0.6",
        ),
        ("target.release == 0.32", "0.32 is written 32 and 1.2 is written 1002"),
        ("setting.name == 'OFF'", "always false: the name of no speculation is 'off'"),
        ("queue_depth >= 0", "always true: queue_depth is at least 0; correct or remove it"),
        ("!(replicas_ready < -1)", "replicas_ready < -1 is always false"),
    ],
)
def test_a_comparison_that_no_reading_changes_says_why(when: str, says: str) -> None:
    (finding,) = [f for f in find(rule("a", when)) if f.code is Code.FIXED]
    assert says in finding.message


def test_a_threshold_inside_a_bucket_is_told_with_its_bounds_and_the_nearest() -> None:
    (finding,) = find(rule("a", "tpot_p99 > params.busy"), parameters={"busy": 0.045})
    assert "from 25ms to 50ms" in finding.message
    assert "nearest bound is 50ms" in finding.message


def test_a_chase_is_shown_with_a_reading_and_both_settings() -> None:
    (finding,) = find(OFF_WHEN_POOR, rule("on", "batch_size < 64", "eagle3"))
    assert finding.witness is not None
    assert 32 < float(finding.witness.known["batch_size"]) < 64
    assert float(finding.witness.known["mean_acceptance_length"]) < 1.6
    assert finding.witness.active == ("eagle3", "off")
    assert "poor asks for off while eagle3 runs" in finding.message


# --- properties

_ATOMS = st.one_of(
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["batch_size", "queue_depth", "mean_acceptance_length", "tpot_p99"]),
        st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
        st.sampled_from(["0", "1", "1.6", "8", "32", "params.low", "params.busy * 0.5"]),
    ),
    st.sampled_from(
        [
            "acceptance_rate > 50%",
            "time.hour >= 22",
            "setting.depth > 3",
            "setting.name == 'off'",
            "mean_acceptance_length < cost_ratio * 1.1",
            "target.release >= 32",
            "target.labels.tier == 'chat'",
        ]
    ),
)
_CONDITIONS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
    ),
    max_leaves=4,
)
_RULES = st.builds(
    Rule,
    name=st.just("x"),
    when=_CONDITIONS,
    until=st.one_of(st.just(""), st.just(""), _CONDITIONS),
    setting=st.sampled_from(["off", "eagle3", "speculating"]),
    hold=st.sampled_from([timedelta(0), MINUTE, LONG]),
    min_drafts=st.sampled_from([0, 100]),
    on_unknown=st.sampled_from(OnUnknown),
)
_SETS = st.lists(_RULES, min_size=1, max_size=3).map(
    lambda rules: RuleSet(
        name="r",
        parameters={"low": 1.6, "busy": 32.0},
        rules=tuple(
            Rule(
                name=f"r{n}", when=r.when, until=r.until, setting=r.setting, hold=r.hold,
                min_drafts=r.min_drafts, on_unknown=r.on_unknown,
            )
            for n, r in enumerate(rules)
        ),
    )
)  # fmt: skip
_VALUES = st.sampled_from([None, 0.0, 0.3, 1.0, 1.3, 1.6, 5.0, 8.0, 16.0, 20.0, 32.0, 100.0])
_ACTIVE = st.sampled_from(
    [
        OFF,
        Setting(name="eagle3", method="eagle3", num_speculative_tokens=3),
        Setting(name="speculating", method="ngram", num_speculative_tokens=7),
    ]
)


@st.composite
def _situations(draw: st.DrawFn) -> Situation:
    """Any reading that can be: shares up to 1, no acceptance while off."""
    active = draw(_ACTIVE)
    values: dict[str, float] = {}
    for name, low, high in (
        ("batch_size", 0, 1000),
        ("queue_depth", 0, 1000),
        ("tpot_p99", 0, 1000),
        ("mean_acceptance_length", 1, 1000),
        ("cost_ratio", 0, 1000),
        ("acceptance_rate", 0, 1),
    ):
        value = draw(_VALUES)
        if value is not None and low <= value <= high:
            values[name] = value
    values["drafts"] = draw(st.sampled_from([10.0, 5000.0]))
    return Situation(
        readings=Readings.of(
            Reading(signal=name, value=value)
            for name, value in values.items()
            if not (active.is_off and SIGNALS[name].needs_speculation)
        ),
        active=active,
        target=TargetFacts(
            engine=draw(st.sampled_from([None, "0.20.0", "0.40.0"])),
            labels=draw(st.sampled_from([None, {}, {"tier": "chat"}])),
        ),
        now=datetime(2026, 1, 5, draw(st.sampled_from([0, 12, 23])), tzinfo=UTC),
    )


def ask(rules: CompiledRuleSet, situation: Situation) -> Evaluation:
    return rules.evaluate(
        situation.readings,
        active=situation.active,
        parameters={},
        pending={},
        target=situation.target,
        now=situation.now,
        assume_held=True,
    )


def true(evaluation: Evaluation, name: str) -> bool:
    return any(v.rule == name and v.truth is Truth.TRUE for v in evaluation.verdicts)


def _pair_of(rule_set: RuleSet, finding: Finding) -> tuple[str, str]:
    later, earlier = finding.rules
    settings_of = {r.name: r.setting for r in rule_set.rules}
    assert settings_of[later] != settings_of[earlier]
    return later, earlier


@settings(max_examples=60)
@given(rule_set=_SETS)
def test_every_witness_of_a_pair_satisfies_both_rules(rule_set: RuleSet) -> None:
    rules = CompiledRuleSet(rule_set)
    for finding in lint(rules):
        if finding.code not in {Code.CHASE, Code.OVERLAP, Code.THERE_AND_BACK}:
            continue
        later, earlier = _pair_of(rule_set, finding)
        assert finding.witness is not None
        over, under = (ask(rules, s) for s in finding.witness.situations)
        assert true(over, earlier), finding
        assert true(under, later), finding
        assert over.winner is not None
        assert over.winner.rule == earlier
        assert under.winner is not None
        assert under.winner.rule == (later if finding.code is Code.CHASE else earlier)


def test_too_few_drafts_can_be_what_makes_a_rule_fire() -> None:
    """Its `until` ends it at once, unless drafts are missing and Unknown counts as true."""
    night = rule("off", "time.hour < 22", until="time.hour < 22", min_drafts=100)
    assert Code.NEVER_TRUE in {f.code for f in find(night)}
    fires = replace(night, on_unknown=OnUnknown.FIRE)
    assert Code.NEVER_TRUE not in {f.code for f in find(fires)}


@settings(max_examples=60)
@given(rule_set=_SETS, situations=st.lists(_situations(), min_size=8, max_size=8))
def test_what_is_called_impossible_never_happens(
    rule_set: RuleSet, situations: list[Situation]
) -> None:
    rules = CompiledRuleSet(rule_set)
    settings_of = {r.name: r.setting for r in rule_set.rules}
    for finding in lint(rules):
        for situation in situations:
            evaluation = ask(rules, situation)
            if finding.code is Code.NEVER_TRUE:
                asks = settings_of[finding.rules[0]]
                at_home = asks == situation.active.name or (
                    asks == "speculating" and not situation.active.is_off
                )
                assert at_home or not true(evaluation, finding.rules[0]), finding
            if finding.code is Code.SHADOWED and true(evaluation, finding.rules[0]):
                asks = settings_of[finding.rules[0]]
                assert asks == situation.active.name or true(evaluation, finding.rules[1]), finding
            if finding.code is Code.NOT_MEASURED and situation.active.is_off:
                assert not true(evaluation, finding.rules[0]), finding


def test_why_an_overlap_is_an_error() -> None:
    """The lower rule has held all along, and wins at the first reading below the upper bound."""
    upper = rule("off", "batch_size > 32")
    lower = rule("on", "batch_size < 64", "eagle3")

    def winner_after_a_dip(first: Rule) -> str:
        rules = CompiledRuleSet(RuleSet(name="r", rules=(first, lower)))
        pending, start = {}, datetime(2026, 1, 5, tzinfo=UTC)
        for second, batch in [*((s, 40.0) for s in range(0, 600, 15)), (600, 31.9)]:
            evaluation = rules.evaluate(
                Readings.of([Reading(signal="batch_size", value=batch)]),
                active=OFF,
                parameters={},
                pending=pending,
                target=TargetFacts(),
                now=start + timedelta(seconds=second),
            )
            pending = dict(evaluation.pending)
        assert evaluation.winner is not None
        return evaluation.winner.rule

    assert winner_after_a_dip(upper) == "on"
    assert winner_after_a_dip(replace(upper, until="batch_size < 24")) == "off"


# --- with the limits of a policy's settings

NGRAM_ONLY = {"ngram": 32}
BOTH: dict[str, int | None] = {"ngram": 32, "deep": None}

LIMITS: list[tuple[Rule, Mapping[str, int | None], list[Code], str]] = [
    (rule("on", "batch_size < 4", "ngram"), NGRAM_ONLY, [], "well below the limit"),
    (rule("on", "batch_size > 40", "ngram"), NGRAM_ONLY, [Code.NEVER_COMES],
     "only where the limit forbids it"),
    (rule("on", "batch_size >= 25.6", "ngram"), NGRAM_ONLY, [Code.NEVER_COMES],
     "the gate holds from the end of the dead band on"),
    (rule("on", "batch_size > 20", "ngram"), NGRAM_ONLY, [Code.HELD_ABOVE], "on both sides of it"),
    (rule("on", "queue_depth > 4", "ngram"), NGRAM_ONLY, [], "it does not look at the batch"),
    (rule("on", "batch_size > 40", "deep"), BOTH, [], "another setting, without a limit"),
    (rule("on", "batch_size > 40", "speculating"), NGRAM_ONLY, [Code.NEVER_COMES],
     "the only one that it can mean has the limit"),
    (rule("on", "batch_size > 40", "speculating"), BOTH, [], "it may mean the other"),
    (rule("on", "batch_size > 40", "ngram"), {"ngram": None}, [], "the engine keeps it"),
    (rule("off", "batch_size > 40"), NGRAM_ONLY, [Code.SHADOWED],
     "the limit is lower, and fires no later"),
    (rule("off", "batch_size > 40", hold=MINUTE), NGRAM_ONLY, [], "it fires sooner"),
    (rule("off", "batch_size > 30"), NGRAM_ONLY, [], "it is true where the limit's is not"),
    (rule("off", "batch_size > 40"), BOTH, [], "the other setting has no limit"),
    (rule("off", "batch_size > 40", until="batch_size < 8"), NGRAM_ONLY, [],
     "it stays true longer"),
    (rule("off", "batch_size > 40 && queue_depth > 2"), NGRAM_ONLY, [Code.SHADOWED],
     "narrower still"),
]  # fmt: skip


@pytest.mark.parametrize(("given_", "limits", "codes", "reason"), LIMITS)
def test_what_a_limit_that_rules_keep_does_to_a_rule(
    given_: Rule, limits: Mapping[str, int | None], codes: list[Code], reason: str
) -> None:
    compiled = CompiledRuleSet(RuleSet(name="r", rules=(given_,)))
    about = {Code.NEVER_COMES, Code.HELD_ABOVE, Code.SHADOWED, Code.CHASE, Code.OVERLAP}
    found = lint(compiled, settings=limits, window=MINUTE)
    assert [f.code for f in found if f.code in about] == codes, reason
    assert not any(f.code in about for f in lint(compiled)), "without the policy nothing shows it"


def test_a_limit_does_not_undo_what_a_gate_holds() -> None:
    """At a batch of 40 the limit turns ngram off and the rule wants it back: the gate decides."""
    rules = CompiledRuleSet(RuleSet(name="r", rules=(rule("on", "batch_size > 1", "ngram"),)))
    found = lint(rules, settings=NGRAM_ONLY, window=MINUTE)
    assert Code.CHASE not in {f.code for f in found}
    (held,) = [f for f in found if f.code is Code.HELD_ABOVE]
    assert "below a batch of 25.6" in held.message
