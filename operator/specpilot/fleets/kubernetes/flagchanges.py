"""FlagChange objects: what kubectl shows of a flag change, and where a person decides on it.

The database holds the truth; these objects mirror it and are bounded in number. Only
`spec.decision` and `spec.decidedBy` flow the other way, so those two are never written here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from specpilot.domain.changes import FlagChange, Phase
from specpilot.domain.situation import Answer, Decision
from specpilot.fleets.kubernetes.api import Api, ApiError
from specpilot.fleets.kubernetes.objects import key_of, owners, uid_of
from specpilot.fleets.kubernetes.request import FLAG_CHANGES, POLICIES, Object, delete
from specpilot.fleets.kubernetes.status import Known
from specpilot.resources.mirror import flag_change_spec, flag_change_status

POLICY_UID_LABEL = "specpilot.io/policy-uid"
"""Which policy a flag change belongs to; by uid, since a name may be too long for a label."""

KEPT = 10
"""Ended changes that stay visible per policy; the database keeps all."""


def _body(change: FlagChange) -> Object:
    """The object without its status and without what people write in it."""
    return {
        "metadata": {
            "namespace": change.policy.namespace,
            "name": change.id,
            "labels": {POLICY_UID_LABEL: change.policy.uid},
            # Deleting the policy deletes what is shown of it; the database keeps the record.
            "ownerReferences": [
                {
                    "apiVersion": POLICIES.api_version,
                    "kind": POLICIES.kind,
                    "name": change.policy.name,
                    "uid": change.policy.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": flag_change_spec(change),
    }


def decision_of(obj: Mapping[str, Any]) -> Decision | None:
    """What a person decided in the object, None while nobody has.

    Who it was is what they say of themselves, else the manager that wrote the field
    (`kubectl-edit`, a GitOps tool): the API keeps no user names with objects.
    """
    spec = obj.get("spec") or {}
    answer = spec.get("decision")
    if answer not in set(Answer):
        return None
    managers = ", ".join(sorted(owners(obj, "spec", "decision")))
    return Decision(answer=Answer(answer), by=str(spec.get("decidedBy") or managers or "kubectl"))


class FlagChangeMirror:
    """Keeps FlagChange objects in step with the database.

    Args:
        api: The API server.
        known: Where an object is looked up before anything is written.
        listed: All FlagChange objects of a namespace.
    """

    def __init__(
        self, api: Api, *, known: Known, listed: Callable[[str], Iterable[Object]]
    ) -> None:
        self._api = api
        self._known = known
        self._listed = listed

    def show(self, change: FlagChange, *, waiting_for: str = "") -> bool:
        """Create or update the object of a change; whether that took a write.

        Args:
            change: The change.
            waiting_for: What it waits for now, in words.

        Raises:
            ApiError: The API server refused, or did not answer.
        """
        wanted = _body(change)
        obj = self._known(FLAG_CHANGES, change.policy.namespace, change.id)
        wrote = False
        if obj is None or not _covers(obj.get("spec") or {}, wanted["spec"]):
            obj = self._api.apply(FLAG_CHANGES, wanted)
            wrote = True
        status = flag_change_status(change, waiting_for=waiting_for)
        if (obj.get("status") or {}) != status:
            name = {key: wanted["metadata"][key] for key in ("namespace", "name")}
            self._api.apply(
                FLAG_CHANGES, {"metadata": name, "status": status}, subresource="status"
            )
            wrote = True
        return wrote

    def decision(self, change: FlagChange) -> Decision | None:
        """What a person decided on a change, None while nobody has."""
        obj = self._known(FLAG_CHANGES, change.policy.namespace, change.id)
        return None if obj is None else decision_of(obj)

    def prune(self, namespace: str, *, policy_uid: str, keep: int = KEPT) -> int:
        """Delete the oldest ended changes of a policy beyond `keep`; return how many went.

        Raises:
            ApiError: The API server refused, or did not answer.
        """
        ended = sorted(
            (o for o in self._listed(namespace) if _belongs(o, policy_uid) and _ended(o)),
            key=lambda o: (str(o["metadata"].get("creationTimestamp")), key_of(o)),
        )
        surplus = ended[: max(0, len(ended) - keep)]
        for obj in surplus:
            _, name = key_of(obj)
            try:
                self._api.send(
                    delete(FLAG_CHANGES, namespace=namespace, name=name, uid=uid_of(obj))
                )
            except ApiError as error:
                if not (error.not_found or error.conflict):
                    raise
        return len(surplus)


def _covers(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    # Compared as values: the server writes 4.0 as 4.
    return all(found.get(key) == value for key, value in wanted.items())


def _belongs(obj: Object, policy_uid: str) -> bool:
    labels = obj["metadata"].get("labels") or {}
    return bool(labels.get(POLICY_UID_LABEL) == policy_uid)


def _ended(obj: Object) -> bool:
    phase = (obj.get("status") or {}).get("phase")
    return phase in set(Phase) and Phase(phase).ended
