"""The simulator as a process: exit codes, signals, and how little it needs to start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.unit.sim.support import NGRAM


@contextmanager
def simulator(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a simulator on a free port and wait until it answers; it does not outlive the block."""
    line = [sys.executable, "-m", "specpilot.sim", "serve", "m", "--host", "127.0.0.1", "--port"]
    process = subprocess.Popen(
        [*line, "0", "--sim-profile", "demo", *words], stderr=subprocess.PIPE, text=True
    )
    try:
        yield process, _url(process)
    finally:
        process.kill()
        process.communicate(timeout=20)


def _url(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "listening on" in line:
            return line.split()[-1]
    raise AssertionError("the simulator did not start:\n" + "".join(lines))


def refused(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "specpilot.sim", "--", "vllm", "serve", "m", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)


def test_exit_codes_of_a_refused_start() -> None:
    unknown = refused("--speculative-disable-by-batch-size", "8")
    assert unknown.returncode == 2
    assert "error: unrecognized arguments" in unknown.stderr
    config = refused("--speculative-config", '{"method": "ngram", "disable_by_batch_size": 8}')
    assert config.returncode == 1
    assert "Unexpected keyword argument" in config.stderr


def test_sigterm_ends_it_with_zero_and_counters_begin_anew() -> None:
    for _ in range(2):
        with simulator("--speculative-config", NGRAM) as (process, url):
            before = httpx.get(f"{url}/metrics", trust_env=False).text
            assert 'vllm:generation_tokens_total{engine="0",model_name="m"} 0.0' in before
            httpx.post(
                f"{url}/v1/completions", json={"prompt": "x", "max_tokens": 3}, trust_env=False
            )
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"{url}/health", trust_env=False)


def test_a_crash_at_start_has_the_code_asked_for() -> None:
    with (
        pytest.raises(AssertionError, match="Engine core initialization failed"),
        simulator("--sim-crash-at-start", "7", "--sim-startup-seconds", "0.1"),
    ):
        pass  # fmt: skip


def test_a_port_in_use_is_an_error() -> None:
    with simulator() as (_, url):
        port = url.rsplit(":", 1)[1]
        second = refused("--host", "127.0.0.1", "--port", port)
        assert second.returncode == 1
        assert "in use" in second.stderr


def test_it_imports_little() -> None:
    """A start must be quick, and the simulator must not lean on what it is to contradict."""
    program = (
        "import sys, time; began = time.perf_counter(); import specpilot.sim.__main__, "
        "specpilot.sim.server; print(time.perf_counter() - began); print(*sorted(sys.modules))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    ).stdout  # fmt: skip
    _, modules = output.splitlines()
    loaded = {name.split(".")[0] for name in modules.split()}
    assert not loaded & {"pydantic", "kubernetes", "sqlalchemy", "prometheus_client", "httpx"}
    inside = {name for name in modules.split() if name.startswith("specpilot.")}
    assert all(name.startswith("specpilot.sim") for name in inside)
