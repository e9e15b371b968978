"""State of record: flag changes, memory, rules, audit and alerts in one SQL database.

store = Store.open("sqlite:////var/lib/specpilot/specpilot.sqlite")
with store.begin() as unit:
    unit.changes.add(change)
    unit.audit.append(draft, at=now)
    unit.outbox.enqueue(...)
"""

from specpilot.store.acceptance import AcceptanceSample
from specpilot.store.errors import (
    ConcurrentUpdateError,
    DatabaseTooNewError,
    DatabaseUnusableError,
    DeposedError,
    DuplicateChangeError,
    DuplicateStepError,
    NoSuchResourceError,
    RuleSetOwnedError,
    StoreBusyError,
    StoreError,
    TargetBusyError,
)
from specpilot.store.fence import Leadership
from specpilot.store.outbox import Delivery, OutboxItem, OutboxState
from specpilot.store.resources import Resource
from specpilot.store.rules import AppliedVersion, Head, RuleOwner
from specpilot.store.unit_of_work import Health, Store, UnitOfWork, open_store

__all__ = [
    "AcceptanceSample",
    "AppliedVersion",
    "ConcurrentUpdateError",
    "DatabaseTooNewError",
    "DatabaseUnusableError",
    "Delivery",
    "DeposedError",
    "DuplicateChangeError",
    "DuplicateStepError",
    "Head",
    "Health",
    "Leadership",
    "NoSuchResourceError",
    "OutboxItem",
    "OutboxState",
    "Resource",
    "RuleOwner",
    "RuleSetOwnedError",
    "Store",
    "StoreBusyError",
    "StoreError",
    "TargetBusyError",
    "UnitOfWork",
    "open_store",
]
