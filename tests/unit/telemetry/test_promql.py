"""The queries: a fixed number, restricted, escaped, cut into shares that lose nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.telemetry import promql
from specpilot.telemetry.behind import behind
from specpilot.telemetry.names import (
    COUNTER_NAMES,
    GAUGE_NAMES,
    POSITIONS,
    QUANTILES,
    Counter,
    Family,
)
from specpilot.telemetry.promql import MOST_PARTS, Labels, Scope, wire_of

LABELS = Labels()
ALL = behind(())


def _scope(*namespaces: str, labels: Labels = LABELS) -> Scope:
    return Scope(namespaces=namespaces or ("serving",), labels=labels)


def _all(scope: Scope) -> list[str]:
    return [
        promql.values(scope, ALL),
        promql.buckets(scope, QUANTILES),
        promql.gauges(scope, over_s=15.0),
        promql.state(scope),
    ]


def _selected(text: str) -> list[re.Pattern[str]]:
    """What the name matchers of a query select; Prometheus anchors its patterns."""
    return [re.compile(p.replace("\\\\", "\\")) for p in re.findall(r'__name__=~"([^"]*)"', text)]


def test_every_series_is_asked_for_under_each_of_its_names() -> None:
    scope = _scope()
    wanted = [f"{wire}_total" for wires in COUNTER_NAMES.values() for wire in wires]
    wanted += [f"{POSITIONS}_total", *(f"{f}_{part}" for f in Family for part in ("sum", "count"))]
    patterns = _selected(promql.values(scope, ALL))
    for name in wanted:
        for prefix in ("vllm:", "ray_vllm_"):
            assert any(p.fullmatch(prefix + name) for p in patterns), name
    for family in QUANTILES:
        (pattern,) = _selected(promql.buckets(scope, QUANTILES))
        assert pattern.fullmatch(f"vllm:{family}_bucket")
    for wires in GAUGE_NAMES.values():
        for wire in wires:
            patterns = _selected(promql.gauges(scope, over_s=15.0))
            assert any(p.fullmatch(f"vllm:{wire}") for p in patterns)


def test_nothing_else_is_asked_for() -> None:
    few = _selected(promql.values(_scope(), behind(["acceptance_rate"])))
    for name in ("vllm:num_preemptions_total", "vllm:e2e_request_latency_seconds_sum"):
        assert not any(p.fullmatch(name) for p in few), name
    patterns = _selected(promql.values(_scope(), ALL))
    for name in ("vllm:inter_token_latency_seconds_sum", "vllm:num_requests_running", "up"):
        assert not any(p.fullmatch(name) for p in patterns), name


@pytest.mark.parametrize(
    ("names", "want"),
    [
        (("serving",), 'namespace="serving"'),
        (("b", "a", "b"), 'namespace=~"a|b"'),
        (("a.b", "c"), 'namespace=~"a\\\\.b|c"'),
        (('x"} or up{a="', "y"), 'namespace=~"x\\"\\\\}\\\\ or\\\\ up\\\\{a=\\"|y"'),
    ],
    ids=["one", "sorted once", "dots are literal", "no way out of the string"],
)
def test_namespaces_are_escaped(names: tuple[str, ...], want: str) -> None:
    for text in _all(_scope(*names)):
        assert want in text


def test_labels_and_matchers_of_the_installation_are_used() -> None:
    labels = Labels(namespace="kubernetes_namespace", pod="kubernetes_pod", matchers='job="vllm"')
    for text in _all(_scope("a", labels=labels)):
        assert 'kubernetes_namespace="a",job="vllm"' in text
        assert "kubernetes_pod" in text


@given(
    st.integers(1, MOST_PARTS), st.from_regex(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?", fullmatch=True)
)
def test_every_pod_is_in_exactly_one_share(parts: int, pod: str) -> None:
    found = []
    for part in range(parts):
        scope = Scope(namespaces=["a"], labels=LABELS, part=part, parts=parts)
        patterns = re.findall(r'pod=~"([^"]*)"', scope.matchers()) or [".*"]
        found.append(all(re.fullmatch(pattern, pod) for pattern in patterns))
    assert sum(found) == 1


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("vllm:generation_tokens_total", Counter.GENERATION_TOKENS),
        ("vllm:generation_tokens", Counter.GENERATION_TOKENS),
        ("ray_vllm_generation_tokens_total", Counter.GENERATION_TOKENS),
        ("vllm:iteration_tokens_total", Family.STEPS),
        ("vllm:gpu_cache_usage_perc", "gpu_cache_usage_perc"),
        ("process_start_time_seconds", "process_start_time_seconds"),
        ("vllm:engine_sleep_state", None),
        ("vllm:", None),
    ],
)
def test_wire_names(name: str, want: str | None) -> None:
    assert wire_of(name) == want


def test_named_pods_are_plain_words_that_prometheus_looks_up() -> None:
    scope = Scope(namespaces=["a"], labels=LABELS, pods=["chat-7f-x2", "chat-7f-b9", "odd.name"])
    assert 'pod=~"chat-7f-b9|chat-7f-x2|odd\\\\.name"' in promql.buckets(scope, QUANTILES)
