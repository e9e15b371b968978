"""A change of setting under load: canary, promotion, going back; no request is lost."""

import asyncio
import re
import threading
from collections import Counter

import httpx
import pytest

from specpilot.domain.changes import Extent
from tests.integration.local.support import CRASH, DEAF, OFF, ON, group, running


class Load:
    """Clients that send one streamed request after the other through the gateway."""

    def __init__(self, url, *, clients=24, chunks=8, delay=0.02):
        self.url = url
        self.clients = clients
        self.body = {"chunks": chunks, "delay": delay}
        self.want = [f"data: {n} " for n in range(chunks)]
        self.answers = Counter()
        self.failures = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    async def _run(self):
        limits = httpx.Limits(max_connections=self.clients)
        async with httpx.AsyncClient(timeout=30, limits=limits) as client:
            await asyncio.gather(*(self._client(client) for _ in range(self.clients)))

    async def _client(self, client):
        while not self._end.is_set():
            try:
                answer = await client.post(f"{self.url}/v1/completions", json=self.body)
                lines = answer.text.split("\n\n")
                assert answer.status_code == 200, answer.text
                assert [line[: len(w)] for line, w in zip(lines, self.want, strict=False)] == (
                    self.want
                )
                assert lines[-2] == "data: [DONE]"
                self.answers[lines[0].removeprefix("data: 0 ")] += 1
            except (httpx.HTTPError, AssertionError) as error:
                self.failures.append(repr(error))
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("surge", [False, True], ids=["in place", "with surge"])
def test_a_flip_and_back_loses_no_request(tmp_path, surge):
    with running(group(surge=surge), tmp_path) as it:
        it.until(lambda s: s.all_run(OFF))
        least = []
        with Load(it.url) as load:
            it.intend(ON, extent=Extent.CANARY)

            def canary(state):
                least.append(sum(r.ready for r in state.replicas))
                return state.halted and not state.rolling

            state = it.until(canary)
            assert len(state.arm(ON)) == 1
            assert len(state.arm(OFF)) == 2
            assert state.declared == ON
            it.intend(ON)

            def everywhere(declared):
                def check(state):
                    least.append(sum(r.ready for r in state.replicas))
                    return state.all_run(declared)

                return check

            it.until(everywhere(ON))
            it.intend(OFF)
            it.until(everywhere(OFF))
        assert load.failures == []
        assert load.answers["on"] > 20
        assert load.answers["off"] > 20
        assert min(least) >= (3 if surge else 2)


def test_a_canary_that_crashes_is_told_and_taken_back_at_once(tmp_path):
    with running(group(), tmp_path) as it:
        it.until(lambda s: s.all_run(OFF))
        with Load(it.url, clients=8) as load:
            it.intend(CRASH, extent=Extent.CANARY)
            state = it.until(lambda s: any("restart 2 in 0.4 s" in r.failure for r in s.replicas))
            (canary,) = state.arm(CRASH)
            assert re.match(r"exited with 1 after \d s, restart 2 in 0.4 s; ", canary.failure)
            assert canary.failure.endswith("log: ValueError: this setting cannot work")
            assert sum(r.ready for r in state.arm(OFF)) == 2
            it.intend(OFF)
            it.until(lambda s: s.all_run(OFF), deadline=5)
        assert load.failures == []
        assert set(load.answers) == {"off"}


def test_promotion_stops_at_a_replica_that_does_not_come_up(tmp_path):
    with running(group(), tmp_path) as it:
        it.until(lambda s: s.all_run(OFF))
        kept = {r.instance for r in it.state().replicas}
        it.intend(DEAF)
        state = it.until(lambda s: s.arm(DEAF))
        for _ in range(20):
            it.intend(DEAF)
            state = it.until(lambda s: s.arm(DEAF))
            assert sum(r.ready for r in state.replicas) == 2
        assert "still to be replaced: chat-0, chat-1" in state.rolling
        it.intend(OFF)
        state = it.until(lambda s: s.all_run(OFF))
        assert len(kept & {r.instance for r in state.replicas}) == 2, "they were never touched"


def test_one_replica_is_replaced_in_place(tmp_path):
    with running(group(replicas=1), tmp_path) as it:
        it.until(lambda s: s.all_run(OFF))
        assert not it.state().can_add_replica
        it.intend(ON)
        it.until(lambda s: s.all_run(ON))


def test_what_a_server_was_started_with_is_in_its_environment(tmp_path):
    spec = group(replicas=2, env={"A": "1"}, replica_env=({"CARD": "0"}, {"CARD": "1"}))
    with running(spec, tmp_path) as it:
        it.until(lambda s: s.all_run(OFF))
        it.intend(ON)
        state = it.until(lambda s: s.all_run(ON))
        assert state.engine_version == "9.8.7"
        for card, replica in enumerate(state.replicas):
            env = httpx.get(f"{replica.endpoint}/env").json()
            assert env["SPECPILOT_SETTING"] == "on"
            assert env["SPECPILOT_CHANGE_ID"] == "c1"
            assert env["SPECPILOT_SPECULATIVE_CONFIG"] == "on"
            assert env["SPECPILOT_REPLICA"] == f"chat-{card}"
            assert (env["A"], env["CARD"]) == ("1", str(card))


def test_given_ports_are_used_in_turn(tmp_path):
    from specpilot.fleets.local.free_ports import free_port

    ports = tuple(free_port("127.0.0.1") for _ in range(3))
    with running(group(replicas=2, ports=ports, surge=True), tmp_path) as it:
        state = it.until(lambda s: s.all_run(OFF))
        assert [int(r.endpoint.rpartition(":")[2]) for r in state.replicas] == list(ports[:2])
        it.intend(ON)
        state = it.until(lambda s: s.all_run(ON))
        assert {int(r.endpoint.rpartition(":")[2]) for r in state.replicas} <= set(ports)


def test_rendering_gets_the_version_and_may_refuse(tmp_path):
    asked = []

    def render(declared, version):
        asked.append((declared.setting, version))
        if declared == CRASH:
            raise ValueError("9.8.7 does not know this")
        return ("--speculative-config", declared.config)

    with running(group(replicas=2), tmp_path, arguments=render) as it:
        it.until(lambda s: s.all_run(OFF))
        it.intend(CRASH, extent=Extent.CANARY)
        state = it.until(lambda s: any(r.failure for r in s.replicas))
        (failing,) = (r for r in state.replicas if r.failure)
        assert failing.failure.startswith("cannot be started: 9.8.7 does not know this, restart")
        assert ("off", "") in asked
        assert ("crash", "9.8.7") in asked
