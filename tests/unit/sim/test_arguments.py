"""vLLM's command line by release: what starts, what is ignored, what dies, and how."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from specpilot.sim.arguments import parse
from specpilot.sim.launch import Generation, LaunchConfig, LaunchRefused


def spec(method: str, depth: int | None, **more: object) -> str:
    return json.dumps({"method": method, "num_speculative_tokens": depth, **more})


def scheduled(depth: int, *ranges: list[int]) -> str:
    return spec("ngram", depth, num_speculative_tokens_per_batch_size=ranges)


NGRAM = spec("ngram", 4)
LIMITED = spec("ngram", 4, disable_by_batch_size=8)
SCHEDULED = scheduled(4, [1, 4, 4], [9, 64, 0])
SCHEDULED_CLASS = spec("custom_class", 4, model="a.B",
                       num_speculative_tokens_per_batch_size=[[1, 8, 2]])  # fmt: skip
SUFFIX = spec("suffix", None, num_speculative_tokens_per_batch_size=[[1, 9, 1]])
V0 = {"VLLM_USE_V1": "0"}


def launch(version: str, *words: str, environment: Mapping[str, str] | None = None) -> LaunchConfig:
    return parse(
        ["serve", "m", "--sim-version", version, *words], environment=dict(environment or {})
    )


@dataclass(frozen=True)
class Starts:
    version: str
    words: Sequence[str]
    reason: str
    method: str | None
    depth: int = 0
    disable_at: int | None = None
    schedule: tuple[tuple[int, int], ...] = ()
    generation: Generation = Generation.V1
    environment: Mapping[str, str] = field(default_factory=dict)
    warned: bool = False


STARTS = [
    Starts("0.32.0", (), "no flag, no speculation", None),
    Starts("0.32.0", ("--speculative-config", NGRAM), "JSON", "ngram", 4),
    Starts("0.8.2", ("--speculative-config", NGRAM), "the first release with JSON", "ngram", 4),
    Starts("0.32.0", (f"--speculative-config={NGRAM}",), "one word", "ngram", 4),
    Starts("0.32.0", ("--speculative_config", NGRAM), "underscores", "ngram", 4),
    Starts("0.32.0", ("-sc", NGRAM), "the short name", "ngram", 4),
    Starts("0.32.0", ("--speculative-config=",), "empty is off", None),
    Starts("0.32.0", ("--speculative-config", ""), "empty as a word of its own", None),
    Starts("0.32.0", ("--speculative-config", "null"), "JSON's null", None),
    Starts("0.32.0", ("--speculative-config=None",), "Python's None", None),
    Starts("0.9.2", ("--speculative-config", "null"), "null was JSON from the start", None),
    Starts(
        "0.32.0",
        ("--speculative-config", NGRAM, "--speculative-config="),
        "the last one wins whole",
        None,
    ),
    Starts(
        "0.32.0",
        ("--speculative-config", NGRAM, "--speculative-config", '{"method": "suffix"}'),
        "no merge: suffix takes its own depth",
        "suffix",
        24,
    ),
    Starts(
        "0.9.0",
        ("--speculative-config.method", "ngram", "--speculative-config.num_speculative_tokens=3"),
        "dotted keys",
        "ngram",
        3,
    ),
    Starts(
        "0.32.0",
        ("--speculative-config.method=ngram", "--speculative-config.num_speculative_tokens", "3",
         "--speculative-config="),
        "an empty value does not cancel dotted keys, which come last",
        "ngram",
        3,
    ),
    Starts(
        "0.32.0",
        ("--spec-method", "ngram", "--spec-tokens", "5"),
        "the short flags",
        "ngram",
        5,
    ),
    Starts(
        "0.32.0",
        ("--speculative-config", '{"num_speculative_tokens": 2, "model": "x/eagle3-head"}'),
        "the method is inferred from the model's name",
        "eagle3",
        2,
    ),
    Starts(
        "0.32.0",
        ("--speculative-config", '{"num_speculative_tokens": 2, "model": "x/small"}'),
        "or is a draft model",
        "draft_model",
        2,
    ),
    Starts("0.32.0", ("--spec-method", "glm4_moe_mtp", "--spec-tokens", "1"),
           "an alias of mtp", "mtp", 1),
    Starts(
        "0.9.2",
        ("--speculative-config", LIMITED),
        "0.9.2 V1: the batch limit is accepted and never read",
        "ngram",
        4,
    ),
    Starts(
        "0.9.2",
        ("--speculative-config", LIMITED),
        "0.9.2 V0: the batch limit works",
        "ngram",
        4,
        disable_at=8,
        generation=Generation.V0,
        environment=V0,
    ),
    Starts(
        "0.9.2",
        ("--speculative-config", '{"model": "x/mlp_speculator", "num_speculative_tokens": 3}'),
        "a method that V1 lacked falls back to V0",
        "mlp_speculator",
        3,
        generation=Generation.V0,
    ),
    Starts(
        "0.16.0",
        ("--speculative-config", LIMITED),
        "0.10 to 0.16: validated and ignored",
        "ngram",
        4,
    ),
    Starts(
        "0.8.2",
        ("--speculative-model", "[ngram]", "--num-speculative-tokens", "4",
         "--speculative-disable-by-batch-size", "16"),
        "the last release with flags; V1 ignores the limit",
        "ngram",
        4,
    ),
    Starts(
        "0.6.3",
        ("--speculative-model", "small", "--num-speculative-tokens", "4",
         "--speculative-disable-by-batch-size", "16"),
        "V0 with flags",
        "draft_model",
        4,
        disable_at=16,
        generation=Generation.V0,
    ),
    Starts("0.6.3", (), "V0 without speculation", None, generation=Generation.V0),
    Starts(
        "0.24.0",
        ("--speculative-config", SCHEDULED),
        "a schedule: only the start of a range counts",
        "ngram",
        4,
        schedule=((1, 4), (9, 0)),
    ),
    Starts(
        "0.32.0",
        ("--speculative-config", scheduled(3, [1, 4, 5], [5, 9, 4])),
        "depths are clamped to num_speculative_tokens",
        "ngram",
        3,
        schedule=((1, 3), (5, 3)),
    ),
    Starts("0.32.0", ("--speculative-config", scheduled(4)), "no ranges, no schedule", "ngram", 4),
    Starts(
        "0.32.0",
        ("--speculative-config", scheduled(4, [9, 64, 0], [1, 4, 4])),
        "ranges in any order",
        "ngram",
        4,
        schedule=((1, 4), (9, 0)),
    ),
    Starts(
        "0.32.0",
        ("--speculative-config", SCHEDULED, "--data-parallel-size", "2"),
        "with data parallelism the schedule is dropped",
        "ngram",
        4,
        warned=True,
    ),
    Starts(
        "0.24.0",
        ("--speculative-config", SCHEDULED, "-dp", "2"),
        "which 0.24.0 did not do yet",
        "ngram",
        4,
        schedule=((1, 4), (9, 0)),
    ),
    Starts(
        "0.30.0",
        ("--speculative-config", SCHEDULED, "--sim-model-runner", "v2"),
        "Model Runner V2 drafted the static depth",
        "ngram",
        4,
        warned=True,
    ),
    Starts(
        "0.32.0",
        ("--speculative-config", SCHEDULED, "--sim-model-runner", "v2"),
        "which it follows from 0.32 on",
        "ngram",
        4,
        schedule=((1, 4), (9, 0)),
    ),
    Starts(
        "0.32.0",
        ("--speculative-config", SCHEDULED_CLASS),
        "a class of the user's is told no depth",
        "custom_class",
        4,
        warned=True,
    ),
    Starts(
        "0.33.0",
        ("--speculative-config", SUFFIX),
        "0.33 has a list of methods that may follow a schedule",
        "suffix",
        24,
        warned=True,
    ),
    Starts("0.32.0", ("--spec-method=medusa", "--spec-model=x", "--spec-tokens=2"),
           "medusa is still there", "medusa", 2),
]  # fmt: skip


@pytest.mark.parametrize("case", STARTS, ids=lambda case: f"{case.version}: {case.reason}")
def test_starts(case: Starts) -> None:
    config = launch(case.version, *case.words, environment=case.environment)
    speculation = config.speculation
    seen = (
        (None, 0, None, ())
        if speculation is None
        else (
            speculation.method,
            speculation.depth,
            speculation.disable_at,
            speculation.schedule,
        )
    )
    assert seen == (case.method, case.depth, case.disable_at, case.schedule), case.reason
    assert config.generation is case.generation
    assert bool(config.warnings) is case.warned


@dataclass(frozen=True)
class Dies:
    version: str
    words: Sequence[str]
    code: int
    says: str
    reason: str


DIES = [
    Dies("0.32.0", ("--speculative-disable-by-batch-size", "8"), 2,
         "unrecognized arguments: --speculative-disable-by-batch-size 8",
         "the flag that ended with 0.8.2"),
    Dies("0.8.3", ("--speculative-disable-by-batch-size", "8"), 2, "unrecognized arguments",
         "the first release without it"),
    Dies("0.8.1", ("--speculative-config", NGRAM), 2, "unrecognized arguments",
         "JSON before its time"),
    Dies("0.17.0", ("--speculative-config", LIMITED), 1, "Unexpected keyword argument",
         "the key that ended with 0.16"),
    Dies("0.32.0", ("--speculative-config", LIMITED), 1, "pydantic_core", "worded by pydantic"),
    Dies("0.9.2", ("--speculative-config", '{"colour": 1}'), 1, "TypeError",
         "or, before it, by a dataclass"),
    Dies("0.32.0", ("--spec-method", "mtp"), 1, "num_speculative_tokens must be provided",
         "the target stands in for the draft only where a depth is given"),
    Dies("0.32.0", ("--speculative-config", "{}"), 1, "num_speculative_tokens must be provided",
         "a config with nothing in it is not off"),
    Dies("0.32.0", ("--speculative-config", '{"method": "ngram"}'), 1,
         "num_speculative_tokens must be provided", "no depth"),
    Dies("0.32.0", ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 0}'), 1,
         "greater than 0", "depth 0 is not a way to say off"),
    Dies("0.8.5", ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 0}'), 1,
         "greater than 0", "at any release"),
    Dies("0.32.0", ("--speculative-config", '{"method": "x", "num_speculative_tokens": 1}'), 1,
         "literal_error", "an unknown method"),
    Dies("0.33.0", ("--spec-method=medusa", "--spec-model=x", "--spec-tokens=2"), 1,
         "literal_error", "medusa is gone"),
    Dies("0.10.2", ("--speculative-config", '{"model": "small", "num_speculative_tokens": 1}'), 1,
         "not supported yet", "V1 without draft models"),
    Dies("0.32.0", ("--speculative-config", '{"method": "eagle", "num_speculative_tokens": 1}'), 1,
         "without speculative model", "a head without its weights"),
    Dies("0.32.0", ("--speculative-config", NGRAM, "--speculative-config.num_speculative_tokens",
                    "2"), 1, "without speculative model", "a dotted key loses the JSON"),
    Dies("0.32.0", ("--speculative-config", NGRAM, "--spec-tokens", "2"), 1, "mutually exclusive",
         "the same thing twice"),
    Dies("0.32.0", ("--speculative-config", "{oops"), 2,
         "Value {oops cannot be converted to <function loads", "not JSON"),
    Dies("0.10.0", ("--speculative-config", ""), 2, "invalid loads value",
         "empty meant nothing before 0.10.1"),
    Dies("0.10.0", ("--speculative-config", "None"), 2, "invalid loads value", "nor did None"),
    Dies("0.32.0", ("--speculative-config", "4"), 1, "'int' object has no attribute",
         "JSON, but no mapping"),
    Dies("0.18.0", ("-sc", NGRAM), 2, "unrecognized arguments", "the short name before its time"),
    Dies("0.8.5", ("--speculative-config.method", "ngram"), 2, "unrecognized arguments",
         "dotted keys before their time"),
    Dies("0.22.0", ("--spec-method", "ngram"), 2, "unrecognized arguments",
         "the short flags before their time"),
    Dies("0.23.0", ("--speculative-config", SCHEDULED), 1, "Unexpected keyword argument",
         "a schedule before its time"),
    Dies("0.32.0", ("--speculative-config", scheduled(3, [2, 4, 1])), 1,
         "must start at 1", "a schedule that begins in the middle"),
    Dies("0.32.0", ("--speculative-config", scheduled(3, [0, 4, 1])), 1,
         "(0, 4) must be positive", "batch sizes begin at 1"),
    Dies("0.32.0", ("--speculative-config", scheduled(3, [4, 1, 1])), 1,
         "start must be <= end for (4, 1, 1)", "a range the wrong way round"),
    Dies("0.32.0", ("--speculative-config", scheduled(3, [1, 4, -1])), 1,
         "must be >= 0", "a negative depth"),
    Dies("0.32.0", ("--speculative-config", spec("ngram", 4, prompt_lookup_min=3,
                                                 prompt_lookup_max=2)), 1,
         "prompt_lookup_min=3 must be <= prompt_lookup_max=2", "crossed bounds of the lookup"),
    Dies("0.32.0", ("--speculative-config", spec("ngram", 4, prompt_lookup_max=0)), 1,
         "greater than or equal to 1", "nothing to look up"),
    Dies("0.32.0", ("--shutdown-timeout", "-1"), 1,
         "1 validation error for VllmConfig\nshutdown_timeout\n", "checked after parsing"),
    Dies("0.32.0", ("--shutdown-timeout", "30s"), 2, "invalid int value: '30s'", "whole seconds"),
    Dies("0.32.0", ("--speculative-config", scheduled(3, [1, 4, 1], [4, 9, 0])), 1,
         "must be non-overlapping", "ranges that overlap"),
    Dies("0.8.5", ("--speculative-config", spec("ngram", 4, disable_by_batch_size=1)), 1,
         "batch size threshold", "a limit of one"),
    Dies("0.17.1", ("--shutdown-timeout", "30"), 2, "unrecognized arguments",
         "the drain before its time"),
    Dies("0.32.0", ("--frobnicate",), 2, "unrecognized arguments", "any unknown flag"),
    Dies("0.32.0", ("--port", "http"), 2, "argument --port: invalid", "of the wrong type"),
    Dies("0.32.0", ("--config", "a.yaml", "--config", "b.yaml"), 1, "More than one", "two files"),
    Dies("0.32.0", ("--config", "a.json"), 1, "yaml/yml type. json supplied",
         "not YAML by its name"),
    Dies("0.32.0", ("--config", "missing.yaml"), 1, "Unable to read", "no such file"),
    Dies("0.34.0", (), 2, "--sim-version", "a release that nobody knows yet"),
    Dies("0.32.0", ("--sim-profile", "tpu"), 2, "--sim-profile", "an option of the simulator"),
]  # fmt: skip


@pytest.mark.parametrize("case", DIES, ids=lambda case: f"{case.version}: {case.reason}")
def test_dies(case: Dies) -> None:
    with pytest.raises(LaunchRefused) as refusal:
        launch(case.version, *case.words)
    assert refusal.value.code == case.code, refusal.value.message
    assert case.says in refusal.value.message


def test_ordinary_flags_of_a_manifest() -> None:
    config = launch(
        "0.32.0", "--host", "127.0.0.1", "--port", "8100", "--served-model-name", "a", "b",
        "--max-model-len", "8k", "--max-num-seqs", "64", "--dtype", "float16", "--enforce-eager",
        "--gpu-memory-utilization", "0.9", "-tp", "2", "--no-enable-prefix-caching",
        "--disable-log-stats", "--shutdown-timeout", "45", "--api-server-count", "2",
    )  # fmt: skip
    assert config.served_model_names == ("a", "b")
    assert config.model_name == "a"
    assert (config.host, config.port, config.max_model_len) == ("127.0.0.1", 8100, 8000)
    assert not config.log_stats
    assert not config.prefix_caching
    assert config.shutdown_timeout == 45
    assert config.api_server_count == 2


def test_the_module_entry_point_names_the_model_by_flag() -> None:
    assert parse(["--model", "m"], environment={}).model == "m"


def test_a_model_is_needed() -> None:
    with pytest.raises(LaunchRefused) as refusal:
        parse(["serve"], environment={})
    assert refusal.value.code == 2


def test_options_of_the_simulator_may_come_by_environment() -> None:
    environment = {
        "SPECPILOT_SIM_VERSION": "0.10.2",
        "SPECPILOT_SIM_ARGS": "--sim-profile demo --sim-startup-seconds 3",
    }
    config = parse(["serve", "m", "--sim-startup-seconds", "1"], environment=environment)
    assert str(config.version) == "0.10.2"
    assert config.sim.profile == "demo"
    assert config.sim.startup_seconds == 1, "the command line wins"


@pytest.mark.parametrize(
    ("condition", "spec", "slow"),
    [
        ("ngram", NGRAM, 2.0),
        ("any", NGRAM, 2.0),
        ("off", NGRAM, 1.0),
        ("eagle3", NGRAM, 1.0),
        ("off", "", 2.0),
        ("any", "", 1.0),
    ],
)
def test_faults_may_depend_on_the_method(condition: str, spec: str, slow: float) -> None:
    config = launch(
        "0.32.0", "--speculative-config", spec, "--sim-slow", "2", "--sim-fault-if-method",
        condition,
    )  # fmt: skip
    assert config.sim.faults.slow == slow


def test_crash_at_start_may_depend_on_the_method() -> None:
    words = ("--sim-crash-if-method", "ngram")
    assert launch("0.32.0", *words).sim.crash_at_start is None
    on = launch("0.32.0", "--speculative-config", NGRAM, *words)
    assert on.sim.crash_at_start == 1


def test_v1_that_is_asked_for_and_lacks_the_method_does_not_fall_back() -> None:
    spec = '{"model": "x/mlp_speculator", "num_speculative_tokens": 3}'
    line = ["serve", "m", "--sim-version", "0.9.2", "--speculative-config", spec]
    with pytest.raises(LaunchRefused, match="VLLM_USE_V1=1 is not supported with mlp_speculator"):
        parse(line, environment={"VLLM_USE_V1": "1"})
