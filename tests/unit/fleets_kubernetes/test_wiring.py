"""Annotations to declaration and back, and what is said to a user who is not wired yet."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.settings import Declared
from specpilot.domain.targets import TargetProblem
from specpilot.fleets.kubernetes.wiring import (
    ARGUMENT,
    FIELD_PATH,
    VARIABLE,
    annotations,
    canonical_config,
    declared,
    fault,
    running,
)
from tests.unit.fleets_kubernetes.fakes import engine

NGRAM = '{"method":"ngram","num_speculative_tokens":4}'

configs = st.one_of(
    st.just(""),
    st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8), max_size=3).map(
        lambda value: canonical_config(json.dumps(value))
    ),
)
names = st.text(min_size=1, max_size=12)


@given(config=configs, setting=names, change_id=st.text(max_size=12))
def test_what_is_written_is_read_back(config: str, setting: str, change_id: str) -> None:
    wanted = Declared(setting=setting, config=config, change_id=change_id)
    assert declared(annotations(wanted)) == wanted


@pytest.mark.parametrize(
    ("text", "want", "reason"),
    [
        ("", "", "absent or empty is off"),
        ("null", "", "the engine reads null as off"),
        ("None", "", "and None"),
        ("{}", "{}", "an empty object is not off: the engine refuses it"),
        ('{"b": 1, "a": 2}', '{"a":2,"b":1}', "notation does not matter"),
        ('{"broken"', '{"broken"', "what is no JSON equals nothing of ours"),
    ],
)
def test_canonical_config(text: str, want: str, reason: str) -> None:
    assert canonical_config(text) == want, reason


def test_what_was_never_ours_is_no_annotation_at_all() -> None:
    assert annotations(Declared()) == {}


def test_off_set_by_us_says_so() -> None:
    written = annotations(Declared(setting="off", config="", change_id="c-1"))
    assert written == {
        "specpilot.io/speculative-config": "",
        "specpilot.io/setting": "off",
        "specpilot.io/change-id": "c-1",
    }


ENV = f"""\
env:
  - name: {VARIABLE}
    valueFrom:
      fieldRef:
        fieldPath: {FIELD_PATH}"""
ARGS = f"args:\n  - {ARGUMENT}"


@dataclass(frozen=True)
class Fault:
    reason: str
    container: dict[str, Any]
    want: TargetProblem | None
    said: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()
    version: str = field(default="0.32.0")


FAULTS = [
    Fault("wired", engine(), None),
    Fault("two tokens", engine(args=["serve", "m", *ARGUMENT.split("=")]), None),
    Fault(
        "everything in the command",
        engine(command=["vllm", "serve", "m", ARGUMENT], args=[]),
        None,
    ),
    Fault("nothing", engine(args=["serve", "m"], env=[]), TargetProblem.NOT_WIRED, (ENV, ARGS)),
    Fault("only the argument", engine(env=[]), TargetProblem.NOT_WIRED, (ENV,), (ARGS,)),
    Fault(
        "only the variable",
        engine(args=["serve", "m"]),
        TargetProblem.NOT_WIRED,
        (ARGS,),
        (ENV,),
    ),
    Fault(
        "the variable reads another annotation",
        engine(
            env=[
                {
                    "name": VARIABLE,
                    "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['other']"}},
                }
            ]
        ),
        TargetProblem.NOT_WIRED,
        (ENV,),
    ),
    Fault(
        "the variable is a literal",
        engine(env=[{"name": VARIABLE, "value": ""}]),
        TargetProblem.NOT_WIRED,
        (ENV,),
    ),
    Fault(
        "a later literal wins",
        engine(args=["serve", "m", ARGUMENT, f"--speculative-config={NGRAM}"]),
        TargetProblem.SHADOWED_BY_ARGS,
        ("--speculative-config", "Take it out", ENV, ARGS),
    ),
    Fault(
        "literal and not wired",
        engine(args=["serve", "m", "--spec-method", "ngram", "--spec-tokens", "3"], env=[]),
        TargetProblem.SHADOWED_BY_ARGS,
        ("ngram", "Take it out", ENV, ARGS),
    ),
    Fault(
        "a shell that eats the quotes",
        engine(command=["sh", "-c", f"vllm serve m {ARGUMENT}"], args=[]),
        TargetProblem.NOT_WIRED,
        ("single quotes",),
    ),
    Fault(
        "an engine that cannot start with an empty value",
        engine(),
        TargetProblem.NOT_WIRED,
        ("0.10.1",),
        version="0.9.2",
    ),
    Fault("a version that is none", engine(), None, version="main-3f2a"),
]


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.reason)
def test_fault(case: Fault) -> None:
    found = fault(case.container, workload="Deployment serving/chat", version=case.version)
    assert (found.reason if found else None) == case.want
    message = found.message if found else ""
    for text in case.said:
        assert text in message
    for text in case.unsaid:
        assert text not in message
    if found:
        assert 'Deployment serving/chat, container "vllm"' in message


@pytest.mark.parametrize(
    ("container", "want", "reason"),
    [
        (engine(), Declared(setting="ngram", config=NGRAM, change_id="c"), "wired: annotations"),
        (engine(args=["serve", "m"], env=[]), Declared(), "not wired, no flags: off"),
        (engine(env=[]), Declared(), "the argument alone: nothing reads the annotations"),
        (
            engine(args=["serve", "m", "--speculative-config", NGRAM], env=[]),
            Declared(setting="ngram", config=NGRAM, change_id="c"),
            "not wired: its flags say what the annotations claim, so the name is right",
        ),
        (
            engine(args=["serve", "m", "--speculative-config", '{"method":"suffix"}'], env=[]),
            Declared(setting="unrecognised", config='{"method":"suffix"}'),
            "not wired: what its flags say, whatever is annotated",
        ),
        (
            engine(args=["serve", "m", ARGUMENT, '--speculative-config={"method":"suffix"}']),
            Declared(setting="unrecognised", config='{"method":"suffix"}'),
            "shadowed: the literal runs",
        ),
    ],
)
def test_running(container: dict[str, Any], want: Declared, reason: str) -> None:
    noted = annotations(Declared(setting="ngram", config=NGRAM, change_id="c"))
    assert running({"annotations": noted}, container) == want, reason
