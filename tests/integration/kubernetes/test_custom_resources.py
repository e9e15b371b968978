"""Our own kinds on a real API server: shown, decided on, bounded, and gone with their policy."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from specpilot.domain.changes import ChangeReason, Evidence, FlagChange, Phase, RuleRef
from specpilot.domain.policy import PolicyRef
from specpilot.domain.settings import Declared
from specpilot.domain.situation import Answer, Decision
from specpilot.domain.targets import TargetRef
from specpilot.fleets.kubernetes import (
    FLAG_CHANGES,
    POLICIES,
    Api,
    FlagChangeMirror,
    Resource,
    Watches,
)
from specpilot.fleets.kubernetes.request import CUSTOM_RESOURCES
from tests.cluster.api import ApiError
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_for
from tests.integration.kubernetes.conftest import Manifest, WallClock

pytestmark = pytest.mark.cluster

CRDS = Path(__file__).parents[3] / "charts" / "specpilot" / "crds"
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> None:
    for path in sorted(CRDS.glob("*.yaml")):
        cluster.api.apply(yaml.safe_load(path.read_text()))

    def answered() -> bool:
        try:
            for resource in CUSTOM_RESOURCES:
                cluster.api.request("GET", resource.path())
        except ApiError:
            return False
        return True

    wait_for(answered, describe="the custom resources are served")


@pytest.fixture
def policy(served: None, cluster: Cluster, namespace: str) -> Manifest:
    return cluster.api.create(
        {
            "apiVersion": "specpilot.io/v1alpha1",
            "kind": "SpeculationPolicy",
            "metadata": {"name": "chat"},
            "spec": {
                "target": {"kind": "Deployment", "name": "chat"},
                "mode": "Approve",
                "settings": [{"name": "ngram", "method": "ngram", "numSpeculativeTokens": 4}],
                "rules": {"ruleSet": "hit-rate"},
            },
        },
        namespace=namespace,
    )


@pytest.fixture
def watches(served: None, api: Api, namespace: str) -> Iterator[Watches]:
    watching = Watches(
        api=api,
        clock=WallClock(),
        on_change=lambda *_: None,
        namespaces=(namespace,),
        resources=CUSTOM_RESOURCES,
    )
    watching.start()
    assert watching.wait_synced(timeout_s=20), watching.states()
    yield watching
    watching.stop()


def test_namespaces_of_another_installation_are_not_looked_at(
    policy: Manifest, cluster: Cluster, api: Api
) -> None:
    theirs = policy["metadata"]["namespace"]
    watching = Watches(
        api=api, clock=WallClock(), on_change=lambda *_: None, ignored=(theirs, "nowhere")
    )
    watching.start()
    try:
        assert watching.wait_synced(timeout_s=20), watching.states()
        with cluster.namespace("ours") as ours:
            again = {key: policy[key] for key in ("apiVersion", "kind", "spec")}
            for namespace, name in ((theirs, "second"), (ours, "chat")):
                cluster.api.create(again | {"metadata": {"name": name}}, namespace=namespace)
            known = watching.store(POLICIES)
            wait_for(lambda: known.get(ours, "chat"), describe="the policy of a namespace of ours")
            assert known.all(theirs) == []
    finally:
        watching.stop()


@pytest.fixture
def mirror(api: Api, watches: Watches) -> FlagChangeMirror:
    def known(resource: Resource, namespace: str, name: str) -> Manifest | None:
        return watches.store(resource).get(namespace, name)

    return FlagChangeMirror(
        api, known=known, listed=lambda namespace: watches.store(FLAG_CHANGES).all(namespace)
    )


def change(policy: Manifest, number: int = 1) -> FlagChange:
    metadata = policy["metadata"]
    at = NOW + timedelta(minutes=number)
    return FlagChange(
        id=f"chat-{number:03}",
        policy=PolicyRef(
            namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"]
        ),
        target=TargetRef(kind="Deployment", namespace=metadata["namespace"], name="chat"),
        origin=Declared(),
        wanted=Declared(
            setting="ngram", config='{"method":"ngram"}', change_id=f"chat-{number:03}"
        ),
        rule=RuleRef(rule_set="hit-rate", version=3, rule="on-when-quiet"),
        evidence=(
            Evidence(signal="batch_size", value=1.5, comparison="<", threshold=4.0, at=at, count=9),
            Evidence(signal="acceptance_rate", value=None, reason="NoData", window_s=300.0),
        ),
        phase=Phase.PENDING,
        reason=ChangeReason.APPROVAL_NEEDED,
        message="waiting for approval",
        created_at=at,
        phase_since=at,
    )


def known_as(watches: Watches, shown: FlagChange) -> Manifest:
    """The object once the watch has it with the right phase."""

    def look() -> Manifest | None:
        obj = watches.store(FLAG_CHANGES).get(shown.policy.namespace, shown.id)
        at = (obj or {}).get("status", {}).get("phase")
        return obj if at == str(shown.phase) else None

    return wait_for(look, describe=f"{shown.id} in the cache as {shown.phase}")


def test_a_change_is_shown_decided_and_moved_on(
    policy: Manifest, mirror: FlagChangeMirror, watches: Watches, cluster: Cluster
) -> None:
    shown = change(policy)
    assert mirror.show(shown)
    known_as(watches, shown)
    assert not mirror.show(shown), "shown as it is: no write"
    assert mirror.decision(shown) is None
    namespace = shown.policy.namespace
    cluster.run(
        *("kubectl", "-n", namespace, "patch", "flagchange", shown.id, "--type=merge"),
        *("-p", '{"spec": {"decision": "Approve", "decidedBy": "alice"}}'),
    )
    wait_for(
        lambda: mirror.decision(shown) == Decision(answer=Answer.APPROVE, by="alice"),
        describe="the decision arrives",
    )
    moved = replace(shown, phase=Phase.CANARY, reason=ChangeReason.APPROVED, decided_by="alice")
    assert mirror.show(moved)
    obj = known_as(watches, moved)
    assert obj["spec"]["decision"] == "Approve", "what people wrote stays"
    assert not mirror.show(moved)
    table = cluster.run("kubectl", "-n", namespace, "get", "flagchanges")
    assert "Canary" in table


def test_a_decision_without_a_name_is_the_managers(
    policy: Manifest, mirror: FlagChangeMirror, watches: Watches, cluster: Cluster
) -> None:
    shown = change(policy)
    mirror.show(shown)
    known_as(watches, shown)
    cluster.run(
        *("kubectl", "-n", shown.policy.namespace, "patch", "flagchange", shown.id),
        *("--type=merge", "-p", '{"spec": {"decision": "Reject"}}'),
    )
    wait_for(
        lambda: mirror.decision(shown) == Decision(answer=Answer.REJECT, by="kubectl-patch"),
        describe="the decision arrives",
    )


def test_the_history_is_bounded_and_goes_with_the_policy(
    policy: Manifest, mirror: FlagChangeMirror, watches: Watches, cluster: Cluster
) -> None:
    namespace = policy["metadata"]["namespace"]
    for number in range(13):
        ended = replace(change(policy, number), phase=Phase.SUCCEEDED, reason=ChangeReason.SETTLED)
        mirror.show(ended)
        known_as(watches, ended)
    open_one = change(policy, 20)
    mirror.show(open_one)
    known_as(watches, open_one)
    assert mirror.prune(namespace, policy_uid=policy["metadata"]["uid"]) == 3

    def names() -> list[str]:
        found = cluster.api.list("specpilot.io/v1alpha1", "FlagChange", namespace=namespace)
        return sorted(o["metadata"]["name"] for o in found)

    want = [f"chat-{number:03}" for number in (*range(3, 13), 20)]
    wait_for(lambda: names() == want, describe=lambda: str(names()))
    wait_for(lambda: len(watches.store(FLAG_CHANGES)) == 11, describe="the cache follows")
    assert mirror.prune(namespace, policy_uid=policy["metadata"]["uid"]) == 0
    cluster.api.delete(
        "specpilot.io/v1alpha1", "SpeculationPolicy", name="chat", namespace=namespace
    )
    wait_for(lambda: not names(), describe="garbage is collected")
    wait_for(lambda: not len(watches.store(POLICIES)), describe="and the caches follow")
