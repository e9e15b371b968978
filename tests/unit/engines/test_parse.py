"""Command lines as they are found, and what the engine makes of them."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

import pytest

from specpilot.engines import Parsed, parse
from tests.engine.argument_table import FILES, OFF, ON, Row

VARIABLE = "SPECPILOT_SPECULATIVE_CONFIG"
WIRE = f"--speculative-config=$({VARIABLE})"
NGRAM = '{"method":"ngram","num_speculative_tokens":4}'
SPACED = '{"method": "ngram", "num_speculative_tokens": 4}'
SERVE = ["vllm", "serve", "org/model"]


@pytest.mark.parametrize("row", [*OFF, *ON], ids=lambda row: row.name)
def test_reads_as_the_engine_does(row: Row) -> None:
    """Each row was asked of vLLM 0.32.0 itself."""
    files = {f"/etc/{name}": text for name, text in FILES.items()}
    words = shlex.split(row.line.replace("@mid-draft", "draft").replace("@", "/etc/"))
    parsed = parse([*SERVE, *words], version="0.32.0", files=files)
    assert parsed.problem == ""
    if not row.method:
        assert parsed.config == "", row.reason
        return
    config = json.loads(parsed.config)
    depth = int(config.get("num_speculative_tokens", 24 if row.method == "suffix" else 0))
    assert (config.get("method", row.method), depth) == (row.method, row.depth), row.reason


SHAPES = [
    (["--model", "m", "--speculative-config", SPACED], "args of an image"),
    (["serve", "m", "--speculative-config", SPACED], "entrypoint vllm"),
    (["m", "--speculative-config", SPACED], "entrypoint vllm serve"),
    ([*SERVE, f"--speculative-config={SPACED}"], "command"),
    (["/usr/local/bin/vllm", "serve", "m", "-sc", SPACED], "path of the program"),
    (
        ["python3", "-m", "vllm.entrypoints.openai.api_server", "--speculative_config", SPACED],
        "module",
    ),
    (
        ["python3", "-m", "vllm.entrypoints.cli.main", "serve", "m", "-sc", SPACED],
        "module of the command line",
    ),
    (["tini", "--", "vllm", "serve", "m", "-sc", SPACED], "a wrapper"),
    (["sh", "-c", f"vllm serve m --speculative-config '{SPACED}'"], "shell"),
    (
        ["/bin/bash", "-euo", "pipefail", "-c", f"exec vllm serve m -sc '{SPACED}'"],
        "shell with options",
    ),
    (["bash", "-lc", f"cd /app && exec vllm serve m -sc '{SPACED}' 2>&1 | tee /tmp/log"], "pipe"),
    (
        ["sh", "-c", f"vllm serve m \\\n  --port 8000 \\\n  --speculative-config '{SPACED}'\n"],
        "line continuations",
    ),
    (
        ["sh", "-c", f"# start\nexport HF_HOME=/cache\nvllm serve m -sc '{SPACED}' # fast\n"],
        "comments and exports",
    ),
    (["sh", "-c", f"C='{SPACED}'\nvllm serve m -sc \"$C\""], "a variable of the script"),
    (["sh", "-c", f"C={shlex.quote(NGRAM)}; vllm serve m -sc $C"], "the same without quotes"),
    (["sh", "-c", 'vllm serve m "$@"', "--", "-sc", SPACED], "arguments of the script"),
    (["sh", "-c", 'exec vllm serve m -sc "$2"', "sh", "x", SPACED], "one of them"),
    (["sh", "-c", ("vllm serve m -sc \"{\\\"method\\\": \\\"ngram\\\", "
      "\\\"num_speculative_tokens\\\": 4}\"")], "escaped quotes"),
    (["sh", "-c", f"echo vllm serve; vllm serve m -sc '{SPACED}'"], "the words in an echo"),
    (
        ["sh", "-c", 'eval "exec vllm serve m ${MORE} $@"', "--", "-sc", f"'{SPACED}'"],
        "eval reads twice",
    ),
    (["sh", "-c", f"vllm serve m -sc '{SPACED}' > /var/log/vllm.log 2>&1 &\nwait"], "redirection"),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "reason"), SHAPES, ids=[reason for _, reason in SHAPES])
def test_shapes(argv: list[str], reason: str) -> None:
    parsed = parse(argv, env={"MORE": "--port 8000"})
    assert parsed == Parsed(config=NGRAM), reason


@pytest.mark.parametrize(
    ("argv", "version", "config", "reason"),
    [
        (["--speculative-model", "[ngram]", "--num-speculative-tokens=5",
          "--ngram_prompt_lookup_max", "4"], "0.7.3",
         {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4},
         "flags of before"),
        (["--speculative-model", "d", "--num-speculative-tokens", "5"], "",
         {"model": "d", "num_speculative_tokens": 5}, "the method is not stated, so not guessed"),
        (["--speculative-model", "d", "--num-speculative-tokens", "5",
          "--speculative-config", NGRAM], "0.8.2", json.loads(NGRAM), "the JSON value wins"),
        (["--speculative-conf", NGRAM], "", json.loads(NGRAM), "argparse completes abbreviations"),
        (["--speculative-config.draft_load_config.load_format", "dummy",
          "--speculative-config.method=ngram"], "",
         {"draft_load_config": {"load_format": "dummy"}, "method": "ngram"}, "nested keys"),
        (["--speculative-config.synthetic_acceptance_rates+", "a,b",
          "--speculative-config.synthetic_acceptance_rates+=c"], "",
         {"synthetic_acceptance_rates": ["a", "b", "c"]}, "lists"),
        (["--speculative-config", '{"num-speculative-tokens":2,"method":"ngram"}'], "",
         {"method": "ngram", "num_speculative_tokens": 2}, "dashes in keys"),
        (["--speculative-config", "{}"], "", {}, "an empty object is not off"),
        (["--speculative-config.max_model_len", "2k", "--speculative-config.x", "2K"], "",
         {"max_model_len": 2000, "x": 2048}, "readable numbers"),
        (["--spec-tokens", "3", "-sc", '{"method":"ngram","num-speculative-tokens":2}'], "",
         {"method": "ngram", "num_speculative_tokens": 3}, "a dash hides the clash"),
        (["--speculative-config={\"model\":\"org/eagle3-v1.5\",\"method\":\"eagle3\"}"], "",
         {"method": "eagle3", "model": "org/eagle3-v1.5"}, "a dot in the value is no dotted key"),
    ],
)  # fmt: skip
def test_flags(argv: list[str], version: str, config: object, reason: str) -> None:
    parsed = parse([*SERVE, *argv], version=version)
    assert parsed.problem == ""
    assert (json.loads(parsed.config) if parsed.config else None) == config, reason


@pytest.mark.parametrize(
    ("argv", "says", "reason"),
    [
        (["-sc", "{method: ngram}"], "is not JSON", "no quotes"),
        (["-sc", "none"], "is not JSON", "only None and null are words for off"),
        (["-sc", "5"], "is no object", "a number"),
        (["-sc", '{"a":NaN}'], "contains NaN", "no JSON value"),
        (["-sc", "{a", "-sc", "null"], "is not JSON", "what is replaced is decoded all the same"),
        (["--spec-tokens", ""], "is no whole number", "an empty depth"),
        (["--", "-sc", NGRAM], "-- among the flags is not understood", "the end of flags"),
        (["-sc"], "has no value after it", "at the end"),
        (["--speculative-config", "--port", "80"], "has no value after it", "a flag follows"),
        (["--speculative-config.method"], "has no value after it", "dotted"),
        (["--spec-tokens", "many"], "is no whole number", "not a number"),
        (["--spec-method", "ngram", "-sc", NGRAM], "exclude each other", "one key twice"),
        (["--spec-", "ngram"], "abbreviates", "ambiguous"),
        (["--num-speculative-tokens", "5"], "without --speculative-model", "half of it"),
        (
            ["--speculative-model", "m", "--num-speculative-tokens", "x"],
            "is no whole number",
            "type",
        ),
        (["--config", "a.yaml"], "its content is not known", "a file nobody gave"),
        (["--config", "a.yaml", "--config", "b.yaml"], "more than once", "two files"),
        (["--config"], "has no file", "no file"),
        (["--config", "/etc/list.yaml"], "is no mapping", "a list"),
        (["--config", "/etc/empty.yaml"], "write {} for an empty one", "an empty file"),
        (["--config", "/etc/broken.yaml"], "is not YAML", "broken"),
        (["--config", "/etc/x.txt"], ".yaml and .yml only", "another ending"),
        (["--speculative-config=$(OTHER)"], "is not JSON", "stays literal when undefined"),
    ],
)
def test_what_the_engine_would_refuse_is_a_problem(argv: list[str], says: str, reason: str) -> None:
    files = {
        "/etc/list.yaml": "- a",
        "/etc/empty.yaml": "",
        "/etc/broken.yaml": "a: [",
        "/etc/x.txt": "",
    }
    parsed = parse([*SERVE, *argv], files=files)
    assert says in parsed.problem, reason
    assert parsed == Parsed(problem=parsed.problem)


@pytest.mark.parametrize(
    ("argv", "version", "says", "reason"),
    [
        (["--speculative-model", "[ngram]"], "0.32.0", "does not know --speculative-model", "gone"),
        (["--speculative-disable-by-batch-size", "8"], "0.8.3", "does not start", "gone"),
        (["-sc", NGRAM], "0.18.0", "exists in 0.19.0 and later", "too early"),
        (["--spec-tokens", "3"], "0.21.0", "exists in 0.22.0 and later", "too early"),
        (["--speculative-config.method", "ngram"], "0.8.5", "exists in 0.9.0", "too early"),
        (["--speculative-config", NGRAM], "0.7.3", "exists in 0.8.2", "too early"),
        (["--speculative-config="], "0.10.0", "write null", "an empty value is no JSON there"),
        (["--speculative-config", "None"], "0.9.2", "write null", "neither is None"),
    ],
)
def test_what_this_version_does_not_know_is_a_problem(
    argv: list[str], version: str, says: str, reason: str
) -> None:
    assert says in parse([*SERVE, *argv], version=version).problem, reason


@pytest.mark.parametrize("version", ["0.8.2", "0.9.2", "0.10.0", "0.10.1", "0.32.0"])
def test_null_is_off_in_every_version(version: str) -> None:
    assert parse([*SERVE, "--speculative-config", "null"], version=version) == Parsed()


def test_a_mapping_in_a_file_needs_a_version_that_reads_it() -> None:
    files = {"/c.yaml": FILES["nested.yaml"]}
    argv = [*SERVE, "--config", "/c.yaml"]
    assert parse(argv, version="0.16.0", files=files).config == NGRAM
    assert "is not JSON" in parse(argv, version="0.15.0", files=files).problem


@pytest.mark.parametrize(
    ("script", "says", "reason"),
    [
        ("vllm serve m --port 80 $EXTRA_ARGS", "$EXTRA_ARGS is not known", "named as arguments"),
        ("vllm serve m --port 80 $MORE", "$MORE is not known", "where a flag may stand"),
        ("vllm serve m $(cat flags)", "$(cat flags) is not known", "output of a command"),
        ("vllm serve m `cat flags`", "`cat flags` is not known", "the same"),
        ("vllm serve m -sc $CONFIG", "contains $CONFIG, which is not known", "as the value"),
        ('vllm serve m -sc "${CONFIG:-null}"', "contains ${CONFIG:-null}", "it may be set"),
        ('vllm serve m -sc "{\\"method\\":\\"$M\\"}"', "contains $M", "as part of the value"),
        ('vllm serve m -sc {"method":"ngram"}', "is not JSON", "the shell eats the quotes"),
        ("if x; then vllm serve a; else vllm serve b; fi", "in 2 places", "which of them?"),
        ("/start.sh", "does not start `vllm serve` where it can be seen", "a script elsewhere"),
        ("vllm serve m <<EOF\nEOF", "here-document", "not read"),
        ("vllm serve 'm", "single quote that is not closed", "broken"),
        ('vllm serve "m', "double quote that is not closed", "broken"),
        ("vllm serve $(m", "$( that is not closed", "broken"),
        ("eval vllm serve $X", "eval runs text of which $X is not known", "read twice"),
    ],
)
def test_what_a_shell_would_have_to_tell_is_a_problem(script: str, says: str, reason: str) -> None:
    parsed = parse(["sh", "-c", script])
    assert says in parsed.problem, reason
    assert parsed == Parsed(problem=parsed.problem)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("vllm serve $MODEL", "the model comes first"),
        ('vllm serve "$MODEL" --port $PORT', "the value of a flag"),
        ("vllm serve m --api-key=$KEY", "part of a word that begins with another flag"),
        ("pip install vllm arctic-inference && vllm serve m", "only mentions it"),
    ],
)
def test_unknown_values_elsewhere_do_not_matter(script: str, reason: str) -> None:
    assert parse(["sh", "-c", script]) == Parsed(), reason


@pytest.mark.parametrize("argv", [["vllm", "bench", "serve"], ["sh", "-c", "vllm chat"], ["vllm"]])
def test_another_command_of_vllm_is_a_problem(argv: list[str]) -> None:
    assert "start the engine by `vllm serve`" in parse(argv).problem


@pytest.mark.parametrize(
    ("argv", "env", "expected", "reason"),
    [
        ([*SERVE, WIRE], {VARIABLE: NGRAM}, Parsed(config=NGRAM, wired=True), "as documented"),
        ([*SERVE, WIRE], {VARIABLE: ""}, Parsed(wired=True), "no annotation is off"),
        ([*SERVE, "-sc", f"$({VARIABLE})"], {VARIABLE: NGRAM}, Parsed(config=NGRAM, wired=True),
         "in two words"),
        ([*SERVE, "-sc", NGRAM, WIRE], {VARIABLE: ""}, Parsed(wired=True),
         "the last value wins, empty or not"),
        ([*SERVE, "--config", "/c.yaml", WIRE], {VARIABLE: ""}, Parsed(wired=True),
         "the command line beats the file"),
        ([*SERVE, "--config", "/elsewhere.yaml", WIRE], {VARIABLE: ""}, Parsed(wired=True),
         "whatever is in it"),
        ([*SERVE, f"--speculative-config=$$({VARIABLE})"], {VARIABLE: NGRAM},
         Parsed(problem=f"$({VARIABLE}) stays as it is because the container has no such "
                "variable; add the env entry"), "an escaped reference is text"),
        ([*SERVE, WIRE], {},
         Parsed(problem=f"$({VARIABLE}) stays as it is because the container has no such "
                "variable; add the env entry"), "half wired"),
        (["sh", "-c", f"exec vllm serve m --speculative-config='$({VARIABLE})'"],
         {VARIABLE: NGRAM}, Parsed(config=NGRAM, wired=True), "single quotes keep the JSON whole"),
        (["sh", "-c", f'exec vllm serve m --speculative-config="${VARIABLE}"'],
         {VARIABLE: NGRAM}, Parsed(config=NGRAM, wired=True), "the shell's own variable, quoted"),
        (["sh", "-c", f'exec vllm serve m --speculative-config="${{{VARIABLE}}}"'],
         {VARIABLE: NGRAM}, Parsed(config=NGRAM, wired=True), "the same with braces"),
        (["sh", "-c", f'C="${VARIABLE}"; vllm serve m -sc "$C"'],
         {VARIABLE: NGRAM}, Parsed(config=NGRAM, wired=True), "passed on"),
        (["sh", "-c", 'vllm serve m "$@"', "--", WIRE],
         {VARIABLE: NGRAM}, Parsed(config=NGRAM, wired=True), "as an argument of the script"),
        ([*SERVE, "-sc", NGRAM], {VARIABLE: ""}, Parsed(config=NGRAM), "not wired"),
        (SERVE, {VARIABLE: NGRAM}, Parsed(), "a variable that nobody uses"),
        ([*SERVE, "--served-model-name", f"$({VARIABLE})"], {VARIABLE: "x"}, Parsed(),
         "used for something else"),
    ],
)  # fmt: skip
def test_wiring(argv: list[str], env: Mapping[str, str], expected: Parsed, reason: str) -> None:
    files = {"/c.yaml": FILES["nested.yaml"]}
    assert parse(argv, env=env, variable=VARIABLE, files=files) == expected, reason


@pytest.mark.parametrize(
    "script",
    [
        f"vllm serve m --speculative-config=$({VARIABLE})",
        f'vllm serve m --speculative-config="$({VARIABLE})"',
        f"vllm serve m --speculative-config=${VARIABLE}",
        f"vllm serve m -sc ${VARIABLE}",
        f'C="${VARIABLE}"; vllm serve m -sc $C',
        f"eval \"vllm serve m -sc '$({VARIABLE})'\"",
    ],
)
@pytest.mark.parametrize("value", ["", NGRAM])
def test_a_shell_that_would_take_the_json_apart_is_a_problem_before_it_does(
    script: str, value: str
) -> None:
    """Also while the value is empty and nothing would happen yet."""
    parsed = parse(["sh", "-c", script], env={VARIABLE: value}, variable=VARIABLE)
    assert "in single quotes" in parsed.problem


@pytest.mark.parametrize(
    ("argv", "shadow", "config", "reason"),
    [
        ([WIRE, "-sc", NGRAM], f"-sc {NGRAM}", NGRAM, "a later value wins"),
        ([WIRE, "--speculative-config="], "--speculative-config", "", "also an empty one"),
        ([WIRE, "--speculative-config.method", "ngram"], "--speculative-config.method ngram",
         '{"method":"ngram"}', "dotted keys win wherever they stand"),
        (["--speculative-config.method=ngram", WIRE], "--speculative-config.method ngram",
         '{"method":"ngram"}', "and no empty value cancels them"),
        (["--spec-method", "ngram", WIRE], "--spec-method ngram", '{"method":"ngram"}',
         "turns speculation on while the variable is empty, and stops the engine otherwise"),
        (["--config", "/dotted.yaml", WIRE], "--speculative-config.method ngram in /dotted.yaml",
         '{"method":"ngram"}', "dotted keys of a file as well"),
        (["--config", "/alias.yaml", WIRE], "--spec-tokens 3 in /alias.yaml",
         '{"num_speculative_tokens":3}', "and the short names"),
    ],
)  # fmt: skip
def test_shadows(argv: list[str], shadow: str, config: str, reason: str) -> None:
    files = {
        "/dotted.yaml": "speculative-config.method: ngram",
        "/alias.yaml": "spec-tokens: 3",
    }
    parsed = parse([*SERVE, *argv], env={VARIABLE: ""}, variable=VARIABLE, files=files)
    assert parsed == Parsed(config=config, shadowed_by=shadow), reason


def test_a_fight_over_a_key_is_a_shadow_and_no_parse_failure() -> None:
    argv = [*SERVE, "--spec-method", "eagle3", WIRE]
    parsed = parse(argv, env={VARIABLE: NGRAM}, variable=VARIABLE)
    assert parsed == Parsed(shadowed_by="--spec-method eagle3")


def test_noncharacters_are_refused() -> None:
    assert "noncharacters" in parse([*SERVE, "\ufdd0"]).problem


@pytest.mark.parametrize(
    ("argv", "says", "reason"),
    [
        (["sh", "-c", 'vllm serve m --port 80 "$NAME"'], "$NAME is not known and may contain",
         "quoted, and yet it may be a flag of one word"),
        ([*SERVE, "$(MORE)"], "$(MORE) is not known and may contain", "a word of its own"),
        ([*SERVE, "--port", "80", "$(MORE)"], "$(MORE) is not known and may", "after a value"),
        ([*SERVE, "--$(MORE)"], "is part of the flag --...", "in the name of a flag"),
        ([*SERVE, "-sc", "$(MORE)"], "contains $(MORE), which is not known", "the value itself"),
        ([*SERVE, "--speculative-config=$(MORE)"], "contains $(MORE), which", "the same in one"),
        (["sh", "-c", "vllm serve m $(MORE)"], "script contains $(MORE), which is not", "a script"),
        ([*SERVE, "--port", "$(EXTRA)"], "$(EXTRA) is not known and may", "by its name, flags"),
    ],
)  # fmt: skip
def test_a_variable_whose_value_is_not_known_is_not_taken_for_text(
    argv: list[str], says: str, reason: str
) -> None:
    parsed = parse(argv, unknown={"MORE", "EXTRA"})
    assert says in parsed.problem, reason


@pytest.mark.parametrize(
    "argv", [["vllm", "serve", "$(MORE)"], [*SERVE, "--port", "$(MORE)"], [*SERVE, "--x=$(MORE)"]]
)
def test_where_flags_cannot_stand_an_unknown_variable_does_not_matter(argv: list[str]) -> None:
    assert parse(argv, unknown={"MORE"}) == Parsed()


def sources(argv: list[str], **more: Any) -> dict[str, tuple[str, int, str, tuple[str, ...]]]:
    parsed = parse(argv, **more)
    assert parsed.problem == ""
    return {k: (s.flag, s.at, s.where, s.variables) for k, s in parsed.sources.items()}


def test_where_each_key_comes_from() -> None:
    files = {"/e.yaml": "speculative-config: {method: ngram, num_speculative_tokens: 2}"}
    assert sources([*SERVE, "-sc", NGRAM]) == dict.fromkeys(
        ["method", "num_speculative_tokens"], ("-sc", 4, "", ())
    )
    assert sources([*SERVE, "--spec-method", "ngram", "--spec-tokens=2"]) == {
        "method": ("--spec-method", 4, "", ()),
        "num_speculative_tokens": ("--spec-tokens", 5, "", ()),
    }
    assert sources([*SERVE, "--config", "/e.yaml"], files=files) == dict.fromkeys(
        ["method", "num_speculative_tokens"], ("--speculative-config", 4, "/e.yaml", ())
    )
    assert sources(
        [*SERVE, "--speculative-config.method", "$(M)", "--speculative-config.model=x"],
        env={"M": "eagle"},
    ) == {
        "method": ("--speculative-config.method", 4, "", ("M",)),
        "model": ("--speculative-config.model", 5, "", ()),
    }
    assert sources(["sh", "-c", f"exec vllm serve m -sc '{NGRAM}'"]) == dict.fromkeys(
        ["method", "num_speculative_tokens"], ("-sc", 2, "", ())
    )
    assert sources(["sh", "-c", 'vllm serve m -sc "$S"'], env={"S": NGRAM})["method"] == (
        "-sc", 2, "", ("S",)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "version", "losers", "why"),
    [
        (["-sc", NGRAM, "-sc", "null"], "", ["-sc"], "the last one wins"),
        (["-sc", NGRAM, "--speculative-config.num_speculative_tokens", "2"], "", ["-sc"],
         "a dotted key makes the JSON value vanish"),
        (["--config", "/e.yaml", "-sc", NGRAM], "", ["--speculative-config"],
         "the command line wins over the file"),
        (["--config=/e.yaml"], "", ["--config=/e.yaml"], "ignored"),
        (["--spec-tokens", "2", "--spec-tokens", "3", "--spec-method", "ngram"], "",
         ["--spec-tokens"], "the last one wins"),
        (["--speculative-model", "d", "--num-speculative-tokens", "2", "-sc", NGRAM], "",
         ["--speculative-model", "--num-speculative-tokens"], "wins over the older flags"),
        (["-sc", NGRAM], "", [], ""),
    ],
)  # fmt: skip
def test_what_shadows_what(argv: list[str], version: str, losers: list[str], why: str) -> None:
    files = {"/e.yaml": "speculative-config: {method: ngram, num_speculative_tokens: 2}"}
    parsed = parse([*SERVE, *argv], version=version, files=files)
    assert parsed.problem == ""
    assert [s.loser.flag for s in parsed.shadows] == losers
    assert all(why in s.why for s in parsed.shadows)


def test_what_else_the_line_says() -> None:
    launch = parse([*SERVE, "--data-parallel-size=4", "--port", "80"]).launch
    assert (launch.model, launch.data_parallel) == ("org/model", 4)
    launch = parse(["python3", "-m", "vllm.entrypoints.openai.api_server", "--model=m"]).launch
    assert (launch.model, launch.data_parallel) == ("m", 1)
    launch = parse(["sh", "-c", "vllm serve $MODEL -dp $N"]).launch
    assert (launch.model, launch.data_parallel) == ("", None)


HUGE = [
    (["-sc", "[" * 100_000], "nested too deeply", "brackets"),
    (["-sc", '{"a":' + "1" * 5000 + "}"], "-sc", "a number of thousands of digits"),
    (["--speculative-config" + ".a" * 20_000, "1"], "nested too deeply", "dots"),
    (["--speculative-config.a", "1" * 5000, "-dp", "1" * 5000], "", "digits as text"),
    (["--speculative-config.a", "9" * 400 + "k"], "", "a readable number that is none"),
]


@pytest.mark.parametrize(("argv", "says", "reason"), HUGE, ids=[h[2] for h in HUGE])
def test_absurd_sizes_are_said_or_read(argv: list[str], says: str, reason: str) -> None:
    problem = parse([*SERVE, *argv]).problem
    assert says in problem, reason
    assert bool(says) == bool(problem)


def test_eval_of_eval_of_eval_ends() -> None:
    script = "eval " * 50 + "vllm serve m"
    assert "eval runs eval" in parse(["sh", "-c", script]).problem


@pytest.mark.parametrize(
    "content", ["a: 2026-99-99", "[1]: 2", "{" * 3000, "speculative-config: &x {a: *x}"]
)
def test_a_file_that_is_no_yaml_is_said(content: str) -> None:
    parsed = parse([*SERVE, "--config", "/e.yaml"], files={"/e.yaml": content})
    assert parsed.problem
