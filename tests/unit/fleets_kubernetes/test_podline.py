"""What a container is really started with, from a manifest and what lies beside it."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.fleets.kubernetes.podline import PodLine, resolve
from specpilot.fleets.kubernetes.podline_channel import Fit, advice
from specpilot.fleets.kubernetes.podline_objects import Documents, flattened, templates
from specpilot.fleets.kubernetes.wiring import ARGUMENT, CONFIG_ANNOTATION, FIELD_PATH, VARIABLE

NGRAM = '{"method":"ngram","num_speculative_tokens":4}'
CONFIG = json.loads(NGRAM)

BESIDE = f"""
kind: ConfigMap
metadata: {{name: engine}}
data:
  spec: '{NGRAM}'
  vllm.yaml: |
    speculative-config: '{NGRAM}'
    data-parallel-size: 2
---
kind: Secret
metadata: {{name: hidden}}
data: {{spec: {base64.b64encode(NGRAM.encode()).decode()}}}
stringData: {{plain: ngram}}
---
kind: ConfigMap
metadata: {{name: engine, namespace: elsewhere}}
data: {{spec: '{{}}'}}
"""


def line(pod: str, *, beside: str = BESIDE) -> PodLine:
    """The only container of a pod's `spec`, given with its `metadata` as YAML."""
    obj = {"kind": "Pod", **yaml.safe_load(pod)}
    (template,) = templates(obj)
    documents = Documents(objects=flattened([*yaml.safe_load_all(beside), obj]))
    (container,) = template.containers
    return resolve(container, pod=template.spec, metadata=template.metadata, lookup=documents)


def pod(container: str, *, spec: str = "", metadata: str = "{name: p, namespace: serving}") -> str:
    return f"metadata: {metadata}\nspec:\n  containers:\n  - {container}\n{spec}"


def started(env: str, args: str = '["-sc", "$(S)"]', *, more: str = "", **rest: str) -> str:
    return pod(
        f"{{name: vllm, image: vllm/vllm-openai:v0.32.0, args: {args}, {env}{more}}}", **rest
    )


@pytest.mark.parametrize(
    ("manifest", "origin", "reason"),
    [
        (started(f"env: [{{name: S, value: '{NGRAM}'}}]"), "env value", "literal"),
        (
            started("env: [{name: S, valueFrom: {configMapKeyRef: {name: engine, key: spec}}}]"),
            "ConfigMap engine, key spec",
            "of a ConfigMap",
        ),
        (
            started("env: [{name: S, valueFrom: {secretKeyRef: {name: hidden, key: spec}}}]"),
            "Secret hidden, key spec",
            "of a Secret, base64",
        ),
        (
            started(
                "envFrom: [{configMapRef: {name: engine}, prefix: E_}]", '["-sc", "$(E_spec)"]'
            ),
            "ConfigMap engine, key spec (envFrom)",
            "all of a ConfigMap, with a prefix",
        ),
        (
            started(
                "env: [{name: S, valueFrom: {fieldRef: {fieldPath: "
                "\"metadata.annotations['x/spec']\"}}}]",
                metadata=f"{{name: p, annotations: {{x/spec: '{NGRAM}'}}}}",
            ),
            "metadata.annotations['x/spec'] (downward API)",
            "an annotation",
        ),
        (
            started(
                "env: [{name: M, valueFrom: {secretKeyRef: {name: hidden, key: plain}}}, {name: S,"
                ' value: \'{"method":"$(M)","num_speculative_tokens":4}\'}]'
            ),
            "env value; $(M) from Secret hidden, key plain",
            "a variable in a variable",
        ),
        (
            started(f"env: [{{name: S, value: x}}, {{name: S, value: '{NGRAM}'}}]"),
            "env value",
            "the later of two wins",
        ),
        (
            started(
                "envFrom: [{configMapRef: {name: engine}}], "
                f"env: [{{name: spec, value: '{NGRAM}'}}]",
                '["-sc", "$(spec)"]',
            ),
            "env value",
            "env wins over envFrom",
        ),
    ],
)
def test_a_variable(manifest: str, origin: str, reason: str) -> None:
    found = line(manifest)
    parsed = found.parse(version="0.32.0")
    assert parsed.problem == ""
    assert json.loads(parsed.config) == CONFIG, reason
    (name,) = parsed.sources["method"].variables
    assert found.variables[name].origin == origin
    assert found.place(parsed.sources["method"].at) == "args[1]"


@pytest.mark.parametrize(
    ("manifest", "says", "origin"),
    [
        (
            started("env: [{name: S, valueFrom: {secretKeyRef: {name: other, key: spec}}}]"),
            "contains $(S), which is not known",
            "Secret other is not at hand",
        ),
        (
            started("env: [{name: S, valueFrom: {configMapKeyRef: {name: engine, key: sepc}}}]"),
            "contains $(S), which is not known",
            "ConfigMap engine has no key sepc, and the pod does not start",
        ),
        (
            started("env: [{name: S, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]"),
            "contains $(S), which is not known",
            "status.podIP is known where the pod runs only",
        ),
        (
            started(
                "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}, "
                "{name: S, value: 'x $(A)'}]"
            ),
            "contains $(S), which is not known",
            "env value with $(A): valueFrom resourceFieldRef is known where the pod runs only",
        ),
    ],
)
def test_a_variable_that_is_not_known(manifest: str, says: str, origin: str) -> None:
    found = line(manifest)
    assert says in found.parse(version="0.32.0").problem
    assert found.variables["S"].origin == origin


