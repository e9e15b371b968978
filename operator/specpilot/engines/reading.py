"""A speculative config -> the setting that says it: what a policy would have to write."""

from collections.abc import Mapping

from specpilot.domain.settings import JsonValue, Setting
from specpilot.engines import capabilities as table
from specpilot.engines.limits import LARGEST_BATCH


def setting_of(config: Mapping[str, JsonValue], *, name: str) -> Setting | None:
    """Return the setting of a config.

    Args:
        config: The speculative config, as parsed from a command line.
        name: What to call the setting.

    Returns:
        None where no setting says it: the method is not stated (the engine infers it from the
        draft model), or a value is of a type that no setting has.
    """
    rest = dict(config)
    method, model = rest.pop("method", None), rest.pop("model", None)
    depth, limit = rest.pop("num_speculative_tokens", None), rest.pop(table.LIMIT_KEY, None)
    if not isinstance(method, str) or not method:
        return None
    if not isinstance(model, str | None) or not _whole(depth) or not _whole(limit):
        return None
    if limit is not None and isinstance(limit, int):
        limit -= 1  # the engine stops *at* that many running requests
    elif (scheduled := _limit_of(rest.get(table.SCHEDULE_KEY), depth=depth)) is not None:
        limit = scheduled
        del rest[table.SCHEDULE_KEY]
    return Setting(
        name=name,
        method=method,
        model=model,
        num_speculative_tokens=depth if isinstance(depth, int) else None,
        disable_above_batch_size=limit if isinstance(limit, int) else None,
        extra=rest,
    )


def _whole(value: JsonValue) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _limit_of(schedule: JsonValue, *, depth: JsonValue) -> int | None:
    """The batch limit that a schedule of this shape, and of no other, was rendered from."""
    match schedule:
        case [[1, int() as last, full], [first, end, 0]] if (
            full == depth and first == last + 1 and end == LARGEST_BATCH
        ):
            return last
        case _:
            return None
