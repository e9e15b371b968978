"""Reading the product's queries, for whoever stands in for the server that they are put to."""

from __future__ import annotations

import re

_BUCKETS = re.compile(r" or (?=sum by \(__name__, le, )")


def parts_of(query: str) -> list[str]:
    """Everything else, and buckets, which may be of fewer pods and come in the same query."""
    return _BUCKETS.split(query)
