"""``python -m specpilot.sim serve MODEL [flags]``: one simulated engine in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence

from specpilot.sim.arguments import parse
from specpilot.sim.launch import LaunchConfig, LaunchRefused


def main(argv: Sequence[str] | None = None) -> int:
    """Run until the engine ends; return the exit code that vLLM would."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--"]:
        del words[0]
    if words[:1] == ["vllm"]:
        del words[0]
    try:
        config = parse(words, environment=os.environ)
    except LaunchRefused as refusal:
        if refusal.code == 1:
            _log("INFO", "vLLM API server: initializing")
        print(refusal.message, file=sys.stderr)  # noqa: T201 -- the engine's log
        return refusal.code
    return asyncio.run(_run(config))


def _log(level: str, message: str) -> None:
    stamp = time.strftime("%m-%d %H:%M:%S")
    line = f"{level} {stamp} [api_server.py] {message}"
    print(line, file=sys.stderr, flush=True)  # noqa: T201 -- the engine's log


async def _run(config: LaunchConfig) -> int:
    from specpilot.sim.server import SimServer  # noqa: PLC0415 -- a refused start needs no server

    _log("INFO", f"vLLM API server version {config.version}")
    for warning in config.warnings:
        _log("WARNING", warning)
    server = SimServer(config)
    try:
        server.bind()
    except OSError as error:
        _log("ERROR", f"{config.host}:{config.port}: {error}")
        return 1
    speculation = config.speculation
    shown = "None" if speculation is None else f"{speculation.method}, K={speculation.depth}"
    _log("INFO", f"Initializing an engine: model={config.model}, speculative_config={shown}")
    await server.start()
    if server.exit_code is not None:
        _log("ERROR", "RuntimeError: Engine core initialization failed. See root cause above.")
        return server.exit_code
    loop = asyncio.get_running_loop()
    stopping: set[asyncio.Task[None]] = set()

    def stop() -> None:
        stopping.add(loop.create_task(server.terminate()))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    _log("INFO", f"Application startup complete; listening on {server.url}")
    code = await server.wait()
    _log("INFO", f"Shutting down with exit code {code}")
    return code


if __name__ == "__main__":
    # The process is over: nothing is left that would need an orderly interpreter shutdown.
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
