"""The figures as tables: for a terminal, and for the pages that quote them."""

import re
from collections.abc import Iterable
from pathlib import Path

from rich import box
from rich.table import Table

from bench.cases.judging import Score
from bench.cases.report import BREAK_EVEN, Report, Scope
from specpilot.resources.packs import pack_names

HEAD = ("decides", "losing found", "others kept", "balanced", "unknown", "judged only")
DOCS = Path(__file__).parents[2] / "docs" / "rules"
_BLOCK = re.compile(r"(<!-- figures: (?P<what>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def row(found: Score) -> tuple[str, ...]:
    """One line."""
    return (
        found.name,
        f"{found.recall:.2f}",
        f"{found.kept:.2f}",
        f"{found.balanced:.2f}",
        str(found.unknown),
        "-" if found.judged is None else f"{found.judged:.2f}",
    )


def caption(scope: Scope) -> str:
    """What the cases of a scope are."""
    one = scope.rivals[0]
    return f"{scope.title}: {one.cases} cases, {one.losing} of them lose"


def terminal(scope: Scope) -> Table:
    """A table for people at a terminal."""
    table = Table(title=caption(scope), title_justify="left", box=box.SIMPLE)
    for index, head in enumerate(HEAD):
        table.add_column(head, justify="right" if index else "left", no_wrap=not index)
    for found in (*scope.rivals, *scope.packs):
        table.add_row(*row(found), end_section=found is scope.rivals[-1])
    return table


def markdown(scores: Iterable[Score]) -> str:
    """A table for a page."""
    lines = [HEAD, ("---", *["---:"] * (len(HEAD) - 1)), *(row(s) for s in scores)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def blocks(found: Report) -> dict[str, str]:
    """The quoted tables by the name of their block: of each pack, and of all."""
    every = {scope: (*scope.rivals, *scope.packs) for scope in (found.measured, found.everything)}
    both = "".join(f"\n{caption(s)}.\n\n{markdown(rows)}" for s, rows in every.items())
    pages = {"all": both.removeprefix("\n"), "break-even-robust": _robust(found)}
    for one, other in zip(found.measured.packs, found.everything.packs, strict=True):
        pages[one.name] = (
            f"{caption(found.measured)}.\n\n{markdown([*found.measured.rivals, one])}\n"
            f"{caption(found.everything)}.\n\n{markdown([*found.everything.rivals, other])}"
        )
    return pages


def _robust(found: Report) -> str:
    robust = found.break_even
    scores = {
        "from a batch size within a factor of 2, as the product asks for": robust.within_reach,
        "from another batch size, however far": robust.other_batch,
        "from another batch size within a factor of 2": robust.other_within_reach,
    }
    rows = [
        (words, str(s.judged_cases), "-" if s.judged is None else f"{s.judged:.2f}")
        for words, s in scores.items()
    ]
    judged = str(found.measured.packs[pack_names().index(BREAK_EVEN)].judged_cases)
    rows.append(("any of those equally near, on average", judged, f"{robust.any_nearest:.2f}"))
    rows += [
        (f"the same, {abs(e):.0%} too {'high' if e > 0 else 'low'}", judged, f"{value:.2f}")
        for e, value in robust.off_by.items()
    ]
    head = [("the one measurement of the cost", "judged", "balanced"), ("---", "---:", "---:")]
    return "".join(f"| {' | '.join(line)} |\n" for line in [*head, *rows])


def with_figures(page: str, tables: dict[str, str]) -> str:
    """The page with every block of figures as it must be."""
    return _BLOCK.sub(lambda m: f"{m[1]}{tables[m['what']]}{m[3]}", page)
