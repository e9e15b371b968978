"""Rule sets from the database, compiled once a version."""

from collections.abc import Mapping
from typing import TypeAlias

from specpilot.domain.changes import FlagChange
from specpilot.domain.evaluation import CompiledRuleSet, RuleSetError
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Policy
from specpilot.domain.rules import RuleSetVersion
from specpilot.domain.settings import SPECULATING
from specpilot.store import RuleOwner, Store

Found: TypeAlias = tuple[RuleSetVersion, CompiledRuleSet]
"""A version, and the same ready to evaluate."""


class Rulebook:
    """Finds the version a policy follows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._compiled: dict[str, CompiledRuleSet] = {}

    def find(
        self, policy: Policy, *, change: FlagChange | None, memory: PolicyMemory
    ) -> Found | RuleSetError:
        """Return the version in force for a policy, or why there is none.

        Args:
            policy: The policy.
            change: Its change in flight.
            memory: What is remembered of it.
        """
        try:
            return self.get(policy, kept=kept_version(policy, change, memory))
        except RuleSetError as error:
            return error

    def get(self, policy: Policy, *, kept: int | None = None) -> Found:
        """Return the kept, else the pinned, else the latest version.

        Args:
            policy: The policy.
            kept: See `kept_version`.

        Raises:
            RuleSetError: There is none, it does not compile, or it does not fit the policy.
        """
        number = policy.rule_version if kept is None else kept
        with self._store.read() as uow:
            version = (
                uow.rules.latest(namespace=policy.ref.namespace, name=policy.rule_set)
                if number is None
                else uow.rules.get(
                    namespace=policy.ref.namespace, name=policy.rule_set, version=number
                )
            )
            owner = uow.rules.owner(namespace=policy.ref.namespace, name=policy.rule_set)
        if version is not None and owner is RuleOwner.NOBODY:
            raise RuleSetError(
                f"spec.rules.ruleSet: the rule set {policy.rule_set} was deleted; "
                "apply it again, or name another one"
            )
        if version is None:
            pinned = "" if number is None else f" version {number}"
            raise RuleSetError(
                f"spec.rules.ruleSet: there is no rule set {policy.rule_set}{pinned} in namespace "
                f"{policy.ref.namespace}; apply one, or name one that exists"
            )
        compiled = self._compiled.get(version.content_hash)
        if compiled is None:
            compiled = CompiledRuleSet(version.rule_set)
            self._compiled[version.content_hash] = compiled
        check_fit(version, policy.settings, policy.parameters)
        return version, compiled


def kept_version(policy: Policy, change: FlagChange | None, memory: PolicyMemory) -> int | None:
    """Version that a policy in mid-flip keeps to its end; None where no flip is on.

    A rule set that is edited meanwhile must not judge what another version has begun. A proposal
    that waits for approval has begun nothing: the newest rules may withdraw it.
    """
    if change is None or not change.phase.touches_replicas:
        return None
    if change.rule.rule_set == policy.rule_set:
        return change.rule.version
    # A probe rests on no rule; what was in force when it began is remembered.
    name, _, version = memory.rules.rpartition("@")
    return int(version) if name == policy.rule_set and version.isdigit() else None


def check_fit(
    version: RuleSetVersion, settings: Mapping[str, object], parameters: Mapping[str, float]
) -> None:
    """Check that a policy has what the rules ask for.

    Raises:
        RuleSetError: A rule asks for a setting the policy has not (`speculating` stands for any
            that it has), or a parameter is unknown.
    """
    name = version.rule_set.name
    for rule in version.rule_set.rules:
        if rule.setting not in settings and rule.setting != SPECULATING:
            raise RuleSetError(
                f"rule {name}/{rule.name} asks for setting {rule.setting!r}, which spec.settings "
                f"does not have (it has {', '.join(settings)}); add it or use another rule set"
            )
    for key in parameters:
        if key not in version.rule_set.parameters:
            known = ", ".join(version.rule_set.parameters) or "none"
            raise RuleSetError(
                f"spec.rules.parameters.{key}: rule set {name} has no such parameter "
                f"(it has {known}); remove it"
            )
