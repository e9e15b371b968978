"""Applying rule sets from the command line: every version, its audit record, or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from specpilot.domain.audit import AuditDraft
from specpilot.domain.evaluation import CompiledRuleSet, RuleSetError
from specpilot.domain.ports import Clock
from specpilot.domain.rules import RuleSet, RuleSetVersion
from specpilot.resources import Fault, ResourceError
from specpilot.store import RuleOwner, Store, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSetFile:
    """A rule set to apply.

    Attributes:
        namespace: Where it belongs.
        rule_set: Its content.
        source: The file it was read from, for the record.
    """

    namespace: str
    rule_set: RuleSet
    source: str


def apply_rule_sets(
    files: Sequence[RuleSetFile], *, store: Store, author: str, clock: Clock
) -> list[tuple[RuleSetVersion, bool]]:
    """Write a new version of every rule set that says something new.

    Args:
        files: The rule sets.
        store: The database.
        author: Who asks, for the record.
        clock: Gives the time of the versions.

    Returns:
        Each one's version, and whether it is new.

    Raises:
        ResourceError: One cannot be used or is given twice; nothing was written.
        RuleSetOwnedError: One belongs to another owner; nothing was written.
    """
    faults: list[Fault] = []
    seen: dict[tuple[str, str], str] = {}
    for file in files:
        key = (file.namespace, file.rule_set.name)
        where = f"{file.source}: RuleSet/{file.rule_set.name}"
        if key in seen:
            message = f"{seen[key]} has the same name; apply one of them"
            faults.append(Fault(where=where, field="metadata.name", message=message))
        seen[key] = file.source
        try:
            CompiledRuleSet(file.rule_set)
        except RuleSetError as error:
            faults.append(Fault(where=where, field="spec.rules", message=str(error)))
    if faults:
        raise ResourceError(*faults)
    with store.begin() as unit:
        return [_apply(unit, file, author=author, clock=clock) for file in files]


def _apply(
    unit: UnitOfWork, file: RuleSetFile, *, author: str, clock: Clock
) -> tuple[RuleSetVersion, bool]:
    now, name = clock.now(), file.rule_set.name
    before = unit.rules.latest(namespace=file.namespace, name=name)
    version = unit.rules.apply(
        namespace=file.namespace,
        rule_set=file.rule_set,
        owner=RuleOwner.CLI,
        author=author,
        source=file.source,
        at=now,
    )
    if before is not None and before.version == version.version:
        return version, False
    unit.audit.append(
        AuditDraft(
            action="RuleSetApplied",
            actor=author,
            namespace=file.namespace,
            before=before.rule_set.content() if before is not None else {},
            after=version.rule_set.content(),
            reason="Applied",
            message=f"RuleSet/{name} version {version.version} "
            f"({version.content_hash[:12]}) applied from {file.source}",
        ),
        at=now,
    )
    return version, True
