"""How an engine is run, and what is made of it when a part is not known."""

import itertools
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.engine_run import EngineRun, Generation, ModelRunner
from specpilot.domain.settings import OFF, Setting
from specpilot.engines import is_rendering, parse, render_for
from specpilot.engines.runs import run_of

LIMITED = Setting(
    name="ngram", method="ngram", num_speculative_tokens=4, disable_above_batch_size=32
)
PLAIN = {"method": "ngram", "num_speculative_tokens": 4}
SCHEDULE = {"num_speculative_tokens_per_batch_size": [[1, 32, 4], [33, 1000000, 0]]}
KEY = {"disable_by_batch_size": 33}
BY_DEFAULT = {
    "generation": Generation.DEFAULT,
    "runner": ModelRunner.DEFAULT,
    "data_parallel": 1,
}


def ran(version: str, **how: Any) -> EngineRun:
    return EngineRun(version=version, **(BY_DEFAULT | how))


@dataclass(frozen=True)
class Line:
    reason: str
    want: dict[str, Any]
    argv: tuple[str, ...] = ("vllm", "serve", "m")
    env: dict[str, str] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    files: dict[str, str] = field(default_factory=dict)


SERVE = ("vllm", "serve", "m")
LINES = [
    Line("nothing said: the release's defaults", {}),
    Line("the flag", {"data_parallel": 2}, (*SERVE, "--data-parallel-size", "2")),
    Line("its short form", {"data_parallel": 4}, (*SERVE, "-dp", "4")),
    Line("with underscores and =", {"data_parallel": 2}, (*SERVE, "--data_parallel_size=2")),
    Line("of two, the last counts", {"data_parallel": 1}, (*SERVE, "-dp", "2", "-dp", "1")),
    Line("by a variable of the pod", {"data_parallel": 2}, (*SERVE, "-dp", "$(N)"), {"N": "2"}),
    Line("by a variable that is not known", {"data_parallel": None}, (*SERVE, "-dp", "$(N)"),
         unknown=frozenset({"N"})),
    Line("in a script", {"data_parallel": 2}, ("sh", "-c", "exec vllm serve m \\\n -dp 2")),
    Line("a script with flags that are not known", {"data_parallel": None},
         ("sh", "-c", "vllm serve m $EXTRA_ARGS")),
    Line("in the file of --config", {"data_parallel": 2}, (*SERVE, "--config", "/e.yaml"),
         files={"/e.yaml": "data-parallel-size: 2"}),
    Line("a file that is not at hand may say it", {"data_parallel": None},
         (*SERVE, "--config", "/e.yaml", "--speculative-config", "null")),
    Line("... but the command line wins over it", {"data_parallel": 1},
         (*SERVE, "--config", "/e.yaml", "--speculative-config", "null", "-dp", "1")),
    Line("no number", {"data_parallel": None}, (*SERVE, "-dp", "two")),
    Line("by the engine's own variable", {"data_parallel": 2}, env={"VLLM_DP_SIZE": "2"}),
    Line("... which counts below a flag of 2", {"data_parallel": 4}, (*SERVE, "-dp", "4"),
         {"VLLM_DP_SIZE": "2"}),
    Line("V0", {"generation": Generation.V0}, env={"VLLM_USE_V1": "0"}),
    Line("V1", {"generation": Generation.V1}, env={"VLLM_USE_V1": "1"}),
    Line("no number either", {"generation": Generation.UNKNOWN}, env={"VLLM_USE_V1": "yes"}),
    Line("from a Secret", {"generation": Generation.UNKNOWN}, unknown=frozenset({"VLLM_USE_V1"})),
    Line("set by the script", {"generation": Generation.UNKNOWN},
         ("sh", "-c", "export VLLM_USE_V1=0; vllm serve m")),
    Line("runner 1", {"runner": ModelRunner.V1}, env={"VLLM_USE_V2_MODEL_RUNNER": "0"}),
    Line("runner 2", {"runner": ModelRunner.V2}, env={"VLLM_USE_V2_MODEL_RUNNER": "1"}),
]  # fmt: skip


