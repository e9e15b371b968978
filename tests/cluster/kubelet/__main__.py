"""``python -m tests.cluster.kubelet OPTIONS.json``: run until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.cluster.kubelet import sandbox
from tests.cluster.kubelet.kubelet import Kubelet
from tests.cluster.kubelet.options import KubeletOptions

_log = logging.getLogger(__name__)


async def _run(options: KubeletOptions) -> None:
    task = asyncio.create_task(Kubelet(options).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    print("kubelet: running", flush=True)  # noqa: T201 - the sign of readiness
    # The containers end with this process: each asked the kernel for it.
    await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled() and (error := task.exception()):
        raise error


def main() -> None:
    """Start with the options in the file named by the only argument."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    options = KubeletOptions.load(Path(sys.argv[1]))
    isolate = options.isolate and _namespaces_work()
    _log.info("containers get namespaces of their own: %s", "yes" if isolate else "no")
    asyncio.run(_run(replace(options, isolate=isolate)))


def _namespaces_work() -> bool:
    command = [sys.executable, "-I", "-S", sandbox.__file__, "check"]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    main()
