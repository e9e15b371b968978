"""The process of a container: exit codes, signals, volumes in place, an untouched machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.kubelet import sandbox
from tests.cluster.waiting import wait_for

SHELL_READY = "trap 'echo caught; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


def start(
    tmp_path: Path, command: Sequence[str], *, isolate: bool, mounts: Sequence[dict[str, Any]] = ()
) -> subprocess.Popen[str]:
    (tmp_path / "root").mkdir(exist_ok=True)
    spec = {
        "parent": os.getpid(),
        "isolate": isolate,
        "startError": str(tmp_path / "start-error"),
        "pid": str(tmp_path / "pid"),
        "root": str(tmp_path / "root"),
        "hostname": "pod-1",
        "directory": "",
        "kubeconfig": "/some/kubeconfig",
        "environment": {"PATH": os.environ["PATH"], "MARK": str(tmp_path)},
        "command": list(command),
        "mounts": list(mounts),
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    return subprocess.Popen(
        [sys.executable, "-I", "-S", sandbox.__file__, "run", str(tmp_path / "spec.json")],
        stdout=subprocess.PIPE,
        text=True,
    )


def namespaces_work() -> bool:
    """Whether this machine lets us have namespaces."""
    command = [sys.executable, "-I", "-S", sandbox.__file__, "check"]
    return subprocess.run(command, check=False).returncode == 0


@pytest.fixture(params=[True, False], ids=["isolated", "plain"])
def isolate(request: pytest.FixtureRequest) -> bool:
    if request.param and not namespaces_work():
        pytest.skip("the kernel gives no namespaces to this user")
    return bool(request.param)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)],
    ids=["success", "its own code", "128 + signal"],
)
def test_exit_codes(tmp_path: Path, script: str, code: int) -> None:
    # Not isolated: a first process of a PID namespace is immune to its own SIGKILL.
    with start(tmp_path, ["sh", "-c", script], isolate=False) as process:
        assert process.wait(10) == code


def test_a_command_that_does_not_exist(tmp_path: Path, isolate: bool) -> None:
    with start(tmp_path, ["no-such-program"], isolate=isolate) as process:
        assert process.wait(10) == sandbox.EXIT_NOT_STARTED
    assert "no-such-program" in (tmp_path / "start-error").read_text()


def test_sigterm_is_passed_on(tmp_path: Path, isolate: bool) -> None:
    with start(tmp_path, ["sh", "-c", SHELL_READY], isolate=isolate) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.read() == "caught\n"
        assert process.wait(10) == 0


def test_sigkill_ends_the_children_too(tmp_path: Path) -> None:
    if not namespaces_work():
        pytest.skip("the kernel gives no namespaces to this user")
    script = "sleep 1000 & sleep 1000 & echo ready; wait"
    with start(tmp_path, ["sh", "-c", script], isolate=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) == 3
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    wait_for(
        lambda: not any(one.is_running() for one in family), describe=lambda: f"gone: {family}"
    )


def test_volumes_are_in_place_and_the_machine_is_untouched(tmp_path: Path) -> None:
    if not namespaces_work():
        pytest.skip("the kernel gives no namespaces to this user")
    volume, outer = tmp_path / "volume", tmp_path / "outer"
    volume.mkdir()
    outer.mkdir()
    (volume / "file").write_text("content\n")
    places = ["/var/run/secrets/kubernetes.io/serviceaccount", "/no-such-directory/at/all"]
    mounts = [
        {"source": str(volume), "target": places[0], "readOnly": True},
        {"source": str(volume), "target": places[1], "readOnly": False},
        {
            "source": str(volume / "file"),
            "target": "/usr/share/some-product/file",
            "readOnly": True,
        },
        {"source": str(outer), "target": "/tmp", "readOnly": False},
        {"source": str(volume), "target": "/tmp/nested", "readOnly": True},
    ]
    script = (
        f"cat {places[0]}/file /usr/share/some-product/file /tmp/nested/file; hostname; echo $$;"
        f"echo new > {places[1]}/new; echo new > /tmp/new;"
        f"touch {places[0]}/forbidden 2>/dev/null || echo read-only"
    )
    with start(tmp_path, ["sh", "-c", script], isolate=True, mounts=mounts) as process:
        assert process.stdout
        output = process.stdout.read()
        assert process.wait(10) == 0
    assert output.splitlines() == [*["content"] * 3, "pod-1", "1", "read-only"]
    assert (volume / "new").exists()
    assert (outer / "new").exists()
    assert not any((tmp_path / "root").iterdir())
    assert not Path(places[1]).exists()
    assert not Path("/usr/share/some-product").exists()


def test_without_namespaces_the_volumes_are_under_pod_root(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "file").write_text("content\n")
    mounts = [{"source": str(tmp_path / "volume"), "target": "/etc/settings", "readOnly": True}]
    script = 'cat "$POD_ROOT/etc/settings/file"; echo $KUBECONFIG'
    with start(tmp_path, ["sh", "-c", script], isolate=False, mounts=mounts) as process:
        assert process.stdout
        assert process.stdout.read() == "content\n/some/kubeconfig\n"


def test_a_command_beside_the_container_sees_its_files(tmp_path: Path) -> None:
    if not namespaces_work():
        pytest.skip("the kernel gives no namespaces to this user")
    (tmp_path / "volume").mkdir()
    mounts = [{"source": str(tmp_path / "volume"), "target": "/data", "readOnly": False}]
    script = "echo inside > /data/file; echo ready; sleep 1000"
    with start(tmp_path, ["sh", "-c", script], isolate=True, mounts=mounts) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        answer = subprocess.run(
            [
                *(sys.executable, "-I", "-S", sandbox.__file__, "enter"),
                (tmp_path / "pid").read_text(),
                json.dumps({"PATH": os.environ["PATH"]}),
                *("sh", "-c", "cat /data/file; hostname; exit 4"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        process.kill()
    assert (answer.returncode, answer.stdout) == (4, "inside\npod-1\n"), answer.stderr
