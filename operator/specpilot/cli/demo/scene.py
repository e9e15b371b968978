"""The demo's fleet, rules, policy and traffic, as a user would write them.

Three fleets of simulated engines serve the same arrivals: one steered by Specpilot, one that
always speculates, one that never does. All times are about fifty times shorter than in production,
because simulated engines start in a second and the demo has to end within two minutes.
"""

import sys
from dataclasses import dataclass

from specpilot.sim.load.records import Objective, Record
from specpilot.sim.load.workload import Arrival, Phase, arrivals

STEERED, ALWAYS_ON, ALWAYS_OFF = "steered", "always-on", "always-off"
FLEETS = (STEERED, ALWAYS_ON, ALWAYS_OFF)
REPLICAS = 2
ENGINE_VERSION = "0.32.0"

NGRAM = {
    "method": "ngram",
    "numSpeculativeTokens": 4,
    "extra": {"prompt_lookup_max": 4, "prompt_lookup_min": 1},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stretch of the story.

    Attributes:
        name: Name of its phases.
        title: What the viewer is told.
        seconds: How long.
        rate: Requests per second, on each of the three fleets.
        acceptance: Probability that a drafted token is accepted.
    """

    name: str
    title: str
    seconds: float
    rate: float
    acceptance: float


STAGES = (
    Stage(name="quiet", title="quiet", seconds=6, rate=3.3, acceptance=0.75),
    Stage(name="busy", title="busy", seconds=26, rate=9, acceptance=0.75),
    Stage(name="calm", title="quiet again", seconds=23, rate=4, acceptance=0.75),
    Stage(name="bad", title="drafts turn bad", seconds=20, rate=7, acceptance=0.05),
    Stage(name="good", title="good again", seconds=24, rate=4, acceptance=0.75),
)
"""Off, two replicas can serve about 9.4 requests a second; with these drafts about 7.5."""

OBJECTIVES = {
    # Half of the users watch tokens appear, the other half want an answer in reasonable time.
    "interactive": Objective(tpot=0.025),
    "batch": Objective(e2e=8.0),
}
"""Latency objective by class of request; the mix is the same in every stage."""


def traffic(*, seed: int) -> list[Arrival]:
    """Draw the arrivals of all stages; the same for each fleet."""
    found: list[Arrival] = []
    for number, name in enumerate(OBJECTIVES):
        phases = [
            Phase(
                seconds=s.seconds,
                rate=s.rate / len(OBJECTIVES),
                kind=f"accept:{s.acceptance}",
                output_tokens=64,
                spread=0.3,
                name=f"{s.name}/{name}",
            )
            for s in STAGES
        ]
        found += arrivals(phases, seed=seed * len(OBJECTIVES) + number)
    return sorted(found, key=lambda a: a.at)


def duration() -> float:
    """Seconds of traffic."""
    return sum(s.seconds for s in STAGES)


def stage_at(second: float) -> Stage:
    """Return the stage at a second of the traffic; the last one afterwards."""
    for stage in STAGES:
        if second < stage.seconds:
            return stage
        second -= stage.seconds
    return STAGES[-1]


def met(record: Record) -> bool:
    """Whether a request met the objective of its class."""
    return OBJECTIVES[record.arrival.phase.split("/")[1]].met(record)


def documents(*, webhook: str) -> str:
    """Everything that is applied, as YAML."""
    command = [
        sys.executable, "-m", "specpilot.sim", "serve", "demo-8b",
        "--sim-version", ENGINE_VERSION, "--sim-profile", "demo",
        "--shutdown-timeout", "10",
    ]  # fmt: skip
    fleets = "\n---\n".join(
        f"""\
apiVersion: specpilot.io/v1alpha1
kind: LocalFleet
metadata: {{name: {name}}}
spec:
  command: {command}
  replicas: {REPLICAS}
  surge: true
  startTimeout: 30s
  stopGrace: 15s
  drain: 15s"""
        for name in FLEETS
    )
    return f"""\
{fleets}
---
apiVersion: specpilot.io/v1alpha1
kind: RuleSet
metadata: {{name: hit-rate}}
spec:
  parameters: {{busyBatch: 12, minAcceptanceLength: 1.4}}
  rules:
    - name: off-when-drafts-are-rejected
      when: mean_acceptance_length < params.minAcceptanceLength
      for: 1s
      setting: "off"
      minDrafts: 50
    - name: off-when-busy
      when: batch_size > params.busyBatch
      for: 1s
      setting: "off"
---
apiVersion: specpilot.io/v1alpha1
kind: AlertChannel
metadata: {{name: receiver}}
spec:
  type: webhook
  url: {webhook}
  secretFrom: {{env: SPECPILOT_DEMO_SECRET}}
  allowPrivate: true
---
apiVersion: specpilot.io/v1alpha1
kind: SpeculationPolicy
metadata: {{name: chat}}
spec:
  target: {{kind: Local, name: {STEERED}}}
  mode: Auto
  settings:
    - name: ngram
      method: {NGRAM["method"]}
      numSpeculativeTokens: {NGRAM["numSpeculativeTokens"]}
      extra: {NGRAM["extra"]}
  rules: {{ruleSet: hit-rate}}
  telemetry: {{source: scrape, window: 3s}}
  rollout:
    canary:
      {{analysis: 5s, minDrafts: 30, minRequests: 3, readyWithin: 15s, giveUp: 15s}}
  guardrails:
    - {{signal: tpot_mean, maxIncrease: "15%"}}
  probe: {{setting: ngram, every: 3s, backOff: 1.3, longest: 6s, margin: "10%"}}
  limits: {{cooldown: 2s, flipsPerHour: 20, flipsPerDay: 20}}
  alerts:
    - {{channel: receiver, events: [Flipped, RolledBack, ProbeKept, ProbeUndone, Aborted]}}
"""
