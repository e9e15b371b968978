"""What must be remembered of a policy between two ticks, across restarts and leaders."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What is remembered of a rule.

    Attributes:
        since: Since when its condition has held without a break.
        last_true: When it was last seen to hold.
        last_known: When it was last seen at all, where that matters (a rule over windows);
            None means at `last_true`.
        latched: It has held, and its `until` has not come true since.
        windows: Beginnings of the windows whose last known answer was true, oldest first.
    """

    since: datetime
    last_true: datetime
    last_known: datetime | None = None
    latched: bool = False
    windows: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMemory:
    """Memory of one policy.

    Attributes:
        rules: Version string of the rule set that `pending` belongs to.
        pending: By rule name.
        active: Setting that ran at the last tick.
        active_since: Since when it has run.
        last_speculating: Last setting that ran and speculates; what a probe tries.
        probes_lost: Probes lost in a row.
        last_probe_ended: When the last one ended.
        last_flip: When a change of this policy last succeeded.
        advised: Identity of the advice recorded last, so that it is recorded once.
        signals_lost: Since when no rule could be judged for want of data; None while it can.
        signals_lost_alerted: Whether that has been alerted.
        left: The change whose value the workload was left with; "" when it is not ours to watch.
        undone: When somebody else replaced our value.
        contested: Generation of the policy under which that was too often, None when it was not.
    """

    rules: str = ""
    pending: Mapping[str, Pending] = field(default_factory=dict)
    active: str = ""
    active_since: datetime | None = None
    last_speculating: str = ""
    probes_lost: int = 0
    last_probe_ended: datetime | None = None
    last_flip: datetime | None = None
    advised: str = ""
    signals_lost: datetime | None = None
    signals_lost_alerted: bool = False
    left: str = ""
    undone: tuple[datetime, ...] = ()
    contested: int | None = None
