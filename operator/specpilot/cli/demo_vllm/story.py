"""What happens, in steps: the traffic changes when what it was to bring about has come about.

Nothing else is scripted. Which setting runs is decided by the rule and by the probe alone, on the
servers' own metrics; if they decide otherwise, the story stands still until its time is over.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specpilot.cli.demo.backstage import Backstage
from specpilot.cli.demo.recorded import Recorded, alerts_pending
from specpilot.cli.demo.watch import Watched, wait_ready, watch
from specpilot.cli.demo_vllm.engine import MODEL, REPLICAS, Engine
from specpilot.cli.demo_vllm.scene import FLEET, LEAST_LENGTH, RULE, START_TIMEOUT_S, initial
from specpilot.cli.demo_vllm.traffic import (
    CLIENTS_PER_REPLICA,
    RANDOM,
    REPETITIVE,
    Prompts,
    Tally,
    Traffic,
)
from specpilot.controller.local_service import LocalService, Pace
from specpilot.domain.changes import ChangeKind, Phase
from specpilot.domain.settings import OFF_NAME
from specpilot.fleets.local import Supervision

PACE = Pace(tick=1.0, reconcile=0.5, scrape=1.0)
PATIENT = Supervision(probe_timeout=10.0, unready_after=30.0, hang_after=120.0)
"""A server on a core that others use, too, may be slow to answer and yet be well."""

LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A stretch of the story.

    Attributes:
        title: What the viewer is told.
        prompts: What the clients ask for.
        until: Whether the next step may begin, given what is seen.
        least_s: It lasts so long all the same, for the viewer to see.
    """

    title: str
    prompts: Prompts
    until: Callable[[Watched], bool]
    least_s: float = 0.0


def drafts_fit(seen: Watched) -> bool:
    """Speculation shows that it pays."""
    length = seen.reading("mean_acceptance_length")
    return length is not None and length > LEAST_LENGTH


def switched_off(seen: Watched) -> bool:
    """The rule's change has reached every replica."""
    return any(
        c.kind is ChangeKind.RULE
        and c.wanted.setting == OFF_NAME
        and c.phase in {Phase.WATCHING, Phase.SUCCEEDED}
        for c in seen.changes
    )


def probe_kept(seen: Watched) -> bool:
    """A probe has won and runs on every replica."""
    return any(c.kind is ChangeKind.PROBE and c.phase is Phase.SUCCEEDED for c in seen.changes)


STEPS = (
    Step(
        title="repetitive prompts: drafts fit",
        prompts=REPETITIVE,
        until=drafts_fit,
        least_s=20.0,
    ),
    Step(title="random prompts: drafts are rejected", prompts=RANDOM, until=switched_off),
    Step(title="repetitive again: only a probe can know", prompts=REPETITIVE, until=probe_kept),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is shown.

    Attributes:
        second: Seconds since the traffic began.
        step: The step of the story.
        watched: The fleet.
        tally: Requests so far.
    """

    second: float
    step: Step
    watched: Watched
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it.

    Attributes:
        recorded: What was done and noted.
        engine: The engine.
        tallies: Requests by kind of prompt.
        seconds: How long requests were sent.
    """

    recorded: Recorded
    engine: Engine
    tallies: dict[str, Tally]
    seconds: float

    def missing(self) -> list[str]:
        """What was promised and did not happen, in words."""
        done = self.recorded.succeeded
        promised = {
            "speculation was switched off because drafts were rejected": any(
                c.rule.rule == RULE for c in done
            ),
            "a probe switched it on again": bool(done) and done[-1].kind is ChangeKind.PROBE,
            "every request was answered": not any(t.failures for t in self.tallies.values()),
            **self.recorded.promises(),
        }
        return [words for words, happened in promised.items() if not happened]

    def as_plain(self) -> dict[str, Any]:
        """For machines."""
        return {
            "engine": {"vllm": self.engine.version, "model": MODEL, "replicas": REPLICAS},
            **self.recorded.as_plain(),
            "traffic": {
                "seconds": round(self.seconds, 1),
                "clients": CLIENTS_PER_REPLICA * REPLICAS,
                **{
                    kind: {
                        "answered": tally.answered,
                        "tokens": tally.tokens,
                        "failures": tally.failures,
                    }
                    for kind, tally in self.tallies.items()
                },
            },
        }


def perform(
    stage: Backstage,
    engine: Engine,
    *,
    steps: Sequence[Step] = STEPS,
    within: float,
    supervision: Supervision = PATIENT,
    show: Callable[[Moment], None],
) -> Outcome:
    """Start the servers, send requests, go through the steps, and wait for the last change to end.

    Args:
        stage: Where the documents have been applied.
        engine: What is served.
        steps: The story.
        within: Seconds after which it ends, wherever it is.
        supervision: How closely the servers are watched.
        show: Told twice a second what is seen.

    Raises:
        TimeoutError: The servers did not start.
    """
    with LocalService(
        store=stage.store,
        state_dir=stage.state,
        pace=PACE,
        supervision=supervision,
        initial={FLEET: initial(engine)},
    ) as service:
        wait_ready(service, [FLEET], within=START_TIMEOUT_S)
        traffic = Traffic(
            gateway=service.fleet.gateway_url(FLEET),
            model=MODEL,
            clients=CLIENTS_PER_REPLICA * REPLICAS,
            prompts=steps[0].prompts,
        )
        traffic.start()
        try:
            _follow(
                steps,
                traffic,
                look=lambda: watch(stage.store, service, stage.receiver, target=FLEET),
                over=lambda: not alerts_pending(stage.store),
                within=within,
                show=show,
            )
            # At once: the steering goes on, and the next probe may be due before the last answer.
            recorded, seconds = stage.recorded(), traffic.second
        finally:
            traffic.stop()
        traffic.check()
        return Outcome(
            recorded=recorded, engine=engine, tallies=dict(traffic.tallies), seconds=seconds
        )


def _follow(
    steps: Sequence[Step],
    traffic: Traffic,
    *,
    look: Callable[[], Watched],
    over: Callable[[], bool],
    within: float,
    show: Callable[[Moment], None],
) -> None:
    """Change the prompts from step to step; return when the last change has ended, or too late."""
    left, begun = list(steps), 0.0
    while traffic.running and traffic.second < within:
        watched, step = look(), left[0]
        show(Moment(second=traffic.second, step=step, watched=watched, tally=traffic.total))
        if traffic.second - begun >= step.least_s and step.until(watched):
            if len(left) > 1:
                left.pop(0)
                begun = traffic.second
                traffic.prompts = left[0].prompts
            elif not watched.changing and over():
                return
        time.sleep(LOOK_EVERY_S)
