"""GPU signals from the Prometheus that scrapes the exporters: two queries a round for all of them.

A round looks at the devices of all tracked replicas as they stand (`query`), and records keep what
rounds saw (`rings`). Exporters measure in intervals of their own, so nothing is gained by asking
for the past between two rounds.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from specpilot.domain.ports import Ask, Clock
from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import Replica
from specpilot.telemetry.background import Background
from specpilot.telemetry.connection import (
    Connection,
    FaultKind,
    PrometheusError,
    PrometheusServer,
)
from specpilot.telemetry.gpu.combine import PodDevices, unseen
from specpilot.telemetry.gpu.query import absorb, query, times
from specpilot.telemetry.gpu.rings import KEEP_S, STALE_FLOOR_S, DeviceRings
from specpilot.telemetry.gpu.samples import Owner
from specpilot.telemetry.promql import Labels
from specpilot.telemetry.promwire import Answer
from specpilot.telemetry.windows import Arm, Fault

log = logging.getLogger(__name__)

SOURCE = "Prometheus"

IDLE_S = 600.0
"""Nobody who evaluates rules goes without a question for so long."""


class PrometheusDevices(Background):
    """Looks at the devices of all tracked replicas through Prometheus.

    Args:
        server: How to reach it.
        clock: Dates the rounds; with a clock of the past they look at the past.
        matchers: More matchers for the exporters' series, as PromQL (`cluster="a"`).
        interval_s: Seconds between rounds. Shorter than the scrape interval brings nothing.
        settle_s: How far behind the clock a round looks. Prometheus shows a scrape whole or not at
            all, so that nothing is gained by waiting, but for who compares with a later look.
        deadline_s: Longest time for one round; None means the interval, at least 10 s.
        keep_s: How far back windows can reach at least; longer ones are kept once asked for.
        stale_floor_s: Samples younger than this are never stale; beyond it, 3 intervals are.
        idle_s: Seconds after the last question in which background rounds go on.
    """

    def __init__(
        self,
        *,
        server: PrometheusServer,
        clock: Clock,
        matchers: str = "",
        interval_s: float = 15.0,
        settle_s: float = 0.0,
        deadline_s: float | None = None,
        keep_s: float = KEEP_S,
        stale_floor_s: float = STALE_FLOOR_S,
        idle_s: float = IDLE_S,
    ) -> None:
        if interval_s <= 0:
            raise ValueError(f"Prometheus interval {interval_s} s: must be above 0")
        self._clock = clock
        self._labels = Labels(matchers=matchers)
        self._interval_s = interval_s
        self._settle_s = settle_s
        self._deadline_s = max(10.0, interval_s) if deadline_s is None else deadline_s
        super().__init__(name="prometheus gpu", interval_s=interval_s, patience_s=self._deadline_s)
        self._idle_s = idle_s
        self._address = server.address
        self._connection = Connection(server)
        self._rings = DeviceRings(
            clock=clock,
            source=SOURCE,
            interval_s=interval_s,
            keep_s=keep_s,
            stale_floor_s=stale_floor_s,
        )
        self._asked = threading.Lock()  # guards the next one and the length of the rings
        self._asked_at: float | None = None

    def close(self) -> None:
        """Stop looking and close the connections; what was seen stays readable."""
        super().close()
        self._connection.close()

    def _needed(self) -> bool:
        """Whether anybody has asked for a GPU signal lately.

        Every Prometheus is asked whether there are exporters, and most rules name no such signal:
        the two queries are saved.
        """
        with self._asked:
            asked_at = self._asked_at
        return asked_at is not None and time.monotonic() - asked_at < self._idle_s

    # --- questions

    def track(self, replicas: Sequence[Replica]) -> None:
        """Replace the list of replicas whose devices are of interest."""
        self._rings.track(replicas)

    @property
    def lag_s(self) -> float:
        """Seconds after a moment in which its numbers come in."""
        return self._interval_s + self._settle_s

    def windows(self, asks: Sequence[Ask], *, deadline_s: float) -> Mapping[str, Arm]:  # noqa: ARG002 - memory answers at once
        """Answer from what was seen; the first question after a while begins a round at once."""
        if asks:
            sleeping = not self._needed()
            longest = max((ask.end - ask.start).total_seconds() for ask in asks)
            with self._asked:
                self._asked_at = time.monotonic()
                needed = longest + 4 * self._interval_s
                self._rings.keep_s = max(self._rings.keep_s, needed)
            if sleeping:
                self._wake.set()
        return self._rings.arms(asks)

    def latest(self, replica: Replica) -> PodDevices | None:
        """What the newest round said of a replica's devices, with what its numbers cover."""
        return self._rings.latest(replica.key)

    # --- rounds

    def sample(self) -> None:
        """Look once, now. What fails is noted as the reason for what is missing."""
        replicas = self._rings.tracked()
        if not replicas:
            return
        found = self._look({replica.namespace for replica in replicas.values()})
        if isinstance(found, Fault):
            self._rings.fail(replicas, found)
            return
        for key, replica in replicas.items():
            if (devices := found.get((replica.namespace, replica.id))) is not None:
                self._rings.see(key, devices)
            else:
                self._rings.fail([key], unseen())

    def _look(self, namespaces: set[str]) -> Mapping[Owner, PodDevices] | Fault:
        at = round(self._clock.now().timestamp() - self._settle_s, 3)
        until = time.monotonic() + self._deadline_s
        try:
            numbers = self._query(query(namespaces, self._labels), at, until)
            moments = self._query(times(namespaces, self._labels), at, until)
            return absorb(numbers, moments)
        except PrometheusError as error:
            late = f"{self._address} did not answer within {self._deadline_s:g} s"
            words = late if error.kind is FaultKind.LATE else str(error)
        except Answer as error:
            words = f"{self._address} {error}"
        except Exception as error:
            log.exception("asking Prometheus about GPUs failed")
            words = f"asking {self._address} failed: {type(error).__name__}"
        return Fault(reason=UnknownReason.SOURCE_ERROR, words=words)

    def _query(self, text: str, at: float, until: float) -> bytes:
        return self._connection.query(text, at=at, timeout_s=until - time.monotonic())
