"""Engines on a clock that the test moves, and the metric texts of real servers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from specpilot.sim.arguments import parse
from specpilot.sim.engine import Engine
from specpilot.sim.exposition import Exposition
from specpilot.sim.launch import LaunchConfig
from specpilot.sim.requests import Output, Request

NGRAM = json.dumps({"method": "ngram", "num_speculative_tokens": 4})
EAGLE3 = json.dumps({"method": "eagle3", "model": "head", "num_speculative_tokens": 3})


def config_of(
    *words: str, version: str = "0.32.0", spec: str | None = None, v0: bool = False
) -> LaunchConfig:
    """Launch ``serve tiny`` with a profile of convenient numbers."""
    extra = [] if spec is None else ["--speculative-config", spec]
    line = ["serve", "tiny", "--sim-version", version, "--sim-profile", "demo", *extra, *words]
    return parse(line, environment={"VLLM_USE_V1": "0"} if v0 else {})


def run(
    engine: Engine, *, now: float = 0.0, steps: int | None = None
) -> Iterator[tuple[float, list[Output]]]:
    """Step until the engine has nothing to do, yielding the time and the outputs of each step."""
    taken = 0
    while steps is None or taken < steps:
        seconds = engine.begin_step(now)
        if seconds is None:
            return
        now += seconds
        taken += 1
        yield now, engine.finish_step(now)


def finish(engine: Engine, *, now: float = 0.0) -> float:
    """Step until the engine has nothing to do and return the time."""
    last = now
    for last, _ in run(engine, now=now):
        assert last >= now
    return last


def add(
    engine: Engine,
    prompt: str = "[accept=0.8]",
    *,
    prompt_tokens: int = 48,
    max_tokens: int = 64,
    now: float = 0.0,
) -> Request:
    request = engine.request(prompt=prompt, prompt_tokens=prompt_tokens, max_tokens=max_tokens)
    engine.add(request, now=now)
    return request


def closed_loop(config: LaunchConfig, *, concurrency: int, accept: float, rounds: int = 8) -> float:
    """Return the tokens a second with a fixed number of requests always in flight."""
    engine = Engine(config)
    waiting = concurrency * (rounds - 1)
    for _ in range(concurrency):
        add(engine, f"[accept={accept}]")
    tokens, now = 0, 0.0
    while (seconds := engine.begin_step(now)) is not None:
        now += seconds
        for output in engine.finish_step(now):
            tokens += output.tokens
            if output.finished and waiting:
                waiting -= 1
                add(engine, f"[accept={accept}]", now=now)
    return tokens / now


def render(config: LaunchConfig, engines: Sequence[Engine]) -> str:
    return Exposition(config=config, created=1000.0).render(engines)


def families(text: str) -> dict[str, Metric]:
    """Parse metric text; the ``_created`` series count as families of their own."""
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(text: str, name: str, **labels: str) -> float | None:
    """Return the sum of the samples with these labels; None if there are none."""
    found = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return sum(found) if found else None


async def until(condition: Callable[[], bool], *, what: str) -> None:
    """Wait for a condition, but not for ever."""
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out waiting for: {what}")
        await asyncio.sleep(0.005)
