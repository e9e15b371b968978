"""How often an analysis claims what is not so, and how soon what is.

    python -m bench.comparison [--count 4000] [--json PATH]

Each row simulates that many analyses, looked at after every slice from the third on until a claim
is made or patience ends, by the product's test and, on the very same slices, by what it replaced:
Student's t at 99 % before the analysis is whole and at 95 % from then on.

False claims are counted where the truth lies on the bound itself, which is the worst case: arms
that differ from it in the harmless direction are called different less often still.
"""

import argparse
import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.comparison.methods import Analysis, Claimed, peeking, sequential, simulate
from specpilot.domain.sequential import ALPHA, FULL, Looks

SPREAD = 0.05
PROBE = Looks(longest=2 * FULL, whole=2 * FULL)
RULE = Looks(longest=6 * FULL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One table row; rates are shares of 1, the ends medians in slices."""

    analysis: Analysis
    now: float
    before: float
    ends_now: float
    ends_before: float


def row(analysis: Analysis, looks: Looks, *, count: int) -> Row:
    now = simulate(analysis, sequential(looks), count=count, seed=1)
    before = simulate(analysis, peeking, count=count, seed=1)
    return Row(
        analysis=analysis,
        now=_rate(now),
        before=_rate(before),
        ends_now=_end(now, analysis),
        ends_before=_end(before, analysis),
    )


def _rate(claims: list[Claimed]) -> float:
    return sum(c.at is not None for c in claims) / len(claims)


def _end(claims: list[Claimed], analysis: Analysis) -> float:
    return statistics.median(analysis.longest if c.at is None else c.at for c in claims)


def rows(looks: Looks, *, count: int) -> list[Row]:
    false = [
        Analysis(longest=looks.longest, alike=alike, heavy=heavy, spread=SPREAD, effect=0.0)
        for alike in (0.0, 0.3, 0.5)
        for heavy in (False, True)
    ]
    true = [
        Analysis(longest=looks.longest, alike=0.3, heavy=False, spread=SPREAD, effect=effect)
        for effect in (0.025, 0.05, 0.10, 0.20)
    ]
    return [row(analysis, looks, count=count) for analysis in (*false, *true)]


def table(found: list[Row], *, title: str) -> Table:
    shown = Table(title=title, title_justify="left")
    columns = ("truth beyond bound", "alike", "noise", "claims", "claims before", "ends", "before")
    for column in columns:
        shown.add_column(column, justify="right")
    for each in found:
        shown.add_row(
            f"{each.analysis.effect:.3f}",
            f"{each.analysis.alike:.1f}",
            "heavy" if each.analysis.heavy else "normal",
            f"{each.now:.1%}",
            f"{each.before:.1%}",
            f"{each.ends_now:g}",
            f"{each.ends_before:g}",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.comparison", description=__doc__)
    parser.add_argument("--count", type=int, default=4000, help="analyses a row")
    parser.add_argument("--json", type=Path, help="write the rows there too")
    options = parser.parse_args()
    console = Console(highlight=False)
    written = {}
    for name, looks in (("probe", PROBE), ("rule", RULE)):
        found = rows(looks, count=options.count)
        written[name] = [asdict(each) for each in found]
        title = (
            f"{name}: up to {looks.longest} slices of spread {SPREAD:g}; promised are at most "
            f"{ALPHA:.0%} of false claims where neighbours are alike by 0.3 or less"
        )
        console.print(table(found, title=title))
    if options.json:
        options.json.write_text(json.dumps(written, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
