"""A rule set is taken whole or refused whole, and a refusal is to be seen where it was written."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from specpilot.controller.applying import apply_documents
from specpilot.controller.cluster_registry import ClusterRegistry
from specpilot.controller.publisher import Publisher
from specpilot.fleets.kubernetes import RULE_SETS
from specpilot.fleets.kubernetes.store import Store as Objects
from specpilot.resources import ResourceError, load
from specpilot.store import RuleOwner, Store

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
GOOD = {"name": "busy", "when": "batch_size > 32", "setting": "off"}
BAD = [
    ({"when": "batchsize > 32"}, "did you mean batch_size?"),
    ({"when": "batch_size > 5m"}, "batch_size is in requests and 5m is in seconds"),
    ({"until": "batch_size <"}, "the condition ends"),
    ({"for": "5m", "atLeast": {"windows": 1, "of": 2, "each": "1m"}}, "remove one of them"),
]


class Clock:
    def now(self) -> datetime:
        return NOW


class Cluster:
    """What the watches know, and the statuses that were written."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.status: dict[str, Any] = {}
        self.generation = 0

    def store(self, resource: object) -> Objects:
        return self.objects if resource == RULE_SETS else Objects()

    def apply(self, _: object, body: Mapping[str, Any], *, subresource: str) -> None:
        assert subresource == "status"
        self.status = dict(body["status"])

    def write(self, *rules: Mapping[str, Any], **spec: Any) -> None:
        self.generation += 1
        self.objects.put(
            {
                "apiVersion": "specpilot.io/v1alpha1",
                "kind": "RuleSet",
                "metadata": {
                    "namespace": "serving",
                    "name": "guard",
                    "uid": "u",
                    "generation": self.generation,
                    "resourceVersion": str(self.generation),
                },
                "spec": {"rules": list(rules), **spec},
            }
        )

    @property
    def valid(self) -> dict[str, Any]:
        [condition] = self.status["conditions"]
        return condition


def registry_of(cluster: Cluster, store: Store) -> ClusterRegistry:
    stands_in: Any = cluster  # has the methods that are used
    return ClusterRegistry(
        api=stands_in,
        watches=stands_in,
        store=store,
        clock=Clock(),
        publisher=Publisher(),
        changes=Publisher(),
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(f"sqlite:///{tmp_path / 'x.sqlite'}")) as opened:
        yield opened


@pytest.mark.parametrize(("fault", "says"), BAD, ids=lambda b: b if isinstance(b, str) else "")
def test_a_bad_version_leaves_the_old_one_in_force_and_says_so(
    store: Store, fault: Mapping[str, Any], says: str
) -> None:
    cluster = Cluster()
    registry = registry_of(cluster, store)
    cluster.write(GOOD)
    registry.sync_rule_sets()
    assert (cluster.valid["status"], cluster.status["version"]) == ("True", 1)
    cluster.write({**GOOD, "when": "batch_size > 64"}, {**GOOD, "name": "second", **fault})
    registry.sync_rule_sets()
    assert (cluster.valid["status"], cluster.valid["reason"]) == ("False", "Invalid")
    assert says in cluster.valid["message"]
    assert "version 1 stays in force" in cluster.valid["message"]
    assert cluster.status["version"] == 1
    assert cluster.status["observedGeneration"] == 2
    with store.read() as unit:
        latest = unit.rules.latest(namespace="serving", name="guard")
    assert latest is not None
    assert [r.when for r in latest.rule_set.rules] == ["batch_size > 32"], "not even its good rule"
    cluster.write({**GOOD, "when": "batch_size > 64"})
    registry.sync_rule_sets()
    assert (cluster.valid["status"], cluster.status["version"]) == ("True", 2)


def test_every_field_of_a_rule_reaches_the_database(store: Store) -> None:
    cluster = Cluster()
    registry = registry_of(cluster, store)
    windows = {"windows": 3, "of": 5, "each": "1m"}
    more = {"until": "batch_size < 24", "onUnknown": "skip", "grace": "2m", "minDrafts": 5}
    cluster.write(
        {**GOOD, "atLeast": windows, **more},
        {**GOOD, "name": "night", "when": "time.hour >= 22", "for": "5m"},
        timeZone="Europe/Berlin",
    )
    registry.sync_rule_sets()
    with store.read() as unit:
        latest = unit.rules.latest(namespace="serving", name="guard")
    assert latest is not None
    assert latest.content_hash == latest.rule_set.content_hash()
    assert latest.rule_set.time_zone == "Europe/Berlin"
    first = latest.rule_set.rules[0]
    assert first.at_least is not None
    assert (first.at_least.windows, first.at_least.of) == (3, 5)
    assert (first.at_least.each.seconds, first.grace.seconds) == (60, 120)
    assert (first.until, str(first.on_unknown), first.min_drafts) == ("batch_size < 24", "skip", 5)


@pytest.mark.parametrize(("fault", "says"), BAD, ids=lambda b: b if isinstance(b, str) else "")
def test_on_one_machine_a_bad_file_changes_nothing(
    store: Store, fault: Mapping[str, Any], says: str
) -> None:
    def apply(*rules: Mapping[str, Any]) -> None:
        text = "apiVersion: specpilot.io/v1alpha1\nkind: RuleSet\nmetadata: {name: guard}\n"
        text += "spec: {rules: " + str([dict(r) for r in rules]) + "}\n"
        apply_documents(load(text, source="rules.yaml"), store=store, clock=Clock())

    apply(GOOD)
    with pytest.raises(ResourceError, match=r"rules\.yaml") as refused:
        apply({**GOOD, "when": "batch_size > 64"}, {**GOOD, "name": "second", **fault})
    assert says in str(refused.value)
    with store.read() as unit:
        found = unit.rules.list(namespace="local")
        assert [v.version for v in found] == [1]
        assert [r.when for r in found[0].rule_set.rules] == ["batch_size > 32"]
        assert unit.rules.owner(namespace="local", name="guard") is RuleOwner.FILE
        stored = unit.resources.get(kind="RuleSet", namespace="local", name="guard")
    assert stored is not None
    assert stored.generation == 1
