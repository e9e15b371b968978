"""Acceptance length by the hour in the database: sums, so that noting a value is one write."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, select

from specpilot.domain.recall import AcceptanceHour, hour_of
from specpilot.store.database import chunks, insert
from specpilot.store.models import AcceptanceHourRow

_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceSample:
    """One value of `mean_acceptance_length`.

    Attributes:
        target: The target, as text.
        config: `config_hash` of what it ran.
        at: When.
        value: The value in tokens.
    """

    target: str
    config: str
    at: datetime
    value: float


class Acceptance:
    """Hourly sums within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, samples: Sequence[AcceptanceSample]) -> None:
        """Add values to the hours they belong to; at most one of a target and config."""
        if not samples:
            return
        row = AcceptanceHourRow
        statement = insert(self._connection, row)
        self._connection.execute(
            statement.on_conflict_do_update(
                index_elements=["target", "config", "hour"],
                set_={
                    "samples": row.samples + statement.excluded.samples,
                    "total": row.total + statement.excluded.total,
                },
            ),
            [
                {
                    "target": s.target,
                    "config": s.config,
                    "hour": hour_of(s.at),
                    "samples": 1,
                    "total": s.value,
                }
                for s in samples
            ],
        )

    def of(
        self, targets: Iterable[str], *, since: datetime
    ) -> dict[tuple[str, str], list[AcceptanceHour]]:
        """Return the hours that began at or after an instant, by target and config."""
        row = AcceptanceHourRow
        found: dict[tuple[str, str], list[AcceptanceHour]] = {}
        for chunk in chunks(targets, _CHUNK):
            rows = self._connection.execute(
                select(row.target, row.config, row.hour, row.samples, row.total)
                .where(row.target.in_(chunk), row.hour >= since)
                .order_by(row.hour)
            )
            for target, config, hour, samples, total in rows:
                found.setdefault((target, config), []).append(
                    AcceptanceHour(hour=hour, samples=samples, total=total)
                )
        return found

    def prune(self, *, before: datetime) -> int:
        """Delete the hours that began before an instant."""
        done = self._connection.execute(
            delete(AcceptanceHourRow).where(AcceptanceHourRow.hour < before)
        )
        return done.rowcount
