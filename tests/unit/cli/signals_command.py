"""Runs `specpilot signals` for the tests of saved pages."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from specpilot.cli.main import app

LOAD = "0.32.0-ngram-random-c16"
WIDE = {"COLUMNS": "200"}
PAGE = b"vllm:generation_tokens_total 5\n"


def signals(*words: str | Path, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app, ["signals", *map(str, words)], input=stdin, env=WIDE)


def answer(*words: str | Path, stdin: bytes = b"") -> dict[str, Any]:
    result = signals(*words, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def refusal(*words: str | Path, stdin: bytes = b"") -> str:
    result = signals(*words, stdin=stdin)
    said = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2, said or result.stdout
    assert not result.stdout
    return said
