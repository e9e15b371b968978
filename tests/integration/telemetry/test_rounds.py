"""What a round asks of Prometheus, however many ask for whatever, and what it makes of trouble."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from specpilot.domain.ports import Ask
from specpilot.domain.readings import Reading, UnknownReason
from specpilot.domain.targets import Replica, TargetRef
from specpilot.telemetry import PrometheusServer, PrometheusTelemetry
from specpilot.telemetry.portions import MOST_QUERIES
from specpilot.telemetry.promql import MOST_PARTS, State
from tests.integration.telemetry.servers import Answer, Seen, Server, serving
from tests.unit.telemetry.builders import END, FrozenClock, ask, replica

SETTLED_S = 1.0


def vector(*elements: tuple[dict[str, str], float]) -> Answer:
    """A successful answer."""
    result = [{"metric": metric, "value": [0, str(value)]} for metric, value in elements]
    body = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return Answer(json.dumps(body).encode(), content_type="application/json")


@dataclass
class Prometheus:
    """Knows pods by (namespace, name); their counter grows by 3 a second since the epoch."""

    pods: list[tuple[str, str]] = field(default_factory=lambda: [("serving", "a")])
    limit: int = 1_000_000  # most pods in one answer
    since: float = 0.0  # samples older than this are not there

    def __call__(self, request: Seen) -> Answer:
        query, at = request.asked["query"], float(request.asked["time"])
        share = re.search(r'pod=~"([^"]*)"', query)
        pods = [p for p in self.pods if share is None or re.fullmatch(share[1], p[1])]
        if at < self.since:
            pods = []
        if len(pods) > self.limit and "__name__, le" in query:
            error = "query processing would load too many samples into memory in query execution"
            body = {"status": "error", "errorType": "execution", "error": error}
            return Answer(json.dumps(body).encode(), status=422, content_type="application/json")
        return vector(
            *(
                ({"namespace": namespace, "pod": pod} | labels, value)
                for namespace, pod in pods
                for labels, value in self._of_pod(query, at)
            )
        )

    def _of_pod(self, query: str, at: float) -> list[tuple[dict[str, str], float]]:
        if State.LIVE in query:
            return [({"job": "vllm", "series": State.LIVE}, at)]
        if "_bucket" in query:
            name = "vllm:e2e_request_latency_seconds_bucket"
            return [({"__name__": name, "le": bound}, at) for bound in ("1.0", "+Inf")]
        gauges = [({"series": "num_requests_running"}, 4.0)] if "avg_over_time" in query else []
        if "process_start_time" not in query:
            return gauges
        return [
            *gauges,
            ({"__name__": "vllm:generation_tokens_total"}, 3 * at),
            ({"__name__": "vllm:e2e_request_latency_seconds_sum"}, at / 2),
            ({"__name__": "vllm:e2e_request_latency_seconds_count"}, at),
        ]


@dataclass
class Rounds:
    """A source whose rounds are taken one by one."""

    server: Server
    clock: FrozenClock = field(default_factory=FrozenClock)
    source: PrometheusTelemetry = field(init=False)

    def __post_init__(self) -> None:
        self.source = PrometheusTelemetry(
            server=PrometheusServer(url=self.server.url),
            clock=self.clock,
            interval_s=15.0,
            settle_s=SETTLED_S,
            deadline_s=5.0,
        )

    def round(self, *asks: Ask, after_s: float = 15.0) -> list[Seen]:
        """Let time pass, look, and return what was asked."""
        self.clock.at += timedelta(seconds=after_s)
        before = len(self.server.seen)
        self.source.track([r for each in asks for r in each.replicas])
        self.source.windows(asks, deadline_s=0.0)
        self.source.sample()
        return self.server.seen[before:]

    def reading(self, signal: str, *, seconds: float = 300.0, pod: str = "a") -> Reading:
        question = ask(_pod(pod), end=self.clock.at, seconds=seconds)
        return self.source.collect([question])["k"][signal]


def _pod(name: str, namespace: str = "serving") -> Replica:
    return replica(name, namespace=namespace)


def _question(*names: str, seconds: float = 300.0, key: str = "k") -> Ask:
    return ask(*(_pod(name) for name in names or ("a",)), seconds=seconds, key=key)


def test_policies_windows_and_pods_cost_no_further_queries() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server)
        asks = [
            ask(
                *(_pod(f"pod-{n}-{i}", f"team-{n % 7}") for i in range(10)),
                key=f"k{n}",
                target=TargetRef(kind="Deployment", namespace=f"team-{n % 7}", name=f"t{n}"),
                seconds=60 + n,
            )
            for n in range(40)
        ]
        rounds.round(*asks)
        steady = rounds.round(*asks)
        newest = max(_at(seen) for seen in steady)
        assert len([seen for seen in steady if _at(seen) == newest]) == 3
        assert len(steady) == 7, "and one look back, whose gauges are of the time until the first"
        assert {seen.path for seen in steady} == {"/api/v1/query"}
        assert all(f"team\\\\-{n}" in steady[0].asked["query"] for n in range(7))


def _at(seen: Seen) -> float:
    return float(seen.asked["time"])


def test_two_rounds_after_a_start_a_whole_window_is_known() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server)
        rounds.round(_question())
        assert rounds.reading("tokens_per_second").reason is UnknownReason.TOO_FEW_SAMPLES
        seen = rounds.round(_question())
        asked = {END.timestamp() - 300, END.timestamp() + 15 - 300}
        assert asked & {_at(each) for each in seen}, "one look back, to the start of a window"
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
        shares = {m[1] for s in server.seen if (m := re.search(r'pod=~"([^"]*)"', _query(s)))}
        assert len(shares) <= 2 + 4 + MOST_PARTS


def _query(seen: Seen) -> str:
    return seen.asked["query"]


def test_buckets_are_fetched_when_somebody_asks_for_a_percentile() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server)
        plain = ask(_pod("a"), seconds=60)
        cheap = Ask(
            key="k",
            target=plain.target,
            replicas=plain.replicas,
            start=plain.start,
            end=plain.end,
            signals=frozenset({"batch_size", "e2e_mean"}),
        )
        for _ in range(6):
            assert not any("_bucket" in _query(seen) for seen in rounds.round(cheap))
        assert rounds.reading("e2e_p99", seconds=60).reason is UnknownReason.TOO_FEW_SAMPLES
        for _ in range(5):
            rounds.round(plain)
        late = rounds.reading("e2e_p99", seconds=30)
        assert late.known, late.message
        assert (late.low, late.high) == (0.0, 1.0)


def test_a_signal_asked_for_later_is_fetched_from_then_on_and_says_so() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server)
        plain = ask(_pod("a"), seconds=60)
        cheap = replace(plain, signals=frozenset({"batch_size"}))
        for _ in range(6):
            cheap = replace(
                cheap, end=rounds.clock.at, start=rounds.clock.at - timedelta(seconds=60)
            )
            seen = rounds.round(cheap)
            assert not any("e2e_request" in _query(each) for each in seen)
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
        latest = max(_at(seen) for seen in server.seen)
        assert latest == rounds.clock.at.timestamp() - SETTLED_S


def test_the_future_is_refused() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server)
        rounds.round(_question())
        question = ask(_pod("a"), end=rounds.clock.at + timedelta(seconds=9))
        found = rounds.source.collect([question])["k"]["batch_size"]
        assert found.reason is UnknownReason.SOURCE_ERROR
        assert "future" in found.message


def test_a_pod_of_another_namespace_is_not_mistaken() -> None:
    with serving(Prometheus()) as server:
        rounds = Rounds(server)
        for _ in range(3):
            rounds.round(ask(_pod("a"), _pod("a", "other")))
        elsewhere = ask(_pod("a", "other"), end=rounds.clock.at)
        found = rounds.source.collect([elsewhere])["k"]["batch_size"]
        assert found.reason is UnknownReason.NO_DATA
        assert "PodMonitor" in found.message
        assert rounds.reading("batch_size").known


@dataclass(frozen=True)
class Trouble:
    reason: str
    answer: Answer
    says: str


JSON = "application/json"
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
        found = rounds.source.collect([ask(_pod("a"), _pod("b"), end=rounds.clock.at)])["k"]
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
            return replace(ask(_pod("pod-7"), end=rounds.clock.at, seconds=60), signals=signals)

        rounds.round(resting)
        assert not [seen for seen in rounds.round(resting) if "_bucket" in _query(seen)]
        first = rounds.source.collect([canary()])["k"]["e2e_p50"]
        assert first.reason is UnknownReason.TOO_FEW_SAMPLES
        assert "fetched from now on" in first.message
        for _ in range(6):
            seen = rounds.round(resting, canary())
        (named,) = [each for each in seen if "_bucket" in _query(each)]
        assert 'pod=~"pod-7"' in _query(named)
        assert rounds.source.collect([canary()])["k"]["e2e_p50"].value == pytest.approx(0.5)
        after = [rounds.round(resting) for _ in range(12)]
        assert not [each for each in after[-1] if "_bucket" in _query(each)]
        again = rounds.source.collect([canary()])["k"]
        assert again["e2e_p50"].reason is UnknownReason.TOO_FEW_SAMPLES
        assert again["e2e_mean"].count == pytest.approx(60, abs=16), "all else went on meanwhile"


@dataclass
class Large(Rounds):
    """Replicas in three namespaces, which are looked at one after the other."""

    teams: tuple[str, ...] = ("blue", "green", "red")
    each: int = 0

    def __post_init__(self) -> None:
        self.source = PrometheusTelemetry(
            server=PrometheusServer(url=self.server.url),
            clock=self.clock,
            interval_s=15.0,
            settle_s=0.0,
            deadline_s=30.0,
            most_portions=3,
        )

    def asks(self, *, signals: frozenset[str]) -> list[Ask]:
        return [
            replace(
                ask(
                    *(_pod(f"{team}-{n:04d}", team) for n in range(self.each)),
                    key=team,
                    target=TargetRef(kind="Deployment", namespace=team, name="chat"),
                    seconds=60,
                    end=self.clock.at,
                ),
                signals=signals,
            )
            for team in self.teams
        ]

    def pods(self) -> list[tuple[str, str]]:
        return [(team, f"{team}-{n:04d}") for team in self.teams for n in range(self.each)]

    def look(self, portion: int) -> list[Seen]:
        """A third of the interval goes by, and a portion is looked at."""
        self.clock.at += timedelta(seconds=5)
        before = len(self.server.seen)
        self.source.sample(portion)
        return self.server.seen[before:]


def _only(server: Server, prometheus: Prometheus) -> None:
    """Have the server know namespaces, too."""

    def answer(request: Seen) -> Answer:
        pattern = re.search(r'namespace=~?"([^"]*)"', _query(request))
        assert pattern
        names = pattern[1].replace("\\", "").split("|")
        pods = [(namespace, pod) for namespace, pod in prometheus.pods if namespace in names]
        return replace(prometheus, pods=pods)(request)

    server.answer = answer


@pytest.fixture
def worth(monkeypatch: pytest.MonkeyPatch) -> int:
    """Replicas that are worth a look of their own: so few that answers are short."""
    monkeypatch.setattr("specpilot.telemetry.portions.WORTH", 20)
    return 20


def test_a_large_fleet_is_looked_at_a_portion_at_a_time(worth: int) -> None:
    """And all that is asked for is looked for from the first look on, in every portion."""
    prometheus = Prometheus(pods=[])
    with serving(prometheus) as server:
        large = Large(server, each=worth)
        prometheus.pods = large.pods()
        _only(server, prometheus)
        source, wanted = large.source, frozenset({"tokens_per_second", "batch_size"})
        asks = large.asks(signals=wanted)
        source.expect(asks)
        source.track([each for one in asks for each in one.replicas])
        assert source.portions.count == 3
        source.collect(asks[:1])
        about = {team: source.portions.of(team) for team in large.teams}
        assert sorted(about.values()) == [0, 1, 2]
        put = [large.look(portion) for portion in (0, 1, 2)]
        for team, portion in about.items():
            assert {re.findall("blue|green|red", _query(each))[0] for each in put[portion]} == {
                team
            }
        assert len([each for some in put for each in some]) == 6
        for _ in range(4):
            put = [large.look(portion) for portion in (0, 1, 2)]
            assert sum(map(len, put)) <= MOST_QUERIES
        assert source.queries <= MOST_QUERIES
        found = source.collect(large.asks(signals=wanted))
        for team in large.teams:
            assert found[team]["tokens_per_second"].value == pytest.approx(3.0 * worth), team
            assert found[team]["batch_size"].known, team


def test_a_namespace_that_comes_into_another_portion_keeps_what_was_seen_of_it(
    worth: int,
) -> None:
    """A fleet grows, and is cut; or shrinks, and is whole again."""
    prometheus = Prometheus(pods=[], since=END.timestamp())  # there is nothing to look back at
    with serving(prometheus) as server:
        large = Large(server)
        prometheus.pods = large.pods()
        _only(server, prometheus)
        source, wanted = large.source, frozenset({"tokens_per_second"})
        for each, looks in ((worth // 2, 15), (worth, 3), (worth // 2, 3)):
            large.each = each
            prometheus.pods = large.pods()
            asks = large.asks(signals=wanted)
            source.expect(asks)
            source.track([one for some in asks for one in some.replicas])
            for number in range(looks):
                large.look(number % 3)
            found = source.collect(large.asks(signals=wanted))
            for team in large.teams:
                reading = found[team]["tokens_per_second"]
                assert reading.known, (each, team, reading.message)
        assert source.portions.count == 1


def test_a_look_that_ends_late_does_not_fall_behind_another_portions(worth: int) -> None:
    """A namespace moves while a slow round is under way, and is looked at by its new portion."""
    prometheus = Prometheus(pods=[])
    with serving(prometheus) as server:
        large = Large(server, each=worth)
        prometheus.pods = large.pods()
        _only(server, prometheus)
        source, wanted = large.source, frozenset({"tokens_per_second", "batch_size"})
        asks = large.asks(signals=wanted)
        source.expect(asks)
        source.track([each for one in asks for each in one.replicas])
        about = {team: source.portions.of(team) for team in large.teams}
        team, slow = next(iter(about.items()))
        other = next(portion for portion in about.values() if portion != slow)
        for number in range(12):
            large.look(number % 3)
        answers, moved = server.answer, []

        def meanwhile(request: Seen) -> Answer:
            answer = answers(request)
            if not moved and "avg_over_time" in _query(request):
                moved.append(team)
                source._portions._state = (3, {**about, team: other})
                large.look(other)
            return answer

        server.answer = meanwhile
        large.look(slow)
        assert moved
        server.answer = answers
        large.look(other)
        (question,) = [each for each in large.asks(signals=wanted) if each.key == team]
        found = source.collect([question])[team]
        assert found["tokens_per_second"].value == pytest.approx(3.0 * worth)
        assert found["batch_size"].value == pytest.approx(4.0)
        assert found["tokens_per_second"].message == "Prometheus", "no trouble is told"


def test_a_portion_that_begins_later_does_not_look_back_at_what_is_known(worth: int) -> None:
    prometheus = Prometheus(pods=[])
    with serving(prometheus) as server:
        large = Large(server, each=worth // 2)
        prometheus.pods = large.pods()
        _only(server, prometheus)
        source, wanted = large.source, frozenset({"tokens_per_second"})
        for _ in range(12):
            asks = large.asks(signals=wanted)
            source.expect(asks)
            source.track([one for some in asks for one in some.replicas])
            large.clock.at += timedelta(seconds=10)
            large.look(0)
        assert source.portions.count == 1
        large.each = worth
        prometheus.pods = large.pods()
        put = []
        for number in range(9):
            asks = large.asks(signals=wanted)
            source.expect(asks)
            source.track([one for some in asks for one in some.replicas])
            put += large.look(number % 3)
        assert source.portions.count == 3
        began = END.timestamp() + 12 * 15
        assert min(map(_at, put)) > began, "not a moment before the portions came about"
        spans = {int(m[1]) for each in put if (m := re.search(r"\[(\d+)ms\]", _query(each)))}
        assert spans == {15_000}, "means are of the time since the look before"


def test_a_look_back_that_fails_takes_nothing_from_what_is_seen_now() -> None:
    prometheus = Prometheus()
    with serving(prometheus) as server:
        rounds = Rounds(server)
        rounds.round(_question())
        rounds.round(_question(), after_s=15.0)
        answers, refused = server.answer, []

        def no_past(request: Seen) -> Answer:
            if _at(request) < rounds.clock.at.timestamp() - 60:
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
