"""Certificates for tests, made with the openssl program."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in files."""

    cert: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """One that signs certificates."""

    pair: Pair

    @classmethod
    def make(cls, directory: Path, name: str) -> Authority:
        directory.mkdir(parents=True, exist_ok=True)
        pair = Pair(directory / f"{name}.crt", directory / f"{name}.key")
        # Not as -addext: openssl 3 would add its own defaults beside them.
        extensions = directory / f"{name}.cnf"
        extensions.write_text(
            "[req]\ndistinguished_name=dn\nx509_extensions=ca\n[dn]\n"
            "[ca]\nbasicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign,cRLSign\n"
            "subjectKeyIdentifier=hash\n"
        )
        _openssl(
            *("req", "-x509", "-days", "2", "-subj", f"/CN={name}", "-config", extensions),
            *(*_KEY, "-keyout", pair.key, "-out", pair.cert),
        )
        return cls(pair)

    def issue(self, name: str, *, directory: Path | None = None) -> Pair:
        """A certificate for 127.0.0.1 that serves both ends."""
        directory = directory or self.pair.cert.parent
        directory.mkdir(parents=True, exist_ok=True)
        pair = Pair(directory / f"{name}.crt", directory / f"{name}.key")
        request, extensions = directory / f"{name}.csr", directory / f"{name}.ext"
        extensions.write_text(
            "basicConstraints=CA:false\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n"
            "keyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        _openssl("req", "-new", "-subj", f"/CN={name}", *_KEY, "-keyout", pair.key, "-out", request)
        _openssl(
            *("x509", "-req", "-days", "2", "-in", request, "-extfile", extensions),
            *("-CA", self.pair.cert, "-CAkey", self.pair.key, "-out", pair.cert),
        )
        return pair

    def server(self, pair: Pair, *, ask_client: bool = False) -> ssl.SSLContext:
        """What a server of this authority needs; clients need a certificate of it, too."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        if ask_client:
            context.load_verify_locations(self.pair.cert)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(
        ["openssl", *map(str, words)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"openssl {words[0]}: {done.stderr}"
