"""The options that say where a Prometheus is: one group, made into one checked value.

Each option has a variable, and each secret is the name of a file: variables are inherited by every
process, and shown by `kubectl describe pod`.
"""

from pathlib import Path
from typing import Annotated

import typer

from specpilot.telemetry.connection import PrometheusServer, ServerError, parse_headers

_PREFIX = "SPECPILOT_PROMETHEUS"

Url = Annotated[
    str,
    typer.Option(
        envvar=f"{_PREFIX}_URL",
        help="Prometheus, Thanos, Mimir or VictoriaMetrics; empty: direct scrape only.",
    ),
]
BearerTokenFile = Annotated[
    Path | None,
    typer.Option(envvar=f"{_PREFIX}_BEARER_TOKEN_FILE", help="Bearer token, read each time."),
]
Username = Annotated[
    str, typer.Option(envvar=f"{_PREFIX}_USERNAME", help="User of basic authentication.")
]
PasswordFile = Annotated[
    Path | None, typer.Option(envvar=f"{_PREFIX}_PASSWORD_FILE", help="Its password.")
]
CaFile = Annotated[
    Path | None,
    typer.Option(envvar=f"{_PREFIX}_CA_FILE", help="Authorities of the server's certificate."),
]
CertFile = Annotated[
    Path | None, typer.Option(envvar=f"{_PREFIX}_CERT_FILE", help="Client certificate (PEM).")
]
KeyFile = Annotated[
    Path | None, typer.Option(envvar=f"{_PREFIX}_KEY_FILE", help="Key of the same (PEM).")
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--prometheus-insecure-skip-verify",
        envvar=f"{_PREFIX}_INSECURE_SKIP_VERIFY",
        help="Accept any certificate of the server.",
    ),
]
Headers = Annotated[
    str,
    typer.Option(
        envvar=f"{_PREFIX}_HEADERS",
        help="Headers to send, one `Name: value` a line; `X-Scope-OrgID: team-a` names a tenant.",
    ),
]
HeaderFiles = Annotated[
    str,
    typer.Option(
        envvar=f"{_PREFIX}_HEADER_FILES",
        help="Headers whose value is secret, one `Name: /path/of/file` a line.",
    ),
]


def prometheus_server(
    *,
    url: str,
    bearer_token_file: Path | None,
    username: str,
    password_file: Path | None,
    ca_file: Path | None,
    cert_file: Path | None,
    key_file: Path | None,
    insecure_skip_verify: bool,
    headers: str,
    header_files: str,
) -> PrometheusServer | None:
    """Return what the options describe; None without a URL.

    Raises:
        typer.BadParameter: They contradict each other, or a file cannot be used.
    """
    others = {
        "bearer-token-file": bearer_token_file,
        "username": username,
        "password-file": password_file,
        "ca-file": ca_file,
        "cert-file": cert_file,
        "key-file": key_file,
        "insecure-skip-verify": insecure_skip_verify,
        "headers": headers.strip(),
        "header-files": header_files.strip(),
    }
    if not url.strip():
        lonely = next((name for name, value in others.items() if value), "")
        if lonely:
            raise typer.BadParameter(
                f"--prometheus-{lonely} belongs to no server; add --prometheus-url, or drop it"
            )
        return None
    try:
        files = parse_headers(header_files, name="header_files")
        return PrometheusServer(
            url=url.strip(),
            bearer_token_file=bearer_token_file,
            username=username,
            password_file=password_file,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            verify=not insecure_skip_verify,
            headers=parse_headers(headers, name="headers"),
            header_files={name: Path(path) for name, path in files.items()},
        )
    except ServerError as error:
        raise typer.BadParameter(str(error)) from error
