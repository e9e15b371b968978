"""A target's signals over time, from the history of a Prometheus.

The queries are those of a live round and so is everything after them: each moment's answers become
looks at replicas, looks become histories, windows are cut out of these and turned into readings.
Only the asking differs: range queries in slices (`slices`), one evaluation interval a step.

What Kubernetes knew then, nobody kept. The replicas are the pods that Prometheus has series of at a
moment; whether one speculated, and how deep, is told by the series it exported.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import ceil

from specpilot.domain.ports import Ask
from specpilot.domain.readings import Readings
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Replica, TargetRef
from specpilot.telemetry import promql
from specpilot.telemetry.behind import behind
from specpilot.telemetry.connection import Connection, PrometheusServer
from specpilot.telemetry.derive import derive
from specpilot.telemetry.exposition import PROCESS_START, Page
from specpilot.telemetry.names import POSITIONS, Counter
from specpilot.telemetry.promdecode import Pods, Where
from specpilot.telemetry.promql import Labels, Scope
from specpilot.telemetry.promwire import Grid
from specpilot.telemetry.rings import Rings
from specpilot.telemetry.slices import MOST_POINTS, TARGET_BYTES, Slices

_STALE_FLOOR_S = 30.0
_SUFFIX = "[bcdfghjklmnpqrstvwxz2456789]"
"""Kubernetes draws the ends of names from these, so that `chat-big` is not taken for `chat`'s."""


_NUMBERED = frozenset({"StatefulSet", "LeaderWorkerSet"})
"""Kinds whose pods have an ordinal; the workers of a group, which do not serve, have two."""


def pods_of(target: TargetRef) -> str:
    """Pattern of the names of a workload's pods.

    The pods of a Deployment or Rollout have its own name, a template's hash, and an end.
    """
    if target.kind in _NUMBERED:
        return f"{re.escape(target.name)}-[0-9]+"
    return f"{re.escape(target.name)}-{_SUFFIX}{{1,10}}-{_SUFFIX}{{5}}"


@dataclass(frozen=True, slots=True, order=True)
class Ran:
    """What a replica's series say of the setting it ran.

    Attributes:
        speculates: Whether the series of speculation are there.
        depth: Tokens drafted a step, by how many positions are counted; 0 where they do not tell.
    """

    speculates: bool
    depth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PastArm:
    """The replicas that ran the same at a moment.

    Attributes:
        ran: What they ran; None where their numbers cannot be used.
        replicas: How many there were.
        readings: Their signals, over the window that ends then.
    """

    ran: Ran | None
    replicas: int
    readings: Readings


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMoment:
    """What Prometheus says of one moment.

    Attributes:
        at: When.
        arms: The replicas it has numbers of, by what they ran; the largest first.
        failed: Why nothing is known of this moment, not even which replicas there were; else "".
    """

    at: datetime
    arms: tuple[PastArm, ...] = ()
    failed: str = ""

    @property
    def replicas(self) -> int | None:
        """How many there were; None where that is not known."""
        return None if self.failed else sum(arm.replicas for arm in self.arms)


@dataclass(slots=True)
class _SetClock:
    """A clock that stands where it was put."""

    at: datetime

    def now(self) -> datetime:
        return self.at


@dataclass(frozen=True, slots=True)
class _Process:
    """An engine's process, as far as its series tell it from the one before it."""

    started: float | None
    since: datetime | None  # when it was first seen; None where it may have been there for long


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusPast:
    """Looks at one target's past.

    Attributes:
        server: How to reach the Prometheus.
        target: Whose replicas.
        window: Window of every signal.
        step: Time between two looks, in whole milliseconds.
        warm_up: Time after a replica was first seen in which its numbers are not used.
        signals: What is wanted; empty is every signal.
        pods: Pattern of the names of the target's pods; "" is that of a Deployment.
        labels: How this Prometheus names namespace and pod.
        deadline_s: Longest time for one slice, retries included.
        most_points: Moments of one slice at most.
        target_bytes: Size of an answer that is aimed at.
    """

    server: PrometheusServer
    target: TargetRef
    window: timedelta
    step: timedelta
    warm_up: timedelta = timedelta(0)
    signals: frozenset[str] = frozenset()
    pods: str = ""
    labels: Labels = field(default_factory=Labels)
    deadline_s: float = 120.0
    most_points: int = MOST_POINTS
    target_bytes: int = TARGET_BYTES

    @property
    def lead(self) -> int:
        """Looks before the first moment, so that its window is whole."""
        return ceil(self.window / self.step) + 1

    def walk(self, *, start: datetime, end: datetime) -> Iterator[PastMoment]:
        """Look at every step from `start` to `end`.

        Raises:
            PrometheusError: Prometheus cannot be asked at all.
        """
        pods = promql.quoted(self.pods or pods_of(self.target))
        matchers = ",".join(m for m in (f"{self.labels.pod}=~{pods}", self.labels.matchers) if m)
        labels = Labels(namespace=self.labels.namespace, pod=self.labels.pod, matchers=matchers)
        step_ms = round(self.step / timedelta(milliseconds=1))
        first_ms = round(start.timestamp() * 1000)
        grid = Grid(
            start_ms=first_ms - self.lead * step_ms,
            step_ms=step_ms,
            count=self.lead + int((end - start) / self.step) + 1,
        )
        with Connection(self.server) as connection:
            slices = Slices(
                connection=connection,
                address=self.server.address,
                scope=Scope(namespaces={self.target.namespace}, labels=labels),
                labels=labels,
                # Positions tell the depth, whether or not a rule is about them.
                wanted=replace(behind(self.signals), positions=True),
                deadline_s=self.deadline_s,
                most_points=self.most_points,
                target_bytes=self.target_bytes,
            )
            looker: _Looker | None = None
            for part in slices.of(grid):
                looker = None if part.failed else looker or _Looker(self)
                for place in range(part.grid.count):
                    at_ms = part.grid.start_ms + place * step_ms
                    at = datetime.fromtimestamp(at_ms / 1000, UTC)
                    if looker is not None:
                        looker.look(at, part.pods[place])
                    if at_ms >= first_ms:
                        arms = looker.arms(at) if looker is not None else ()
                        yield PastMoment(at=at, arms=arms, failed=part.failed)


