"""Properties: what is rendered is read back, and no command line makes the parser fall over."""

import json
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, event, example, given, settings
from hypothesis import strategies as st

from specpilot.domain.settings import JsonValue, Setting
from specpilot.engines import On, Runtime, arguments, parse, render, shell
from specpilot.engines import capabilities as table
from specpilot.engines.capabilities import Kind, Topic
from specpilot.engines.judging import judge
from specpilot.engines.reading import setting_of
from specpilot.engines.versions import read_version
from specpilot.engines.words import CommandLineError

PATCHES = [
    "0.4.1",
    "0.4.2",
    "0.4.3",
    "0.5.5",
    "0.6.6",
    "0.7.3",
    "0.8.1",
    "0.8.2",
    "0.8.3",
    "0.8.5.post1",
    "0.9.2",
]
VERSIONS = [*PATCHES, *(f"0.{minor}.0" for minor in range(10, 34)), "0.40.1", ""]

texts = st.text(st.characters(blacklist_categories=["Cs", "Cn", "Cc"]), min_size=1, max_size=20)
scalars = st.one_of(st.booleans(), st.integers(-5, 10**6), st.floats(0, 1), texts, st.none())
values = st.one_of(
    scalars, st.lists(scalars, max_size=3), st.dictionaries(texts, scalars, max_size=2)
)
models = st.one_of(st.sampled_from(["org/draft-1.5", "/models/a b", "it's", "[x]"]), texts)
schedules = st.lists(st.integers(1, 40), min_size=1, max_size=3, unique=True).map(
    lambda ends: [
        [first + 1, last, last % 5]
        for first, last in zip([0, *sorted(ends)], sorted(ends), strict=False)
    ]
)
FITTING = {
    Kind.TEXT: st.one_of(texts, st.sampled_from(["standard", "greedy", "fly"])),
    Kind.INTEGER: st.integers(-1, 10**6),
    Kind.POSITIVE: st.integers(1, 10**4),
    Kind.NUMBER: st.one_of(st.floats(0, 1), st.integers(0, 3)),
    Kind.BOOLEAN: st.booleans(),
    Kind.LIST: schedules,
    Kind.ANYTHING: values,
}
STATED = {"method", "model", "num_speculative_tokens", table.LIMIT_KEY}
KINDS = {row.name: row.kind for row in table.KEYS if row.name not in STATED}


def known_there(version: str) -> list[str]:
    """Keys of a version; for the flags from before the JSON value, those that have one."""
    release = read_version(version).release
    keys = set(table.known_at(Topic.KEY, release))
    flags = set(table.known_at(Topic.FLAG, release))
    keys |= {flag.key for name, flag in table.LEGACY_FLAGS.items() if name in flags}
    return sorted(keys & set(KINDS))


@st.composite
def any_setting(draw: st.DrawFn, version: str) -> Setting:
    """Mostly one that the version takes; sometimes one that it must be refused."""
    release = read_version(version).release
    near = table.known_at(Topic.METHOD, release) or sorted(table.METHOD_NEEDS)
    wild = draw(st.integers(0, 9)) == 0
    method = draw(st.sampled_from(sorted(table.METHOD_NEEDS) if wild else near))
    need = table.METHOD_NEEDS[method]
    keys = draw(st.lists(st.sampled_from(sorted(KINDS) if wild else known_there(version)),
                         max_size=3, unique=True))  # fmt: skip
    extra = {key: draw(values if wild else FITTING[KINDS[key]]) for key in keys}
    if method == "ngram" and draw(st.booleans()):
        extra["prompt_lookup_max"] = draw(st.integers(1, 9))
    asked = need.model is table.Need.REQUIRED or draw(st.booleans())
    deep = need.depth is table.Need.REQUIRED or draw(st.booleans())
    return Setting(
        name="s",
        method=method,
        model=draw(models) if asked and need.model is not table.Need.NONE else None,
        num_speculative_tokens=draw(st.integers(1, 16)) if deep else None,
        disable_above_batch_size=draw(st.none() | st.integers(1, 512)),
        extra=extra,
    )