def test_any_variable_may_come_from_a_source_that_is_not_at_hand() -> None:
    found = line(started("envFrom: [{secretRef: {name: other}}]"))
    assert "contains $(S), which is not known" in found.parse().problem
    assert found.more_variables == "Secret other (envFrom) is not at hand"


def test_a_variable_that_does_not_exist_stays_as_it_is_written() -> None:
    optional = "{name: S, valueFrom: {configMapKeyRef: {name: engine, key: x, optional: true}}}"
    for env in ("env: []", f"env: [{optional}]"):
        assert "-sc $(S) is not JSON" in line(started(env)).parse(version="0.32.0").problem


def mounted(volume: str, mount: str, args: str = '["--config", "/e/vllm.yaml"]') -> str:
    return started(
        f"volumeMounts: [{{name: v, {mount}}}]",
        args,
        spec=f"  volumes: [{{name: v, {volume}}}]",
    )


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (mounted("configMap: {name: engine}", "mountPath: /e"), "a directory"),
        (
            mounted("configMap: {name: engine}", "mountPath: /e/vllm.yaml, subPath: vllm.yaml"),
            "one file",
        ),
        (
            mounted(
                "configMap: {name: engine, items: [{key: vllm.yaml, path: a/vllm.yaml}]}",
                "mountPath: /e, subPath: a",
            ),
            "a renamed key in a directory",
        ),
        (
            mounted("projected: {sources: [{configMap: {name: engine}}]}", "mountPath: /e"),
            "projected",
        ),
        (
            mounted(
                "configMap: {name: engine}",
                "mountPath: /e",
                '["--config", "vllm.yaml"], workingDir: /e',
            ),
            "from the working directory",
        ),
    ],
)
def test_a_file_of_a_volume(manifest: str, reason: str) -> None:
    found = line(manifest)
    parsed = found.parse(version="0.32.0")
    assert (parsed.problem, json.loads(parsed.config or "null")) == ("", CONFIG), reason
    assert found.file_origins[parsed.sources["method"].where] == "ConfigMap engine, key vllm.yaml"
    assert parsed.launch.data_parallel == 2


def test_a_file_that_is_not_at_hand_is_said() -> None:
    found = line(mounted("configMap: {name: other}", "mountPath: /e"))
    assert "its content is not known" in found.parse(version="0.32.0").problem
    assert found.faults == ("/e: ConfigMap other is not at hand",)


def test_the_form_with_equals_is_ignored_by_the_engine() -> None:
    found = line(mounted("configMap: {name: engine}", "mountPath: /e", '["--config=/e/vllm.yaml"]'))
    parsed = found.parse(version="0.32.0")
    assert (parsed.problem, parsed.config) == ("", "")
    assert [s.loser.flag for s in parsed.shadows] == ["--config=/e/vllm.yaml"]


def test_a_script_that_uses_the_variables_of_the_pod() -> None:
    script = 'exec vllm serve m \\\\\\n  --port 80 \\\\\\n  --speculative-config "$S"\\n'
    found = line(
        started("env: [{name: S, valueFrom: {configMapKeyRef: {name: engine, key: spec}}}]",
                f'["-c", "{script.replace(chr(34), chr(92) + chr(34))}"], command: [sh]')
    )  # fmt: skip
    parsed = found.parse(version="0.32.0")
    assert (parsed.problem, json.loads(parsed.config or "null")) == ("", CONFIG)
    assert found.place(parsed.sources["method"].at) == "args[1]"


