"""A word of a command line that remembers what is not known about it.

Some of a container's command line is only decided where it runs: a variable from a Secret, the
output of a command. Such a word must not be mistaken for text.
"""

from dataclasses import dataclass, field

WIRED = "\ufdd0"
"""Stands for the value of the steered variable, where it arrives unharmed. A noncharacter."""

MANGLED = "\ufdd1"
"""The same where the shell would take the value apart: outside quotes, or spliced into double
quotes before the shell sees it."""

RESERVED = frozenset((WIRED, MANGLED))


class CommandLineError(ValueError):
    """A command line that cannot be understood; the message says which part, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word.

    Attributes:
        text: Its text; what is not known is left out of it.
        unknown: What is not known in it, as written (`$EXTRA`), "" when all is known.
        splits: The unknown part may become several words, or none.
        at: Its place in the container's command line; -1 when it has none. A script is one place.
        variables: Names of the variables that are part of it.
    """

    text: str
    unknown: str = ""
    splits: bool = False
    at: int = field(default=-1, compare=False)
    variables: tuple[str, ...] = field(default=(), compare=False)


def plain(text: str) -> Word:
    """A word that is fully known."""
    return Word(text=text)
