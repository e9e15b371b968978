"""What the watches know, in memory: objects by name, and by the owner that controls them."""

import threading
from collections import Counter
from collections.abc import Iterable

from specpilot.fleets.kubernetes.objects import controller_of, key_of
from specpilot.fleets.kubernetes.request import Object

Key = tuple[str, str]


def _version(obj: Object | None) -> object:
    return None if obj is None else obj["metadata"].get("resourceVersion")


class Store:
    """Objects of one resource. Readers must not change what they are given."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[Key, Object] = {}
        self._owned: dict[str, dict[Key, Object]] = {}
        self._revisions: Counter[str] = Counter()

    def __len__(self) -> int:
        with self._lock:
            return len(self._objects)

    def revision(self, namespace: str = "") -> int:
        """Another number as soon as an object, or one of a namespace, came, changed or went."""
        with self._lock:
            return self._revisions[namespace]

    def get(self, namespace: str, name: str) -> Object | None:
        """One object, or None."""
        with self._lock:
            return self._objects.get((namespace, name))

    def owned_by(self, uid: str) -> list[Object]:
        """The objects whose controller has this uid."""
        with self._lock:
            return list(self._owned.get(uid, {}).values())

    def all(self, namespace: str = "") -> list[Object]:
        """All objects, or those of a namespace."""
        with self._lock:
            return [o for (ns, _), o in self._objects.items() if not namespace or ns == namespace]

    def put(self, obj: Object) -> bool:
        """Add or replace an object; whether it is news."""
        with self._lock:
            return self._put(obj)

    def drop(self, obj: Object) -> bool:
        """Forget an object; whether it was known."""
        with self._lock:
            return self._drop(key_of(obj))

    def replace(self, objs: Iterable[Object], *, namespace: str = "") -> list[Object]:
        """Take a whole list (of a namespace) for the truth; return what is new, changed or gone."""
        with self._lock:
            before = {k: o for k, o in self._objects.items() if not namespace or k[0] == namespace}
            changed = []
            for obj in objs:
                before.pop(key_of(obj), None)
                if self._put(obj):
                    changed.append(obj)
            for key, obj in before.items():
                self._drop(key)
                changed.append(obj)
            return changed

    def _put(self, obj: Object) -> bool:
        key = key_of(obj)
        known = self._objects.get(key)
        if known is not None:
            if _version(known) == _version(obj):
                return False
            self._unlink(key, known)
        self._objects[key] = obj
        self._changed(key)
        owner = controller_of(obj)
        if owner is not None:
            self._owned.setdefault(str(owner.get("uid")), {})[key] = obj
        return True

    def _drop(self, key: Key) -> bool:
        known = self._objects.pop(key, None)
        if known is None:
            return False
        self._changed(key)
        self._unlink(key, known)
        return True

    def _changed(self, key: Key) -> None:
        self._revisions[key[0]] += 1
        self._revisions[""] += 1

    def _unlink(self, key: Key, obj: Object) -> None:
        owner = controller_of(obj)
        if owner is None:
            return
        uid = str(owner.get("uid"))
        siblings = self._owned.get(uid)
        if siblings is not None:
            siblings.pop(key, None)
            if not siblings:
                del self._owned[uid]
