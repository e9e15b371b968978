"""The queries: a fixed number, restricted, escaped."""

from __future__ import annotations

import pytest

from specpilot.telemetry.names import Counter, Family, Gauge
from specpilot.telemetry.promql import Labels, Topic, queries


def test_six_queries_whatever_the_number_of_namespaces() -> None:
    for names in (["a"], ["a", "b"], [f"team-{i}" for i in range(50)]):
        assert len(queries(names, length_s=300, labels=Labels())) == len(Topic) == 6


def test_every_series_is_asked_for() -> None:
    text = " ".join(queries(["a"], length_s=300, labels=Labels()).values())
    for name in (*Counter, *Gauge, *(f"{family}_count" for family in Family)):
        assert f"vllm:{name}" in text


@pytest.mark.parametrize(
    ("names", "want"),
    [
        (["serving"], '{namespace="serving"}'),
        (["b", "a", "b"], '{namespace=~"a|b"}'),
        (["a.b", "c"], '{namespace=~"a\\\\.b|c"}'),
        (['x"} or up{a="', "y"], '{namespace=~"x\\"\\\\}\\\\ or\\\\ up\\\\{a=\\"|y"}'),
    ],
    ids=["one", "sorted once", "dots are literal", "no way out of the string"],
)
def test_namespaces_are_escaped(names: list[str], want: str) -> None:
    text = queries(names, length_s=60, labels=Labels())[Topic.BUCKETS]
    assert f"vllm:time_to_first_token_seconds_bucket{want}[60000ms]" in text


def test_labels_and_matchers_of_the_installation_are_used() -> None:
    labels = Labels(namespace="kubernetes_namespace", pod="kubernetes_pod", matchers='job="vllm"')
    text = queries(["a"], length_s=60, labels=labels)[Topic.STATE]
    assert 'up{kubernetes_namespace="a",job="vllm"}' in text
    assert "by (kubernetes_namespace, kubernetes_pod)" in text


def test_queries_of_one_namespace_fit_into_a_request_line() -> None:
    # The smallest common limit of a proxy on the way is 8 kB.
    texts = queries(["a-namespace-of-usual-length"], length_s=300, labels=Labels())
    longest = max(len(text.replace(" ", "%20").replace('"', "%22")) for text in texts.values())
    assert longest < 7000
