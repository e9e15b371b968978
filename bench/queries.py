"""Reading the product's queries, for whoever stands in for the server that they are put to."""

from __future__ import annotations

import re
from typing import NamedTuple

_BUCKETS = re.compile(r" or (?=sum by \(__name__, le, )")
_POD = re.compile(r'\bpod=~"([^"]*)"')
_NAMESPACE = re.compile(r'\bnamespace=~?"([^"]*)"')


class UnanswerableError(Exception):
    """Not a query that is answered here; the text says why, or has it."""


class Part(NamedTuple):
    """A part of a query, and a pattern of the names of the pods that it is about."""

    text: str
    chosen: re.Pattern[str]


def parts_of(query: str) -> list[str]:
    """Everything else, and buckets, which may be of fewer pods and come in the same query."""
    return _BUCKETS.split(query)


def read(query: str) -> list[Part]:
    """The parts of a query, each of which selects pods in one way."""
    found = []
    for text in parts_of(query):
        chosen = _POD.search(text)
        found.append(Part(text, re.compile(_plain(chosen[1]) if chosen else ".*")))
    return found


def namespaces_of(query: str) -> frozenset[str]:
    """Those whose pods a query is about; the product names each of them.

    Raises:
        UnanswerableError: Not the same in all of it.
    """
    patterns = set(_NAMESPACE.findall(query))
    if len(patterns) != 1:
        raise UnanswerableError(query)
    return frozenset(_plain(patterns.pop()).replace("\\", "").split("|"))


def _plain(literal: str) -> str:
    """What a string literal of PromQL says."""
    return literal.replace("\\\\", "\\")
