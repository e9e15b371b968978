"""One server process under its shim: start, look, stop. Knows no policy."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil

from specpilot.domain.settings import Declared
from specpilot.fleets.local import shim

OWNER = "SPECPILOT_OWNER"
"""Variable by which all processes of a slot can be found, whoever their parent is by now."""

_TAIL = 1 << 13
_LINE = 300
_SIGNALLED = 128
_SHIM_MARGIN = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """All that is needed to start one server.

    Attributes:
        argv: The words to execute.
        env: The complete environment.
        cwd: Working directory.
        log: Log file.
        log_bytes: Size at which it is rotated.
        log_files: Files kept.
        grace: Seconds between SIGTERM and SIGKILL.
        owner: Value of the `SPECPILOT_OWNER` variable.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    log_bytes: int
    log_files: int
    grace: float
    owner: str


class ServerProcess:
    """A running server. All calls return at once."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        launch.log.parent.mkdir(parents=True, exist_ok=True)
        self._shim = subprocess.Popen(
            [
                sys.executable,
                "-I",  # the server's environment must not decide what the shim imports
                shim.__file__,
                *("--grace", str(launch.grace)),
                *("--log", str(launch.log.absolute())),
                *("--log-bytes", str(launch.log_bytes)),
                *("--log-files", str(launch.log_files)),
                "--",
                *launch.argv,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C at the terminal is the supervisor's, which drains
            env={**launch.env, OWNER: launch.owner},
            cwd=launch.cwd,
        )

    def exit_code(self) -> int | None:
        """Exit code as of a shell, None while the server or any descendant of it lives."""
        code = self._shim.poll()
        if code is None:
            return None
        self.stop()
        assert self._shim.stdout is not None
        if not self._shim.stdout.closed:
            session = self._shim.stdout.read()
            self._shim.stdout.close()
            if code < 0:  # the shim was killed: what it guarded has to be cleared up for it
                kill_owned(self._launch.owner)
                if session:
                    _kill_session(int(session))
        return code if code >= 0 else _SIGNALLED - code

    def stop(self) -> None:
        """Have it stopped, with grace. Cannot be taken back."""
        assert self._shim.stdin is not None
        self._shim.stdin.close()

    def kill(self) -> None:
        """End it at once, for a shim that does not do its duty."""
        self.stop()
        self._shim.kill()

    @property
    def patience(self) -> float:
        """Seconds within which a stopped server must have gone."""
        return self._launch.grace + _SHIM_MARGIN

    def last_line(self) -> str:
        """Return the last line the server wrote, "" when it wrote none."""
        return last_line(self._launch.log)


def server_words(argv: Sequence[str]) -> tuple[str, ...]:
    """The words that start a server, of its own command line or of its guard's."""
    if shim.__file__ in argv and "--" in argv:
        return tuple(argv[argv.index("--") + 1 :])
    return tuple(argv)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a process was started with; the record that `observe` reports from."""

    declared: Declared
    host: str
    port: int
    instance: str
    at: datetime

    @property
    def endpoint(self) -> str:
        """Base URL of the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def owned(owner: str) -> Iterator[psutil.Process]:
    """Processes whose owner begins with this text, this process excepted."""
    for process in psutil.process_iter():
        try:
            value = process.environ().get(OWNER, "")
        except (psutil.Error, OSError):
            continue  # gone, another user's, or a zombie
        if value.startswith(owner) and process.pid != os.getpid():
            yield process


def kill_owned(owner: str) -> None:
    """Kill all processes of an owner."""
    for process in owned(owner):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _kill_session(session: int) -> None:
    """Kill what the environment does not give away: a process may overwrite its own."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)


def last_line(log: Path) -> str:
    """Return the last line of the most recent start in a log, without our own lines."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        if line.startswith(shim.MARK):
            if " started as process " in line:
                return ""
            if " cannot run " in line:
                return line.removeprefix(shim.MARK).strip()
            continue
        if text := "".join(c for c in line if c.isprintable()).strip():
            return text[:_LINE]
    return ""
