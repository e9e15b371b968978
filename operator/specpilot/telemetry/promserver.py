"""Where a Prometheus is and how it wants to be asked: one value, checked when it is made.

A wrong path or half a key pair is a mistake of whoever configured it, and is told at the start, by
the name of the field; not minutes later as signals that are Unknown. Secrets are named by file and
never held here, because they rotate; each is read once at construction to see that it can be.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name (RFC 9110, a token)."""
_OURS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "proxy-authorization",
        "transfer-encoding",
    }
)
"""Headers that belong to the transport: another value would break it."""


class ServerError(ValueError):
    """A Prometheus cannot be reached as configured; the text names field, value and remedy."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"Prometheus {name}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusServer:
    """A Prometheus, or what speaks its query API: Thanos, Mimir, Cortex, VictoriaMetrics.

    Attributes:
        url: Base URL; a path is kept (`https://mimir/prometheus`). User and password may be part
            of it; they are never repeated in a message.
        bearer_token_file: File with a bearer token. Excludes basic authentication.
        username: User of basic authentication, with `password_file`.
        password_file: File with the password.
        ca_file: PEM with the authorities that sign the server's certificate; None: the usual ones.
        cert_file: PEM with the client certificate, for a server that asks for one.
        key_file: PEM with its key, not encrypted.
        verify: False accepts any certificate of the server.
        headers: Sent with every request, such as the tenant (`X-Scope-OrgID`).
        header_files: Headers whose value is secret: name to file.

    Files are read again for each request, key pair and authorities for each change of the files.

    Raises:
        ServerError: A field is wrong, fields contradict each other, or a file cannot be used.
    """

    url: str = field(repr=False)
    bearer_token_file: Path | None = None
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    verify: bool = True
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    header_files: Mapping[str, Path] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        parts = _checked_url(self.url)
        self._check_credentials(parts)
        self._check_headers()
        self._check_tls(parts.scheme)

    @property
    def base_url(self) -> str:
        """The URL without credentials and without a slash at its end."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, self.address, parts.path.rstrip("/"), "", ""))

    @property
    def address(self) -> str:
        """Host and port as in the URL, for messages."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def user_and_password(self) -> tuple[str, str] | None:
        """The credentials in the URL, decoded; None when there are none."""
        parts = urlsplit(self.url)
        if parts.username is None or parts.password is None:
            return None
        return unquote(parts.username), unquote(parts.password)

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return urlsplit(self.url).scheme == "https"

    @property
    def tls_files(self) -> tuple[Path, ...]:
        """Files that a new TLS connection reads."""
        return tuple(f for f in (self.ca_file, self.cert_file, self.key_file) if f is not None)

    def _check_credentials(self, parts: SplitResult) -> None:
        in_url = parts.username is not None or parts.password is not None
        if in_url and (not parts.username or parts.password is None):
            raise ServerError(
                "url",
                f"credentials before @{self.address} are incomplete; write user:password@, "
                "or use username and password_file",
            )
        if self.username and not self.password_file:
            raise ServerError(
                "username", f"{self.username!r} has no password; add password_file, or drop it"
            )
        if self.password_file and not self.username:
            raise ServerError(
                "password_file", f"{self.password_file} belongs to no user; add username"
            )
        if ":" in self.username or not self.username.isprintable():
            raise ServerError(
                "username", f"{self.username!r} holds a colon or a control character; drop it"
            )
        authorization = any(
            name.lower() == "authorization" for name in (*self.headers, *self.header_files)
        )
        given = [
            name
            for name, is_set in (
                ("user and password in url", in_url),
                ("bearer_token_file", self.bearer_token_file is not None),
                ("username and password_file", bool(self.username)),
                ("a header Authorization", authorization),
            )
            if is_set
        ]
        if len(given) > 1:
            raise ServerError("credentials", f"{' and '.join(given)} exclude each other; keep one")
        if self.bearer_token_file:
            read_token(self.bearer_token_file)
        if self.password_file:
            read_password(self.password_file)

    def _check_headers(self) -> None:
        seen: set[str] = set()
        for name in (*self.headers, *self.header_files):
            if not _NAME.fullmatch(name):
                raise ServerError(
                    "headers", f"{name!r} is no name of a header; write one like X-Scope-OrgID"
                )
            if name.lower() in _OURS:
                raise ServerError("headers", f"{name} is set by the connection itself; drop it")
            if name.lower() in seen:
                raise ServerError("headers", f"{name} is given twice; keep one")
            seen.add(name.lower())
        for name, value in self.headers.items():
            if not _is_header_value(value):
                raise ServerError(
                    "headers",
                    f"the value of {name} is empty or holds what a header cannot (a control "
                    "character, a character beyond Latin-1, white space at an end)",
                )
        for name, path in self.header_files.items():
            read_header(name, path)

    def _check_tls(self, scheme: str) -> None:
        used = [
            name
            for name, is_set in (
                ("ca_file", self.ca_file is not None),
                ("cert_file", self.cert_file is not None),
                ("key_file", self.key_file is not None),
                ("verify=False", not self.verify),
            )
            if is_set
        ]
        if used and scheme != "https":
            raise ServerError(
                used[0], f"{self.base_url} does not use TLS; write https://, or drop {used[0]}"
            )
        if self.ca_file and not self.verify:
            raise ServerError(
                "ca_file", f"{self.ca_file} is never used where verify is False; drop one"
            )
        for name, path, other in (
            ("cert_file", self.cert_file, "key_file"),
            ("key_file", self.key_file, "cert_file"),
        ):
            if path is not None and getattr(self, other) is None:
                raise ServerError(
                    name, f"{path} needs {other}; name the same file if it holds both"
                )
        check_tls_files(self)


def check_tls_files(server: PrometheusServer) -> None:
    """Load authorities and key pair as a connection would.

    Raises:
        ServerError: A file cannot be read or used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if server.ca_file:
        _read(server.ca_file, name="ca_file")
        try:
            context.load_verify_locations(cafile=server.ca_file)
        except (ssl.SSLError, ValueError):
            raise ServerError(
                "ca_file", f"{server.ca_file} holds no certificate; it must be PEM"
            ) from None
    if server.cert_file and server.key_file:
        _read(server.cert_file, name="cert_file")
        if "ENCRYPTED" in _read(server.key_file, name="key_file"):
            raise ServerError(
                "key_file", f"{server.key_file} is encrypted; store the key without a passphrase"
            )
        try:
            context.load_cert_chain(server.cert_file, server.key_file, password="")
        except (ssl.SSLError, ValueError) as error:
            mismatch = getattr(error, "reason", "") == "KEY_VALUES_MISMATCH"
            problem = "are not of one pair" if mismatch else "are not both PEM"
            raise ServerError(
                "cert_file",
                f"{server.cert_file} and key_file {server.key_file} {problem}; "
                "name a certificate and its key",
            ) from None


