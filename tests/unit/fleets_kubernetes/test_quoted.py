"""Text that a shell takes apart again: only flags of speculation leave it and enter it."""

import shlex
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.fleets.kubernetes.channels.quoted import split, with_flags, without_flags


@dataclass(frozen=True)
class Case:
    reason: str
    text: str
    want: str


@pytest.mark.parametrize(
    "case",
    [
        Case("nothing of ours stays as it is", "--a  1 ", "--a  1 "),
        Case(
            "the value goes with its flag", "--a --speculative-config '{\"x\": 1}' --b", "--a --b"
        ),
        Case("one word with =", "--speculative-config='{}' --b 'c d'", "--b 'c d'"),
        Case("at the end", "--b \"c\" -sc '{}'", '--b "c"'),
        Case("dotted", "--speculative-config.method ngram  --b", "--b"),
        Case("alone", "--speculative-config='{}'", ""),
        Case("quotes within a word", "--spec'ulative'-config=x --b", "--b"),
        Case("other spacing stays", "--a   1   --spec-tokens 3   --b", "--a   1   --b"),
    ],
    ids=lambda case: case.reason,
)
def test_without_flags(case: Case) -> None:
    assert without_flags(case.text) == case.want


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("--a $X", "which the shell acts on"),
        ("--a `x`", "which the shell acts on"),
        ("--a; rm", "which the shell acts on"),
        ("--a 'x", "not closed"),
        ('--a "x', "not closed"),
        ('--a "$X"', "in double quotes"),
        ("--a # b", "which the shell acts on"),
    ],
)
def test_what_only_a_shell_could_read_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        split(text)


words = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)


@given(st.lists(words, max_size=6))
def test_quoted_words_are_read_back(found: list[str]) -> None:
    assert [word.text for word in split(" ".join(map(shlex.quote, found)))] == found


@given(st.lists(words, max_size=4), words)
def test_what_is_added_can_be_taken_out_again_to_the_letter(found: list[str], value: str) -> None:
    text = " ".join(f"--other={shlex.quote(word)}" for word in found)
    added = with_flags(text, [f"--speculative-config={value}"])
    assert without_flags(added) == text
    assert split(added)[-1].text == f"--speculative-config={value}"
