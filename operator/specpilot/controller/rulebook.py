"""Rule sets from the database, read and compiled once a version."""

from collections.abc import Mapping
from typing import TypeAlias

from specpilot.domain.batch_limits import with_limits
from specpilot.domain.changes import FlagChange
from specpilot.domain.evaluation import CompiledRuleSet, RuleSetError
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Policy
from specpilot.domain.rules import RuleSetVersion
from specpilot.domain.settings import SPECULATING
from specpilot.store import Head, RuleOwner, Store, UnitOfWork

Found: TypeAlias = tuple[RuleSetVersion, CompiledRuleSet]
"""A version, and the same ready to evaluate."""

Key: TypeAlias = tuple[str, str, int]
"""Namespace and name of a rule set, and the number of a version."""


_NONE: Mapping[str, int] = {}


class Rulebook:
    """Finds the version a policy follows. Belongs to one evaluator.

    A version never changes: each is read and compiled once. What is asked of the database at every
    tick is one question for all policies: which version is the newest of each rule set.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._heads: Mapping[tuple[str, str], Head] = {}
        self._versions: dict[Key, RuleSetVersion] = {}
        self._compiled: dict[object, CompiledRuleSet] = {}

    def load(self, uow: UnitOfWork) -> None:
        """Read where the rule sets stand, within the transaction a tick reads everything in."""
        self._heads = uow.rules.heads()

    def find(
        self,
        policy: Policy,
        *,
        change: FlagChange | None,
        memory: PolicyMemory,
        limits: Mapping[str, int] = _NONE,
    ) -> Found | RuleSetError:
        """Return the version in force for a policy, or why there is none.

        Args:
            policy: The policy.
            change: Its change in flight.
            memory: What is remembered of it.
            limits: Batch limits that rules must keep to (`domain.batch_limits`).
        """
        try:
            return self.get(policy, kept=kept_version(policy, change, memory), limits=limits)
        except RuleSetError as error:
            return error

    def get(
        self, policy: Policy, *, kept: int | None = None, limits: Mapping[str, int] = _NONE
    ) -> Found:
        """Return the kept, else the pinned, else the latest version.

        Args:
            policy: The policy.
            kept: See `kept_version`.
            limits: See `find`.

        Raises:
            RuleSetError: There is none, it does not compile, or it does not fit the policy.
        """
        namespace, name = policy.ref.namespace, policy.rule_set
        head = self._heads.get((namespace, name))
        if head is not None and head.owner is RuleOwner.NOBODY:
            raise RuleSetError(
                f"spec.rules.ruleSet: the rule set {name} was deleted; "
                "apply it again, or name another one"
            )
        number = policy.rule_version if kept is None else kept
        wanted = number if number is not None else head.latest if head is not None else 0
        there = head is not None and 1 <= wanted <= head.latest
        version = self._version((namespace, name, wanted)) if there else None
        if version is None:
            pinned = "" if number is None else f" version {number}"
            raise RuleSetError(
                f"spec.rules.ruleSet: there is no rule set {name}{pinned} in namespace "
                f"{namespace}; apply one, or name one that exists"
            )
        key: object = version.content_hash
        if limits:
            key = (version.content_hash, policy.window, *sorted(limits.items()))
        compiled = self._compiled.get(key)
        if compiled is None:
            rules = with_limits(version.rule_set, limits, window=policy.window)
            compiled = self._compiled[key] = CompiledRuleSet(rules)
        check_fit(version, policy.settings, policy.parameters)
        return version, compiled

    def _version(self, key: Key) -> RuleSetVersion | None:
        if key not in self._versions:
            namespace, name, number = key
            with self._store.read() as uow:
                found = uow.rules.get(namespace=namespace, name=name, version=number)
            if found is None:
                return None
            self._versions[key] = found
        return self._versions[key]


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
