"""Properties: what is rendered is read back, and no command line makes the parser fall over."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specpilot.domain.settings import Setting
from specpilot.engines import arguments, parse, render, shell
from specpilot.engines import capabilities as table
from specpilot.engines.words import CommandLineError

PATCHES = ["0.4.3", "0.5.5", "0.6.6", "0.7.3", "0.8.1", "0.8.2", "0.8.3", "0.8.5.post1", "0.9.2"]
VERSIONS = [*PATCHES, *(f"0.{minor}.0" for minor in range(10, 34)), "0.40.1", ""]

texts = st.text(st.characters(blacklist_categories=["Cs", "Cn", "Cc"]), min_size=1, max_size=20)
scalars = st.one_of(st.booleans(), st.integers(-5, 10**6), st.floats(0, 1), texts, st.none())
values = st.one_of(
    scalars, st.lists(scalars, max_size=3), st.dictionaries(texts, scalars, max_size=2)
)
models = st.one_of(st.sampled_from(["org/draft-1.5", "/models/a b", "it's", "[x]"]), texts)


@st.composite
def any_setting(draw: st.DrawFn) -> Setting:
    method = draw(st.sampled_from(sorted(table.METHODS)))
    need = table.METHODS[method].model
    keys = [k for k in sorted(table.KEYS) if k not in {"method", "model", "num_speculative_tokens"}]
    extra = draw(st.dictionaries(st.sampled_from(keys), values, max_size=3))
    if method == "ngram" and draw(st.booleans()):
        extra["prompt_lookup_max"] = draw(st.integers(1, 9))
    return Setting(
        name="s",
        method=method,
        model=None if need is table.Need.NONE else draw(st.none() | models),
        num_speculative_tokens=draw(st.none() | st.integers(1, 16)),
        disable_above_batch_size=draw(st.none() | st.integers(1, 512)),
        extra=extra,
    )


@given(any_setting(), st.sampled_from(VERSIONS))
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_rendered_is_read_back(setting: Setting, version: str) -> None:
    rendered = render(setting, version=version)
    if rendered.refused:
        assert rendered.config == ""
        return
    parsed = parse(["vllm", "serve", "m", *rendered.args], version=version)
    assert parsed.problem == ""
    assert parsed.config == rendered.config
    assert arguments(rendered.config, version=version) == rendered.args


@given(any_setting(), st.sampled_from(VERSIONS))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_rendered_survives_a_shell(setting: Setting, version: str) -> None:
    rendered = render(setting, version=version)
    script = "exec vllm serve m " + shlex.join(rendered.args)
    parsed = parse(["sh", "-c", script], version=version)
    assert (parsed.problem, parsed.config) == ("", rendered.config)


def test_the_property_is_not_empty() -> None:
    """Each version runs some setting, so that the properties above say something about it."""
    ngram = Setting(
        name="n", method="ngram", num_speculative_tokens=4, extra={"prompt_lookup_max": 4}
    )
    assert [v for v in VERSIONS if render(ngram, version=v).refused] == []


WORDS = [
    "vllm", "serve", "sh", "-c", "-lc", "bash", "--speculative-config", "-sc", "{}", "null", "--",
    "--speculative-config={\"a\":1}", "--speculative-config.a", "--speculative-config.a+", "1,2",
    "--spec-method", "--spec-tokens", "3", "ngram", "--config", "f.yaml", "--config=f.yaml", "$(V)",
    "$V", "${V}", "\"$@\"", "'", "\"", "\\", "\n", ";", "eval", "m", "--speculative-model",
    "[ngram]", "--num-speculative-tokens", "python", "-m", "vllm.entrypoints.openai.api_server", "",
]  # fmt: skip


@given(
    st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=8)), max_size=8),
    st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join),
    st.dictionaries(st.just("V"), st.sampled_from(["", "{}", "a b", "--spec-tokens 3"])),
    st.dictionaries(st.just("f.yaml"), st.one_of(st.text(max_size=20), st.just("{}"))),
)
@settings(max_examples=500, deadline=None)
def test_any_command_line_is_read_or_said_to_be_unreadable(
    words: list[str], script: str, env: dict[str, str], files: dict[str, str]
) -> None:
    for argv in (words, ["sh", "-c", script, *words], [*words, script]):
        parsed = parse(argv, env=env, files=files, variable="V")
        if parsed.problem:
            assert (parsed.config, parsed.wired, parsed.shadowed_by) == ("", False, "")
        elif parsed.config:
            json.loads(parsed.config)


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


@given(
    pieces=st.lists(PIECES, max_size=6),
    gaps=st.lists(st.sampled_from(["", " "]), min_size=6, max_size=6),
    value=st.sampled_from(["", "v", " v w ", "v  w", '{"k": "x y"}', "it's"]),
)
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_words_are_split_as_the_real_shell_splits_them(
    printer: Path, pieces: list[str], gaps: list[str], value: str
) -> None:
    script = "show " + "".join(g + p for g, p in zip(gaps, pieces, strict=False))
    positional = ["p 1", "p2"]
    env = {"V": value, "W": "w"}
    try:
        [command] = shell.commands(
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
        check=True,
        timeout=30,
    )
    assert [w.text for w in command[1:]] == done.stdout.split("\0")[:-1], script
