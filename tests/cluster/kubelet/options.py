"""How the test kubelet is told what to do: a JSON file for its start, another for the images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Image:
    """What an image holds, for the purpose of running it here.

    Attributes:
        entrypoint: the argv that ``command`` of a container would replace.
        arguments: the default arguments, replaced by ``args``.
        environment: the image's own variables; ``PATH`` here lets a container's ``command`` find
            programs that stand for those of the image.
    """

    entrypoint: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BackOff:
    """The pause before a container is started again, in seconds; the first restart is immediate.

    The real kubelet uses 10, 300 and 600; the defaults here let a test see the third restart.
    """

    first: float = 1.0
    longest: float = 5.0
    forgotten_after: float = 30.0


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """The start of a kubelet.

    Attributes:
        server: URL of the API server.
        token: bearer token of a user that may do everything.
        ca_file: certificate bundle of the API server.
        tls_cert_file, tls_key_file: what the kubelet's own server (logs) presents.
        directory: for the pods' volumes and logs.
        images_file: see :func:`write_images`; read anew at each start of a container.
        port: of the kubelet's own server.
        subnet: the second octet of the pods' addresses, 127.SUBNET.x.y.
        isolate: use namespaces where the kernel allows it.
        back_off: of containers that ended.
        refresh: seconds between two projections of ConfigMaps, Secrets and tokens into volumes.
    """

    server: str
    token: str
    ca_file: Path
    tls_cert_file: Path
    tls_key_file: Path
    directory: Path
    images_file: Path
    subnet: int
    port: int
    isolate: bool = True
    back_off: BackOff = field(default_factory=BackOff)
    refresh: float = 5.0

    def save(self, path: Path) -> None:
        """Write for :meth:`load`; the file holds a credential."""
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self), default=str))

    @classmethod
    def load(cls, path: Path) -> KubeletOptions:
        """Read what :meth:`save` wrote."""
        values = json.loads(path.read_text())
        for name in ("ca_file", "tls_cert_file", "tls_key_file", "directory", "images_file"):
            values[name] = Path(values[name])
        return cls(**{**values, "back_off": BackOff(**values["back_off"])})


def write_images(path: Path, images: Mapping[str, Image]) -> None:
    """Write the images by the prefix of their name, replacing the file in one step."""
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps({prefix: asdict(image) for prefix, image in images.items()}))
    scratch.replace(path)


def find_image(path: Path, name: str) -> Image | None:
    """The image whose prefix is the longest that ``name`` starts with."""
    known = json.loads(path.read_text()) if path.exists() else {}
    prefixes = [prefix for prefix in known if name.startswith(prefix)]
    if not prefixes:
        return None
    found = known[max(prefixes, key=len)]
    return Image(
        entrypoint=tuple(found["entrypoint"]),
        arguments=tuple(found["arguments"]),
        environment=found["environment"],
    )
