"""Who applies a workload, what makes them leave our fields, and the patch for them."""

from typing import Any

import pytest
import yaml

from specpilot.domain.settings import Declared
from specpilot.domain.targets import TargetRef
from specpilot.fleets.kubernetes.gitops import hands_kv_over, keeper, patch
from specpilot.fleets.kubernetes.objects import slim_workload
from specpilot.fleets.kubernetes.wiring import declared


def workload(
    *, labels: dict[str, str] | None = None, notes: dict[str, str] | None = None, manager: str = ""
) -> dict[str, Any]:
    entry = {"manager": manager or "kubectl", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    return slim_workload(
        {
            "metadata": {
                "name": "chat",
                "namespace": "serving",
                "labels": labels or {},
                "annotations": notes or {},
                "managedFields": [entry],
            },
            "spec": {"template": {"metadata": {}, "spec": {"containers": [{"name": "vllm"}]}}},
        },
        fields=(),
    )


@pytest.mark.parametrize(
    ("found", "want", "reason"),
    [
        (workload(), None, "nobody"),
        (
            workload(notes={"argocd.argoproj.io/tracking-id": "llm:apps/Deployment:serving/chat"}),
            ("Argo CD", "Application llm"),
            "tracking by annotation",
        ),
        (
            workload(labels={"argocd.argoproj.io/instance": "llm"}),
            ("Argo CD", "Application llm"),
            "tracking by label",
        ),
        (
            workload(manager="argocd-controller"),
            ("Argo CD", "Application unknown"),
            "only the managed fields tell",
        ),
        (
            workload(labels={"kustomize.toolkit.fluxcd.io/name": "apps"}),
            ("Flux", "Kustomization apps"),
            "Flux from a Kustomization",
        ),
        (
            workload(
                labels={
                    "helm.toolkit.fluxcd.io/name": "vllm",
                    "app.kubernetes.io/managed-by": "Helm",
                },
                notes={"meta.helm.sh/release-name": "vllm"},
            ),
            ("Flux", "HelmRelease vllm"),
            "Flux by way of Helm is Flux",
        ),
        (
            workload(notes={"meta.helm.sh/release-name": "vllm"}),
            ("Helm", "release vllm"),
            "Helm by hand",
        ),
        (
            workload(
                labels={"app.kubernetes.io/managed-by": "Helm"},
                notes={"argocd.argoproj.io/tracking-id": "llm:apps/Deployment:serving/chat"},
            ),
            ("Argo CD", "Application llm"),
            "a chart rendered by Argo CD is Argo CD's",
        ),
        (workload(labels={"app.kubernetes.io/instance": "chat"}), None, "says nothing"),
    ],
)
def test_who_applies_it(found: dict[str, Any], want: tuple[str, str] | None, reason: str) -> None:
    told = keeper(found, field_manager="specpilot")
    assert (told and (told.tool, told.name)) == want, reason


def test_argo_cd_is_told_to_leave_exactly_our_fields() -> None:
    """argo-cd#9696, #9071, #20178: managers alone are not honoured everywhere."""
    told = keeper(workload(manager="argocd-controller"), field_manager="steering")
    assert told is not None
    spec = yaml.safe_load(told.snippet)["spec"]
    (ignored,) = spec["ignoreDifferences"]
    assert (ignored["kind"], ignored["namespace"], ignored["name"]) == (
        "Deployment",
        "serving",
        "chat",
    )
    assert ignored["managedFieldsManagers"] == ["steering"]
    assert (
        "/spec/template/metadata/annotations/specpilot.io~1speculative-config"
        in (ignored["jsonPointers"])
    )
    assert spec["syncPolicy"]["syncOptions"] == ["RespectIgnoreDifferences=true"]


def test_flux_is_told_by_the_release_or_on_the_workload() -> None:
    """flux2#2526, kustomize-controller#558: annotations set from outside were undone."""
    release = keeper(workload(labels={"helm.toolkit.fluxcd.io/name": "a"}), field_manager="s")
    assert release is not None
    drift = yaml.safe_load(release.snippet)["spec"]["driftDetection"]
    assert drift["ignore"][0]["target"] == {"kind": "Deployment", "name": "chat"}
    plain = keeper(workload(labels={"kustomize.toolkit.fluxcd.io/name": "a"}), field_manager="s")
    assert plain is not None
    notes = yaml.safe_load(plain.snippet)["metadata"]["annotations"]
    assert notes == {"kustomize.toolkit.fluxcd.io/ssa": "Merge"}


@pytest.mark.parametrize("config", ['{"method":"ngram","num_speculative_tokens":4}', ""])
def test_what_the_patch_says_is_read_back(config: str) -> None:
    wanted = Declared(setting="ngram" if config else "off", config=config, change_id="c1")
    ref = TargetRef(kind="Deployment", namespace="serving", name="chat")
    found = yaml.safe_load(patch(ref, wanted))
    assert found["metadata"] == {"name": "chat", "namespace": "serving"}
    assert declared(found["spec"]["template"]["metadata"]["annotations"]) == wanted


@pytest.mark.parametrize(
    ("command", "want"),
    [
        (["vllm", "serve", "m", "--kv-transfer-config", "{}"], True),
        (["--kv_transfer_config={}"], True),
        (["sh", "-c", "vllm serve m --kv-transfer-config '{}'"], True),
        (["vllm", "serve", "m"], False),
    ],
)
def test_a_pair_that_hands_its_cache_over(command: list[str], want: bool) -> None:
    assert hands_kv_over(command) is want


@pytest.mark.parametrize(
    ("kind", "group", "pointers"),
    [
        ("StatefulSet", "apps", ["/spec/updateStrategy/rollingUpdate/partition"]),
        ("Rollout", "argoproj.io", ["/spec/paused"]),
        (
            "LeaderWorkerSet",
            "leaderworkerset.x-k8s.io",
            [
                "/spec/leaderWorkerTemplate/workerTemplate/metadata/annotations/specpilot.io~1setting",
                "/spec/rolloutStrategy/rollingUpdateConfiguration/partition",
            ],
        ),
    ],
)
def test_each_kind_has_its_own_fields_to_be_left_alone(
    kind: str, group: str, pointers: list[str]
) -> None:
    found = keeper(
        {
            "kind": kind,
            "metadata": {
                "name": "chat",
                "namespace": "serving",
                "annotations": {"argocd.argoproj.io/tracking-id": "app:x"},
            },
        },
        field_manager="specpilot",
    )
    assert found is not None
    assert f"group: {group}" in found.snippet
    for each in pointers:
        assert each in found.snippet
