"""What alerts say."""

import json
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.alerts.messages import compose, slack_body
from specpilot.domain.policy import Event

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
CHANGE = {
    "id": "chat-1",
    "policy": {"namespace": "serving", "name": "chat", "uid": "u"},
    "target": {"kind": "Deployment", "namespace": "serving", "name": "vllm", "container": ""},
    "origin": {"setting": "eagle3", "config": "{}", "change_id": ""},
    "wanted": {"setting": "off", "config": "", "change_id": "chat-1"},
    "rule": {"rule_set": "hit-rate", "version": 3, "rule": "off-when-busy"},
    "reason": "RuleFired",
    "message": "drafts stopped paying",
    "evidence": [
        {
            "signal": "mean_acceptance_length",
            "value": 1.42,
            "comparison": "<",
            "threshold": 1.6,
            "reason": "",
            "at": "2026-03-04T05:06:00+00:00",
            "count": 12340.0,
            "window_s": 300.0,
            "arm": "",
        },
        {"signal": "tpot_mean", "value": 0.0213, "arm": "canary"},
        {"signal": "acceptance_rate", "value": None, "reason": "NoData"},
    ],
}


def test_the_payload_is_the_contract() -> None:
    local = AT.astimezone(timezone(timedelta(hours=2)))
    payload = compose(Event.FLIPPED, CHANGE, at=local).payload
    assert payload == {
        "event": "Flipped",
        "policy": "serving/chat",
        "target": "Deployment/serving/vllm",
        "change": "chat-1",
        "from": "eagle3",
        "to": "off",
        "rule": "hit-rate@3/off-when-busy",
        "reason": "RuleFired",
        "message": "drafts stopped paying",
        "evidence": CHANGE["evidence"],
        "at": "2026-03-04T05:06:07+00:00",
    }


def test_the_text_tells_what_why_and_the_numbers() -> None:
    message = compose(Event.FLIPPED, CHANGE, at=AT)
    assert message.title == "serving/chat switched eagle3 to off"
    assert message.text.splitlines() == [
        "serving/chat switched eagle3 to off",
        "drafts stopped paying",
        "- mean_acceptance_length 1.42 < 1.6, 12,340 observations over 300 s",
        "- tpot_mean (canary) 21.3 ms",
        "- acceptance_rate unknown: NoData",
        (
            "target Deployment/serving/vllm, rule hit-rate@3/off-when-busy, reason RuleFired, "
            "change chat-1, at 2026-03-04T05:06:07+00:00"
        ),
    ]


@pytest.mark.parametrize("event", Event)
def test_every_event_has_words(event: Event) -> None:
    message = compose(event, CHANGE, at=AT)
    assert message.title.startswith("serving/chat ")
    assert str(event) not in message.title, "words, not the name of the event"
    nothing_known = compose(event, {}, at=AT)
    assert nothing_known.title.startswith("Specpilot ")
    assert set(nothing_known.payload) == set(message.payload)


@pytest.mark.parametrize(
    ("signal", "value", "shown"),
    [
        ("acceptance_rate", 0.625, "62.5 %"),
        ("e2e_p99", 3.25, "3.25 s"),
        ("tpot_p99", 0.0105, "10.5 ms"),
        ("tpot_p99", 0.0, "0 s"),
        ("tokens_per_second", 12345.6, "12,346/s"),
        ("batch_size", 48, "48"),
        ("not_in_the_catalogue", 7, "7"),
    ],
)
def test_numbers_carry_their_units(signal: str, value: float, shown: str) -> None:
    change = {"evidence": [{"signal": signal, "value": value}]}
    assert f"- {signal} {shown}\n" in compose(Event.FLIPPED, change, at=AT).text


def test_slack_shows_the_same_in_blocks() -> None:
    body = slack_body(compose(Event.ROLLED_BACK, CHANGE, at=AT).payload)
    kinds = [block["type"] for block in body["blocks"]]
    assert kinds == ["header", "section", "section", "context"]
    assert body["blocks"][0]["text"] == {
        "type": "plain_text",
        "text": "serving/chat went back to eagle3: off did not hold",
    }
    assert "• mean_acceptance_length 1.42 &lt; 1.6" in body["blocks"][2]["text"]["text"]
    assert body["text"].startswith("serving/chat went back")


def test_slack_reads_no_mention_and_no_link_out_of_user_text() -> None:
    change = CHANGE | {"message": "<!channel> see <https://evil.example|here> & more"}
    body = slack_body(compose(Event.CONTESTED, change, at=AT).payload)
    assert not re.search(r"<[!@#h]", json.dumps(body))
    assert "&lt;!channel&gt;" in json.dumps(body)


@given(st.text(max_size=9000), st.text(max_size=300), st.integers(0, 60))
def test_slack_limits_hold(message: str, name: str, count: int) -> None:
    change = CHANGE | {
        "message": message,
        "policy": {"namespace": "n", "name": name},
        "evidence": [{"signal": "tpot_mean", "value": 1.5}] * count,
    }
    body = slack_body(compose(Event.FLIPPED, change, at=AT).payload)
    assert len(body["blocks"][0]["text"]["text"]) <= 150
    for block in body["blocks"][1:]:
        for part in [block.get("text"), *block.get("elements", [])]:
            assert part is None or 0 < len(part["text"]) <= 3000
    assert len(body["text"]) <= 3000
