"""Writing a step: the change, its audit record, its alerts and what is to be remembered of it.

One transaction: either all of it is there or nothing is. A step that another process already wrote
fails on the revision of the change, and nothing of it is written twice.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from specpilot.alerts.messages import compose
from specpilot.domain.audit import AuditDraft
from specpilot.domain.changes import (
    ChangeKind,
    ChangeReason,
    Evidence,
    FlagChange,
    Phase,
    Transition,
    advance,
)
from specpilot.domain.economics import Measurement
from specpilot.domain.policy import Event, Policy
from specpilot.domain.ports import Clock
from specpilot.domain.probing import after
from specpilot.store import ConcurrentUpdateError, Store, UnitOfWork
from specpilot.store.codec import change_to_plain, declared_to_plain, evidence_to_plain


def events(change: FlagChange) -> tuple[Event, ...]:
    """Return the events that entering the present phase gives rise to."""
    probe = change.kind is ChangeKind.PROBE
    match change.phase:
        case Phase.ADVISED:
            return (Event.ADVISED,)
        case Phase.PENDING:
            return (Event.APPROVAL_NEEDED,)
        case Phase.CANARY:
            return (Event.STARTED,)
        case Phase.SUCCEEDED:
            return (Event.FLIPPED, Event.PROBE_KEPT) if probe else (Event.FLIPPED,)
        case Phase.ROLLED_BACK:
            return (Event.PROBE_UNDONE,) if probe else (Event.ROLLED_BACK,)
        case Phase.ABORTED:
            if change.undo_reason is ChangeReason.CONTESTED:
                return (Event.ABORTED, Event.CONTESTED)
            return (Event.ABORTED,)
        case _:
            return ()


class Recorder:
    """The only writer of flag changes."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def open(self, change: FlagChange, policy: Policy) -> FlagChange:
        """Record a new change in its first phase.

        Raises:
            TargetBusyError: The target has a change that has not ended.
        """
        with self._store.begin() as uow:
            uow.changes.add(change)
            actor = f"rule:{change.rule}" if change.kind is ChangeKind.RULE else "probe"
            self._write(uow, change, policy, actor=actor, previous=None)
        return change

    def step(
        self,
        change: FlagChange,
        transition: Transition,
        policy: Policy | None,
        *,
        measured: Measurement | None = None,
        **fields: Any,
    ) -> FlagChange:
        """Record a transition.

        Args:
            change: As it was read.
            transition: The step.
            policy: For the alert routes; None when it was deleted.
            measured: What the analysis that this step ends has shown of a setting's cost.
            fields: Further fields of the change to set with it.

        Raises:
            ConcurrentUpdateError: Somebody else moved it on; read again.
        """
        moved = replace(advance(change, transition, now=self._clock.now()), **fields)
        with self._store.begin() as uow:
            stored = uow.changes.put(moved)
            if measured is not None:
                uow.measurements.add(measured)
            if stored.phase.ended:
                uid = stored.policy.uid
                uow.memory.put(uid, after(stored, uow.memory.get(uid)))
            self._write(
                uow,
                stored,
                policy,
                actor=transition.actor,
                previous=change.phase,
                evidence=transition.evidence,
            )
        return stored

    def note(self, changes: Sequence[FlagChange]) -> list[FlagChange]:
        """Store of changes what is no step: the analysis so far, what has been seen.

        Returns:
            Them as stored. One that was moved on meanwhile stays as it is and is left out: it has
            to be looked at again.
        """
        if not changes:
            return []
        stored = []
        with self._store.begin() as uow:
            for change in changes:
                with suppress(ConcurrentUpdateError):
                    stored.append(uow.changes.put(change))
        return stored

    def alert(self, policy: Policy, event: Event, *, key: str, message: str) -> None:
        """Put an alert that belongs to no change into the outbox, for who asked for it.

        Args:
            policy: Whose routes.
            event: What happened.
            key: Names the occurrence; the same one is not sent twice.
            message: In words.
        """
        routes = [r for r in policy.alerts if not r.events or event in r.events]
        if not routes:
            return
        now = self._clock.now()
        with self._store.begin() as uow:
            for route in routes:
                uow.outbox.enqueue(
                    dedupe_key=f"{policy.ref.uid}/{key}/{route.channel}",
                    channel=f"{policy.ref.namespace}/{route.channel}",
                    event=str(event),
                    payload={
                        "event": str(event),
                        "policy": str(policy.ref),
                        "target": str(policy.target),
                        "message": message,
                        "at": now.isoformat(),
                    },
                    at=now,
                )

    def _write(
        self,
        uow: UnitOfWork,
        change: FlagChange,
        policy: Policy | None,
        *,
        actor: str,
        previous: Phase | None,
        evidence: tuple[Evidence, ...] = (),
    ) -> None:
        now = self._clock.now()
        uow.audit.append(
            AuditDraft(
                action=str(change.phase),
                actor=actor,
                namespace=change.policy.namespace,
                policy=change.policy.name,
                target=str(change.target),
                change_id=change.id,
                step=change.step,
                before={"phase": str(previous or ""), **declared_to_plain(change.origin)},
                after={"phase": str(change.phase), **declared_to_plain(change.wanted)},
                reason=str(change.reason),
                message=change.message,
                evidence=tuple(
                    evidence_to_plain(e)
                    for e in evidence or (change.evidence if previous is None else ())
                ),
                mode=str(policy.mode) if policy is not None else "",
            ),
            at=now,
        )
        if policy is None:
            return
        for event in events(change):
            for route in policy.alerts:
                if route.events and event not in route.events:
                    continue
                uow.outbox.enqueue(
                    dedupe_key=f"{change.id}/{change.step}/{event}/{route.channel}",
                    channel=f"{policy.ref.namespace}/{route.channel}",
                    event=str(event),
                    payload=compose(event, change_to_plain(change), at=now).payload,
                    at=now,
                )
