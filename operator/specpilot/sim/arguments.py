"""vLLM's command line, accepted, ignored or refused as the simulated release does.

Built on argparse because vLLM's is: the errors and exit code 2 of an unknown flag come out alike.
What vLLM adds on top is done here before argparse sees the words: ``--config FILE`` (two words;
``--config=FILE`` is silently ignored, as it is there), underscores for dashes, and dotted keys,
which are gathered into one JSON value placed *last*, so that they win over any JSON given whole.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NoReturn

from packaging.version import Version

from specpilot.sim import catalogue, flags, speculation
from specpilot.sim.configfile import expand_config_file
from specpilot.sim.flags import Arity, Flag
from specpilot.sim.launch import Generation, LaunchConfig, LaunchRefused, SimOptions
from specpilot.sim.refusals import no_mapping, wrong_field
from specpilot.sim.simoptions import add_sim_options, apply_condition, read_sim_options
from specpilot.sim.versions import DEFAULT_VERSION, parse_version

_SPEC_CONFIG: Final = "--speculative-config"


class _Parser(argparse.ArgumentParser):
    """Raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise LaunchRefused(f"usage: {self.usage}\n{self.prog}: error: {message}", code=2)


def parse(argv: Sequence[str], *, environment: Mapping[str, str]) -> LaunchConfig:
    """Read the words after ``vllm`` (or after ``python -m vllm.entrypoints.openai.api_server``).

    Args:
        argv: ``serve MODEL ...``, or ``--model MODEL ...`` as the older entry point takes.
        environment: ``VLLM_USE_V1``, ``VLLM_SERVER_DEV_MODE`` and the simulator's own
            ``SPECPILOT_SIM_VERSION`` and ``SPECPILOT_SIM_ARGS`` (options placed before ``argv``).

    Raises:
        LaunchRefused: the release would not start so.
        SystemExit: ``--help`` was asked for and given.
    """
    words = list(argv)
    serve = words[:1] == ["serve"]
    if serve:
        del words[0]
    try:
        words = [*shlex.split(environment.get("SPECPILOT_SIM_ARGS", "")), *words]
    except ValueError as error:
        raise LaunchRefused(f"SPECPILOT_SIM_ARGS: {error}", code=2) from None
    version = _version(words, environment=environment)
    words = expand_config_file(words, nested=version in catalogue.NESTED_YAML)
    words = _gather_dotted(
        [_dashes(word) for word in words], known=version in catalogue.DOTTED_KEYS
    )
    parser = _build_parser(version, serve=serve)
    namespace, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return _assemble(namespace, version=version, environment=environment)


def _version(words: Sequence[str], *, environment: Mapping[str, str]) -> Version:
    """Find the release before anything else: which flags exist depends on it."""
    text = environment.get("SPECPILOT_SIM_VERSION", DEFAULT_VERSION)
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == "--sim-version":
            text = value if equals else (words[index + 1] if index + 1 < len(words) else "")
    try:
        return parse_version(text)
    except ValueError as error:
        raise LaunchRefused(str(error), code=2) from None


def _dashes(word: str) -> str:
    """Write ``--max_num_seqs`` as ``--max-num-seqs``; values and dotted keys stay as they are."""
    match = re.match(r"--[^.=]*", word)
    return word if match is None else match[0].replace("_", "-") + word[match.end() :]


