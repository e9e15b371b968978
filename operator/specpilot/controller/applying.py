"""Applying YAML without a cluster: everything is checked first, then written in one transaction."""

import getpass
from collections.abc import Sequence
from dataclasses import dataclass

from specpilot.controller.local_groups import group_of
from specpilot.controller.local_registry import as_object
from specpilot.domain.audit import AuditDraft
from specpilot.domain.evaluation import CompiledRuleSet, RuleSetError
from specpilot.domain.ports import Clock
from specpilot.domain.rules import RuleSet
from specpilot.fleets.local import LocalGroupError
from specpilot.resources import (
    LOCAL_NAMESPACE,
    Document,
    Fault,
    ResourceError,
    local_fleet_from,
    policy_from,
    read,
    rule_set_from,
)
from specpilot.store import RuleOwner, Store, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of one document: `created`, `configured` or `unchanged`."""

    kind: str
    name: str
    what: str


def apply_documents(
    documents: Sequence[Document], *, store: Store, clock: Clock
) -> tuple[Applied, ...]:
    """Write documents into the embedded store, all or none.

    Raises:
        ResourceError: At least one cannot be used; nothing was written.
        RuleSetOwnedError: A rule set belongs to somebody else; nothing was written.
    """
    faults: list[Fault] = []
    rule_sets: dict[str, RuleSet] = {}
    for document in documents:
        where = f"{document.source}#{document.number} {document}".strip("# ")
        if document.kind == "RuleSet":
            rule_set = rule_set_from(document)
            try:
                CompiledRuleSet(rule_set)
            except RuleSetError as error:
                faults.append(Fault(where=where, field="spec.rules", message=str(error)))
            rule_sets[document.metadata.name] = rule_set
        elif document.kind == "LocalFleet":
            try:
                group_of(document.metadata.name, local_fleet_from(document))
            except LocalGroupError as error:
                faults.append(Fault(where=where, field="spec", message=str(error)))
        elif document.kind == "FlagChange":
            faults.append(
                Fault(
                    where=where,
                    field="kind",
                    message="flag changes are written by Specpilot; use specpilot approve|reject",
                )
            )
    if faults:
        raise ResourceError(*faults)
    with store.begin() as unit:
        return tuple(_apply(unit, d, rule_sets, clock=clock) for d in documents)


def _apply(
    unit: UnitOfWork, document: Document, rule_sets: dict[str, RuleSet], *, clock: Clock
) -> Applied:
    now, name = clock.now(), document.metadata.name
    before = unit.resources.get(kind=document.kind, namespace=LOCAL_NAMESPACE, name=name)
    after = unit.resources.apply(
        kind=document.kind,
        namespace=LOCAL_NAMESPACE,
        name=name,
        spec=document.raw.get("spec") or {},
        metadata={
            "labels": dict(document.metadata.labels),
            "annotations": dict(document.metadata.annotations),
        },
        at=now,
    )
    if document.kind == "RuleSet":
        unit.rules.apply(
            namespace=LOCAL_NAMESPACE,
            rule_set=rule_sets[name],
            owner=RuleOwner.FILE,
            author=getpass.getuser(),
            source=document.source,
            at=now,
        )
    if before is not None and before.generation == after.generation:
        return Applied(kind=document.kind, name=name, what="unchanged")
    what = "created" if before is None else "configured"
    unit.audit.append(
        AuditDraft(
            action=f"{document.kind}{what.capitalize()}",
            actor=getpass.getuser(),
            namespace=LOCAL_NAMESPACE,
            policy=name if document.kind == "SpeculationPolicy" else "",
            before=before.spec if before is not None else {},
            after=after.spec,
            reason="Applied",
            message=f"{document} {what} from {document.source or 'standard input'}",
        ),
        at=now,
    )
    return Applied(kind=document.kind, name=name, what=what)


def delete_resource(kind: str, name: str, *, store: Store, clock: Clock) -> bool:
    """Delete a resource; return False when there was none."""
    with store.begin() as unit:
        before = unit.resources.get(kind=kind, namespace=LOCAL_NAMESPACE, name=name)
        if before is None:
            return False
        unit.resources.delete(kind=kind, namespace=LOCAL_NAMESPACE, name=name)
        if kind == "RuleSet":
            unit.rules.release(namespace=LOCAL_NAMESPACE, name=name, owner=RuleOwner.FILE)
        unit.audit.append(
            AuditDraft(
                action=f"{kind}Deleted",
                actor=getpass.getuser(),
                namespace=LOCAL_NAMESPACE,
                policy=name if kind == "SpeculationPolicy" else "",
                before=before.spec,
                reason="Deleted",
                message=f"{kind}/{name} deleted",
            ),
            at=clock.now(),
        )
    return True


def dangling(store: Store) -> list[str]:
    """Say which policies name something that is not there (yet): allowed, but rarely meant."""
    found = []
    with store.read() as unit:
        names = {
            kind: {r.name for r in unit.resources.list(kind=kind, namespace=LOCAL_NAMESPACE)}
            for kind in ("LocalFleet", "RuleSet", "AlertChannel")
        }
        names["RuleSet"] |= {
            version.rule_set.name for version in unit.rules.list(namespace=LOCAL_NAMESPACE)
        }
        policies = unit.resources.list(kind="SpeculationPolicy", namespace=LOCAL_NAMESPACE)
    for resource in policies:
        policy = policy_from(read(as_object(resource)))
        wanted = [("LocalFleet", "spec.target.name", policy.target.name)]
        wanted += [("RuleSet", "spec.rules.ruleSet", policy.rule_set)]
        wanted += [("AlertChannel", "spec.alerts", a.channel) for a in policy.alerts]
        if policy.target.kind != "Local":
            found.append(
                f"policy {policy.ref.name}: spec.target.kind {policy.target.kind} is steered in a "
                "cluster; on one machine write Local"
            )
            wanted = wanted[1:]
        found += [
            f"policy {policy.ref.name}: {field}: there is no {kind} called {name}"
            for kind, field, name in wanted
            if name not in names[kind]
        ]
    return found
