"""A cluster's alert channels: made from AlertChannel resources and Secrets, with a status in turn.

A channel that does not work is noticed when it is needed most. So each is made, with its Secret,
as soon as it is applied, and its status says what became of the last alert.
"""

import base64
import logging
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from specpilot.alerts import Channel
from specpilot.controller.channels import SecretError, channel
from specpilot.controller.registry import Condition
from specpilot.controller.status_object import condition_object
from specpilot.domain.ports import Clock
from specpilot.fleets.kubernetes import ALERT_CHANNELS, Api, ApiError, StatusWriter, Watches
from specpilot.fleets.kubernetes.request import SECRETS
from specpilot.fleets.kubernetes.request import read as read_request
from specpilot.resources import channel_from, read
from specpilot.resources.alert_channel import SecretKeyRef
from specpilot.resources.mirror import timestamp
from specpilot.store import Delivery, Store

log = logging.getLogger(__name__)

CHECK_EVERY = timedelta(minutes=1)
"""How often it is looked whether a channel's Secret is there."""


class ClusterChannels(Mapping[str, Channel]):
    """AlertChannel resources by `namespace/name`, with Secrets read when an alert is sent."""

    def __init__(self, *, api: Api, watches: Watches, store: Store, clock: Clock) -> None:
        self._api = api
        self._watches = watches
        self._store = store
        self._clock = clock
        self._writer = StatusWriter(
            api, known=lambda resource, ns, name: watches.store(resource).get(ns, name)
        )
        self._checked: dict[str, tuple[tuple[str, int], datetime, str]] = {}

    def __getitem__(self, key: str) -> Channel:
        namespace, _, name = key.partition("/")
        obj = self._watches.store(ALERT_CHANNELS).get(namespace, name)
        if obj is None:
            raise KeyError(key)
        try:
            return self._make(key, obj)
        except ValueError as error:
            log.warning("alert channel %s cannot be used: %s", key, error)
            raise KeyError(key) from error

    def __iter__(self) -> Iterator[str]:
        return iter([_key(obj) for obj in self._watches.store(ALERT_CHANNELS).all()])

    def __len__(self) -> int:
        return len(self._watches.store(ALERT_CHANNELS))

    def report(self) -> None:
        """Write each channel's status, where it says something new."""
        objects = self._watches.store(ALERT_CHANNELS).all()
        with self._store.read() as unit:
            last = {
                key: next(iter(unit.outbox.deliveries(channel=key, limit=1)), None)
                for key in map(_key, objects)
            }
        for obj in objects:
            self._report(obj, last[_key(obj)])
        self._checked = {k: v for k, v in self._checked.items() if k in last}

    def _report(self, obj: Mapping[str, Any], last: Delivery | None) -> None:
        meta, old = obj["metadata"], obj.get("status") or {}
        now = self._clock.now()
        ready = _condition(self._problem(obj, now=now), last)
        known = next((c for c in old.get("conditions") or [] if c["type"] == ready.type), None)
        status = {
            "observedGeneration": meta["generation"],
            "conditions": [condition_object(ready, known, generation=meta["generation"], now=now)],
        }
        if last is not None and not last.error:
            status["lastDelivery"] = timestamp(last.at)
        elif "lastDelivery" in old:
            status["lastDelivery"] = old["lastDelivery"]
        try:
            self._writer.patch_status(ALERT_CHANNELS.kind, meta["namespace"], meta["name"], status)
        except ApiError as error:
            log.warning("status of alert channel %s could not be written: %s", _key(obj), error)

    def _problem(self, obj: Mapping[str, Any], *, now: datetime) -> str:
        """Why a channel cannot be made, "" when it can; looked up anew from time to time."""
        key, identity = _key(obj), (obj["metadata"]["uid"], obj["metadata"]["generation"])
        seen = self._checked.get(key)
        if seen is not None and seen[0] == identity and now - seen[1] < CHECK_EVERY:
            return seen[2]
        try:
            self._make(key, obj)
        except ValueError as error:
            problem = str(error)
        else:
            problem = ""
        self._checked[key] = (identity, now, problem)
        return problem

    def _make(self, key: str, obj: Mapping[str, Any]) -> Channel:
        namespace = obj["metadata"]["namespace"]
        return channel(
            channel_from(read(obj)), name=key, secret=lambda ref: self._secret(namespace, ref)
        )

    def _secret(self, namespace: str, ref: SecretKeyRef) -> str:
        try:
            found = self._api.send(read_request(SECRETS, namespace=namespace, name=ref.name))
        except ApiError as error:
            raise SecretError(f"secretKeyRef {ref.name}: {_remedy(error, ref)}") from error
        value = (found.get("data") or {}).get(ref.key)
        if value is None:
            raise SecretError(f"secretKeyRef {ref.name}: the Secret has no key {ref.key}")
        return base64.b64decode(value).decode()


def _remedy(error: ApiError, ref: SecretKeyRef) -> str:
    if error.not_found:
        return "there is no such Secret in this namespace; create it"
    if error.forbidden:
        return f"Specpilot may not read it; add {ref.name} to alerts.secretNames of the chart"
    return str(error)


def _condition(problem: str, last: Delivery | None) -> Condition:
    if problem:
        return Condition(type="Ready", status=False, reason="Unusable", message=problem)
    if last is not None and last.error:
        return Condition(type="Ready", status=False, reason="NotDelivered", message=last.error)
    return Condition(type="Ready", status=True, reason="Usable" if last is None else "Delivered")


def _key(obj: Mapping[str, Any]) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
