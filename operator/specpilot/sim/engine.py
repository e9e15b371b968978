"""An engine without hardware: continuous batching, paged KV cache, speculation, and a cost model.

Pure: it reads no clock and does no I/O. A driver calls :meth:`Engine.begin_step` with the time,
waits for as long as it says (or moves a virtual clock), and calls :meth:`Engine.finish_step`.

What follows vLLM's V1 scheduler: running requests come first, then waiting ones in order of
arrival within ``max_num_seqs`` and the token budget; long prompts are prefilled in chunks; drafts
made in a step are verified in the next; the depth of a schedule is looked up by the number of
requests scheduled in the step; when the cache is full, the youngest request gives way and later
computes everything anew. Prefix caching is not modelled: every prompt token is computed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from specpilot.sim.costs import CostModel, DraftCost, cost_model
from specpilot.sim.drafts import quality
from specpilot.sim.faults import Faults, Hang
from specpilot.sim.launch import Generation, LaunchConfig
from specpilot.sim.requests import Output, Request
from specpilot.sim.stats import EngineStats


@dataclass(slots=True)
class _Step:
    """A step under way."""

    scheduled: list[tuple[Request, int]]
    depth: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Sizes of the scheduler and of the cache."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int = 4096
    block_size: int = 16
    num_blocks: int = 31_250


@dataclass(frozen=True, slots=True)
class _Drafter:
    """The configured speculation, with what it costs."""

    cost: DraftCost
    method: str


class Engine:
    """One engine core; a replica with data parallelism has several."""

    def __init__(self, config: LaunchConfig, *, costs: CostModel | None = None, rank: int = 0):
        """Build an engine as launched.

        Args:
            config: the launch.
            costs: cost model; by default the profile that the launch names.
            rank: rank among data-parallel engines; makes their draws independent.
        """
        options = config.sim
        self.config: Final = config
        self.costs: Final = costs or cost_model(options.profile, constants=options.constants)
        self.speculation: Final = config.speculation
        self.faults: Faults = options.faults
        self._rng: Final = random.Random(f"{options.seed}/{rank}")  # noqa: S311 -- a simulation
        self._drafter: Final = (
            None
            if self.speculation is None
            else _Drafter(
                cost=self.costs.drafting(self.speculation.method), method=self.speculation.method
            )
        )
        share = 1.0 if self._drafter is None else self._drafter.cost.kv_share
        blocks = config.num_gpu_blocks or int(self.costs.kv_tokens * share) // config.block_size
        self.limits: Final = EngineLimits(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_model_len=config.max_model_len,
            block_size=config.block_size,
            num_blocks=max(1, blocks),
        )
        depth = 0 if self.speculation is None else self.speculation.depth
        self.stats: Final = EngineStats(max_model_len=config.max_model_len, depth=depth)
        self.touched = False
        """Whether anything was ever served; V0 exports next to nothing before."""
        self._v0: Final = config.generation is Generation.V0
        self._waiting: Final[deque[Request]] = deque()
        self._running: list[Request] = []
        self._blocks_used = 0
        self._step: _Step | None = None
        self._stale_gauges = False
        self._aborting = False

    # -- requests -----------------------------------------------------------------------------

    def request(
        self, *, prompt: str, prompt_tokens: int, max_tokens: int, natural_stop: bool = False
    ) -> Request:
        """Make a request out of a prompt, whose text decides how well drafts fit."""
        drafts = quality(
            prompt,
            method=None if self._drafter is None else self._drafter.method,
            acceptance=self.config.sim.acceptance,
        )
        return Request(
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            drafts=drafts,
            natural_stop=natural_stop,
        )

    def add(self, request: Request, *, now: float) -> None:
        """Queue a request."""
        request.arrived = now
        self._waiting.append(request)

    def abort(self, request: Request) -> None:
        """Give a request up; one in the running step is dropped when that step ends."""
        if request.finished is not None or request.aborted:
            return
        request.aborted = True
        self.stats.finished["abort"] += 1
        self._stale_gauges = True
        if request in self._waiting:
            self._waiting.remove(request)
        elif self._step is None:
            self._release(request)
        else:
            self._aborting = True

    @property
    def outstanding(self) -> int:
        """Requests queued or running."""
        return len(self._waiting) + len(self._running)

    @property
    def batch_size(self) -> int:
        """Requests running."""
        return len(self._running)

    # -- steps --------------------------------------------------------------------------------

    def begin_step(self, now: float) -> float | None:
        """Schedule a step.

        Returns:
            How long it takes, in seconds; None when there is nothing to do or the engine hangs.
        """
        if self._step is not None:
            raise RuntimeError("the step under way is not finished")
        if self.faults.hang is not Hang.NO:
            return None
        scheduled = self._schedule(now)
        if not scheduled:
            if self._stale_gauges:
                self._set_gauges()
            return None
        depth = self._depth(batch=len(scheduled))
        seconds = self.faults.slow * self.costs.step_seconds(
            tokens=sum(tokens for _, tokens in scheduled),
            kv=sum(request.computed for request, _ in scheduled),
            drafting=None if self._drafter is None else self._drafter.cost,
            depth=depth,
            requests=len(scheduled),
        )
        self._step = _Step(scheduled=scheduled, depth=depth, seconds=seconds)
        return seconds

    def finish_step(self, now: float) -> list[Output]:
        """Complete the step under way at time ``now``.

        Returns:
            The new tokens of every request that got any.
        """
        step = self._step
        if step is None:
            raise RuntimeError("no step is under way")
        self._step = None
        outputs: list[Output] = []
        prompts = generated = 0
        for request, tokens in step.scheduled:
            if request.aborted:
                continue
            missing = request.total - request.computed
            request.computed += min(tokens, missing)
            if tokens < missing:
                continue  # a chunk of a prompt
            first = request.first_token is None
            new = self._emit(request, drafted=tokens - missing)
            if first:
                prompts += request.prompt_tokens
            # V0 with speculation counts a step's tokens as one, however many there are.
            generated += 1 if self._v0 and self._drafter is not None else new
            self._time_tokens(request, now=now)
            outputs.append(Output(request, new, self._finish_if_done(request, now=now)))
            if request.finished is None:
                request.draft = self._propose(request, depth=step.depth)
        if self._aborting:
            self._aborting = False
            for request in [each for each in self._running if each.aborted]:
                self._release(request)
        self._count_step(prompts=prompts, generated=generated, outputs=len(outputs), now=now)
        return outputs

    # -- scheduling ---------------------------------------------------------------------------

    def _capacity(self) -> int:
        return max(1, int(self.limits.num_blocks * self.faults.kv_fraction))

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size)

    def _fits(self, request: Request, tokens: int) -> bool:
        """Allocate blocks for ``tokens`` more; a lone request always fits, so that work ends."""
        wanted = self._blocks_for(request.computed + tokens) - request.blocks
        if wanted > 0:
            if self._blocks_used + wanted > self._capacity() and self._blocks_used > request.blocks:
                return False
            request.blocks += wanted
            self._blocks_used += wanted
        return True

    def _schedule(self, now: float) -> list[tuple[Request, int]]:
        budget = self.limits.max_num_batched_tokens
        scheduled: list[tuple[Request, int]] = []
        preempted = False
        position = 0
        while position < len(self._running) and budget > 0:
            request = self._running[position]
            missing = request.total - request.computed
            draft = request.draft if missing == 1 else 0
            tokens = min(missing + draft, budget)
            while not self._fits(request, tokens):
                preempted = True
                if self._preempt_youngest() is request:
                    break
            else:
                scheduled.append((request, tokens))
                budget -= tokens
            position += 1
        while (
            self._waiting
            and not preempted
            and budget > 0
            and len(self._running) < self.limits.max_num_seqs
        ):
            request = self._waiting[0]
            if request.arrived > now:
                break  # a late driver makes up for lost time, and was not there yet
            tokens = min(request.total - request.computed, budget)
            if not self._fits(request, tokens):
                break
            self._waiting.popleft()
            self._running.append(request)
            if request.scheduled is None:
                request.scheduled = now
                self.stats.prefix_queries += request.prompt_tokens
            scheduled.append((request, tokens))
            budget -= tokens
        return scheduled

    def _preempt_youngest(self) -> Request:
        request = self._running.pop()
        self._free(request)
        request.computed = 0
        request.draft = 0
        request.preemptions += 1
        self.stats.preemptions += 1
        self._waiting.appendleft(request)
        return request

    def _free(self, request: Request) -> None:
        self._blocks_used -= request.blocks
        request.blocks = 0

    def _release(self, request: Request) -> None:
        self._free(request)
        if request in self._running:
            self._running.remove(request)

    # -- speculation --------------------------------------------------------------------------

    def _depth(self, *, batch: int) -> int:
        """Return the depth to draft in this step."""
        if self.speculation is None:
            return 0
        limit = self.speculation.disable_at
        if limit is not None and len(self._running) >= limit:
            # V0: a request that once went without a draft never gets one again.
            for request in self._running:
                request.drafts_off = True
            return 0
        return self.speculation.depth_at(batch)

    def _propose(self, request: Request, *, depth: int) -> int:
        if depth == 0 or request.drafts_off:
            return 0
        room = self.limits.max_model_len - request.total - 1
        return min(request.quality.draft(depth, rng=self._rng), max(room, 0))

    def _emit(self, request: Request, *, drafted: int) -> int:
        """Verify a draft and return how many tokens the request gains."""
        accepted = 0
        if drafted > 0:
            accepted = request.quality.accepted(
                drafted, rng=self._rng, factor=self.faults.acceptance_factor
            )
            self.stats.spec.observe(drafted=drafted, accepted=accepted)
        request.draft = 0
        new = min(1 + accepted, request.max_tokens - request.generated)
        request.generated += new
        request.computed = request.total - 1
        return new

    # -- accounting ---------------------------------------------------------------------------

    def _time_tokens(self, request: Request, *, now: float) -> None:
        if request.first_token is None:
            request.first_token = now
            self.stats.ttft.observe(now - request.arrived)
        elif request.last_token is not None:
            self.stats.inter_token.observe(now - request.last_token)
        request.last_token = now

    def _finish_if_done(self, request: Request, *, now: float) -> bool:
        if request.generated < request.max_tokens:
            return False
        request.finished = now
        request.finish_reason = "stop" if request.natural_stop else "length"
        self._release(request)
        stats = self.stats
        stats.finished[request.finish_reason] += 1
        scheduled = request.arrived if request.scheduled is None else request.scheduled
        first = now if request.first_token is None else request.first_token
        decode = now - first
        stats.e2e.observe(now - request.arrived)
        stats.queue.observe(scheduled - request.arrived)
        stats.inference.observe(now - scheduled)
        stats.prefill.observe(first - scheduled)
        stats.decode.observe(decode)
        more = request.generated - 1
        stats.request_tpot.observe(decode / more if more else 0.0)
        stats.request_prompt_tokens.observe(request.prompt_tokens)
        stats.request_generation_tokens.observe(request.generated)
        stats.request_max_tokens.observe(request.max_tokens)
        stats.params_max_tokens.observe(request.max_tokens)
        stats.params_n.observe(1)
        stats.request_preemptions.observe(request.preemptions)
        stats.prefill_kv_computed.observe(request.prompt_tokens)
        return True

    def _count_step(self, *, prompts: int, generated: int, outputs: int, now: float) -> None:
        stats = self.stats
        self.touched = True
        stats.steps += 1
        stats.prompt_tokens += prompts
        stats.generation_tokens += generated
        stats.generation_outputs += outputs
        stats.iteration_tokens.observe(prompts + generated)
        if self._v0 and self.speculation is not None:
            stats.v0_report.update(stats.spec, now=now, depth=self.speculation.depth)
        self._set_gauges()

    def _set_gauges(self) -> None:
        self._stale_gauges = False
        self.stats.running = len(self._running)
        self.stats.waiting = len(self._waiting)
        self.stats.kv_usage = min(1.0, self._blocks_used / self._capacity())


def engines(config: LaunchConfig, *, costs: CostModel | None = None) -> Sequence[Engine]:
    """Build the engine cores of one replica: one per data-parallel rank."""
    return [Engine(config, costs=costs, rank=rank) for rank in range(config.data_parallel_size)]