class _Looker:
    """The histories of the replicas over slices without a gap.

    After a gap they begin anew, as they do when the operator is started: of the mean of a gauge in
    the gap nothing is known.
    """

    def __init__(self, past: PrometheusPast) -> None:
        self._past = past
        self._clock = _SetClock(datetime.min.replace(tzinfo=UTC))
        step_s = past.step.total_seconds()
        self._rings = Rings(
            clock=self._clock,
            source="Prometheus",
            interval_s=step_s,
            keep_s=past.window.total_seconds() + 4 * step_s,
            stale_floor_s=_STALE_FLOOR_S,
            every=True,
        )
        self._began: datetime | None = None
        self._processes: dict[Where, _Process] = {}
        self._arms: dict[Ran | None, list[Replica]] = {}

    def look(self, at: datetime, pods: Pods) -> None:
        """Take in what was said of a moment."""
        self._clock.at = at
        self._began = self._began or at
        self._arms = {}
        seen = {where: pod for where, pod in pods.items() if pod.at is not None}
        faults = {where: pod.fault() for where, pod in seen.items()}
        pages = {where: pod.page() for where, pod in seen.items() if faults[where] is None}
        for where in sorted(seen):
            page = pages.get(where)
            process = self._process(where, page, at)
            replica = self._replica(where, process)
            self._arms.setdefault(_ran(page), []).append(replica)
        self._rings.track([r for replicas in self._arms.values() for r in replicas])
        self._rings.tracked()  # forgets those that are gone
        for replica in (r for replicas in self._arms.values() for r in replicas):
            where = (replica.namespace, replica.id)
            stamp, fault = seen[where].at, faults[where]
            if fault is not None:
                self._rings.fail([replica.key], fault)
            elif stamp is not None:
                page = pages[where]
                self._rings.add(replica.key, stamp, page, means=page.gauges)
        # What is not seen any more has ended; its name may come back as another process.
        self._processes = {w: p for w, p in self._processes.items() if w in seen}

    def arms(self, at: datetime) -> tuple[PastArm, ...]:
        """What the replicas of the last look did in the window until then."""
        asks = {ran: self._ask(ran, replicas, at) for ran, replicas in self._arms.items()}
        answers = self._rings.arms(list(asks.values()))
        found = [
            PastArm(
                ran=ran,
                replicas=len(ask.replicas),
                readings=derive(
                    answers[ask.key], ready=len(ask.replicas), signals=self._past.signals
                ).made(),
            )
            for ran, ask in asks.items()
        ]
        return tuple(
            sorted(
                found, key=lambda a: (-a.replicas, a.ran is None, a.ran or Ran(speculates=False))
            )
        )

    def _process(self, where: Where, page: Page | None, at: datetime) -> _Process:
        known = self._processes.get(where)
        started = page.values.get(PROCESS_START) if page is not None else None
        if known is None:
            known = _Process(started, None if at == self._began else at)
        elif started is not None and known.started is None:
            known = _Process(started, known.since)
        elif started is not None and started != known.started:
            known = _Process(started, at)
        self._processes[where] = known
        return known

    def _replica(self, where: Where, process: _Process) -> Replica:
        namespace, name = where
        return Replica(
            id=name,
            namespace=namespace,
            declared=Declared(),  # what it was started with is not known
            ready=True,
            ready_since=process.since,
        )

    def _ask(self, ran: Ran | None, replicas: list[Replica], at: datetime) -> Ask:
        return Ask(
            key=str(ran),
            target=self._past.target,
            replicas=tuple(replicas),
            start=at - self._past.window,
            end=at,
            warm_up_s=self._past.warm_up.total_seconds(),
            signals=self._past.signals,
        )


def _ran(page: Page | None) -> Ran | None:
    """What a look says of the setting; one without the count of tokens does not tell."""
    if page is None:
        return None
    if page.legacy or (Counter.DRAFTS, "") in page.values:
        return Ran(speculates=True, depth=sum(name == POSITIONS for name, _ in page.values))
    return Ran(speculates=False) if (Counter.GENERATION_TOKENS, "") in page.values else None
