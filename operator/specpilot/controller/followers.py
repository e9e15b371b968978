"""Which policies decide by a rule set: those that follow it, and those that pin a version."""

from dataclasses import dataclass

from specpilot.controller.local_registry import as_object
from specpilot.controller.rulebook import check_fit
from specpilot.domain.evaluation import RuleSetError
from specpilot.domain.rules import RuleSetVersion
from specpilot.resources import policy_from, read
from specpilot.resources.documents import spec_of
from specpilot.resources.policy import PolicySpec
from specpilot.store import UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """A policy and the version it uses.

    Attributes:
        policy: Its name.
        pinned: The version it pins, None when it follows the latest.
    """

    policy: str
    pinned: int | None


def followers(unit: UnitOfWork, *, namespace: str, name: str) -> tuple[Follower, ...]:
    """Find them among the resources of the database.

    Where Kubernetes keeps the policies they are not in the database, and none is found.
    """
    found = []
    for resource in unit.resources.list(kind="SpeculationPolicy", namespace=namespace):
        spec: PolicySpec = spec_of(read(as_object(resource)), PolicySpec)
        if spec.rules.rule_set == name:
            found.append(Follower(policy=resource.name, pinned=spec.rules.version))
    return tuple(sorted(found, key=lambda f: f.policy))


def misfits(unit: UnitOfWork, version: RuleSetVersion) -> tuple[str, ...]:
    """Say which policies would decide by a version and cannot: it asks for what they have not."""
    found = []
    for resource in unit.resources.list(kind="SpeculationPolicy", namespace=version.namespace):
        policy = policy_from(read(as_object(resource)))
        pinned = policy.rule_version or version.version
        if (policy.rule_set, pinned) != (version.rule_set.name, version.version):
            continue
        try:
            check_fit(version, policy.settings, policy.parameters)
        except RuleSetError as error:
            found.append(f"policy {resource.name} cannot use version {version.version}: {error}")
    return tuple(found)


def using(found: tuple[Follower, ...], *, version: int, latest: int) -> tuple[str, ...]:
    """Say who uses a version, in words: `chat (pinned)`, `code (follows)`."""
    return tuple(
        f"{f.policy} ({'pinned' if f.pinned else 'follows'})"
        for f in found
        if version == (f.pinned or latest)
    )
