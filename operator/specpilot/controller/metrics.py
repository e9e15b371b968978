"""The operator's own metrics, computed when they are scraped."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from specpilot.controller.beat import Pulse
from specpilot.controller.runner import Runner
from specpilot.store import Store


class OperatorMetrics(Collector):
    """Reads the store and the runner at each scrape; nothing to keep in step.

    Args:
        store: The database.
        runner: The loop, None while this process does not lead.
    """

    def __init__(self, *, store: Store, runner: Callable[[], Runner | None]) -> None:
        self._store = store
        self._runner = runner

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        runner = self._runner()
        yield GaugeMetricFamily(
            "specpilot_leader", "1 on the process that steers.", value=float(runner is not None)
        )
        yield CounterMetricFamily(
            "specpilot_ticks_late",
            "Ticks skipped because the one before had not ended.",
            value=runner.late_ticks if runner is not None else 0,
        )
        if runner is not None:
            yield from _beat(runner.beat.pulse())
        with self._store.read() as unit:
            open_changes = unit.changes.open()
            outbox = unit.outbox.counts()
        changes = GaugeMetricFamily(
            "specpilot_flag_changes_open", "Flag changes that have not ended.", labels=["phase"]
        )
        phases = [str(c.phase) for c in open_changes]
        for phase in sorted(set(phases)):
            changes.add_metric([phase], phases.count(phase))
        yield changes
        alerts = GaugeMetricFamily("specpilot_alerts", "Alerts in the outbox.", labels=["state"])
        for state, count in sorted(outbox.items()):
            alerts.add_metric([str(state)], count)
        yield alerts


def _beat(pulse: Pulse) -> Iterator[Metric]:
    """Only of the process that ticks: a standby's would be zeros, which mean something else."""
    yield CounterMetricFamily("specpilot_ticks", "Evaluations that ended.", value=pulse.ended)
    yield CounterMetricFamily(
        "specpilot_tick_seconds", "Time that evaluations took.", value=pulse.busy_s
    )
    yield GaugeMetricFamily(
        "specpilot_tick_interval_wanted_seconds",
        "Time between evaluations as configured.",
        value=pulse.interval_s,
    )
    if pulse.real_s is not None:
        yield GaugeMetricFamily(
            "specpilot_tick_interval_seconds",
            "Mean time between the starts of the last evaluations.",
            value=pulse.real_s,
        )
    if pulse.age_s is not None:
        yield GaugeMetricFamily(
            "specpilot_tick_age_seconds",
            "Time since the last evaluation began.",
            value=pulse.age_s,
        )


def registry(*, store: Store, runner: Callable[[], Runner | None]) -> CollectorRegistry:
    """Make a registry with the operator's metrics."""
    found = CollectorRegistry()
    found.register(OperatorMetrics(store=store, runner=runner))
    return found
