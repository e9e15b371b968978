"""From the keys of a speculative config to what the engine does, or to the error it dies of.

vLLM decides this in ``SpeculativeConfig``: a key that it does not know is a failed start, never
ignored. Some keys that it knows do nothing in some releases; those are dropped here, because an
operator must be able to see that they do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from packaging.version import Version

from specpilot.sim import catalogue
from specpilot.sim.catalogue import Kind
from specpilot.sim.launch import Generation, LaunchRefused, Speculation
from specpilot.sim.refusals import UNEXPECTED, wrong_field, wrong_together
from specpilot.sim.versions import Span

_WITHOUT_MODEL: Final = frozenset(
    {"ngram", "ngram_gpu", "suffix", "mtp", "dspark", "extract_hidden_states"}
)
_SUFFIX_TREE_DEPTH: Final = 24
_NO_DEPTH: Final = (
    "num_speculative_tokens must be provided with speculative model unless the draft model config "
    "contains an n_predict parameter."
)
_NO_MODEL: Final = "num_speculative_tokens was provided but without speculative model."


_OWNER: Final = "SpeculativeConfig"


def _as_int(value: object) -> int | None:
    """Convert as pydantic does by default: ``4``, ``4.0`` and ``"4"`` are four."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        try:
            return int(value.strip())
        except ValueError:
            return None
    return None


def _as_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type] # the conversion is the check
    except (TypeError, ValueError, OverflowError):
        return False
    return True


_LEAST: Final[dict[Kind, tuple[int, str, str]]] = {
    Kind.POSITIVE: (1, "Input should be greater than 0", "greater_than"),
    Kind.ONE_OR_MORE: (
        1,
        "Input should be greater than or equal to 1",
        "greater_than_equal",
    ),
}
"""Least value of the bounded integers, with pydantic's words for less."""


def _problem(kind: Kind, value: object) -> tuple[str, str] | None:
    """Return why a value does not fit its kind, with pydantic's name of the error."""
    if kind in (Kind.INTEGER, *_LEAST):
        number = _as_int(value)
        if number is None:
            return "Input should be a valid integer", "int_parsing"
        least, reason, name = _LEAST.get(kind, (number, "", ""))
        if number < least:
            return reason, name
    elif kind is Kind.FLOAT and not _as_number(value):
        return "Input should be a valid number", "float_parsing"
    elif kind is Kind.BOOL and value not in (True, False, 0, 1, "true", "false", "True", "False"):
        return "Input should be a valid boolean", "bool_parsing"
    elif kind is Kind.TEXT and not isinstance(value, str):
        return "Input should be a valid string", "string_type"
    elif kind in (Kind.RATES, Kind.SCHEDULE) and not isinstance(value, list):
        return "Input should be a valid list", "list_type"
    elif kind is Kind.SCHEDULE and _schedule_rows(value) is None:
        return "Input should be rows of three integers", "tuple_type"
    return None


def check_fields(raw: Mapping[str, object], *, version: Version) -> None:
    """Refuse unknown keys and values of the wrong type.

    Raises:
        LaunchRefused: as the release words it, exit code 1.
    """

    def refuse(key: str, value: object, reason: str, kind: str) -> LaunchRefused:
        return wrong_field(key, value, reason=reason, kind=kind, owner=_OWNER, version=version)

    for key, value in raw.items():
        field = catalogue.FIELDS.get(key)
        if field is None or version not in field.span:
            raise refuse(key, value, "Unexpected keyword argument", UNEXPECTED)
        if value is None:
            continue
        problem = _problem(field.kind, value)
        if problem is not None:
            raise refuse(key, value, *problem)
        choices = catalogue.CHOICES.get(key)
        if choices is not None and (value not in choices or version not in choices[str(value)]):
            raise refuse(key, value, _one_of(choices, version=version), "literal_error")


def _one_of(choices: Mapping[str, Span], *, version: Version) -> str:
    words = ", ".join(repr(name) for name, known in choices.items() if version in known)
    return f"Input should be {words}"