def _gather_dotted(words: Sequence[str], *, known: bool) -> list[str]:
    """Gather ``--flag.key value`` words into one ``--flag JSON`` at the end."""
    if not known:
        return list(words)
    kept: list[str] = []
    gathered: dict[str, dict[str, Any]] = {}
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        name, equals, text = word.partition("=")
        if not name.startswith("-") or "." not in name or _is_number(name):
            kept.append(word)
            continue
        if not equals:
            if position == len(words):
                raise LaunchRefused(f"error: argument {name}: expected one argument", code=2)
            text = words[position]
            position += 1
        flag, *keys = name.split(".")
        node = gathered.setdefault(flag, {})
        for key in keys[:-1]:
            below = node.setdefault(key, {})
            if not isinstance(below, dict):
                below = node[key] = {}
            node = below
        node[keys[-1]] = _json_or_text(text)
    for flag, value in gathered.items():
        kept += [flag, json.dumps(value)]
    return kept


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read_json(version: Version) -> Callable[[str], Any]:
    """Make the converter of ``--speculative-config``; argparse names it in its errors."""

    def loads(text: str) -> Any:
        wrapped = version in catalogue.EMPTY_MEANS_NONE
        if wrapped and text in ("", "None"):
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            if wrapped:
                raise argparse.ArgumentTypeError(
                    f"Value {text} cannot be converted to {json.loads}."
                ) from None
            raise ValueError(text) from None

    return loads


