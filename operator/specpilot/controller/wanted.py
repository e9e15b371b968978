"""Which signals a policy needs, so that nobody fetches buckets and devices for nothing."""

from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.policy import Policy
from specpilot.domain.signals import STANDING


def wanted_signals(policy: Policy, rules: CompiledRuleSet | None) -> frozenset[str]:
    """Signals that the rules and guardrails name, and those that are always looked at.

    Args:
        policy: The policy.
        rules: Its rules; None where they cannot be used.
    """
    named = {guardrail.signal for guardrail in policy.guardrails}
    return STANDING | named | (rules.signals if rules else frozenset())
