"""Text that a shell takes apart again: KServe's `eval "vllm serve ${VLLM_ADDITIONAL_ARGS}"`.

Only flags of speculation are taken out and put in; all other characters of the user's stay.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from specpilot.engines.flags import width
from specpilot.engines.words import plain

_EXPANDED = frozenset("$`;&|<>()\n#")
"""Characters that mean something to a shell outside of single quotes."""

_MEANT_IN_DOUBLE = frozenset("$`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted:
    """A word, and where it stands in the text."""

    text: str
    start: int
    end: int


def split(text: str) -> list[Quoted]:
    """Take the text apart as a shell does.

    Raises:
        ValueError: It holds what a shell would expand, or a quote that is not closed.
    """
    words: list[Quoted] = []
    at = 0
    while at < len(text):
        if text[at] in " \t":
            at += 1
            continue
        start, value = at, ""
        while at < len(text) and text[at] not in " \t":
            part, at = _part(text, at)
            value += part
        words.append(Quoted(text=value, start=start, end=at))
    return words


def _part(text: str, at: int) -> tuple[str, int]:
    """The next piece of a word, and where it ends."""
    char = text[at]
    if char == "'":
        close = text.find("'", at + 1)
        if close < 0:
            raise ValueError("it has a single quote that is not closed; close it")
        return text[at + 1 : close], close + 1
    if char == '"':
        return _double(text, at + 1)
    if char == "\\":
        return text[at + 1 : at + 2], at + 2
    if char in _EXPANDED:
        raise ValueError(f"it has {char!r}, which the shell acts on; put it in single quotes")
    return char, at + 1


def _double(text: str, at: int) -> tuple[str, int]:
    value = ""
    while at < len(text):
        char = text[at]
        if char == '"':
            return value, at + 1
        if char == "\\" and text[at + 1 : at + 2] in {"$", "`", '"', "\\"}:
            at += 1
            char = text[at]
        elif char in _MEANT_IN_DOUBLE:
            raise ValueError(
                f"it has {char!r} in double quotes, which the shell acts on; use single"
            )
        value += char
        at += 1
    raise ValueError("it has a double quote that is not closed; close it")


def without_flags(text: str) -> str:
    """The text without flags of speculation and their values; the rest to the letter.

    Raises:
        ValueError: See `split`, or an abbreviation that is ambiguous.
    """
    words = split(text)
    plain_words = [plain(word.text) for word in words]
    kept, cut, index = "", 0, 0
    while index < len(words):
        taken = width(plain_words, index)
        if taken:
            last = min(index + taken, len(words)) - 1
            kept += text[cut : words[index].start].rstrip(" \t")
            cut = words[last].end
        index += taken or 1
    return (kept + text[cut:]).lstrip(" \t") if kept or cut else text


def with_flags(text: str, arguments: Sequence[str]) -> str:
    """The text with arguments at its end, each in literal quotes."""
    return " ".join([text, *map(shlex.quote, arguments)]).lstrip(" \t")
