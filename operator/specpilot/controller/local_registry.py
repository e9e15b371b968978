"""One machine: policies and alert channels from the embedded store, answers back into it."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specpilot.alerts import Channel
from specpilot.controller.channels import channel
from specpilot.controller.registry import Condition, PolicyStatus
from specpilot.controller.status_object import status_object
from specpilot.domain.changes import FlagChange
from specpilot.domain.policy import Policy, PolicyRef
from specpilot.domain.ports import Clock
from specpilot.domain.situation import Answer, Decision
from specpilot.resources import (
    API_VERSION,
    ResourceError,
    channel_from,
    policy_from,
    read,
)
from specpilot.resources.mirror import flag_change_spec, flag_change_status
from specpilot.store import Resource, Store

log = logging.getLogger(__name__)


def as_object(resource: Resource) -> dict[str, Any]:
    """A stored resource as the object it was applied as."""
    return {
        "apiVersion": API_VERSION,
        "kind": resource.kind,
        "metadata": {
            "name": resource.name,
            "namespace": resource.namespace,
            "uid": resource.uid,
            "generation": resource.generation,
            **resource.metadata,
        },
        "spec": resource.spec,
    }


class LocalRegistry:
    """Policies and answers in the embedded store."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._read: dict[tuple[str, int], Policy] = {}

    def policies(self) -> Sequence[Policy]:
        """Return the valid policies, oldest first."""
        with self._store.read() as unit:
            stored = unit.resources.list(kind="SpeculationPolicy")
        found = []
        for resource in sorted(stored, key=lambda r: (r.created_at, r.name)):
            key = (resource.uid, resource.generation)
            if key not in self._read:
                try:
                    self._read[key] = policy_from(read(as_object(resource)))
                except ResourceError as error:  # written by another version of the program
                    self._refuse(resource, str(error))
                    continue
            found.append(self._read[key])
        return found

    def _refuse(self, resource: Resource, message: str) -> None:
        self.publish(
            PolicyStatus(
                policy=PolicyRef(
                    namespace=resource.namespace, name=resource.name, uid=resource.uid
                ),
                generation=resource.generation,
                mode="",
                phase="Held",
                conditions=(
                    Condition(type="Ready", status=False, reason="InvalidSpec", message=message),
                ),
            )
        )

    def exists(self, policy: PolicyRef) -> bool:
        """Whether this very policy is there, valid or not."""
        with self._store.read() as unit:
            found = unit.resources.get(
                kind="SpeculationPolicy", namespace=policy.namespace, name=policy.name
            )
        return found is not None and found.uid == policy.uid

    def decision(self, change: FlagChange) -> Decision | None:
        """Return what `specpilot approve` or `reject` left in the change's object."""
        with self._store.read() as unit:
            found = unit.resources.get(
                kind="FlagChange", namespace=change.policy.namespace, name=change.id
            )
        answer = found.spec.get("decision") if found is not None else None
        if found is None or answer is None:
            return None
        return Decision(
            answer=Answer(str(answer)), by=str(found.spec.get("decidedBy") or "somebody")
        )

    def publish(self, status: PolicyStatus) -> None:
        """Write the policy's status, when it has changed."""
        key = {
            "kind": "SpeculationPolicy",
            "namespace": status.policy.namespace,
            "name": status.policy.name,
        }
        with self._store.read() as unit:
            stored = unit.resources.get(**key)
        if stored is None or stored.uid != status.policy.uid:
            return  # deleted meanwhile
        wanted = status_object(status, previous=stored.status, now=self._clock.now())
        if wanted != stored.status:
            with self._store.begin() as unit:
                if unit.resources.get(**key) is not None:
                    unit.resources.put_status(**key, status=wanted)

    def publish_change(self, change: FlagChange, *, waiting_for: str) -> None:
        """Write the change's object, when it has changed; what a person decided in it stays."""
        kind, namespace, name = "FlagChange", change.policy.namespace, change.id
        spec = flag_change_spec(change)
        status = flag_change_status(change, waiting_for=waiting_for)
        with self._store.read() as unit:
            stored = unit.resources.get(kind=kind, namespace=namespace, name=name)
        if stored is not None:
            spec |= {k: v for k, v in stored.spec.items() if k in {"decision", "decidedBy"}}
            if stored.spec == spec and stored.status == status:
                return
        with self._store.begin() as unit:
            now = unit.resources.get(kind=kind, namespace=namespace, name=name)
            decided = now.spec if now is not None else {}
            spec |= {k: v for k, v in decided.items() if k in {"decision", "decidedBy"}}
            unit.resources.apply(
                kind=kind, namespace=namespace, name=name, spec=spec, at=self._clock.now()
            )
            unit.resources.put_status(kind=kind, namespace=namespace, name=name, status=status)


class LocalChannels(Mapping[str, Channel]):
    """Alert channels of the embedded store, looked up when an alert is sent."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getitem__(self, key: str) -> Channel:
        namespace, _, name = key.partition("/")
        with self._store.read() as unit:
            stored = unit.resources.get(kind="AlertChannel", namespace=namespace, name=name)
        if stored is None:
            raise KeyError(key)
        try:
            return channel(channel_from(read(as_object(stored))), name=key)
        except ValueError as error:
            log.warning("alert channel %s cannot be used: %s", key, error)
            raise KeyError(key) from error

    def __iter__(self) -> Iterator[str]:
        with self._store.read() as unit:
            stored = unit.resources.list(kind="AlertChannel")
        return iter([f"{r.namespace}/{r.name}" for r in stored])

    def __len__(self) -> int:
        return sum(1 for _ in self)
