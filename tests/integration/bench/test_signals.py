"""The benchmark's stand-in for a large Prometheus answers as a large Prometheus does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import httpx
import pytest

from bench.queries import UnanswerableError, parts_of
from bench.signals import prometheus
from bench.signals.fleet import STEP_S, Fleet
from bench.signals.pages import read_by_the_product
from bench.signals.recorded import scaled, without_names
from specpilot.domain.signals import MEASURED
from specpilot.telemetry import promql
from specpilot.telemetry.behind import behind
from specpilot.telemetry.promql import Labels, Scope

pytestmark = pytest.mark.cluster

PODS = 600
STEPS = range(4)
ONE = next(pod.name for pod in Fleet(PODS).all if pod.namespace == "team-07")

COUNTS = '{__name__=~"vllm:(num_requests_running|spec_decode_num_.*_total)"}'
SHARE = '{__name__=~"vllm:num_requests_running",namespace=~"team-0.",pod=~".*[bcdfgh]"}'
UNION = (
    'label_replace(up, "series", "up", "", "") or label_replace('
    'avg_over_time(vllm:num_requests_running[45s]), "series", "running", "", "")'
)


def _round(*, pods: Sequence[str]) -> str:
    """Everything but who is there, in one query."""
    scope = Scope(namespaces=["team-01", "team-07"], labels=Labels())
    wanted = behind(frozenset(MEASURED))
    return promql.together(
        promql.values(scope, wanted),
        promql.gauges(scope, over_s=STEP_S),
        promql.buckets(replace(scope, pods=pods), wanted.buckets),
    )


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[prometheus.Prometheus, prometheus.Prometheus]]:
    """One that holds a pod of each kind, and one that holds them all."""
    directory = tmp_path_factory.mktemp("servers")
    origin = float(int(time.time() - len(STEPS) * STEP_S))
    fleet = Fleet(PODS)
    with (
        prometheus.running(directory / "small", origin=origin) as small,
        prometheus.running(directory / "large", origin=origin) as large,
    ):
        small.write(fleet.templates(), steps=STEPS, keep=read_by_the_product)
        large.write(fleet.all, steps=STEPS, keep=read_by_the_product)
        yield small, large


def _ask(server: prometheus.Prometheus, query: str) -> bytes:
    at = server.origin + STEPS[-1] * STEP_S + 1
    form = {"query": query, "time": f"{at:.3f}"}
    answer = httpx.post(f"{server.url}/api/v1/query", data=form, trust_env=False, timeout=30)
    assert answer.is_success, answer.text
    return answer.content


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (COUNTS, "series as they are, some of them of speculating pods only"),
        ("vllm:e2e_request_latency_seconds_bucket", "many series a pod"),
        (f"sum by (__name__, namespace, pod) ({COUNTS})", "added up by pod"),
        (
            UNION,
            "a union comes back to each pod",
        ),
        ('timestamp(vllm:cache_config_info{namespace="team-07"})', "one namespace"),
        (SHARE, "a share of the pods by name"),
        ("vllm:no_such_series", "nothing"),
        (_round(pods=()), "all that a round asks of a small fleet"),
        (_round(pods=[ONE]), "with buckets of one pod alone"),
    ],
)
def test_the_stand_in_answers_like_the_real_server(
    servers: tuple[prometheus.Prometheus, prometheus.Prometheus], query: str, reason: str
) -> None:
    small, large = servers
    made = _made(small, query)
    assert _elements(made) == _elements(_ask(large, query)), reason
    assert (b"_bucket" in made) == ("_bucket" in query), reason


def _made(small: prometheus.Prometheus, query: str) -> bytes:
    answers = []
    for part in parts_of(query):
        asked, names = without_names(part)
        answers.append((_ask(small, asked), names))
    return b"".join(scaled(answers, pods=PODS))


def _elements(answer: bytes) -> list[str]:
    content = json.loads(answer)
    assert content["status"] == "success"
    return sorted(json.dumps(each, sort_keys=True) for each in content["data"]["result"])


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ('up{pod="vllm-chat-00000-a"}', "in several ways"),
        ('up{pod=~"a.*"} or up{pod=~"b.*"}', "in several ways"),
        ("count(up)", "not of one pod"),
    ],
)
def test_what_it_cannot_answer_it_refuses(
    servers: tuple[prometheus.Prometheus, prometheus.Prometheus], query: str, words: str
) -> None:
    with pytest.raises(UnanswerableError, match=words):
        _made(servers[0], query)
