"""The fleet, rule and policy of the demo on real engines, as a user would write them.

Times are a few times shorter than in production, not fifty: a real server takes half a minute to
start, and its figures are real, so a comparison needs a dozen requests on either side to be right.
"""

import json

from specpilot.cli.demo.backstage import SECRET_VARIABLE
from specpilot.cli.demo_vllm.engine import REPLICAS, Engine
from specpilot.domain.settings import Declared, Setting
from specpilot.engines import render

FLEET = "engines"
RULE = "off-when-drafts-are-rejected"
LEAST_LENGTH = 1.5
"""Tokens a drafted step must gain. Measured: 3.2 on repetitive prompts, 1.1 on random ones."""

START_TIMEOUT_S = 900
"""Half a minute is usual; a machine that reads the libraries from a slow disk takes minutes."""

MAX_INCREASE = "30%"
"""Of the time per token. Two servers on a core each swing by more than 15 % against each other when
anything else runs on those cores; going off where drafts fit costs 50 %, which still breaks this.
"""

NGRAM = Setting(
    name="ngram",
    method="ngram",
    num_speculative_tokens=4,
    extra={"prompt_lookup_max": 4, "prompt_lookup_min": 1},
)


def initial(engine: Engine) -> Declared:
    """What the fleet runs at first."""
    return Declared(setting=NGRAM.name, config=render(NGRAM, version=engine.version).config)


def documents(engine: Engine, *, webhook: str) -> str:
    """Everything that is applied, as YAML."""
    return f"""\
apiVersion: specpilot.io/v1alpha1
kind: LocalFleet
metadata: {{name: {FLEET}}}
spec:
  command: {json.dumps(list(engine.command))}
  replicas: {REPLICAS}
  replicaEnv: {json.dumps(list(engine.environment))}
  surge: false
  startTimeout: {START_TIMEOUT_S}s
  stopGrace: 60s
  drain: 60s
---
apiVersion: specpilot.io/v1alpha1
kind: RuleSet
metadata: {{name: hit-rate}}
spec:
  parameters: {{minAcceptanceLength: {LEAST_LENGTH}}}
  rules:
    - name: {RULE}
      when: mean_acceptance_length < params.minAcceptanceLength
      for: 5s
      setting: "off"
      minDrafts: 50
---
apiVersion: specpilot.io/v1alpha1
kind: AlertChannel
metadata: {{name: receiver}}
spec:
  type: webhook
  url: {webhook}
  secretFrom: {{env: {SECRET_VARIABLE}}}
  allowPrivate: true
---
apiVersion: specpilot.io/v1alpha1
kind: SpeculationPolicy
metadata: {{name: chat}}
spec:
  target: {{kind: Local, name: {FLEET}}}
  mode: Auto
  settings:
    - name: {NGRAM.name}
      method: {NGRAM.method}
      numSpeculativeTokens: {NGRAM.num_speculative_tokens}
      extra: {json.dumps(dict(NGRAM.extra))}
  rules: {{ruleSet: hit-rate}}
  telemetry: {{source: scrape, window: 20s, warmUp: 5s}}
  rollout:
    canary:
      analysis: 48s
      minDrafts: 100
      minRequests: 12
      readyWithin: {START_TIMEOUT_S}s
      giveUp: 6m
  guardrails:
    - {{signal: tpot_mean, maxIncrease: "{MAX_INCREASE}"}}
  probe: {{setting: {NGRAM.name}, every: 15s, backOff: 1.5, longest: 60s, margin: "5%"}}
  limits: {{cooldown: 5s, flipsPerHour: 20, flipsPerDay: 20}}
  alerts:
    - {{channel: receiver, events: [Flipped, RolledBack, ProbeKept, ProbeUndone, Aborted]}}
"""
