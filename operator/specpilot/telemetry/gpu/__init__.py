"""What the GPUs of a replica do, from their vendors' exporters.

`vendors` says what each exporter calls a number and `samples` reads one series by it, whether it
came through Prometheus (`query`, `prometheus`) or from the exporter's page (`page`, `direct`);
`combine` makes the numbers of a pod's devices those of the pod, and `record` and `rings` keep them
over time. Nothing here needs a GPU or a vendor's library.
"""

from specpilot.telemetry.fetch import page_url
from specpilot.telemetry.gpu.choice import DeviceChoice
from specpilot.telemetry.gpu.combine import PodDevices, unseen
from specpilot.telemetry.gpu.direct import ExporterTelemetry
from specpilot.telemetry.gpu.prometheus import PrometheusDevices
from specpilot.telemetry.gpu.query import absorb, query, times
from specpilot.telemetry.gpu.record import DeviceRecord

__all__ = [
    "DeviceChoice",
    "DeviceRecord",
    "ExporterTelemetry",
    "PodDevices",
    "PrometheusDevices",
    "absorb",
    "page_url",
    "query",
    "times",
    "unseen",
]
