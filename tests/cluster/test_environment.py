"""The kubelet's view of a container's environment, case by case."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.cluster.kubelet.environment import (
    ConfigError,
    Configuration,
    PodContext,
    command_line,
    environment,
    expand,
)


@dataclass(frozen=True)
class Expansion:
    reason: str
    text: str
    want: str
    variables: dict[str, str] = field(default_factory=lambda: {"A": "1", "EMPTY": "", "B": "$(A)"})


EXPANSIONS = [
    Expansion("a defined variable is replaced", "x=$(A)", "x=1"),
    Expansion(
        "defined but empty is defined", "--speculative-config=$(EMPTY)", "--speculative-config="
    ),
    Expansion("undefined stays literal", "$(NONE)", "$(NONE)"),
    Expansion("a doubled dollar escapes the reference", "$$(A)", "$(A)"),
    Expansion("an escaped dollar before a reference", "$$$(A)", "$1"),
    Expansion("two escapes", "$$$$(A)", "$$(A)"),
    Expansion("a shell variable is none of the kubelet's", "$A ${A}", "$A ${A}"),
    Expansion("a lone dollar at the end", "cost $", "cost $"),
    Expansion("an unclosed reference stays", "$(A", "$(A"),
    Expansion("an empty name is undefined", "$()", "$()"),
    Expansion("a reference in an unclosed one belongs to its name", "$(X $(A)", "$(X $(A)"),
    Expansion("what was put in is not expanded again", "$(B)", "$(A)"),
    Expansion("several in one text", "$(A)-$(A)-$(NONE)", "1-1-$(NONE)"),
    Expansion("JSON passes unharmed", '{"k": "$(A)", "n": [1, 2]}', '{"k": "1", "n": [1, 2]}'),
]


@pytest.mark.parametrize("case", EXPANSIONS, ids=lambda case: case.reason)
def test_expansion(case: Expansion) -> None:
    assert expand(case.text, case.variables) == case.want, case.reason


def pod(**metadata: Any) -> PodContext:
    return PodContext(
        pod={
            "metadata": {"name": "chat-1", "namespace": "serving", "uid": "u-1", **metadata},
            "spec": {
                "nodeName": "gpu-1",
                "serviceAccountName": "default",
                "containers": [
                    {"name": "vllm", "resources": {"limits": {"cpu": "1500m", "memory": "2Gi"}}}
                ],
            },
        },
        ip="127.1.0.7",
        host_ip="127.0.0.1",
    )


CONFIGURATION = Configuration(
    config_maps={"shared": {"data": {"A": "from-map", "LEVEL": "info"}}},
    secrets={"keys": {"data": {"TOKEN": base64.b64encode(b"s3cret").decode()}}},
)


def from_field(path: str) -> dict[str, Any]:
    return {"name": "V", "valueFrom": {"fieldRef": {"fieldPath": path}}}


@dataclass(frozen=True)
class Entry:
    reason: str
    env: list[dict[str, Any]]
    want: dict[str, str]
    env_from: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)


ENTRIES = [
    Entry(
        "an annotation of the pod",
        [from_field("metadata.annotations['specpilot.io/config']")],
        {"V": '{"method":"ngram"}'},
        metadata={"annotations": {"specpilot.io/config": '{"method":"ngram"}'}},
    ),
    Entry(
        "a missing annotation is empty, which vLLM reads as off",
        [from_field("metadata.annotations['specpilot.io/config']")],
        {"V": ""},
        metadata={"annotations": {"other": "x"}},
    ),
    Entry(
        "no annotations at all is the same",
        [from_field("metadata.annotations['specpilot.io/config']")],
        {"V": ""},
    ),
    Entry(
        "an annotation's value is not expanded",
        [{"name": "A", "value": "1"}, from_field("metadata.annotations['k']")],
        {"A": "1", "V": "$(A)"},
        metadata={"annotations": {"k": "$(A)"}},
    ),
    Entry("the pod's address", [from_field("status.podIP")], {"V": "127.1.0.7"}),
    Entry("the node", [from_field("spec.nodeName")], {"V": "gpu-1"}),
    Entry(
        "a later entry sees an earlier one, not the other way round",
        [
            {"name": "X", "value": "$(Y)"},
            {"name": "Y", "value": "1"},
            {"name": "Z", "value": "$(Y)"},
        ],
        {"X": "$(Y)", "Y": "1", "Z": "1"},
    ),
    Entry(
        "env overrides envFrom, and sees it",
        [{"name": "A", "value": "own"}, {"name": "B", "value": "$(LEVEL)"}],
        {"A": "own", "LEVEL": "info", "B": "info"},
        env_from=[{"configMapRef": {"name": "shared"}}],
    ),
    Entry(
        "envFrom with a prefix",
        [],
        {"P_TOKEN": "s3cret"},
        env_from=[{"prefix": "P_", "secretRef": {"name": "keys"}}],
    ),
    Entry(
        "an optional key that is absent leaves the variable undefined",
        [
            {
                "name": "X",
                "valueFrom": {
                    "configMapKeyRef": {"name": "shared", "key": "none", "optional": True}
                },
            },
            {"name": "Y", "value": "$(X)"},
        ],
        {"Y": "$(X)"},
    ),
    Entry(
        "a limit is rounded up to whole units of the divisor",
        [
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {
                "name": "MIB",
                "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
            },
        ],
        {"CPU": "2", "MIB": "2048"},
    ),
]


@pytest.mark.parametrize("case", ENTRIES, ids=lambda case: case.reason)
def test_environment(case: Entry) -> None:
    context = pod(**case.metadata)
    container = {**context.pod["spec"]["containers"][0], "env": case.env, "envFrom": case.env_from}
    found = environment(
        container=container, context=context, configuration=CONFIGURATION, services={}
    )
    assert found == case.want, case.reason


@dataclass(frozen=True)
class Refusal:
    reason: str
    source: dict[str, Any]
    match: str


REFUSALS = [
    Refusal(
        "a required ConfigMap is missing",
        {"configMapKeyRef": {"name": "absent", "key": "k"}},
        'configmap "absent" not found',
    ),
    Refusal(
        "a required key is missing",
        {"secretKeyRef": {"name": "keys", "key": "k"}},
        "couldn't find key k in secret keys",
    ),
    Refusal("an unknown field", {"fieldRef": {"fieldPath": "spec.containers"}}, "not supported"),
    Refusal(
        "all annotations are for volumes only by the API, but a typo in a subscript is refused",
        {"fieldRef": {"fieldPath": "metadata.annotations[k]"}},
        "not supported",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.reason)
def test_refusals(case: Refusal) -> None:
    context = pod()
    with pytest.raises(ConfigError, match=case.match):
        environment(
            container={"name": "vllm", "env": [{"name": "V", "valueFrom": case.source}]},
            context=context,
            configuration=CONFIGURATION,
            services={},
        )


@dataclass(frozen=True)
class Command:
    reason: str
    container: dict[str, Any]
    want: list[str]


COMMANDS = [
    Command("the image's own", {}, ["serve", "--default"]),
    Command("args replace the image's arguments", {"args": ["--x=$(A)"]}, ["serve", "--x=1"]),
    Command("a command drops the image's arguments", {"command": ["sh"]}, ["sh"]),
    Command("both", {"command": ["sh", "-c"], "args": ["echo $$(A)"]}, ["sh", "-c", "echo $(A)"]),
]


@pytest.mark.parametrize("case", COMMANDS, ids=lambda case: case.reason)
def test_command_line(case: Command) -> None:
    found = command_line(
        container=case.container,
        entrypoint=["serve"],
        default_arguments=["--default"],
        variables={"A": "1"},
    )
    assert found == case.want, case.reason
