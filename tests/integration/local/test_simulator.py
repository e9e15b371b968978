"""The local fleet with simulated engines: they start, refuse and drain as the real one does."""

import asyncio
import json
import sys

import httpx

from specpilot.domain.changes import Extent
from specpilot.domain.settings import Declared, canonical_json
from tests.integration.local.support import OFF, environment, group, running

ENGINE = (
    *(sys.executable, "-m", "specpilot.sim", "serve", "model"),
    *("--sim-profile", "demo", "--sim-startup-seconds", "0.3", "--shutdown-timeout", "20"),
)
NGRAM = Declared(
    setting="ngram",
    config=canonical_json({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}),
    change_id="c1",
)
BAD = Declared(
    setting="bad",
    config=canonical_json(
        {"method": "ngram", "num_speculative_tokens": 4, "disable_by_batch_size": 32}
    ),
    change_id="c2",
)


def engines(**spec):
    env = {"PYTHONPATH": environment()["PYTHONPATH"]}
    return group(**({"command": ENGINE, "env": env, "replicas": 2, "drain": 30.0} | spec))


async def talk(url, *, tokens, end):
    """Ask for streamed answers until told to end; return how many came in full."""
    done = 0
    async with httpx.AsyncClient(timeout=60) as client:
        while not end.is_set():
            body = {
                "model": "model",
                "prompt": "[accept=0.7] say something",
                "max_tokens": tokens,
                "stream": True,
            }
            finish, last = None, None
            async with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
                assert answer.status_code == 200, await answer.aread()
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        choices = json.loads(line[6:])["choices"]
                        finish = choices[0]["finish_reason"] if choices else finish
                    last = line or last
            assert (finish, last) == ("length", "data: [DONE]")
            done += 1
    return done


async def switch_under_load(it, *steps, clients):
    end = asyncio.Event()
    talking = [asyncio.create_task(talk(it.url, tokens=24, end=end)) for _ in range(clients)]
    try:
        for declared in steps:
            it.intend(declared)
            await asyncio.to_thread(it.until, lambda s, d=declared: s.all_run(d), deadline=60)
    finally:
        end.set()
    return sum(await asyncio.gather(*talking))


def speculates(replica):
    return "vllm:spec_decode_num_drafts" in httpx.get(f"{replica.endpoint}/metrics").text


def test_a_flip_under_load_loses_no_request(tmp_path):
    with running(engines(), tmp_path) as it:
        state = it.until(lambda s: s.all_run(OFF))
        assert state.engine_version == "0.32.0"
        assert not any(speculates(r) for r in state.replicas)
        answered = asyncio.run(switch_under_load(it, NGRAM, clients=12))
        assert answered >= 12
        assert all(speculates(r) for r in it.state().replicas)
        asyncio.run(switch_under_load(it, OFF, clients=12))
        assert not any(speculates(r) for r in it.state().replicas)


def test_a_setting_the_engine_refuses_is_told_in_its_own_words(tmp_path):
    with running(engines(), tmp_path) as it:
        it.until(lambda s: s.all_run(OFF))
        it.intend(BAD, extent=Extent.CANARY)
        state = it.until(lambda s: any("restart 2" in r.failure for r in s.replicas))
        (canary,) = state.arm(BAD)
        assert canary.failure.startswith("exited with 1 after ")
        log = it.fleet.logs("chat")[canary.id].read_text()
        assert "disable_by_batch_size" in log
        it.intend(OFF)
        it.until(lambda s: s.all_run(OFF))


def test_an_engine_that_hangs_on_sigterm_does_not_hold_a_flip_up(tmp_path):
    spec = engines(command=(*ENGINE, "--sim-hang-on-term", "600"), stop_grace=0.5)
    with running(spec, tmp_path) as it:
        it.until(lambda s: s.all_run(OFF))
        it.intend(NGRAM)
        it.until(lambda s: s.all_run(NGRAM))


def test_an_engine_started_by_a_shell_is_stopped_with_it(tmp_path):
    script = " ".join(ENGINE) + " --port {port} --host {host} {speculation}; echo ended"
    with running(engines(command=("sh", "-c", script), replicas=1), tmp_path) as it:
        it.until(lambda s: s.all_run(OFF))
        it.intend(NGRAM)
        state = it.until(lambda s: s.all_run(NGRAM))
        assert speculates(state.replicas[0])
