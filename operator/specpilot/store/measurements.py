"""Costs of settings in the database: one row a comparison, a bounded history of each setting."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select

from specpilot.domain.economics import Measurement
from specpilot.store.database import chunks, insert
from specpilot.store.models import MeasurementRow, Plain

KEPT = 32
"""Newest measurements of a target with one config that are kept: more than a week of probes leaves
when they lose, and enough loads to read between."""

_CHUNK = 500
"""Targets of one query; every supported database takes more."""

_OF_TARGETS = MeasurementRow.target.in_(bindparam("targets", expanding=True))
_STAMPS = (
    select(MeasurementRow.target, func.count(), func.max(MeasurementRow.at))
    .where(_OF_TARGETS)
    .group_by(MeasurementRow.target)
)
_BODIES = (
    select(MeasurementRow.body)
    .where(_OF_TARGETS)
    .order_by(MeasurementRow.at, MeasurementRow.change_id)
)


def measurement_to_plain(measurement: Measurement) -> Plain:
    """Encode a measurement."""
    return {
        "change_id": measurement.change_id,
        "target": measurement.target,
        "setting": measurement.setting,
        "config": measurement.config,
        "engine": measurement.engine,
        "template": measurement.template,
        "start": measurement.start.astimezone(UTC).isoformat(),
        "at": measurement.at.astimezone(UTC).isoformat(),
        "batch_on": measurement.batch_on,
        "batch_off": measurement.batch_off,
        "ratio": measurement.ratio,
        "error": measurement.error,
        "step_ratio": measurement.step_ratio,
        "acceptance_length": measurement.acceptance_length,
        "tokens_per_step": measurement.tokens_per_step,
        "speedup": measurement.speedup,
        "requests_on": measurement.requests_on,
        "requests_off": measurement.requests_off,
        "drafts": measurement.drafts,
        "slices": measurement.slices,
        "same_window": measurement.same_window,
    }


def measurement_from_plain(data: Mapping[str, Any]) -> Measurement:
    """Decode `measurement_to_plain`."""
    instants = {key: datetime.fromisoformat(data[key]).astimezone(UTC) for key in ("start", "at")}
    return Measurement(**{**data, **instants})


class Measurements:
    """Measurements within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, measurement: Measurement) -> None:
        """Keep a measurement; of one that is there already nothing is written again."""
        row = MeasurementRow
        self._connection.execute(
            insert(self._connection, row)
            .values(
                change_id=measurement.change_id,
                target=measurement.target,
                config=measurement.config,
                at=measurement.at,
                body=measurement_to_plain(measurement),
            )
            .on_conflict_do_nothing(index_elements=["change_id"])
        )
        same = (row.target == measurement.target) & (row.config == measurement.config)
        newest = (
            select(row.change_id)
            .where(same)
            .order_by(row.at.desc(), row.change_id.desc())
            .limit(KEPT)
        )
        self._connection.execute(delete(row).where(same, row.change_id.not_in(newest)))

    def stamps(self, targets: Iterable[str]) -> dict[str, tuple[int, datetime]]:
        """Return what changes when a target gets another measurement: their number, the newest.

        Much cheaper than reading them, for who keeps what was read.
        """
        found: dict[str, tuple[int, datetime]] = {}
        for chunk in chunks(targets, _CHUNK):
            rows = self._connection.execute(_STAMPS, {"targets": chunk})
            found.update((target, (count, newest)) for target, count, newest in rows)
        return found

    def of(self, targets: Iterable[str]) -> dict[str, list[Measurement]]:
        """Return the measurements of each target, oldest first; a target without has no entry."""
        found: dict[str, list[Measurement]] = {}
        for chunk in chunks(targets, _CHUNK):
            for body in self._connection.scalars(_BODIES, {"targets": chunk}):
                measurement = measurement_from_plain(body)
                found.setdefault(measurement.target, []).append(measurement)
        return found