versions = st.sampled_from(VERSIONS)
runtimes = st.builds(
    Runtime,
    engine=st.sampled_from([None, On.V0, On.V1]),
    runner=st.sampled_from([None, On.MRV1, On.MRV2]),
    data_parallel=st.sampled_from([None, 1, 2]),
)


@given(st.data(), versions, runtimes)
@settings(max_examples=800, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_rendered_is_read_back(data: st.DataObject, version: str, runtime: Runtime) -> None:
    """parse(render(s, v)) == s, but for what the version was not told, which is said."""
    setting = data.draw(any_setting(version))
    rendered = render(setting, version=version, runtime=runtime)
    event("refused" if rendered.refused else "rendered")
    if rendered.refused:
        assert (rendered.config, rendered.args, rendered.effective) == ("", (), "")
        return
    parsed = parse(["vllm", "serve", "m", *rendered.args], version=version)
    assert parsed.problem == ""
    assert parsed.config == rendered.config
    assert arguments(rendered.config, version=version) == rendered.args
    config = json.loads(parsed.config)
    legacy = not rendered.args[-1].startswith("--speculative-config=")
    if legacy and setting.method != "ngram":
        assert "method" not in config  # there is no flag for it
        config["method"] = setting.method
    limited = {table.LIMIT_KEY, table.SCHEDULE_KEY} & set(config) - set(setting.extra)
    told = replace(
        setting,
        disable_above_batch_size=setting.disable_above_batch_size if limited else None,
        extra={k: v for k, v in setting.extra.items() if not (legacy and v is False
               and k == "disable_mqa_scorer")},
    )  # fmt: skip
    assert setting_of(config, name="s") == told
    if setting.disable_above_batch_size is not None and not limited:
        assert rendered.guard == setting.disable_above_batch_size
        assert "rules must enforce it" in rendered.instead


@given(st.data(), versions, runtimes)
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
def test_what_takes_effect_was_rendered(
    data: st.DataObject, version: str, runtime: Runtime
) -> None:
    setting = data.draw(any_setting(version))
    rendered = render(setting, version=version, runtime=runtime)
    if rendered.refused:
        return
    config, effective = json.loads(rendered.config), json.loads(rendered.effective)
    assert {k: config.get(k) for k in effective if k != "method"} == {
        k: v for k, v in effective.items() if k != "method"
    }
    assert effective["method"] in {setting.method, "mtp"}
    if rendered.guard is None and setting.disable_above_batch_size is not None:
        assert {table.LIMIT_KEY, table.SCHEDULE_KEY} & set(effective)


@given(st.data(), versions)
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_rendered_survives_a_shell(data: st.DataObject, version: str) -> None:
    setting = data.draw(any_setting(version))
    rendered = render(setting, version=version)
    script = "exec vllm serve m " + shlex.join(rendered.args)
    parsed = parse(["sh", "-c", script], version=version)
    assert (parsed.problem, parsed.config) == ("", rendered.config)


def test_the_property_is_not_empty() -> None:
    """Each version runs some setting, so that the properties above say something about it."""
    ngram = Setting(
        name="n", method="ngram", num_speculative_tokens=4, extra={"prompt_lookup_max": 4}
    )
    refused = [v for v in VERSIONS if render(ngram, version=v).refused]
    assert refused == ["0.4.1"], "n-gram drafts came with 0.4.2"


WORDS = [
    "vllm", "serve", "sh", "-c", "-lc", "bash", "--speculative-config", "-sc", "{}", "null", "--",
    "--speculative-config={\"a\":1}", "--speculative-config.a", "--speculative-config.a+", "1,2",
    "--spec-method", "--spec-tokens", "3", "ngram", "--config", "f.yaml", "--config=f.yaml", "$(V)",
    "$(U)", "$V", "${V}", "\"$@\"", "'", "\"", "\\", "\n", ";", "eval", "m",
    "--speculative-model", "[ngram]", "--num-speculative-tokens", "python", "-m",
    "vllm.entrypoints.openai.api_server", "",
]  # fmt: skip


@given(
    st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=8)), max_size=8),
    st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join),
    st.dictionaries(st.just("V"), st.sampled_from(["", "{}", "a b", "--spec-tokens 3"])),
    st.dictionaries(st.just("f.yaml"), st.one_of(st.text(max_size=20), st.just("{}"))),
)
@settings(max_examples=500)
def test_any_command_line_is_read_or_said_to_be_unreadable(
    words: list[str], script: str, env: dict[str, str], files: dict[str, str]
) -> None:
    for argv in (words, ["sh", "-c", script, *words], [*words, script]):
        parsed = parse(argv, env=env, files=files, variable="V", unknown={"U"})
        if parsed.problem:
            assert (parsed.config, parsed.wired, parsed.shadowed_by) == ("", False, "")
        elif parsed.config:
            json.loads(parsed.config)


