"""A container's command line -> the speculative config that the engine ends up with.

Follows vLLM's own parser, in which a later `--speculative-config` replaces an earlier one whole, a
dotted key makes the JSON value vanish, and `--config=FILE` does nothing at all. What cannot be
understood is a problem in words. It is never read as "off".

One thing no command line shows: a target model in the *speculators* format turns speculation on
by itself.
"""

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import yaml

from specpilot.domain.settings import JsonValue, canonical_json
from specpilot.engines import capabilities as table
from specpilot.engines import legacy
from specpilot.engines.capabilities import Topic
from specpilot.engines.commandline import engine_words, unmangled
from specpilot.engines.flags import Flag, collect
from specpilot.engines.launch import Launch, launch_of
from specpilot.engines.provenance import Given, Shadow, Source, shadows, sources
from specpilot.engines.values import merge, nested, readable_integer, with_underscores
from specpilot.engines.versions import Engine, VersionError, read_version
from specpilot.engines.words import MANGLED, WIRED, CommandLineError, Word, plain

_NOTHING: Mapping[str, str] = MappingProxyType({})
_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What a command line says. Look at `problem` first: with one, the rest says nothing.

    Two are equal when they say the same about speculation, wherever it stands.

    Attributes:
        config: Canonical JSON of the effective speculative config; "" means off.
        wired: The effective value comes from the steered variable, and from nowhere else.
        shadowed_by: The literal flag that wins over the steered variable or fights with it.
        problem: What could not be understood, with the remedy.
        sources: Where each key of `config` comes from.
        shadows: Flags that are given and do not count.
        launch: What the line says beside speculation.
    """

    config: str = ""
    wired: bool = False
    shadowed_by: str = ""
    problem: str = ""
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False)
    shadows: tuple[Shadow, ...] = field(default=(), compare=False)
    launch: Launch = field(default_factory=Launch, compare=False)


def parse(
    argv: Sequence[str],
    *,
    version: str = "",
    env: Mapping[str, str] = _NOTHING,
    files: Mapping[str, str] = _NOTHING,
    variable: str = "",
    unknown: Container[str] = (),
) -> Parsed:
    """Read a command line.

    Args:
        argv: The container's command followed by its args.
        version: The engine's version; "" reads every known flag, as the newest version would.
        env: Variables with known values. A variable from the downward API belongs here with the
            annotation's value, "" when the annotation is absent.
        files: Content by path, for `--config FILE`.
        variable: Name of the steered variable, "" when none is.
        unknown: Names of further variables of the container, with values that are not known.
    """
    try:
        engine = read_version(version)
        words = engine_words(argv, env=env, variable=variable, unknown=unknown)
        reader = _Reader(
            engine=engine,
            any_version=not version,
            value=env.get(variable, ""),
            variable=variable,
        )
        return reader.read(words, files=files)
    except (CommandLineError, VersionError) as error:
        return Parsed(problem=str(error))
    except RecursionError:
        return Parsed(problem="the command line is nested too deeply to be read; flatten it")


@dataclass(slots=True, kw_only=True)
class _Reader:
    engine: Engine
    any_version: bool
    value: str
    variable: str

    def read(self, words: Sequence[Word], *, files: Mapping[str, str]) -> Parsed:
        rest, path, at = _without_config_file(words)
        flags = collect(rest)
        launch = launch_of(rest, whole=path is None)
        if path is not None:
            content = files.get(path)
            if content is not None:
                entries = self._file_words(content, path=path, at=at)
                flags = collect(entries, where=path) + flags
                launch = launch_of([*rest[:1], *entries, *rest[1:]])
            elif not any(f.name == table.CONFIG_FLAG for f in flags):
                raise CommandLineError(
                    f"--config {path} may set speculation and its content is not known; give "
                    f"{table.CONFIG_FLAG} on the command line, which wins over the file"
                )
        given = self._sorted(flags)
        parsed = self._effective(given)
        ignored = tuple(
            Shadow(
                loser=Source(flag=word.text, at=word.at),
                winner=None,
                why="the form with = is ignored: the engine reads --config FILE only",
            )
            for word in rest
            if word.text.startswith("--config=")
        )
        return replace(
            parsed,
            sources=sources(given, parsed.config),
            shadows=(*shadows(given), *ignored),
            launch=launch,
        )

    def _sorted(self, flags: Sequence[Flag]) -> Given:
        given = Given()
        for flag in flags:
            self._check_known(flag)
            if flag.name in table.LEGACY_FLAGS:
                given.legacy.append(flag)
            elif flag.name in table.ALIAS_KEYS:
                given.alias.append(flag)
            elif flag.path:
                given.dotted.append(flag)
            else:
                given.json.append(flag)
        return given

    def _check_known(self, flag: Flag) -> None:
        known = self.any_version or table.is_known(Topic.FLAG, flag.row, self.engine.release)
        if not known:
            raise CommandLineError(
                f"{self.engine} does not know {flag.written} and does not start with it; it exists "
                f"in {table.spans(Topic.FLAG, flag.row)}"
            )
        if flag.value.unknown:
            raise CommandLineError(
                f"the value of {flag.written} contains {flag.value.unknown}, which is not known; "
                "write the value itself, or give the variable a literal value"
            )
        if MANGLED in flag.value.text:
            raise CommandLineError(
                f"the shell takes the quotes of the JSON in $({self.variable}) apart; in a script, "
                f"write {table.CONFIG_FLAG}='$({self.variable})' in single quotes"
            )
        if self.variable and f"$({self.variable})" in flag.value.text:
            raise CommandLineError(
                f"$({self.variable}) stays as it is because the container has no such variable; "
                "add the env entry"
            )

    def _effective(self, given: Given) -> Parsed:
        is_wired = [f.value.text == WIRED for f in given.json]
        config = self._json_or_dotted(given)
        rivals = [*given.dotted, *given.alias, *given.legacy]
        if any(is_wired) and not is_wired[-1]:
            rivals.insert(0, given.json[-1])
        if any(is_wired) and rivals:
            # The two may fight for the same key, and which of them the engine then dislikes
            # depends on the variable's value. What matters is that the variable is not alone.
            try:
                config = self._with_aliases(config, given.alias)
            except CommandLineError:
                config = None
            return Parsed(config=_canonical(config), shadowed_by=self._shown(rivals[0]))
        config = self._with_aliases(config, given.alias)
        if config is None and given.legacy:
            config = self._legacy(given.legacy)
        return Parsed(config=_canonical(config), wired=any(is_wired))

    def _json_or_dotted(self, given: Given) -> dict[str, JsonValue] | None:
        # The engine decodes every value, also those that a later one replaces.
        values = [(flag, self._json(flag)) for flag in given.json]
        if given.dotted:
            merged: dict[str, JsonValue] = {}
            for flag in given.dotted:
                merge(merged, nested(flag.path, self._dotted_value(flag)))
            return merged
        if not values:
            return None
        flag, value = values[-1]
        if value is None or isinstance(value, dict):
            return value
        raise CommandLineError(
            f"{flag.written} {_short(json.dumps(value))} is no object; write {{...}}"
        )

    def _json(self, flag: Flag) -> JsonValue:
        text = unmangled(flag.value.text, value=self.value)
        if text in {"", "None"}:
            if self.engine.release in table.behaviour.EMPTY_IS_OFF.span:
                return None
            raise CommandLineError(
                f"{self.engine} does not start with {flag.written} {text!r}; write null, or leave "
                "the flag out"
            )
        try:
            value: JsonValue = json.loads(text)
        except json.JSONDecodeError as error:
            raise CommandLineError(
                f"{flag.written} {_short(text)} is not JSON ({error.msg} at character "
                f"{error.pos + 1}); mind the quoting"
            ) from None
        except ValueError as error:  # Python reads no number of thousands of digits
            raise CommandLineError(f"{flag.written} {_short(text)}: {error}") from None
        return value

    def _dotted_value(self, flag: Flag) -> JsonValue:
        text = unmangled(flag.value.text, value=self.value)
        if flag.is_list:
            return list(text.split(","))
        try:
            value: JsonValue = json.loads(text)
        except ValueError:
            readable = self.engine.release in table.behaviour.READABLE_INTEGERS.span
            return readable_integer(text) if readable else text
        return value

    def _with_aliases(
        self, config: dict[str, JsonValue] | None, aliases: Sequence[Flag]
    ) -> dict[str, JsonValue] | None:
        last: dict[str, tuple[Flag, JsonValue]] = {}
        for flag in aliases:
            text = unmangled(flag.value.text, value=self.value)
            if flag.name == "--spec-tokens":
                last[flag.name] = flag, _integer(flag, text)
            else:
                last[flag.name] = flag, None if text in {"", "None"} else text
        for flag, value in last.values():
            key = table.ALIAS_KEYS[flag.name]
            if value is None:
                continue
            config = {} if config is None else config
            if key in config:
                raise CommandLineError(
                    f"{flag.written} and {key} in {table.CONFIG_FLAG} exclude each other, and the "
                    "engine does not start; remove one"
                )
            config[key] = value
        return None if config is None else with_underscores(config)

    def _legacy(self, flags: Sequence[Flag]) -> dict[str, JsonValue]:
        values: dict[str, JsonValue] = {}
        for flag in flags:
            row = table.LEGACY_FLAGS[flag.name]
            if row.kind is table.Kind.SWITCH:
                values[row.key] = True
                continue
            text = unmangled(flag.value.text, value=self.value)
            try:
                values[row.key] = legacy.read(row, text)
            except ValueError:
                raise CommandLineError(
                    f"{flag.written} {_short(text)} is no {row.kind}; write one"
                ) from None
        if "model" not in values:
            if "num_speculative_tokens" in values:
                raise CommandLineError(
                    "--num-speculative-tokens without --speculative-model does not start the "
                    "engine; give both"
                )
            return {}
        return legacy.config_of(values)

    def _file_words(self, content: str, *, path: str, at: int) -> list[Word]:
        """The file's entries as the command line they stand for."""
        if not path.endswith((".yaml", ".yml")):
            raise CommandLineError(f"--config {path}: the engine reads .yaml and .yml only")
        try:
            entries = yaml.safe_load(content)
        except (yaml.YAMLError, ValueError, TypeError) as error:  # 2026-99-99; a list as a key
            raise CommandLineError(f"--config {path} is not YAML: {error}") from None
        if not isinstance(entries, dict):
            raise CommandLineError(f"--config {path} is no mapping; write {{}} for an empty one")
        words: list[Word] = []
        for key, value in entries.items():
            match value:
                case False:
                    continue
                case True:
                    words.append(plain(f"--{key}"))
                case list():
                    words += [plain(f"--{key}"), *(plain(str(v)) for v in value)] if value else []
                case dict():
                    words += [plain(f"--{key}"), plain(self._mapping(value, path=path))]
                case _:
                    words += [plain(f"--{key}"), plain(str(value))]
        return [replace(word, at=at) for word in words]

    def _mapping(self, value: Mapping[str, JsonValue], *, path: str) -> str:
        """A mapping in the file as the word that the engine makes of it."""
        if self.engine.release not in table.behaviour.NESTED_YAML.span:
            return str(value)
        try:
            return json.dumps(value, default=str)
        except (TypeError, ValueError) as error:  # a mapping in itself; a list as a key
            raise CommandLineError(f"--config {path}: {error}") from None

    def _shown(self, flag: Flag) -> str:
        text = _short(unmangled(flag.value.text, value=self.value))
        return f"{flag.written} {text}".rstrip() + (f" in {flag.where}" if flag.where else "")


def _without_config_file(words: Sequence[Word]) -> tuple[list[Word], str | None, int]:
    """Take `--config FILE` out, and say its place; the engine ignores the form with `=`."""
    at = [i for i, w in enumerate(words) if w.text == "--config"]
    if len(at) > 1:
        raise CommandLineError("--config is given more than once, and the engine takes one")
    if not at:
        return list(words), None, -1
    follower = words[at[0] + 1 : at[0] + 2]
    if not follower:
        raise CommandLineError("--config has no file after it; add the file")
    if follower[0].unknown:
        raise CommandLineError(f"--config names {follower[0].unknown}, which is not known")
    return [*words[: at[0]], *words[at[0] + 2 :]], follower[0].text, follower[0].at


def _canonical(config: Mapping[str, JsonValue] | None) -> str:
    if config is None:
        return ""
    try:
        return canonical_json(config)
    except ValueError:
        raise CommandLineError(
            "the speculative config contains NaN or Infinity; write a number"
        ) from None


def _integer(flag: Flag, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CommandLineError(f"{flag.written} {_short(text)} is no whole number") from None


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
