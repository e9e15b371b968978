"""Child processes of the test cluster: logs, readiness with an explanation, and an end.

Every child dies with this process, even when it is killed with SIGKILL (see :mod:`lifeline`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cluster import lifeline
from tests.cluster.waiting import NotInTimeError, wait_for

# The kernel kills a child when the *thread* that started it ends. One thread that lives as long as
# the process starts them all, so that a caller's thread may end whenever it likes.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cluster-processes")


def hear_ctrl_c() -> None:
    """For `preexec_fn`: a shell makes what it starts in the background deaf to Ctrl-C.

    Tests that run there would hand that on to the process they want to interrupt.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class ProcessError(RuntimeError):
    """A program ended or did not become ready; the message holds the end of its log."""


class Process:
    """One program with a log file, startable again with the same arguments after a stop.

    Args:
        name: used in messages and for the log's file name.
        command: the program and its arguments.
        log: where standard output and error go, appended to over restarts.
        environment: the whole environment; None inherits.
        directory: the working directory; None inherits.
    """

    def __init__(
        self,
        *,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._command = [str(part) for part in command]
        self._environment = environment
        self._directory = directory
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        assert self._child, f"{self.name} was not started"
        return self._child.pid

    def start(self) -> None:
        assert not self.running, f"{self.name} runs already"
        self._child = _starter.submit(self._spawn).result()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", lifeline.__file__, str(os.getpid()), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._directory,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which stops in order
            )

    def wait_ready(self, condition: Callable[[], bool], *, deadline: float) -> None:
        """Wait until ``condition`` holds.

        Raises:
            ProcessError: the program ended, or the deadline (seconds) passed.
        """

        def ready_or_dead() -> bool:
            return not self.running or condition()

        try:
            wait_for(ready_or_dead, deadline=deadline, every=0.05)
        except NotInTimeError:
            message = f"{self.name} was not ready within {deadline:g} s"
        else:
            if self.running:
                return
            assert self._child
            message = f"{self.name} ended with {self._child.returncode} while starting"
        raise ProcessError(f"{message}\n{self.tail()}")

    def stop(self, *, grace: float = 5.0) -> None:
        """End it politely, by force after ``grace`` seconds; stopping twice does no harm."""
        if self._child is None:
            return
        if self._child.poll() is None:
            self._child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(grace)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, as a crash or the out-of-memory killer would do it."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    def tail(self, *, lines: int = 30) -> str:
        """The end of the log, under a heading that says where the rest is."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join([f"--- end of {self.log}", *text.splitlines()[-lines:], "---"])
