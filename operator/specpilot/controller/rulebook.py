"""Rule sets from the database, compiled once a version."""

from collections.abc import Mapping

from specpilot.domain.evaluation import CompiledRuleSet, RuleSetError
from specpilot.domain.policy import Policy
from specpilot.domain.rules import RuleSetVersion
from specpilot.store import RuleOwner, Store


class Rulebook:
    """Finds the version a policy follows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._compiled: dict[str, CompiledRuleSet] = {}

    def get(self, policy: Policy) -> tuple[RuleSetVersion, CompiledRuleSet]:
        """Return the pinned or the latest version.

        Raises:
            RuleSetError: There is none, it does not compile, or it does not fit the policy.
        """
        with self._store.read() as uow:
            version = (
                uow.rules.latest(namespace=policy.ref.namespace, name=policy.rule_set)
                if policy.rule_version is None
                else uow.rules.get(
                    namespace=policy.ref.namespace,
                    name=policy.rule_set,
                    version=policy.rule_version,
                )
            )
            owner = uow.rules.owner(namespace=policy.ref.namespace, name=policy.rule_set)
        if version is not None and owner is RuleOwner.NOBODY:
            raise RuleSetError(
                f"spec.rules.ruleSet: the rule set {policy.rule_set} was deleted; "
                "apply it again, or name another one"
            )
        if version is None:
            pinned = "" if policy.rule_version is None else f" version {policy.rule_version}"
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


def check_fit(
    version: RuleSetVersion, settings: Mapping[str, object], parameters: Mapping[str, float]
) -> None:
    """Check that a policy has what the rules ask for.

    Raises:
        RuleSetError: A rule asks for a setting the policy has not, or a parameter is unknown.
    """
    name = version.rule_set.name
    for rule in version.rule_set.rules:
        if rule.setting not in settings:
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
