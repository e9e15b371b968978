"""Which source answers, and that nothing a source does reaches the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from specpilot.domain.policy import TelemetrySource
from specpilot.domain.ports import Ask
from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import Replica, TargetRef
from specpilot.telemetry.auto import AutoTelemetry
from specpilot.telemetry.windows import Arm, failed, serving
from tests.unit.telemetry.builders import END, arm, ask, replica, window


@dataclass
class Fake:
    """A source that knows the replicas in `knows`."""

    name: str
    knows: set[str] = field(default_factory=lambda: {"a", "b"})
    error: Exception | None = None
    tracked: list[Replica] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    lag_s: float = 5.0

    def track(self, replicas: Sequence[Replica]) -> None:
        self.tracked = list(replicas)

    def windows(self, asks: Sequence[Ask], *, deadline_s: float) -> Mapping[str, Arm]:
        assert deadline_s > 0
        if self.error:
            raise self.error
        self.asked += [each.key for each in asks]
        return {each.key: self._arm(each) for each in asks}

    def _arm(self, each: Ask) -> Arm:
        found = [
            window(r.id)
            if r.id in self.knows
            else failed(r, UnknownReason.SOURCE_ERROR, f"{self.name} is down")
            for r in serving(each)
        ]
        return replace(arm(*found), source=self.name)


A, B = replica("a"), replica("b")
AUTO, PROM, SCRAPE = TelemetrySource.AUTO, TelemetrySource.PROMETHEUS, TelemetrySource.SCRAPE
OTHER = TargetRef(kind="Deployment", namespace="serving", name="other")


def _message(telemetry: AutoTelemetry, *asks: Ask, key: str = "k") -> str:
    found = telemetry.collect(asks)[key]["batch_size"]
    return found.message if found.known else f"{found.reason}: {found.message}"


@pytest.mark.parametrize(
    ("source", "prometheus", "scrape", "want"),
    [
        (AUTO, Fake("Prometheus"), Fake("direct scrape"), "Prometheus"),
        (AUTO, None, Fake("direct scrape"), "direct scrape"),
        (AUTO, Fake("Prometheus"), None, "Prometheus"),
        (AUTO, Fake("Prometheus", set()), Fake("direct scrape"), "because Prometheus has nothing"),
        (AUTO, Fake("Prometheus", error=OSError()), Fake("direct scrape"), "failed (OSError)"),
        (AUTO, Fake("Prometheus", set()), Fake("direct scrape", set()), "Prometheus is down"),
        (AUTO, None, None, "no Prometheus is configured"),
        (SCRAPE, Fake("Prometheus"), Fake("direct scrape"), "direct scrape"),
        (SCRAPE, Fake("Prometheus"), Fake("direct scrape", set()), "direct scrape is down"),
        (PROM, Fake("Prometheus", set()), Fake("direct scrape"), "Prometheus is down"),
        (PROM, None, Fake("direct scrape"), "no Prometheus is configured"),
        (PROM, Fake("Prometheus", error=KeyError()), Fake("direct scrape"), "failed (KeyError)"),
    ],
)
def test_choice(
    source: TelemetrySource, prometheus: Fake | None, scrape: Fake | None, want: str
) -> None:
    telemetry = AutoTelemetry(prometheus=prometheus, scrape=scrape)
    assert want in _message(telemetry, ask(A, source=source))


def test_all_arms_of_a_target_are_measured_the_same_way() -> None:
    telemetry = AutoTelemetry(prometheus=Fake("Prometheus", {"a"}), scrape=Fake("direct scrape"))
    asks = (ask(A, key="control"), ask(B, key="canary"), ask(A, key="else", target=OTHER))
    assert _message(telemetry, *asks, key="control").startswith("direct scrape")
    assert _message(telemetry, *asks, key="canary").startswith("direct scrape")
    assert _message(telemetry, *asks, key="else").startswith("Prometheus")


def test_what_is_asked_ahead_decides_nothing() -> None:
    """Prometheus does not know a canary yet that the direct scrape does: the rest is its own."""
    prometheus, scrape = Fake("Prometheus", {"a"}), Fake("direct scrape", {"b"})
    auto = AutoTelemetry(prometheus=prometheus, scrape=scrape)
    auto.track([A, B])
    for step in range(4):
        end = END + timedelta(seconds=15 * step)
        flight = replace(ask(B, key="flight", end=end), ahead=True)
        found = auto.collect([ask(A, end=end), flight])
        assert found["k"]["batch_size"].message == "Prometheus"
        assert not found["flight"]["batch_size"].known
    assert "flight" in prometheus.asked, "it is told what will be asked"
    assert scrape.tracked == []
    own = replace(ask(B, key="flight", end=END, source=SCRAPE), ahead=True)
    assert auto.collect([own])["flight"]["batch_size"].message == "direct scrape"
    assert scrape.tracked == [B]


def test_a_source_nobody_asks_for_is_left_alone() -> None:
    prometheus, scrape = Fake("Prometheus"), Fake("direct scrape")
    telemetry = AutoTelemetry(prometheus=prometheus, scrape=scrape)
    telemetry.collect([ask(A, source=SCRAPE)])
    assert prometheus.asked == []


def test_only_what_prometheus_does_not_know_is_scraped() -> None:
    prometheus, scrape = Fake("Prometheus", {"a"}), Fake("direct scrape")
    telemetry = AutoTelemetry(prometheus=prometheus, scrape=scrape)

    def tick(second: float) -> list[str]:
        end = END + timedelta(seconds=second)
        telemetry.track([A, B])
        telemetry.collect([ask(A, key="a", end=end), ask(B, key="b", end=end, target=OTHER)])
        return [replica.id for replica in scrape.tracked]

    assert prometheus.tracked == []
    assert tick(0) == [], "it may only be late"
    assert prometheus.tracked == [A, B]
    assert tick(20) == ["b"], "unknown for four rounds"
    prometheus.knows = {"a", "b"}
    assert tick(30) == []


def test_without_prometheus_everything_is_scraped_at_once() -> None:
    scrape = Fake("direct scrape")
    AutoTelemetry(prometheus=None, scrape=scrape).track([A, B])
    assert scrape.tracked == [A, B]


def test_devices_have_a_source_of_their_own_whose_failure_harms_nobody() -> None:
    broken = Fake("GPU exporter", error=OSError())
    telemetry = AutoTelemetry(prometheus=Fake("Prometheus"), scrape=None, devices=broken)
    found = telemetry.collect([ask(A)])["k"]
    assert found["batch_size"].known
    assert found["gpu_util"].reason is UnknownReason.SOURCE_ERROR
    unasked = telemetry.collect([replace(ask(A), signals=frozenset({"batch_size"}))])["k"]
    assert set(unasked) == {"batch_size"}


def test_questions_without_sense_are_answered_with_words() -> None:
    telemetry = AutoTelemetry(prometheus=Fake("Prometheus"), scrape=None)
    backwards = replace(ask(A, key="empty"), start=END)
    naive = replace(ask(A, key="naive"), end=END.replace(tzinfo=None) + timedelta(1))
    found = telemetry.collect([backwards, naive, ask(A)])
    for key, words in (("empty", "empty"), ("naive", "time zone")):
        reading = found[key]["batch_size"]
        assert reading.reason is UnknownReason.SOURCE_ERROR
        assert words in reading.message
    assert found["k"]["batch_size"].known, "one bad question does not spoil the others"


def test_only_replicas_that_serve_are_expected_to_report() -> None:
    telemetry = AutoTelemetry(prometheus=Fake("Prometheus", {"a"}), scrape=None)
    starting, leaving = replica("s", ready=False), replica("t", terminating=True)
    found = telemetry.collect([ask(A, starting, leaving)])["k"]
    assert found.value("replicas_ready") == 1.0
    assert found["batch_size"].message == "Prometheus"
