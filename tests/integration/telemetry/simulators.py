"""Simulated engines as processes, for what only a living server shows."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx

from specpilot.domain.targets import Replica
from tests.cluster.ports import free_port
from tests.cluster.processes import Process
from tests.unit.telemetry.builders import replica

ROOT = Path(__file__).parents[3]
NGRAM = '--speculative-config={"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4}'
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}


@dataclass
class Simulator:
    """One simulated engine in a process of its own."""

    name: str
    port: int
    process: Process
    speculates: bool

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def replica(self) -> Replica:
        return replica(self.name, endpoint=self.url, on=self.speculates)

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 32) -> int:
        """Send all prompts at once, wait for the answers, return the number of tokens."""

        def one(prompt: str) -> int:
            body = {"model": "m", "prompt": prompt, "max_tokens": max_tokens}
            answer = httpx.post(f"{self.url}/v1/completions", json=body, timeout=60)
            answer.raise_for_status()
            return int(answer.json()["usage"]["completion_tokens"])

        with ThreadPoolExecutor(max_workers=len(prompts)) as pool:
            return sum(pool.map(one, prompts))


def start(
    name: str, *flags: str, directory: Path, version: str = "0.32.0", v1: str = "1"
) -> Simulator:
    """Start one; it answers when this returns."""
    port = free_port()
    process = Process(
        name=name,
        command=[
            *(sys.executable, "-m", "specpilot.sim", "serve", "m"),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--sim-version", version, "--sim-profile", "demo", *flags),
        ],
        log=directory / f"{name}.log",
        environment=ENVIRONMENT | {"VLLM_USE_V1": v1},
    )
    simulator = Simulator(name, port, process, speculates=any("speculative" in f for f in flags))
    process.start()
    try:
        process.wait_ready(lambda: healthy(simulator.url), deadline=60)
    except BaseException:
        process.kill()
        raise
    return simulator


def healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).is_success
    except httpx.HTTPError:
        return False
