"""GPU signals where both a Prometheus and exporters are given."""

from collections.abc import Mapping, Sequence

from specpilot.domain.ports import Ask
from specpilot.domain.targets import Replica
from specpilot.telemetry.background import look_at_all
from specpilot.telemetry.choice import ask_source, prefer
from specpilot.telemetry.gpu.direct import SOURCE as EXPORTERS
from specpilot.telemetry.gpu.prometheus import SOURCE as PROMETHEUS
from specpilot.telemetry.windows import Arm, Source


class DeviceChoice:
    """Prometheus, and the exporters themselves where it knows nothing.

    A policy's choice of a source is one for its engines and does not count here.

    Args:
        prometheus: Asked first.
        exporters: Asked for the rest.
    """

    def __init__(self, *, prometheus: Source, exporters: Source) -> None:
        self._prometheus = prometheus
        self._exporters = exporters

    @property
    def lag_s(self) -> float:
        """Seconds after a moment in which its numbers come in."""
        return max(self._prometheus.lag_s, self._exporters.lag_s)

    def track(self, replicas: Sequence[Replica]) -> None:
        """Pass the list on to both."""
        for source in (self._prometheus, self._exporters):
            source.track(replicas)

    def look(self, *, timeout_s: float, portion: int = 0) -> bool:
        """Have both look now; see `Background.look`."""
        sources = (self._prometheus, self._exporters)
        return look_at_all(sources, timeout_s=timeout_s, portion=portion)

    def windows(self, asks: Sequence[Ask], *, deadline_s: float) -> Mapping[str, Arm]:
        """Ask both and take what Prometheus knows."""
        return prefer(
            asks,
            ask_source(self._prometheus, PROMETHEUS, asks, deadline_s=deadline_s),
            ask_source(self._exporters, EXPORTERS, asks, deadline_s=deadline_s),
        )
