"""A real Prometheus scrapes the exporters' example pages; its answers mean what the pages mean."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import yaml

from specpilot.domain.readings import UnknownReason
from specpilot.telemetry import AutoTelemetry, PrometheusServer
from specpilot.telemetry.gpu import PodDevices, PrometheusDevices, absorb, query, times
from specpilot.telemetry.gpu.samples import Owner
from specpilot.telemetry.promql import Labels
from tests.cluster import build
from tests.cluster.ports import free_port
from tests.cluster.processes import Process
from tests.cluster.waiting import wait_for
from tests.integration.telemetry.servers import Answer, Seen, serving
from tests.unit.telemetry.builders import FrozenClock, WallClock, ask, replica
from tests.unit.telemetry.gpu.examples import DRAM, NAMES, POWER, UTIL, example, pods

pytestmark = pytest.mark.cluster

INTERVAL = 0.5
PAGES = [name for name in NAMES if "honor-labels" not in name]
JOBS = {"honoured": True, "moved": False}


def page(name: str, job: str) -> bytes:
    """An example with pods and GPUs of its own, so that all can be scraped at once."""
    own = f"{name}-{job}".replace(".", "-").encode()
    text = example("dcgm-plain" if name in {"twice", "leaver"} else name)
    text = text.replace(b'-0",', b'-0-%b",' % own).replace(b'-0"}', b'-0-%b"}' % own)
    for start in (b'"GPU-', b'"mi300-', b'uuid="', b'UUID="01'):
        text = text.replace(start, start.replace(b'"', b'"%b-' % own))
    return text


@dataclass
class Scene:
    """A Prometheus, and the exporters it scrapes."""

    url: str
    gone: set[str] = field(default_factory=set)
    served: Iterator[int] = field(default_factory=itertools.count)

    def answer(self, request: Seen) -> Answer:
        job, name = request.path.strip("/").split("/")
        if name in self.gone:
            return Answer(status=500)
        if name == "twice":
            # Two jobs scrape one exporter, never at one moment, so it has other numbers.
            use = b"} %d\n" % (next(self.served) % 90)
            return Answer(body=page(name, "both").replace(b"} 97\n", use))
        return Answer(body=page(name, job))

    def ask(self, text: str, at: float | None = None) -> bytes:
        moment = {} if at is None else {"time": f"{at:.3f}"}
        form = {"query": text, **moment}
        response = httpx.post(f"{self.url}/api/v1/query", data=form, timeout=20)
        assert response.is_success, response.text
        return response.content

    def vector(self, text: str, at: float | None = None) -> list[Any]:
        result = json.loads(self.ask(text, at))["data"]
        assert result["resultType"] == "vector"
        found: list[Any] = result["result"]
        return found

    def pods(
        self, *namespaces: str, labels: Labels | None = None, at: float | None = None
    ) -> Mapping[Owner, PodDevices]:
        wanted, own = namespaces or ("serving",), labels or Labels()
        return absorb(self.ask(query(wanted, own), at), self.ask(times(wanted, own), at))


def _targets(address: str, job: str) -> list[dict[str, Any]]:
    """Every page is a target, labelled as a ServiceMonitor labels an exporter's pod."""
    names = [*PAGES, "twice", "leaver"]
    return [
        {
            "targets": [address],
            "labels": {
                "__metrics_path__": f"/{job}/{name}",
                "instance": f"{name}:9400",
                "namespace": "serving",  # the exporter's own, on purpose that of the workloads
                "pod": f"exporter-{name.replace('.', '-')}",
                "container": "exporter",
            },
        }
        for name in names
    ]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("gpu")
    port = free_port()
    found = Scene(f"http://127.0.0.1:{port}")
    with ExitStack() as stack:
        exporters = stack.enter_context(serving(found.answer))
        address = exporters.url.removeprefix("http://")
        config = directory / "prometheus.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
                    "scrape_configs": [
                        {
                            "job_name": job,
                            "honor_labels": honour,
                            "static_configs": _targets(address, job),
                        }
                        for job, honour in JOBS.items()
                    ],
                }
            )
        )
        server = Process(
            name="prometheus",
            command=[
                build.tools(quiet=True)["prometheus"],
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            log=directory / "prometheus.log",
        )
        stack.callback(server.stop)
        server.start()
        server.wait_ready(lambda: _ready(found.url), deadline=60)
        up = f"count(up == 1) == {2 * (len(PAGES) + 2)}"
        wait_for(lambda: found.vector(up), deadline=30, describe="every page to be scraped")
        yield found


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", timeout=2).is_success
    except httpx.HTTPError:
        return False


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("name", PAGES)
def test_prometheus_says_what_the_page_says(scene: Scene, name: str, job: str) -> None:
    direct = pods(page(name, job))
    assert direct
    through = scene.pods()
    for owner, devices in direct.items():
        found = through[owner]
        assert found.gauges == pytest.approx(devices.gauges)
        assert found.devices == devices.devices
        assert found.notes == devices.notes
        assert {g: f.reason for g, f in found.faults.items()} == {
            g: f.reason for g, f in devices.faults.items()
        }


def test_no_exporter_is_taken_for_a_workload(scene: Scene) -> None:
    owners = [pod for _, pod in scene.pods()]
    assert owners
    assert not [pod for pod in owners if pod.startswith("exporter")]


def test_a_sample_has_the_time_of_its_scrape(scene: Scene) -> None:
    pod = "chat-0-dcgm-plain-moved"
    text = f'timestamp(DCGM_FI_DEV_FB_USED{{exported_pod="{pod}"}})'

    def same() -> bool:
        settled = datetime.now(UTC).timestamp() - 2.0
        own = {float(element["value"][1]) for element in scene.vector(text, settled)}
        found = scene.pods(at=settled).get(("serving", pod))
        return found is not None and own == {found.at}

    wait_for(same, deadline=20, describe="the exporter's time to be its numbers'")
    ages = [datetime.now(UTC).timestamp() - (each.at or 0.0) for each in scene.pods().values()]
    assert all(-1 < age < 30 for age in ages)


def test_one_exporter_scraped_by_two_jobs(scene: Scene) -> None:
    owner = ("serving", "chat-0-twice-both")

    def differs() -> bool:
        return UTIL in scene.pods()[owner].faults

    wait_for(differs, deadline=20, every=0.05, describe=lambda: str(scene.pods()[owner]))
    found = scene.pods()[owner]
    # What both say alike is known; what they say differently is not.
    assert found.gauges[POWER] == pytest.approx(1000.0)
    once = scene.pods(labels=Labels(matchers='job="moved"'))[owner]
    assert UTIL in once.gauges


def test_contradicting_jobs_are_named(scene: Scene) -> None:
    owner = ("serving", "chat-0-twice-both")

    def told() -> str:
        fault = scene.pods()[owner].faults.get(UTIL)
        return fault.words if fault and fault.reason is UnknownReason.AMBIGUOUS else ""

    words = wait_for(told, deadline=20, every=0.05, describe="the jobs to differ")
    assert "honoured, twice:9400; moved, twice:9400" in words


def test_old_series_do_not_linger(scene: Scene) -> None:
    owners = [("serving", f"chat-0-leaver-{job}") for job in JOBS]
    wait_for(
        lambda: all(owner in scene.pods() for owner in owners),
        deadline=20,
        describe="the exporters to be seen",
    )
    scene.gone.add("leaver")
    # Not the five minutes that Prometheus looks back: a failed scrape ends its series.
    wait_for(
        lambda: not any(owner in scene.pods() for owner in owners),
        deadline=20,
        describe="series of exporters that do not answer to end",
    )


def test_other_namespaces_are_left_out(scene: Scene) -> None:
    settled = datetime.now(UTC).timestamp() - 2.0
    assert scene.pods("somebody", "else", at=settled) == {}
    many = [f"team-{i}" for i in range(200)]
    assert set(scene.pods(*many, "serving", at=settled)) == set(scene.pods(at=settled))


def test_partitions_are_not_measured_as_zero(scene: Scene) -> None:
    found = scene.pods()["serving", "mail-0-amd-partitioned-moved"]
    assert found.faults[DRAM].reason is UnknownReason.NOT_EXPORTED


@pytest.mark.parametrize("build_query", [query, times])
def test_the_queries_are_two_whatever_the_number_of_pods(
    scene: Scene, build_query: Callable[[tuple[str, ...]], str]
) -> None:
    text = build_query(("serving",))
    assert len(scene.vector(text)) > 0
    assert len(text) < 4000


def _watching(scene: Scene, matchers: str = "") -> PrometheusDevices:
    return PrometheusDevices(
        server=PrometheusServer(url=scene.url),
        clock=WallClock(),
        matchers=matchers,
        interval_s=INTERVAL,
    )


def test_background_rounds_become_readings(scene: Scene) -> None:
    names = (
        "chat-0-dcgm-plain-moved",
        "chat-0-dcgm-plain-honoured",
        "chat-0-dcgm-time-sliced-moved",
    )
    pods = [replica(name, namespace="serving") for name in names]
    with _watching(scene) as source:
        telemetry = AutoTelemetry(prometheus=None, scrape=None, devices=source)
        telemetry.track(pods)

        def readings(pod: int, signal: str) -> Any:
            question = ask(pods[pod], end=WallClock().now(), seconds=10.0)
            return telemetry.collect([question])["k"][signal]

        wait_for(
            lambda: all(readings(pod, "gpu_power").known for pod in range(len(pods))),
            deadline=30,
            describe=lambda: str([readings(pod, "gpu_power") for pod in range(len(pods))]),
        )
        for pod in range(2):
            assert readings(pod, "gpu_util").value == pytest.approx(0.95)
            assert readings(pod, "gpu_power").value == pytest.approx(1000.0)
        assert "shared with" in readings(2, "gpu_power").message
        assert readings(0, "gpu_power").message.startswith("Prometheus")


def test_matchers_of_the_exporters_choose_one_of_two_jobs(scene: Scene) -> None:
    owner = replica("chat-0-twice-both", namespace="serving")
    source = _watching(scene, 'job="moved"')
    source.track([owner])

    def seen() -> PodDevices | None:
        source.sample()
        return source.latest(owner)

    for _ in range(8):  # both jobs agree now and then, one job with itself always
        assert UTIL in wait_for(seen, deadline=20, describe="the exporter to be scraped").gauges
    none = _watching(scene, 'job="vllm"')
    none.track([owner])
    none.sample()
    assert none.latest(owner) is None, "the engine's matchers would find nothing"


def test_wrong_matchers_are_told_in_the_words_of_prometheus(scene: Scene) -> None:
    source = _watching(scene, "job=moved")
    owner = replica("chat-0-dcgm-plain-moved", namespace="serving")
    source.track([owner])
    source.sample()
    (window,) = source.windows([ask(owner, end=WallClock().now())], deadline_s=0.0)["k"].replicas
    assert window.fault is not None
    assert window.fault.reason is UnknownReason.SOURCE_ERROR
    assert "parse error" in window.fault.words


def test_the_past_is_looked_at_with_a_clock_of_the_past(scene: Scene) -> None:
    owner = replica("chat-0-dcgm-plain-moved", namespace="serving")
    text = f'count_over_time(DCGM_FI_DEV_FB_USED{{exported_pod="{owner.id}"}}[4s]) >= 6'
    wait_for(lambda: scene.vector(text), deadline=30, describe="a past of 4 s")
    present = datetime.now(UTC)
    clock = FrozenClock(present - timedelta(seconds=4))
    source = PrometheusDevices(
        server=PrometheusServer(url=scene.url), clock=clock, interval_s=INTERVAL, settle_s=0.0
    )
    source.track([owner])
    while clock.at < present - timedelta(seconds=1):
        source.sample()
        clock.at += timedelta(seconds=INTERVAL)
    question = ask(owner, end=clock.at, seconds=3.0)
    (window,) = source.windows([question], deadline_s=0.0)["k"].replicas
    assert window.fault is None
    assert window.last is not None
    assert window.last < clock.at < datetime.now(UTC)
    assert window.gauges[POWER] == pytest.approx(1000.0)
