"""The recent past of every replica's devices, shared by all sources of GPU signals.

As for the engines' numbers, a source adds what it saw, or why it saw nothing, and windows are cut
out of memory.
"""

from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import Replica
from specpilot.telemetry.gpu.combine import PodDevices
from specpilot.telemetry.gpu.record import DeviceRecord
from specpilot.telemetry.rings import Rings
from specpilot.telemetry.windows import Fault

STALE_FLOOR_S = 120.0
"""Samples younger than this are never stale: exporters measure every 1 to 30 s, and what scrapes
them comes by every 15 to 60 s."""

KEEP_S = 1800.0
"""How far back windows can reach."""

UNDATED = Fault(
    reason=UnknownReason.NO_DATA,
    words="its devices are known, but not when they were measured: there is no `up` series with "
    "the exporter's job and instance; keep both labels, and `up`",
)


class DeviceRings(Rings):
    """Records of devices by replica, for one source; arguments as for `Rings`."""

    def see(self, key: str, devices: PodDevices) -> None:
        """Add a look at a replica's devices; a second one at the same moment is no news."""
        if devices.at is None:
            self.fail([key], UNDATED)
            return
        with self._lock:
            record = self._histories.get(key)
            if not isinstance(record, DeviceRecord):
                record = self._histories[key] = DeviceRecord(keep_s=self.keep_s)
            record.keep_s = self.keep_s
            record.add_devices(devices.at, devices)
            self._faults.pop(key, None)

    def latest(self, key: str) -> PodDevices | None:
        """What was seen of a replica's devices last, with what the numbers cover."""
        with self._lock:
            record = self._histories.get(key)
            return record.latest if isinstance(record, DeviceRecord) else None

    def _unseen(self, key: str, replica: Replica) -> str:  # noqa: ARG002 - devices need no address
        if key not in self._replicas:
            return "is not tracked"
        return "its devices were not looked at in the window; wait for the next round"
