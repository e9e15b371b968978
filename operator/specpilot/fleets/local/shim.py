"""Stand between the supervisor and one server, so that no server outlives the supervisor.

The supervisor holds the write end of a pipe that is this program's standard input. When the pipe
closes, on purpose or because the supervisor died in whatever way (`kill -9` included), the server
is stopped: SIGTERM, some grace, then SIGKILL for every descendant, also for those that left the
process group or lost their parent (this program is their subreaper, on Linux).

It is run as a file, in isolated mode, and imports nothing of the package: it starts fast, stays
small, and takes the server's environment as it is, whatever that does to Python.

It writes the server's process id, which is also its session's, to its standard output.

Exit code: that of the server, 128 + N when signal N ended it, 126 or 127 when it could not be run.
"""

import argparse
import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import IO

import psutil

MARK = "[specpilot]"
"""Begins each line in a log that is not the server's."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LEFTOVERS_GRACE = 5.0  # for descendants of a server that ended by itself
_CHUNK = 1 << 16


class RotatingFile:
    """An append-only file, bounded: `x.log`, before that `x.log.1`, `x.log.2` ..."""

    def __init__(self, path: Path, *, limit: int, files: int) -> None:
        self._path = path
        self._limit = limit
        self._files = files
        self._file: IO[bytes] | None = None

    def write(self, data: bytes) -> None:
        """Append; a full disk loses log lines and must not take the server with it."""
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = self._path.open("ab", buffering=0)
            if self._file.tell() + len(data) > self._limit and self._file.tell() > 0:
                self._rotate()
            self._file.write(data)

    def note(self, text: str) -> None:
        """Append a line of our own."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self.write(f"{MARK} {at} {text}\n".encode())

    def _rotate(self) -> None:
        assert self._file is not None
        self._file.close()
        for n in range(self._files - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{n}")
            newer = self._path.with_name(f"{self._path.name}.{n - 1}") if n > 1 else self._path
            if newer.exists():
                newer.replace(older)
        self._file = self._path.open("wb" if self._files == 1 else "ab", buffering=0)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _before_exec() -> None:
    # Should this program be killed itself, at least the server's main process goes with it.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Shim:
    """Runs one server from start to last descendant."""

    def __init__(self, argv: Sequence[str], *, grace: float, log: RotatingFile) -> None:
        self._argv = argv
        self._grace = grace
        self._log = log
        self._stop_asked = False
        self._kill_at: float | None = None
        self._status: int | None = None

    def run(self) -> int:
        """Start the server; return its exit code when it and all its descendants are gone."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(wake_read, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        # A handler, not SIG_IGN: what is ignored here would be ignored in the server as well.
        signal.signal(signal.SIGCHLD, _nothing)
        signal.signal(signal.SIGHUP, _nothing)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGTERM, self._on_stop)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)

        out_read, out_write = os.pipe()
        os.set_blocking(out_read, False)
        try:
            server = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=out_write,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_before_exec,  # noqa: PLW1509 - single-threaded
            )
        except OSError as error:
            self._log.note(f"cannot run {self._argv[0]!r}: {error.strerror}")
            return 127 if isinstance(error, FileNotFoundError) else 126
        os.close(out_write)
        self._log.note(f"started as process {server.pid}")
        os.write(1, b"%d" % server.pid)
        os.close(1)

        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ, "supervisor")
            selector.register(out_read, selectors.EVENT_READ, "output")
            selector.register(wake_read, selectors.EVENT_READ, "signal")
            while True:
                for key, _ in selector.select(timeout=self._patience()):
                    match key.data:
                        case "output":
                            if not self._copy(out_read):
                                selector.unregister(out_read)
                        case "supervisor":
                            if not os.read(0, _CHUNK):
                                selector.unregister(0)
                                self._stop_asked = True
                        case _:
                            os.read(wake_read, _CHUNK)
                self._reap(server.pid)
                if self._stop_asked and self._kill_at is None and self._status is None:
                    self._begin_stop(server.pid)
                if self._status is not None and not self._clear_leftovers():
                    break
                if self._kill_at is not None and time.monotonic() >= self._kill_at:
                    _signal_all(signal.SIGKILL)
        while self._copy(out_read):
            pass
        code = _exit_code(self._status)
        self._log.note(f"exited with {code}")
        return code

    def _on_stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._stop_asked = True

    def _patience(self) -> float | None:
        """While something is being ended, look often; else wait for an event."""
        return 0.05 if self._kill_at is not None or self._status is not None else None

    def _begin_stop(self, pid: int) -> None:
        # The leader only: it knows in which order its own processes have to go.
        self._kill_at = time.monotonic() + self._grace
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    def _reap(self, server: int) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == server:
                self._status = status
                # A server that ended with processes left behind: they hold its memory.
                _signal_all(signal.SIGTERM)
                if self._kill_at is None:
                    self._kill_at = time.monotonic() + min(self._grace, _LEFTOVERS_GRACE)

    def _clear_leftovers(self) -> bool:
        """Whether descendants are still there."""
        return bool(psutil.Process().children(recursive=True))

    def _copy(self, source: int) -> bool:
        """Copy what there is of the server's output; False when there is no more."""
        try:
            data = os.read(source, _CHUNK)
        except BlockingIOError:
            return self._status is None
        if data:
            self._log.write(data)
        return bool(data)


def _nothing(_signal: int, _frame: FrameType | None) -> None:
    """Let the signal wake the main loop."""


def _signal_all(number: signal.Signals) -> None:
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _exit_code(status: int | None) -> int:
    assert status is not None
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def main(words: Sequence[str] | None = None) -> int:
    """Run a server as told by the command line."""
    parser = argparse.ArgumentParser(prog="shim", description="Run one supervised server.")
    parser.add_argument("--grace", type=float, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--log-bytes", type=int, required=True)
    parser.add_argument("--log-files", type=int, required=True)
    parser.add_argument("argv", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    log = RotatingFile(given.log, limit=given.log_bytes, files=given.log_files)
    argv = given.argv[1:] if given.argv[:1] == ["--"] else given.argv
    return Shim(argv, grace=given.grace, log=log).run()


if __name__ == "__main__":
    sys.exit(main())
