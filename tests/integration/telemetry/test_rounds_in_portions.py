"""What rounds over a large fleet ask and see, a portion at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from bench.queries import namespaces_of, read
from specpilot.domain.ports import Ask
from specpilot.domain.targets import TargetRef
from specpilot.telemetry import PrometheusServer, PrometheusTelemetry
from specpilot.telemetry.portions import MOST_QUERIES
from tests.cluster.waiting import wait_for
from tests.integration.telemetry.rounds import (
    JSON,
    Prometheus,
    Rounds,
    error,
    moment_of,
    pod_named,
    text_of,
)
from tests.integration.telemetry.servers import Answer, Seen, serving
from tests.unit.telemetry.builders import END, ask


@dataclass
class Large(Rounds):
    """Replicas in a few namespaces, which are looked at one after the other."""

    teams: tuple[str, ...] = ("blue", "green", "red")
    each: int = 0
    name: str = "{team}-{n:04d}"
    refuses: Callable[[str, int], bool] = lambda _text, _pods: False
    prometheus: Prometheus = field(default_factory=Prometheus)

    def __post_init__(self) -> None:
        self.server.answer = self._answer
        self.source = PrometheusTelemetry(
            server=PrometheusServer(url=self.server.url),
            clock=self.clock,
            interval_s=15.0,
            settle_s=0.0,
            deadline_s=30.0,
            most_portions=len(self.teams),
        )

    def _answer(self, request: Seen) -> Answer:
        """Of the namespaces that are asked for."""
        names = namespaces_of(text_of(request))
        pods = [
            (team, self.name.format(team=team, n=n))
            for team in self.teams
            for n in range(self.each)
            if team in names
        ]
        for part in read(text_of(request)):
            if self.refuses(part.text, sum(bool(part.chosen.fullmatch(pod)) for _, pod in pods)):
                words = "query processing would load too many samples into memory"
                return Answer(error("execution", words), status=422, content_type=JSON)
        return replace(self.prometheus, pods=pods)(request)

    def asks(self, *, signals: frozenset[str]) -> list[Ask]:
        return [
            replace(
                ask(
                    *(pod_named(self.name.format(team=team, n=n), team) for n in range(self.each)),
                    key=team,
                    target=TargetRef(kind="Deployment", namespace=team, name="chat"),
                    seconds=60,
                    end=self.clock.at,
                ),
                signals=signals,
            )
            for team in self.teams
        ]

    def tell(self, *, signals: frozenset[str]) -> list[Ask]:
        """Say what is asked, and of which replicas, as a tick does."""
        asks = self.asks(signals=signals)
        self.source.expect(asks)
        self.source.track([replica for each in asks for replica in each.replicas])
        return asks

    def look(self, portion: int) -> list[Seen]:
        """A portion's share of the interval goes by, and it is looked at."""
        self.clock.at += timedelta(seconds=15 / len(self.teams))
        before = len(self.server.seen)
        self.source.sample(portion)
        return self.server.seen[before:]


@pytest.fixture
def worth(monkeypatch: pytest.MonkeyPatch) -> int:
    """Replicas that are worth a look of their own: so few that answers are short."""
    monkeypatch.setattr("specpilot.telemetry.portions.WORTH", 20)
    return 20


