"""Options that say which engine, and how it is run."""

from enum import StrEnum
from typing import Annotated

import typer

from specpilot.domain import engine_run
from specpilot.domain.engine_run import EngineRun


class Generation(StrEnum):
    """The two engines that some releases have."""

    V0 = "v0"
    V1 = "v1"


class ModelRunner(StrEnum):
    """The two model runners that some releases have."""

    V1 = "v1"
    V2 = "v2"


Version = Annotated[
    str,
    typer.Option("--version", help="Version of vLLM: 0.32.0. Without one, the newest described."),
]

EngineVersion = Annotated[
    str,
    typer.Option(
        "--engine-version",
        help="Version of vLLM that the policy's target runs, where it is not asked: 0.32.0.",
    ),
]

EngineChoice = Annotated[
    Generation | None,
    typer.Option("--engine", help="Engine, where the version has two (VLLM_USE_V1)."),
]

RunnerChoice = Annotated[
    ModelRunner | None,
    typer.Option("--runner", help="Model runner (VLLM_USE_V2_MODEL_RUNNER)."),
]

DataParallel = Annotated[
    int | None, typer.Option("--data-parallel", min=1, help="--data-parallel-size.")
]


def stated(
    version: str,
    *,
    engine: Generation | None = None,
    runner: ModelRunner | None = None,
    data_parallel: int | None = None,
) -> EngineRun | None:
    """The engine that options state; what they leave out is the release's default.

    Returns:
        None where they state nothing.
    """
    if not version and engine is None and runner is None and data_parallel is None:
        return None
    return EngineRun(
        version=version,
        generation=engine_run.Generation[engine.name if engine else "DEFAULT"],
        runner=engine_run.ModelRunner[runner.name if runner else "DEFAULT"],
        data_parallel=data_parallel or 1,
    )
