"""The end of a body, in whatever pieces it comes; h11 says what is right."""

import itertools

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.fleets.local.framing import ChunkedBody, CountedBody, EndlessBody, FramingError


def pieces(data, cuts):
    at = sorted({min(c, len(data)) for c in cuts} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(at)]


def chunked(parts, *, trailer=b"", extension=b""):
    body = b"".join(b"%x%s\r\n%s\r\n" % (len(p), extension, p) for p in parts if p)
    return body + b"0\r\n" + trailer + b"\r\n"


def h11_reads(body):
    """Bytes that h11 takes for the body, by what it leaves over."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "h")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
    while not isinstance(connection.next_event(), h11.EndOfMessage):
        pass
    return len(body) - len(connection.trailing_data[0])


@given(
    parts=st.lists(st.binary(max_size=40), max_size=6),
    trailer=st.sampled_from([b"", b"X-Sum: 1\r\n", b"A: b\r\nC: d\r\n"]),
    extension=st.sampled_from([b"", b";a=b", b';a="b"']),
    after=st.binary(max_size=20),
    cuts=st.lists(st.integers(0, 300), max_size=12),
)
def test_a_chunked_body_ends_where_h11_says(parts, trailer, extension, after, cuts):
    data = chunked(parts, trailer=trailer, extension=extension) + after
    body = ChunkedBody()
    taken = 0
    for piece in pieces(data, cuts):
        if not body.done:
            taken += body.feed(piece)
    assert body.done
    assert taken == len(data) - len(after) == h11_reads(data)


@pytest.mark.parametrize("bad", [b"xyz\r\n", b"-5\r\nab", b"\r\n", b"0x10\r\n", b"9" * 9000])
def test_a_line_that_is_no_size_is_refused(bad):
    with pytest.raises(FramingError):
        ChunkedBody().feed(bad)


@given(length=st.integers(0, 100), cuts=st.lists(st.integers(0, 150), max_size=5))
def test_a_counted_body_ends_after_its_count(length, cuts):
    body = CountedBody(length)
    data = b"x" * 150
    taken = sum(body.feed(piece) for piece in pieces(data, cuts))
    assert taken == length
    assert body.done


def test_an_endless_body_takes_all():
    body = EndlessBody()
    assert body.feed(b"abc") == 3
    assert not body.done
