"""Rule sets as content: what is stored, what is hashed, and what comes back."""

import json
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.rules import AtLeast, OnUnknown, Rule, RuleSet
from specpilot.domain.settings import canonical_json

seconds = st.integers(0, 10_000).map(lambda s: timedelta(seconds=s))
rules = st.builds(
    Rule,
    name=st.text(),
    when=st.text(),
    setting=st.text(),
    hold=seconds,
    at_least=st.none()
    | st.builds(AtLeast, windows=st.integers(1, 60), of=st.integers(1, 60), each=seconds),
    until=st.text(),
    on_unknown=st.sampled_from(OnUnknown),
    grace=seconds,
    min_drafts=st.integers(0, 10_000),
)
rule_sets = st.builds(
    RuleSet,
    name=st.text(),
    rules=st.lists(rules, max_size=3).map(tuple),
    parameters=st.dictionaries(st.text(), st.integers(-1000, 1000).map(float)),
    time_zone=st.text(),
    description=st.text(),
)


@given(rule_sets)
def test_a_rule_set_comes_back_as_it_was(rule_set: RuleSet) -> None:
    assert RuleSet.from_content(json.loads(canonical_json(rule_set.content()))) == rule_set


@given(rule_sets, rule_sets)
def test_the_hash_tells_rule_sets_apart(one: RuleSet, other: RuleSet) -> None:
    assert (one.content_hash() == other.content_hash()) is (one.content() == other.content())
    if one != other and one.parameters == other.parameters:
        assert one.content() != other.content()


def test_a_rule_set_of_the_first_release_keeps_its_hash() -> None:
    """Else it would become a new version when the operator is upgraded."""
    old = RuleSet(
        name="guard",
        parameters={"busy": 32},
        description="d",
        rules=(
            Rule(
                name="a",
                when="batch_size > params.busy",
                setting="off",
                hold=timedelta(minutes=5),
                min_drafts=100,
            ),
            Rule(name="b", when="batch_size < 4", setting="eagle3"),
        ),
    )
    assert old.content_hash() == (
        "7d6bd35d067c0a1094be1e504e268e5c6728dde52a2917dfef518145e8d9ad32"
    )
