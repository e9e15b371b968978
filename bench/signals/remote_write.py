"""Prometheus' remote-write protocol, as far as a loader needs it.

A message is protobuf in snappy's block format. Both are a few lines when nothing has to be
compressed: snappy allows a block that is one literal.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}

_TIME_SERIES, _LABEL, _SAMPLE = b"\x0a", b"\x0a", b"\x12"
_NAME, _VALUE = b"\x0a", b"\x12"
_NUMBER, _TIMESTAMP = b"\x09", b"\x10"
_LITERAL_OF_FOUR_BYTES = b"\xfc"


def time_series(labels: Mapping[str, str], samples: Iterable[tuple[int, float]]) -> bytes:
    """One series of a request; samples are (milliseconds since the epoch, number), in order."""
    parts = [
        _field(_LABEL, _field(_NAME, name.encode()) + _field(_VALUE, labels[name].encode()))
        for name in sorted(labels)
    ]
    parts += [
        _field(_SAMPLE, _NUMBER + struct.pack("<d", value) + _TIMESTAMP + _varint(at))
        for at, value in samples
    ]
    return _field(_TIME_SERIES, b"".join(parts))


def request(series: bytes) -> bytes:
    """The body of a request with these series, one after the other."""
    return (
        _varint(len(series)) + _LITERAL_OF_FOUR_BYTES + struct.pack("<I", len(series) - 1) + series
    )


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
