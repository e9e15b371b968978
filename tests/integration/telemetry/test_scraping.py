"""The sampler against real HTTP servers: pages, failures, limits, time."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from specpilot.domain.readings import Readings, UnknownReason
from specpilot.telemetry import ScrapeTelemetry
from tests.cluster.ports import free_port
from tests.cluster.waiting import wait_for
from tests.integration.telemetry.servers import Answer, Seen, serving
from tests.unit.telemetry.builders import FrozenClock, WallClock, ask, page, recording, replica

STEM = "0.32.0-ngram-repetitive-c16"


def _after(clock: FrozenClock, seconds: float) -> None:
    clock.at += timedelta(seconds=seconds)


def test_two_scrapes_measure_what_happened_between_them() -> None:
    clock = FrozenClock()
    scrape = ScrapeTelemetry(clock=clock)
    pages = [recording(f"{STEM}-before.prom"), recording(f"{STEM}-after.prom")]
    with serving(lambda _: Answer(pages[0])) as server:
        found = replica("a", endpoint=server.url + "/", on=True)
        scrape.track([found])
        scrape.sample()
        pages.pop(0)
        _after(clock, 10)
        scrape.sample()
        readings = scrape.collect([ask(found, end=clock.at, seconds=60)])["k"]
    assert readings.value("acceptance_rate") == 1139 / 1945
    assert readings.value("tokens_per_second") == 2048 / 10
    assert readings["batch_size"].message == "direct scrape; covers 10 s of 60 s"
    assert [seen.path for seen in server.seen] == ["/metrics", "/metrics"]
    assert server.seen[0].headers["Accept-Encoding"] == "identity"


def test_a_window_that_ended_in_the_past_uses_the_samples_of_then() -> None:
    clock = FrozenClock()
    scrape = ScrapeTelemetry(clock=clock)
    tokens = [0.0]
    with serving(lambda _: Answer(page({"generation_tokens_total": tokens[0]}))) as server:
        found = replica("a", endpoint=server.url)
        scrape.track([found])
        start = clock.at
        for rate in (1, 1, 1, 9, 9, 9):
            scrape.sample()
            tokens[0] += 10 * rate
            _after(clock, 10)

        def rate_of(first: int, last: int) -> float | None:
            end = start + timedelta(seconds=last)
            question = ask(found, end=end, seconds=last - first)
            return scrape.collect([question])["k"].value("tokens_per_second")

        assert rate_of(0, 30) == 1.0
        assert rate_of(30, 50) == 9.0
        assert scrape.collect([ask(found, end=start + timedelta(seconds=80))])["k"][
            "batch_size"
        ].message.endswith("UTC"), "the future is refused"


def test_the_first_seconds_after_ready_do_not_count() -> None:
    clock = FrozenClock()
    scrape = ScrapeTelemetry(clock=clock)
    start = clock.at
    tokens = [0.0]
    with serving(lambda _: Answer(page({"generation_tokens_total": tokens[0]}))) as server:
        found = replica("a", endpoint=server.url, ready_since=start + timedelta(seconds=5))
        scrape.track([found])
        for rate in (1, 1, 9, 9):
            scrape.sample()
            tokens[0] += 10 * rate
            _after(clock, 10)
        scrape.sample()
        warm = ask(found, end=clock.at, seconds=60, warm_up_s=15)
        assert scrape.collect([warm])["k"].value("tokens_per_second") == 9.0
        cold = scrape.collect([ask(found, end=clock.at, seconds=60, warm_up_s=90)])["k"]
        assert cold["batch_size"].reason is UnknownReason.NO_DATA
        assert "count from 12:01:35" in cold["batch_size"].message


BAD = [
    (Answer(status=404), UnknownReason.SOURCE_ERROR, "/metrics: answers HTTP 404"),
    (Answer(b"x" * 2000), UnknownReason.SOURCE_ERROR, "larger than 1000 bytes"),
    (Answer(delay_s=1.0), UnknownReason.SOURCE_ERROR, "no answer within 0.3 s"),
    (Answer(b"x" * 100, trickle_s=0.05), UnknownReason.SOURCE_ERROR, "no answer within 0.3 s"),
    (Answer(b"\xff\x00 not a page"), UnknownReason.NOT_EXPORTED, "--disable-log-stats"),
    (Answer(b""), UnknownReason.NOT_EXPORTED, "--disable-log-stats"),
]


@pytest.mark.parametrize(("answer", "reason", "words"), BAD, ids=[words for _, _, words in BAD])
def test_bad_pages(answer: Answer, reason: UnknownReason, words: str) -> None:
    clock = FrozenClock()
    scrape = ScrapeTelemetry(clock=clock, timeout_s=0.3, max_bytes=1000)
    with serving(answer) as server:
        found = replica("a", endpoint=server.url.replace("http://", "http://user:secret@"))
        scrape.track([found])
        scrape.sample()
        reading = scrape.collect([ask(found)])["k"]["batch_size"]
    assert reading.reason is reason
    assert words in reading.message
    assert "secret" not in reading.message


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:{}", "http://[::1", "nonsense", "http://a b/"]
)
def test_a_replica_that_cannot_be_reached(endpoint: str) -> None:
    scrape = ScrapeTelemetry(clock=FrozenClock(), timeout_s=0.5)
    found = replica("a", endpoint=endpoint.format(free_port()))
    scrape.track([found])
    scrape.sample()
    reading = scrape.collect([ask(found)])["k"]["batch_size"]
    assert reading.reason is UnknownReason.SOURCE_ERROR
    assert "cannot scrape" in reading.message


def test_a_replica_that_falls_silent_becomes_stale_with_the_cause() -> None:
    clock = FrozenClock()
    scrape = ScrapeTelemetry(clock=clock, interval_s=5.0)
    answers = [Answer(recording(f"{STEM}-before.prom"))]
    with serving(lambda _: answers[-1]) as server:
        found = replica("a", endpoint=server.url)
        scrape.track([found])
        for _ in range(3):
            scrape.sample()
            _after(clock, 5)
        answers.append(Answer(status=503))
        _after(clock, 30)
        scrape.sample()
        reading = scrape.collect([ask(found, end=clock.at)])["k"]["batch_size"]
    assert reading.reason is UnknownReason.STALE
    assert "HTTP 503" in reading.message


def test_only_replicas_that_serve_are_scraped_and_few_at_a_time() -> None:
    scrape = ScrapeTelemetry(clock=FrozenClock(), concurrency=3)
    with serving(Answer(page({"generation_tokens_total": 1}), delay_s=0.02)) as server:
        good = [replica(f"r{i}", endpoint=server.url) for i in range(12)]
        bad = [
            replica("starting", endpoint=server.url, ready=False),
            replica("leaving", endpoint=server.url, terminating=True),
            replica("nowhere"),
        ]
        scrape.track([*good, *bad])
        scrape.sample()
        assert len(server.seen) == 12
        assert server.most_at_once <= 3
        nowhere = scrape.collect([ask(bad[2])])["k"]["batch_size"]
    assert nowhere.reason is UnknownReason.NO_DATA
    assert "no address" in nowhere.message


def test_numbers_belong_to_a_process_and_not_to_a_name() -> None:
    """llm-d#368: deleted pods went on counting, and the answer oscillated."""
    clock = FrozenClock()
    scrape = ScrapeTelemetry(clock=clock)
    with serving(Answer(recording(f"{STEM}-after.prom"))) as server:
        old = replica("slot-0", instance="first", endpoint=server.url)
        new = replica("slot-0", instance="second", endpoint=server.url)
        scrape.track([old])
        scrape.sample()
        _after(clock, 5)
        scrape.sample()
        scrape.track([new])
        found = scrape.collect(
            [ask(new, key="new", end=clock.at), ask(old, key="old", end=clock.at)]
        )
    assert found["new"]["batch_size"].reason is UnknownReason.NO_DATA
    assert found["old"]["batch_size"].known, "the past of a replaced process stays readable"


def test_the_background_sampler_runs_and_ends() -> None:
    def answer(_: Seen) -> Answer:
        return Answer(recording(f"{STEM}-before.prom"))

    before = threading.active_count()
    with (
        serving(answer) as server,
        ScrapeTelemetry(clock=WallClock(), interval_s=0.05) as scrape,
    ):
        found = replica("a", endpoint=server.url)
        scrape.track([found])

        def readings() -> Readings | None:
            all_of = scrape.collect([ask(found, end=WallClock().now(), seconds=60)])["k"]
            return all_of if (all_of["batch_size"].count or 0) >= 5 else None

        known = wait_for(readings, deadline=20, describe="five samples of the background sampler")
        assert known.value("batch_size") == 0.0
        scrape.start()  # again is harmless
    wait_for(lambda: threading.active_count() <= before, deadline=10, describe="threads ended")
