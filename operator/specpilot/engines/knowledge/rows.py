"""What a row of the table says: a name, the releases, where it holds, and what comes of it."""

from dataclasses import dataclass
from enum import StrEnum

from packaging.version import Version

from specpilot.engines.versions import Span


class Topic(StrEnum):
    """What a row is about."""

    FLAG = "flag"
    KEY = "key"
    VALUE = "value"
    METHOD = "method"
    BEHAVIOUR = "behaviour"


class On(StrEnum):
    """The part of the engine on which a row holds."""

    ANY = "any"
    V0 = "V0"
    V1 = "V1"
    MRV1 = "MRv1"
    MRV2 = "MRv2"


class Effect(StrEnum):
    """What comes of it; the last of those that hold is what happens."""

    WORKS = "works"
    IGNORED = "ignored"
    HANGS = "may hang"
    FAILS = "does not start"


GRAVITY = {effect: place for place, effect in enumerate(Effect)}
"""The order of effects."""


class Certainty(StrEnum):
    """How a row is known."""

    VERIFIED = "verified"
    INFERRED = "inferred"


class Need(StrEnum):
    """Whether a method takes something."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    NONE = "none"


class Kind(StrEnum):
    """Type of a flag's or a key's value."""

    TEXT = "text"
    INTEGER = "whole number"
    POSITIVE = "whole number above 0"
    NUMBER = "number"
    SWITCH = "switch"
    BOOLEAN = "truth value"
    LIST = "list"
    ANYTHING = "value of any type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One engine, as far as rows ask: which release, which parts, with what.

    Attributes:
        release: The release.
        parts: The parts that are in use, `ANY` among them.
        method: The method, aliases resolved; "" when it does not matter.
        data_parallel: Ranks of data parallelism.
    """

    release: Version
    parts: frozenset[On] = frozenset({On.ANY})
    method: str = ""
    data_parallel: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fact.

    Attributes:
        topic: What it is about.
        name: As the user writes it.
        span: Releases in which it holds.
        on: The part of the engine on which it holds.
        effect: What comes of it there.
        why: The effect in words, where the effect's name does not suffice.
        only: Methods with which it holds; empty for all.
        but: Methods with which it does not.
        with_data_parallel: It holds with more than one rank of data parallelism only.
        source: Where the fact is from.
        certainty: How well it is known.
    """

    topic: Topic
    name: str
    span: Span
    on: On = On.ANY
    effect: Effect = Effect.WORKS
    why: str = ""
    only: frozenset[str] = frozenset()
    but: frozenset[str] = frozenset()
    with_data_parallel: bool = False
    source: str = ""
    certainty: Certainty = Certainty.VERIFIED

    def holds(self, situation: Situation) -> bool:
        """Whether the row says something about this engine."""
        return (
            situation.release in self.span
            and self.on in situation.parts
            and (not self.only or situation.method in self.only)
            and situation.method not in self.but
            and (not self.with_data_parallel or situation.data_parallel > 1)
        )

    @property
    def condition(self) -> str:
        """What else must be so, in words; "" when nothing."""
        said = []
        if self.only:
            said.append("method " + ", ".join(sorted(self.only)))
        if self.but:
            said.append("method other than " + ", ".join(sorted(self.but)))
        if self.with_data_parallel:
            said.append("data parallel above 1")
        return "; ".join(said)

    @property
    def outcome(self) -> str:
        """The effect, why, and when, in words."""
        plain = self.effect is Effect.WORKS and self.why
        words = self.why if plain else ": ".join(w for w in (str(self.effect), self.why) if w)
        return f"{words} ({self.condition})" if self.condition else words


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Row):
    """A key of the speculative config.

    Attributes:
        kind: Type of its value.
    """

    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Row):
    """A way to draft.

    Attributes:
        model: Whether it takes a draft model.
        depth: Whether `num_speculative_tokens` must be given (else the model or engine knows it).
        alias_of: The method that it is another name of, where that exists.
    """

    model: Need = Need.OPTIONAL
    depth: Need = Need.OPTIONAL
    alias_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag(Row):
    """A flag of the command line.

    Attributes:
        key: The key of the speculative config that it sets, "" for all of them.
        kind: Type of its value; a switch has none.
        legacy: From before `--speculative-config`.
    """

    key: str = ""
    kind: Kind = Kind.TEXT
    legacy: bool = False
