"""What holds for every condition: Kleene's tables, errors in words, and a cost that is bounded."""

import contextlib
import itertools
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specpilot.domain.conditions import MAX_DEPTH, MAX_LENGTH, Condition, ConditionError, Truth
from specpilot.domain.conditions.tree import walk
from specpilot.domain.readings import Reading, Readings

SIGNALS = ("batch_size", "queue_depth", "tpot_mean", "acceptance_rate")
OPS = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True)
class Leaf:
    signal: str
    op: str
    number: float
    mirrored: bool = False

    def text(self) -> str:
        sides = (self.signal, self.op, f"{self.number:g}")
        return " ".join(reversed(sides) if self.mirrored else sides)

    def truth(self, known: Mapping[str, float]) -> bool | None:
        if self.signal not in known:
            return None
        a, b = known[self.signal], self.number
        a, b = (b, a) if self.mirrored else (a, b)
        return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[
            self.op
        ]


@dataclass(frozen=True)
class Not:
    of: "Tree"

    def text(self) -> str:
        return f"!({self.of.text()})"

    def truth(self, known: Mapping[str, float]) -> bool | None:
        inner = self.of.truth(known)
        return None if inner is None else not inner


@dataclass(frozen=True)
class Join:
    op: str
    parts: tuple["Tree", ...]

    def text(self) -> str:
        return f"({f' {self.op} '.join(p.text() for p in self.parts)})"

    def truth(self, known: Mapping[str, float]) -> bool | None:
        found = [p.truth(known) for p in self.parts]
        decides = self.op == "||"  # one true part decides `||`, one false part decides `&&`
        if decides in found:
            return decides
        return None if None in found else not decides


@dataclass(frozen=True)
class Either:
    condition: "Tree"
    then: "Tree"
    other: "Tree"

    def text(self) -> str:
        return f"({self.condition.text()} ? {self.then.text()} : {self.other.text()})"

    def truth(self, known: Mapping[str, float]) -> bool | None:
        first = self.condition.truth(known)
        return None if first is None else (self.then if first else self.other).truth(known)


Tree = Leaf | Not | Join | Either

numbers = st.integers(0, 4).map(float)
leaves = st.builds(
    Leaf, st.sampled_from(SIGNALS), st.sampled_from(OPS), numbers, mirrored=st.booleans()
)
trees: st.SearchStrategy[Tree] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(
            Join,
            st.sampled_from(["&&", "||"]),
            st.lists(inner, min_size=2, max_size=3).map(tuple),
        ),
        st.builds(Either, inner, inner, inner),
    ),
    max_leaves=10,
)
values = st.dictionaries(st.sampled_from(SIGNALS), numbers)
TRUTH = {True: Truth.TRUE, False: Truth.FALSE, None: Truth.UNKNOWN}


def known(given_values: Mapping[str, float]) -> Readings:
    return Readings.of(Reading(signal=n, value=v) for n, v in given_values.items())


def attempt(text: str, *parameters: str) -> Condition | str:
    """The condition, or the words it is refused with."""
    try:
        return Condition(text, parameters=parameters)
    except ConditionError as error:
        return str(error)


def judge(text: str, of: Readings) -> Truth:
    return Condition(text).judge(of, parameters={}, context={}).truth


@given(trees, values)
def test_generated_conditions_follow_kleene(tree: Tree, given_values: dict[str, float]) -> None:
    condition = attempt(tree.text())
    if isinstance(condition, str):
        assert f"more than {MAX_DEPTH} levels" in condition or "at most" in condition
        return
    truth = condition.judge(known(given_values), parameters={}, context={}).truth
    assert truth is TRUTH[tree.truth(given_values)]


@given(trees, values)
def test_learning_more_never_turns_a_verdict_round(
    tree: Tree, given_values: dict[str, float]
) -> None:
    """Unknown may become true or false; true and false stay: the point of three values."""
    with contextlib.suppress(ConditionError):
        before = judge(tree.text(), known(given_values))
        full = dict.fromkeys(SIGNALS, 2.0) | given_values
        assert before in {Truth.UNKNOWN, judge(tree.text(), known(full))}


@given(trees, values, st.randoms(use_true_random=False))
def test_the_order_of_readings_does_not_matter(
    tree: Tree, given_values: dict[str, float], random: object
) -> None:
    shuffled = list(given_values)
    random.shuffle(shuffled)  # type: ignore[attr-defined] # Hypothesis's Random
    with contextlib.suppress(ConditionError):
        condition = Condition(tree.text())
        one = condition.judge(known(given_values), parameters={}, context={})
        other = condition.judge(
            known({n: given_values[n] for n in shuffled}), parameters={}, context={}
        )
        assert one == other, "in truth, words and evidence"


PIECES = st.sampled_from(
    ["batch_size", "tpot_p99", "params.p", "params.", "target.labels", "target.labels.a", "time",
     "time.hour", "has(", "in", "[", "]", "(", ")", ",", ".", "1", "5m", "80%", "1e9", "'a'", "\"",
     "'", "&&", "||", "!", "-", "?", ":", "<", "==", "+", "*", "/", "%", "true", "//", "\n", "{",
     "0x1", "1h30m", ".contains(", "['a']", "e2e_p99.x", "\u00e4", "\x00"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=25).map(" ".join),
                 st.lists(PIECES, max_size=25).map("".join)))  # fmt: skip
