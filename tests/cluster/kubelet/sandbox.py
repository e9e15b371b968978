"""Runs one container's process: ``python sandbox.py run SPEC.json``, or a command beside it.

Where the kernel allows it (root, or user namespaces), the process gets what a container has and the
tests need: mount, PID and UTS namespaces of its own. Hence volumes are at their real ``mountPath``,
the process is PID 1 (so SIGTERM does nothing unless it is handled, as in a container), the host
name is the pod's, and everything it started ends with it. The network is the machine's: a pod
has an address in 127.0.0.0/8 to bind to.

Nothing is written into the machine's file system for that. The root is a tmpfs in which each entry
of ``/`` is bind-mounted; a directory that lacks a mount point is shadowed in the same way.

Without namespaces the volumes are found under the directory named by ``POD_ROOT``, at their mount
path; ``KUBECONFIG`` then points to the pod's own credentials.

Standard library only: this is started isolated (``python -I -S``) and must start quickly.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import stat
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

EXIT_NOT_STARTED = 128
"""The exit code of a container whose command could not be started, as runtimes give it."""

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWUSER, _CLONE_NEWPID = (
    0x00020000,
    0x04000000,
    0x10000000,
    0x20000000,
)
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = (
    1,
    32,
    4096,
    8192,
    16384,
    1 << 18,
)

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _mount(source: str, target: str, *, kind: str = "none", flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _check(result, f"mount {source} on {target}")


def unshare() -> bool:
    """Give this process namespaces of its own; False where the kernel does not allow it."""
    wanted = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWPID
    user, group = os.getuid(), os.getgid()
    if user == 0 and _libc.unshare(wanted) == 0:
        return True
    if _libc.unshare(wanted | _CLONE_NEWUSER):
        return False
    # Who we are stays the same inside; only the right to mount is new.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def _bind(source: str, target: str) -> None:
    if stat.S_ISDIR(os.stat(source).st_mode):  # noqa: PTH116 - one call for both kinds
        os.makedirs(target, exist_ok=True)  # noqa: PTH103
    else:
        Path(target).touch()
    _mount(source, target, flags=_MS_BIND | _MS_REC)


def _mirror(source: str, target: str, *, without: tuple[str, ...] = ()) -> None:
    """Make the tmpfs ``target`` show what ``source`` holds."""
    for entry in os.scandir(source):
        place = os.path.join(target, entry.name)  # noqa: PTH118
        if entry.name in without:
            continue
        with contextlib.suppress(OSError):  # a socket that vanished, a directory we may not enter
            if entry.is_symlink():
                Path(place).symlink_to(Path(entry.path).readlink())
            else:
                _bind(entry.path, place)


class _Root:
    """The file system of one container, in its own mount namespace."""

    def __init__(self, directory: str) -> None:
        _mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
        _mount("tmpfs", directory, kind="tmpfs", data="mode=755")
        _mirror("/", directory, without=("proc",))
        os.mkdir(f"{directory}/proc", 0o755)  # noqa: PTH102
        try:
            _mount("proc", f"{directory}/proc", kind="proc")
        except OSError:  # a masked /proc outside forbids a fresh one inside: share it
            _mount("/proc", f"{directory}/proc", flags=_MS_BIND | _MS_REC)
        os.chroot(directory)
        os.chdir("/")
        self._own = {os.stat("/").st_dev}  # noqa: PTH116
        self._placed: list[str] = []

    def place(self, source: int, path: str, *, read_only: bool) -> None:
        """Show the open file or directory ``source`` at ``path``."""
        target = os.path.realpath(path)
        handle = f"/proc/self/fd/{source}"
        is_directory = stat.S_ISDIR(os.fstat(source).st_mode)
        if not os.path.exists(target):  # noqa: PTH110
            self._make(target, is_directory=is_directory)
        _mount(handle, target, flags=_MS_BIND)
        self._placed.append(target)
        if read_only:
            with contextlib.suppress(OSError):  # user namespaces lock some flags
                _mount("none", target, flags=_MS_BIND | _MS_REMOUNT | _MS_RDONLY)

    def _make(self, target: str, *, is_directory: bool) -> None:
        parent = os.path.dirname(target)  # noqa: PTH120
        ancestor = parent
        while not os.path.exists(ancestor):  # noqa: PTH110
            ancestor = os.path.dirname(ancestor)  # noqa: PTH120
        in_volume = any(f"{target}/".startswith(f"{volume}/") for volume in self._placed)
        if not in_volume and os.stat(ancestor).st_dev not in self._own:  # noqa: PTH116
            self._shadow(ancestor)
        os.makedirs(target if is_directory else parent, exist_ok=True)  # noqa: PTH103
        if not is_directory:
            Path(target).touch()

    def _shadow(self, directory: str) -> None:
        """Replace a directory of the machine by a tmpfs with the same entries."""
        scratch = "/.shadow"
        os.makedirs(scratch, exist_ok=True)  # noqa: PTH103
        _mount("tmpfs", scratch, kind="tmpfs", data="mode=755")
        _mirror(directory, scratch)
        _mount(scratch, directory, flags=_MS_MOVE)
        os.rmdir(scratch)  # noqa: PTH106
        self._own.add(os.stat(directory).st_dev)  # noqa: PTH116


def _become(spec: dict[str, Any], *, isolated: bool) -> NoReturn:
    """Turn this process into the container's."""
    environment: dict[str, str] = spec["environment"]
    try:
        if isolated:
            sources = [
                (os.open(mount["source"], os.O_PATH | os.O_CLOEXEC), mount)
                for mount in spec["mounts"]
            ]
            root = _Root(spec["root"])
            socket.sethostname(spec["hostname"])
            for source, mount in sources:
                root.place(source, mount["target"], read_only=mount["readOnly"])
        else:
            environment = {**_imitate(spec), **environment}
        os.chdir(spec["directory"] or "/")
        _execute(spec["command"], environment)
    except OSError as error:
        os.write(spec["error"], f"{spec['command'][0]}: {error}".encode())
        os._exit(EXIT_NOT_STARTED)


