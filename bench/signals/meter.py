"""A clock that is set, a meter of time, and the most memory this process had."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self


@dataclass
class Clock:
    """Stands where it was put."""

    at: datetime

    def now(self) -> datetime:
        return self.at


class Meter:
    """Measures what the work of a `with` block takes of this process."""

    cpu_s: float
    wall_s: float

    def __enter__(self) -> Self:
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        self.cpu_s = time.process_time() - self._cpu
        self.wall_s = time.perf_counter() - self._wall


def peak_mb() -> float:
    """Most memory that this process had resident.

    Not `ru_maxrss`, which a process inherits from the one that started it.
    """
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "the kernel does not say VmHWM"
    return int(found[1]) / 1e3
