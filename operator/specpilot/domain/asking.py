"""Which of a policy's settings a rule means.

A rule set that is shared cannot know what a policy calls its settings. It may ask for `off`, which
always exists, and for `speculating`, which is whatever "on" means to the policy.
"""

from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Policy
from specpilot.domain.settings import SPECULATING, Setting


def speculating(policy: Policy, memory: PolicyMemory) -> Setting | None:
    """The setting that ran last of those that speculate, else the policy's first; None without."""
    last = policy.settings.get(memory.last_speculating)
    if last is not None and not last.is_off:
        return last
    return next((s for s in policy.settings.values() if not s.is_off), None)


def asked_for(
    name: str, *, policy: Policy, memory: PolicyMemory, active: Setting
) -> Setting | None:
    """The setting meant by a name in a rule; None where the policy has none of that name.

    While something speculates, `speculating` is what runs: the rule has what it asks for.
    """
    if name != SPECULATING:
        return policy.settings.get(name)
    return speculating(policy, memory) if active.is_off else active