OBJECTS = {
    "Deployment": "spec: {template: {metadata: {labels: {a: b}}, spec: SPEC}}",
    "StatefulSet": "spec: {template: {spec: SPEC}}",
    "Pod": "spec: SPEC",
    "CronJob": "spec: {jobTemplate: {spec: {template: {spec: SPEC}}}}",
    "Rollout": "spec: {template: {spec: SPEC}}",
    "InferenceService": "spec: {predictor: {model: {args: [a], image: i}}}",
    "LLMInferenceService": "spec: {template: SPEC}",
    "DynamoGraphDeployment": "spec: {services: {w: {extraPodSpec: {mainContainer: {args: [a]}}}}}",
    "StormService": "spec: {template: {spec: {roles: [{template: {spec: SPEC}}]}}}",
    "SomethingNew": "spec: {a: [{b: {template: {spec: SPEC}}}]}",
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_pod_templates_are_known_by_their_shape(kind: str) -> None:
    spec = "{containers: [{name: vllm, image: i, args: [a]}]}"
    obj = {"kind": kind, "metadata": {"name": "x"}}
    obj |= yaml.safe_load(OBJECTS[kind].replace("SPEC", spec))
    (template,) = templates(obj)
    assert [c["args"] for c in template.containers] == [["a"]]
    assert str(template).startswith(f"{kind}/x")


def test_each_template_of_an_object_is_found() -> None:
    spec = "{containers: [{name: vllm}]}"
    obj = yaml.safe_load(
        f"{{kind: LeaderWorkerSet, metadata: {{name: x}}, spec: {{leaderWorkerTemplate: "
        f"{{leaderTemplate: {{spec: {spec}}}, workerTemplate: {{spec: {spec}}}}}}}}}"
    )
    assert [str(t) for t in templates(obj)] == [
        "LeaderWorkerSet/x at spec.leaderWorkerTemplate.leaderTemplate.spec",
        "LeaderWorkerSet/x at spec.leaderWorkerTemplate.workerTemplate.spec",
    ]


def test_a_list_is_its_items() -> None:
    objs = flattened([{"kind": "List", "items": [{"kind": "Pod"}, None]}, None, 3])
    assert objs == [{"kind": "Pod"}]


WIRED = {
    "name": "vllm",
    "image": "vllm/vllm-openai:v0.32.0",
    "args": ["--model=m", ARGUMENT],
    "env": [{"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": FIELD_PATH}}}],
}


def workload(
    container: Mapping[str, Any], kind: str = "Deployment", **metadata: Any
) -> dict[str, Any]:
    pod_spec = {"containers": [container]}
    annotations = {"annotations": {CONFIG_ANNOTATION: NGRAM}}
    body = {"metadata": annotations, "spec": pod_spec}
    return {
        "kind": kind,
        "metadata": {"name": "x", **metadata},
        "spec": pod_spec if kind == "Pod" else {"template": body},
    }


CONTROLLED = {"ownerReferences": [{"kind": "InferenceService", "name": "chat", "controller": True}]}


@pytest.mark.parametrize(
    ("obj", "version", "fits", "says"),
    [
        (workload(WIRED), "0.32.0", Fit.ANNOTATION, "nothing shadows it"),
        (
            workload({**WIRED, "args": [ARGUMENT, "-sc", NGRAM]}),
            "0.32.0",
            Fit.ANNOTATION,
            "wins over it; take that out",
        ),
        (workload({**WIRED, "args": ["-sc", NGRAM]}), "0.32.0", Fit.ANNOTATION, "taken out"),
        (workload({**WIRED, "args": ["m"]}), "0.9.2", Fit.ARGUMENTS, "empty value"),
        (
            workload({"name": "vllm", "command": ["sh", "-c", "exec vllm serve m"]}),
            "0.32.0",
            Fit.ANNOTATION,
            f"--speculative-config='$({VARIABLE})'",
        ),
        (workload({**WIRED, "args": ["-sc", "{"]}), "0.32.0", Fit.NONE, "is not understood"),
        (workload(WIRED, "Pod"), "0.32.0", Fit.NONE, "bare Pod"),
        (workload(WIRED, **CONTROLLED), "0.32.0", Fit.OWNER, "spec.predictor.model.args"),
        (workload(WIRED, "VLLMRuntime"), "0.32.0", Fit.OWNER, "spec.vllmConfig.extraArgs"),
        (workload(WIRED, "Novelty"), "0.32.0", Fit.OWNER, "is not described"),
        (workload(WIRED, "LeaderWorkerSet"), "0.32.0", Fit.ANNOTATION, "nothing shadows it"),
    ],
)
def test_the_channel_that_fits(obj: dict[str, Any], version: str, fits: Fit, says: str) -> None:
    (template,) = templates(obj)
    (container,) = template.containers
    found = resolve(container, pod=template.spec, metadata=template.metadata, lookup=Documents())
    parsed = found.parse(version=version, variable=VARIABLE)
    advised = advice(parsed, found, owner=obj, version=version)
    assert (advised.channel, says in advised.why) == (fits, True), advised.why


def test_the_annotation_of_a_wired_template_is_what_runs() -> None:
    (template,) = templates(workload(WIRED))
    found = resolve(
        template.containers[0], pod=template.spec, metadata=template.metadata, lookup=Documents()
    )
    parsed = found.parse(version="0.32.0", variable=VARIABLE)
    assert (json.loads(parsed.config), parsed.wired) == (CONFIG, True)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["spec", "containers", "name", "args", "command", "env", "envFrom", "valueFrom",
             "volumes", "volumeMounts", "fieldRef", "fieldPath", "configMap", "items", "image",
             "template", "metadata", "annotations", "kind", "mountPath", "configMapKeyRef", "data"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=30,
)  # fmt: skip


@given(ANY)
@settings(max_examples=300)
def test_no_object_makes_it_fall_over(obj: Any) -> None:
    for each in flattened([obj]):
        for template in templates(each):
            for container in template.containers:
                found = resolve(
                    container,
                    pod=template.spec,
                    metadata=template.metadata,
                    lookup=Documents(objects=[each]),
                )
                parsed = found.parse(variable=VARIABLE)
                advice(parsed, found, owner=each, version="0.32.0")
