"""A setting -> exactly what one engine version is to be told, or why it cannot be told so.

A wrong key stops an engine at start, on every replica that gets it. So whatever the table knows to
be wrong is refused here; what it cannot know (a newer engine, a model that does not exist) is for
the canary to find out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from specpilot.domain.settings import JsonValue, Setting, canonical_json
from specpilot.engines import capabilities as table
from specpilot.engines import legacy
from specpilot.engines.capabilities import Effect, Kind, Need, On, Runtime, Situation, Topic
from specpilot.engines.limits import batch_limit
from specpilot.engines.versions import Engine, VersionError, read_version

_OWN_FIELDS = {
    "method": "method",
    "model": "model",
    "num_speculative_tokens": "numSpeculativeTokens",
    table.LIMIT_KEY: "disableAboveBatchSize",
}
"""Keys that a setting states with a field of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A setting for one engine version.

    Attributes:
        config: Canonical JSON of the speculative config; "" means off. Look at `refused` first.
        args: What to append to the command line; empty means off.
        effective: Canonical JSON of what the engine will really do of it; "" means nothing.
        refused: Why this version cannot run the setting, with the remedy; "" when it can.
        instead: What is done instead of what was asked, and what is only assumed; "" when the
            setting is rendered as it stands.
        guard: The batch size above which rules must turn speculation off, because the engine will
            not; None when nothing is left to them.
    """

    config: str = ""
    args: tuple[str, ...] = ()
    effective: str = ""
    refused: str = ""
    instead: str = ""
    guard: int | None = None


class _RefusedError(Exception):
    """The version cannot run the setting."""


@dataclass(slots=True)
class _Notes:
    said: list[str] = field(default_factory=list)

    def add(self, *notes: str) -> None:
        self.said += [n for n in notes if n]

    def __str__(self) -> str:
        return "; ".join(self.said)


def render(setting: Setting, *, version: str, runtime: Runtime | None = None) -> Rendered:
    """Render a setting for an engine version.

    Args:
        setting: What the user wants.
        version: The engine's version; "" when it is not known, which is read as the newest.
        runtime: How the engine is run, where that is known.
    """
    if setting.is_off:
        return Rendered()
    runtime = runtime or Runtime()
    try:
        engine = read_version(version)
        where = table.situation(engine, setting.method or "", runtime)
        notes = _Notes([engine.note] if engine.note else [])
        config, guard = _config(setting, engine=engine, runtime=runtime, where=where, notes=notes)
        args = _args(config, engine=engine)
    except (_RefusedError, VersionError, legacy.NotExpressibleError) as error:
        return Rendered(refused=f"setting {setting.name}: {error}")
    told = legacy.visible(config) if table.is_legacy(engine.release) else config
    return Rendered(
        config=canonical_json(told),
        args=args,
        effective=canonical_json(table.effective({"method": setting.method, **told}, where)),
        instead=str(notes),
        guard=guard,
    )


def arguments(config: str, *, version: str) -> tuple[str, ...]:
    """Return what to append to a command line so that the engine runs a rendered config.

    Args:
        config: As in `Rendered.config`; "" means off.
        version: The engine's version; "" is read as the newest.

    Raises:
        ValueError: This version cannot be told that; the message says why.
    """
    return _args(json.loads(config), engine=read_version(version)) if config else ()


def empty_value_is_off(*, version: str) -> bool:
    """Whether `--speculative-config=` with nothing after it starts the engine without speculation.

    Where it does not (before 0.10.1), a value that comes from a variable cannot be used to turn
    speculation off.
    """
    try:
        return read_version(version).release in table.behaviour.EMPTY_IS_OFF.span
    except VersionError:
        return False


def _args(config: dict[str, JsonValue], *, engine: Engine) -> tuple[str, ...]:
    if table.is_legacy(engine.release):
        return legacy.render(config, engine=engine)
    return (f"{table.CONFIG_FLAG}={canonical_json(config)}",)


def _config(
    setting: Setting, *, engine: Engine, runtime: Runtime, where: Situation, notes: _Notes
) -> tuple[dict[str, JsonValue], int | None]:
    _check_runtime(runtime, engine=engine)
    _check_method(setting, engine=engine, runtime=runtime, where=where, notes=notes)
    _check_extra(setting, engine=engine, where=where, notes=notes)
    config: dict[str, JsonValue] = {"method": setting.method, **setting.extra}
    if setting.model is not None:
        config["model"] = setting.model
    if setting.num_speculative_tokens is not None:
        config["num_speculative_tokens"] = setting.num_speculative_tokens
    guard = None
    limit = setting.disable_above_batch_size
    if limit is not None:
        if limit < 1:
            raise _RefusedError(f"disableAboveBatchSize is {limit}; use 1 or more, or leave it out")
        if table.SCHEDULE_KEY in setting.extra:
            raise _RefusedError(
                f"disableAboveBatchSize and extra.{table.SCHEDULE_KEY} say the same; remove one"
            )
        said = batch_limit(setting, limit=limit, engine=engine, runtime=runtime, where=where)
        config |= said.keys
        notes.add(said.note)
        guard = limit if said.by_rules else None
    try:
        canonical_json(config)
    except (TypeError, ValueError) as error:
        raise _RefusedError(
            f"extra cannot be written as JSON ({error}); use plain values"
        ) from None
    return config, guard


def _check_runtime(runtime: Runtime, *, engine: Engine) -> None:
    v0, v1 = table.behaviour.V0_ENGINE, table.behaviour.V1_ENGINE
    wanted = {On.V0: v0, On.V1: v1}.get(runtime.engine or On.ANY)
    if wanted is not None and engine.release not in wanted.span:
        raise _RefusedError(f"{engine} has no {runtime.engine} engine: it exists in {wanted.span}")
    second = table.behaviour.RUNNER_V2
    if runtime.runner is On.MRV2 and engine.release not in second.span:
        raise _RefusedError(f"{engine} has no Model Runner V2: it exists in {second.span}")


def _check_method(
    setting: Setting, *, engine: Engine, runtime: Runtime, where: Situation, notes: _Notes
) -> None:
    name = setting.method or ""
    needs = table.METHOD_NEEDS.get(name)
    if needs is None:
        if engine.beyond:
            notes.add(f"method {name} is not described and is passed on; the canary will tell")
            return
        known = table.known_at(Topic.METHOD, engine.release)
        raise _RefusedError(f"{engine} has no method {name!r}{_nearest(name, known)}")
    _check_known(Topic.METHOD, name, what="method", engine=engine, where=where)
    if table.effect(Topic.METHOD, name, where) is None:
        raise _RefusedError(
            f"the {runtime.engine} engine of {engine} is not known to have method {name}; "
            "use the other engine, or leave it to the release"
        )
    if needs.model is Need.REQUIRED and not setting.model:
        raise _RefusedError(f"method {name} needs a model; add model: with the draft to load")
    if needs.model is Need.NONE and setting.model:
        raise _RefusedError(f"method {name} drafts without a model; remove model: {setting.model}")
    depth = setting.num_speculative_tokens
    if depth is None and needs.depth is Need.REQUIRED:
        raise _RefusedError(f"method {name} needs a depth; add numSpeculativeTokens, such as 3")
    if depth is None and needs.model is Need.OPTIONAL and not setting.model:
        raise _RefusedError(
            f"method {name} needs a depth or a model: without both the engine does not start; "
            "add numSpeculativeTokens, such as 1"
        )
    if depth is not None and depth < 1:
        raise _RefusedError(
            f"numSpeculativeTokens is {depth} and the engine does not start below 1; "
            'use the setting "off" for no speculation'
        )


def _check_known(topic: Topic, name: str, *, what: str, engine: Engine, where: Situation) -> None:
    if not table.is_known(topic, name, engine.release):
        raise _RefusedError(
            f"{engine} has no {what} {name}: it exists in {table.spans(topic, name)}"
        )
    row = table.effect(topic, name, where)
    if row is not None and row.effect is Effect.FAILS:
        elsewhere = "remove it" if row.condition else f"use a version outside {row.span}"
        raise _RefusedError(f"{engine} does not start with {what} {name}: {row.why}; {elsewhere}")
    if row is not None and row.effect is Effect.HANGS:
        raise _RefusedError(f"{engine} may hang with {what} {name}: {row.why}; remove it")


def _check_extra(setting: Setting, *, engine: Engine, where: Situation, notes: _Notes) -> None:
    for key, value in setting.extra.items():
        if key in _OWN_FIELDS:
            raise _RefusedError(f"extra.{key}: state it as {_OWN_FIELDS[key]} instead")
        if table.is_legacy(engine.release):
            continue  # what has no flag there is refused when the flags are written
        if table.rows_of(Topic.KEY, key):
            _check_known(Topic.KEY, key, what="key", engine=engine, where=where)
            _check_value(key, value, engine=engine, where=where)
            row = table.effect(Topic.KEY, key, where)
            if row is not None and row.effect is Effect.IGNORED:
                notes.add(f"extra.{key} does nothing there: {row.why}")
        elif engine.beyond:
            notes.add(f"extra.{key} is not described and is passed on; the canary will tell")
        else:
            known = table.known_at(Topic.KEY, engine.release)
            raise _RefusedError(
                f"extra.{key}: {engine} has no such key and would not start{_nearest(key, known)}"
            )
    _check_together(setting.extra)


def _check_value(key: str, value: JsonValue, *, engine: Engine, where: Situation) -> None:
    """Refuse a value of the wrong type, and a word that the release does not know."""
    kind = next(row.kind for row in table.KEYS if row.name == key)
    if value is not None and not _fits(kind, value):
        raise _RefusedError(f"extra.{key} is {_written(value)}; it takes a {kind}")
    if key == table.SCHEDULE_KEY and value is not None:
        _check_schedule(value)
    words = table.words_of(key, engine.release)
    if words and value is not None and value not in words and not engine.beyond:
        raise _RefusedError(f"extra.{key} is {_written(value)}; {engine} takes {', '.join(words)}")
    row = table.effect(Topic.VALUE, f"{key}={_written(value)}", where)
    if row is not None and row.effect is Effect.FAILS:
        raise _RefusedError(f"extra.{key} is {_written(value)}: {row.why}; remove it")


def _fits(kind: Kind, value: JsonValue) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case Kind.TEXT:
            return isinstance(value, str)
        case Kind.INTEGER:
            return isinstance(value, int) and not isinstance(value, bool)
        case Kind.POSITIVE:
            return isinstance(value, int) and not isinstance(value, bool) and value > 0
        case Kind.NUMBER:
            return number
        case Kind.BOOLEAN | Kind.SWITCH:
            return isinstance(value, bool)
        case Kind.LIST:
            return isinstance(value, list)
        case Kind.ANYTHING:
            return True


def _check_schedule(value: JsonValue) -> None:
    """Refuse a schedule with which the scheduler does not start (`dynamic/utils.py` of 0.32.0)."""
    wrong = f"extra.{table.SCHEDULE_KEY} is {_written(value)}; "
    rows: list[list[int]] = []
    for row in value if isinstance(value, list) else []:
        match row:
            case [int() as first, int() as last, int() as depth] if not any(
                isinstance(item, bool) for item in row
            ):
                rows.append([first, last, depth])
            case _:
                raise _RefusedError(wrong + "write rows of [first batch, last batch, depth]")
    if not rows:
        raise _RefusedError(wrong + "write at least one row [1, last batch, depth]")
    covered = 0
    for place, (first, last, depth) in enumerate(sorted(rows)):
        if place == 0 and first != 1:
            raise _RefusedError(wrong + "the first range must begin at batch 1")
        if first <= covered or last < first:
            raise _RefusedError(wrong + "ranges must not overlap or run backwards")
        if depth < 0:
            raise _RefusedError(wrong + "a depth is 0 or more")
        covered = last


def _check_together(extra: Mapping[str, JsonValue]) -> None:
    least, most = extra.get("prompt_lookup_min"), extra.get("prompt_lookup_max")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise _RefusedError(
            f"extra.prompt_lookup_min is {least} and above prompt_lookup_max {most}, and the "
            "engine does not start; lower it"
        )
    given = [key for key in table.SYNTHETIC if extra.get(key) is not None]
    synthetic = extra.get("rejection_sample_method") == "synthetic"
    if "synthetic_acceptance_rate" not in extra and len(given) != int(synthetic):
        raise _RefusedError(
            "extra.rejection_sample_method synthetic goes with exactly one of "
            f"{' and '.join(table.SYNTHETIC)}, and neither with anything else; "
            f"there is {', '.join(given) or 'none'}"
        )


def _written(value: JsonValue) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)


def _nearest(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    current = (k for k in known if not k.endswith("_mtp"))  # those are aliases of mtp
    return f"; it knows {', '.join(sorted(current))}"