def test_a_large_fleet_is_looked_at_a_portion_at_a_time(worth: int) -> None:
    """And all that is asked for is looked for from the first look on, in every portion."""
    with serving(Answer()) as server:
        large = Large(server, each=worth)
        source, wanted = large.source, frozenset({"tokens_per_second", "batch_size"})
        asks = large.tell(signals=wanted)
        assert source.portions.count == 3
        source.collect(asks[:1])
        about = {team: source.portions.of(team) for team in large.teams}
        assert sorted(about.values()) == [0, 1, 2]
        put = [large.look(portion) for portion in (0, 1, 2)]
        for team, portion in about.items():
            assert {re.findall("blue|green|red", text_of(each))[0] for each in put[portion]} == {
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
    young = Prometheus(since=END.timestamp())  # there is nothing to look back at
    with serving(Answer()) as server:
        large = Large(server, prometheus=young)
        source, wanted = large.source, frozenset({"tokens_per_second"})
        for each, looks in ((worth // 2, 15), (worth, 3), (worth // 2, 3)):
            large.each = each
            large.tell(signals=wanted)
            for number in range(looks):
                large.look(number % 3)
            found = source.collect(large.asks(signals=wanted))
            for team in large.teams:
                reading = found[team]["tokens_per_second"]
                assert reading.known, (each, team, reading.message)
        assert source.portions.count == 1


def test_a_look_that_ends_late_does_not_fall_behind_another_portions(worth: int) -> None:
    """A namespace moves while a slow round is under way, and is looked at by its new portion."""
    with serving(Answer()) as server:
        large = Large(server, each=worth)
        source, wanted = large.source, frozenset({"tokens_per_second", "batch_size"})
        large.tell(signals=wanted)
        about = {team: source.portions.of(team) for team in large.teams}
        team, slow = next(iter(about.items()))
        other = next(portion for portion in about.values() if portion != slow)
        for number in range(12):
            large.look(number % 3)
        answers, moved = server.answer, []

        def meanwhile(request: Seen) -> Answer:
            answer = answers(request)
            if not moved and "avg_over_time" in text_of(request):
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
    with serving(Answer()) as server:
        large = Large(server, each=worth // 2)
        source, wanted = large.source, frozenset({"tokens_per_second"})
        for _ in range(12):
            large.tell(signals=wanted)
            large.clock.at += timedelta(seconds=10)
            large.look(0)
        assert source.portions.count == 1
        large.each = worth
        put = []
        for number in range(9):
            large.tell(signals=wanted)
            put += large.look(number % 3)
        assert source.portions.count == 3
        began = END.timestamp() + 12 * 15
        assert min(map(moment_of, put)) > began, "not a moment before the portions came about"
        spans = {int(m[1]) for each in put if (m := re.search(r"\[(\d+)ms\]", text_of(each)))}
        assert spans == {15_000}, "means are of the time since the look before"


def test_where_names_are_too_many_for_the_query_the_buckets_of_all_come_along(
    worth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A portion has two queries, whatever is asked of whom."""
    with serving(Answer()) as server:
        large = Large(server, each=worth)
        large.tell(signals=frozenset({"batch_size"}))
        flights = [
            replace(asked, replicas=asked.replicas[: worth // 3], signals=frozenset({"e2e_p99"}))
            for asked in large.asks(signals=frozenset())
        ]
        large.source.expect(flights)
        _, named = map(text_of, large.look(0))
        assert named.count("-0003") == 1
        assert "_bucket" in named
        monkeypatch.setattr("specpilot.telemetry.demand.MOST_LETTERS_TOGETHER", len(named) - 1)
        for _ in range(2):  # at the past and at the present
            *_, whole = map(text_of, large.look(0))
            assert "_bucket" in whole
            assert "pod=~" not in whole


def test_six_portions_stay_within_the_queries_whatever_they_have_to_find_out(worth: int) -> None:
    """They look back at the starts of long windows by turns, and see the present meanwhile."""
    wanted = frozenset({"tokens_per_second", "batch_size", "e2e_p99"})
    with serving(Answer()) as server:
        large = Large(server, teams=TEAMS, each=worth)
        put: list[int] = []
        for number in range(60):
            short = large.tell(signals=wanted)
            long = [replace(each, start=each.start - timedelta(seconds=540)) for each in short]
            large.source.expect(long)
            put.append(len(large.look(number % 6)))
        assert large.source.portions.count == 6
        assert set(put) == {2, 3}, "who is there and all the rest; of the past, the means apart"
        assert max(sum(put[n : n + 6]) for n in range(6, 55)) <= MOST_QUERIES
        assert min(put[portion::6].count(3) for portion in range(6)) >= 2, "all have their turns"
        found = large.source.collect(large.asks(signals=wanted))
        for team in large.teams:
            assert found[team]["tokens_per_second"].value == pytest.approx(3.0 * worth), team
            assert found[team]["e2e_p99"].known, team


TEAMS = tuple(f"team-{each}" for each in "abcdef")


def test_answers_of_stateful_sets_become_smaller_when_they_are_too_large(worth: int) -> None:
    """All pods end in -0, so that names cannot be cut; their namespaces can."""

    def refuses(text: str, pods: int) -> bool:
        return "__name__, le" in text and pods > worth // 2

    with serving(Answer()) as server:
        large = Large(server, teams=TEAMS, each=worth // 2, name="{team}-{n:04d}-0")
        large.source._portions._a_share = 6 * worth  # one answer for all of them
        large.refuses = refuses
        wanted = frozenset({"e2e_p99", "tokens_per_second"})
        for number in range(72):
            large.tell(signals=wanted)
            large.look(number % 6)
        found = large.source.collect(large.asks(signals=wanted))
        for team in TEAMS:
            assert found[team]["e2e_p99"].known, found[team]["e2e_p99"].message


def test_a_look_back_that_is_too_large_takes_nothing_from_the_present(worth: int) -> None:
    """Means over minutes may be more than a server adds up at a time; of the past, and once."""

    def refuses(text: str, pods: int) -> bool:
        over = re.search(r"\[(\d+)ms\]", text)
        return over is not None and int(over[1]) > 60_000

    with serving(Answer()) as server:
        large = Large(server, teams=TEAMS, each=worth, refuses=refuses)
        wanted = frozenset({"tokens_per_second", "batch_size", "e2e_p99"})
        for number in range(48):
            short = large.tell(signals=wanted)
            large.source.expect(
                [replace(each, start=each.start - timedelta(seconds=540)) for each in short]
            )
            large.look(number % 6)
        assert large.source.portions.count == 6
        assert large.source._portions.size(worth).small, "answers are not cut for it"
        found = large.source.collect(large.asks(signals=wanted))
        for team in TEAMS:
            assert found[team]["tokens_per_second"].value == pytest.approx(3.0 * worth), team
            assert found[team]["e2e_p99"].known, team


def test_a_fleet_that_has_just_been_met_is_not_looked_at_all_at_once(worth: int) -> None:
    """The first portion at once, the others when they are told to, a moment apart."""
    with serving(Answer()) as server:
        large = Large(server, teams=TEAMS, each=worth)
        with large.source as source:
            large.tell(signals=frozenset({"batch_size"}))
            wait_for(lambda: len(server.seen) >= 2, describe="a look at the first portion")
            other = source._rounds[3]
            with other._rounds:
                other._began -= 5  # as if its first round, which found nobody, had been earlier
            assert source.look(timeout_s=30, portion=3)
            asked = {re.findall("team-.", text_of(each))[0] for each in server.seen}
            assert {source.portions.of(team) for team in asked} == {0, 3}
