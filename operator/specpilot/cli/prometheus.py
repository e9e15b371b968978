"""The options that say where a Prometheus is: one group, made into one checked value.

Each option has a variable, and each secret is the name of a file: variables are inherited by every
process, and shown by `kubectl describe pod`.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from specpilot.telemetry.connection import PrometheusServer, ServerError, parse_headers

_PREFIX = "SPECPILOT_PROMETHEUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was given; the option of a field is `--prometheus-` and its name."""

    url: str = ""
    bearer_token_file: Annotated[
        Path | None,
        typer.Option(envvar=f"{_PREFIX}_BEARER_TOKEN_FILE", help="Bearer token, read each time."),
    ] = None
    username: Annotated[
        str, typer.Option(envvar=f"{_PREFIX}_USERNAME", help="User of basic authentication.")
    ] = ""
    password_file: Annotated[
        Path | None, typer.Option(envvar=f"{_PREFIX}_PASSWORD_FILE", help="Its password.")
    ] = None
    ca_file: Annotated[
        Path | None,
        typer.Option(envvar=f"{_PREFIX}_CA_FILE", help="Authorities of the server's certificate."),
    ] = None
    cert_file: Annotated[
        Path | None, typer.Option(envvar=f"{_PREFIX}_CERT_FILE", help="Client certificate (PEM).")
    ] = None
    key_file: Annotated[
        Path | None, typer.Option(envvar=f"{_PREFIX}_KEY_FILE", help="Key of the same (PEM).")
    ] = None
    insecure_skip_verify: Annotated[
        bool,
        typer.Option(
            "--prometheus-insecure-skip-verify",
            envvar=f"{_PREFIX}_INSECURE_SKIP_VERIFY",
            help="Accept any certificate of the server.",
        ),
    ] = False
    headers: Annotated[
        str,
        typer.Option(
            envvar=f"{_PREFIX}_HEADERS",
            help="Headers to send, one `Name: value` a line; `X-Scope-OrgID: team-a` names a "
            "tenant.",
        ),
    ] = ""
    header_files: Annotated[
        str,
        typer.Option(
            envvar=f"{_PREFIX}_HEADER_FILES",
            help="Headers whose value is secret, one `Name: /path/of/file` a line.",
        ),
    ] = ""

    def server(self) -> PrometheusServer | None:
        """Return what they describe; None without a URL.

        Raises:
            typer.BadParameter: They contradict each other, or a file cannot be used.
        """
        if not self.url.strip():
            for field in fields(self):
                if str(getattr(self, field.name) or "").strip():
                    raise typer.BadParameter(
                        f"--prometheus-{field.name.replace('_', '-')} belongs to no server; add "
                        f"--prometheus-url, or drop it"
                    )
            return None
        try:
            files = parse_headers(self.header_files, name="header_files")
            return PrometheusServer(
                url=self.url.strip(),
                bearer_token_file=self.bearer_token_file,
                username=self.username,
                password_file=self.password_file,
                ca_file=self.ca_file,
                cert_file=self.cert_file,
                key_file=self.key_file,
                verify=not self.insecure_skip_verify,
                headers=parse_headers(self.headers, name="headers"),
                header_files={name: Path(path) for name, path in files.items()},
            )
        except ServerError as error:
            raise typer.BadParameter(str(error)) from error


def options(*names: str, url: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options, in the place of its parameter `prometheus_options`.

    Args:
        names: Names of the option for the URL, if not `--prometheus-url`.
        url: Help of the same.
    """
    hint = Annotated[str, typer.Option(*names, envvar=f"{_PREFIX}_URL", help=url)]
    single = [
        inspect.Parameter(
            f"prometheus_{field.name}",
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hint if field.name == "url" else field.type,
        )
        for field in fields(Options)
    ]

    def extended(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {f.name: given.pop(f"prometheus_{f.name}") for f in fields(Options)}
            command(**given, prometheus_options=Options(**values))

        signature = inspect.signature(command)
        whole = [
            parameter
            for own in signature.parameters.values()
            for parameter in (single if own.name == "prometheus_options" else [own])
        ]
        vars(run)["__signature__"] = signature.replace(parameters=whole)  # read by typer
        return run

    return extended
