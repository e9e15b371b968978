"""The product reads off a command line what the engine makes of it: the same table, a third time.

This is what the operator's "active setting" of a replica rests on.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.engine import install
from specpilot.engines import parse
from tests.engine.argument_table import FILES, OFF, ON, Row

FOLDER = Path("/etc/vllm")
MOUNTED = {str(FOLDER / name): text for name, text in FILES.items()}


@pytest.mark.parametrize("row", [*OFF, *ON], ids=lambda row: row.name)
def test_reading(row: Row) -> None:
    arguments = row.arguments(files=FOLDER, draft="draft")
    parsed = parse(["vllm", "serve", "model", *arguments], version=install.VERSION, files=MOUNTED)
    assert parsed.problem == ""
    config = json.loads(parsed.config) if parsed.config else {}
    method = config.get("method") or ("draft_model" if "model" in config else "")
    assert method == row.method, row.reason
    assert int(config.get("num_speculative_tokens", 0)) == row.depth, row.reason
