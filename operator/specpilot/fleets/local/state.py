"""What a group was told to run, kept on disk; and the lock that keeps a second supervisor out."""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from specpilot.domain.ports import FleetError
from specpilot.domain.settings import Declared

_FORMAT = 1


class GroupLockedError(FleetError):
    """Another supervisor has the group."""


class StateFileError(FleetError):
    """The state file cannot be read or understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """What a group is to run.

    Attributes:
        declared: What the group says new replicas should run.
        slots: What each slot runs, which differs from it while there is a canary.
        gateway_port: Port of the gateway, so that a chosen one stays.
    """

    declared: Declared
    slots: tuple[Declared, ...]
    gateway_port: int = 0

    def sized(self, replicas: int) -> "GroupRecord":
        """Fit to another number of replicas: further ones run what the group declares."""
        kept = self.slots[:replicas]
        return GroupRecord(
            declared=self.declared,
            slots=kept + (self.declared,) * (replicas - len(kept)),
            gateway_port=self.gateway_port,
        )


class StateFile:
    """The record of one group, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> GroupRecord | None:
        """Return the record, None when the group has never run.

        Raises:
            StateFileError: There is a file, and it is not understood.
        """
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            if content["format"] != _FORMAT:
                raise ValueError(f"format {content['format']!r} instead of {_FORMAT}")
            return GroupRecord(
                declared=_declared(content["declared"]),
                slots=tuple(_declared(each) for each in content["slots"]),
                gateway_port=int(content["gateway_port"]),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StateFileError(
                f"state file {self._path}: {error}; repair it, or remove it to start the group "
                "with its initial setting"
            ) from error

    def write(self, record: GroupRecord) -> None:
        """Replace the record; after a crash there is the old or the new one, never half of it.

        Raises:
            FleetError: It could not be written.
        """
        content = {"format": _FORMAT, **asdict(record)}
        scratch = self._path.with_name(self._path.name + ".new")
        try:
            with scratch.open("w", encoding="utf-8") as file:
                json.dump(content, file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self._path)
        except OSError as error:
            raise FleetError(
                f"state file {self._path}: {error}; free or unlock its disk"
            ) from error


class GroupLock:
    """Held as long as this process lives; the kernel lets go of it, however the process ends."""

    def __init__(self, path: Path, *, group: str) -> None:
        self._path = path
        self._group = group
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            GroupLockedError: Somebody has it; the message says who.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+", encoding="ascii")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise GroupLockedError(
                f"local group {self._group!r} is supervised by process {holder} already "
                f"(lock file {self._path}); stop that one, or use another state directory"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        """Let go. The file stays: removing it could take the lock from under somebody else."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _declared(content: Mapping[str, object]) -> Declared:
    setting, config, change_id = (content[key] for key in ("setting", "config", "change_id"))
    if not (isinstance(setting, str) and isinstance(config, str) and isinstance(change_id, str)):
        raise TypeError(f"{content!r} is no declared setting")
    return Declared(setting=setting, config=config, change_id=change_id)
