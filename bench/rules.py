"""Evaluating rules: policies a second, against the same comparisons written in Python.

    python bench/rules.py [POLICIES]

The ratio says what the language costs; the absolute figure whether a tick of that many policies
fits its interval.
"""

import sys
import time
from datetime import UTC, datetime, timedelta

from specpilot.domain.context import TargetFacts
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.readings import Reading, Readings
from specpilot.domain.rules import Rule, RuleSet
from specpilot.domain.settings import Setting

RULES = RuleSet(
    name="bench",
    parameters={"low": 1.6, "busy": 32.0},
    rules=tuple(
        Rule(
            name=f"rule-{i}",
            when="mean_acceptance_length < params.low && batch_size > params.busy",
            setting="off",
            hold=timedelta(minutes=5),
        )
        for i in range(6)
    ),
)


def main() -> None:
    policies = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    now = datetime.now(UTC)
    readings = Readings.of(
        [
            Reading(signal="mean_acceptance_length", value=1.4, at=now, count=2000),
            Reading(signal="batch_size", value=40.0, at=now, count=20),
        ]
    )
    compiled = CompiledRuleSet(RULES)
    target = TargetFacts(name="chat", namespace="serving", replicas=4, ready=4, engine="0.32.0")
    active = Setting(name="ngram", method="ngram", num_speculative_tokens=4)
    began = time.process_time()
    for _ in range(policies):
        compiled.evaluate(
            readings, active=active, parameters={}, pending={}, target=target, now=now
        )
    cel = time.process_time() - began
    began = time.process_time()
    fired = 0
    for _ in range(policies):
        for _rule in RULES.rules:
            length, batch = readings.value("mean_acceptance_length"), readings.value("batch_size")
            fired += length is not None and batch is not None and length < 1.6 and batch > 32
    plain = time.process_time() - began
    assert fired == policies * len(RULES.rules)
    print(f"{policies} policies x {len(RULES.rules)} rules: {cel:.2f} s of CPU with CEL,")
    print(f"evidence and words; {plain:.3f} s for the bare comparisons; ratio {cel / plain:.0f}")


if __name__ == "__main__":
    main()