def _method(raw: Mapping[str, object], *, version: Version) -> str:
    """Find the method, as vLLM infers it when only a model is given."""
    given = raw.get("method")
    model = str(raw.get("model") or "")
    if isinstance(given, str):
        method = given
    elif model in ("ngram", "[ngram]"):
        method = "ngram"
    elif not model:
        message = _NO_DEPTH if raw.get("num_speculative_tokens") is None else _NO_MODEL
        raise wrong_together(message, owner=_OWNER, version=version)
    else:
        named = model.lower()
        hints = ("eagle3", "eagle", "medusa", "mlp_speculator")
        method = next((hint for hint in hints if hint in named), "draft_model")
    known = catalogue.METHODS.get(method)
    if known is None or version not in known:
        raise wrong_field(
            "method",
            method,
            reason=_one_of(catalogue.METHODS, version=version),
            kind="literal_error",
            owner=_OWNER,
            version=version,
        )
    if method == "draft_model" and version in catalogue.DRAFT_MODEL_REFUSED:
        raise LaunchRefused(
            "NotImplementedError: Speculative decoding with draft model is not supported yet. "
            "Please consider using other speculative decoding methods such as ngram, medusa, "
            "eagle, or deepseek_mtp."
        )
    alias = method.endswith("_mtp") and version in catalogue.METHODS["mtp"]
    return "mtp" if alias else method


def _depth(raw: Mapping[str, object], *, method: str, version: Version) -> int:
    number = _as_int(raw.get("num_speculative_tokens"))
    if number is not None:
        return number
    if method == "suffix":
        return _as_int(raw.get("suffix_decoding_max_tree_depth")) or _SUFFIX_TREE_DEPTH
    if method.endswith("mtp") and raw.get("model"):  # the target stands in only for a given depth
        return 1  # the one layer that most MTP checkpoints announce as n_predict
    raise wrong_together(_NO_DEPTH, owner=_OWNER, version=version)


def _check_lookup(raw: Mapping[str, object], *, version: Version) -> None:
    """Refuse crossed bounds of the n-gram lookup; either bound alone stands for both."""
    least, most = _as_int(raw.get("prompt_lookup_min")), _as_int(raw.get("prompt_lookup_max"))
    if least is not None and most is not None and least > most:
        raise wrong_together(
            f"prompt_lookup_min={least} must be <= prompt_lookup_max={most}",
            owner=_OWNER,
            version=version,
        )


def _check_together(raw: Mapping[str, object], *, method: str, version: Version) -> None:
    """Refuse keys that go with one method or one other key only, as 0.32.0 does."""

    def refuse(message: str) -> LaunchRefused:
        return wrong_together(message, owner=_OWNER, version=version)

    if raw.get("index_share_for_mtp_iteration") is not None and method != "mtp":
        raise refuse("index_share_for_mtp_iteration is only supported with method='mtp'")
    if raw.get("use_heterogeneous_vocab") in (True, "true") and method != "draft_model":
        raise refuse("use_heterogeneous_vocab only works with method='draft_model'")
    lengths = ("synthetic_acceptance_rates", "synthetic_acceptance_length")
    given = [key for key in lengths if raw.get(key) is not None]
    if given and raw.get("rejection_sample_method") != "synthetic":
        raise refuse(
            "synthetic_acceptance_rates / synthetic_acceptance_length are only valid with "
            "rejection_sample_method='synthetic'."
        )
    if raw.get("rejection_sample_method") == "synthetic" and len(given) != 1:
        raise refuse(
            "Exactly one of synthetic_acceptance_rates and synthetic_acceptance_length must be "
            "given with rejection_sample_method='synthetic'."
        )


def read_schedule(
    rows: Sequence[tuple[int, int, int]], *, depth: int
) -> tuple[tuple[int, int], ...]:
    """Read ``[first, last, depth]`` by batch size as ``(first, depth)`` steps, as the scheduler.

    Depths are clamped to ``depth``. Only the first batch size of a range matters: gaps and the
    tail carry the previous depth forward. Without rows there is no schedule.

    Raises:
        LaunchRefused: ranges overlap, or do not begin at 1.
    """

    def refuse(reason: str) -> LaunchRefused:
        return LaunchRefused(f"ValueError: {reason}")

    steps: list[tuple[int, int]] = []
    covered = 0
    for first, last, wanted in sorted(rows):
        if first < 1 or last < 1:
            raise refuse(f"Batch-size range {(first, last)} must be positive.")
        if first > last:
            raise refuse(f"Batch-size range start must be <= end for {(first, last, wanted)}.")
        if wanted < 0:
            raise refuse("num_speculative_tokens_per_batch_size values must be >= 0.")
        if not steps and first != 1:
            raise refuse(
                "The first batch-size range must start at 1 so every runtime batch size has a "
                "defined schedule."
            )
        if first <= covered:
            raise refuse("Batch-size ranges must be non-overlapping and sorted.")
        steps.append((first, min(wanted, depth)))
        covered = last
    return tuple(steps)


