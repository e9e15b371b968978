"""The gateway between real sockets: what it passes on, what it refuses, what it never does."""

import json
import socket
import threading
import time
from contextlib import contextmanager

import httpx
import pytest

from specpilot.fleets.local.gateway import Gateway
from specpilot.fleets.local.routing import Router
from tests.integration.local.support import eventually

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


class Replica:
    """A server that does with each connection what the test says."""

    def __init__(self, serve):
        self.serve = serve
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.socket.getsockname()[1]
        self.heads = []
        self.closed = threading.Event()
        self.threads = []
        self.accepting = threading.Thread(target=self._accept)
        self.accepting.start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._handle, args=(connection,))
            thread.start()
            self.threads.append(thread)

    def _handle(self, connection):
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                data = connection.recv(65536)
                if not data:
                    return
                head += data
            self.heads.append(head)
            try:
                self.serve(connection, head)
            except OSError:
                self.closed.set()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for thread in (self.accepting, *self.threads):
            thread.join(10)


@contextmanager
def gateway(*serve):
    """A gateway before replicas; yields it, its router and the replicas."""
    router = Router()
    replicas = [Replica(each) for each in serve]
    front = Gateway(router, name="chat", host="127.0.0.1", port=0)
    front.start()
    for n, replica in enumerate(replicas):
        router.offer(f"r{n}", host="127.0.0.1", port=replica.port)
    try:
        yield front, router, replicas
    finally:
        front.stop(drain=1)
        for replica in replicas:
            replica.close()


def says(answer):
    return lambda connection, _head: connection.sendall(answer)


def connected(front):
    return socket.create_connection(("127.0.0.1", front.port), timeout=20)


def read_until(client, text):
    got = b""
    while not got.endswith(text):
        data = client.recv(65536)
        assert data, f"the connection ended after {got[-200:]!r}"
        got += data
    return got


def raw(front, request, *, until=None):
    """Send bytes, return all that comes until the end, or until a text has come."""
    with connected(front) as client:
        client.sendall(request)
        got = b""
        while until is None or until not in got:
            data = client.recv(65536)
            if not data:
                break
            got += data
        return got


def test_status_headers_and_body_pass_and_hop_by_hop_headers_do_not():
    answer = (
        b"HTTP/1.1 418 Odd\r\nX-Request-Id: 7\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
        b"Keep-Alive: timeout=9\r\nConnection: X-Hop\r\nX-Hop: 1\r\nContent-Length: 3\r\n\r\nabc"
    )
    with gateway(says(answer)) as (front, router, (replica,)):
        request = (
            b"POST /v1/x?y=1 HTTP/1.1\r\nHost: model.example\r\nAuthorization: Bearer t\r\n"
            b"Connection: X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\nContent-Length: 4\r\n\r\nbody"
        )
        got = raw(front, request, until=b"abc")
    assert got.startswith(b"HTTP/1.1 418 Odd\r\n")
    assert b"X-Request-Id: 7\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n" in got
    assert b"X-Specpilot-Replica: r0\r\n" in got
    assert b"Keep-Alive" not in got
    assert b"X-Hop" not in got
    (sent,) = replica.heads
    assert sent.startswith(b"POST /v1/x?y=1 HTTP/1.1\r\nHost: model.example\r\n")
    assert b"Authorization: Bearer t\r\n" in sent
    assert b"X-Mine" not in sent
    assert b"TE:" not in sent
    assert sent.endswith(b"\r\n\r\nbody")
    assert router.outstanding("r0") == 0


