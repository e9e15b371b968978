"""The command line's cluster ends with its process, however that ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cluster.manifests import container, pod
from tests.cluster.processes import hear_ctrl_c
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.cluster

MARK = "98765.4321"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """``python -m tests.cluster up`` with a pod whose process has a child."""
    directory = tmp_path / "up"
    command = [sys.executable, "-m", "tests.cluster", "up", "--dir", str(directory), "--nodes", "1"]
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=Path(__file__).parents[2],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=hear_ctrl_c,  # noqa: PLW1509 - it only sets how a signal is met
        )
    try:
        wait_for(
            lambda: process.poll() is not None or "Ctrl-C" in (tmp_path / "output").read_text(),
            deadline=180.0,
            describe=(tmp_path / "output").read_text,
        )
        assert process.poll() is None, (tmp_path / "output").read_text()
        state = json.loads((directory / "cluster.json").read_text())
        main = container(command=["sh", "-c", f"sleep {MARK} & sleep {MARK}"])
        kubectl = [f"{state['bin']}/kubectl", "--kubeconfig", state["kubeconfig"]]
        subprocess.run(
            [*kubectl, "create", "-f", "-"],
            input=json.dumps(pod("sleeper", main, restartPolicy="Never")).encode(),
            check=True,
        )
        wait_for(lambda: len(processes(MARK)) >= 3, describe="sh and two sleeps")
        yield process, directory
    finally:
        process.kill()
        process.wait()


def processes(mark: str) -> list[str]:
    """Command lines that contain a text, this process's own excepted."""
    found = []
    for process in psutil.process_iter(["cmdline", "pid"]):
        text = " ".join(process.info["cmdline"] or [])
        if mark in text and process.info["pid"] != os.getpid():
            found.append(text)
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "Ctrl-C"])
def test_nothing_is_left_behind(
    running: tuple[subprocess.Popen[bytes], Path], number: signal.Signals
) -> None:
    process, directory = running
    process.send_signal(number)
    process.wait(60)
    wait_for(
        lambda: not processes(MARK) and not processes(str(directory)),
        describe=lambda: "\n".join([*processes(MARK), *processes(str(directory))]),
    )
