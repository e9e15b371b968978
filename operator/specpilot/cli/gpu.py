"""The options that say where numbers of GPUs come from."""

import re
from collections.abc import Iterable
from typing import Annotated

import typer

from specpilot.telemetry.gpu import page_url

_VARIABLE = "SPECPILOT_GPU_EXPORTERS"

Exporters = Annotated[
    str,
    typer.Option(
        envvar=_VARIABLE,
        help="Pages of GPU exporters, comma-separated, one for each node; asked for what "
        "Prometheus does not know.",
    ),
]
ExporterList = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu-exporter",
        envvar=_VARIABLE,
        metavar="URL",
        help="Page of a GPU exporter on this machine, http://127.0.0.1:9400; may be repeated.",
    ),
]
Matchers = Annotated[
    str,
    typer.Option(
        envvar="SPECPILOT_GPU_MATCHERS",
        help='PromQL matchers for the GPU exporters\' series in Prometheus: cluster="a".',
    ),
]


def exporter_urls(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses in these texts, which may hold several each.

    Raises:
        typer.BadParameter: One of them is no URL.
    """
    urls = [url for text in texts for url in re.split(r"[,\s]+", text) if url]
    try:
        return tuple(dict.fromkeys(page_url(url) for url in urls))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
