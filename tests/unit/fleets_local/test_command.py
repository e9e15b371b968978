"""What a replica is started with, and which commands are refused."""

from dataclasses import dataclass

import pytest

from specpilot.domain.settings import Declared
from specpilot.fleets.local import LocalGroup, LocalGroupError, Supervision
from specpilot.fleets.local.command import (
    command_line,
    config_argument,
    speculation_flag,
    speculation_in_config_file,
)


@dataclass(frozen=True, kw_only=True)
class Case:
    reason: str
    command: tuple[str, ...]
    want: str


FLAGS = [
    Case(reason="nothing of the kind", command=("vllm", "serve", "m"), want=""),
    Case(
        reason="JSON in the next word",
        command=("vllm", "serve", "m", "--speculative-config", "{}"),
        want="--speculative-config",
    ),
    Case(
        reason="JSON in the same word",
        command=("vllm", "serve", "m", '--speculative-config={"method":"ngram"}'),
        want="--speculative-config",
    ),
    Case(
        reason="underscores are accepted by the engine",
        command=("vllm", "serve", "m", "--speculative_config={}"),
        want="--speculative_config",
    ),
    Case(
        reason="dotted key",
        command=("vllm", "serve", "m", "--speculative-config.method", "ngram"),
        want="--speculative-config",
    ),
    Case(
        reason="dotted key with underscores",
        command=("vllm", "serve", "m", "--speculative_config.num_speculative_tokens=2"),
        want="--speculative_config",
    ),
    Case(reason="short form", command=("vllm", "serve", "m", "-sc", "{}"), want="-sc"),
    Case(reason="short form, value attached", command=("v", '-sc{"method":"ngram"}'), want="-sc"),
    Case(reason="short form with =", command=("v", "-sc={}"), want="-sc"),
    Case(reason="alias for the method", command=("v", "--spec-method", "x"), want="--spec-method"),
    Case(reason="alias for the depth", command=("v", "--spec-tokens=3"), want="--spec-tokens"),
    Case(reason="abbreviation", command=("v", "--spec-me", "ngram"), want="--spec-me"),
    Case(
        reason="abbreviation of JSON", command=("v", "--speculative-c={}"), want="--speculative-c"
    ),
    Case(
        reason="the flag of engines before 0.8.3",
        command=("v", "--speculative-model", "[ngram]"),
        want="--speculative-model",
    ),
    Case(
        reason="removed batch limit",
        command=("v", "--speculative-disable-by-batch-size", "8"),
        want="--speculative-disable-by-batch-size",
    ),
    Case(
        reason="old depth flag",
        command=("v", "--num-speculative-tokens", "4"),
        want="--num-speculative-tokens",
    ),
    Case(
        reason="inside a shell script",
        command=("sh", "-c", "exec vllm serve m --speculative-config '{}' --port {port}"),
        want="--speculative-config",
    ),
    Case(
        reason="after a line continuation",
        command=("bash", "-c", "vllm serve m \\\n  -sc '{}'"),
        want="-sc",
    ),
    Case(
        reason="another flag of a wrapper that begins alike",
        command=("wrapper", "--spec-file", "x"),
        want="",
    ),
    Case(
        reason="a comment in a script",
        command=("sh", "-c", "vllm serve # --spec-tokens 3"),
        want="",
    ),
    Case(reason="scheduler flag", command=("v", "--num-scheduler-steps", "8"), want=""),
    Case(
        reason="JSON value that mentions the word",
        command=("v", "--additional-config", '{"speculative": "x y"}'),
        want="",
    ),
]


@pytest.mark.parametrize("case", FLAGS, ids=lambda c: c.reason)
def test_speculation_flags_are_found_in_every_spelling(case):
    assert speculation_flag(case.command) == case.want


@pytest.mark.parametrize("case", [c for c in FLAGS if c.want], ids=lambda c: c.reason)
def test_a_group_with_such_a_flag_is_refused_by_name(case):
    with pytest.raises(LocalGroupError, match=f"^command: '{case.want}' decides about speculation"):
        LocalGroup(name="chat", command=case.command)


@dataclass(frozen=True, kw_only=True)
class Line:
    reason: str
    command: tuple[str, ...]
    speculation: tuple[str, ...] = ("--speculative-config", '{"a":1}')
    want: tuple[str, ...]


LINES = [
    Line(
        reason="all is added at the end",
        command=("vllm", "serve", "m"),
        want=(
            *("vllm", "serve", "m", "--port", "7", "--host", "h"),
            *("--speculative-config", '{"a":1}'),
        ),
    ),
    Line(
        reason="off adds nothing",
        command=("vllm", "serve", "m"),
        speculation=(),
        want=("vllm", "serve", "m", "--port", "7", "--host", "h"),
    ),
    Line(
        reason="placeholders of port and host",
        command=("serve", "--bind", "{host}:{port}"),
        want=("serve", "--bind", "h:7", "--speculative-config", '{"a":1}'),
    ),
    Line(
        reason="the placeholder of speculation becomes words",
        command=("wrap", "{speculation}", "--", "x"),
        want=(
            *("wrap", "--speculative-config", '{"a":1}', "--", "x"),
            *("--port", "7", "--host", "h"),
        ),
    ),
    Line(
        reason="inside a script it is quoted",
        command=("sh", "-c", "exec serve {speculation} --port {port} --host {host}"),
        want=(
            "sh",
            "-c",
            """exec serve --speculative-config '{"a":1}' --port 7 --host h""",
        ),
    ),
    Line(
        reason="braces of JSON are left alone",
        command=("serve", '--x={"port": 1}', "{port}", "{host}"),
        speculation=(),
        want=("serve", '--x={"port": 1}', "7", "h"),
    ),
]


