"""What is asked of Prometheus, and how its answer is taken. A real one is asked in integration."""

from __future__ import annotations

import re
from typing import Any

import pytest

from specpilot.domain.readings import UnknownReason
from specpilot.telemetry.gpu.query import absorb, query, times
from specpilot.telemetry.promql import Labels
from specpilot.telemetry.promwire import Answer
from tests.unit.telemetry.gpu.examples import CHAT, MEMORY, MIB, answer, series


def test_the_query_grows_with_namespaces_only_by_their_names() -> None:
    one, many = query(["serving"]), query([f"team-{i}" for i in range(50)])
    assert one.count(" or ") == many.count(" or ") == 6
    assert len(one) < 3000


def test_namespaces_are_taken_literally() -> None:
    text = query(["b.c", "a"])
    assert 'exported_namespace=~"a|b\\\\.c"' in text
    assert query(["a", "b.c", "a"]) == text


def test_every_selector_names_its_series_and_wants_a_pod() -> None:
    for selector in query(["serving"]).split(" or "):
        assert re.search(r'__name__=~"', selector)
        assert re.search(r'(exported_pod|pod_name|kube_pod|[,{]pod)!=""', selector)


def test_matchers_are_the_exporters() -> None:
    labels = Labels(matchers='cluster="eu"')
    assert query(["serving"], labels).count('cluster="eu"') == 7
    assert times(["serving"], labels).startswith(
        'timestamp(up{cluster="eu"}) and on (job, instance)'
    )
    assert times(["serving"]).startswith("timestamp(up) and on (job, instance) (")


def test_samples_carry_the_time_of_their_scrape() -> None:
    where = {"job": "gpu", "instance": "10.0.0.1:9400"}
    used = series(
        "DCGM_FI_DEV_FB_USED", 5, UUID="GPU-a", namespace="serving", pod="chat-0", **where
    )
    moment: dict[str, Any] = {
        "metric": {**where, "pod": "x"},
        "value": [1_700_000_060, "1700000000.5"],
    }
    found = absorb(answer(used), answer(moment))[CHAT]
    assert found.gauges == {MEMORY: 5 * MIB}
    assert found.at == 1_700_000_000.5
    assert absorb(answer(used))[CHAT].at is None


def test_an_empty_answer_is_nobody() -> None:
    assert absorb(answer(), answer()) == {}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (answer({"metric": {}, "values": [[1, "2"]]}), "a range"),
        (answer({"metric": [], "value": [1, "2"]}), "no labels"),
        (answer({"metric": {}, "value": [1]}), "no number"),
        (answer({"metric": {}, "value": [1, None]}), "nothing for a number"),
        (answer("text"), "no element"),
        (b"<html>", "another server"),
        (b'{"status":"success","data":{"resultType":"scalar","result":[]}}', "no vector"),
    ],
)
def test_what_is_no_instant_vector_is_refused(body: bytes, reason: str) -> None:
    for numbers, moments in ((body, answer()), (answer(), body)):
        with pytest.raises(Answer):
            absorb(numbers, moments)


def test_a_number_that_is_none_is_told() -> None:
    used = series("DCGM_FI_DEV_FB_USED", "two", UUID="GPU-a", namespace="serving", pod="chat-0")
    assert absorb(answer(used))[CHAT].faults[MEMORY].reason is UnknownReason.NAN