@settings(max_examples=1000)
@example("params.in > 1")
@example("target.labels.in == 'a'")
@example("target.labels['\\q'] == 'a'")
@example("1 < 2 in [true]")
def test_any_text_compiles_or_is_refused_in_words(text: str) -> None:
    condition = attempt(text, "p", "in")
    if isinstance(condition, str):
        assert condition
        return
    judgement = condition.judge(
        known({"batch_size": 1}), parameters={"p": 1, "in": 1}, context={"time.hour": 3.0}
    )
    assert judgement.truth in Truth


def test_connectives_follow_kleene() -> None:
    """The rows of the tables, spelt out: three of `!`, nine of `&&` and of `||`."""
    three = {"1 < 2": True, "1 > 2": False, "batch_size > 0": None}
    for text, truth in three.items():
        opposite = None if truth is None else not truth
        assert judge(f"!({text})", Readings()) is TRUTH[opposite], text
    for (a, left), (b, right) in itertools.product(three.items(), repeat=2):
        both = False if False in (left, right) else None if None in (left, right) else True
        some = True if True in (left, right) else None if None in (left, right) else False
        assert judge(f"{a} && {b}", Readings()) is TRUTH[both], (a, b)
        assert judge(f"{a} || {b}", Readings()) is TRUTH[some], (a, b)


# --- cost

HOSTILE = {
    "a long chain": " || ".join(["batch_size>1"] * 124),
    "a long sum": "+".join(["batch_size"] * 180) + ">1",
    "deep parentheses": "(" * 900 + "batch_size" + ")" * 900 + ">1",
    "just too deep": "(" * (MAX_DEPTH - 1) + "batch_size > 1" + ")" * (MAX_DEPTH - 1),
    "many negations": "!" * 1900 + "true",
    "many minuses": "-" * 1900 + "batch_size > 1",
    "a chain of choices": "true ? true : " * 140 + "true",
    "choices in choices": "true ? " * 140 + "true" + " : true" * 140,
    "divisors in divisors": "batch_size/(" * 14 + "batch_size" + ")" * 14 + ">1",
    "a long list": f"batch_size in [{','.join(['1'] * 900)}]",
    "lists in lists": f"1 in {'[' * 900}{']' * 900}",
    "macros in macros": ".all(x,".join(["[1,2]"] * 150) + ")" * 150,
    "a regular expression": "target.name.matches('" + "(a+)+" * 300 + "')",
    "doubled text": "+".join(["target.name"] * 150) + "=='a'",
    "an unclosed text": "'" * 1999,
    "escapes": "target.name == '" + "\\\\" * 900 + "'",
    "a long number": "batch_size > " + "9" * 1900,
    "a large exponent": "batch_size > 1e" + "9" * 1000,
    "a large size": "gpu_memory_used > " + "9" * 1900 + "TiB",
    "long units": "tpot_mean > " + "1h" * 900,
    "a long unknown name": "b" * 1900,
    "a name of many members": ".".join(["target"] * 300),
    "only operators": "&&" * 1000,
    "too long": "batch_size > 1 || " * 100_000 + "true",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_cost_is_bounded_by_size(what: str) -> None:
    """Steps are bounded, not time: a tree has at most one node for each character of a text.

    That makes the time small as well, whatever the expression: no loop, no function that builds.
    """
    text = HOSTILE[what]
    names = {"batch_size": 1.0, "tpot_mean": 1.0, "gpu_memory_used": 1.0}
    began = time.process_time()
    condition = attempt(text)
    if isinstance(condition, str):
        assert len(condition) < 3 * MAX_LENGTH, "nor is its message"
        assert "CEL refuses" not in condition, "a user meets our limits, with a caret, not CEL's"
    else:
        assert sum(1 for _ in walk(condition.tree)) <= len(text) <= MAX_LENGTH
        condition.judge(known(names), parameters={}, context={"target.name": "a" * 63})
    took = time.process_time() - began
    assert took < 1, f"{what}: {took:.2f} s of CPU"


@pytest.mark.parametrize("text", ["!" * 6 + "true", "(" * 6 + "true" + ")" * 6, "-" * 6 + "1 < 2"])
def test_depth_that_people_write_is_allowed(text: str) -> None:
    assert judge(text, Readings()) in {Truth.TRUE, Truth.FALSE}


def test_the_library_takes_every_shape_that_the_limits_let_pass() -> None:
    """Its own limit of 32 levels is never the one a user meets."""
    depth = MAX_DEPTH - 2
    for text in (
        "(" * depth + "batch_size > 1" + ")" * depth,
        "!" * depth + "true",
        "-" * depth + "batch_size > 1",
        "+".join(["batch_size"] * depth) + " > 1",
        "/".join(["batch_size"] * depth) + " > 1",
        "batch_size/(" * (depth // 2) + "batch_size" + ")" * (depth // 2) + " > 1",
        "true ? true : " * (depth // 2) + "true",
        "(true && " * depth + "true" + ")" * depth,
        " && ".join(["batch_size > 1"] * 110),
        " + ".join(f"acceptance_rate_pos_{i}" for i in range(16)) + " > 8 || true",
    ):
        assert judge(text, known({"batch_size": 2.0})) in {Truth.TRUE, Truth.FALSE}, text


@given(st.floats(min_value=0, max_value=1e12, allow_nan=False))
def test_numbers_arrive_as_they_were_written(number: float) -> None:
    text = f"{number:.17g}".replace("+", "")
    (comparison,) = Condition(f"batch_size > {text}").comparisons
    assert comparison.literal is not None
    assert math.isclose(comparison.literal, number, rel_tol=0)
