"""A setting -> exactly what one engine version is to be told, or why it cannot be told so.

A wrong key stops an engine at start, on every replica that gets it. So whatever the table knows to
be wrong is refused here; what it cannot know (a newer engine, a model that does not exist) is for
the canary to find out.
"""

import json
from dataclasses import dataclass, field
from difflib import get_close_matches

from specpilot.domain.settings import JsonValue, Setting, canonical_json
from specpilot.engines import capabilities as table
from specpilot.engines import legacy
from specpilot.engines.capabilities import Need, Row
from specpilot.engines.versions import Engine, VersionError, read_version

LARGEST_BATCH = 1_000_000
"""End of a schedule's last range: above any `--max-num-seqs`; the engine cuts it to that."""

_OWN_FIELDS = {
    "method": "method",
    "model": "model",
    "num_speculative_tokens": "numSpeculativeTokens",
    "disable_by_batch_size": "disableAboveBatchSize",
}
"""Keys that a setting states with a field of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A setting for one engine version.

    Attributes:
        config: Canonical JSON of the speculative config; "" means off. Look at `refused` first.
        args: What to append to the command line; empty means off.
        refused: Why this version cannot run the setting, with the remedy; "" when it can.
        instead: What is done instead of what was asked, and what is only assumed; "" when the
            setting is rendered as it stands.
    """

    config: str = ""
    args: tuple[str, ...] = ()
    refused: str = ""
    instead: str = ""


class _RefusedError(Exception):
    """The version cannot run the setting."""


@dataclass(slots=True)
class _Notes:
    said: list[str] = field(default_factory=list)

    def add(self, *notes: str) -> None:
        self.said += [n for n in notes if n]

    def __str__(self) -> str:
        return "; ".join(self.said)


