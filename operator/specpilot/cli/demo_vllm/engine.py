"""The real engine as `scripts/engine/install.py` leaves it, and what it takes to run two of it."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MODEL = "mid"
"""The model served: large enough that a step costs more than its bookkeeping."""

REPLICAS = 2
SERVER_GB = 4.5
"""Memory of one server of the small models, at most."""

_STAMP = "installed.json"


class EngineMissingError(Exception):
    """The directory holds no complete install; the message tells what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A server that can be started several times.

    Attributes:
        command: The words that start one, without host, port and speculation.
        version: Its version.
        environment: For each replica, what keeps it to a core of its own.
    """

    command: Sequence[str]
    version: str
    environment: Sequence[Mapping[str, str]]


def installed(directory: Path) -> Engine:
    """Read an install.

    Raises:
        EngineMissingError: It is not there, or not complete.
    """
    try:
        stamp = json.loads((directory / _STAMP).read_text(encoding="utf-8"))
        version = str(stamp["vllm"])
    except (OSError, ValueError, KeyError):
        raise EngineMissingError(
            f"{directory} holds no complete engine; install it with `python "
            "scripts/engine/install.py` and name the directory that its --path prints"
        ) from None
    cores = os.cpu_count() or 1
    return Engine(
        command=(
            *(str(directory / "bin" / "vllm"), "serve", str(directory / "models" / MODEL)),
            *("--served-model-name", MODEL, "--max-model-len", "2048", "--max-num-seqs", "64"),
            *("--dtype", "float32", "--enforce-eager", "--num-gpu-blocks-override", "512"),
            *("--shutdown-timeout", "30"),
        ),
        version=version,
        environment=[
            {"VLLM_CPU_OMP_THREADS_BIND": str(number % cores)} for number in range(REPLICAS)
        ],
    )


def needs(engine: Engine) -> str:
    """What the demo takes of this machine, and whether it is there."""
    total = REPLICAS * SERVER_GB
    free = psutil.virtual_memory().available / 1e9
    words = (
        f"vLLM {engine.version} on CPU takes 5.4 GB of disk (it is installed). A server of its "
        f"small models needs 3.5 to {SERVER_GB} GB of memory and a core; {REPLICAS} run, up to "
        f"{total:.0f} GB together, and are replaced in place, so there is never one more. "
        f"{free:.1f} GB of memory are free on {os.cpu_count()} cores."
    )
    if free < total:
        words += " That may not be enough: stop something else, or the system may kill a server."
    return words
