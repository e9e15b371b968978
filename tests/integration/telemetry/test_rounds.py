"""What a round asks of Prometheus, however many ask for whatever, and what it makes of trouble."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from specpilot.domain.ports import Ask
from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import TargetRef
from specpilot.telemetry.portions import MOST_QUERIES
from specpilot.telemetry.promql import MOST_PARTS
from tests.integration.telemetry.rounds import (
    JSON,
    SETTLED_S,
    Prometheus,
    Rounds,
    moment_of,
    pod_named,
    text_of,
)
from tests.integration.telemetry.servers import Answer, Seen, serving
from tests.unit.telemetry.builders import END, FrozenClock, ask


def _question(*names: str, seconds: float = 300.0, key: str = "k") -> Ask:
    return ask(*(pod_named(name) for name in names or ("a",)), seconds=seconds, key=key)


def test_policies_windows_and_pods_cost_no_further_queries() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server)
        asks = [
            ask(
                *(pod_named(f"pod-{n}-{i}", f"team-{n % 7}") for i in range(10)),
                key=f"k{n}",
                target=TargetRef(kind="Deployment", namespace=f"team-{n % 7}", name=f"t{n}"),
                seconds=60 + n,
            )
            for n in range(40)
        ]
        rounds.round(*asks)
        steady = rounds.round(*asks)
        newest = max(moment_of(seen) for seen in steady)
        assert len([seen for seen in steady if moment_of(seen) == newest]) == 2
        assert len(steady) == 5, "and one look back, whose gauges are of the time until the first"
        assert {seen.path for seen in steady} == {"/api/v1/query"}
        assert all(f"team-{n}" in steady[0].asked["query"] for n in range(7))


def test_two_rounds_after_a_start_a_whole_window_is_known() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server)
        rounds.round(_question())
        assert rounds.reading("tokens_per_second").reason is UnknownReason.TOO_FEW_SAMPLES
        seen = rounds.round(_question())
        asked = {END.timestamp() - 300, END.timestamp() + 15 - 300}
        assert asked & {moment_of(each) for each in seen}, "one look back, to the start of a window"
        tokens = rounds.reading("tokens_per_second")
        assert tokens.value == pytest.approx(3.0)
        running = rounds.reading("batch_size")
        assert running.value == pytest.approx(4.0)
        latency = rounds.reading("e2e_mean")
        assert latency.value == pytest.approx(0.5)
        assert latency.count == pytest.approx(315 - SETTLED_S, abs=16)


def test_counts_are_exact_where_increase_would_extrapolate() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server)
        for _ in range(10):
            rounds.round(_question(seconds=60), after_s=15.0)
        requests = rounds.reading("e2e_mean", seconds=60).count
        assert requests == 60, "five samples, 15 s apart"


def test_a_pod_younger_than_the_window_is_not_looked_for_before_it_was() -> None:
    with serving(Prometheus(since=END.timestamp() + 10)) as server:
        rounds = Rounds(server)
        for _ in range(4):
            rounds.round(_question())
        assert rounds.reading("tokens_per_second").value == pytest.approx(3.0)


def test_a_large_fleet_is_asked_for_in_shares() -> None:
    pods = [("serving", f"chat-{n:05}-{'bcdfghjklmnpqrst'[n % 16]}") for n in range(200)]
    with serving(Prometheus(pods=pods, limit=65)) as server:
        rounds = Rounds(server)
        question = _question(*(name for _, name in pods))
        told = []
        for _ in range(9):
            rounds.round(question)
            assert rounds.source.queries <= MOST_QUERIES, "the two for GPUs make it 16"
            found = rounds.source.collect([ask(*question.replicas, end=rounds.clock.at)])["k"]
            told.append(found["tokens_per_second"])
        assert "too many samples" in told[0].message
        assert told[-1].value == pytest.approx(600.0), "no pod is lost between the shares"
        shares = {m[1] for s in server.seen if (m := re.search(r'pod=~"([^"]*)"', text_of(s)))}
        assert len(shares) <= 2 + 4 + MOST_PARTS


def test_buckets_are_fetched_when_somebody_asks_for_a_percentile() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server)
        plain = ask(pod_named("a"), seconds=60)
        cheap = Ask(
            key="k",
            target=plain.target,
            replicas=plain.replicas,
            start=plain.start,
            end=plain.end,
            signals=frozenset({"batch_size", "e2e_mean"}),
        )
        for _ in range(6):
            assert not any("_bucket" in text_of(seen) for seen in rounds.round(cheap))
        assert rounds.reading("e2e_p99", seconds=60).reason is UnknownReason.TOO_FEW_SAMPLES
        for _ in range(5):
            rounds.round(plain)
        late = rounds.reading("e2e_p99", seconds=30)
        assert late.known, late.message
        assert (late.low, late.high) == (0.0, 1.0)


def test_a_signal_asked_for_later_is_fetched_from_then_on_and_says_so() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server)
        plain = ask(pod_named("a"), seconds=60)
        cheap = replace(plain, signals=frozenset({"batch_size"}))
        for _ in range(6):
            cheap = replace(
                cheap, end=rounds.clock.at, start=rounds.clock.at - timedelta(seconds=60)
            )
            seen = rounds.round(cheap)
            assert not any("e2e_request" in text_of(each) for each in seen)
        for _ in range(2):
            reading = rounds.reading("e2e_mean", seconds=60)
            assert reading.reason is UnknownReason.TOO_FEW_SAMPLES
            assert "from now on" in reading.message
            rounds.round(plain)
        for _ in range(5):
            rounds.round(plain)
        assert rounds.reading("e2e_mean", seconds=30).known


def test_the_past_is_looked_at_with_a_clock_of_the_past() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server, clock=FrozenClock(END - timedelta(days=3)))
        for _ in range(3):
            rounds.round(_question(seconds=30))
        assert rounds.reading("tokens_per_second", seconds=30).value == pytest.approx(3.0)
        latest = max(moment_of(seen) for seen in server.seen)
        assert latest == rounds.clock.at.timestamp() - SETTLED_S


def test_the_future_is_refused() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server)
        rounds.round(_question())
        question = ask(pod_named("a"), end=rounds.clock.at + timedelta(seconds=9))
        found = rounds.source.collect([question])["k"]["batch_size"]
        assert found.reason is UnknownReason.SOURCE_ERROR
        assert "future" in found.message


def test_a_pod_of_another_namespace_is_not_mistaken() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server)
        for _ in range(3):
            rounds.round(ask(pod_named("a"), pod_named("a", "other")))
        elsewhere = ask(pod_named("a", "other"), end=rounds.clock.at)
        found = rounds.source.collect([elsewhere])["k"]["batch_size"]
        assert found.reason is UnknownReason.NO_DATA
        assert "PodMonitor" in found.message
        assert rounds.reading("batch_size").known


@dataclass(frozen=True)
class Trouble:
    reason: str
    answer: Answer
    says: str


TROUBLE = [
    Trouble("down for good", Answer(b"nope", status=503), "503"),
    Trouble("a login page", Answer(b"<html>hello</html>"), "does not answer like Prometheus"),
    Trouble(
        "no vector",
        Answer(
            b'{"status":"success","data":{"resultType":"scalar","result":[0,"7"]}}',
            content_type=JSON,
        ),
        "does not answer like Prometheus",
    ),
    Trouble("silence", Answer(delay_s=8.0), "did not answer within"),
]


@pytest.mark.parametrize("case", TROUBLE, ids=lambda case: case.reason)
def test_trouble_is_told_and_never_a_number(case: Trouble) -> None:
    with serving(case.answer) as server:
        rounds = Rounds(server)
        rounds.round(_question("a", "b"))
        found = rounds.source.collect([ask(pod_named("a"), pod_named("b"), end=rounds.clock.at)])[
            "k"
        ]
    measured = [r for n, r in found.items() if n != "replicas_ready" and not n.startswith("gpu")]
    assert {r.reason for r in measured} == {UnknownReason.SOURCE_ERROR}
    assert case.says in found["tpot_mean"].message
    assert len(found["tpot_mean"].message) < 700


def test_numbers_survive_a_failed_round_until_they_are_old() -> None:
    prometheus = Prometheus()
    broken: list[Answer] = []
    with serving(lambda request: broken[0] if broken else prometheus(request)) as server:
        rounds = Rounds(server)
        for _ in range(4):
            rounds.round(_question(seconds=60))
        broken.append(Answer(b"<html>", status=502))
        rounds.round(_question(seconds=60))
        assert rounds.reading("batch_size", seconds=60).known
        rounds.round(_question(seconds=60), after_s=45.0)
        stale = rounds.reading("batch_size", seconds=60)
        assert stale.reason is UnknownReason.STALE
        assert "502" in stale.message
        broken.clear()
        rounds.round(_question(seconds=60))
        assert rounds.reading("batch_size", seconds=120).known


def test_a_percentile_of_a_few_is_asked_of_those_few_and_forgotten_when_nobody_asks() -> None:
    """Forty pods under way, one canary: its buckets come with one more query, and go again."""
    pods = [("serving", f"pod-{n}") for n in range(40)]
    with serving(Prometheus(pods=pods)) as server:
        rounds = Rounds(server)
        resting = replace(_question(*(name for _, name in pods)), signals=frozenset({"e2e_mean"}))

        def canary() -> Ask:
            signals = frozenset({"e2e_p50", "e2e_mean"})
            return replace(
                ask(pod_named("pod-7"), end=rounds.clock.at, seconds=60), signals=signals
            )

        rounds.round(resting)
        assert not [seen for seen in rounds.round(resting) if "_bucket" in text_of(seen)]
        first = rounds.source.collect([canary()])["k"]["e2e_p50"]
        assert first.reason is UnknownReason.TOO_FEW_SAMPLES
        assert "fetched from now on" in first.message
        for _ in range(6):
            seen = rounds.round(resting, canary())
        (named,) = [each for each in seen if "_bucket" in text_of(each)]
        assert 'pod=~"pod-7"' in text_of(named)
        assert rounds.source.collect([canary()])["k"]["e2e_p50"].value == pytest.approx(0.5)
        after = [rounds.round(resting) for _ in range(12)]
        assert not [each for each in after[-1] if "_bucket" in text_of(each)]
        again = rounds.source.collect([canary()])["k"]
        assert again["e2e_p50"].reason is UnknownReason.TOO_FEW_SAMPLES
        assert again["e2e_mean"].count == pytest.approx(60, abs=16), "all else went on meanwhile"


def test_a_look_back_that_fails_takes_nothing_from_what_is_seen_now() -> None:
    prometheus = Prometheus()
    with serving(prometheus) as server:
        rounds = Rounds(server)
        rounds.round(_question())
        rounds.round(_question(), after_s=15.0)
        answers, refused = server.answer, []

        def no_past(request: Seen) -> Answer:
            if moment_of(request) < rounds.clock.at.timestamp() - 60:
                refused.append(request)
                return Answer(b"no", status=503)
            return answers(request)

        server.answer = no_past
        for _ in range(3):
            rounds.round(_question(seconds=3000.0), after_s=15.0)
        assert 0 < len(refused) <= 2, "one try, repeated once: then it is left for a while"
        found = rounds.reading("tokens_per_second", seconds=30)
        assert found.known
        assert found.message == "Prometheus", "no trouble is told"
