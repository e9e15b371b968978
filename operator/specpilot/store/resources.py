"""Applied resources where there is no Kubernetes API to keep them: one machine, `specpilot local`.

Keeps just what Kubernetes keeps and the product relies on: a uid that tells a re-created resource
from the old one, a generation that rises when the spec changes and only then, and a status that is
written apart from the spec.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from specpilot.domain.settings import canonical_json
from specpilot.store.errors import NoSuchResourceError
from specpilot.store.models import Plain, ResourceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource as it stands.

    Attributes:
        kind: `SpeculationPolicy`, ...
        namespace: Its namespace.
        name: Its name.
        uid: Identity; a new one after delete and apply.
        generation: Counts changes of the spec, from 1.
        metadata: Labels and annotations, as applied.
        spec: As applied.
        status: As last written, {} before.
        created_at: When it was first applied.
        updated_at: When spec or metadata last changed.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    generation: int
    metadata: Plain
    spec: Plain
    status: Plain
    created_at: datetime
    updated_at: datetime


class Resources:
    """Resources within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def apply(
        self,
        *,
        kind: str,
        namespace: str,
        name: str,
        spec: Mapping[str, object],
        metadata: Mapping[str, object] | None = None,
        at: datetime,
    ) -> Resource:
        """Create a resource, or make its spec and metadata what is given."""
        old = self.get(kind=kind, namespace=namespace, name=name)
        new_spec, new_metadata = dict(spec), dict(metadata or {})
        if old is None:
            self._connection.execute(
                insert(ResourceRow).values(
                    kind=kind,
                    namespace=namespace,
                    name=name,
                    uid=str(uuid.uuid4()),
                    generation=1,
                    metadata_=new_metadata,
                    spec=new_spec,
                    status={},
                    created_at=at,
                    updated_at=at,
                )
            )
        else:
            same_spec = canonical_json(old.spec) == canonical_json(new_spec)
            same_metadata = canonical_json(old.metadata) == canonical_json(new_metadata)
            if same_spec and same_metadata:
                return old
            self._connection.execute(
                update(ResourceRow)
                .where(_is(kind=kind, namespace=namespace, name=name))
                .values(
                    generation=old.generation + (not same_spec),
                    metadata_=new_metadata,
                    spec=new_spec,
                    updated_at=at,
                )
            )
        stored = self.get(kind=kind, namespace=namespace, name=name)
        assert stored is not None
        return stored

    def get(self, *, kind: str, namespace: str, name: str) -> Resource | None:
        """Return a resource."""
        found = self._where(_is(kind=kind, namespace=namespace, name=name))
        return found[0] if found else None

    def list(self, *, kind: str, namespace: str | None = None) -> Sequence[Resource]:
        """Return the resources of a kind, of one namespace or all, by name."""
        where: ColumnElement[bool] = ResourceRow.kind == kind
        if namespace is not None:
            where &= ResourceRow.namespace == namespace
        return self._where(where)

    def delete(self, *, kind: str, namespace: str, name: str) -> bool:
        """Delete a resource; return False when there was none."""
        done = self._connection.execute(
            delete(ResourceRow).where(_is(kind=kind, namespace=namespace, name=name))
        )
        return done.rowcount == 1

    def put_status(
        self, *, kind: str, namespace: str, name: str, status: Mapping[str, object]
    ) -> None:
        """Replace the status.

        Raises:
            NoSuchResourceError: There is no such resource (any more).
        """
        done = self._connection.execute(
            update(ResourceRow)
            .where(_is(kind=kind, namespace=namespace, name=name))
            .values(status=dict(status))
        )
        if done.rowcount != 1:
            raise NoSuchResourceError(f"there is no {kind} {namespace}/{name}")

    def _where(self, where: ColumnElement[bool]) -> Sequence[Resource]:
        row = ResourceRow
        rows = self._connection.execute(
            select(
                row.kind,
                row.namespace,
                row.name,
                row.uid,
                row.generation,
                row.metadata_,
                row.spec,
                row.status,
                row.created_at,
                row.updated_at,
            )
            .where(where)
            .order_by(row.namespace, row.name)
        )
        return [
            Resource(
                kind=kind,
                namespace=namespace,
                name=name,
                uid=uid,
                generation=generation,
                metadata=metadata,
                spec=spec,
                status=status,
                created_at=created_at,
                updated_at=updated_at,
            )
            for (
                kind,
                namespace,
                name,
                uid,
                generation,
                metadata,
                spec,
                status,
                created_at,
                updated_at,
            ) in rows
        ]


def _is(*, kind: str, namespace: str, name: str) -> ColumnElement[bool]:
    return (
        (ResourceRow.kind == kind)
        & (ResourceRow.namespace == namespace)
        & (ResourceRow.name == name)
    )