def test_a_stream_passes_piece_by_piece():
    go_on = threading.Event()

    def serve(connection, head):
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"
        )
        assert go_on.wait(10)
        connection.sendall(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")

    with gateway(serve) as (front, router, _):
        with httpx.stream("GET", front.url, timeout=10) as answer:
            pieces = answer.iter_raw()
            assert next(pieces) == b"data: 1\n\n", "before the replica has said more"
            assert router.outstanding("r0") == 1
            go_on.set()
            assert b"".join(pieces) == b"data: 2\n\n"
        eventually(lambda: router.outstanding("r0") == 0, lambda: "still counted")


def test_a_client_that_goes_away_cancels_its_request():
    def serve(connection, head):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"1\r\nx\r\n")
            time.sleep(0.01)

    with gateway(serve) as (front, router, (replica,)):
        raw(front, GET, until=b"x")
        assert replica.closed.wait(10), "the replica goes on generating"
        eventually(lambda: router.outstanding("r0") == 0, lambda: "still counted")


def test_a_client_that_goes_away_while_it_waits_cancels_its_request():
    def serve(connection, head):
        connection.settimeout(10)
        assert connection.recv(1) == b""
        raise ConnectionError

    with gateway(serve) as (front, _, (replica,)):
        with socket.create_connection(("127.0.0.1", front.port)) as client:
            client.sendall(GET)
            eventually(lambda: replica.heads, lambda: "no request")
        assert replica.closed.wait(10)


def test_a_refused_connection_is_tried_elsewhere():
    def serve(connection, head):
        left = 200_000 - len(head.partition(b"\r\n\r\n")[2])
        while left:
            left -= len(connection.recv(left))
        connection.sendall(OK)

    with gateway(serve) as (front, router, _):
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]
        router.offer("gone", host="127.0.0.1", port=port)
        with httpx.Client() as client:
            for _ in range(6):
                answer = client.post(front.url, content=b"x" * 200_000)
                assert answer.text == "ok"
                assert answer.headers["x-specpilot-replica"] == "r0"
        assert router.outstanding("gone") == 0


def test_a_request_that_was_taken_is_not_sent_again():
    with gateway(lambda *_: None) as (front, router, (replica,)):
        router.offer("other", host="127.0.0.1", port=replica.port)
        answer = httpx.get(front.url)
        assert answer.status_code == 502
        assert "closed the connection" in answer.json()["error"]["message"]
        assert len(replica.heads) == 1


def test_an_answer_cut_short_does_not_look_complete():
    cut = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    short = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"
    for answer in (cut, short):
        with gateway(says(answer)) as (front, _, _), pytest.raises(httpx.HTTPError):
            httpx.get(front.url)


def test_without_a_ready_replica_the_answer_is_503_and_when_to_come_back():
    with gateway() as (front, _, _):
        answer = httpx.post(front.url, content=b"x" * 500_000)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert answer.json()["error"]["code"] == 503
    assert "no replica of this group is ready" in answer.json()["error"]["message"]


def test_a_refusal_waits_for_the_rest_of_the_request():
    """Closing on a half-read request would reset the connection, and the answer with it."""
    with gateway() as (front, _, _), connected(front) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345")
        assert client.recv(65536).startswith(b"HTTP/1.1 503 ")
        client.sendall(b"67890")
        assert client.recv(1) == b"", "then it closes"


def test_an_answer_may_come_before_the_request_is_complete():
    with gateway(says(OK)) as (front, _, _), connected(front) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345")
        read_until(client, b"ok")
        client.sendall(b"67890" + GET)
        read_until(client, b"ok")


def test_the_replica_with_the_fewest_requests_is_chosen():
    release = threading.Event()

    def slow(connection, head):
        release.wait(10)
        connection.sendall(OK)

    with gateway(slow, says(OK)) as (front, router, _):
        router.withdraw("r1")
        waiting = threading.Thread(target=lambda: httpx.get(front.url, timeout=20))
        waiting.start()
        eventually(lambda: router.outstanding("r0") == 1, lambda: "not there")
        router.offer("r1", host="", port=0)
        served = {httpx.get(front.url).headers["x-specpilot-replica"] for _ in range(5)}
        release.set()
        waiting.join()
    assert served == {"r1"}


