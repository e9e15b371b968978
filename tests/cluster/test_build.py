"""The build of the programs: what its cache depends on, and that it is whole or absent.

The compiler is a shell script here, which makes a file of each program.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import build
from tests.cluster.waiting import wait_for

COMPILER = """#!/bin/sh
case "$1" in
version) echo "go version go{version} linux/amd64"; exit 0;;
esac
echo "$@" >> "{directory}/calls"
{work}
while [ "$1" != -o ]; do shift; done
echo program > "$2"
"""


@pytest.fixture
def toolbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH without any Go."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path


def install_go(toolbox: Path, *, version: str = "1.99.0", work: str = "true") -> None:
    go = toolbox / "bin" / "go"
    go.write_text(COMPILER.format(version=version, directory=toolbox, work=work))
    go.chmod(go.stat().st_mode | stat.S_IXUSR)


def calls(toolbox: Path) -> int:
    log = toolbox / "calls"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_second_build_is_served_from_the_cache(toolbox: Path) -> None:
    install_go(toolbox)
    first = build.tools(quiet=True)
    assert set(first) >= {"etcd", "kube-apiserver", "kubectl", "prometheus", "helm"}
    assert all(path.read_text() == "program\n" for path in first.values())
    once = calls(toolbox)
    assert build.tools(quiet=True) == first
    assert calls(toolbox) == once


def test_two_builders_at_once_build_once(toolbox: Path) -> None:
    install_go(toolbox, work="sleep 0.2")
    command = [sys.executable, "-m", "tests.cluster.build"]
    builders = [
        subprocess.Popen(
            command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    answers = [one.communicate(timeout=60) for one in builders]
    assert [one.returncode for one in builders] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert calls(toolbox) == sum(len(module.programs) for module in build.MODULES)


def test_a_killed_builder_leaves_no_half_result(toolbox: Path) -> None:
    install_go(toolbox, work="sleep 30")
    builder = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.build"],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_for(lambda: calls(toolbox), describe="the compiler was started")
    os.killpg(builder.pid, 9)
    builder.wait()
    install_go(toolbox)
    assert all(path.exists() for path in build.tools(quiet=True).values())
    assert not [path for path in build.cache_root().iterdir() if path.name.startswith(".")]


def test_a_failure_shows_what_the_compiler_said(toolbox: Path) -> None:
    install_go(toolbox, work="echo 'undefined: x' >&2; exit 1")
    with pytest.raises(build.BuildError, match="undefined: x"):
        build.tools(quiet=True)
    assert not [path for path in build.cache_root().iterdir() if path.is_dir()]


@pytest.mark.parametrize("version", [None, "1.20.1"], ids=["none", "too old"])
def test_without_a_recent_go_the_wheel_is_chosen(toolbox: Path, version: str | None) -> None:
    if version:
        install_go(toolbox, version=version)
    assert build._choose_go() == build.Go(version=build.GO_WHEEL, program=None)


def test_the_wheel_is_recent_enough() -> None:
    assert build._as_numbers(build.GO_WHEEL) >= build._required_go()


def test_the_key_names_what_the_result_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "TOOLS", tmp_path)
    module = build.MODULES[0]
    module.directory.mkdir()
    (module.directory / "go.mod").write_text("module a\n")
    (module.directory / "go.sum").write_text("")
    before = module.key(go_version="1.27.0")
    assert before == module.key(go_version="1.27.0")
    assert before != module.key(go_version="1.27.1")
    assert before != replace(module, tags="netgo").key(go_version="1.27.0")
    (module.directory / "go.sum").write_text("x")
    assert before != module.key(go_version="1.27.0")


def test_a_version_that_go_mod_does_not_pin_is_refused() -> None:
    module = replace(build.MODULES[1], requires="k8s.io/kubernetes v1.0.0")
    with pytest.raises(build.BuildError, match=r"does not require 'k8s\.io/kubernetes v1\.0\.0'"):
        module.check_pin()
