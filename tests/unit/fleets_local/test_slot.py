"""The life of one replica, with processes that do as they are told and time that stands still."""

from concurrent.futures import Future
from datetime import UTC, datetime, timedelta

import pytest

from specpilot.domain.settings import Declared
from specpilot.fleets.local import LocalGroup, Supervision
from specpilot.fleets.local.probe import Health
from specpilot.fleets.local.process import Started
from specpilot.fleets.local.routing import Router
from specpilot.fleets.local.slot import Slot

OFF = Declared()
ON = Declared(setting="on", config="{}", change_id="c1")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class FakeProcess:
    patience = 40.0

    def __init__(self):
        self.code = None
        self.stopped = False
        self.killed = False
        self.line = ""

    def exit_code(self):
        return self.code

    def stop(self):
        self.stopped = True

    def kill(self):
        self.killed = True

    def last_line(self):
        return self.line


class World:
    """The machine, the clock and the gateway's view of one slot."""

    def __init__(self, **spec):
        self.time = 0.0
        self.processes = []
        self.healthy = {}
        self.refuse = None
        self.router = Router()
        self.spec = LocalGroup(
            name="chat",
            command=("serve",),
            **{
                "start_timeout": 100.0,
                "drain": 20.0,
                "supervision": Supervision(
                    probe_every=1, unready_after=3, hang_after=10, stable_after=60
                ),
            }
            | spec,
        )
        self.slot = Slot(0, OFF, spec=self.spec, machine=self, router=self.router, clock=self)

    def now(self):
        return BEGIN + timedelta(seconds=self.time)

    def launch(self, _index, declared):
        if self.refuse:
            raise self.refuse
        process = FakeProcess()
        self.processes.append(process)
        number = len(self.processes)
        started = Started(
            declared=declared, host="h", port=number, instance=f"chat-0@{number}", at=self.now()
        )
        return process, started

    def check(self, started, *, ask_version):
        answer = Future()
        ok = self.healthy.get(started.port, False)
        answer.set_result(Health(ok=ok, version="1.2" if ok and ask_version else None))
        return answer

    def pass_time(self, seconds):
        for _ in range(round(seconds * 2)):
            self.time += 0.5
            self.slot.tick(self.time)

    @property
    def last(self):
        return self.processes[-1]

    def bring_up(self):
        self.pass_time(0.5)
        self.healthy[len(self.processes)] = True
        self.pass_time(2)
        assert self.slot.view().ready
        return self.last

    def replica(self):
        (replica,) = self.slot.replicas()
        return replica

    def request(self):
        return self.router.acquire()


def test_a_server_gets_requests_when_its_health_check_succeeds_and_not_before():
    world = World()
    world.pass_time(5)
    assert world.request() is None
    assert not world.replica().ready
    assert world.slot.rolling() == "chat-0: starting with setting 'off'"
    world.bring_up()
    assert world.request().key == "chat-0@1"
    assert world.replica().ready_since == BEGIN + timedelta(seconds=6.5)
    assert world.replica().started_at == BEGIN + timedelta(seconds=0.5)
    assert world.slot.rolling() == ""
    assert world.slot.run.version == "1.2"


def test_a_crash_waits_longer_each_time_and_says_what_happened():
    world = World()
    waits = []
    for attempt in range(1, 9):
        world.pass_time(0.5)
        assert len(world.processes) == attempt
        world.last.line = "ValueError: no such head"
        world.pass_time(2)
        world.last.code = 1
        before = world.time
        world.pass_time(0.5)
        failure = world.replica().failure
        while len(world.processes) == attempt:
            world.pass_time(0.5)
        waits.append(round(world.time - before - 0.5))
        assert failure == (
            f"exited with 1 after 2 s, restart {attempt} in "
            f"{waits[-1]} s; last line of log: ValueError: no such head"
        )
        assert world.replica().failure == failure, "said until it is ready again"
        assert world.replica().restarts == attempt
        world.time -= 0.5
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_running_stably_resets_the_wait():
    world = World()
    for _ in range(3):
        world.pass_time(10)
        world.last.code = 1
        world.pass_time(0.5)
    assert "in 4 s" in world.replica().failure
    world.pass_time(5)
    world.bring_up()
    assert world.replica().failure == ""
    world.pass_time(61)
    world.last.code = -0
    world.pass_time(0.5)
    assert world.replica().failure.startswith("exited with 0 after ")
    assert "restart 4 in 1 s" in world.replica().failure


def test_a_killed_server_is_reported_with_its_signal():
    world = World()
    world.bring_up()
    world.last.code = 137
    world.pass_time(0.5)
    assert world.replica().failure.startswith("killed by SIGKILL after ")
    assert world.request() is None


def test_a_server_that_does_not_come_up_in_time_is_restarted():
    world = World()
    world.pass_time(100)
    assert not world.last.stopped
    world.pass_time(1)
    assert world.last.stopped
    assert world.replica().failure == "not ready after 100 s"
    world.last.code = 143
    world.pass_time(0.5)
    assert world.replica().failure.startswith("not ready after 100 s, restart 1 in 1 s")
    world.pass_time(1)
    assert len(world.processes) == 2


def test_a_hung_server_loses_its_requests_first_and_its_life_later():
    world = World()
    world.bring_up()
    world.healthy[1] = False
    world.pass_time(3)
    assert world.replica().ready, "one failed check says little"
    world.pass_time(2)
    assert not world.replica().ready
    assert world.request() is None
    assert not world.last.stopped
    world.pass_time(8)
    assert world.last.stopped
    assert world.replica().failure.startswith("no answer on /health for 1")
    assert not world.replica().terminating
    world.last.code = 137
    world.pass_time(2)
    assert len(world.processes) == 2


