"""Running the loop: APScheduler calls the tick and the reconciler; a late tick is reported."""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self

from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from specpilot.controller.beat import Beats
from specpilot.controller.clockwatch import ClockWatch
from specpilot.controller.evaluator import Evaluator
from specpilot.controller.reconciler import Reconciler
from specpilot.controller.turns import Turns
from specpilot.domain.portions import UNDIVIDED, Portions
from specpilot.domain.ports import FleetError
from specpilot.store import StoreError

log = logging.getLogger(__name__)


_AGAIN_S = 0.05
_TICK = "tick-"

_KEPT_S = 1.0
"""How long reconciliation keeps its turn at least while ticks are late: of several portions one is
always waiting then, and changes that are open must be carried on all the same."""


def _tick_id(portion: int) -> str:
    return f"{_TICK}{portion}"


class SystemClock:
    """The wall clock."""

    def now(self) -> datetime:
        """Return the present in UTC."""
        return datetime.now(UTC)


class Runner:
    """Schedules ticks, reconciliation and delivery; none of them is ever stacked.

    Ticks and reconciliation take turns: what one decides on is not changed by the other in
    between. Reconciliation offers its turn after each change, so that a tick does not wait for a
    hundred of them, and follows each tick at once, so that what it opened does not wait either.
    Delivery of alerts waits for neither. Of a large fleet each portion has ticks of its own, spread
    over the interval: one is looked at while another is decided on.
    """

    def __init__(
        self,
        *,
        evaluator: Evaluator,
        reconciler: Reconciler,
        deliver: Callable[[], object],
        look: Callable[[int], object] = lambda _: None,
        before_tick: Callable[[], object] = lambda: None,
        freshen: Callable[[], object] = lambda: None,
        interval_s: float = 15.0,
        pace_s: float = 1.0,
        portions: Portions = UNDIVIDED,
    ) -> None:
        """Prepare, without starting.

        Args:
            evaluator: Run every `interval_s`.
            reconciler: Run every `pace_s`; cheap while no change is open.
            deliver: Sends the alerts that are due.
            look: Brings in fresh numbers of a portion before the tick over it; may wait a while
                for them, for nothing else waits meanwhile.
            before_tick: Brings in what a tick should see, such as changed rule sets.
            freshen: Reads ahead what a tick would have to wait for; called every `pace_s`.
            interval_s: Seconds between two ticks over a portion.
            pace_s: Seconds between looks at open changes.
            portions: How the fleet is cut.
        """
        self._evaluator = evaluator
        self._reconciler = reconciler
        self._deliver = deliver
        self._look = look
        self._before_tick = before_tick
        self._freshen = freshen
        self._interval_s = interval_s
        self._pace_s = pace_s
        self._turns = Turns()
        self._trouble: dict[str, str] = {}
        self._portions = portions
        self._spread_over = portions.count
        self.beat = Beats(interval_s=interval_s, portions=portions)
        """How regularly ticks begin."""
        self.late_ticks = 0
        """Ticks that were skipped because the one before had not ended."""
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(3 + portions.most)},
            job_defaults={"coalesce": True, "max_instances": 1},
        )
        self._ended = threading.Event()
        self._soon = threading.Event()  # a reconciliation is wanted now, or the end
        self._reconciling = threading.Event()
        self._minder = threading.Thread(target=self._mind, name="clock", daemon=True)
        self._scheduler.add_listener(self._late, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)

    def __enter__(self) -> Self:
        now = datetime.now(UTC)
        self._add("reconcile", self._reconcile, every_s=self._pace_s, at=now)
        self._add("deliver", self._deliver, every_s=self._pace_s, at=now)
        self._add("freshen", self._freshen, every_s=self._pace_s, at=now)
        for portion in range(self._portions.most):
            tick = partial(self._tick, portion)
            at = now + self._offset(portion)
            self._add("tick", tick, every_s=self._interval_s, at=at, job_id=_tick_id(portion))
        self._scheduler.start()
        self._minder.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._soon.set()
        self._minder.join()
        self._scheduler.shutdown(wait=True)

    def _add(
        self,
        name: str,
        job: Callable[[], object],
        *,
        every_s: float,
        at: datetime,
        job_id: str = "",
    ) -> None:
        self._scheduler.add_job(
            partial(self._guarded, name, job),
            "interval",
            id=job_id or name,
            seconds=every_s,
            next_run_time=at,
            misfire_grace_time=max(1, round(every_s)),
        )

    def _offset(self, portion: int) -> timedelta:
        """How long after the first portion's tick a portion's is due."""
        count = self._portions.count
        among = count if portion < count else self._portions.most
        return timedelta(seconds=self._interval_s * portion / among)

    def _spread(self) -> None:
        """Have the ticks of those portions that there are now evenly apart, around the first's."""
        self._spread_over = self._portions.count
        interval, now = timedelta(seconds=self._interval_s), datetime.now(UTC)
        first = self._scheduler.get_job(_tick_id(0)).next_run_time
        for portion in range(1, self._spread_over):
            at = first + self._offset(portion)
            if at - interval > now:
                at -= interval
            self._scheduler.modify_job(_tick_id(portion), next_run_time=at)

    def _guarded(self, name: str, job: Callable[[], object]) -> None:
        """Run a job; a database or fleet that is away is said once, not at every try."""
        try:
            job()
        except (StoreError, FleetError) as error:
            if self._trouble.get(name) != str(error):
                self._trouble[name] = str(error)
                log.warning("%s: %s; trying again", name, error)
        else:
            if self._trouble.pop(name, None) is not None:
                log.info("%s: works again", name)

    def _mind(self) -> None:
        """Have jobs run at other times than they were due.

        What a tick has opened is taken up now; all jobs are run when the clock was set back, for
        they would wait until it has caught up; ticks are spread anew over more or fewer portions.
        In a thread of its own, since a job that touches the scheduler while that shuts down would
        wait for it, and it for the job.
        """
        watch = ClockWatch()
        while True:
            soon = self._soon.wait(self._pace_s)
            if self._ended.is_set():
                return
            if soon:
                if not self._reconciling.is_set():
                    self._scheduler.modify_job("reconcile", next_run_time=datetime.now(UTC))
                # The scheduler skips a run while the one before is ending: until one has begun.
                self._ended.wait(_AGAIN_S)
            if self._portions.count != self._spread_over:
                self._spread()
            back = watch.set_back_s()
            if back:
                log.warning("the clock was set back by %.0f s", back)
                self.run_now()

    def run_now(self) -> None:
        """Have every job begin at once, whenever it was due; portions stay apart."""
        now = datetime.now(UTC)
        due = {_tick_id(p): now + self._offset(p) for p in range(self._portions.most)}
        for job in self._scheduler.get_jobs():
            job.modify(next_run_time=due.get(job.id, now))

    def _tick(self, portion: int) -> None:
        beat = self.beat.of(portion)
        if portion >= self._portions.count:
            beat.rest()
            return
        beat.begin()
        try:
            self._look(portion)
            with self._turns.turn():
                self._before_tick()
                self._evaluator.tick(portion, late=self.beat.pulse().words)
                self._reconciler.numbers_came(portion)
                self._soon.set()
        finally:
            beat.end()

    def _reconcile(self) -> None:
        with self._turns.turn():
            self._soon.clear()
            self._reconciling.set()
            try:
                self._reconciler.run(between=self._offering())
            finally:
                self._reconciling.clear()

    def _offering(self) -> Callable[[], None]:
        """What offers the turn to a tick that waits, now and then."""
        least_s = _KEPT_S if self.beat.pulse().late else 0.0
        had_since = time.monotonic()

        def offer() -> None:
            nonlocal had_since
            if time.monotonic() - had_since >= least_s:
                self._turns.offer()
                had_since = time.monotonic()

        return offer

    def _late(self, event: JobEvent) -> None:
        if event.job_id.startswith(_TICK):
            self.late_ticks += 1
            if self.late_ticks & (self.late_ticks - 1) == 0:  # the 1st, 2nd, 4th, 8th ...
                log.warning(
                    "ticks take longer than %gs; %d skipped so far",
                    self._interval_s,
                    self.late_ticks,
                )
