"""Which setting of a policy a rule means."""

import pytest

from specpilot.domain.asking import asked_for, speculating
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.settings import OFF, SPECULATING, UNRECOGNISED, Setting
from tests.unit.domain.builders import NGRAM, policy

EAGLE = Setting(name="eagle3", method="eagle3", model="m", num_speculative_tokens=3)
FOREIGN = Setting(name=UNRECOGNISED, method=UNRECOGNISED)
P = policy(settings={"eagle3": EAGLE, "ngram": NGRAM, "off": OFF})


@pytest.mark.parametrize(
    ("name", "last", "active", "expected", "reason"),
    [
        ("ngram", "", OFF, NGRAM, "a setting's own name"),
        ("off", "ngram", NGRAM, OFF, "off always exists"),
        ("gone", "", OFF, None, "the policy no longer has it"),
        (SPECULATING, "", OFF, EAGLE, "nothing ran yet: the policy's first that speculates"),
        (SPECULATING, "ngram", OFF, NGRAM, "what ran last"),
        (SPECULATING, "gone", OFF, EAGLE, "what ran last was taken out of the policy"),
        (SPECULATING, "off", OFF, EAGLE, "off never speculates, whatever is remembered"),
        (SPECULATING, "ngram", EAGLE, EAGLE, "one that speculates runs: there is nothing to do"),
        (SPECULATING, "ngram", FOREIGN, FOREIGN, "so does one that somebody else put there"),
    ],
)
def test_which_setting_a_rule_means(
    name: str, last: str, active: Setting, expected: Setting | None, reason: str
) -> None:
    memory = PolicyMemory(last_speculating=last)
    assert asked_for(name, policy=P, memory=memory, active=active) == expected, reason


def test_a_policy_without_one_that_speculates_has_none() -> None:
    assert speculating(policy(settings={"off": OFF}), PolicyMemory()) is None
