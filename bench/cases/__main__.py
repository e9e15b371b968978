"""How the shipped rule packs judge published cases of speculative decoding.

python -m bench.cases [--json | --update-docs]
"""

import argparse
import json

from rich.console import Console

from bench.cases.report import as_json, report
from bench.cases.tables import DOCS, blocks, terminal, with_figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cases", description=__doc__)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="everything, for machines")
    how.add_argument("--update-docs", action="store_true", help="write the tables of docs/rules")
    options = parser.parse_args()
    found = report()
    if options.json:
        print(json.dumps(as_json(found), indent=2))
        return
    if options.update_docs:
        tables = blocks(found)
        for path in sorted(DOCS.glob("*.md")):
            page = path.read_text(encoding="utf-8")
            path.write_text(with_figures(page, tables), encoding="utf-8")
        return
    console = Console(highlight=False)
    for scope in (found.measured, found.everything):
        console.print(terminal(scope))
    robust = found.break_even
    print(
        "Unknown stays on. The thresholds of batch, acceptance rate and acceptance length are the\n"
        "best ones on these cases, which favours them; nothing of a pack was chosen on them.\n"
        "cost_ratio comes from one other case of the same source, model, hardware, method and\n"
        "depth at the nearest batch.\n\n"
        f"break-even with any of the equally near cases: {robust.any_nearest:.3f}; "
        f"from another batch only: {robust.other_batch.judged or 0:.3f} "
        f"({robust.other_batch.unknown} Unknown).\n"
        "Losing cases with acceptance length and batch, by source:"
    )
    for source, losing in robust.losing_sources.items():
        print(f"  {losing:3d}  {source}")


if __name__ == "__main__":
    main()
