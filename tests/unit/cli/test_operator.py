"""The operator refuses to start with what would be undone or answered by nobody."""

import pytest
from typer.testing import CliRunner

from specpilot.cli.main import app


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--field-manager", "kubectl-specpilot"], "take another name, such as specpilot"),
        (["--namespaces", "a", "--ignore-namespaces", "b"], "drop --ignore-namespaces"),
    ],
)
def test_what_cannot_work_is_refused(options: list[str], says: str) -> None:
    """flux2#2526, kustomize-controller#558: fields of managers named kubectl* are undone."""
    done = CliRunner().invoke(app, ["operator", *options], env={"COLUMNS": "400"})
    assert done.exit_code == 2
    assert says in " ".join(done.output.replace("│", " ").split()), done.output
