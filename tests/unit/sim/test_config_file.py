"""``--config FILE``: what a file can say, release by release."""

from __future__ import annotations

from pathlib import Path

import pytest

from specpilot.sim.arguments import parse
from specpilot.sim.launch import LaunchConfig, LaunchRefused
from tests.unit.sim.support import NGRAM


def launch(version: str, *words: str) -> LaunchConfig:
    return parse(["serve", "m", "--sim-version", version, *words], environment={})


@pytest.fixture
def yaml(tmp_path: Path) -> Path:
    path = tmp_path / "engine.yaml"
    path.write_text(
        "max-num-seqs: 8\nspeculative-config:\n  method: ngram\n  num_speculative_tokens: 4\n"
    )
    return path


def test_nested_mapping_becomes_json(yaml: Path) -> None:
    config = launch("0.16.0", "--config", str(yaml))
    assert config.max_num_seqs == 8
    assert config.speculation is not None
    assert config.speculation.depth == 4


def test_older_releases_make_python_notation_of_it(yaml: Path) -> None:
    with pytest.raises(LaunchRefused) as refusal:
        launch("0.14.1", "--config", str(yaml))
    assert refusal.value.code == 2


def test_json_as_a_string_works_in_all(tmp_path: Path) -> None:
    path = tmp_path / "engine.yml"
    path.write_text(f"speculative-config: '{NGRAM}'\n")
    assert launch("0.8.5", "--config", str(path)).speculation is not None


@pytest.mark.parametrize("before", [True, False])
def test_the_command_line_wins_in_either_order(yaml: Path, before: bool) -> None:
    file, off = ["--config", str(yaml)], ["--speculative-config="]
    config = launch("0.32.0", *([*off, *file] if before else [*file, *off]))
    assert config.speculation is None
    assert config.max_num_seqs == 8, "the rest of the file is kept"


def test_one_word_is_silently_ignored(yaml: Path) -> None:
    config = launch("0.32.0", f"--config={yaml}")
    assert config.speculation is None
    assert config.max_num_seqs == 256


def test_the_model_may_come_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text("model: org/m\nenforce-eager: true\nenable-lora: false\n")
    assert parse(["serve", "--config", str(path)], environment={}).model == "org/m"


@pytest.mark.parametrize("content", ["- a\n", "a: [\n", "just text"])
def test_a_file_that_is_no_mapping_ends_the_start(tmp_path: Path, content: str) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text(content)
    with pytest.raises(LaunchRefused) as refusal:
        launch("0.32.0", "--config", str(path))
    assert refusal.value.code == 1
