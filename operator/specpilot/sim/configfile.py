"""``--config FILE``: a YAML file whose entries stand in for flags.

Only the two-word form counts: vLLM looks for the bare word ``--config``, so ``--config=FILE`` is
taken by argparse as an ordinary option that nothing reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from specpilot.sim.launch import LaunchRefused
from specpilot.sim.refusals import no_mapping


def expand_config_file(words: Sequence[str], *, nested: bool) -> list[str]:
    """Put the file's entries before the other flags, so that the command line wins.

    Args:
        words: the command line after ``serve``.
        nested: whether the release turns a mapping into JSON; older ones turn it into Python's
            notation, which their JSON flags then refuse.

    Raises:
        LaunchRefused: more than one file, no file, not YAML, or not a mapping. Exit code 1.
    """
    if "--config" not in words:
        return list(words)
    if words.count("--config") > 1:
        raise LaunchRefused("AssertionError: More than one config file specified!")
    index = words.index("--config")
    if index + 1 == len(words):
        raise LaunchRefused(
            "ValueError: No config file specified! Please check your command-line arguments."
        )
    path = words[index + 1]
    before, after = list(words[:index]), list(words[index + 2 :])
    entries = _entries(path, nested=nested)
    model = before[:1] if before and not before[0].startswith("-") else []
    return [*model, *entries, *before[len(model) :], *after]


def _entries(path: str, *, nested: bool) -> list[str]:
    kind = path.rpartition(".")[2]
    if kind not in ("yaml", "yml"):
        raise LaunchRefused(f"ValueError: Config file must be of a yaml/yml type. {kind} supplied")
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise LaunchRefused(
            f"Unable to read the config file at {path}. Check path correctness\n"
            f"{type(error).__name__}: {error}"
        ) from None
    if not isinstance(content, dict):
        raise no_mapping(content)
    words: list[str] = []
    model: list[str] = []
    for key, value in content.items():
        flag = f"--{key}"
        match value:
            case True:
                words.append(flag)
            case False:
                pass
            case list():
                if value:
                    words += [flag, *map(str, value)]
            case dict():
                words += [flag, json.dumps(value, default=str) if nested else str(value)]
            case _ if key == "model":
                model = ["--model", str(value)]
            case _:
                words += [flag, str(value)]
    return [*model, *words]