@pytest.mark.parametrize("case", LINES, ids=lambda case: case.reason)
def test_what_starts_the_engine_says_how_it_is_run(case: Line) -> None:
    launch = parse(case.argv, env=case.env, unknown=case.unknown, files=case.files).launch
    run = run_of(launch, argv=case.argv, env=case.env, unknown=case.unknown, version="0.24.0")
    assert run == ran("0.24.0", **case.want)


RENDERED = [
    (ran("0.9.1", generation=Generation.V0), KEY, None, "V0 reads the key"),
    (ran("0.9.1", generation=Generation.V1), {}, 32, "V1 does not"),
    (ran("0.9.1"), KEY, 32, "V1 by default, unless it falls back to V0"),
    (ran("0.9.1", generation=Generation.UNKNOWN), KEY, 32, "either"),
    (ran("0.24.0"), SCHEDULE, None, "followed"),
    (ran("0.24.0", data_parallel=2), {}, 32, "may hang"),
    (ran("0.24.0", data_parallel=None), {}, 32, "so may this"),
    (ran("0.24.0", runner=ModelRunner.UNKNOWN), {}, 32, "runner 2 ignores it"),
    (ran("0.33.0", runner=ModelRunner.UNKNOWN), SCHEDULE, None, "either follows"),
    (ran("0.33.0", data_parallel=None), {}, 32, "dropped with data parallelism"),
    (ran("0.16.0", generation=Generation.V0), {}, 32, "no V0 there: the variable is left over"),
    (ran("0.23.0", runner=ModelRunner.V2), {}, 32, "no runner 2 there"),
]


@pytest.mark.parametrize(("run", "keys", "guard", "reason"), RENDERED)
def test_a_limit_relies_on_the_engine_only_where_it_is_known_to_keep_it(
    run: EngineRun, keys: dict[str, Any], guard: int | None, reason: str
) -> None:
    rendered = render_for(LIMITED, run)
    assert rendered.refused == ""
    assert json.loads(rendered.config) == PLAIN | keys, reason
    assert rendered.guard == guard


def test_what_an_unknown_engine_was_told_is_recognised_in_every_way_it_may_be_run() -> None:
    told = render_for(LIMITED, ran("0.24.0")).config
    assert is_rendering(told, LIMITED, ran("0.24.0", data_parallel=None))
    assert not is_rendering(told, LIMITED, ran("0.24.0", data_parallel=2))
    assert is_rendering("", OFF, EngineRun())


def test_equal_to_python_is_not_equal_to_an_engine() -> None:
    """1 == True, so a cache by value alone would answer for the other."""
    one, true = (
        Setting(name="s", method="ngram", num_speculative_tokens=4, extra={"telepathy": value})
        for value in (1, True)
    )
    assert json.loads(render_for(one, ran("0.40.0")).config)["telepathy"] == 1
    assert '"telepathy":true' in render_for(true, ran("0.40.0")).config


def test_a_version_that_cannot_be_read_is_refused_in_words() -> None:
    assert "is not a version" in render_for(LIMITED, EngineRun(version="latest")).refused


@given(
    version=st.sampled_from(
        ["", "0.7.3", "0.8.2", "0.9.2", "0.17.0", "0.24.0", "0.30.0", "0.33.0"]
    ),
    generation=st.sampled_from(Generation),
    runner=st.sampled_from(ModelRunner),
    data_parallel=st.sampled_from([None, 1, 2]),
)
def test_in_no_way_it_may_be_run_is_a_limit_left_to_nobody(
    version: str, generation: Generation, runner: ModelRunner, data_parallel: int | None
) -> None:
    """Where rules do not keep it, what is told does: for each single way, known in full."""
    run = EngineRun(
        version=version, generation=generation, runner=runner, data_parallel=data_parallel
    )
    told = render_for(LIMITED, run)
    if told.guard is not None or told.refused:
        return
    generations = [generation] if generation is not Generation.UNKNOWN else list(Generation)
    runners = [runner] if runner is not ModelRunner.UNKNOWN else list(ModelRunner)
    ranks = [data_parallel] if data_parallel is not None else [1, 2, 8]
    for one, other, number in itertools.product(generations, runners, ranks):
        known = EngineRun(version=version, generation=one, runner=other, data_parallel=number)
        assert render_for(LIMITED, known).guard is None
