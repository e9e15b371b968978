"""How "not above this batch size" is said to a release, or why rules have to enforce it.

A user states the intent once. Depending on release, engine, runner and method there is a flag, a
key or a schedule for it, one that is accepted and does nothing, or none at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from specpilot.domain.settings import JsonValue, Setting
from specpilot.engines import capabilities as table
from specpilot.engines.capabilities import Effect, On, Runtime, Situation, Topic
from specpilot.engines.versions import Engine

LARGEST_BATCH = 1_000_000
"""End of a schedule's last range: above any `--max-num-seqs`; the engine cuts it to that."""

_RULES = "rules must enforce it (batch-guard)"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """A batch limit for one engine.

    Attributes:
        keys: What to add to the speculative config.
        by_rules: The engine does not keep to it: rules must.
        note: What is done instead of what was asked, or on which assumption; "" for nothing.
    """

    keys: Mapping[str, JsonValue] = field(default_factory=dict)
    by_rules: bool = False
    note: str = ""


def batch_limit(
    setting: Setting, *, limit: int, engine: Engine, runtime: Runtime, where: Situation
) -> BatchLimit:
    """Say a limit in the way that this engine has.

    Args:
        setting: The setting, whose depth a schedule states.
        limit: The largest batch with which to speculate, 1 or more.
        engine: The release.
        runtime: What is known of how it is run: what is not is written, in case it is read.
        where: The same with the release's defaults in the gaps.
    """
    if where.release in table.behaviour.V0_ENGINE.span:
        return _count(limit, engine=engine, runtime=runtime, where=where)
    return _schedule(setting, limit=limit, engine=engine, runtime=runtime, where=where)


def _count(limit: int, *, engine: Engine, runtime: Runtime, where: Situation) -> BatchLimit:
    """The flag or the key of the V0 engine."""
    legacy = table.is_legacy(where.release)
    name = table.LIMIT_FLAG if legacy else table.LIMIT_KEY
    topic = Topic.FLAG if legacy else Topic.KEY
    row = table.effect(topic, name, where)
    if row is None:
        return BatchLimit(
            by_rules=True,
            note=f"disableAboveBatchSize is not rendered: {engine} has no batch limit "
            f"(it exists in {table.spans(topic, name)}); {_RULES}",
        )
    keys: dict[str, JsonValue] = {table.LIMIT_KEY: limit + 1}  # it stops *at* that many running
    if row.effect is Effect.WORKS:
        return BatchLimit(keys=keys)
    if runtime.engine is On.V1:
        return BatchLimit(
            by_rules=True,
            note=f"disableAboveBatchSize is not rendered: {row.why} in {engine}; {_RULES}",
        )
    return BatchLimit(
        keys=keys,
        by_rules=True,
        note=f"disableAboveBatchSize is rendered as {name}, which only the V0 engine of {engine} "
        f"reads; unless VLLM_USE_V1=0 is set, {_RULES}",
    )


def _schedule(
    setting: Setting, *, limit: int, engine: Engine, runtime: Runtime, where: Situation
) -> BatchLimit:
    """The schedule of later releases."""
    row = table.effect(Topic.KEY, table.SCHEDULE_KEY, where)
    depth = setting.num_speculative_tokens
    if row is None:
        return BatchLimit(
            by_rules=True,
            note=f"disableAboveBatchSize is not rendered: {engine} has no batch limit (it returns "
            f"as a schedule in {table.spans(Topic.KEY, table.SCHEDULE_KEY)}); {_RULES}",
        )
    if depth is None:
        return BatchLimit(
            by_rules=True,
            note=f"disableAboveBatchSize is not rendered: numSpeculativeTokens is unset; {_RULES}",
        )
    keys: dict[str, JsonValue] = {
        table.SCHEDULE_KEY: [[1, limit, depth], [limit + 1, LARGEST_BATCH, 0]]
    }
    if row.effect is Effect.WORKS:
        assumed = (
            "a schedule is followed with --data-parallel-size 1 only, which is assumed"
            if runtime.data_parallel is None
            else ""
        )
        return BatchLimit(keys=keys, note=assumed)
    if runtime.runner is None and row.on is On.MRV2:
        return BatchLimit(
            keys=keys,
            by_rules=True,
            note=f"disableAboveBatchSize is rendered as {table.SCHEDULE_KEY}, which Model Runner "
            f"V1 follows; but {row.why}, and it is the default of {engine}: unless "
            f"VLLM_USE_V2_MODEL_RUNNER=0 is set, {_RULES}",
        )
    return BatchLimit(
        by_rules=True, note=f"disableAboveBatchSize is not rendered: {row.why}; {_RULES}"
    )
