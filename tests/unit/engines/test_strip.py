"""What stays of a command line when its speculation flags are taken out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.engines import CommandLineError, parse, without_speculation

JSON = '{"method":"ngram","num_speculative_tokens":4}'


@pytest.mark.parametrize(
    ("line", "want", "reason"),
    [
        (["serve", "m"], ["serve", "m"], "nothing to take"),
        (["serve", "m", f"--speculative-config={JSON}"], ["serve", "m"], "one word"),
        (
            ["serve", "m", "--speculative_config", JSON, "--seed=1"],
            ["serve", "m", "--seed=1"],
            "two",
        ),
        (["serve", "m", "-sc", JSON], ["serve", "m"], "the short form"),
        (
            ["serve", "m", "--speculative-config.method", "ngram", "--speculative-config.a=1"],
            ["serve", "m"],
            "dotted",
        ),
        (["--speculative-model", "[ngram]", "--num-speculative-tokens=4"], [], "before 0.8.3"),
        (["--spec-method", "ngram", "--port", "8000"], ["--port", "8000"], "aliases"),
        (
            ["--model", "m", "--trust-remote-code"],
            ["--model", "m", "--trust-remote-code"],
            "switch",
        ),
        ([], [], "empty"),
    ],
)
def test_stripping(line: list[str], want: list[str], reason: str) -> None:
    assert without_speculation(line) == want, reason


def test_a_script_is_refused() -> None:
    with pytest.raises(CommandLineError, match="shell script"):
        without_speculation(["sh", "-c", f"vllm serve m --speculative-config '{JSON}'"])


words = st.sampled_from(
    [
        "--seed=1",
        "--port",
        "8000",
        "--enforce-eager",
        f"--speculative-config={JSON}",
        "--max-model-len=9",
    ]
)


@given(line=st.lists(words, max_size=6))
def test_nothing_speculates_afterwards_and_nothing_else_is_lost(line: list[str]) -> None:
    kept = without_speculation(["serve", "m", *line])
    assert parse(kept).config == ""
    assert kept == ["serve", "m", *(w for w in line if not w.startswith("--speculative"))]
    assert without_speculation(kept) == kept
