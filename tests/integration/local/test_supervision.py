"""Crashes, hangs, dying supervisors, rival supervisors, and what is there afterwards."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import psutil
import pytest

from specpilot.domain.changes import Extent, Intent
from specpilot.domain.ports import FleetError
from specpilot.domain.targets import TargetProblem, TargetRef
from specpilot.fleets.local import LocalFleet, LocalGroupError
from specpilot.fleets.local.process import owned
from specpilot.fleets.local.state import GroupLockedError, StateFileError
from tests.cluster.processes import hear_ctrl_c
from tests.integration.local.support import (
    OFF,
    ON,
    TINY,
    SystemClock,
    environment,
    eventually,
    group,
    processes_of,
    running,
)


def server_of(state_dir, replica):
    """The server's own process, not its shim."""
    port = replica.endpoint.rpartition(":")[2]
    lines = {p: p.cmdline() for p in owned(f"{state_dir}/")}
    (server,) = (p for p, line in lines.items() if port in line and "--grace" not in line)
    return server


def living(processes):
    """Those that are still there, zombies left out."""
    alive = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_its_supervisor(tmp_path, number):
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.local.supervise", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509 - it only sets how a signal is met
    )
    try:
        url = supervisor.stdout.readline().strip()
        eventually(
            lambda: httpx.get(f"{url}/health").status_code == 200, lambda: processes_of(tmp_path)
        )
        # Two shims, and for each a server with three more.
        tree = psutil.Process(supervisor.pid)
        eventually(lambda: len(tree.children(recursive=True)) == 10, tree.children)
        family = tree.children(recursive=True)
        supervisor.send_signal(number)
        supervisor.wait(10)
        eventually(lambda: not living(family), lambda: living(family), deadline=10)
    finally:
        supervisor.kill()
        supervisor.wait()
        supervisor.stdout.close()


def test_a_killed_shim_leaves_nothing_and_the_replica_comes_back(tmp_path):
    with running(group(replicas=1, command=(*TINY, "--family")), tmp_path) as it:
        before = it.until(lambda s: s.all_run(OFF)).replicas[0]
        (shim,) = (p for p in owned(f"{tmp_path}/") if "--grace" in p.cmdline())
        eventually(lambda: len(shim.children(recursive=True)) == 4, shim.children)
        family = shim.children(recursive=True)
        shim.kill()
        after = it.until(lambda s: s.all_run(OFF) and s.replicas[0].instance != before.instance)
        assert after.replicas[0].restarts == 1
        eventually(lambda: not living(family), lambda: living(family), deadline=5)


def test_a_crashed_server_comes_back(tmp_path):
    with running(group(replicas=2), tmp_path) as it:
        before = it.until(lambda s: s.all_run(OFF)).replicas[0]
        server = server_of(tmp_path, before)
        server.send_signal(signal.SIGSEGV)
        state = it.until(lambda s: s.replicas[0].failure)
        assert state.replicas[0].failure.startswith("killed by SIGSEGV after ")
        assert "serving on" in state.replicas[0].failure
        assert state.rolling == ""
        assert httpx.get(f"{it.url}/version").status_code == 200
        state = it.until(lambda s: s.all_run(OFF))
        assert state.replicas[0].restarts == 1
        assert state.replicas[0].failure == ""


def test_a_hung_server_is_restarted_and_gets_no_requests_meanwhile(tmp_path, control):
    spec = group(replicas=2, stop_grace=0.2)
    with running(spec, tmp_path) as it, ThreadPoolExecutor() as pool:
        before = it.until(lambda s: s.all_run(OFF)).replicas[0]
        server = server_of(tmp_path, before)
        server.suspend()  # SIGTERM does not reach it now, SIGKILL does
        it.until(lambda s: not s.replicas[0].ready)
        asked = [pool.submit(httpx.get, f"{it.url}/version", timeout=20) for _ in range(6)]
        state = it.until(lambda s: "no answer on /health" in s.replicas[0].failure)
        assert not state.replicas[0].terminating
        state = it.until(lambda s: s.all_run(OFF))
        assert state.replicas[0].instance != before.instance
        served_by = {answer.result().headers["x-specpilot-replica"] for answer in asked}
        assert before.instance not in served_by


def test_a_command_that_does_not_exist_is_told(tmp_path):
    with running(group(replicas=1, command=("/nonexistent/vllm",)), tmp_path) as it:
        state = it.until(lambda s: s.replicas[0].failure)
        assert "exited with 127" in state.replicas[0].failure
        assert "cannot run '/nonexistent/vllm': No such file" in state.replicas[0].failure


def test_a_second_supervisor_is_refused_and_the_first_goes_on(tmp_path):
    with running(group(replicas=1), tmp_path) as it:
        it.until(lambda s: s.all_run(OFF))
        rival = LocalFleet([group(replicas=1)], state_dir=tmp_path, clock=SystemClock())
        with pytest.raises(GroupLockedError, match=f"supervised by process {os.getpid()} "):
            rival.start()
        assert it.state().all_run(OFF)


