"""A command line without its speculation flags: what is the user's and stays, whatever is set."""

from collections.abc import Sequence

from specpilot.engines.commandline import shell_at
from specpilot.engines.flags import width
from specpilot.engines.words import CommandLineError, plain


def without_speculation(argv: Sequence[str]) -> list[str]:
    """Return the words that are no speculation flag and no value of one.

    Args:
        argv: Words as the manifest has them, of a plain command or a part of one.

    Raises:
        CommandLineError: The words are a script for a shell, or an abbreviation is ambiguous.
    """
    words = [plain(text) for text in argv]
    if shell_at(words) is not None:
        raise CommandLineError(
            "the engine is started by a shell script, in which no argument can be replaced safely; "
            "start it without a shell, or take the setting from the annotation"
        )
    kept: list[str] = []
    index = 0
    while index < len(argv):
        taken = width(words, index)
        if not taken:
            kept.append(argv[index])
        index += taken or 1
    return kept
