"""Read a POSIX shell script just far enough to see which words a command gets.

Manifests often start the engine by `sh -c "... vllm serve ..."`. This reads quoting, variables,
comments, line continuations, operators and redirections, and refuses what would need a real shell
(here-documents, arithmetic, arrays). It runs nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specpilot.engines.words import MANGLED, WIRED, CommandLineError, Word

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_BRACED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(:?-)(.*))?", re.DOTALL)
_OPERATORS = frozenset(";&|\n()")
_BETWEEN_WORDS = _OPERATORS | frozenset(" \t\r<>")


def commands(
    script: str,
    *,
    env: Mapping[str, str],
    positional: Sequence[Word] = (),
    variable: str = "",
) -> list[list[Word]]:
    """Return the words of each simple command of a script, in order.

    Args:
        script: The text.
        env: Variables with known values; others are unknown, not empty.
        positional: `$1`, `$2` ...
        variable: The steered variable, whose value is kept apart from other text.

    Raises:
        CommandLineError: The script needs a real shell to be understood.
    """
    return _Reader(script, env=dict(env), positional=positional, variable=variable).read()


@dataclass(slots=True)
class _Draft:
    """The word being read."""

    text: list[str] = field(default_factory=list)
    unknown: str = ""
    splits: bool = False
    begun: bool = False
    variables: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.text.append(text)
        self.begun = True


def _joined(script: str) -> str:
    """The script without its line continuations, which a shell takes out before all else.

    In the middle of a variable's name too; but not in a comment or between single quotes, where
    they are none.
    """
    kept: list[str] = []
    at, quoted, before = 0, False, "\n"
    while at < len(script):
        if script.startswith("\\\n", at):
            at += 2
            continue
        char, end = script[at], at + 1
        if char == "\\":
            end += 1
        elif char == '"':
            quoted = not quoted
        elif char == "'" and not quoted:
            end = script.find("'", end) + 1 or len(script)
        elif char == "#" and not quoted and before in _BETWEEN_WORDS:
            end = script.find("\n", end)
            end = len(script) if end < 0 else end
        kept.append(script[at:end])
        before = char if char == "\\" else kept[-1][-1]
        at = end
    return "".join(kept)


class _Reader:
    def __init__(
        self, script: str, *, env: dict[str, str], positional: Sequence[Word], variable: str
    ) -> None:
        self._script = _joined(script)
        self._at = 0
        self._env = env
        self._positional = positional
        self._variable = variable
        self._commands: list[list[Word]] = []
        self._words: list[Word] = []
        self._word = _Draft()
        self._skip_word = False
        self._in_word = False  # as it is written: `$EMPTY` is in one, though it leaves no text

    def read(self) -> list[list[Word]]:
        while self._at < len(self._script):
            self._step(self._script[self._at])
        self._end_command()
        return self._commands

    def _step(self, char: str) -> None:
        self._at += 1
        was_in_word, self._in_word = self._in_word, char not in _BETWEEN_WORDS
        if char in " \t\r":
            self._end_word()
        elif char in _OPERATORS and not (char == "&" and self._peek() == ">"):
            self._end_command()
        elif char in "<>&":
            self._redirect(char)
        elif char == "#" and not was_in_word:
            end = self._script.find("\n", self._at)
            self._at = len(self._script) if end < 0 else end
        elif char == "'":
            self._word.add(self._until("'", what="single quote"))
        elif char == '"':
            self._double_quoted()
        elif char == "\\":
            self._word.add(self._next())
        elif char in "$`":
            self._expand(char, quoted=False)
        else:
            self._word.add(MANGLED if char == WIRED else char)

    def _peek(self) -> str:
        return self._script[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        self._at += 1
        return char

    def _until(self, end: str, *, what: str) -> str:
        close = self._script.find(end, self._at)
        if close < 0:
            raise CommandLineError(f"the shell script has a {what} that is not closed; close it")
        text = self._script[self._at : close]
        self._at = close + len(end)
        return text

    def _double_quoted(self) -> None:
        self._word.add("")
        while char := self._next():
            if char == '"':
                return
            if char == "\\" and self._peek() in {"$", "`", '"', "\\"}:
                self._word.add(self._next())
            elif char in "$`":
                self._expand(char, quoted=True)
            else:
                self._word.add(MANGLED if char == WIRED else char)
        raise CommandLineError("the shell script has a double quote that is not closed; close it")

    def _redirect(self, char: str) -> None:
        if "".join(self._word.text).isdigit():
            self._word = _Draft()  # the 2 of 2>
        self._end_word()
        operator = char
        while self._peek() in {"<", ">", "&", "|"}:
            operator += self._next()
        if operator.startswith("<<"):
            raise CommandLineError(
                "the shell script has a here-document, which is not read; start the engine "
                "without one"
            )
        self._skip_word = True

    def _expand(self, char: str, *, quoted: bool) -> None:
        if char == "`":
            self._unknown("`" + self._until("`", what="backquote") + "`", quoted=quoted)
            return
        after = self._peek()
        if after == "(":
            self._unknown(self._substitution(), quoted=quoted)
        elif after == "{":
            self._at += 1
            self._braced(self._until("}", what="${"), quoted=quoted)
        elif after in {"@", "*"}:
            self._at += 1
            self._all_positional(quoted=quoted)
        elif after.isdigit():
            self._at += 1
            number = int(after)
            if 0 < number <= len(self._positional):
                self._known(self._positional[number - 1].text, quoted=quoted)
            elif number == 0:
                self._unknown("$0", quoted=quoted)
        elif match := _NAME.match(self._script, self._at):
            self._at = match.end()
            self._variable_value(match.group(), written="$" + match.group(), quoted=quoted)
        elif after in {"?", "$", "#", "!", "-"}:
            self._at += 1
            self._unknown("$" + after, quoted=quoted)
        else:
            self._word.add("$")

    def _substitution(self) -> str:
        start, depth = self._at - 1, 0
        while char := self._next():
            depth += {"(": 1, ")": -1}.get(char, 0)
            if depth == 0:
                return self._script[start : self._at]
        raise CommandLineError("the shell script has a $( that is not closed; close it")

    def _braced(self, inside: str, *, quoted: bool) -> None:
        match = _BRACED.fullmatch(inside)
        if match is None:
            self._unknown("${" + inside + "}", quoted=quoted)
            return
        name, operator, default = match.groups()
        if operator == ":-" and self._env.get(name) == "" and "$" not in default:
            self._known(default, quoted=quoted)
            return
        self._variable_value(name, written="${" + inside + "}", quoted=quoted)

    def _variable_value(self, name: str, *, written: str, quoted: bool) -> None:
        self._word.variables.append(name)
        value = self._env.get(name)
        if value is None:
            self._unknown(written, quoted=quoted)
        elif name == self._variable:
            self._word.add(WIRED if quoted or self._is_assignment() else MANGLED)
        else:
            self._known(value, quoted=quoted)

    def _all_positional(self, *, quoted: bool) -> None:
        for index, word in enumerate(self._positional):
            if index:
                self._end_word()
            if quoted:
                self._word.add(word.text)
            else:
                self._known(word.text.replace(WIRED, MANGLED), quoted=False)

    def _is_assignment(self) -> bool:
        return not self._words and _ASSIGNMENT.match("".join(self._word.text)) is not None

    def _known(self, value: str, *, quoted: bool) -> None:
        if quoted or self._is_assignment():
            self._word.add(value)
            return
        value = value.replace(WIRED, MANGLED)
        parts = value.split()
        if not parts:
            return
        if value[0].isspace():
            self._end_word()
        for index, part in enumerate(parts):
            if index:
                self._end_word()
            self._word.add(part)
        if value[-1].isspace():
            self._end_word()

    def _unknown(self, written: str, *, quoted: bool) -> None:
        self._word.unknown = self._word.unknown or written
        self._word.splits = self._word.splits or not quoted
        self._word.begun = True

    def _end_word(self) -> None:
        word, self._word = self._word, _Draft()
        if not word.begun:
            return
        if self._skip_word:
            self._skip_word = False
            return
        self._words.append(
            Word(
                text="".join(word.text),
                unknown=word.unknown,
                splits=word.splits,
                variables=tuple(word.variables),
            )
        )

    def _end_command(self) -> None:
        self._end_word()
        self._skip_word = False
        words, self._words = self._words, []
        assigned = words[1:] if words and words[0].text == "export" else words
        matches = [(w, _ASSIGNMENT.fullmatch(w.text)) for w in assigned]
        if words and all(m is not None for _, m in matches):
            for word, match in matches:
                if match is not None:
                    self._assign(match.group(1), match.group(2), unknown=bool(word.unknown))
        elif words:
            self._commands.append(words)

    def _assign(self, name: str, value: str, *, unknown: bool) -> None:
        if unknown:
            self._env.pop(name, None)
        else:
            self._env[name] = value
