"""What a command line amounts to: the values that the rest of the simulator is built from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter

from packaging.version import Version

from specpilot.sim.faults import Faults


class Generation(StrEnum):
    """Which of vLLM's two engines runs; they differ in metrics and in what speculation obeys."""

    V0 = "v0"
    V1 = "v1"


class LaunchRefused(Exception):  # noqa: N818 -- vLLM refuses; it is not an error of this program
    """The engine would not start.

    Attributes:
        code: exit code of the process: 2 from argparse, 1 from everything later.
        message: the last lines of the engine's log, as vLLM words them.
    """

    def __init__(self, message: str, *, code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass(frozen=True, slots=True)
class Speculation:
    """The speculation that an engine performs, after all that its release ignores is gone.

    Attributes:
        method: vLLM's name of the method, aliases resolved.
        model: draft model or head, if the method has one.
        depth: ``num_speculative_tokens``, the most drafted for a request in one step.
        schedule: ``(batch size, depth)``: the depth from this batch size on, in ascending order
            from batch size 1; empty when the depth is static.
        disable_at: running requests from which V0 stops drafting, for good for those requests.
        given: the config as the user wrote it.
    """

    method: str
    depth: int
    model: str | None = None
    schedule: tuple[tuple[int, int], ...] = ()
    disable_at: int | None = None
    given: Mapping[str, object] = field(default_factory=dict)

    def depth_at(self, batch: int) -> int:
        """Return how many tokens to draft per request when ``batch`` requests are scheduled."""
        if not self.schedule:
            return self.depth
        index = bisect_right(self.schedule, batch, key=itemgetter(0))
        return self.schedule[max(index, 1) - 1][1]


@dataclass(frozen=True, slots=True)
class SimOptions:
    """The ``--sim-`` options: how the stand-in behaves where a real engine has hardware.

    Attributes:
        profile: name of the cost model.
        constants: overrides of the profile's constants, by field name, in seconds.
        time_scale: wall-clock seconds per simulated second.
        startup_seconds: wall-clock seconds between the process start and the first answer.
        acceptance: per-token acceptance of a model-based drafter on an unmarked prompt.
        abort_on_term: cut all connections and exit on SIGTERM, whatever else the launch says.
        hang_on_term: seconds to hang after SIGTERM with the port closed, clients or none.
        seed: of the acceptance draws.
        control: serve ``/sim/*``.
        crash_at_start: exit code to die with during start-up.
        crash_after: seconds after readiness until the process dies with exit code 1.
        hang_after: seconds after readiness until the engine stops stepping.
        faults: the faults in force from the start.
    """

    profile: str = "h100-8b"
    constants: Mapping[str, float] = field(default_factory=dict)
    time_scale: float = 1.0
    startup_seconds: float = 0.0
    acceptance: float = 0.7
    abort_on_term: bool = False
    hang_on_term: float | None = None
    seed: int = 0
    control: bool = False
    crash_at_start: int | None = None
    crash_after: float | None = None
    hang_after: float | None = None
    faults: Faults = field(default_factory=Faults)


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """One engine as launched."""

    version: Version
    model: str
    generation: Generation = Generation.V1
    served_model_names: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    max_model_len: int = 4096
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    num_gpu_blocks: int | None = None
    data_parallel_size: int = 1
    api_server_count: int = 1
    prefix_caching: bool = True
    log_stats: bool = True
    shutdown_timeout: float = 0.0
    developer_mode: bool = False
    speculation: Speculation | None = None
    warnings: tuple[str, ...] = ()
    sim: SimOptions = field(default_factory=SimOptions)

    @property
    def model_name(self) -> str:
        """The name that metrics and responses carry."""
        return self.served_model_names[0] if self.served_model_names else self.model
