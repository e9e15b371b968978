"""A target's signals over time, from the history of a Prometheus.

The past is looked at with the very source that live ticks use, its clock set back and moved on step
by step, so that a replay sees what a tick would have seen. What Kubernetes knew then, nobody kept:
the replicas are the pods of which Prometheus has series.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from specpilot.domain.ports import Ask
from specpilot.domain.readings import Readings
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Replica, TargetRef
from specpilot.telemetry import promql
from specpilot.telemetry.answer import answer
from specpilot.telemetry.connection import (
    Connection,
    FaultKind,
    PrometheusError,
    PrometheusServer,
)
from specpilot.telemetry.promdecode import Answer, Pods
from specpilot.telemetry.prometheus import PrometheusTelemetry
from specpilot.telemetry.promql import Labels, Scope

_KEY = "target"
_LONGEST_QUERY_S = 30.0
_SUFFIX = "[bcdfghjklmnpqrstvwxz2456789]"
"""Kubernetes draws the ends of names from these, so that `chat-big` is not taken for `chat`'s."""


def pods_of(target: TargetRef) -> str:
    """Pattern of the names of a Deployment's pods: its own name, a template's hash, and an end."""
    return f"{re.escape(target.name)}-{_SUFFIX}{{1,10}}-{_SUFFIX}{{5}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMoment:
    """What Prometheus says of one moment.

    Attributes:
        at: When.
        readings: Signals of all replicas, over the window that ends then.
        replicas: How many pods it saw serving.
    """

    at: datetime
    readings: Readings
    replicas: int


@dataclass(slots=True)
class _SetClock:
    """A clock that stands where it was put."""

    at: datetime

    def now(self) -> datetime:
        return self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusPast:
    """Looks at one target's past.

    Attributes:
        server: How to reach the Prometheus.
        target: Whose replicas.
        window: Window of every signal.
        step: Time between two looks.
        warm_up: Time after a replica was first seen in which its numbers are not used.
        signals: What is wanted; empty is every signal.
        pods: Pattern of the names of the target's pods; "" is that of a Deployment.
        labels: How this Prometheus names namespace and pod.
    """

    server: PrometheusServer
    target: TargetRef
    window: timedelta
    step: timedelta
    warm_up: timedelta = timedelta(0)
    signals: frozenset[str] = frozenset()
    pods: str = ""
    labels: Labels = field(default_factory=Labels)

    def walk(self, *, start: datetime, end: datetime) -> Iterator[PastMoment]:
        """Look at every step from `start` to `end`.

        A look that fails is what it would have been live: older looks serve until they are stale.

        Raises:
            PrometheusError: Prometheus did not say which replicas there were.
        """
        clock = _SetClock(start.astimezone(UTC) - self.step)
        pods = promql.quoted(self.pods or pods_of(self.target))
        matchers = ",".join(m for m in (f"{self.labels.pod}=~{pods}", self.labels.matchers) if m)
        labels = Labels(namespace=self.labels.namespace, pod=self.labels.pod, matchers=matchers)
        telemetry = PrometheusTelemetry(
            server=self.server,
            clock=clock,
            labels=labels,
            interval_s=self.step.total_seconds(),
            settle_s=0.0,
            deadline_s=_LONGEST_QUERY_S,
            keep_s=(self.window + 4 * self.step).total_seconds(),
        )
        first_seen: dict[str, datetime] = {}
        began = clock.at
        with closing(telemetry), Connection(self.server) as connection:
            # One look before the first moment: what comes after it can reach back from there.
            while clock.at <= end:
                replicas = self._replicas(connection, labels, clock.at, first_seen, began=began)
                telemetry.track(replicas)
                ask = self._ask(replicas, clock.at)
                telemetry.windows([ask], deadline_s=0.0)  # says what the look must fetch
                telemetry.sample()
                if clock.at >= start:
                    readings = answer(telemetry, [ask], deadline_s=0.0)[_KEY]
                    yield PastMoment(at=clock.at, readings=readings, replicas=len(replicas))
                clock.at += self.step

    def _replicas(
        self,
        connection: Connection,
        labels: Labels,
        at: datetime,
        first_seen: dict[str, datetime],
        *,
        began: datetime,
    ) -> list[Replica]:
        scope = Scope(namespaces={self.target.namespace}, labels=labels)
        pods = Pods()
        try:
            body = connection.query(
                promql.state(scope), at=at.timestamp(), timeout_s=_LONGEST_QUERY_S
            )
            pods.absorb_state(body, labels)
        except Answer as error:
            words = f"{self.server.address} {error}"
            raise PrometheusError(words, kind=FaultKind.NOT_PROMETHEUS) from error
        names = sorted(name for (_, name), pod in pods.items() if pod.at is not None)
        for name in names:
            first_seen.setdefault(name, at)
        return [
            Replica(
                id=name,
                namespace=self.target.namespace,
                declared=Declared(),  # what it was started with is not known
                ready=True,
                # Those that were there at the beginning may have been for long.
                ready_since=None if first_seen[name] == began else first_seen[name],
            )
            for name in names
        ]

    def _ask(self, replicas: list[Replica], at: datetime) -> Ask:
        return Ask(
            key=_KEY,
            target=self.target,
            replicas=tuple(replicas),
            start=at - self.window,
            end=at,
            warm_up_s=self.warm_up.total_seconds(),
            signals=self.signals,
        )
