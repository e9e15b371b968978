"""From a container's command and args to the words that the engine itself receives.

Shapes seen in the field: `args` alone (the image's entrypoint is the engine), everything in
`command`, `python -m vllm.entrypoints.openai.api_server`, and a whole script after `sh -c`.
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from specpilot.engines import shell
from specpilot.engines.words import MANGLED, RESERVED, WIRED, CommandLineError, Word

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_SERVER_MODULES = frozenset(
    {
        "vllm.entrypoints.openai.api_server",
        "vllm.entrypoints.api_server",
        "vllm.entrypoints.openai.rpc.server",
    }
)
_CLI_MODULES = frozenset({"vllm", "vllm.entrypoints.cli.main"})
_DEEPEST_EVAL = 8
_PRINTING = frozenset({"echo", "printf", "pip", "pip3"})
"""Commands that may only mention the engine."""


def engine_words(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    variable: str = "",
    unknown: Container[str] = (),
) -> tuple[Word, ...]:
    """Return the engine's own arguments, `vllm serve` and its like left out.

    Args:
        argv: The container's command followed by its args, as the manifest has them.
        env: The container's variables whose values are known.
        variable: The steered variable; where a word is its value, `WIRED` stands in its place.
        unknown: Names of variables that the container has, with values that are not known.

    Raises:
        CommandLineError: It cannot be said what the engine receives.
    """
    if any(char in text for text in (*argv, *env.values()) for char in RESERVED):
        raise CommandLineError("the command line contains Unicode noncharacters; remove them")
    words = [
        _expanded(text, at=at, env=env, variable=variable, unknown=unknown)
        for at, text in enumerate(argv)
    ]
    at = shell_at(words)
    if at is not None:
        script = words[at + 1].at if at + 1 < len(words) else -1
        found = _in_script(words[at:], env=env, variable=variable)
        return tuple(word if word.at >= 0 else replace(word, at=script) for word in found)
    direct = _after_engine(words)
    return tuple(words if direct is None else direct)


def _expanded(
    text: str, *, at: int, env: Mapping[str, str], variable: str, unknown: Container[str]
) -> Word:
    """Expand `$(NAME)` as the kubelet does: left as it stands when NAME is not defined."""
    names: list[str] = []
    missing: list[str] = []

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"  # "$$" is an escaped dollar
        if name in env:
            names.append(name)
            return WIRED if name == variable else env[name]
        if name in unknown:
            names.append(name)
            missing.append(match.group())
            return ""
        return match.group()

    expanded = _REFERENCE.sub(value, text)
    return Word(text=expanded, unknown="".join(missing[:1]), at=at, variables=tuple(names))


def _program(word: Word) -> str:
    return PurePosixPath(word.text).name


def shell_at(words: Sequence[Word]) -> int | None:
    """The place of the -c that a shell gets; None when the engine is started directly."""
    for index, word in enumerate(words[:-1]):
        if _program(word) == "vllm" and words[index + 1].text == "serve":
            return None
        if _program(word) in _SHELLS and (at := _command_option(words, index + 1)) is not None:
            return at
    return None


def _command_option(words: Sequence[Word], start: int) -> int | None:
    """The place of a shell's -c among its options (`-lc`, `-euo pipefail -c`)."""
    index = start
    while index < len(words) and words[index].text.startswith(("-", "+")):
        option = words[index].text
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", option):
            return index
        index += 2 if option.endswith(("o", "O")) else 1  # -o takes a name
    return None


def _in_script(words: Sequence[Word], *, env: Mapping[str, str], variable: str) -> list[Word]:
    """The engine's words in the script that follows -c, which comes first in `words`."""
    rest = words[1:]
    if not rest:
        raise CommandLineError("the shell gets -c without a script; add the script")
    if rest[0].unknown:
        raise CommandLineError(
            f"the shell script contains {rest[0].unknown}, which is not known; give the variable "
            "a literal value in the manifest"
        )
    script, positional = rest[0].text, rest[2:]
    found = list(_engines_of(script, env=env, positional=positional, variable=variable))
    if not found:
        raise CommandLineError(
            "the shell script does not start `vllm serve` where it can be seen; start the engine "
            "by a plain command in it, or without a shell"
        )
    if len(found) > 1:
        raise CommandLineError(
            f"the shell script starts the engine in {len(found)} places; start it in one"
        )
    return found[0]


def _engines_of(
    script: str,
    *,
    env: Mapping[str, str],
    positional: Sequence[Word],
    variable: str,
    depth: int = 0,
) -> Iterator[list[Word]]:
    if depth > _DEEPEST_EVAL:
        raise CommandLineError("in the shell script eval runs eval runs eval; call vllm itself")
    for command in shell.commands(script, env=env, positional=positional, variable=variable):
        if command[0].text == "eval":
            if any(w.unknown for w in command):
                unknown = next(w.unknown for w in command if w.unknown)
                raise CommandLineError(
                    f"eval runs text of which {unknown} is not known; call vllm without eval"
                )
            again = " ".join(w.text for w in command[1:])
            yield from _engines_of(
                again, env=env, positional=(), variable=variable, depth=depth + 1
            )
            continue
        found = _after_engine(command)
        if found is not None:
            yield found


def _after_engine(words: Sequence[Word]) -> list[Word] | None:
    """The words after `vllm serve` or the server's module; None when neither is there.

    Wrappers (`exec`, `env`, `tini --`, `numactl ...`) may stand before it.

    Raises:
        CommandLineError: vLLM is started, but not as a server.
    """
    if not words or words[0].text in _PRINTING:
        return None
    texts = [w.text for w in words]
    for index, text in enumerate(texts):
        follower = texts[index + 1] if index + 1 < len(texts) else ""
        if text == "-m" and follower in _SERVER_MODULES:
            return list(words[index + 2 :])
        if _program(words[index]) == "vllm" and follower == "serve":
            return list(words[index + 2 :])
        if text == "-m" and follower in _CLI_MODULES and texts[index + 2 : index + 3] == ["serve"]:
            return list(words[index + 3 :])
    if texts[0] == "serve":
        return list(words[1:])  # the image's entrypoint is vllm itself
    if _program(words[0]) == "vllm":
        sub = " ".join(texts[1:2])
        raise CommandLineError(f"`vllm {sub}` does not serve; start the engine by `vllm serve`")
    return None


def unmangled(text: str, *, value: str) -> str:
    """Put the steered variable's value back where it is only a part of a word."""
    return text.replace(WIRED, value).replace(MANGLED, value)
