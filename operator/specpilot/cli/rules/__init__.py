"""`specpilot rules`: rules written, checked, versioned, tested and replayed."""

import typer

from specpilot.cli.rules.apply import apply
from specpilot.cli.rules.diff import diff
from specpilot.cli.rules.evaluate import evaluate
from specpilot.cli.rules.lint import lint
from specpilot.cli.rules.replay import replay
from specpilot.cli.rules.shelf import history, list_rule_sets, show
from specpilot.cli.rules.testing import run_tables

app = typer.Typer(help="Write, check, version, test and replay rules.", no_args_is_help=True)
app.command("lint")(lint)
app.command("test")(run_tables)
app.command("apply")(apply)
app.command("list")(list_rule_sets)
app.command("show")(show)
app.command("diff")(diff)
app.command("history")(history)
app.command("evaluate")(evaluate)
app.command("replay")(replay)
