"""Electors over a real Lease: one leads, the next takes over, and a cut-off leader knows."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from specpilot.fleets.kubernetes import Api, Elector, Terms, Token
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_for
from tests.integration.kubernetes.conftest import Manifest, WallClock

pytestmark = pytest.mark.cluster

TERMS = Terms(duration_s=3.0, renew_deadline_s=2.0, retry_s=0.4)


class Candidate:
    def __init__(self, api: Api, namespace: str, identity: str) -> None:
        self.elected: list[Token] = []
        self.lost: list[str] = []
        self.elector = Elector(
            api=api,
            namespace=namespace,
            name="specpilot",
            identity=identity,
            on_elected=self.elected.append,
            on_lost=self.lost.append,
            clock=WallClock(),
            terms=TERMS,
        )


@pytest.fixture
def candidate(api: Api, namespace: str) -> Iterator[Callable[[], Candidate]]:
    made: list[Candidate] = []
    names = itertools.count(1)

    def make() -> Candidate:
        made.append(Candidate(api, namespace, f"candidate-{next(names)}"))
        made[-1].elector.start()
        return made[-1]

    yield make
    for one in made:
        one.elector.stop()


def lease(cluster: Cluster, namespace: str) -> Manifest:
    found: Manifest = cluster.api.get(
        "coordination.k8s.io/v1", "Lease", name="specpilot", namespace=namespace
    )["spec"]
    return found


def test_one_leads_and_the_other_takes_over_at_once_when_it_stops(
    candidate: Callable[[], Candidate], cluster: Cluster, namespace: str
) -> None:
    """kubernetes-client/python#1669: a lease was never given up."""
    first = candidate()
    wait_for(lambda: first.elector.token, describe="the first leads")
    second = candidate()
    spec = lease(cluster, namespace)
    assert spec["holderIdentity"] == "candidate-1"
    assert spec["leaseDurationSeconds"] == 3
    assert spec["leaseTransitions"] == 0
    assert second.elector.token is None
    first.elector.stop()
    assert first.lost == [], "given up, not lost"
    token = wait_for(lambda: second.elector.token, deadline=2.5, describe="no wait for expiry")
    assert token == Token(holder="candidate-2", transitions=1)
    assert lease(cluster, namespace)["leaseTransitions"] == 1


def test_both_want_it_at_once(candidate: Callable[[], Candidate]) -> None:
    """kubeai#67: two replicas both acted."""
    both = [candidate(), candidate()]
    wait_for(lambda: any(c.elector.token for c in both), describe="somebody leads")
    assert sum(c.elector.token is not None for c in both) == 1
    assert sum(len(c.elected) for c in both) == 1


def test_a_leader_that_cannot_reach_the_server_stops_before_its_lease_ends(
    candidate: Callable[[], Candidate], cluster: Cluster
) -> None:
    first = candidate()
    wait_for(lambda: first.elector.token, describe="the first leads")
    cluster.control_plane.stop_apiserver()
    try:
        wait_for(lambda: first.lost, deadline=5, describe="it fences itself", every=0.02)
        assert first.elector.token is None
        assert "could not be renewed" in first.lost[0]
    finally:
        cluster.control_plane.start_apiserver()
    second = candidate()
    wait_for(lambda: second.elector.token, deadline=10, describe="another takes over")
    assert first.lost == [first.lost[0]], "once"


def test_a_short_outage_costs_no_leadership(
    candidate: Callable[[], Candidate], cluster: Cluster, namespace: str
) -> None:
    """llm-d#123: timings too short for a slow API cost the lead."""
    first = candidate()
    wait_for(lambda: first.elector.token, describe="the first leads")
    before = lease(cluster, namespace)["renewTime"]
    # Somebody's write makes ours conflict once; that is no loss.
    cluster.api.patch(
        "coordination.k8s.io/v1",
        "Lease",
        name="specpilot",
        namespace=namespace,
        patch={"metadata": {"labels": {"touched": "yes"}}},
    )
    wait_for(lambda: lease(cluster, namespace)["renewTime"] > before, describe="renewed")
    assert first.elector.token
    assert first.lost == []


def test_a_lease_taken_by_force_is_noticed(
    candidate: Callable[[], Candidate], cluster: Cluster, namespace: str
) -> None:
    first = candidate()
    wait_for(lambda: first.elector.token, describe="the first leads")
    cluster.api.patch(
        "coordination.k8s.io/v1",
        "Lease",
        name="specpilot",
        namespace=namespace,
        patch={"spec": {"holderIdentity": "usurper", "leaseTransitions": 9}},
    )
    wait_for(lambda: first.lost, deadline=3, describe="it notices")
    assert first.elector.token is None
    assert lease(cluster, namespace)["holderIdentity"] == "usurper", "and does not take it back"
