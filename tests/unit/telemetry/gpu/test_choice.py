"""Prometheus says what GPUs do; exporters do where it knows nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from specpilot.domain.policy import TelemetrySource
from specpilot.domain.ports import Ask
from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import Replica, TargetRef
from specpilot.telemetry.gpu import DeviceChoice
from specpilot.telemetry.windows import Arm, failed, serving
from tests.unit.telemetry.builders import arm, ask, device_window, replica

A, B = replica("a"), replica("b")
OTHER = TargetRef(kind="Deployment", namespace="serving", name="other")
INSTEAD = "GPU exporter, because Prometheus has nothing"


@dataclass
class Fake:
    """A source of GPU signals that knows the replicas in `knows`."""

    name: str
    knows: frozenset[str] = frozenset({"a", "b"})
    error: Exception | None = None
    tracked: list[Replica] = field(default_factory=list)
    lag_s: float = 15.0

    def track(self, replicas: Sequence[Replica]) -> None:
        self.tracked = list(replicas)

    def windows(self, asks: Sequence[Ask], *, deadline_s: float) -> Mapping[str, Arm]:
        assert deadline_s > 0
        if self.error:
            raise self.error
        return {
            each.key: replace(
                arm(
                    *(
                        device_window(r.id)
                        if r.id in self.knows
                        else failed(r, UnknownReason.NOT_EXPORTED, f"{self.name} has none")
                        for r in serving(each)
                    )
                ),
                source=self.name,
            )
            for each in asks
        }


def choice(prometheus: Fake, exporters: Fake) -> DeviceChoice:
    return DeviceChoice(prometheus=prometheus, exporters=exporters)


NOTHING: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("prometheus", "exporters", "source", "reason"),
    [
        (Fake("Prometheus"), Fake("GPU exporter"), "Prometheus", "both know it"),
        (
            Fake("Prometheus", NOTHING),
            Fake("GPU exporter"),
            f"{INSTEAD} (Prometheus has none)",
            "only the exporter does",
        ),
        (
            Fake("Prometheus", error=OSError()),
            Fake("GPU exporter"),
            f"{INSTEAD} (failed (OSError); the log has the details)",
            "a fault of the first is no fault of the second",
        ),
        (
            Fake("Prometheus"),
            Fake("GPU exporter", error=OSError()),
            "Prometheus",
            "nor the reverse",
        ),
        (
            Fake("Prometheus", NOTHING),
            Fake("GPU exporter", NOTHING),
            "Prometheus",
            "nobody does: the words of the first",
        ),
    ],
)
def test_choice(prometheus: Fake, exporters: Fake, source: str, reason: str) -> None:
    found = choice(prometheus, exporters).windows([ask(A)], deadline_s=1.0)
    assert found["k"].source == source, reason


def test_arms_of_one_target_are_measured_the_same_way_and_others_on_their_own() -> None:
    telemetry = choice(Fake("Prometheus", frozenset({"a"})), Fake("GPU exporter"))
    asks = (ask(A, key="control"), ask(B, key="canary"), ask(A, key="else", target=OTHER))
    found = telemetry.windows(asks, deadline_s=1.0)
    assert found["control"].source.startswith(INSTEAD)
    assert found["canary"].source.startswith(INSTEAD)
    assert found["else"].source == "Prometheus"


def test_the_policys_source_is_one_for_engines() -> None:
    telemetry = choice(Fake("Prometheus", NOTHING), Fake("GPU exporter"))
    found = telemetry.windows([ask(A, source=TelemetrySource.PROMETHEUS)], deadline_s=1.0)
    assert found["k"].source.startswith(INSTEAD)


def test_both_are_told_what_exists_and_the_slower_one_sets_the_lag() -> None:
    prometheus, exporters = Fake("Prometheus", lag_s=16.0), Fake("GPU exporter")
    telemetry = choice(prometheus, exporters)
    telemetry.track([A, B])
    assert prometheus.tracked == exporters.tracked == [A, B]
    assert telemetry.lag_s == 16.0
