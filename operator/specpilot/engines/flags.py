"""Find the speculation flags among an engine's arguments, as its argument parser would.

Underscores for dashes, `--flag value` and `--flag=value`, `--flag.key`, and argparse's
abbreviations are all accepted by the engine, so they all count.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specpilot.engines import capabilities as table
from specpilot.engines.capabilities import Kind
from specpilot.engines.words import CommandLineError, Word

_LONG = frozenset({table.CONFIG_FLAG, *table.ALIAS_KEYS, *table.LEGACY_FLAGS})
_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_SAYS_FLAGS = re.compile(r"ARGS|FLAGS|OPTS|OPTIONS|EXTRA|@|\*", re.IGNORECASE)
_SHORTEST_ABBREVIATION = len("--spec-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One speculation flag with its value.

    Attributes:
        name: Its full name; `--speculative-config` for the dotted form and for `-sc`.
        written: As the user wrote it, for messages.
        value: Its value; empty for a switch.
        path: Keys of the dotted form, empty for the others.
        is_list: The dotted form that appends to a list (`--speculative-config.key+`).
        where: The file it stands in, "" for the command line.
    """

    name: str
    written: str
    value: Word
    path: tuple[str, ...] = ()
    is_list: bool = False
    where: str = ""

    @property
    def row(self) -> str:
        """Its name in the table of flags."""
        if self.path:
            return table.DOTTED_FLAG
        return "-sc" if self.written == "-sc" else self.name


def collect(words: Sequence[Word], *, where: str = "") -> list[Flag]:
    """Return the speculation flags in order.

    Raises:
        CommandLineError: A flag has no value, an abbreviation is ambiguous, or an unknown part of
            the command line may itself contain flags.
    """
    found: list[Flag] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word.text == "--" and not word.unknown:
            raise CommandLineError("a -- among the flags is not understood; remove it")
        if word.unknown:
            _refuse_if_flags(word, before=words[index - 2] if index > 1 else None)
        written, equals, text = word.text.partition("=")
        name, path, is_list = _name(written)
        if not name:
            continue
        if equals:
            value = replace(word, text=text)
        elif _takes_no_value(name):
            value = replace(word, text="", unknown="")
        else:
            value = _follower(words, index, written=written, any_text=bool(path))
            index += 1
        found.append(
            Flag(
                name=name,
                written=written,
                value=value,
                path=path,
                is_list=is_list,
                where=where,
            )
        )
    return found


def width(words: Sequence[Word], index: int) -> int:
    """Return how many words the speculation flag at an index takes; 0 when none stands there.

    Raises:
        CommandLineError: An abbreviation is ambiguous.
    """
    written, equals, _ = words[index].text.partition("=")
    name, _, _ = _name(written)
    if not name:
        return 0
    return 1 if equals or _takes_no_value(name) else 2


def _name(written: str) -> tuple[str, tuple[str, ...], bool]:
    """Full name, dotted path and list mark; an empty name when it is no speculation flag."""
    if written == "-sc":
        return table.CONFIG_FLAG, (), False
    if not written.startswith("--"):
        return "", (), False
    head, dot, keys = written.partition(".")
    head = "--" + head[2:].replace("_", "-")
    name = _completed(head)
    if not dot or name != table.CONFIG_FLAG:
        return ("" if dot else name), (), False
    return name, tuple(keys.removesuffix("+").split(".")), keys.endswith("+")


def _completed(head: str) -> str:
    """Complete an abbreviation as argparse does."""
    if head in _LONG:
        return head
    if len(head) < _SHORTEST_ABBREVIATION:
        return ""
    matches = sorted(name for name in _LONG if name.startswith(head))
    if not matches:
        return ""
    # The flags of before and after 0.8.3 never exist together but in 0.8.2.
    modern = [name for name in matches if name not in table.LEGACY_FLAGS]
    choice = modern or matches
    if len(choice) > 1 or any(other.startswith(head) for other in table.OTHER_SPEC_FLAGS):
        raise CommandLineError(f"{head} abbreviates {' and '.join(choice)}; write the flag in full")
    return choice[0]


def _takes_no_value(name: str) -> bool:
    row = table.LEGACY_FLAGS.get(name)
    return row is not None and row.kind is Kind.SWITCH


def _follower(words: Sequence[Word], index: int, *, written: str, any_text: bool) -> Word:
    if index < len(words):
        word = words[index]
        is_flag = word.text.startswith("-") and not _NUMBER.fullmatch(word.text)
        if any_text or not is_flag or " " in word.text:
            return word
    raise CommandLineError(f"{written} has no value after it; add one, or remove the flag")


def _refuse_if_flags(word: Word, *, before: Word | None) -> None:
    """Refuse a word of unknown content that may hold speculation flags.

    Where a flag expects its value, or as the model that comes first, it is taken for a value; a
    name such as EXTRA_ARGS says that it is more than that. Anywhere else it may be a flag, quoted
    or not.
    """
    if word.text.startswith("-") and "=" not in word.text:
        raise CommandLineError(
            f"{word.unknown} is part of the flag {word.text}... and is not known; write the flag "
            "in full"
        )
    expected = before is None or before.text.startswith("-")
    if word.text or (expected and not _SAYS_FLAGS.search(word.unknown)):
        return
    raise CommandLineError(
        f"{word.unknown} is not known and may contain speculation flags; give the variable a "
        "literal value in the manifest"
    )