def _schedule_rows(value: object) -> list[tuple[int, int, int]] | None:
    """Read the rows of a schedule; None when one of them is not three integers."""
    rows: list[tuple[int, int, int]] = []
    for row in value if isinstance(value, list) else []:
        match [_as_int(item) for item in row] if isinstance(row, list) else []:
            case [int() as first, int() as last, int() as depth]:
                rows.append((first, last, depth))
            case _:
                return None
    return rows


def choose_generation(
    *, version: Version, wants_v0: bool, wants_v1: bool, method: str | None
) -> Generation:
    """Pick the engine: V0 by age, by ``VLLM_USE_V1=0``, or because V1 lacked the method.

    Raises:
        LaunchRefused: V1 was asked for by ``VLLM_USE_V1=1`` and lacks the method.
    """
    if version not in catalogue.V0_ENGINE:
        return Generation.V1
    if version not in catalogue.V1_ENGINE:
        return Generation.V0  # V1 was an experiment before 0.8; its metrics are not modelled
    if wants_v0:
        return Generation.V0
    known = catalogue.V1_METHODS.get(method) if method is not None else None
    if method is None or (known is not None and version in known):
        return Generation.V1
    if wants_v1:
        raise LaunchRefused(
            f"NotImplementedError: VLLM_USE_V1=1 is not supported with {method} speculative "
            "decoding."
        )
    return Generation.V0


def resolve(
    raw: Mapping[str, object],
    *,
    version: Version,
    data_parallel_size: int = 1,
    runner_v2: bool = False,
    wants_v0: bool = False,
    wants_v1: bool = False,
) -> tuple[Speculation, Generation, tuple[str, ...]]:
    """Turn the keys of a speculative config into what the engine will do.

    Returns:
        The speculation, the engine generation that performs it, and the warnings logged.

    Raises:
        LaunchRefused: the engine would not start with it.
    """
    check_fields(raw, version=version)
    method = _method(raw, version=version)
    depth = _depth(raw, method=method, version=version)
    model = raw.get("model")
    if not model and method not in _WITHOUT_MODEL and not method.endswith("mtp"):
        raise wrong_together(_NO_MODEL, owner=_OWNER, version=version)
    _check_lookup(raw, version=version)
    _check_together(raw, method=method, version=version)
    generation = choose_generation(
        version=version, wants_v0=wants_v0, wants_v1=wants_v1, method=method
    )
    limit = _as_int(raw.get("disable_by_batch_size"))
    if limit is not None and limit < 2:  # noqa: PLR2004 -- vLLM's own bound
        raise LaunchRefused(
            "ValueError: Expect the batch size threshold of disabling speculative decoding is "
            f"> 1, but got disable_by_batch_size={limit}"
        )
    schedule: tuple[tuple[int, int], ...] = ()
    warnings: list[str] = []
    rows = _schedule_rows(raw.get("num_speculative_tokens_per_batch_size"))
    if rows:
        schedule = read_schedule(rows, depth=depth)
        dropped = _schedule_dropped(
            method, version=version, data_parallel_size=data_parallel_size, runner_v2=runner_v2
        )
        if dropped:
            warnings.append(f"num_speculative_tokens_per_batch_size is ignored: {dropped}")
            schedule = ()
    speculation = Speculation(
        method=method,
        model=None if model is None or method == "ngram" else str(model),
        depth=depth,
        schedule=schedule,
        disable_at=limit if generation is Generation.V0 else None,
        given=dict(raw),
    )
    return speculation, generation, tuple(warnings)


def _schedule_dropped(
    method: str, *, version: Version, data_parallel_size: int, runner_v2: bool
) -> str | None:
    """Return why a schedule is accepted and yet not followed."""
    if data_parallel_size > 1 and version in catalogue.SCHEDULE_DROPPED_WITH_DP:
        return "dynamic speculative decoding is not supported with data parallelism"
    if version in catalogue.SCHEDULE_METHODS_CHECKED and method not in catalogue.SCHEDULE_METHODS:
        return f"dynamic speculative decoding is not supported with method {method!r}"
    if method in catalogue.SCHEDULE_NOT_TOLD:
        return f"method {method!r} drafts the static depth"
    if runner_v2 and version in catalogue.SCHEDULE_IGNORED_BY_RUNNER_V2:
        return "the model runner drafts the static depth"
    return None
