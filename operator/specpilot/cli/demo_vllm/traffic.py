"""Clients in a closed loop, whose prompts change when the story goes on.

A thread is enough for them: real servers on CPU answer a few requests a second.
"""

import asyncio
import itertools
import random
import threading
import time
from dataclasses import dataclass, field

from specpilot.sim.load.client import ClientOptions, circulate
from specpilot.sim.load.records import Record
from specpilot.sim.load.workload import Arrival, build_prompt

CLIENTS_PER_REPLICA = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """What clients ask for.

    Attributes:
        kind: `repetitive` or `random`, as the load generator writes them.
        temperature: At 0 an answer follows its prompt into the loop; at 1 it wanders off.
        prompt_tokens: Words of a prompt.
        output_tokens: Tokens of an answer; short, so that many requests end in a slice.
    """

    kind: str
    temperature: float
    prompt_tokens: int
    output_tokens: int = 64


REPETITIVE = Prompts(kind="repetitive", temperature=0.0, prompt_tokens=48)
"""Drafts from the prompt fit."""

RANDOM = Prompts(kind="random", temperature=1.0, prompt_tokens=30)
"""They do not."""


@dataclass(slots=True)
class Tally:
    """What became of the requests."""

    answered: int = 0
    tokens: int = 0
    failures: list[str] = field(default_factory=list)

    def take(self, record: Record) -> None:
        """Count one request."""
        if record.error is None:
            self.answered += 1
            self.tokens += record.tokens
        else:
            self.failures.append(record.error)


class Traffic:
    """Keeps a number of requests in flight until it is stopped.

    Args:
        gateway: Where to.
        model: The name in the requests.
        clients: Requests in flight.
        prompts: What is asked for at first; set the attribute to change it.
        seed: Of the prompts.
    """

    def __init__(
        self, *, gateway: str, model: str, clients: int, prompts: Prompts, seed: int = 1
    ) -> None:
        self.prompts: Prompts = prompts
        self.tallies: dict[str, Tally] = {}
        """By kind of prompt."""
        self._gateway = gateway
        self._model = model
        self._clients = clients
        self._seed = seed
        self._numbers = itertools.count()
        self._stopped = False
        self._began = 0.0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._began = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more, and wait for what is in flight."""
        self._stopped = True
        self._thread.join()

    def check(self) -> None:
        """Raise what ended the traffic early, if anything did."""
        if self._error is not None:
            raise RuntimeError("the load generator failed") from self._error

    @property
    def running(self) -> bool:
        """Whether requests are still sent or answered."""
        return self._thread.is_alive()

    @property
    def second(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    @property
    def total(self) -> Tally:
        """All kinds together."""
        tallies = list(self.tallies.values())
        return Tally(
            answered=sum(each.answered for each in tallies),
            tokens=sum(each.tokens for each in tallies),
            failures=[failure for each in tallies for failure in each.failures],
        )

    def _draw(self) -> Arrival | None:
        if self._stopped:
            return None
        asked = self.prompts
        rng = random.Random(f"{self._seed}/{next(self._numbers)}")  # noqa: S311 -- a load
        return Arrival(
            at=0.0,
            phase=asked.kind,
            kind=asked.kind,
            prompt=build_prompt(asked.kind, tokens=asked.prompt_tokens, rng=rng),
            max_tokens=asked.output_tokens,
            temperature=asked.temperature,
        )

    def _run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as error:  # noqa: BLE001 - shown by the thread that draws
            self._error = error

    async def _send(self) -> None:
        await circulate(
            self._draw,
            clients=self._clients,
            endpoints=lambda: [self._gateway],
            options=ClientOptions(model=self._model, timeout=300.0, wait_for_replica=300.0),
            on_record=lambda record: self.tallies.setdefault(record.arrival.phase, Tally()).take(
                record
            ),
        )
