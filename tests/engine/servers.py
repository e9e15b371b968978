"""Start the real engine or the simulator, and end them without leaving a process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import httpx
import psutil

from scripts.engine import install
from tests.cluster.ports import free_port

MODEL_NAME = "served"
CONTEXT = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One of the two things that the contract is checked against.

    Attributes:
        name: ``engine`` or ``simulator``.
        serve: The command up to and including ``serve MODEL``.
        draft: Path of a draft model that it can load.
        arguments: What it needs beside the arguments under test.
        environment: Added to the environment of the tests.
        patience: Seconds within which it starts or refuses, on a busy machine.
    """

    name: str
    serve: tuple[str, ...]
    draft: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    patience: float = 30.0


COMMON = ("--served-model-name", MODEL_NAME, "--max-model-len", str(CONTEXT), "--max-num-seqs=64")


def real_engine(directory: Path) -> Subject:
    """Return the engine installed in ``directory``, with its smallest model."""
    return Subject(
        name="engine",
        serve=(str(install.executable(directory)), "serve", str(install.model(directory, "tiny"))),
        draft=str(install.model(directory, "mid-draft")),
        arguments=(*COMMON, "--dtype=float32", "--enforce-eager", "--num-gpu-blocks-override=256"),
        patience=900.0,
    )


def simulator() -> Subject:
    """Return the simulator, standing in for the same release and the same small model."""
    return Subject(
        name="simulator",
        serve=(sys.executable, "-m", "specpilot.sim", "serve", "tiny"),
        draft="tiny-draft",
        arguments=(*COMMON, f"--sim-version={install.VERSION}"),
    )


class Server:
    """A server process and its children, in a process group of their own."""

    def __init__(
        self, subject: Subject, arguments: Sequence[str], *, log: Path, core: int = 0
    ) -> None:
        self.subject = subject
        self.log = log
        self.port = free_port()
        command = [*subject.serve, f"--port={self.port}", "--host=127.0.0.1"]
        with log.open("w") as stream:
            self.process = subprocess.Popen(
                [*command, *subject.arguments, *arguments],
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=os.environ | subject.environment | {"VLLM_CPU_OMP_THREADS_BIND": str(core)},
                start_new_session=True,
            )
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        remaining = self.members()
        for process in remaining:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(10)
        psutil.wait_procs(remaining, timeout=10)
        assert not self.members(), "processes survived being killed"

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(errors="replace")

    def members(self) -> list[psutil.Process]:
        """Return the processes of its group that are still there."""
        found = []
        for process in psutil.process_iter():
            try:
                same = os.getpgid(process.pid) == self.process.pid
                if same and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found

    def terminate(self) -> None:
        """Ask its leading process to end, as a kubelet does."""
        self.process.send_signal(signal.SIGTERM)

    def settle(self) -> int | None:
        """Wait until it serves or has exited; return None or its exit code."""
        for _ in deadline(self.subject.patience, self.describe):
            code = self.process.poll()
            if code is not None:
                return code
            if self.answers():
                return None
        raise AssertionError  # the deadline raises

    def ready(self) -> Self:
        """Wait until it serves."""
        code = self.settle()
        assert code is None, f"exit code {code}: {self.describe()}"
        return self

    def answers(self) -> bool:
        """Tell whether ``/health`` is 200; False also when nothing listens."""
        try:
            return self.client.get("/health", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def wait_exit(self, *, within: float) -> int:
        """Wait until its leading process has ended; return the exit code."""
        for _ in deadline(within, self.describe):
            code = self.process.poll()
            if code is not None:
                return code
        raise AssertionError  # the deadline raises

    def describe(self) -> str:
        """Return what a failed test should show."""
        return f"{self.subject.name} {self.process.args!r}\n...{self.output[-3000:]}"


def deadline(seconds: float, describe: object = "") -> Iterator[None]:
    """Yield ten times a second; fail with the description once the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.1)
    text = describe() if callable(describe) else describe
    raise AssertionError(f"not within {seconds:.0f} s: {text}")


@contextmanager
def started(
    subject: Subject, *command_lines: Sequence[str], folder: Path
) -> Iterator[tuple[Server, ...]]:
    """Start one server for each command line, all at once, on a core each."""
    with ExitStack() as stack:
        servers = []
        for index, arguments in enumerate(command_lines):
            log = folder / f"{subject.name}-{index}.log"
            core = index % (os.cpu_count() or 1)
            servers.append(stack.enter_context(Server(subject, arguments, log=log, core=core)))
        yield tuple(servers)
