"""Beside a GitOps tool or an owner that applies the workload again and again, as they do.

What Argo CD and Flux do is played with their field managers and their kinds of writes, since
neither runs here: a server-side apply with force, and a replacement of the whole object.
"""

import json

import pytest

from specpilot.domain.changes import Extent
from specpilot.domain.settings import Declared
from tests.integration.kubernetes.conftest import (
    NEVER_OURS,
    NGRAM,
    MakeTarget,
    Manifest,
    Target,
    all_run,
    held,
)

pytestmark = pytest.mark.cluster

OFF = Declared(setting="off", config="")
"""What an empty annotation of a user says."""

FLUX = "kustomize-controller"


def from_git(make_target: MakeTarget, *, config: str | None = None) -> tuple[Target, Manifest]:
    """A target, and the manifest that lies in Git."""
    kept: Manifest = {}

    def keep(manifest: Manifest) -> Manifest:
        metadata = manifest["spec"]["template"]["metadata"]
        if config is not None:
            metadata["annotations"] = {"specpilot.io/speculative-config": config}
        kept.update(json.loads(json.dumps(manifest)))
        return manifest

    return make_target(wrap=keep), kept


@pytest.mark.parametrize("extent", list(Extent), ids=str)
def test_a_manifest_that_is_applied_again_leaves_our_value_and_starts_no_pod(
    make_target: MakeTarget, extent: Extent
) -> None:
    """argo-helm#3654, argo-cd#28769, flux2#2526: an annotation set from outside was undone.

    Reloader#333: an annotation survives where its key is owned by itself. argo-cd#12967,
    flagger#1504, kserve#3768: `replicas` and all other fields stay whose they are.
    """
    target, manifest = from_git(make_target)
    assert target.carry_out(NGRAM, Extent.CANARY), "the setting was written"
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    if extent is Extent.ALL:
        target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM))
    before, pods = target.observe(), target.pods()
    for _ in range(3):
        target.apply(manifest, manager=FLUX)
        assert not target.carry_out(NGRAM, extent), "there is nothing to write again"
    after = target.observe()
    assert (after.declared, after.halted) == (NGRAM, before.halted)
    assert after.user_template == before.user_template, "and it is nobody's edit"
    assert target.pods() == pods


def test_a_value_that_git_states_itself_is_not_fought_for(make_target: MakeTarget) -> None:
    """flux2#2526, vault-secrets-operator#921: two owners of one field roll the pods twice."""
    target, manifest = from_git(make_target, config="")
    pods = target.pods()
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    target.apply(manifest, manager=FLUX)
    theirs = target.observe().declared
    assert (theirs.config, theirs == NEVER_OURS) == ("", False), theirs
    assert not target.carry_out(NGRAM, Extent.CANARY), "a contest is not ours to win"
    target.carry_out(theirs, Extent.ALL)
    state = target.until(lambda s: not s.rolling and s.all_run(OFF) and len(s.live()) == 3)
    assert not state.halted
    assert target.pods() == pods, "only the canary went"
    template = target.object()["spec"]["template"]
    assert template["metadata"]["annotations"] == {"specpilot.io/speculative-config": ""}
    assert "specpilot" not in {e["manager"] for e in target.object()["metadata"]["managedFields"]}


def test_an_owner_that_replaces_the_whole_object_is_seen_to_have_done_so(
    make_target: MakeTarget,
) -> None:
    """opentelemetry-operator#1300, grafana/agent#4495, gardener#8463: the roll looks finished.

    `Replace=true` of Argo CD is the same write.
    """
    target, manifest = from_git(make_target)
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM))
    version = target.object()["metadata"]["resourceVersion"]
    metadata = {**manifest["metadata"], "resourceVersion": version}
    target.cluster.api.replace({**manifest, "metadata": metadata}, namespace=target.ref.namespace)
    state = target.observe()
    assert state.declared == NEVER_OURS
    assert not state.all_run(NGRAM)
    assert target.carry_out(NGRAM, Extent.CANARY), "what is written again is told, to be counted"
    target.carry_out(NEVER_OURS, Extent.ALL)
    target.until(lambda s: s.all_run(NEVER_OURS) and len(s.live()) == 3 and not s.rolling)