def render(setting: Setting, *, version: str) -> Rendered:
    """Render a setting for an engine version.

    Args:
        setting: What the user wants.
        version: The engine's version; "" when it is not known, which is read as the newest.
    """
    if setting.is_off:
        return Rendered()
    try:
        engine = read_version(version)
        notes = _Notes([engine.note] if engine.note else [])
        config = _config(setting, engine=engine, notes=notes)
        args = _args(config, engine=engine)
    except (_RefusedError, VersionError, legacy.NotExpressibleError) as error:
        return Rendered(refused=f"setting {setting.name}: {error}")
    return Rendered(
        config=canonical_json(legacy.visible(config) if _is_legacy(engine) else config),
        args=args,
        instead=str(notes),
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
        return read_version(version).release in table.EMPTY_IS_OFF
    except VersionError:
        return False


def _is_legacy(engine: Engine) -> bool:
    return engine.release not in table.FLAGS[table.CONFIG_FLAG].span


def _args(config: dict[str, JsonValue], *, engine: Engine) -> tuple[str, ...]:
    if _is_legacy(engine):
        return legacy.render(config, engine=engine)
    return (f"{table.CONFIG_FLAG}={canonical_json(config)}",)


def _config(setting: Setting, *, engine: Engine, notes: _Notes) -> dict[str, JsonValue]:
    _check_method(setting, engine=engine, notes=notes)
    _check_extra(setting, engine=engine, notes=notes)
    config: dict[str, JsonValue] = {"method": setting.method, **setting.extra}
    if setting.model is not None:
        config["model"] = setting.model
    if setting.num_speculative_tokens is not None:
        config["num_speculative_tokens"] = setting.num_speculative_tokens
    if setting.disable_above_batch_size is not None:
        config |= _batch_limit(
            setting, limit=setting.disable_above_batch_size, engine=engine, notes=notes
        )
    try:
        canonical_json(config)
    except (TypeError, ValueError) as error:
        raise _RefusedError(
            f"extra cannot be written as JSON ({error}); use plain values"
        ) from None
    return config


def _check_method(setting: Setting, *, engine: Engine, notes: _Notes) -> None:
    name = setting.method or ""
    method = table.METHODS.get(name)
    if method is None:
        if engine.beyond:
            notes.add(f"method {name} is not described and is passed on; the canary will tell")
            return
        known = [m.name for m in table.METHODS.values() if engine.release in m.span]
        raise _RefusedError(f"{engine} has no method {name!r}{_nearest(name, known)}")
    _check_span(method, what="method", engine=engine)
    if method.model is Need.REQUIRED and not setting.model:
        raise _RefusedError(f"method {name} needs a model; add model: with the draft to load")
    if method.model is Need.NONE and setting.model:
        raise _RefusedError(f"method {name} drafts without a model; remove model: {setting.model}")
    depth = setting.num_speculative_tokens
    if depth is None and method.depth is Need.REQUIRED:
        raise _RefusedError(f"method {name} needs a depth; add numSpeculativeTokens, such as 3")
    if depth is not None and depth < 1:
        raise _RefusedError(
            f"numSpeculativeTokens is {depth} and the engine does not start below 1; "
            'use the setting "off" for no speculation'
        )


def _check_span(row: Row, *, what: str, engine: Engine) -> None:
    if engine.release not in row.span:
        raise _RefusedError(f"{engine} has no {what} {row.name}: it exists in {row.span}")
    for caveat in row.refused:
        if engine.release in caveat.span:
            raise _RefusedError(
                f"{engine} does not start with {what} {row.name}: {caveat.why}; "
                f"use a version outside {caveat.span}"
            )


def _check_extra(setting: Setting, *, engine: Engine, notes: _Notes) -> None:
    for key in setting.extra:
        if key in _OWN_FIELDS:
            raise _RefusedError(f"extra.{key}: state it as {_OWN_FIELDS[key]} instead")
        if _is_legacy(engine):
            continue  # what has no flag there is refused when the flags are written
        row = table.KEYS.get(key)
        if row is not None:
            _check_span(row, what="key", engine=engine)
        elif engine.beyond:
            notes.add(f"extra.{key} is not described and is passed on; the canary will tell")
        else:
            known = [k.name for k in table.KEYS.values() if engine.release in k.span]
            raise _RefusedError(
                f"extra.{key}: {engine} has no such key and would not start{_nearest(key, known)}"
            )


def _batch_limit(
    setting: Setting, *, limit: int, engine: Engine, notes: _Notes
) -> dict[str, JsonValue]:
    """Render "not above this batch size" in the way this version has, or say who enforces it."""
    if limit < 1:
        raise _RefusedError(f"disableAboveBatchSize is {limit}; use 1 or more, or leave it out")
    if _is_legacy(engine):
        return {"disable_by_batch_size": limit + 1}  # it stops *at* that many running requests
    if engine.release in table.V0_BATCH_LIMIT:
        v1 = table.V1_METHODS_BEFORE_0_10.get(setting.method or "")
        if v1 is not None and engine.release in v1:
            notes.add(
                "disableAboveBatchSize is rendered as disable_by_batch_size, which only the V0 "
                f"engine of {engine} reads; unless VLLM_USE_V1=0 is set, rules must enforce it "
                "(batch-guard)"
            )
        return {"disable_by_batch_size": limit + 1}
    row = table.KEYS[table.SCHEDULE_KEY]
    if engine.release not in row.span:
        notes.add(
            f"disableAboveBatchSize is not rendered: {engine} has no batch limit "
            f"(it returns as a schedule in {row.span}); rules must enforce it (batch-guard)"
        )
        return {}
    if table.SCHEDULE_KEY in setting.extra:
        raise _RefusedError(
            f"disableAboveBatchSize and extra.{table.SCHEDULE_KEY} say the same; remove one"
        )
    depth, method = setting.num_speculative_tokens, setting.method
    if method not in table.SCHEDULE_METHODS or depth is None:
        lacks = f"method {method} follows no schedule" if depth else "numSpeculativeTokens is unset"
        notes.add(
            f"disableAboveBatchSize is not rendered: {lacks}; rules must enforce it (batch-guard)"
        )
        return {}
    notes.add(*(c.why for c in table.SCHEDULE_CAVEATS if engine.release in c.span))
    return {table.SCHEDULE_KEY: [[1, limit, depth], [limit + 1, LARGEST_BATCH, 0]]}


def _nearest(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    current = (k for k in known if not k.endswith("_mtp"))  # those are aliases of mtp
    return f"; it knows {', '.join(sorted(current))}"
