"""The flags from before `--speculative-config`: one flag per key, and no word for the method.

Removed in 0.8.3; a fleet that still runs them must be read and steered all the same.
"""

from collections.abc import Mapping

from specpilot.domain.settings import JsonValue
from specpilot.engines import capabilities as table
from specpilot.engines.capabilities import Flag, Kind, Topic
from specpilot.engines.versions import Engine


class NotExpressibleError(ValueError):
    """These flags cannot say it."""


_BY_KEY = {flag.key: flag for flag in table.LEGACY_FLAGS.values()}


def visible(config: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The part of a config that these flags tell the engine: not the method of a draft model."""
    return {
        key: _as_read(key, value)
        for key, value in config.items()
        if (key != "method" or value == "ngram") and not _silent(key, value)
    }


def _silent(key: str, value: JsonValue) -> bool:
    """A switch that is not set is not on the command line."""
    flag = _BY_KEY.get(key)
    return flag is not None and flag.kind is Kind.SWITCH and value is False


def _as_read(key: str, value: JsonValue) -> JsonValue:
    """The value as the engine reads it back: 1 is 1.0 where the flag takes a number."""
    flag = _BY_KEY.get(key)
    if flag is None or flag.kind is not Kind.NUMBER or isinstance(value, bool):
        return value
    return float(value) if isinstance(value, int) else value


def render(config: Mapping[str, JsonValue], *, engine: Engine) -> tuple[str, ...]:
    """Write the flags.

    Raises:
        NotExpressibleError: A key has no flag in this version, or a value does not fit its flag.
    """
    ngram = config.get("method") == "ngram"
    if ngram and "prompt_lookup_max" not in config:
        raise NotExpressibleError(
            f"{engine} needs prompt_lookup_max for ngram; add extra: {{prompt_lookup_max: 4}}"
        )
    if not ngram and config.get("model") == table.LEGACY_NGRAM:
        raise NotExpressibleError(
            f"{engine} reads model {table.LEGACY_NGRAM} as n-gram drafts; use method: ngram"
        )
    args: list[str] = []
    if engine.release in table.behaviour.NEEDS_BLOCK_MANAGER_V2.span:
        args.append("--use-v2-block-manager")
    if ngram:
        args += ["--speculative-model", table.LEGACY_NGRAM]
    for key, value in sorted(visible(config).items()):
        if key == "method":
            continue
        flag = _BY_KEY.get(key)
        if flag is None or not table.is_known(Topic.FLAG, flag.name, engine.release):
            raise NotExpressibleError(f"{engine} has no flag for {key}; remove it")
        args.append(flag.name)
        if flag.kind is not Kind.SWITCH:
            args.append(_text(flag, value))
        elif value is not True:
            raise NotExpressibleError(f"{key} is {value!r}; write true or false")
    return tuple(args)


def _text(flag: Flag, value: JsonValue) -> str:
    wrong = NotExpressibleError(f"{flag.key} is {value!r}; {flag.name} takes a {flag.kind}")
    match flag.kind:
        case Kind.BOOLEAN if isinstance(value, bool):
            return str(value).lower()
        case Kind.INTEGER if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        case Kind.NUMBER if isinstance(value, int | float) and not isinstance(value, bool):
            return repr(float(value))
        case Kind.TEXT if isinstance(value, str) and value and not value.startswith("-"):
            return value
        case _:
            raise wrong


def read(flag: Flag, text: str) -> JsonValue:
    """Read a flag's value.

    Raises:
        ValueError: It is not of the flag's type.
    """
    match flag.kind:
        case Kind.INTEGER:
            return int(text)
        case Kind.NUMBER:
            return float(text)
        case Kind.BOOLEAN if text.lower() in {"true", "false"}:
            return text.lower() == "true"
        case Kind.BOOLEAN:
            raise ValueError(f"{text!r} is neither true nor false")
        case _:
            return text


def config_of(given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Make a speculative config of the values of these flags, by key."""
    config = dict(given)
    if config.get("model") == table.LEGACY_NGRAM:
        config["method"] = "ngram"
        del config["model"]
    return config