def read_token(path: Path) -> str:
    """Read a bearer token.

    Raises:
        ServerError: It cannot be read or cannot be sent.
    """
    token = _secret(path, name="bearer_token_file")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ServerError(
            "bearer_token_file", f"{path} holds more than one token; it must be one word of ASCII"
        )
    return token


def read_password(path: Path) -> str:
    """Read a password; white space around it is none of it, as in Prometheus' own files.

    Raises:
        ServerError: It cannot be read or cannot be sent.
    """
    password = _secret(path, name="password_file")
    if not password.isprintable():
        raise ServerError(
            "password_file", f"{path} holds a control character; it must be one line of text"
        )
    return password


def read_header(name: str, path: Path) -> str:
    """Read the value of a header.

    Raises:
        ServerError: It cannot be read or cannot be sent.
    """
    value = _secret(path, name=f"header_files {name}")
    if not _is_header_value(value):
        raise ServerError(
            f"header_files {name}",
            f"{path} holds what a header cannot; it must be one line of Latin-1",
        )
    return value


def parse_headers(text: str, *, name: str) -> dict[str, str]:
    """Read headers as HTTP itself writes them: `Name: value`, one a line.

    A value may hold commas, equals signs, quotes and colons, but never the end of a line, so
    nothing needs to be escaped. Empty lines are skipped.

    Args:
        text: The lines.
        name: What they are called, for messages.

    Raises:
        ServerError: A line is not of that form, or a name comes twice. The text tells only the
            number of the line: a value may be secret.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        header, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not header or not value:
            raise ServerError(name, f"line {number} is not of the form `Name: value`")
        if header.lower() in (each.lower() for each in found):
            raise ServerError(name, f"line {number} gives {header} again; keep one")
        found[header] = value
    return found


def _checked_url(url: str) -> SplitResult:
    """The parts of a URL that can be asked."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ServerError("url", "host or port is malformed; write http://host:port") from None
    address = parts.netloc.rpartition("@")[2]
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ServerError(
            "url",
            "write it as http://host:port or https://host/path "
            f"(the scheme is {parts.scheme!r}, the host {parts.hostname!r})",
        )
    if re.search(r"[\s\\\x00-\x1f\x7f]", url):
        raise ServerError("url", f"white space or a backslash in the URL of {address}; drop it")
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        raise ServerError(
            "url",
            f"a query string or fragment follows {address}{parts.path}; drop it, "
            "and send what a proxy needs as headers",
        )
    if match := re.search(r"/api/v1(/.*)?$", parts.path):
        raise ServerError(
            "url", f"drop {match[0]} after {address}{parts.path[: match.start()]}: it is added"
        )
    return parts


def _is_header_value(value: str) -> bool:
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return (
        bool(value) and value == value.strip() and not re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value)
    )


def _secret(path: Path, *, name: str) -> str:
    text = _read(path, name=name).strip()
    if not text:
        raise ServerError(name, f"{path} is empty; put the secret into it")
    return text


def _read(path: Path, *, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ServerError(
            name, f"cannot read {path} ({why}); is the Secret mounted, and readable by this user?"
        ) from None
    except UnicodeDecodeError:
        raise ServerError(name, f"{path} is not text; it must be UTF-8") from None