def test_a_restart_goes_on_with_what_ran_also_in_the_middle_of_a_canary(tmp_path):
    with running(group(), tmp_path) as it:
        it.until(lambda s: s.all_run(OFF))
        it.intend(ON, extent=Extent.CANARY)
        before = it.until(lambda s: s.halted and not s.rolling)
        url = it.url
    with running(group(), tmp_path) as it:
        state = it.until(lambda s: not s.rolling)
        assert state.halted
        assert state.declared == ON
        assert [r.declared for r in state.replicas] == [r.declared for r in before.replicas]
        assert it.url == url, "clients keep their address"
        kept = {r.instance for r in state.replicas}
        it.intend(ON, extent=Extent.CANARY)
        state = it.until(lambda s: s.halted and not s.rolling)
        assert {r.instance for r in state.replicas} == kept, "nothing to do"
        it.intend(OFF)
        it.until(lambda s: s.all_run(OFF))


def test_another_supervisor_waits_until_the_servers_of_the_dead_one_are_gone(tmp_path):
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.local.supervise", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    url = supervisor.stdout.readline().strip()
    eventually(
        lambda: httpx.get(f"{url}/health").status_code == 200, lambda: processes_of(tmp_path)
    )
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    former = {p.pid for p in owned(f"{tmp_path}/")}
    with running(group(replicas=2), tmp_path) as it:
        eventually(
            lambda: {p.pid for p in owned(f"{tmp_path}/")} - former,
            lambda: processes_of(tmp_path),
        )
        assert not {p.pid for p in owned(f"{tmp_path}/")} & former
        it.until(lambda s: s.all_run(OFF))
        assert it.url == url


def test_an_unreadable_state_is_refused_and_nothing_is_held(tmp_path):
    (tmp_path / "chat.json").write_text("{")
    fleet = LocalFleet([group()], state_dir=tmp_path, clock=SystemClock())
    with pytest.raises(StateFileError, match="remove it to start the group"):
        fleet.start()
    (tmp_path / "chat.json").unlink()
    with running(group(replicas=1), tmp_path) as it:
        it.until(lambda s: s.all_run(OFF))


def test_a_gateway_port_that_is_taken_is_told_and_nothing_is_left(tmp_path):
    with running(group("one", replicas=1), tmp_path) as it:
        port = int(it.url.rpartition(":")[2])
        fleet = LocalFleet(
            [group("two", replicas=1), group("three", replicas=1, gateway_port=port)],
            state_dir=tmp_path,
            clock=SystemClock(),
        )
        with pytest.raises(FleetError, match=f"'three': cannot listen on 127.0.0.1:{port}: "):
            fleet.start()
        assert processes_of(tmp_path / "two") == []


def test_what_is_asked_of_others_is_answered_in_words(tmp_path):
    with running(group(replicas=1), tmp_path) as it:
        other = TargetRef(kind="Local", namespace="local", name="other")
        problem = it.fleet.observe(other).problem
        assert problem.reason is TargetProblem.NOT_FOUND
        assert problem.message == "there is no local group 'other'; known: chat"
        cluster = TargetRef(kind="Deployment", namespace="a", name="chat")
        assert it.fleet.observe(cluster).problem.reason is TargetProblem.UNSUPPORTED_KIND
        for ref in (other, cluster):
            with pytest.raises(FleetError):
                it.fleet.carry_out(
                    Intent(
                        target=ref, declared=ON, extent=Extent.ALL, canary_replicas=1, previous=OFF
                    )
                )
    with pytest.raises(FleetError, match="is not started"):
        it.intend(ON)
    with pytest.raises(LocalGroupError, match="name: 'chat' is given twice"):
        LocalFleet([group(), group()], state_dir=tmp_path, clock=SystemClock())


def test_a_config_file_that_shadows_the_settings_is_a_problem(tmp_path):
    (tmp_path / "engine.yaml").write_text("speculative-config: {method: ngram}\n")
    spec = group(replicas=1, command=(*TINY, "--config", "engine.yaml"), cwd=tmp_path)
    fleet = LocalFleet([spec], state_dir=tmp_path, clock=SystemClock())
    problem = fleet.observe(fleet.refs[0]).problem
    assert problem.reason is TargetProblem.SHADOWED_BY_ARGS
    assert "engine.yaml: speculative-config" in problem.message


def test_logs_are_kept_and_bounded(tmp_path):
    spec = group(replicas=1, log_bytes=2000, log_files=2, log_dir=tmp_path / "out")
    with running(spec, tmp_path) as it:
        for _ in range(8):
            it.until(lambda s: s.all_run(s.declared))
            it.intend(ON if it.state().declared == OFF else OFF)
        it.until(lambda s: s.all_run(s.declared))
        (log,) = it.logs()
        assert "serving on" in log.read_text()
    assert sum(f.stat().st_size for f in (tmp_path / "out").iterdir()) <= 4000
