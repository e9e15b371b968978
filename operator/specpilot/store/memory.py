"""What is remembered of each policy; read and written for all of them once a tick."""

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, bindparam, delete, select

from specpilot.domain.memory import PolicyMemory
from specpilot.store.codec import memory_from_plain, memory_to_plain
from specpilot.store.database import chunks, insert
from specpilot.store.models import PolicyMemoryRow

_CHUNK = 1000
"""Bound parameters of one query; every supported database takes more."""

_GET = select(PolicyMemoryRow.policy_uid, PolicyMemoryRow.body).where(
    PolicyMemoryRow.policy_uid.in_(bindparam("uids", expanding=True))
)


class Memories:
    """Memory of policies within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, policy_uid: str) -> PolicyMemory:
        """Return what is remembered; a policy never seen remembers nothing."""
        return self.get_many([policy_uid])[policy_uid]

    def get_many(self, policy_uids: Iterable[str]) -> dict[str, PolicyMemory]:
        """Return the memory of each policy named."""
        found = dict.fromkeys(policy_uids, PolicyMemory())
        for chunk in chunks(found, _CHUNK):
            rows = self._connection.execute(_GET, {"uids": chunk})
            found.update((uid, memory_from_plain(body)) for uid, body in rows)
        return found

    def put(self, policy_uid: str, memory: PolicyMemory) -> None:
        """Remember."""
        self.put_many({policy_uid: memory})

    def put_many(self, memories: Mapping[str, PolicyMemory]) -> None:
        """Remember all of these."""
        if not memories:
            return
        statement = insert(self._connection, PolicyMemoryRow)
        self._connection.execute(
            statement.on_conflict_do_update(
                index_elements=["policy_uid"], set_={"body": statement.excluded.body}
            ),
            [
                {"policy_uid": uid, "body": memory_to_plain(memory)}
                for uid, memory in memories.items()
            ],
        )

    def delete(self, policy_uid: str) -> None:
        """Forget a policy; forgetting it again does no harm."""
        self._connection.execute(
            delete(PolicyMemoryRow).where(PolicyMemoryRow.policy_uid == policy_uid)
        )
