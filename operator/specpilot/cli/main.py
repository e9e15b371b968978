"""The entry point: the commands, and the one place where an expected error becomes words."""

import logging
import sys
import time

import typer
from rich.console import Console
from rich.logging import RichHandler

from specpilot import __version__
from specpilot.cli import (
    audit,
    demo,
    demo_vllm,
    engines,
    local,
    operator,
    parsing,
    rendering,
    resources,
    rules,
    signals,
    wire,
)
from specpilot.domain.evaluation import RuleSetError
from specpilot.domain.ports import FleetError
from specpilot.fleets.kubernetes.wire import WireError
from specpilot.fleets.local import LocalGroupError
from specpilot.resources import ResourceError
from specpilot.store import StoreError
from specpilot.telemetry.connection import PrometheusError

app = typer.Typer(
    name="specpilot",
    help="Decides from live measurements when speculative decoding pays, and switches it safely.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("local")(local.local)
app.command("operator")(operator.operator)
app.command("apply")(resources.apply)
app.command("get")(resources.get)
app.command("explain")(resources.explain)
app.command("signals")(signals.signals)
app.command("wire")(wire.wire)
app.command("delete")(resources.delete)
app.command("approve")(resources.approve)
app.command("reject")(resources.reject)
app.command("engines")(engines.engines)
app.command("render")(rendering.render_setting)
app.command("parse", context_settings={"allow_extra_args": True})(parsing.parse_line)
app.add_typer(rules.app, name="rules")
app.add_typer(audit.app, name="audit")
app.command("demo")(demo.demo)
app.command("demo-vllm")(demo_vllm.demo_vllm)

EXPECTED = (
    ResourceError,
    RuleSetError,
    StoreError,
    LocalGroupError,
    FleetError,
    PrometheusError,
    WireError,
    OSError,
)
"""Errors whose message is all that a user needs."""


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def _log_handler() -> logging.Handler:
    """Columns for a terminal; in a pod or a file each entry is one whole line, in UTC."""
    if sys.stderr.isatty():
        return RichHandler(console=Console(stderr=True), show_path=False, markup=False)
    formatter = logging.Formatter(
        "%(asctime)s %(levelname)s %(name)s: %(message)s", datefmt="%Y-%m-%dT%H:%M:%SZ"
    )
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    return handler


@app.callback()
def _options(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log what is done, step by step."),
) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(message)s",
        datefmt="[%X]",
        handlers=[_log_handler()],
    )
    for noisy in ("httpx", "httpcore", "alembic", "kubernetes"):
        logging.getLogger(noisy).setLevel(logging.INFO if verbose else logging.WARNING)
    # It logs whole query URLs at every retry; what failed is in the reading.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    # It warns at every run it skips; the runner reports a late tick itself, once.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except EXPECTED as error:
        print(f"error: {_words(error)}", file=sys.stderr)
        sys.exit(1)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
