"""What a command line says beside speculation, as far as speculation depends on it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from specpilot.engines.words import Word

_MODEL = frozenset({"--model"})
_RANKS = re.compile(r"[0-9]{1,6}")
_DATA_PARALLEL = frozenset({"--data-parallel-size", "-dp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The rest of a command line.

    Attributes:
        model: The model that is served; "" when it is not known.
        data_parallel: Ranks of data parallelism, 1 when not stated; None when not known.
    """

    model: str = ""
    data_parallel: int | None = None


def launch_of(words: Sequence[Word], *, whole: bool = True) -> Launch:
    """Read the engine's words; of flags that are given twice, the last counts.

    Args:
        words: The words.
        whole: They are all; else what is not among them may stand in a file that is not known.
    """
    ranks = _last(words, _DATA_PARALLEL)
    not_stated = 1 if whole else None
    return Launch(
        model=_model(words),
        data_parallel=not_stated if ranks is None else _number(ranks),
    )


def _number(text: str) -> int | None:
    return int(text) if _RANKS.fullmatch(text) else None


def _model(words: Sequence[Word]) -> str:
    named = _last(words, _MODEL) or ""
    if named or not words:
        return named
    first = words[0]
    return "" if first.unknown or first.text.startswith("-") else first.text


def _last(words: Sequence[Word], names: frozenset[str]) -> str | None:
    """The value of a flag, "" when it is not known; None when the flag is not there."""
    found: str | None = None
    for index, word in enumerate(words):
        written, equals, text = word.text.partition("=")
        if not written.startswith("-") or written.replace("_", "-") not in names:
            continue
        value = Word(text=text, unknown=word.unknown) if equals else word
        if not equals:
            value = words[index + 1] if index + 1 < len(words) else Word(text="")
        found = "" if value.unknown else value.text
    return found
