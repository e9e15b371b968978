"""Where the effective value of each key stands, and which flags are given and do not count."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from specpilot.engines import capabilities as table
from specpilot.engines.flags import Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a value comes from.

    Attributes:
        flag: The flag, as it is written.
        at: Place of its value in the container's command line; a script is one place.
        where: The file it stands in, "" for the command line.
        variables: Names of the variables that its value is made of.
    """

    flag: str
    at: int = -1
    where: str = ""
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """A flag that is given and does not count.

    Attributes:
        loser: The flag.
        winner: The one that counts in its place; None when nothing does.
        why: The rule by which it is so.
    """

    loser: Source
    winner: Source | None
    why: str


@dataclass(slots=True)
class Given:
    """The speculation flags by kind, as the engine's parser sorts them."""

    json: list[Flag] = field(default_factory=list)
    dotted: list[Flag] = field(default_factory=list)
    alias: list[Flag] = field(default_factory=list)
    legacy: list[Flag] = field(default_factory=list)


def _source(flag: Flag) -> Source:
    value = flag.value
    return Source(flag=flag.written, at=value.at, where=flag.where, variables=value.variables)


def sources(given: Given, config: str) -> dict[str, Source]:
    """Where each key of the effective config comes from."""
    keys = json.loads(config) if config else {}
    found: dict[str, Source] = {}
    if given.dotted:
        found |= {flag.path[0].replace("-", "_"): _source(flag) for flag in given.dotted}
    elif given.json:
        found |= dict.fromkeys(keys, _source(given.json[-1]))
    elif not given.alias:
        found |= {table.LEGACY_FLAGS[flag.name].key: _source(flag) for flag in given.legacy}
        if keys.get("method") and "model" in found:
            found["method"] = found.pop("model")
    found |= {table.ALIAS_KEYS[flag.name]: _source(flag) for flag in given.alias}
    return {key: source for key, source in found.items() if key in keys}


def shadows(given: Given) -> list[Shadow]:
    """The flags that do not count, and the rule."""
    found: list[Shadow] = []

    def lose(losers: Sequence[Flag], winner: Flag, why: str) -> None:
        found.extend(
            Shadow(
                loser=_source(loser),
                winner=_source(winner),
                why="the command line wins over the file"
                if loser.where and not winner.where
                else why,
            )
            for loser in losers
        )

    if given.dotted:
        lose(given.json, given.dotted[-1], "a dotted key makes the JSON value vanish")
    elif given.json:
        lose(given.json[:-1], given.json[-1], "the last one wins, whole: nothing is merged")
    for flags in (given.alias, given.legacy):
        last = {flag.name: flag for flag in flags}
        for flag in flags:
            if last[flag.name] is not flag:
                lose([flag], last[flag.name], "the last one wins")
    if given.json or given.dotted or given.alias:
        winner = (given.json or given.dotted or given.alias)[-1]
        lose(given.legacy, winner, f"{winner.written} wins over the older flags")
    return found
