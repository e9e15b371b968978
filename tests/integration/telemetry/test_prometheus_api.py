"""The Prometheus source against a server that counts, lies, stalls and refuses."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import TargetRef
from specpilot.telemetry import PrometheusTelemetry
from specpilot.telemetry.promql import State
from tests.cluster.processes import free_port
from tests.integration.telemetry.servers import Answer, Seen, Server, serving
from tests.unit.telemetry.builders import END, FrozenClock, ask, replica


def vector(*elements: tuple[dict[str, str], float]) -> Answer:
    """A successful answer."""
    result = [{"metric": metric, "value": [0, str(value)]} for metric, value in elements]
    body = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return Answer(json.dumps(body).encode(), content_type="application/json")


def alive(request: Seen) -> Answer:
    """A Prometheus that knows the pods a and b of the namespace serving."""
    end = float(request.query["time"])
    if f'"{State.LIVE}"' not in request.query["query"]:
        return vector()
    terms = {State.LIVE: end, State.FIRST: end - 300, State.LAST: end, State.SAMPLES: 21}
    return vector(
        *(
            ({"namespace": "serving", "pod": pod, "job": "vllm", "series": term}, value)
            for pod in ("a", "b")
            for term, value in terms.items()
        )
    )


def client(server: Server, **options: object) -> PrometheusTelemetry:
    return PrometheusTelemetry(url=server.url, clock=FrozenClock(), **options)  # type: ignore[arg-type]


@pytest.fixture
def prometheus() -> Iterator[Server]:
    with serving(alive) as server:
        yield server


def test_six_queries_answer_a_window_however_many_ask(prometheus: Server) -> None:
    asks = [
        ask(
            *(replica(f"pod-{n}-{i}") for i in range(10)),
            key=f"k{n}",
            target=TargetRef(kind="Deployment", namespace=f"team-{n % 7}", name=f"t{n}"),
        )
        for n in range(40)
    ]
    found = client(prometheus).collect(asks)
    assert len(found) == 40
    assert len(prometheus.seen) == 6
    assert {seen.path for seen in prometheus.seen} == {"/api/v1/query"}
    text = prometheus.seen[0].query["query"]
    assert all(f"team\\\\-{n}" in text for n in range(7))


def test_a_roll_costs_four_times_as_many_at_most(prometheus: Server) -> None:
    fresh = [replica(f"p{i}", ready_since=END - timedelta(seconds=5 + 7 * i)) for i in range(42)]
    found = client(prometheus).collect([ask(replica("old"), *fresh)])["k"]
    assert len(prometheus.seen) == 4 * 6
    assert found["batch_size"].reason is UnknownReason.NO_DATA


def test_a_window_of_the_past_is_asked_for_at_its_end(prometheus: Server) -> None:
    end = END - timedelta(days=3)
    client(prometheus).collect([ask(replica("a"), end=end, seconds=120)])
    assert {float(seen.query["time"]) for seen in prometheus.seen} == {end.timestamp()}
    assert all("[120000ms]" in seen.query["query"] for seen in prometheus.seen)
    assert all(seen.query["partial_response"] == "false" for seen in prometheus.seen)


def test_the_future_is_refused(prometheus: Server) -> None:
    found = client(prometheus).collect([ask(replica("a"), end=END + timedelta(seconds=9))])["k"]
    assert found["batch_size"].reason is UnknownReason.SOURCE_ERROR
    assert "future" in found["batch_size"].message


def test_a_pod_of_another_namespace_is_not_mistaken(prometheus: Server) -> None:
    elsewhere = TargetRef(kind="Deployment", namespace="other", name="chat")
    asks = [ask(replica("a"), key="here"), ask(replica("a"), key="there", target=elsewhere)]
    found = client(prometheus).collect(asks)
    assert found["here"]["drafts"].reason is UnknownReason.NOT_EXPORTED
    assert found["there"]["drafts"].reason is UnknownReason.NO_DATA


@dataclass(frozen=True)
class Trouble:
    reason: str
    answer: Answer
    says: str


JSON = "application/json"
TROUBLE = [
    Trouble("down for good", Answer(b"nope", status=503), "HTTP Status Code 503"),
    Trouble("forbidden", Answer(b"no", status=403), "HTTP Status Code 403"),
    Trouble(
        "bad query",
        Answer(b'{"status":"error","error":"' + b"x" * 9000 + b'"}', status=400),
        "HTTP Status Code 400",
    ),
    Trouble("a login page", Answer(b"<html>hello</html>"), "does not answer like Prometheus"),
    Trouble("another API", Answer(b'{"ok":true}', content_type=JSON), "does not answer like"),
    Trouble("a list", Answer(b"[1,2]", content_type=JSON), "does not answer like Prometheus"),
    Trouble(
        "no vector",
        Answer(b'{"status":"success","data":{"result":[0,"7"]}}', content_type=JSON),
        "does not answer like Prometheus",
    ),
]


@pytest.mark.parametrize("case", TROUBLE, ids=lambda case: case.reason)
def test_trouble_is_told_and_never_a_number(case: Trouble) -> None:
    with serving(case.answer) as server:
        found = client(server).collect([ask(replica("a"), replica("b"))])["k"]
    measured = [r for r in found.values() if r.signal != "replicas_ready"]
    assert {r.reason for r in measured} == {UnknownReason.SOURCE_ERROR}
    assert case.says in found["tpot_mean"].message
    assert len(found["tpot_mean"].message) < 500
    assert len(server.seen) <= 2, "one retry"


def test_a_server_that_hangs_is_not_asked_again_for_every_window() -> None:
    with serving(Answer(delay_s=2.0)) as server:
        source = client(server, timeout_s=1, retries=0, deadline_s=10)
        asks = [ask(replica("a"), key=str(n), seconds=60 + n) for n in range(5)]
        found = source.collect(asks)
    assert len(server.seen) == 1
    messages = {readings["batch_size"].message for readings in found.values()}
    assert len(messages) == 1
    assert "no answer to a query within the timeout" in messages.pop()


def test_nobody_listens() -> None:
    port = free_port()
    source = PrometheusTelemetry(url=f"http://127.0.0.1:{port}/", clock=FrozenClock())
    reading = source.collect([ask(replica("a"))])["k"]["queue_depth"]
    assert reading.reason is UnknownReason.SOURCE_ERROR
    assert f"cannot reach 127.0.0.1:{port}: Connection refused" in reading.message


@pytest.mark.parametrize(
    "answer",
    [Answer(delay_s=3.0), replace(vector(), trickle_s=0.1)],
    ids=["silence", "a trickle that never times out"],
)
def test_the_deadline_holds_and_the_next_question_does_not_pile_up(answer: Answer) -> None:
    with serving(answer) as server:
        source = client(server, deadline_s=0.4, retries=0)
        started = time.monotonic()
        late = source.collect([ask(replica("a"))])["k"]["batch_size"]
        again = source.collect([ask(replica("a"))])["k"]["batch_size"]
        assert time.monotonic() - started < 2.0
        assert "did not answer within 0.4 s" in late.message
        assert "has not answered the last question yet" in again.message
        assert late.reason is again.reason is UnknownReason.SOURCE_ERROR
        assert len(server.seen) == 1


def test_secrets_are_sent_and_never_told(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t0ken-one\n")

    def echo(request: Seen) -> Answer:
        return Answer(json.dumps(request.headers).encode(), status=401)

    with serving(echo) as server:
        url = server.url.replace("http://", "http://user:pa55word@")
        source = PrometheusTelemetry(
            url=url,
            clock=FrozenClock(),
            headers={"X-Scope-OrgID": "tenant-seven"},
            bearer_token_file=token,
        )
        told = source.collect([ask(replica("a"))])["k"]["batch_size"].message
        token.write_text("t0ken-two")
        told += source.collect([ask(replica("a"))])["k"]["batch_size"].message
        token.unlink()
        lost = source.collect([ask(replica("a"))])["k"]["batch_size"]
    sent = [seen.headers["Authorization"] for seen in server.seen]
    assert sent == ["Bearer t0ken-one", "Bearer t0ken-two"]
    assert server.seen[0].headers["X-Scope-OrgID"] == "tenant-seven"
    for secret in ("pa55word", "tenant-seven", "t0ken"):
        assert secret not in told
    assert "cannot read the token file" in lost.message
    assert "No such file" in lost.message


@pytest.mark.parametrize("url", ["prometheus:9090", "", "ftp://x", "http://"])
def test_a_bad_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="Prometheus URL: write it as"):
        PrometheusTelemetry(url=url, clock=FrozenClock())
