"""What an engine really does with the config that it is given, or why it dies of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from specpilot.domain.settings import JsonValue
from specpilot.engines import capabilities as table
from specpilot.engines.capabilities import Effect, Runtime, Situation, Topic
from specpilot.engines.versions import Engine, read_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What comes of a config.

    Attributes:
        effective: What the engine does of it; None for no speculation.
        faults: Why it does not start with it.
        notes: What is accepted and does nothing, and what is assumed.
    """

    effective: Mapping[str, JsonValue] | None = None
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def judge(
    config: Mapping[str, JsonValue] | None, *, version: str, runtime: Runtime | None = None
) -> Judged:
    """Judge a config.

    Args:
        config: The speculative config; None for none.
        version: The engine's version; "" is read as the newest, and nothing is a fault then.
        runtime: How the engine is run, where that is known.

    Raises:
        VersionError: The version is none that is described.
    """
    engine = read_version(version)
    notes = [engine.note] if engine.note and version else []
    if config is None:
        return Judged(notes=tuple(notes))
    method = config.get("method")
    where = table.situation(engine, method if isinstance(method, str) else "", runtime or Runtime())
    faults = list(_faults(config, engine=engine, where=where)) if version else []
    for key in config:
        row = table.effect(Topic.KEY, key, where)
        if row is not None and row.effect is Effect.IGNORED:
            notes.append(f"{key} does nothing there: {row.why}")
        elif row is not None and row.effect is Effect.HANGS:
            notes.append(f"{key}: {row.why}")
    return Judged(
        effective=None if faults else table.effective(config, where),
        faults=tuple(faults),
        notes=tuple(notes),
    )


def _faults(config: Mapping[str, JsonValue], *, engine: Engine, where: Situation) -> list[str]:
    found: list[str] = []
    legacy = table.is_legacy(engine.release)
    if engine.beyond:
        return found
    for key in config:
        if not legacy and not table.is_known(Topic.KEY, key, engine.release):
            span = table.spans(Topic.KEY, key)
            found.append(f"{engine} has no key {key}" + (f": it exists in {span}" if span else ""))
        told = table.effect(Topic.KEY, key, where)
        if told is not None and told.effect is Effect.FAILS:
            found.append(f"{key}: {told.why}")
    method = config.get("method")
    if not isinstance(method, str):
        return found
    if not table.is_known(Topic.METHOD, method, engine.release):
        span = table.spans(Topic.METHOD, method)
        found.append(
            f"{engine} has no method {method}" + (f": it exists in {span}" if span else "")
        )
        return found
    row = table.effect(Topic.METHOD, method, where)
    if row is not None and row.effect is Effect.FAILS:
        found.append(f"method {method}: {row.why}")
    return found
