"""The product's table against the simulator's, which was written independently of it.

For each version, each kind of setting and each way to run the engine: what `render` gives starts in
the simulator, with exactly the effect that `render` states. What it refuses or leaves to rules is
put to the simulator all the same, where it must stop the engine or do nothing.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from specpilot.domain.settings import Setting
from specpilot.engines import On, Rendered, Runtime, render
from specpilot.engines import capabilities as table
from specpilot.engines.capabilities import Kind, Need
from specpilot.sim.arguments import parse as launch
from specpilot.sim.launch import Generation, LaunchConfig, LaunchRefused

VERSIONS = ("0.8.2", "0.9.2", "0.10.2", "0.16.0", "0.17.0", "0.24.0", "0.32.0", "0.33.0")
LIMIT = 32
DEPTH = 4
SCHEDULE = [[1, 8, 4], [9, 64, 2], [65, 512, 0]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How an engine is run."""

    name: str
    runtime: Runtime = field(default_factory=Runtime)
    words: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


V0 = Way(name="V0", runtime=Runtime(engine=On.V0), environment=(("VLLM_USE_V1", "0"),))
V1 = Way(name="V1", runtime=Runtime(engine=On.V1), environment=(("VLLM_USE_V1", "1"),))
BY_DEFAULT = Way(name="default")
PARALLEL = Way(
    name="two ranks",
    runtime=Runtime(data_parallel=2),
    words=("--data-parallel-size", "2"),
)
RUNNER_1 = Way(
    name="runner 1", runtime=Runtime(runner=On.MRV1, data_parallel=1),
    words=("--sim-model-runner", "v1"),
)  # fmt: skip
RUNNER_2 = Way(
    name="runner 2", runtime=Runtime(runner=On.MRV2, data_parallel=1),
    words=("--sim-model-runner", "v2"),
)  # fmt: skip


def ways(version: str) -> tuple[Way, ...]:
    if version in {"0.8.2", "0.9.2"}:
        return BY_DEFAULT, V0, V1
    if version in VERSIONS[:5]:
        return (BY_DEFAULT,)
    return RUNNER_1, RUNNER_2, PARALLEL


VALUES: Mapping[Kind, Any] = {
    Kind.TEXT: "x",
    Kind.INTEGER: 8,
    Kind.POSITIVE: 8,
    Kind.NUMBER: 0.5,
    Kind.BOOLEAN: True,
    Kind.LIST: [0.5, 0.25],
    Kind.ANYTHING: {"load_format": "dummy"},
}
SPECIAL = {
    table.SCHEDULE_KEY: SCHEDULE,
    "acceptance_method": "rejection_sampler",
    "rejection_sample_method": "standard",
    "draft_sample_method": "greedy",
    "prompt_lookup_min": 2,
}


def of_method(name: str, **fields: Any) -> Setting:
    needs = table.METHOD_NEEDS[name]
    return Setting(
        **{
            "name": "s",
            "method": name,
            "model": "org/head" if needs.model is Need.REQUIRED else None,
            "num_speculative_tokens": DEPTH,
            **fields,
        }
    )


NOT_DATED = frozenset(
    name for name, row in table.METHOD_NEEDS.items() if row.alias_of and name not in
    {"deepseek_mtp", "ernie_mtp", "qwen3_next_mtp"}
)  # fmt: skip
"""Other names of mtp of which the simulator does not know the release."""


def cautious(rendered: Rendered, setting: Setting, *, way: Way) -> bool:
    """Whether the product refuses what no simulator shows to be wrong: a hang, a guess."""
    may_hang = "may hang" in rendered.refused + rendered.instead
    return may_hang or (way is V0 and setting.method == "eagle3")


def kinds() -> Iterator[tuple[str, Setting]]:
    for method in sorted(set(table.METHOD_NEEDS) - NOT_DATED):
        yield f"{method}", of_method(method)
        yield f"{method} with a limit", of_method(method, disable_above_batch_size=LIMIT)
        yield f"{method} with a schedule", of_method(method, extra={table.SCHEDULE_KEY: SCHEDULE})
    stated = {"method", "model", "num_speculative_tokens", table.LIMIT_KEY, table.SCHEDULE_KEY}
    for key, kind in {row.name: row.kind for row in table.KEYS}.items():
        if key not in stated:
            yield key, of_method("ngram", extra={key: SPECIAL.get(key, VALUES[kind])})
    for value in table.VALUES:
        key, _, word = value.name.partition("=")
        yield value.name, of_method("eagle3", extra={key: word})
    for key, value in {"synthetic_acceptance_rates": [0.9, 0.5, 0.2, 0.1],
                       "synthetic_acceptance_length": 2.5}.items():  # fmt: skip
        yield (
            f"synthetic by {key}",
            of_method("ngram", extra={"rejection_sample_method": "synthetic", key: value}),
        )
    yield "MTP's own key", of_method("mtp", extra={"index_share_for_mtp_iteration": True})
    yield "a vocabulary of its own", of_method("draft_model",
                                               extra={"use_heterogeneous_vocab": True})  # fmt: skip
    yield "an unknown key", of_method("ngram", extra={"telepathy": 1})
    yield "an unknown method", Setting(name="s", method="telepathy", num_speculative_tokens=4)
    yield "no draft model", of_method("eagle", model=None)
    yield "no depth", of_method("ngram", num_speculative_tokens=None)
    yield "depth 0", of_method("ngram", num_speculative_tokens=0)
    yield "crossed bounds", of_method("ngram", extra={"prompt_lookup_min": 5,
                                                      "prompt_lookup_max": 2})  # fmt: skip
    yield "a gap at 1", of_method("ngram", extra={table.SCHEDULE_KEY: [[2, 8, 1]]})
    yield "overlap", of_method("ngram", extra={table.SCHEDULE_KEY: [[1, 8, 1], [8, 9, 1]]})


