"""Asking the real engine what it makes of command lines; see ``dry_run.py``."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.engine import install
from tests.engine.servers import Subject


def ask(subject: Subject, lines: Sequence[Sequence[str]]) -> list[Mapping[str, Any]]:
    """Return ``exit_code``, ``output`` and ``speculation`` of each line after ``serve MODEL``."""
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    asked = subprocess.run(
        [
            install.install_dir() / "venv" / "bin" / "python",
            Path(__file__).with_name("dry_run.py"),
        ],
        input=json.dumps([[*subject.serve[1:], *line] for line in lines]),
        env=os.environ | offline | {"VLLM_CPU_KVCACHE_SPACE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1000,  # some seconds a line on a machine that is shared
    )
    assert asked.returncode == 0, asked.stderr[-3000:]
    answers: list[Mapping[str, Any]] = json.loads(asked.stdout.splitlines()[-1])
    return answers
