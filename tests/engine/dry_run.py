"""Ask the real engine what it makes of a command line, without loading a model for each.

Runs under the engine's own interpreter. Everything up to the launch is vLLM's: its command, its
parser, its configuration with all checks. Only the launch itself is replaced, so a command line
costs a second instead of half a minute, and a hundred can be asked. What happens after the launch
is not covered; ``test_arguments.py`` really starts one of each kind for that.

Reads a JSON list of argument lists on standard input; answers on standard output with a JSON list
of ``{"exit_code", "output", "speculation"}``, where speculation is null or the effective config.
"""

# mypy: disable-error-code="import-not-found"
# vllm is installed for the interpreter that runs this, not for the one that checks it.

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from argparse import Namespace
from pathlib import Path
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli import main as command
from vllm.entrypoints.cli import preload, serve
from vllm.usage.usage_lib import UsageContext

PAID_FOR_ONCE = preload
"""Most of the time of the command's own imports; children inherit it."""

REPORTED = ("method", "num_speculative_tokens", "num_speculative_tokens_per_batch_size")


def ask(arguments: list[str]) -> dict[str, Any]:
    """Run one command line in a child of this process, which has paid for the imports."""
    with tempfile.TemporaryDirectory() as folder:
        output, answer = Path(folder, "output"), Path(folder, "answer")
        child = os.fork()
        if child == 0:
            with output.open("w") as stream:
                os.dup2(stream.fileno(), 1)
                os.dup2(stream.fileno(), 2)
            os._exit(run(arguments, answer))
        _, status = os.waitpid(child, 0)
        return {
            "exit_code": os.waitstatus_to_exitcode(status),
            "output": output.read_text(),
            "speculation": json.loads(answer.read_text()) if answer.exists() else None,
        }


def run(arguments: list[str], answer: Path) -> int:
    """Do what the command ``vllm`` does, short of the launch; return its exit code."""

    async def configure(args: Namespace) -> None:
        engine_args = AsyncEngineArgs.from_cli_args(args)
        config = engine_args.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
        speculation = config.speculative_config
        shown = speculation and {key: getattr(speculation, key) for key in REPORTED}
        report(json.dumps(shown))

    report = answer.write_text
    serve.run_server = configure
    sys.argv = ["vllm", *arguments]
    code = 0
    try:
        command.main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # noqa: BLE001 - the interpreter would print it and exit with 1, too
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    questions = json.load(sys.stdin)
    json.dump([ask(arguments) for arguments in questions], sys.stdout)
