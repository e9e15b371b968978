"""Measurements: what the replicas of a target did in a window, as readings of every signal.

Two sources, Prometheus and a direct scrape, translate what they know into one form (`windows`);
one pure module turns that into readings (`derive`). `AutoTelemetry` is the port's implementation
that chooses between them.
"""

from specpilot.telemetry.auto import AutoTelemetry
from specpilot.telemetry.prometheus import PrometheusTelemetry
from specpilot.telemetry.promql import Labels
from specpilot.telemetry.scrape import ScrapeTelemetry

__all__ = ["AutoTelemetry", "Labels", "PrometheusTelemetry", "ScrapeTelemetry"]
