"""How an engine is run: read off what starts it, and put to use when a setting is rendered.

Where a part of it is not known, a setting is rendered for each way in which the engine may be run.
What it is told is then the answer that relies on the engine least: where one of them leaves a batch
limit to rules, rules enforce it, and they do so in every case.
"""

import functools
import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from specpilot.domain.engine_run import EngineRun, Generation, ModelRunner
from specpilot.domain.settings import Setting, canonical_json
from specpilot.engines import capabilities as table
from specpilot.engines.capabilities import On, Runtime
from specpilot.engines.launch import Launch
from specpilot.engines.render import Rendered, render
from specpilot.engines.versions import VersionError, read_version

USE_V1 = "VLLM_USE_V1"
USE_V2_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
DATA_PARALLEL = "VLLM_DP_SIZE"
"""Counts where no flag asks for more than one rank (`ParallelConfig.__post_init__`)."""

_GENERATIONS = {"0": Generation.V0, "1": Generation.V1}
_RUNNERS = {"0": ModelRunner.V1, "1": ModelRunner.V2}
_NOT_KNOWN = "how the engine is run is not known in full, and rules keep a limit either way: "

_ENGINE_PARTS: Mapping[Generation, On] = {Generation.V0: On.V0, Generation.V1: On.V1}
_RUNNER_PARTS: Mapping[ModelRunner, On] = {ModelRunner.V1: On.MRV1, ModelRunner.V2: On.MRV2}


def run_of(
    launch: Launch,
    *,
    argv: Sequence[str],
    env: Mapping[str, str],
    unknown: Container[str] = (),
    version: str = "",
) -> EngineRun:
    """How an engine is run, by its command line and its variables.

    Args:
        launch: What its command line says.
        argv: The command line as written. A variable that is named in it may be set there.
        env: Variables with known values.
        unknown: Names of further variables, with values that are not known.
        version: The engine's version, "" when not known.
    """
    script = " ".join(argv)

    def value(name: str) -> str | None:
        """The variable's value; "" where it is not set, None where it is not known."""
        if name in script or (name in unknown and name not in env):
            return None
        return env.get(name, "")

    return EngineRun(
        version=version,
        generation=_chosen(value(USE_V1), _GENERATIONS, Generation.DEFAULT, Generation.UNKNOWN),
        runner=_chosen(value(USE_V2_RUNNER), _RUNNERS, ModelRunner.DEFAULT, ModelRunner.UNKNOWN),
        data_parallel=_ranks(launch.data_parallel, value(DATA_PARALLEL)),
    )


_T = TypeVar("_T")


def _chosen(value: str | None, words: Mapping[str, _T], default: _T, unknown: _T) -> _T:
    if value is None:
        return unknown
    return words.get(value, unknown) if value else default


def _ranks(flag: int | None, variable: str | None) -> int | None:
    if flag is None or flag > 1 or variable == "":
        return flag
    return int(variable) if variable is not None and variable.isdecimal() else None


def runtimes(run: EngineRun) -> tuple[Runtime, ...]:
    """Every way in which the engine may be run, the release's default first.

    A variable that the release does not read changes nothing.
    """
    try:
        release = read_version(run.version).release
    except VersionError:
        return (Runtime(),)
    behaviour = table.behaviour
    engines: tuple[On | None, ...] = (None,)
    if release in behaviour.V0_ENGINE.span and release in behaviour.V1_ENGINE.span:
        engines = _ways(run.generation, _ENGINE_PARTS, unknown=Generation.UNKNOWN)
    runners: tuple[On | None, ...] = (None,)
    if release in behaviour.RUNNER_V2.span:
        runners = _ways(run.runner, _RUNNER_PARTS, unknown=ModelRunner.UNKNOWN)
    ranks = (1, 2) if run.data_parallel is None else (run.data_parallel,)
    return tuple(
        Runtime(engine=engine, runner=runner, data_parallel=number)
        for engine, runner, number in itertools.product(engines, runners, ranks)
    )


def _ways(found: _T, parts: Mapping[_T, On], *, unknown: _T) -> tuple[On | None, ...]:
    """The parts that may run; None stands for the release's default."""
    return (None, *parts.values()) if found is unknown else (parts.get(found),)


def render_for(setting: Setting, run: EngineRun) -> Rendered:
    """Render a setting for an engine as it is run: the answer that relies on it least."""
    usual, *others = renderings(setting, run)
    if usual.guard is not None:
        return usual
    least = next((answer for answer in others if answer.guard is not None), None)
    if least is None:
        return usual
    return replace(least, instead=f"{_NOT_KNOWN}{least.instead}")


def is_rendering(config: str, setting: Setting, run: EngineRun) -> bool:
    """Whether a config is what the setting is on that engine, in any way it may be run.

    Args:
        config: Canonical JSON, as in `Rendered.config`.
        setting: The setting.
        run: The engine.
    """
    return any(
        not answer.refused and answer.config == config for answer in renderings(setting, run)
    )


def renderings(setting: Setting, run: EngineRun) -> tuple[Rendered, ...]:
    """What the setting is for each of `runtimes`; the same answer for the same question."""
    try:
        extra = canonical_json(dict(setting.extra)) if setting.extra else ""
    except (TypeError, ValueError):
        extra = repr(setting.extra)  # no JSON: refused in words
    return _renderings(setting, extra, run)


@functools.lru_cache(maxsize=16384)
def _renderings(setting: Setting, extra: str, run: EngineRun) -> tuple[Rendered, ...]:  # noqa: ARG001
    # Each tick asks for each setting of each policy. `extra` is part of the question as text: to
    # Python 1 and true are equal, to an engine they are not.
    return tuple(render(setting, version=run.version, runtime=each) for each in runtimes(run))