SETTINGS = dict(kinds())


def start(*words: str, version: str, way: Way) -> LaunchConfig:
    line = ["serve", "m", "--sim-version", version, *way.words, *words]
    return launch(line, environment=dict(way.environment))


def forced(setting: Setting, **more: Any) -> str:
    """The setting as if the version had everything."""
    config: dict[str, Any] = {"method": setting.method, **setting.extra, **more}
    if setting.model is not None:
        config["model"] = setting.model
    if setting.num_speculative_tokens is not None:
        config["num_speculative_tokens"] = setting.num_speculative_tokens
    return f"--speculative-config={json.dumps(config)}"


def agrees(rendered: Rendered, launched: LaunchConfig) -> None:
    done, effective = launched.speculation, json.loads(rendered.effective)
    assert done is not None
    assert done.method == effective["method"]
    assert done.depth == effective.get("num_speculative_tokens", done.depth)
    assert bool(done.schedule) == (table.SCHEDULE_KEY in effective)
    assert done.disable_at == effective.get(table.LIMIT_KEY)
    if done.schedule:
        steps = tuple((first, depth) for first, _, depth in effective[table.SCHEDULE_KEY])
        assert done.schedule == steps


def has_no_effect(setting: Setting, *, version: str, way: Way) -> bool:
    """Whether what was refused stops the simulator, or leaves it doing less than was asked."""
    try:
        launched = start(forced(setting), version=version, way=way)
    except LaunchRefused:
        return True
    done = launched.speculation
    return done is None or (table.SCHEDULE_KEY in setting.extra and not done.schedule)


def limit_has_no_effect(setting: Setting, *, version: str, way: Way) -> bool:
    """Whether neither the flag, nor the key, nor a schedule would have kept the limit."""
    depth = setting.num_speculative_tokens
    schedule = [[1, LIMIT, depth], [LIMIT + 1, 10**6, 0]]
    attempts = (
        (forced(setting, **{table.LIMIT_KEY: LIMIT + 1}),),
        (forced(setting, **{table.SCHEDULE_KEY: schedule}),),
        (forced(setting), table.LIMIT_FLAG, str(LIMIT + 1)),
    )
    for words in attempts:
        try:
            done = start(*words, version=version, way=way).speculation
        except LaunchRefused:
            continue
        if done is not None and (done.schedule or done.disable_at):
            return False
    return True


CASES = [
    pytest.param(version, way, name, id=f"{version}-{way.name}-{name}")
    for version in VERSIONS
    for way in ways(version)
    for name in SETTINGS
]


@pytest.mark.parametrize(("version", "way", "name"), CASES)
def test_both_tables_say_the_same(version: str, way: Way, name: str) -> None:
    setting = SETTINGS[name]
    rendered = render(setting, version=version, runtime=way.runtime)
    if cautious(rendered, setting, way=way):
        assert rendered.refused or rendered.guard == LIMIT
        return
    if rendered.refused:
        assert has_no_effect(setting, version=version, way=way), rendered.refused
        return
    agrees(rendered, start(*rendered.args, version=version, way=way))
    if rendered.guard is not None:
        assert limit_has_no_effect(setting, version=version, way=way), rendered.instead


@pytest.mark.parametrize("version", VERSIONS)
def test_neither_side_of_the_comparison_is_empty(version: str) -> None:
    """Each version runs some of the settings and refuses some, so that both are compared."""
    said = [render(s, version=version).refused for s in SETTINGS.values()]
    assert said.count("") >= 10
    assert len(said) - said.count("") >= 10


@pytest.mark.parametrize(
    ("version", "way", "generation"),
    [
        ("0.9.2", V0, Generation.V0),
        ("0.9.2", V1, Generation.V1),
        ("0.33.0", RUNNER_2, Generation.V1),
    ],
)
def test_the_simulator_runs_the_engine_it_is_compared_as(
    version: str, way: Way, generation: Generation
) -> None:
    assert start(version=version, way=way).generation is generation
