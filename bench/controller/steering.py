"""The operator as the chart runs it, and what its process takes."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from tests.cluster.ports import free_port
from tests.cluster.processes import Process

ROOT = Path(__file__).parents[2]
_SAMPLE = re.compile(r"^(\w+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the process has taken since its start.

    Attributes:
        at: When, by a clock that only goes on.
        cpu_s: CPU time.
        rss_mb: Memory now.
        peak_mb: The most it was.
        ticks: Evaluations that ended.
        tick_s: Seconds that these took.
        late: Evaluations that were skipped.
        real_s: Seconds between the starts of the last evaluations, as it says itself.
    """

    at: float
    cpu_s: float
    rss_mb: float
    peak_mb: float
    ticks: int
    tick_s: float
    late: int
    real_s: float


class Operator:
    """`specpilot operator` in a process of its own.

    Args:
        directory: For its log.
        name: Of the log and the lease.
        kubeconfig: As whom it asks the API server.
        database: URL.
        prometheus: URL.
        interval_s: Seconds between evaluations.
    """

    def __init__(
        self,
        *,
        directory: Path,
        name: str,
        kubeconfig: Path,
        database: str,
        prometheus: str,
        interval_s: float,
    ) -> None:
        self._port = free_port()
        self.process = Process(
            name=name,
            command=[
                *(sys.executable, "-m", "specpilot", "operator"),
                *("--database", database, "--prometheus-url", prometheus),
                *("--interval", f"{interval_s:g}", "--lease-name", name),
                *("--bind", "127.0.0.1", "--port", str(self._port)),
            ],
            log=directory / f"{name}.log",
            environment={
                **os.environ,
                "KUBECONFIG": str(kubeconfig),
                "PYTHONPATH": os.pathsep.join([str(ROOT / "operator"), str(ROOT)]),
            },
            directory=ROOT,
        )

    def start(self) -> None:
        """Start it and wait until it leads."""
        self.process.start()
        self.process.wait_ready(self._leads, deadline=180)

    def stop(self) -> None:
        self.process.stop(grace=60)

    def _leads(self) -> bool:
        try:
            return self._metrics().get("specpilot_leader") == 1.0
        except httpx.HTTPError:
            return False

    def _metrics(self) -> dict[str, float]:
        page = httpx.get(f"http://127.0.0.1:{self._port}/metrics", timeout=30, trust_env=False)
        return {name: float(value) for name, value in _SAMPLE.findall(page.text)}

    def account(self) -> Account:
        """What it took until now."""
        metrics = self._metrics()
        process = psutil.Process(self.process.pid)
        times, memory = process.cpu_times(), process.memory_info()
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert peak, "the kernel does not say VmHWM"
        return Account(
            at=time.monotonic(),
            cpu_s=times.user + times.system,
            rss_mb=memory.rss / 1e6,
            peak_mb=int(peak[1]) / 1e3,
            ticks=int(metrics.get("specpilot_ticks_total", 0)),
            tick_s=metrics.get("specpilot_tick_seconds_total", 0.0),
            late=int(metrics.get("specpilot_ticks_late_total", 0)),
            real_s=metrics.get("specpilot_tick_interval_seconds", 0.0),
        )
