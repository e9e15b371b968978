"""Measurements: what the replicas of a target did in a window, as readings of every signal.

Two sources, Prometheus and a direct scrape, look at replicas again and again and keep what they saw
(`rings`, `history`). Windows of any length are cut out of that (`windows`), and one pure module
turns them into readings (`derive`). `AutoTelemetry` is the port's implementation that chooses
between the sources.
"""

from specpilot.telemetry.answer import answer
from specpilot.telemetry.auto import AutoTelemetry
from specpilot.telemetry.connection import PrometheusServer
from specpilot.telemetry.prometheus import PrometheusTelemetry
from specpilot.telemetry.promql import Labels
from specpilot.telemetry.scrape import ScrapeTelemetry
from specpilot.telemetry.windows import Source

__all__ = [
    "AutoTelemetry",
    "Labels",
    "PrometheusServer",
    "PrometheusTelemetry",
    "ScrapeTelemetry",
    "Source",
    "answer",
]
