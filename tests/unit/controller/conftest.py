"""Where worlds keep their databases: in memory, since each step of them is a transaction."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory that no disk is waited for, where the system has one."""
    if not SHARED_MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="world-", dir=SHARED_MEMORY) as made:
        yield Path(made)
