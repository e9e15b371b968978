"""A cluster: policies and rule sets from custom resources, answers into their status."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from specpilot.controller.publisher import Publisher
from specpilot.controller.registry import Condition, PolicyStatus
from specpilot.controller.status_object import (
    condition_object,
    gist_of,
    with_readings,
    words_object,
)
from specpilot.controller.writing import Worth, without_numbers
from specpilot.domain.audit import AuditDraft
from specpilot.domain.changes import FlagChange
from specpilot.domain.evaluation import CompiledRuleSet, RuleSetError
from specpilot.domain.policy import Policy, PolicyRef
from specpilot.domain.ports import Clock
from specpilot.domain.situation import Decision
from specpilot.fleets.kubernetes import (
    FLAG_CHANGES,
    POLICIES,
    RULE_SETS,
    Api,
    ApiError,
    FlagChangeMirror,
    Resource,
    StatusWriter,
    Watches,
)
from specpilot.resources import ResourceError, policy_from, read, rule_set_from
from specpilot.store import RuleOwner, RuleSetOwnedError, Store

log = logging.getLogger(__name__)

CHANGES_EVERY = timedelta(seconds=30)
"""How often a flag change is shown that has taken no step and waits for the same, with other
numbers."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """The policies as of a revision of what is known of them.

    Attributes:
        revision: Which.
        policies: The valid ones, oldest first.
        refused: The others, with what is wrong with each.
    """

    revision: int
    policies: list[Policy] = field(default_factory=list)
    refused: list[tuple[Mapping[str, Any], str]] = field(default_factory=list)


class ClusterRegistry:
    """Custom resources, as the watches know them.

    Args:
        api: The API server.
        watches: What is known of it.
        store: The database.
        clock: The time.
        publisher: Writes the statuses of policies.
        changes: Writes flag changes, which must not queue behind thousands of statuses.
    """

    def __init__(
        self,
        *,
        api: Api,
        watches: Watches,
        store: Store,
        clock: Clock,
        publisher: Publisher,
        changes: Publisher,
    ) -> None:
        self._publisher = publisher
        self._changes = changes
        self._watches = watches
        self._store = store
        self._clock = clock
        self._writer = StatusWriter(api, known=self._known)
        self._mirror = FlagChangeMirror(
            api, known=self._known, listed=lambda ns: watches.store(FLAG_CHANGES).all(ns)
        )
        self._read: dict[tuple[str, int], Policy] = {}
        self._listed: _Listed | None = None
        self._worth = Worth(began=clock.now())
        self._shown: dict[str, tuple[object, datetime]] = {}
        self._synced: dict[tuple[str, str], tuple[str, int]] = {}

    def _known(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        return self._watches.store(resource).get(namespace, name)

    # --- policies

    def policies(self) -> Sequence[Policy]:
        """Return the valid policies, oldest first; write Ready=False to the others."""
        store = self._watches.store(POLICIES)
        revision = store.revision()
        if self._listed is None or self._listed.revision != revision:
            self._listed = self._list(store.all(), revision)
        for obj, message in self._listed.refused:
            self._refuse(obj, message)
        return self._listed.policies

    def _list(self, objects: Sequence[Mapping[str, Any]], revision: int) -> _Listed:
        listed = _Listed(revision)
        for obj in sorted(objects, key=_age):
            meta = obj["metadata"]
            if meta.get("deletionTimestamp"):
                continue
            key = (meta["uid"], meta["generation"])
            if key not in self._read:
                try:
                    self._read[key] = policy_from(read(obj))
                except ResourceError as error:
                    listed.refused.append((obj, _faults(error)))
                    continue
            listed.policies.append(self._read[key])
        if len(self._read) > 2 * len(objects) + 100:
            self._forget(objects)
        return listed

    def _forget(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Drop what is kept of policies and generations that are gone."""
        keys = {(o["metadata"]["uid"], o["metadata"]["generation"]) for o in objects}
        self._read = {key: policy for key, policy in self._read.items() if key in keys}
        self._worth.forget_all_but({uid for uid, _ in keys})

    def _refuse(self, obj: Mapping[str, Any], message: str) -> None:
        meta = obj["metadata"]
        self.publish(
            PolicyStatus(
                policy=PolicyRef(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"]),
                generation=meta["generation"],
                mode=str(obj.get("spec", {}).get("mode", "")),
                phase="Held",
                conditions=(
                    Condition(type="Ready", status=False, reason="InvalidSpec", message=message),
                ),
            )
        )

    def publish(self, status: PolicyStatus) -> None:
        """Write a policy's status when it says something new."""
        ref = status.policy
        obj = self._known(POLICIES, ref.namespace, ref.name)
        if obj is None or obj["metadata"]["uid"] != ref.uid:
            return
        now, there = self._clock.now(), obj.get("status") or {}
        crowd, gist = len(self._watches.store(POLICIES)), gist_of(status)
        if self._worth.quiet(ref.uid, gist, there=there, crowd=crowd, now=now):
            return
        words = words_object(status, previous=there, now=now)
        if not self._worth.writing(ref.uid, words, gist=gist, there=there, crowd=crowd, now=now):
            return
        wanted = with_readings(words, status.readings)

        def write() -> None:
            try:
                self._writer.patch_status(POLICIES.kind, ref.namespace, ref.name, wanted)
            except ApiError as error:
                log.warning("status of policy %s could not be written: %s", ref, error)

        self._worth.wrote(ref.uid, now=now)
        self._publisher.put(ref.uid, write)

    def exists(self, policy: PolicyRef) -> bool:
        """Whether this very policy is there, valid or not."""
        obj = self._known(POLICIES, policy.namespace, policy.name)
        if obj is None or obj["metadata"]["uid"] != policy.uid:
            return False
        return not obj["metadata"].get("deletionTimestamp")

    # --- flag changes

    def decision(self, change: FlagChange) -> Decision | None:
        """Return what a person wrote into the change's object."""
        return self._mirror.decision(change)

    def publish_change(self, change: FlagChange, *, waiting_for: str) -> None:
        """Have the change's object written; a deleted policy takes its objects along.

        One that could not be written is tried again while the change is open, since it is shown
        again and again.
        """
        policy = self._known(POLICIES, change.policy.namespace, change.policy.name)
        if policy is None or policy["metadata"]["uid"] != change.policy.uid:
            return
        now = self._clock.now()
        gist = (change.step, without_numbers(waiting_for))

        def is_shown() -> bool:
            before, at = self._shown.get(change.id, (None, now))
            return gist == before and timedelta(0) <= now - at < CHANGES_EVERY

        def write() -> None:
            if is_shown():
                return  # by the write before this one, which was still under way
            try:
                self._mirror.show(change, waiting_for=waiting_for)
                self._shown[change.id] = (gist, now)
                if change.phase.ended:
                    del self._shown[change.id]
                    self._mirror.prune(change.policy.namespace, policy_uid=change.policy.uid)
            except ApiError as error:
                if change.phase.ended:
                    self._shown.pop(change.id, None)
                else:  # tried again, but not before those that nobody has seen: it may never work
                    self._shown.setdefault(change.id, (None, now))
                log.warning("flag change %s could not be shown: %s", change.id, error)

        if not is_shown():
            self._changes.put(change.id, write, first=change.id not in self._shown)

    # --- rule sets

    def sync_rule_sets(self) -> None:
        """Bring changed RuleSet resources into the database as new versions.

        A bad one is refused whole, with the reason in its status, and the version before it stays
        in force. A deleted one is released; its versions stay, for the audit log names them.
        """
        present = {}
        for obj in self._watches.store(RULE_SETS).all():
            meta = obj["metadata"]
            key = (meta["namespace"], meta["name"])
            present[key] = (meta["uid"], meta["generation"])
            if self._synced.get(key) != present[key] and self._sync(obj):
                self._synced[key] = present[key]
        for namespace, name in self._synced.keys() - present.keys():
            with self._store.begin() as unit:
                unit.rules.release(namespace=namespace, name=name, owner=RuleOwner.RESOURCE)
            del self._synced[namespace, name]

    def _sync(self, obj: Mapping[str, Any]) -> bool:
        """Apply one; whether that is settled (and need not be tried again until it changes)."""
        meta = obj["metadata"]
        namespace, name, now = meta["namespace"], meta["name"], self._clock.now()
        try:
            rule_set = rule_set_from(read(obj))
            CompiledRuleSet(rule_set)
            with self._store.begin() as unit:
                before = unit.rules.latest(namespace=namespace, name=name)
                version = unit.rules.apply(
                    namespace=namespace,
                    rule_set=rule_set,
                    owner=RuleOwner.RESOURCE,
                    author=", ".join(_managers(obj)) or "kubectl",
                    source=f"RuleSet {namespace}/{name} generation {meta['generation']}",
                    at=now,
                )
                if before is None or before.version != version.version:
                    unit.audit.append(
                        AuditDraft(
                            action="RuleSetApplied",
                            actor=version.author,
                            namespace=namespace,
                            after={"name": name, "version": version.version},
                            reason="Applied",
                            message=f"rule set {name} version {version.version}",
                        ),
                        at=now,
                    )
        except (ResourceError, RuleSetError, RuleSetOwnedError) as error:
            with self._store.read() as unit:
                in_force = unit.rules.latest(namespace=namespace, name=name)
            stays = f"\nversion {in_force.version} stays in force" if in_force else ""
            wanted = Condition(
                type="Valid", status=False, reason="Invalid", message=f"{_faults(error)}{stays}"
            )
        else:
            in_force = version
            wanted = Condition(type="Valid", status=True, reason="Compiled")
        old = (obj.get("status") or {}).get("conditions") or []
        known = next((c for c in old if c["type"] == "Valid"), None)
        status: dict[str, Any] = {
            "observedGeneration": meta["generation"],
            "conditions": [condition_object(wanted, known, generation=meta["generation"], now=now)],
        }
        if in_force is not None:
            status |= {"version": in_force.version, "hash": in_force.content_hash}
        try:
            self._writer.patch_status(RULE_SETS.kind, namespace, name, status)
        except ApiError as error:
            log.warning("status of rule set %s/%s could not be written: %s", namespace, name, error)
            return False
        return True


def _faults(error: Exception) -> str:
    """What is wrong, without the object's own name: the words stand in its status."""
    if not isinstance(error, ResourceError):
        return str(error)
    return "\n".join(": ".join(w for w in (f.field, f.message) if w) for f in error.faults)


def _age(obj: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = obj["metadata"]
    return (meta.get("creationTimestamp") or "", meta["namespace"], meta["name"])


def _managers(obj: Mapping[str, Any]) -> list[str]:
    """Who wrote the spec, as far as the API server tells."""
    fields = obj["metadata"].get("managedFields") or []
    return sorted({f["manager"] for f in fields if "f:spec" in (f.get("fieldsV1") or {})})
