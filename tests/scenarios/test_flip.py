"""A rule fires, one replica tries the setting, all of them get it, and everybody can see it."""

import json

import pytest

from specpilot.cli.demo.receiver import Receiver
from specpilot.domain.changes import Phase
from tests.cluster.conditions import is_rolled_out
from tests.scenarios.serving import (
    CONFIG,
    NGRAM,
    ON_WHEN_USED,
    POLICY,
    Serving,
    Watcher,
    changed,
    steps,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_a_rule_fires_and_every_pod_carries_the_new_setting(
    serving: Serving, receiver: Receiver
) -> None:
    serving.serve()
    before = serving.deployment()
    serving.apply(ON_WHEN_USED, changed(POLICY, "spec", "alerts", to=[{"channel": "oncall"}]))
    serving.until(lambda: serving.status().get("active") == "off")
    with serving.load() as load, Watcher(serving) as watcher:
        canary = serving.until_phase(Phase.ANALYSING, Phase.PROMOTING)
        tried = [engine for engine in serving.engines() if engine is not None]
        assert len(tried) == 1, "one replica tries it first"
        change = serving.until_phase(Phase.SUCCEEDED)
    assert change.id == canary.id
    assert watcher.fewest >= 3, "maxUnavailable is 0"
    assert load.records

    # Every pod runs it: by its annotation, and by the engine's own word.
    deployment = serving.until(lambda: is_rolled_out(serving.deployment()) and serving.deployment())
    pods = serving.pods()
    assert len(pods) == 3
    assert {json.dumps(json.loads(p["metadata"]["annotations"][CONFIG])) for p in pods} == {
        json.dumps(NGRAM)
    }
    assert serving.engines() == [NGRAM] * 3

    # Nothing else of the Deployment was touched.
    ours = deployment["spec"]["template"]["metadata"]["annotations"]
    for key in [k for k in ours if k.startswith("specpilot.io/")]:
        del ours[key]
    assert deployment["spec"] == before["spec"]

    # It is on record, visible, and told.
    assert steps(serving.installation, change) == [
        "Canary",
        "Analysing",
        "Promoting",
        "Watching",
        "Succeeded",
    ]
    assert serving.installation.verify().ok
    serving.until(
        lambda: (
            serving.status().get("active") == "ngram" and serving.status().get("phase") == "Idle"
        )
    )
    shown = serving.kubectl("get", "specpol,flagchanges")
    serving.until(lambda: len(receiver.alerts()) == 2)
    assert [a["event"] for a in receiver.alerts()] == ["Started", "Flipped"]
    assert receiver.refused == 0
    serving.until(
        lambda: (
            serving.condition("Ready", name="oncall", of="AlertChannel").get("reason")
            == "Delivered"
        )
    )
    for word in ("Auto", "ngram", "Idle", "True", "off", "Succeeded", "Settled"):
        assert word in shown, shown
