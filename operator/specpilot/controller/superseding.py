"""Whether a proposal that waits is still what would be proposed."""

from specpilot.domain.asking import asked_for
from specpilot.domain.changes import ChangeKind, FlagChange
from specpilot.domain.conditions import Truth
from specpilot.domain.evaluation import Evaluation
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Policy
from specpilot.domain.settings import Setting
from specpilot.domain.targets import TargetState
from specpilot.engines import render_for


def no_longer(
    change: FlagChange,
    *,
    policy: Policy,
    evaluation: Evaluation,
    memory: PolicyMemory,
    active: Setting,
    state: TargetState,
) -> str:
    """Say why a pending change would not be proposed any more; "" while it would.

    Args:
        change: The proposal.
        policy: Its policy, as it is now.
        evaluation: Of the rules, as they are now.
        memory: What is remembered of the policy.
        active: What runs.
        state: The target.
    """
    winner = evaluation.winner
    why = ""
    if winner is not None:
        asked = asked_for(winner.setting, policy=policy, memory=memory, active=active)
        name = asked.name if asked is not None else winner.setting
        if name != change.wanted.setting:
            why = f"the rules now ask for {name}: {winner.why}"
    elif change.kind is ChangeKind.RULE and _false_now(change, evaluation):
        why = f"rule {change.rule.rule} does not hold any more"
    proposed = policy.settings.get(change.wanted.setting)
    if proposed is not None and not why:
        rendered = render_for(proposed, state.engine)
        if not rendered.refused and rendered.config != change.wanted.config:
            why = f"setting {proposed.name} was edited, or the engine is run in another way"
    return why


def _false_now(change: FlagChange, evaluation: Evaluation) -> bool:
    """Whether the rule that asked is known not to hold; what is Unknown withdraws nothing."""
    return any(
        verdict.rule == change.rule.rule and verdict.truth is Truth.FALSE
        for verdict in evaluation.verdicts
    )
