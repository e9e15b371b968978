"""What survives on disk, and who may use it."""

import json
import os
import socket

import pytest

from specpilot.domain.settings import Declared
from specpilot.fleets.local import free_ports
from specpilot.fleets.local.process import last_line
from specpilot.fleets.local.shim import RotatingFile
from specpilot.fleets.local.state import (
    GroupLock,
    GroupLockedError,
    GroupRecord,
    StateFile,
    StateFileError,
)

ON = Declared(setting="on", config='{"a":1}', change_id="c1")


def test_what_is_written_is_read(tmp_path):
    file = StateFile(tmp_path / "chat.json")
    assert file.read() is None
    record = GroupRecord(declared=ON, slots=(Declared(), ON), gateway_port=8000)
    file.write(record)
    assert file.read() == record
    assert [p.name for p in tmp_path.iterdir()] == ["chat.json"]


def test_another_number_of_replicas_keeps_those_there_are():
    record = GroupRecord(declared=ON, slots=(Declared(), ON))
    assert record.sized(1).slots == (Declared(),)
    assert record.sized(3).slots == (Declared(), ON, ON)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        json.dumps({"format": 2}),
        json.dumps({"format": 1, "declared": {}, "slots": [], "gateway_port": 1}),
        json.dumps(
            {
                "format": 1,
                "declared": {"setting": 1, "config": "", "change_id": ""},
                "slots": [],
                "gateway_port": 1,
            }
        ),
    ],
)
def test_a_file_that_is_not_understood_is_named_with_a_remedy(tmp_path, content):
    path = tmp_path / "chat.json"
    path.write_text(content)
    with pytest.raises(StateFileError, match=r"state file .*chat\.json: .*; repair it, or remove"):
        StateFile(path).read()


def test_a_group_has_one_supervisor(tmp_path):
    path = tmp_path / "chat.lock"
    first, second = GroupLock(path, group="chat"), GroupLock(path, group="chat")
    first.acquire()
    with pytest.raises(GroupLockedError, match=f"'chat' is supervised by process {os.getpid()} "):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_logs_are_bounded(tmp_path):
    path = tmp_path / "chat-0.log"
    log = RotatingFile(path, limit=100, files=3)
    for n in range(50):
        log.write(f"{n:019d}\n".encode())
    files = sorted(tmp_path.iterdir())
    assert [f.name for f in files] == ["chat-0.log", "chat-0.log.1", "chat-0.log.2"]
    assert all(f.stat().st_size <= 100 for f in files)
    kept = "".join(f.read_text() for f in reversed(files)).split()
    assert kept == [f"{n:019d}" for n in range(50)][-len(kept) :]
    assert len(kept) > 10


def test_a_single_log_file_is_begun_anew(tmp_path):
    path = tmp_path / "chat-0.log"
    log = RotatingFile(path, limit=100, files=1)
    for n in range(50):
        log.write(f"{n:019d}\n".encode())
    assert [f.name for f in tmp_path.iterdir()] == ["chat-0.log"]
    assert path.stat().st_size <= 100


LOGS = [
    ("the last line that says something", b"a\n\x1b[31mb\x1b[0m\n \n", "[31mb[0m"),
    ("our own lines do not count", b"x\n[specpilot] t exited with 1\n", "x"),
    ("nor do lines of an earlier start", b"x\n[specpilot] t started as process 3\n", ""),
    ("but why it did not start does", b"[specpilot] t cannot run 'v'\n", "t cannot run 'v'"),
    ("empty", b"", ""),
    ("not text", b"\xff\xfe\n", "\N{REPLACEMENT CHARACTER}" * 2),
    ("endless", b"y" * 50_000, "y" * 300),
]


@pytest.mark.parametrize(("reason", "content", "want"), LOGS, ids=[row[0] for row in LOGS])
def test_last_line(tmp_path, reason, content, want):
    path = tmp_path / "x.log"
    path.write_bytes(content)
    assert last_line(path) == want, reason
    assert last_line(tmp_path / "absent.log") == ""


def test_free_ports_are_not_those_the_system_gives_to_connections():
    port = free_ports.free_port("127.0.0.1")
    assert 20000 <= port < free_ports._ephemeral_start()
    with socket.create_server(("127.0.0.1", port)):
        assert not free_ports.is_free("127.0.0.1", port)
    assert free_ports.is_free("127.0.0.1", port)


def test_an_address_of_another_machine_is_an_error():
    with pytest.raises(OSError, match="assign"):
        free_ports.free_port("192.0.2.1")
