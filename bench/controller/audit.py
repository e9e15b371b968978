"""What the operator asked of the API server, by the server's own audit log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

READS = frozenset({"get", "list"})
WRITES = frozenset({"create", "update", "patch", "delete"})


def policy(user: str) -> str:
    """An audit policy that notes one user's requests and nobody else's."""
    rules = [
        {"level": "Metadata", "users": [user], "omitStages": ["RequestReceived"]},
        {"level": "None"},
    ]
    return json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request.

    Attributes:
        at: When it came, in seconds since the epoch.
        verb: The API's verb.
        resource: Plural name, with its subresource if any.
        namespace: "" for none.
        name: "" for none.
        code: The answer's status.
    """

    at: float
    verb: str
    resource: str
    namespace: str
    name: str
    code: int


class AuditLog:
    """Reads what was added to the log since the last time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def news(self) -> list[Sent]:
        """The requests answered since the last call; a watch counts when it was opened."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        whole = text.rfind(b"\n") + 1
        self._read += whole
        return [*_requests(text[:whole])]


def _requests(text: bytes) -> Iterator[Sent]:
    for line in text.splitlines():
        event = json.loads(line)
        # A watch is noted twice: when it begins, and when it ends.
        if (event["verb"] == "watch") != (event["stage"] == "ResponseStarted"):
            continue
        where = event.get("objectRef") or {}
        resource = "/".join(filter(None, (where.get("resource", ""), where.get("subresource"))))
        yield Sent(
            at=datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp(),
            verb=event["verb"],
            resource=resource,
            namespace=where.get("namespace", ""),
            name=where.get("name", ""),
            code=(event.get("responseStatus") or {}).get("code", 0),
        )


def table(requests: list[Sent]) -> dict[str, int]:
    """How many there were of each verb and resource, most first."""
    return dict(Counter(f"{r.verb} {r.resource}" for r in requests).most_common())
