"""Where a message body ends, so that it can be passed on as it comes, without taking it apart.

Generated text arrives in many tiny chunks. Decoding and encoding each of them is most of what a
proxy costs; finding the end of the body is all that is needed.
"""

import re
from typing import Protocol

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?\r?\n?", re.DOTALL)
_LONGEST_LINE = 1 << 13


class FramingError(Exception):
    """The body is not framed as announced."""


class Body(Protocol):
    """A body passing by."""

    done: bool
    """All of it has passed."""

    def feed(self, data: bytes) -> int:
        """Return how many of these bytes belong to it.

        Raises:
            FramingError: They cannot belong to such a body.
        """
        ...


class CountedBody:
    """A body of a known length; none at all has length 0."""

    __slots__ = ("_left", "done")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def feed(self, data: bytes) -> int:
        """See `Body`."""
        taken = min(self._left, len(data))
        self._left -= taken
        self.done = self._left == 0
        return taken


class EndlessBody:
    """A body that ends with its connection."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def feed(self, data: bytes) -> int:
        """See `Body`."""
        return len(data)


class ChunkedBody:
    """A body in chunks (RFC 9112, section 7.1)."""

    __slots__ = ("_in_trailer", "_left", "_line", "done")

    def __init__(self) -> None:
        self._left = 0  # of the present chunk, its line end included
        self._line = b""  # begun, not ended
        self._in_trailer = False
        self.done = False

    def feed(self, data: bytes) -> int:
        """See `Body`."""
        position = 0
        while position < len(data) and not self.done:
            if self._left:
                taken = min(self._left, len(data) - position)
                self._left -= taken
                position += taken
                continue
            end = data.find(b"\n", position) + 1
            self._line += data[position : end or len(data)]
            if len(self._line) > _LONGEST_LINE:
                raise FramingError("a line between chunks is too long")
            if not end:
                return len(data)
            position = end
            self._line_ended()
        return position

    def _line_ended(self) -> None:
        line, self._line = self._line, b""
        if self._in_trailer:
            self.done = not line.strip()
            return
        match = _SIZE.fullmatch(line)
        if match is None:
            raise FramingError(f"{line[:40]!r} is not the size of a chunk")
        size = int(match[1], 16)
        self._in_trailer = size == 0
        self._left = size + 2 if size else 0