@pytest.mark.parametrize("line", LINES, ids=lambda c: c.reason)
def test_command_line(line):
    got = command_line(line.command, host="h", port=7, speculation=line.speculation)
    assert got == line.want


def test_the_default_rendering_is_the_json_flag_or_nothing():
    assert config_argument(Declared(setting="x", config="{}"), "") == ("--speculative-config", "{}")
    assert config_argument(Declared(), "") == ()


def test_a_config_file_that_configures_speculation_is_found(tmp_path):
    (tmp_path / "engine.yaml").write_text("port: 1\nspeculative_config: {method: ngram}\n")
    (tmp_path / "plain.yaml").write_text("max-model-len: 2048\n")
    (tmp_path / "broken.yaml").write_text("{")

    def found(*words):
        return speculation_in_config_file(("vllm", "serve", *words), cwd=tmp_path)

    assert found("--config", "engine.yaml") == "engine.yaml: speculative_config"
    assert found("--config=engine.yaml") == "", "the engine does not read this form"
    assert found("--config", "plain.yaml") == ""
    assert found("--config", "broken.yaml") == ""
    assert found("--config", "absent.yaml") == ""
    assert found("--config") == ""


@dataclass(frozen=True, kw_only=True)
class Refused:
    reason: str
    given: dict
    want: str


REFUSED = [
    Refused(reason="no name", given={"name": ""}, want="name: ''"),
    Refused(reason="name is used in file names", given={"name": "../x"}, want="name: '../x'"),
    Refused(
        reason="a string is not a list", given={"command": "vllm serve"}, want="command: 'vllm"
    ),
    Refused(reason="empty command", given={"command": ()}, want="command: ()"),
    Refused(reason="no replica", given={"replicas": 0}, want="replicas: 0"),
    Refused(reason="too few ports", given={"replicas": 2, "ports": (1,)}, want="ports: 1 given, 2"),
    Refused(
        reason="surge needs a spare port",
        given={"ports": (8001,), "surge": True},
        want="ports: 1 given, 2 needed",
    ),
    Refused(reason="same port twice", given={"replicas": 2, "ports": (5, 5)}, want="ports: 5"),
    Refused(
        reason="gateway on a server's port",
        given={"ports": (8000,), "gateway_port": 8000},
        want="ports: 8000 is given twice",
    ),
    Refused(reason="no port number", given={"gateway_port": 70000}, want="ports: 70000"),
    Refused(
        reason="env for other replicas", given={"replica_env": ({}, {})}, want="replica_env: 2"
    ),
    Refused(reason="no path", given={"health_path": "health"}, want="health_path: 'health'"),
    Refused(reason="never ready", given={"start_timeout": 0}, want="start_timeout: 0"),
    Refused(reason="negative grace", given={"stop_grace": -1}, want="stop_grace: -1"),
    Refused(reason="negative drain", given={"drain": -0.5}, want="drain: -0.5"),
    Refused(reason="not a number", given={"drain": float("nan")}, want="drain: nan"),
    Refused(
        reason="a port of the user's would be used by all replicas",
        given={"command": ("vllm", "serve", "m", "--port", "8000")},
        want="command: '--port' is given by the group",
    ),
    Refused(
        reason="the same in one word",
        given={"command": ("vllm", "serve", "m", "--host=::1")},
        want="command: '--host' is given by the group",
    ),
    Refused(
        reason="a shell would keep added arguments to itself",
        given={"command": ("bash", "-lc", "vllm serve m --port {port}")},
        want="write {speculation} where",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c.reason)
def test_a_group_that_cannot_work_is_refused_with_field_and_value(case):
    with pytest.raises(LocalGroupError) as error:
        LocalGroup(**({"name": "chat", "command": ("vllm", "serve", "m")} | case.given))
    assert case.want in str(error.value)
    assert ";" in str(error.value), "a remedy follows"


def test_cwd_must_exist(tmp_path):
    with pytest.raises(LocalGroupError, match=r"cwd: .*absent' is not a directory"):
        LocalGroup(name="chat", command=("x",), cwd=tmp_path / "absent")


def test_supervision_times_are_checked():
    with pytest.raises(LocalGroupError, match=r"supervision\.probe_every: 0 is not a time"):
        Supervision(probe_every=0)
    with pytest.raises(LocalGroupError, match=r"supervision\.hang_after: 5 is below"):
        Supervision(hang_after=5)


def test_options_may_be_given_by_placeholder():
    LocalGroup(name="chat", command=("vllm", "serve", "m", "--port", "{port}", "--host={host}"))


def test_the_template_changes_with_the_user_s_part_only():
    group = LocalGroup(name="chat", command=("vllm", "serve", "m"))
    assert group.template != LocalGroup(name="chat", command=("vllm", "serve", "n")).template
    other = LocalGroup(
        name="chat", command=("vllm", "serve", "m"), initial=Declared(setting="x", config="{}")
    )
    assert group.template == other.template
