"""Whatever is written on the command line, the parser answers as a process would."""

from __future__ import annotations

import contextlib
import io
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.sim.arguments import parse
from specpilot.sim.catalogue import FIELDS, METHODS
from specpilot.sim.launch import LaunchConfig, LaunchRefused

VERSIONS = st.sampled_from(
    ["0.6.0", "0.8.2", "0.8.5", "0.9.2", "0.10.2", "0.16.0", "0.17.0", "0.24.0", "0.32.0", "0.33.0"]
)
FLAGS = st.sampled_from(
    [
        *("--speculative-config", "-sc", "--speculative_config=", "--speculative-config.method"),
        *("--speculative-config.num_speculative_tokens", "--speculative-config.a.b", "--config"),
        *("--spec-method", "--spec-tokens", "--speculative-model", "--num-speculative-tokens"),
        *("--max-num-seqs", "--port", "--served-model-name", "--no-enforce-eager", "--", "-"),
        *("--sim-slow", "--sim-version"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
CONFIGS = st.dictionaries(
    st.sampled_from(sorted(FIELDS)) | st.text(max_size=6),
    st.sampled_from(sorted(METHODS)) | st.integers(-2, 40) | JSON
    | st.lists(st.lists(st.integers(-1, 70), min_size=3, max_size=3), max_size=3),
    max_size=5,
).map(json.dumps)  # fmt: skip
WORDS = st.lists(FLAGS | CONFIGS | st.text(max_size=10), max_size=8)


def outcome(words: list[str], version: str) -> LaunchConfig | int:
    try:
        return parse(["serve", "m", "--sim-version", version, *words], environment={})
    except LaunchRefused as refusal:
        return refusal.code if refusal.message else -1
    except SystemExit as end:
        return int(end.code or 0)


@settings(max_examples=120)
@given(words=WORDS, version=VERSIONS)
def test_it_starts_or_exits_with_one_or_two(words: list[str], version: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        result = outcome(words, version)
    if isinstance(result, LaunchConfig):
        if result.speculation is not None:
            assert result.speculation.depth >= 1
            assert all(0 <= depth <= result.speculation.depth
                       for _, depth in result.speculation.schedule)  # fmt: skip
    else:
        asked_for_help = any(
            word.startswith("-h") or (len(word) > 2 and "--help".startswith(word)) for word in words
        )
        assert result in (1, 2) or asked_for_help


@settings(max_examples=100)
@given(config=CONFIGS, version=VERSIONS)
def test_any_json_is_taken_or_refused(config: str, version: str) -> None:
    result = outcome(["--speculative-config", config], version)
    assert isinstance(result, LaunchConfig) or result in (1, 2)
