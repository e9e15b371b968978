"""The exporters' pages, fetched for real from local servers, become windows of replicas."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import Replica
from specpilot.telemetry.fetch import address
from specpilot.telemetry.gpu import ExporterTelemetry
from specpilot.telemetry.windows import Arm, ReplicaWindow
from tests.cluster.ports import free_port
from tests.cluster.waiting import wait_for
from tests.integration.telemetry.servers import Answer, Server, serving
from tests.unit.telemetry.builders import END, FrozenClock, WallClock, ask, replica
from tests.unit.telemetry.gpu.examples import (
    DRAM,
    GPU_0,
    GPU_1,
    MEMORY,
    MIB,
    POWER,
    TENSOR,
    UTIL,
    example,
)

CHAT = replica("chat-0", namespace="serving")
MAIL = replica("mail-0", namespace="serving")


@dataclass
class Rounds:
    """A telemetry whose rounds a test makes, 15 s apart, over pages it may change."""

    stack: ExitStack
    clock: FrozenClock = field(default_factory=lambda: FrozenClock(END - timedelta(seconds=300)))
    pages: dict[str, Answer] = field(default_factory=dict)
    servers: dict[str, Server] = field(default_factory=dict)
    telemetry: ExporterTelemetry = field(init=False)

    def serve(self, **pages: bytes) -> None:
        for name, body in pages.items():
            self.pages[name] = Answer(body=body)
            answer = lambda _, name=name: self.pages[name]  # noqa: E731 - shorter than a def
            self.servers[name] = self.stack.enter_context(serving(answer))

    def begin(
        self,
        *replicas: Replica,
        devices: Callable[[Replica], tuple[str, ...]] | None = None,
        max_bytes: int = 1 << 20,
    ) -> None:
        self.telemetry = ExporterTelemetry(
            [server.url for server in self.servers.values()],
            clock=self.clock,
            timeout_s=2.0,
            max_bytes=max_bytes,
            devices=devices,
        )
        self.telemetry.track(replicas)

    def round(self, count: int = 1) -> None:
        for _ in range(count):
            self.telemetry.sample()
            self.clock.at += timedelta(seconds=15)

    def arm(self, *replicas: Replica, seconds: float = 60.0) -> Arm:
        question = ask(*replicas, end=self.clock.at, seconds=seconds)
        return self.telemetry.windows([question], deadline_s=0.0)["k"]

    def window(self, of: Replica, seconds: float = 60.0) -> ReplicaWindow:
        (window,) = self.arm(of, seconds=seconds).replicas
        return window


@pytest.fixture
def rounds() -> Iterator[Rounds]:
    with ExitStack() as stack:
        yield Rounds(stack)


def test_a_window_holds_the_means_of_the_pods_devices(rounds: Rounds) -> None:
    rounds.serve(node=example("dcgm-plain"))
    rounds.begin(CHAT)
    rounds.round(2)
    rounds.pages["node"] = Answer(body=example("dcgm-plain").replace(b"} 97\n", b"} 7\n"))
    rounds.round(3)
    arm = rounds.arm(CHAT)
    (window,) = arm.replicas
    assert (arm.source, arm.stale_floor_s) == ("GPU exporter", 120.0)
    assert window.fault is None
    assert window.faults == {}
    # The newest sample is 15 s old: one interval that falls from 95 % to 50 %, two at 50 %.
    assert window.gauges[UTIL] == pytest.approx((0.725 + 0.5 + 0.5) / 3)
    assert window.gauges[MEMORY] == pytest.approx((72912 + 72784) * MIB)
    assert window.gauges[POWER] == pytest.approx(1000.0)
    assert window.interval_s == 15.0
    assert window.last == rounds.clock.at - timedelta(seconds=15)


def test_what_the_exporter_does_not_measure_is_told(rounds: Rounds) -> None:
    rounds.serve(node=example("dcgm-without-profiling"))
    rounds.begin(CHAT)
    rounds.round(4)
    window = rounds.window(CHAT)
    assert set(window.gauges) == {UTIL, MEMORY, POWER}
    assert window.faults[TENSOR].reason is UnknownReason.NOT_EXPORTED
    assert "profiling module" in window.faults[DRAM].words


def test_a_hole_in_the_window_is_no_zero(rounds: Rounds) -> None:
    rounds.serve(node=example("dcgm-plain"))
    rounds.begin(CHAT)
    rounds.round(2)
    rounds.pages["node"] = Answer(body=example("dcgm-without-profiling"))
    rounds.round()
    assert rounds.window(CHAT).faults[TENSOR].reason is UnknownReason.NOT_EXPORTED
    rounds.pages["node"] = Answer(body=example("dcgm-plain"))
    rounds.round()
    holed = rounds.window(CHAT)
    assert TENSOR not in holed.gauges
    assert "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" in holed.faults[TENSOR].words
    assert holed.gauges[UTIL] == pytest.approx(0.95)
    rounds.round(6)
    assert rounds.window(CHAT).gauges[TENSOR] == pytest.approx(0.2)


def test_two_nodes_are_told_apart_by_namespace_and_pod(rounds: Rounds) -> None:
    rounds.serve(a=example("dcgm-plain"), b=example("dcgm-mig"), c=example("gaudi"))
    elsewhere = replica("chat-0", namespace="other")
    rounds.begin(MAIL, elsewhere)
    rounds.round(3)
    assert rounds.window(MAIL).gauges[UTIL] == pytest.approx(0.1123)
    fault = rounds.window(elsewhere).fault
    assert fault is not None
    assert fault.reason is UnknownReason.NOT_EXPORTED
    assert "no GPU exporter reports a device of this pod" in fault.words


NO_PODS = example("dcgm-plain").replace(b',container="vllm",namespace="serving",pod="chat-0"', b"")


@pytest.mark.parametrize(
    ("names", "power", "reason"),
    [
        (("0",), 512.48, "an index"),
        (("nvidia1",), 487.52, "a device file"),
        (("0", "1"), 1000.0, "two GPUs"),
        ((GPU_1,), 487.52, "a UUID"),
        (("GPU-1b2a",), 487.52, "the beginning of one, as the CUDA runtime takes it"),
        ((), None, "a process without a GPU"),
        (("7",), None, "a GPU that is not there"),
        (("GP",), None, "no beginning that tells GPUs apart"),
    ],
)
def test_on_one_machine_the_fleet_says_whose_devices_they_are(
    rounds: Rounds, names: tuple[str, ...], power: float | None, reason: str
) -> None:
    rounds.serve(here=NO_PODS)
    local = replica("chat-0")
    rounds.begin(local, devices=lambda _: names)
    rounds.round(3)
    window = rounds.window(local)
    if power is None:
        assert window.fault is not None, reason
    else:
        assert window.gauges[POWER] == pytest.approx(power), reason


@pytest.mark.parametrize(
    ("name", "power", "reason"),
    [
        (f"MIG-{GPU_0}/1/0", 402.31, "an instance by the name that the driver gave it"),
        (f"{GPU_0}/2", 402.31, "and as this package names it"),
        (GPU_0, None, "the GPU of two instances names neither"),
        ("0", None, "nor does its index"),
    ],
)
def test_on_one_machine_a_mig_instance_is_named(
    rounds: Rounds, name: str, power: float | None, reason: str
) -> None:
    rounds.serve(here=example("dcgm-mig"))
    local = replica("local-0")
    rounds.begin(local, devices=lambda _: (name,))
    rounds.round(3)
    window = rounds.window(local)
    assert window.gauges.get(POWER) == (power and pytest.approx(power)), reason


def test_devices_that_nobody_reports_are_named(rounds: Rounds) -> None:
    rounds.serve(here=NO_PODS)
    local = replica("chat-0")
    rounds.begin(local, devices=lambda _: ("MIG-b6ba6b2a", "7"))
    rounds.round()
    fault = rounds.window(local).fault
    assert fault is not None
    assert fault.reason is UnknownReason.NOT_EXPORTED
    assert "no GPU exporter reports 7, MIG-b6ba6b2a" in fault.words
    assert "MIG-<GPU UUID>/<instance>/0" in fault.words


def test_a_pod_that_the_exporter_names_needs_no_fleet(rounds: Rounds) -> None:
    rounds.serve(node=example("dcgm-plain"))
    rounds.begin(CHAT, devices=lambda _: ("2",))
    rounds.round(3)
    assert rounds.window(CHAT).gauges[POWER] == pytest.approx(1000.0)


@pytest.mark.parametrize(
    ("answer", "words", "reason"),
    [
        (Answer(status=503), "answers HTTP 503", "an error"),
        (Answer(body=b"#" * ((1 << 20) + 1)), "larger than 1048576 bytes", "too much"),
        (Answer(body=b"x", delay_s=2.5), "no answer within 2 s", "too slow"),
    ],
)
def test_an_exporter_that_fails_is_named(
    rounds: Rounds, answer: Answer, words: str, reason: str
) -> None:
    rounds.serve(node=example("dcgm-plain"))
    rounds.pages["node"] = answer
    rounds.begin(CHAT)
    rounds.round()
    fault = rounds.window(CHAT).fault
    assert fault is not None, reason
    assert fault.reason is UnknownReason.SOURCE_ERROR, reason
    assert words in fault.words, reason
    assert rounds.servers["node"].url.removeprefix("http://") in fault.words, reason


def test_only_the_exporters_that_know_a_replica_are_its_trouble(rounds: Rounds) -> None:
    rounds.serve(a=example("dcgm-plain"), b=example("dcgm-mig"))
    rounds.begin(CHAT, MAIL)
    rounds.pages["b"] = Answer(body=b"")
    rounds.round(2)
    rounds.pages["b"] = Answer(status=500)
    rounds.round()
    assert rounds.window(CHAT).trouble == ""
    mail = rounds.window(MAIL).fault
    assert mail is not None
    assert mail.reason is UnknownReason.SOURCE_ERROR
    rounds.pages["a"] = Answer(status=500)
    rounds.round()
    known = rounds.window(CHAT)
    assert "HTTP 500" in known.trouble
    assert known.gauges[UTIL] == pytest.approx(0.95)


def test_the_newest_round_says_what_a_number_covers(rounds: Rounds) -> None:
    rounds.serve(node=example("dcgm-time-sliced"))
    rounds.begin(CHAT)
    assert rounds.telemetry.latest(CHAT) is None
    rounds.round()
    latest = rounds.telemetry.latest(CHAT)
    assert latest is not None
    assert "shared with 1 other pod" in latest.notes[POWER]


def test_windows_that_cannot_be_answered_say_why(rounds: Rounds) -> None:
    rounds.serve(node=example("dcgm-plain"))
    rounds.begin(CHAT)
    rounds.round(2)
    untracked = rounds.window(MAIL).fault
    assert untracked is not None
    assert untracked.words == "is not tracked"
    future = ask(CHAT, end=rounds.clock.at + timedelta(seconds=60))
    (window,) = rounds.telemetry.windows([future], deadline_s=0.0)["k"].replicas
    assert window.fault is not None
    assert "in the future" in window.fault.words
    young = replica("chat-0", namespace="serving", ready_since=rounds.clock.at)
    late = ask(young, end=rounds.clock.at, warm_up_s=30)
    (window,) = rounds.telemetry.windows([late], deadline_s=0.0)["k"].replicas
    assert window.fault is not None
    assert "became ready too late" in window.fault.words


def test_a_replica_that_is_not_ready_is_not_sampled(rounds: Rounds) -> None:
    rounds.serve(node=example("dcgm-plain"))
    rounds.begin(replica("chat-0", namespace="serving", ready=False))
    rounds.round(2)
    assert rounds.telemetry.latest(CHAT) is None


def test_what_is_gone_is_forgotten_when_it_is_old(rounds: Rounds) -> None:
    rounds.serve(node=example("dcgm-plain"))
    rounds.begin(CHAT)
    rounds.round(2)
    rounds.telemetry.track([])
    rounds.round()
    assert rounds.telemetry.latest(CHAT) is not None
    rounds.clock.at += timedelta(seconds=1900)
    rounds.round()
    assert rounds.telemetry.latest(CHAT) is None


def test_it_samples_in_the_background_and_ends(rounds: Rounds) -> None:
    rounds.serve(node=example("dcgm-plain"))
    url = rounds.servers["node"].url + "/metrics"
    with ExporterTelemetry([url, url], clock=WallClock(), interval_s=0.05) as telemetry:
        telemetry.start()  # again is harmless
        telemetry.track([CHAT])
        wait_for(lambda: telemetry.latest(CHAT), deadline=20, describe="a first round")
    assert not [t for t in threading.enumerate() if t.name == "gpu exporters"]
    assert rounds.servers["node"].most_at_once == 1
    assert {seen.path for seen in rounds.servers["node"].seen} == {"/metrics"}
    assert telemetry.latest(CHAT) is not None


def test_nobody_listens() -> None:
    telemetry = ExporterTelemetry([f"http://127.0.0.1:{free_port()}"], clock=WallClock())
    telemetry.track([CHAT])
    telemetry.sample()
    (window,) = telemetry.windows([ask(CHAT, end=WallClock().now())], deadline_s=0)["k"].replicas
    assert window.fault is not None
    assert window.fault.reason is UnknownReason.SOURCE_ERROR


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("10.0.0.1:9400", "no scheme"),
        ("ftp://host/x", "another scheme"),
        ("http://", "no host"),
        ("http://[::1", "not a URL"),
    ],
)
def test_an_address_that_is_no_url_is_refused_at_once(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match="GPU exporter address"):
        ExporterTelemetry([url], clock=WallClock())


@pytest.mark.parametrize("bad", [{"interval_s": 0}, {"timeout_s": -1}])
def test_durations_must_be_above_zero(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        ExporterTelemetry([], clock=WallClock(), **bad)


def test_an_address_is_told_without_its_secrets() -> None:
    assert address("https://user:secret@host:9400/metrics?token=t") == "host:9400/metrics"
    assert "secret" not in address("http://user:secret@[::1")
