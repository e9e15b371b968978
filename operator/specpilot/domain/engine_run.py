"""How a target's engine is run, as far as it matters to what the engine can be told.

What a release does with a batch limit depends on more than its number: on which of two engines and
which of two model runners it uses, and on data parallelism. A fleet reads these off what starts the
engine. Not stated is the release's default; not known is something else, and decides nothing.
"""

from dataclasses import dataclass
from enum import StrEnum


class Generation(StrEnum):
    """Which engine, where a release has two (`VLLM_USE_V1`)."""

    DEFAULT = "default"
    V0 = "V0"
    V1 = "V1"
    UNKNOWN = "unknown"


class ModelRunner(StrEnum):
    """Which model runner, where a release has two (`VLLM_USE_V2_MODEL_RUNNER`)."""

    DEFAULT = "default"
    V1 = "V1"
    V2 = "V2"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """One engine and how it is run.

    Attributes:
        version: Its version as text, "" when not known.
        generation: Which engine.
        runner: Which model runner.
        data_parallel: Ranks of data parallelism, 1 where none are asked for; None when not known.
    """

    version: str = ""
    generation: Generation = Generation.UNKNOWN
    runner: ModelRunner = ModelRunner.UNKNOWN
    data_parallel: int | None = None