def test_a_server_that_answers_again_gets_requests_again():
    world = World()
    world.bring_up()
    world.healthy[1] = False
    world.pass_time(5)
    world.healthy[1] = True
    world.pass_time(3)
    assert world.replica().ready
    assert world.request() is not None
    assert not world.last.stopped


def test_a_shim_that_does_not_stop_its_server_in_time_is_killed():
    world = World(drain=0)
    world.bring_up()
    world.slot.replace(ON, now=world.time)
    world.pass_time(40)
    assert world.last.stopped
    assert not world.last.killed
    world.pass_time(2)
    assert world.last.killed


def test_replacing_drains_first_then_stops_then_starts():
    world = World()
    world.bring_up()
    request = world.request()
    world.slot.replace(ON, now=world.time)
    world.pass_time(10)
    assert world.request() is None, "no new requests"
    assert not world.last.stopped
    assert world.replica().terminating
    assert world.replica().declared == OFF, "what the process runs, not what is wished"
    assert world.slot.rolling() == "chat-0: draining, 1 request in flight"
    request.release()
    world.pass_time(0.5)
    assert world.last.stopped
    assert world.slot.rolling() == "chat-0: stopping"
    assert len(world.processes) == 1
    world.last.code = 143
    world.pass_time(0.5)
    assert len(world.processes) == 2
    assert world.replica().declared == ON
    assert world.replica().failure == ""
    assert world.slot.rolling() == "chat-0: starting with setting 'on'"
    world.bring_up()
    assert world.request().key == "chat-0@2"


def test_draining_has_an_end():
    world = World()
    world.bring_up()
    world.request()
    world.slot.replace(ON, now=world.time)
    world.pass_time(19)
    assert not world.last.stopped
    world.pass_time(1.5)
    assert world.last.stopped


def test_a_server_that_crashes_while_draining_is_replaced_without_a_wait():
    world = World()
    world.bring_up()
    world.request()
    world.slot.replace(ON, now=world.time)
    world.last.code = 1
    world.pass_time(0.5)
    assert len(world.processes) == 2
    assert world.replica().failure == ""


def test_keeping_gives_a_draining_server_its_requests_back():
    world = World()
    world.bring_up()
    world.request()
    world.slot.replace(ON, now=world.time)
    world.pass_time(1)
    world.slot.keep(now=world.time)
    world.pass_time(1)
    assert world.replica().ready
    assert world.slot.assigned == OFF
    assert world.slot.rolling() == ""
    assert world.request().key == "chat-0@1"
    assert len(world.processes) == 1


def test_another_setting_forgets_the_crashes_of_the_former_one():
    world = World()
    for _ in range(5):
        world.pass_time(20)
        world.last.code = 1
        world.pass_time(0.5)
    count = len(world.processes)
    world.slot.replace(ON, now=world.time)
    world.pass_time(0.5)
    assert len(world.processes) == count + 1, "at once"
    assert world.replica().restarts == 0
    assert world.replica().failure == ""


@pytest.mark.parametrize("error", [ValueError("0.9 cannot run it"), OSError("no memory")])
def test_what_cannot_be_started_is_tried_again_later(error):
    world = World()
    world.refuse = error
    world.pass_time(0.5)
    assert world.replica().failure == f"cannot be started: {error}, restart 1 in 1 s"
    world.refuse = None
    world.pass_time(2)
    assert len(world.processes) == 1


class TestSurge:
    def world(self):
        world = World(surge=True)
        world.bring_up()
        return world

    def test_the_former_serves_until_the_new_one_does(self):
        world = self.world()
        former = world.last
        request = world.request()
        world.slot.replace(ON, now=world.time)
        world.pass_time(5)
        assert [r.declared for r in world.slot.replicas()] == [OFF, ON]
        assert world.request().key == "chat-0@1"
        world.bring_up()
        assert world.request().key == "chat-0@2"
        old, new = world.slot.replicas()
        assert (old.terminating, old.declared) == (True, OFF)
        assert (new.ready, new.declared) == (True, ON)
        assert not former.stopped, "it still has requests"
        request.release()
        world.pass_time(21)
        assert former.stopped
        former.code = 0
        world.pass_time(0.5)
        assert world.replica().declared == ON
        assert world.slot.rolling() == ""

    def test_a_crash_of_the_new_one_leaves_the_former_in_place_and_is_told(self):
        world = self.world()
        world.slot.replace(ON, now=world.time)
        world.pass_time(1)
        world.last.code = 1
        world.pass_time(0.5)
        serving, failing = world.slot.replicas()
        assert serving.ready
        assert serving.failure == ""
        assert failing.declared == ON
        assert failing.failure.startswith("exited with 1")
        world.pass_time(1.5)
        assert len(world.processes) == 3
        world.slot.keep(now=world.time)
        world.pass_time(0.5)
        assert world.last.stopped
        assert not world.processes[0].stopped
        world.last.code = 143
        world.pass_time(0.5)
        assert world.replica().declared == OFF
        assert world.replica().ready

    def test_a_crash_of_the_former_makes_the_new_one_the_replica(self):
        world = self.world()
        world.slot.replace(ON, now=world.time)
        world.pass_time(1)
        world.processes[0].code = 1
        world.pass_time(5)
        assert len(world.processes) == 2
        assert world.replica().declared == ON

    def test_what_does_not_serve_is_replaced_in_place(self):
        world = World(surge=True)
        world.pass_time(1)
        world.slot.replace(ON, now=world.time)
        world.pass_time(1)
        assert world.last.stopped
        assert len(world.processes) == 1