def test_one_connection_serves_many_requests_also_when_sent_ahead():
    with gateway(says(OK)) as (front, _, (replica,)):
        got = raw(front, GET * 20 + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert got.count(b"\r\n\r\nok") == 21
        assert len(replica.heads) == 21
        assert got.count(b"Connection: close") == 1


@pytest.mark.parametrize(
    ("answer", "method"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"GET"),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b"GET"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"HEAD"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"GET"),
    ],
)
def test_answers_without_a_body_end_with_their_head(answer, method):
    with gateway(says(answer)) as (front, _, _):
        request = GET.replace(b"GET", method)
        last = request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        got = raw(front, request + last)
    assert got.count(b"HTTP/1.1 ") == 2
    assert got.endswith(b"\r\n\r\n")


def test_an_answer_that_ends_with_its_connection_ends_ours():
    answer = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nall there is"
    with gateway(says(answer)) as (front, _, _):
        got = raw(front, GET)
    assert b"\r\nConnection: close\r\n" in got
    assert got.endswith(b"\r\n\r\nall there is")


def test_much_data_passes_both_ways_and_a_slow_reader_holds_the_replica_back():
    size = 30_000_000
    sent = []

    def serve(connection, head):
        left = size - len(head.partition(b"\r\n\r\n")[2])
        while left:
            left -= len(connection.recv(1 << 20))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 100_000):
            connection.sendall(b"y" * 100_000)
            sent.append(100_000)

    with gateway(serve) as (front, _, _), connected(front) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size)
        client.sendall(b"x" * size)
        eventually(lambda: sent, lambda: "no answer")
        before = -1
        while sum(sent) != before:  # until it no longer moves
            before = sum(sent)
            time.sleep(0.3)
        assert before < size, "the gateway has swallowed all of it"
        head = read_until(client, b"y")
        got = len(head.partition(b"\r\n\r\n")[2])
        while got < size:
            data = client.recv(1 << 20)
            assert data
            got += len(data)
        assert got == size


def test_a_request_body_in_chunks_passes():
    with gateway(says(OK)) as (front, _, (replica,)):
        httpx.post(front.url, content=iter([b"abc", b"def"]))
        eventually(
            lambda: b"abc" in replica.heads[0] or len(replica.heads[0]), lambda: replica.heads
        )
    assert b"transfer-encoding: chunked" in replica.heads[0].lower()


def test_a_client_that_asks_first_is_told_to_go_on():
    with gateway(says(OK)) as (front, _, _), connected(front) as client:
        client.sendall(
            b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
        # As many bytes as that, no more: the replica may answer before it has read anything.
        assert client.recv(len(go_on), socket.MSG_WAITALL) == go_on
        client.sendall(b"hi")
        read_until(client, b"ok")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n", 501),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 200_000 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
    ],
)
def test_what_is_not_understood_is_refused(request_, status):
    with gateway(says(OK)) as (front, _, (replica,)):
        got = raw(front, request_)
        assert got.startswith(b"HTTP/1.1 %d " % status)
        json.loads(got.partition(b"\r\n\r\n")[2])
        assert replica.heads == []


@pytest.mark.parametrize(
    "answer", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
)
def test_an_answer_that_is_not_http_is_a_bad_gateway(answer):
    with gateway(says(answer)) as (front, _, _):
        assert httpx.get(front.url).status_code == 502


def test_stopping_lets_answers_finish():
    def slow(connection, head):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
        time.sleep(0.5)
        connection.sendall(b"cd")

    answers = []
    with gateway(slow) as (front, router, _):
        asking = threading.Thread(target=lambda: answers.append(httpx.get(front.url).text))
        asking.start()
        idle = socket.create_connection(("127.0.0.1", front.port))
        eventually(lambda: router.outstanding("r0") == 1, lambda: "not there")
        front.stop(drain=10)
        asking.join()
        with idle:
            assert idle.recv(1) == b""
    assert answers == ["abcd"]
