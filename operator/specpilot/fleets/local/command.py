"""Build a replica's command line, and refuse commands that would decide about speculation.

The user writes the command once, without any speculation flag; what a replica runs is added here.
A speculation flag of the user's own would win over ours, or be merged with it, depending on the
engine's version: so the group is refused, with the flag named, in every spelling the engine takes.
"""

import itertools
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TypeAlias

import yaml

from specpilot.domain.settings import Declared

PORT = "{port}"
HOST = "{host}"
SPECULATION = "{speculation}"

Arguments: TypeAlias = Callable[[Declared, str], tuple[str, ...]]
"""Render what a replica is to run into command-line arguments, for an engine version.

The version is "" while it is not known. A `ValueError` says that this version cannot run it.
"""

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_LONG_FLAGS = ("--speculative-config", "--spec-method", "--spec-model", "--spec-tokens")
_SHORTEST_ABBREVIATION = "--spec"
_FAMILIES = ("--speculative-", "--num-sp")  # flags of all engine generations, abbreviated or not


def config_argument(declared: Declared, version: str) -> tuple[str, ...]:  # noqa: ARG001 - a port
    """Pass the configuration as `--speculative-config`, which versions from 0.8.2 on take."""
    return ("--speculative-config", declared.config) if declared.config else ()


def speculation_flag(command: Sequence[str]) -> str:
    """Return the first literal speculation flag of a command, "" when there is none."""
    for word in _words(command):
        # `--speculative_config`, `--speculative-config.method`, `--spec-m=x`, `-sc{...}`
        name = word.partition("=")[0].partition(".")[0].partition("{")[0]
        plain = name.replace("_", "-")
        abbreviated = plain.startswith(_SHORTEST_ABBREVIATION) and any(
            flag.startswith(plain) for flag in _LONG_FLAGS
        )
        if plain == "-sc" or abbreviated or plain.startswith(_FAMILIES):
            return name
    return ""


def literal_option(command: Sequence[str], option: str) -> bool:
    """Whether a command already gives `--option`, in either spelling, with a value of its own."""
    return any(
        word == option or (word.startswith(option + "=") and "{" not in word)
        for word in _without_placeholder(command)
    )


def speculation_in_config_file(command: Sequence[str], *, cwd: Path) -> str:
    """Return `file: key` when the `--config FILE` of a command configures speculation, else "".

    `--config=FILE` is not read by the engine, and so not here. A file that cannot be read or
    understood is the engine's to complain about.
    """
    words = list(_words(command))
    for word, following in itertools.pairwise(words):
        if word != "--config":
            continue
        try:
            content = yaml.safe_load((cwd / following).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            continue
        if isinstance(content, Mapping):
            for key in content:
                if speculation_flag((f"--{key}",)):
                    return f"{following}: {key}"
    return ""


def runs_in_a_shell(command: Sequence[str]) -> bool:
    """Whether the command is `sh -c '...'`: arguments added at its end would reach the shell."""
    return PurePath(command[0]).name in _SHELLS and any(
        word.startswith("-") and not word.startswith("--") and "c" in word for word in command[1:]
    )


def mentions(command: Sequence[str], placeholder: str) -> bool:
    """Whether a placeholder occurs in a command."""
    return any(placeholder in word for word in command)


def command_line(
    command: Sequence[str], *, host: str, port: int, speculation: Sequence[str]
) -> tuple[str, ...]:
    """Return the words to execute.

    What has a placeholder is put there, the rest is added at the end. `{speculation}` as a word of
    its own becomes as many words as needed; inside a longer word it is quoted for a shell.
    """
    line: list[str] = []
    for word in command:
        if word == SPECULATION:
            line.extend(speculation)
            continue
        # Not str.format: commands contain JSON.
        placed = word.replace(PORT, str(port)).replace(HOST, host)
        line.append(placed.replace(SPECULATION, shlex.join(speculation)))
    if not mentions(command, PORT):
        line += ["--port", str(port)]
    if not mentions(command, HOST):
        line += ["--host", host]
    if not mentions(command, SPECULATION):
        line += speculation
    return tuple(line)


def _words(command: Sequence[str]) -> Iterator[str]:
    """All words, those of shell scripts inside a word included."""
    for word in command:
        yield word
        if any(c.isspace() for c in word) and not word.lstrip().startswith(("{", "[")):
            try:
                yield from shlex.split(word, comments=True)
            except ValueError:
                yield from word.split()


def _without_placeholder(command: Sequence[str]) -> Iterator[str]:
    """Words that are not followed by a placeholder as their value."""
    words = list(command)
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if following not in (PORT, HOST):
            yield word