def human_readable_int(text: str) -> int:
    """Read an integer, or a human one such as ``8k`` or ``32K``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgKMG])", text)
    if match is None:
        return int(text)
    unit = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}[match[2]]
    try:
        return int(float(match[1]) * unit)
    except OverflowError:
        raise ValueError("too large") from None


@lru_cache(maxsize=64)
def _build_parser(version: Version, *, serve: bool) -> _Parser:
    parser = _Parser(
        prog="vllm serve" if serve else "api_server.py",
        usage="vllm serve [model_tag] [options]" if serve else "api_server.py [options]",
        add_help=True,
    )
    if serve:
        parser.add_argument("model_tag", nargs="?", default=None)
    parser.add_argument("--model", default=None)
    parser.add_argument("--config", default=None)
    for flag in flags.FLAGS:
        if version in flag.span:
            _add_flag(parser, flag, negated=version in flags.NEGATED_SWITCHES)
    if version in catalogue.LEGACY_FLAGS:
        for flag in flags.LEGACY_SPECULATION:
            _add_flag(parser, flag, negated=False)
    if version in catalogue.CONFIG_FLAG:
        names = ["-sc"] if version in catalogue.SHORT_FLAG else []
        parser.add_argument(_SPEC_CONFIG, *names, type=_read_json(version), default=None)
    if version in catalogue.SPEC_FLAGS:
        parser.add_argument("--spec-method", default=None)
        parser.add_argument("--spec-model", default=None)
        parser.add_argument("--spec-tokens", type=int, default=None)
    add_sim_options(parser)
    return parser


def _add_flag(parser: argparse.ArgumentParser, flag: Flag, *, negated: bool) -> None:
    names = [f"--{flag.name}"]
    if flag.name in flags.SHORT_NAMES:
        names.append(flags.SHORT_NAMES[flag.name])
    match flag.arity:
        case Arity.SWITCH:
            both = negated or flag.name == "enable-prefix-caching"
            action: Any = argparse.BooleanOptionalAction if both else "store_true"
            parser.add_argument(*names, action=action, default=None)
        case Arity.INTEGER:
            parser.add_argument(*names, type=int, default=None)
        case Arity.HUMAN_INTEGER:
            parser.add_argument(*names, type=human_readable_int, default=None)
        case Arity.FLOAT:
            parser.add_argument(*names, type=float, default=None)
        case Arity.MANY:
            parser.add_argument(*names, nargs="*", default=None)
        case Arity.VALUE:
            parser.add_argument(*names, default=None)


def _speculative_keys(namespace: argparse.Namespace) -> dict[str, object] | None:
    """Merge the ways to state speculation into the keys of one config; ``None`` is off."""
    given = getattr(namespace, "speculative_config", None)
    if given is not None and not isinstance(given, dict):
        raise no_mapping(given)
    keys: dict[str, object] = dict(given or {})
    for flag, key in (
        ("spec_method", "method"),
        ("spec_model", "model"),
        ("spec_tokens", "num_speculative_tokens"),
    ):
        value = getattr(namespace, flag, None)
        if value is None:
            continue
        if keys.get(key) is not None:
            raise LaunchRefused(
                f"ValueError: --{flag.replace('_', '-')} and --speculative-config key {key!r} "
                "are mutually exclusive."
            )
        keys[key] = value
    legacy = {
        "model": "speculative_model",
        "num_speculative_tokens": "num_speculative_tokens",
        "disable_by_batch_size": "speculative_disable_by_batch_size",
        "draft_tensor_parallel_size": "speculative_draft_tensor_parallel_size",
        "max_model_len": "speculative_max_model_len",
        "prompt_lookup_max": "ngram_prompt_lookup_max",
        "prompt_lookup_min": "ngram_prompt_lookup_min",
    }
    started = ("speculative_model", "num_speculative_tokens")
    if given is None and any(getattr(namespace, flag, None) is not None for flag in started):
        for key, flag in legacy.items():
            value = getattr(namespace, flag, None)
            if value is not None:
                keys[key] = value
    if not keys and given is None:
        return None
    return keys


def _assemble(
    namespace: argparse.Namespace, *, version: Version, environment: Mapping[str, str]
) -> LaunchConfig:
    def integer(name: str, *, default: int | None = None) -> int:
        bounded = flags.BOUNDED[name]
        value = getattr(namespace, name, None)
        if value is None:
            return bounded.default if default is None else default
        if value < bounded.least:
            raise wrong_field(
                name,
                value,
                reason=f"Input should be greater than or equal to {bounded.least}",
                kind="greater_than_equal",
                owner=bounded.owner,
                version=version,
            )
        return int(value)

    model = getattr(namespace, "model_tag", None) or namespace.model
    if not model:
        raise LaunchRefused("error: the following arguments are required: model_tag", code=2)
    try:
        sim: SimOptions = read_sim_options(namespace)
    except ValueError as error:
        raise LaunchRefused(f"error: {error}", code=2) from None
    parallel = integer("data_parallel_size")
    v1 = environment.get("VLLM_USE_V1")
    wants_v0, wants_v1 = v1 == "0", v1 not in (None, "", "0")
    keys = _speculative_keys(namespace)
    resolved = None
    warnings: tuple[str, ...] = ()
    generation: Generation = speculation.choose_generation(
        version=version, wants_v0=wants_v0, wants_v1=wants_v1, method=None
    )
    if keys is not None:
        resolved, generation, warnings = speculation.resolve(
            keys,
            version=version,
            data_parallel_size=parallel,
            runner_v2=namespace.sim_model_runner == "v2",
            wants_v0=wants_v0,
            wants_v1=wants_v1,
        )
    sim = apply_condition(
        sim,
        method=None if resolved is None else resolved.method,
        fault_if=namespace.sim_fault_if_method,
        crash_if=namespace.sim_crash_if_method,
    )
    override = getattr(namespace, "num_gpu_blocks_override", None)
    return LaunchConfig(
        version=version,
        model=model,
        generation=generation,
        served_model_names=tuple(namespace.served_model_name or ()),
        host=namespace.host or "0.0.0.0",  # noqa: S104 -- vLLM's own default
        port=integer("port"),
        max_model_len=integer("max_model_len"),
        max_num_seqs=integer("max_num_seqs"),
        max_num_batched_tokens=integer("max_num_batched_tokens"),
        block_size=integer("block_size"),
        num_gpu_blocks=None if override is None else integer("num_gpu_blocks_override"),
        data_parallel_size=parallel,
        api_server_count=integer("api_server_count", default=parallel),
        prefix_caching=namespace.enable_prefix_caching is not False,
        log_stats=not namespace.disable_log_stats,
        shutdown_timeout=float(integer("shutdown_timeout")),
        developer_mode=environment.get("VLLM_SERVER_DEV_MODE") == "1",
        speculation=resolved,
        warnings=warnings,
        sim=sim,
    )
