"""Changes of fields as a JSON patch that rests on what was read (RFC 6902)."""

from typing import Any

from specpilot.domain.settings import JsonValue
from specpilot.fleets.kubernetes.request import Object, Request, Resource, json_patch
from specpilot.fleets.kubernetes.workloads.base import Path, dig


class Changes:
    """Operations that turn what was read into what is wanted."""

    def __init__(self, root: Object) -> None:
        self._root = root
        self._made: set[Path] = set()
        self._blind = False
        self._tests: list[Object] = []
        self.operations: list[Object] = []

    def to(self, path: Path, value: JsonValue, *, ours: bool = False) -> None:
        """Set a value; None removes it.

        Args:
            path: Where.
            value: What is to stand there.
            ours: Nobody else writes there.
        """
        old = dig(self._root, path)
        if old == value:
            return
        if old is not None:
            self._tests.append(_operation("test", path, old))
            self.operations.append(
                {"op": "remove", "path": pointer(path)}
                if value is None
                else _operation("replace", path, value)
            )
            return
        self._blind |= not ours
        for length in range(1, len(path)):
            parent = path[:length]
            if dig(self._root, parent) is None and parent not in self._made:
                self.operations.append(_operation("add", parent, {}))
                self._made.add(parent)
        self.operations.append(_operation("add", path, value))

    def request(self, resource: Resource, *, manager: str) -> Request | None:
        """The patch; None when there is nothing to change."""
        if not self.operations:
            return None
        metadata = self._root["metadata"]
        return json_patch(
            resource,
            [*self.tests(), *self.operations],
            namespace=metadata["namespace"],
            name=metadata["name"],
            field_manager=manager,
        )

    def tests(self) -> list[Object]:
        """What must still be so.

        A patch cannot test that nothing stands somewhere, so what is added where nothing stood
        rests on the object's whole version.
        """
        metadata = self._root["metadata"]
        whole = self._made or self._blind
        sure = ("metadata", "resourceVersion") if whole else ("metadata", "uid")
        return [_operation("test", sure, metadata[sure[1]]), *self._tests]


def _operation(name: str, path: Path, value: Any) -> Object:
    return {"op": name, "path": pointer(path), "value": value}


def pointer(path: Path) -> str:
    """A path as a JSON pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
