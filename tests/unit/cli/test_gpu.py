"""The options that say where numbers of GPUs come from."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from specpilot.cli.gpu import exporter_urls
from specpilot.cli.main import app


@pytest.mark.parametrize(
    ("texts", "urls", "reason"),
    [
        ([], (), "none"),
        ([""], (), "an empty variable"),
        (["http://a:9400, http://b:9400/gpu"], ("http://a:9400/metrics", "http://b:9400/gpu"), "2"),
        (["http://a:9400", "http://b"], ("http://a:9400/metrics", "http://b/metrics"), "repeated"),
        (["http://a", "http://a/"], ("http://a/metrics",), "one page is fetched once"),
    ],
)
def test_addresses(texts: list[str], urls: tuple[str, ...], reason: str) -> None:
    assert exporter_urls(texts) == urls, reason


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match=r"give it as http://host:port"):
        exporter_urls(["http://a:9400,node-1:9400"])


@pytest.mark.parametrize(
    ("command", "environment", "says"),
    [
        ("operator", {"SPECPILOT_GPU_EXPORTERS": "node-1:9400"}, "give it as http://host:port"),
        ("local", {"SPECPILOT_GPU_EXPORTERS": "http://a node-1"}, "give it as http://host:port"),
        ("operator", {"SPECPILOT_GPU_MATCHERS": 'cluster="a"'}, "belongs to no server"),
    ],
)
def test_nothing_is_started_with_a_mistake(
    command: str, environment: dict[str, str], says: str
) -> None:
    done = CliRunner().invoke(app, [command], env={**environment, "COLUMNS": "400"})
    assert done.exit_code == 2, done.output
    assert says in " ".join(done.output.replace("│", " ").split()), done.output
