"""Rule sets in immutable versions, each set with one owner who alone may change it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, insert, select, update

from specpilot.domain.rules import RuleSet, RuleSetVersion
from specpilot.store import database
from specpilot.store.errors import RuleSetOwnedError
from specpilot.store.models import RuleSetRow, RuleSetVersionRow


class RuleOwner(StrEnum):
    """Where a rule set is edited."""

    RESOURCE = "resource"
    FILE = "file"
    CLI = "cli"
    NOBODY = ""


_EDIT_IT = {
    RuleOwner.RESOURCE: "is owned by the RuleSet resource {name} in namespace {namespace}: "
    "edit it with kubectl",
    RuleOwner.FILE: "was applied from a file: edit the file and apply it again",
    RuleOwner.CLI: "is kept by the command line: edit it there",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedVersion:
    """A version with its history.

    Attributes:
        version: The rules.
        owner: Who owned the rule set when it was applied.
        at: When it was applied.
    """

    version: RuleSetVersion
    owner: RuleOwner
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where a rule set stands, without its content.

    Attributes:
        owner: Who may change it.
        latest: Its newest version; 0 while there is none.
    """

    owner: RuleOwner
    latest: int


_HEADS = select(RuleSetRow.namespace, RuleSetRow.name, RuleSetRow.owner, RuleSetRow.latest)
"""Built once: it is asked every tick."""


class Rules:
    """Rule sets within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def apply(
        self,
        *,
        namespace: str,
        rule_set: RuleSet,
        owner: RuleOwner,
        author: str,
        source: str,
        at: datetime,
    ) -> RuleSetVersion:
        """Make a new version, or return the latest one when it says the same.

        Args:
            namespace: Namespace of the rule set.
            rule_set: The rules; checked by the caller.
            owner: On whose behalf. A rule set that is new or was released becomes theirs.
            author: Who asked for it, for the record.
            source: Where it came from, for the record (a file, a resource's generation).
            at: Now.

        Raises:
            RuleSetOwnedError: The rule set belongs to another owner.
        """
        latest = self._claim(namespace=namespace, name=rule_set.name, owner=owner)
        content_hash = rule_set.content_hash()
        if latest:
            found = self.get(namespace=namespace, name=rule_set.name, version=latest)
            if found is not None and found.content_hash == content_hash:
                return found
        version = RuleSetVersion(
            namespace=namespace,
            version=latest + 1,
            rule_set=rule_set,
            content_hash=content_hash,
            author=author,
            source=source,
        )
        self._connection.execute(
            insert(RuleSetVersionRow).values(
                namespace=namespace,
                name=rule_set.name,
                version=version.version,
                content=rule_set.content(),
                content_hash=content_hash,
                owner=str(owner),
                author=author,
                source=source,
                applied_at=at,
            )
        )
        self._connection.execute(
            update(RuleSetRow)
            .where(RuleSetRow.namespace == namespace, RuleSetRow.name == rule_set.name)
            .values(latest=version.version)
        )
        return version

    def release(self, *, namespace: str, name: str, owner: RuleOwner) -> None:
        """Give a rule set up: its versions stay, and whoever applies it next owns it.

        Raises:
            RuleSetOwnedError: The rule set belongs to another owner.
        """
        self._connection.execute(
            update(RuleSetRow)
            .where(
                RuleSetRow.namespace == namespace,
                RuleSetRow.name == name,
                RuleSetRow.owner == str(owner),
            )
            .values(owner=str(RuleOwner.NOBODY))
        )
        holder = self.owner(namespace=namespace, name=name)
        if holder is not RuleOwner.NOBODY:
            raise _owned(namespace=namespace, name=name, holder=holder)

    def owner(self, *, namespace: str, name: str) -> RuleOwner:
        """Return who may change the rule set; NOBODY when it is free or does not exist."""
        held = self._connection.scalar(
            select(RuleSetRow.owner).where(
                RuleSetRow.namespace == namespace, RuleSetRow.name == name
            )
        )
        return RuleOwner(held or "")

    def heads(self) -> dict[tuple[str, str], Head]:
        """Return where every rule set stands, by namespace and name.

        Versions never change, so that who keeps those it has read needs no more to know what is
        new.
        """
        return {
            (namespace, name): Head(owner=RuleOwner(owner), latest=latest)
            for namespace, name, owner, latest in self._connection.execute(_HEADS)
        }

    def latest(self, *, namespace: str, name: str) -> RuleSetVersion | None:
        """Return the newest version."""
        found = self.history(namespace=namespace, name=name, limit=1)
        return found[0].version if found else None

    def get(self, *, namespace: str, name: str, version: int) -> RuleSetVersion | None:
        """Return one version."""
        found = self._where(
            (RuleSetVersionRow.namespace == namespace)
            & (RuleSetVersionRow.name == name)
            & (RuleSetVersionRow.version == version)
        )
        return found[0].version if found else None

    def history(self, *, namespace: str, name: str, limit: int = 100) -> Sequence[AppliedVersion]:
        """Return the versions of a rule set, newest first."""
        return self._where(
            (RuleSetVersionRow.namespace == namespace) & (RuleSetVersionRow.name == name),
            limit=limit,
        )

    def list(self, *, namespace: str | None = None) -> Sequence[RuleSetVersion]:
        """Return the newest version of every rule set, of one namespace or all."""
        where = (
            (RuleSetVersionRow.namespace == RuleSetRow.namespace)
            & (RuleSetVersionRow.name == RuleSetRow.name)
            & (RuleSetVersionRow.version == RuleSetRow.latest)
        )
        if namespace is not None:
            where &= RuleSetVersionRow.namespace == namespace
        return [found.version for found in self._where(where)]

    def _claim(self, *, namespace: str, name: str, owner: RuleOwner) -> int:
        """Become or remain the owner; return the latest version, 0 when there is none."""
        self._connection.execute(
            database.insert(self._connection, RuleSetRow)
            .values(namespace=namespace, name=name, owner=str(owner), latest=0)
            .on_conflict_do_nothing()
        )
        this = (RuleSetRow.namespace == namespace) & (RuleSetRow.name == name)
        held, latest = self._connection.execute(
            select(RuleSetRow.owner, RuleSetRow.latest).where(this)
        ).one()
        if held == RuleOwner.NOBODY:
            self._connection.execute(update(RuleSetRow).where(this).values(owner=str(owner)))
        elif held != owner:
            raise _owned(namespace=namespace, name=name, holder=RuleOwner(held))
        return latest

    def _where(
        self, where: ColumnElement[bool], *, limit: int | None = None
    ) -> Sequence[AppliedVersion]:
        row = RuleSetVersionRow
        rows = self._connection.execute(
            select(
                row.namespace,
                row.version,
                row.content,
                row.content_hash,
                row.author,
                row.source,
                row.owner,
                row.applied_at,
            )
            .where(where)
            .order_by(row.namespace, row.name, row.version.desc())
            .limit(limit)
        )
        return [
            AppliedVersion(
                version=RuleSetVersion(
                    namespace=found.namespace,
                    version=found.version,
                    rule_set=RuleSet.from_content(found.content),
                    content_hash=found.content_hash,
                    author=found.author,
                    source=found.source,
                ),
                owner=RuleOwner(found.owner),
                at=found.applied_at,
            )
            for found in rows
        ]


def _owned(*, namespace: str, name: str, holder: RuleOwner) -> RuleSetOwnedError:
    words = _EDIT_IT[holder].format(namespace=namespace, name=name)
    return RuleSetOwnedError(f"rule set {namespace}/{name} {words}")
