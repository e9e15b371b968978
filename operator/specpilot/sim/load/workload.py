"""What arrives and when, from a seed."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

DEFAULT_PROMPT_TOKENS: Final = 48
"""A phrase of six words, eight times."""

_PHRASE_WORDS: Final = 6
_CONSONANTS: Final = "bcdfghjklmnpqrstvwz"
_WORDS: Final = tuple(a + b + c for a in _CONSONANTS for b in "aeiou" for c in _CONSONANTS)


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of steady load.

    Attributes:
        seconds: how long.
        rate: mean arrivals per second; they are Poisson.
        kind: what the prompts are like: ``repetitive`` (drafts fit), ``random`` (they do not), or
            ``accept:0.8``, which asks the simulator for that acceptance.
        prompt_tokens: length of the prompts, by the simulator's count.
        output_tokens: tokens asked for.
        spread: both lengths vary uniformly by this part of themselves.
        name: name in reports.
    """

    seconds: float
    rate: float
    kind: str = "repetitive"
    prompt_tokens: int = DEFAULT_PROMPT_TOKENS
    output_tokens: int = 64
    spread: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"seconds: {self.seconds} must be positive and finite")
        if not 0 <= self.rate < float("inf"):
            raise ValueError(f"rate: {self.rate} must be zero or more arrivals per second")
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError("prompt_tokens, output_tokens: must be at least 1")
        if not 0 <= self.spread < 1:
            raise ValueError(f"spread: {self.spread} must be in [0, 1)")
        _check_kind(self.kind)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to send.

    Attributes:
        at: seconds after the start.
        phase: name of its phase.
        kind: see :class:`Phase`.
        prompt: the text.
        max_tokens: tokens asked for.
        temperature: of the sampling; None leaves it to whoever sends the request.
    """

    at: float
    phase: str
    kind: str
    prompt: str
    max_tokens: int
    temperature: float | None = None


def _check_kind(kind: str) -> None:
    name, colon, number = kind.partition(":")
    if name in ("repetitive", "random") and not colon:
        return
    try:
        accept = float(number) if name == "accept" else -1.0
    except ValueError:
        accept = -1.0
    if not 0 <= accept <= 1:
        raise ValueError(f"kind: {kind!r}; write repetitive, random or accept:P with P in [0, 1]")


def parse_phase(text: str, *, number: int = 0) -> Phase:
    """Read ``seconds=60,rate=2,kind=accept:0.8,prompt_tokens=48,output_tokens=64``.

    Raises:
        ValueError: an unknown or missing key, or a value outside its range.
    """
    kinds = {field.name: str(field.type) for field in fields(Phase)}
    values: dict[str, str | int | float] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or key not in kinds:
            raise ValueError(f"phase: {part!r}; write KEY=VALUE with a key of {', '.join(kinds)}")
        try:
            match kinds[key]:
                case "float":
                    values[key] = float(value)
                case "int":
                    values[key] = int(value)
                case _:
                    values[key] = value
        except ValueError:
            raise ValueError(f"phase: {key}: {value!r} is not a number") from None
    missing = {"seconds", "rate"} - values.keys()
    if missing:
        raise ValueError(f"phase: {text!r} lacks {', '.join(sorted(missing))}")
    values.setdefault("name", f"phase-{number}")
    return Phase(**values)  # type: ignore[arg-type] # converted by the field's own type above


def arrivals(phases: Sequence[Phase], *, seed: int) -> list[Arrival]:
    """Draw the arrivals of consecutive phases; equal seeds give equal arrivals."""
    result: list[Arrival] = []
    begin = 0.0
    for number, phase in enumerate(phases):
        # A stream for each phase, so that changing one leaves the others as they were.
        rng = random.Random(f"{seed}/{number}")  # noqa: S311 -- a simulation
        name = phase.name or f"phase-{number}"
        at = begin
        while phase.rate > 0:
            at += rng.expovariate(phase.rate)
            if at >= begin + phase.seconds:
                break
            result.append(
                Arrival(
                    at=at,
                    phase=name,
                    kind=phase.kind,
                    prompt=build_prompt(
                        phase.kind, tokens=_vary(phase.prompt_tokens, phase.spread, rng), rng=rng
                    ),
                    max_tokens=_vary(phase.output_tokens, phase.spread, rng),
                )
            )
        begin += phase.seconds
    return result


def span(phases: Iterable[Phase]) -> float:
    """Return the seconds that the phases last."""
    return sum(phase.seconds for phase in phases)


def _vary(tokens: int, spread: float, rng: random.Random) -> int:
    if not spread:
        return tokens
    return max(1, round(tokens * rng.uniform(1 - spread, 1 + spread)))


def build_prompt(kind: str, *, tokens: int, rng: random.Random) -> str:
    """Write a prompt of three-letter words: with its space, a word is one token of the simulator.

    Raises:
        ValueError: unknown kind.
    """
    _check_kind(kind)
    if kind == "repetitive":
        phrase = rng.choices(_WORDS, k=_PHRASE_WORDS)
        return " ".join(phrase[i % _PHRASE_WORDS] for i in range(tokens))
    words = " ".join(rng.choices(_WORDS, k=tokens))
    name, _, number = kind.partition(":")
    return f"[accept={float(number):.4g}] {words}" if name == "accept" else words


def read_trace(path: Path, *, seed: int) -> list[Arrival]:
    """Read arrivals from a CSV file with a header.

    Columns: ``at`` (seconds), and optionally ``kind``, ``prompt_tokens``, ``output_tokens`` and
    ``phase``.

    Raises:
        ValueError: a row is wrong; the message names its line.
        OSError: the file cannot be read.
    """
    rng = random.Random(seed)  # noqa: S311 -- a simulation
    result: list[Arrival] = []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        for row in reader:
            try:
                kind = row.get("kind") or "repetitive"
                tokens = int(row.get("prompt_tokens") or DEFAULT_PROMPT_TOKENS)
                result.append(
                    Arrival(
                        at=float(row["at"]),
                        phase=row.get("phase") or "trace",
                        kind=kind,
                        prompt=build_prompt(kind, tokens=tokens, rng=rng),
                        max_tokens=int(row.get("output_tokens") or 64),
                    )
                )
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
    return sorted(result, key=lambda arrival: arrival.at)
