"""The options that describe a Prometheus, as typed and as variables."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from specpilot.cli.main import app
from specpilot.cli.prometheus import Options
from specpilot.telemetry.connection import PrometheusServer


def test_no_url_is_no_prometheus() -> None:
    assert Options().server() is None


def test_every_option_is_taken(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    found = Options(
        url=" https://mimir/prometheus ",
        username="ann",
        password_file=secret,
        insecure_skip_verify=True,
        headers="X-Scope-OrgID: a|b\n",
        header_files=f"X-Api-Key: {secret}\n",
    )
    assert found.server() == PrometheusServer(
        url="https://mimir/prometheus",
        username="ann",
        password_file=secret,
        verify=False,
        headers={"X-Scope-OrgID": "a|b"},
        header_files={"X-Api-Key": secret},
    )


@pytest.mark.parametrize("name", [f.name for f in fields(Options) if f.name != "url"])
def test_an_option_without_a_server_is_a_mistake(name: str) -> None:
    value: Any = True if name == "insecure_skip_verify" else "X: y"
    with pytest.raises(typer.BadParameter, match="belongs to no server; add --prometheus-url"):
        Options(**{name: value}).server()


@pytest.mark.parametrize(
    ("environment", "says", "reason"),
    [
        ({"URL": "prometheus:9090"}, "write it as http://host:port", "no scheme"),
        ({"URL": "http://p", "HEADERS": "X-A: 1\nX-B=2"}, "headers: line 2", "no colon"),
        ({"URL": "http://p", "BEARER_TOKEN_FILE": "/nowhere"}, "cannot read /nowhere", "no file"),
        ({"USERNAME": "ann"}, "--prometheus-username belongs to no server", "no URL"),
    ],
)
def test_the_operator_refuses_to_start(environment: dict[str, str], says: str, reason: str) -> None:
    variables = {f"SPECPILOT_PROMETHEUS_{name}": value for name, value in environment.items()}
    done = CliRunner().invoke(app, ["operator"], env={**variables, "COLUMNS": "400"})
    assert done.exit_code == 2, reason
    assert says in " ".join(done.output.replace("│", " ").split()), done.output
