"""What each vLLM version does with what it is told about speculation: one table, and asking it.

The rows are in `specpilot.engines.knowledge`. Nothing else in Specpilot compares versions of an
engine to decide what it accepts.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from packaging.version import Version

from specpilot.domain.settings import JsonValue
from specpilot.engines.knowledge import behaviour
from specpilot.engines.knowledge.behaviour import BEHAVIOURS
from specpilot.engines.knowledge.flags import CONFIG_FLAG, DOTTED_FLAG, FLAGS, LIMIT_FLAG
from specpilot.engines.knowledge.keys import (
    KEYS,
    LIMIT_KEY,
    SCHEDULE_KEY,
    SYNTHETIC,
    VALUES,
)
from specpilot.engines.knowledge.methods import METHODS
from specpilot.engines.knowledge.rows import (
    GRAVITY,
    Certainty,
    Effect,
    Flag,
    Key,
    Kind,
    Method,
    Need,
    On,
    Row,
    Situation,
    Topic,
)
from specpilot.engines.versions import Engine, Span

__all__ = [
    "ALIAS_KEYS",
    "CONFIG_FLAG",
    "DOTTED_FLAG",
    "FLAGS",
    "KEYS",
    "LEGACY_FLAGS",
    "LEGACY_NGRAM",
    "LIMIT_FLAG",
    "LIMIT_KEY",
    "METHODS",
    "METHOD_NEEDS",
    "OTHER_SPEC_FLAGS",
    "SCHEDULE_KEY",
    "SYNTHETIC",
    "TABLE",
    "VALUES",
    "Certainty",
    "Effect",
    "Flag",
    "Key",
    "Kind",
    "Method",
    "Need",
    "On",
    "Row",
    "Runtime",
    "Situation",
    "Topic",
    "behaviour",
    "effect",
    "effective",
    "is_known",
    "is_legacy",
    "known_at",
    "rows_of",
    "situation",
    "spans",
    "words_of",
]

TABLE: tuple[Row, ...] = (*FLAGS, *KEYS, *VALUES, *METHODS, *BEHAVIOURS)
"""Everything that is known, in the order in which it is printed."""

_R = TypeVar("_R", bound=Row)


def _index(rows: Iterable[_R], key: Callable[[_R], str]) -> dict[str, tuple[_R, ...]]:
    found: dict[str, list[_R]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return {name: tuple(several) for name, several in found.items()}


_BY_NAME = {
    topic: _index((r for r in TABLE if r.topic is topic), lambda row: row.name) for topic in Topic
}

LEGACY_FLAGS: Mapping[str, Flag] = {row.name: row for row in FLAGS if row.legacy}
"""Flags from before the JSON value, each with one of its rows (they differ in effect only)."""

ALIAS_KEYS: Mapping[str, str] = {row.name: row.key for row in FLAGS if row.key and not row.legacy}
"""Flags that set one key; giving the same key in the JSON value as well stops the engine."""

METHOD_NEEDS: Mapping[str, Method] = {row.name: row for row in METHODS}
"""What each method takes; its rows differ in releases and effect only."""

LEGACY_NGRAM = "[ngram]"
"""What `--speculative-model` says for n-gram drafts."""

OTHER_SPEC_FLAGS = frozenset({"--specialize-active-lora"})
"""Flags that have nothing to do with speculation and share the abbreviation `--spec`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """How an engine is run, as far as it matters to speculation.

    Attributes:
        engine: `On.V0` or `On.V1`; None when it is not known, and the release's default counts.
        runner: `On.MRV1` or `On.MRV2`; None likewise.
        data_parallel: Ranks of data parallelism; None when not known, and counted as 1.
    """

    engine: On | None = None
    runner: On | None = None
    data_parallel: int | None = None


def rows_of(topic: Topic, name: str) -> tuple[Row, ...]:
    """All rows of a name."""
    return _BY_NAME[topic].get(name, ())


def is_known(topic: Topic, name: str, release: Version) -> bool:
    """Whether the release knows a name, whatever it does with it."""
    return any(release in row.span for row in rows_of(topic, name))


def known_at(topic: Topic, release: Version) -> list[str]:
    """All names that the release knows: for words. To ask for one, `is_known` is far quicker."""
    return [name for name in _BY_NAME[topic] if is_known(topic, name, release)]


def is_legacy(release: Version) -> bool:
    """Whether a release is from before `--speculative-config`, and takes a flag for each thing."""
    return not is_known(Topic.FLAG, CONFIG_FLAG, release)


def spans(topic: Topic, name: str) -> str:
    """The releases that know a name, in words; "" when none is on record."""
    rows = rows_of(topic, name)
    if not rows:
        return ""
    ends = [row.span.until for row in rows]
    last = None if None in ends else max(end for end in ends if end is not None)
    return str(Span(min(row.span.since for row in rows), last))


def effect(topic: Topic, name: str, where: Situation) -> Row | None:
    """The row that says what comes of a name there; None where the name is not known."""
    holding = [row for row in rows_of(topic, name) if row.holds(where)]
    return max(holding, key=lambda row: GRAVITY[row.effect], default=None)


def words_of(key: str, release: Version) -> list[str]:
    """The words that a key takes in a release; empty where any will do."""
    return [
        row.name.partition("=")[2]
        for row in VALUES
        if row.name.partition("=")[0] == key and row.effect is Effect.WORKS and release in row.span
    ]


def resolved(method: str, release: Version) -> str:
    """The method that a name stands for in a release."""
    needs = METHOD_NEEDS.get(method)
    target = needs.alias_of if needs is not None else ""
    if target and is_known(Topic.METHOD, target, release):
        return target
    return method


def situation(engine: Engine, method: str, runtime: Runtime) -> Situation:
    """Place an engine: what is not stated is what its release does by default."""
    release = engine.release
    name = resolved(method, release)
    generation = runtime.engine or _generation(release, name)
    parts = {On.ANY, generation}
    if generation is On.V1:
        parts.add(runtime.runner or _runner(release, name))
    return Situation(
        release=release,
        parts=frozenset(parts),
        method=name,
        data_parallel=runtime.data_parallel or 1,
    )


def _generation(release: Version, method: str) -> On:
    """V1 where it is the default and has the method, or where there is no other."""
    if release not in behaviour.V1_ENGINE.span:
        return On.V0
    if release not in behaviour.V0_ENGINE.span:
        return On.V1
    v1 = any(row.on is not On.V0 and release in row.span for row in rows_of(Topic.METHOD, method))
    return On.V1 if v1 else On.V0


def _runner(release: Version, method: str) -> On:
    if release not in behaviour.RUNNER_V2_DEFAULT.span:
        return On.MRV1
    return On.MRV1 if method in behaviour.RUNNER_V1_FALLBACK.only else On.MRV2


def effective(config: Mapping[str, JsonValue], where: Situation) -> dict[str, JsonValue]:
    """What an engine does of a speculative config that it starts with: no key that it ignores.

    A key that is on no record is taken to do what it says.
    """
    done = {}
    for key, value in config.items():
        row = effect(Topic.KEY, key, where) or _flag_of(key, where)
        if row is None or row.effect is Effect.WORKS:
            done[key] = value
    if isinstance(done.get("method"), str):
        done["method"] = where.method
    return done


def _flag_of(key: str, where: Situation) -> Row | None:
    """The row of a key that is told by a flag of its own."""
    name = next((flag.name for flag in LEGACY_FLAGS.values() if flag.key == key), "")
    return effect(Topic.FLAG, name, where) if name else None
