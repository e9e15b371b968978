"""The devices of one replica over time: a history of their gauges, and the reasons for its holes.

Where an engine's gauge is absent the engine is idle; where a device's is absent nobody measured.
A history that took the latter for 0 would make half a utilisation of a profiler that paused.
"""

import math
from dataclasses import replace

from specpilot.telemetry.exposition import Page
from specpilot.telemetry.gpu.combine import PodDevices
from specpilot.telemetry.history import History
from specpilot.telemetry.names import DeviceGauge
from specpilot.telemetry.windows import Fault, ReplicaWindow


class DeviceRecord(History):
    """What is kept of one replica's devices, whichever way it came.

    Args:
        keep_s: Seconds that samples are kept.
    """

    def __init__(self, *, keep_s: float) -> None:
        super().__init__(keep_s)
        self.latest = PodDevices()
        """What was added last, with what its numbers cover."""
        self._seen: set[DeviceGauge] = set()
        self._holes: dict[str, Fault] = {}

    def add_devices(self, at: float, devices: PodDevices) -> None:
        """Append what was true at `at`, seconds since the epoch; the same moment counts once."""
        covers = self.covers
        if covers is not None and covers[1] == at:
            return
        self.latest = devices
        gauges: dict[str, float] = {}
        for gauge in DeviceGauge:
            if (value := devices.gauges.get(gauge)) is not None:
                self._seen.add(gauge)
                gauges[gauge] = value
            elif gauge in self._seen:
                # A history takes an absent gauge for 0, and refuses NaN in any window it touches.
                gauges[gauge] = math.nan
                self._holes[gauge] = devices.faults[gauge]
        self.add(at, Page(gauges=gauges, engine=True))

    def window(
        self,
        start: float,
        end: float,
        *,
        replica: str,
        interval_s: float,
        declared_on: bool,
        not_before: float = -math.inf,
    ) -> ReplicaWindow | None:
        """As `History.window`, with the exporters' own reasons and remarks."""
        window = super().window(
            start,
            end,
            replica=replica,
            interval_s=interval_s,
            declared_on=declared_on,
            not_before=not_before,
        )
        if window is None:
            return None
        faults = {name: self._holes.get(name, fault) for name, fault in window.faults.items()}
        faults.update((gauge, fault) for gauge, fault in self.latest.faults.items())
        gauges = {name: value for name, value in window.gauges.items() if name not in faults}
        notes = {str(name): note for name, note in self.latest.notes.items() if name in gauges}
        return replace(window, gauges=gauges, faults=faults, notes=notes)