def _imitate(spec: dict[str, Any]) -> dict[str, str]:
    """Without namespaces: the volumes under a directory of their own, and a variable to find it."""
    root = Path(spec["root"])
    for mount in spec["mounts"]:
        link = root / mount["target"].lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(mount["source"])
    found = {"POD_ROOT": str(root)}
    if spec["kubeconfig"]:
        found["KUBECONFIG"] = spec["kubeconfig"]
    return found


def _execute(command: list[str], environment: dict[str, str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(command[0], command, environment)


def _wait(child: int) -> int:
    """The child's exit code, 128 + n where signal n ended it; SIGTERM is passed on meanwhile."""

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    signal.signal(signal.SIGTERM, forward)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _die_with_parent(parent: int | None) -> None:
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def run(path: Path) -> int:
    """Run the container that ``path`` describes, and return its exit code."""
    spec = json.loads(path.read_text())
    _die_with_parent(spec["parent"])
    isolated = bool(spec["isolate"]) and unshare()
    error = os.open(spec["startError"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    spec["error"] = error
    alive, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        _die_with_parent(None)
        os.set_blocking(alive, False)
        with contextlib.suppress(BlockingIOError):
            os.read(alive, 1)  # end of file: the parent died before we asked to die with it
            os._exit(1)
        os.setsid()
        _become(spec, isolated=isolated)
    os.close(alive)
    Path(spec["pid"]).write_text(str(child))
    try:
        return _wait(child)
    finally:
        if not isolated:  # there is no namespace that ends the rest
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)


def _namespace(process: int | str, kind: str) -> str:
    return str(Path(f"/proc/{process}/ns/{kind}").readlink())


def enter(pid: int, environment: dict[str, str], command: list[str]) -> int:
    """Run ``command`` where the container whose first process is ``pid`` runs (an exec probe)."""
    _die_with_parent(None)
    if _namespace(pid, "mnt") != _namespace("self", "mnt"):
        foreign = _namespace(pid, "user") != _namespace("self", "user")
        names = ["user"] if foreign else []  # joining one's own is an error
        root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_CLOEXEC)
        handles = [
            os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
            for name in [*names, "uts", "pid", "mnt"]
        ]
        for handle in handles:
            _check(_libc.setns(handle, 0), "setns")
        os.fchdir(root)
        os.chroot(".")
    child = os.fork()
    if child == 0:
        _die_with_parent(None)
        try:
            _execute(command, environment)
        except OSError as error:
            print(error, file=sys.stderr)  # noqa: T201 - the command's standard error
            os._exit(126)
    return _wait(child)


def check() -> int:
    """Try what :func:`run` needs; the answer is an exit code.

    A kernel may give namespaces and yet forbid to mount in them (AppArmor on Ubuntu does).
    """
    try:
        if not unshare():
            return 1
        _mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
        _mount("tmpfs", "/tmp", kind="tmpfs", data="mode=755")
    except OSError:
        return 1
    return 0


def main() -> None:
    """Dispatch ``run SPEC``, ``enter PID ENVIRONMENT COMMAND`` and ``check``."""
    if sys.argv[1] == "check":
        sys.exit(check())
    if sys.argv[1] == "run":
        sys.exit(run(Path(sys.argv[2])))
    environment: dict[str, str] = json.loads(sys.argv[3])
    sys.exit(enter(int(sys.argv[2]), environment, sys.argv[4:]))


if __name__ == "__main__":
    main()