@given(
    st.dictionaries(st.sampled_from([*sorted({r.name for r in table.KEYS}), "x"]), values),
    versions,
    runtimes,
)
@settings(max_examples=300)
def test_any_config_is_judged(config: dict[str, JsonValue], version: str, runtime: Runtime) -> None:
    judged = judge(config, version=version, runtime=runtime)
    assert (judged.effective is None) == bool(judged.faults)
    if judged.effective is not None:
        assert set(judged.effective) <= set(config)
        setting_of(judged.effective, name="s")


PIECES = st.sampled_from(
    [
        "a", "b c", "'q r'", '"d e"', '"x $V y"', "$V", "${V}", '"$V"', "\\$V", "\\\n", "''", '""',
        "'it'\\''s'", '"a\\"b"', '"a\\\\b"', "#no", "x#y", "$1", '"$2"', '"$@"', "$@", "'$V'", "$",
        "a=$V", '"\\n"', "\\ ", " ", "\t", '{"k":1}', "'{\"k\": [1, 2]}'", "[z]", "${W-d}",
        "x=\"1 2\"",
    ]
)  # fmt: skip


@pytest.fixture(scope="module")
def printer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints its arguments, one JSON text each."""
    if shutil.which("sh") is None:
        pytest.skip("no shell here")
    path = tmp_path_factory.mktemp("bin") / "show"
    path.write_text('#!/bin/sh\nfor a in "$@"; do printf "%s\\0" "$a"; done\n')
    path.chmod(0o755)
    return path


_NO_SUCH_COMMAND = 127


@given(
    pieces=st.lists(PIECES, max_size=6),
    gaps=st.lists(st.sampled_from(["", " "]), min_size=6, max_size=6),
    value=st.sampled_from(["", "v", " v w ", "v  w", '{"k": "x y"}', "it's"]),
)
@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(pieces=["$V", "#no"], gaps=[""] * 6, value="")
@example(pieces=["$V", "#no"], gaps=[""] * 6, value=" v ")
@example(pieces=["#no", "\\\n", "a"], gaps=[""] * 6, value="")
@example(pieces=["$", "\\\n", "a"], gaps=[""] * 6, value="")
@example(pieces=["$", "\\\n", "V", '"$', "\\\n", 'V"'], gaps=[""] * 6, value="v")
def test_words_are_split_as_the_real_shell_splits_them(
    printer: Path, pieces: list[str], gaps: list[str], value: str
) -> None:
    if any(gap == "" and a == '"$@"' and b in {"$V", "${V}", "$@"}
           for a, b, gap in zip(pieces, pieces[1:], gaps[1:], strict=False)):  # fmt: skip
        assume(False)  # dash makes an empty word of "$@"$V, where bash and POSIX make none
    script = "show " + "".join(g + p for g, p in zip(gaps, pieces, strict=False))
    positional = ["p 1", "p2"]
    env = {"V": value, "W": "w"}
    try:
        command, *others = shell.commands(
            script, env=env, positional=[shell.Word(text=p) for p in positional]
        )
    except CommandLineError:
        return
    if any(word.unknown for word in command):
        return
    done = subprocess.run(
        ["sh", "-fc", script, "sh", *positional],
        env={**env, "PATH": f"{printer.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert [w.text for w in command[1:]] == done.stdout.split("\0")[:-1], script
    # A comment ends with its line, so that what follows is a command of its own: none that exists.
    assert done.returncode == (_NO_SUCH_COMMAND if others else 0), done.stderr
