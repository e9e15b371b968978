"""A model served in the test cluster: its Deployment, its policy, and the people who ask."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

import httpx
import yaml

from specpilot.domain.changes import FlagChange, Phase
from specpilot.sim.load.client import ClientOptions, send
from specpilot.sim.load.records import Record
from specpilot.sim.load.workload import Phase as Stretch
from specpilot.sim.load.workload import arrivals
from tests.cluster.cluster import Cluster
from tests.cluster.conditions import condition, is_ready, is_rolled_out
from tests.cluster.waiting import wait_for
from tests.scenarios.installation import Installation

Object = dict[str, Any]

API = "specpilot.io/v1alpha1"
CONFIG = "specpilot.io/speculative-config"
DEADLINE = 150.0
"""Seconds for a step of a flip; a machine busy with other things takes many times its few."""

NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
"""What the engine is to be told when the setting `ngram` of the policies below runs."""

ENGINE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, labels: {team: chat}}
spec:
  replicas: 3
  progressDeadlineSeconds: 120
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  selector: {matchLabels: {app: chat}}
  template:
    metadata:
      labels: {app: chat}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "8000"
    spec:
      terminationGracePeriodSeconds: 10
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.32.0
          args:
            - demo-8b
            - --host=$(POD_IP)
            - --shutdown-timeout=5
            - --speculative-config=$(SPECPILOT_SPECULATIVE_CONFIG)
          env:
            - name: SPECPILOT_SPECULATIVE_CONFIG
              valueFrom:
                fieldRef: {fieldPath: "metadata.annotations['specpilot.io/speculative-config']"}
            - name: POD_IP
              valueFrom: {fieldRef: {fieldPath: status.podIP}}
          ports: [{name: http, containerPort: 8000}]
          resources: {limits: {nvidia.com/gpu: 1}}
          readinessProbe:
            httpGet: {path: /health, port: http}
            periodSeconds: 1
"""
"""The wiring of examples/deployment-wired.yaml, with the pace of a test."""

ON_WHEN_USED = """\
apiVersion: specpilot.io/v1alpha1
kind: RuleSet
metadata: {name: hit-rate}
spec:
  rules:
    - name: on-when-used
      when: requests_per_second > 0.2
      for: 1s
      setting: ngram
"""
"""Asks for speculation as soon as anybody asks for anything: the flip begins when the load does."""

POLICY = """\
apiVersion: specpilot.io/v1alpha1
kind: SpeculationPolicy
metadata: {name: chat}
spec:
  target: {kind: Deployment, name: chat}
  mode: Auto
  settings:
    - name: ngram
      method: ngram
      numSpeculativeTokens: 4
      extra: {prompt_lookup_max: 4}
  rules: {ruleSet: hit-rate}
  telemetry: {source: prometheus, window: 6s}
  rollout:
    canary: {analysis: 12s, minDrafts: 10, minRequests: 2, readyWithin: 90s, giveUp: 180s}
    watch: 4s
  guardrails:
    - {signal: tpot_mean, max: 5s}
  probe: {enabled: false}
  limits: {cooldown: 1s, flipsPerHour: 20, flipsPerDay: 20}
"""
"""Times about fifty times shorter than in production. The guardrail is an absolute one and far off:
simulated engines of a busy machine are slower than they should be, and unevenly so."""

CHANNEL = """\
apiVersion: specpilot.io/v1alpha1
kind: AlertChannel
metadata: {{name: oncall}}
spec:
  type: webhook
  url: {url}
  secretFrom: {{secretKeyRef: {{name: {secret}, key: key}}}}
  allowPrivate: true
---
apiVersion: v1
kind: Secret
metadata: {{name: {secret}}}
stringData: {{key: {key}}}
"""


def changed(text: str, *path: str | int, to: object) -> str:
    """A manifest with one field changed; `...` as the value takes it out."""
    content = yaml.safe_load(text)
    *parents, last = path
    place = content
    for part in parents:
        place = place[part]
    if to is ...:
        del place[last]
    else:
        place[last] = to
    return yaml.safe_dump(content, sort_keys=False)


def sim(text: str, arguments: str) -> str:
    """The engine with further arguments of the simulator, which no user's manifest has."""
    content = yaml.safe_load(text)
    container = content["spec"]["template"]["spec"]["containers"][0]
    value = f"--sim-profile demo --sim-startup-seconds 1 {arguments}"
    container["env"].append({"name": "SPECPILOT_SIM_ARGS", "value": value})
    return yaml.safe_dump(content, sort_keys=False)


@dataclass(kw_only=True)
class Load:
    """Requests to every ready pod of a namespace, while the context lasts."""

    records: list[Record] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def failed(self) -> list[Record]:
        """Requests that were not answered."""
        return [r for r in self.records if r.error]


@dataclass(frozen=True, kw_only=True)
class Serving:
    """A namespace in which models are served."""

    cluster: Cluster
    installation: Installation
    namespace: str

    # --- what a user does

    def kubectl(self, *words: str, user: str = "admin", stdin: str | None = None) -> str:
        return self.cluster.run("kubectl", "-n", self.namespace, *words, user=user, stdin=stdin)

    def apply(self, *documents: str, user: str = "admin") -> str:
        return self.kubectl("apply", "-f", "-", user=user, stdin="\n---\n".join(documents))

    def specpilot(self, *words: str) -> str:
        """What the command line prints, with the administrator's kubeconfig."""
        command = [sys.executable, "-m", "specpilot", *words]
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def serve(self, manifest: str = ENGINE) -> None:
        """Apply a Deployment and wait until all of it serves."""
        self.apply(manifest)
        name = yaml.safe_load(manifest)["metadata"]["name"]
        self.until(lambda: is_rolled_out(self.deployment(name)))

    @contextmanager
    def load(self, *, rate: float = 3.0, accept: float = 0.8, app: str = "chat") -> Iterator[Load]:
        """Send requests in a thread of its own.

        Args:
            rate: Requests per second, all replicas together.
            accept: Part of the drafted tokens that the engine accepts.
            app: Label of the pods that are asked.
        """
        load = Load()
        stop = threading.Event()
        sent = arrivals([Stretch(seconds=900, rate=rate, kind=f"accept:{accept}")], seed=1)
        urls: Sequence[str] = ()

        def look() -> None:
            nonlocal urls
            while not stop.is_set():
                pods = self.cluster.pods(self.namespace, labels=f"app={app}")
                urls = [f"http://{p['status']['podIP']}:8000" for p in pods if is_ready(p)]
                stop.wait(0.3)

        async def run() -> None:
            sending = asyncio.create_task(
                send(
                    sent,
                    endpoints=lambda: urls,
                    options=ClientOptions(model="demo-8b"),
                    on_record=load.records.append,
                )
            )
            stopped = asyncio.create_task(asyncio.to_thread(stop.wait))
            await asyncio.wait({sending, stopped}, return_when=asyncio.FIRST_COMPLETED)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

        def guarded(what: Callable[[], object]) -> None:
            try:
                what()
            except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
                load.error = error

        threads = [
            threading.Thread(target=guarded, args=(work,), name="load")
            for work in (look, lambda: asyncio.run(run()))
        ]
        for thread in threads:
            thread.start()
        try:
            yield load
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        if load.error is not None:
            raise RuntimeError("the load generator failed") from load.error

    # --- what a user sees

    def get(self, kind: str, name: str, *, api_version: str = API) -> Object:
        return self.cluster.api.get(api_version, kind, name=name, namespace=self.namespace)

    def deployment(self, name: str = "chat") -> Object:
        return self.get("Deployment", name, api_version="apps/v1")

    def policy(self, name: str = "chat") -> Object:
        return self.get("SpeculationPolicy", name)

    def status(self, name: str = "chat") -> Object:
        found: Object = self.policy(name).get("status") or {}
        return found

    def condition(self, kind: str, *, name: str = "chat", of: str = "SpeculationPolicy") -> Object:
        """A condition of a resource's status; empty when there is none."""
        conditions = (self.get(of, name).get("status") or {}).get("conditions") or []
        return next((c for c in conditions if c["type"] == kind), {})

    def is_ready(self, name: str = "chat") -> bool:
        return condition(self.policy(name), "Ready") == "True"

    def shown(self) -> list[Object]:
        """The FlagChange objects, oldest first."""
        found = self.cluster.api.list(API, "FlagChange", namespace=self.namespace)
        return sorted(
            found, key=lambda o: (o["metadata"]["creationTimestamp"], o["metadata"]["name"])
        )

    def pods(self, app: str = "chat") -> list[Object]:
        """Pods that are not going away."""
        found = self.cluster.pods(self.namespace, labels=f"app={app}")
        return [p for p in found if "deletionTimestamp" not in p["metadata"]]

    def engines(self, app: str = "chat") -> list[Object | None]:
        """What each ready pod's engine says its speculative config is; None is off."""
        return [told(p) for p in self.pods(app) if is_ready(p)]

    # --- waiting

    def until(self, condition: Callable[[], Any], *, deadline: float = DEADLINE) -> Any:
        return wait_for(condition, deadline=deadline, describe=self.describe, every=0.2)

    def change(self) -> FlagChange | None:
        """The newest flag change, from the database."""
        found = self.installation.changes(self.namespace)
        return found[-1] if found else None

    def until_phase(self, *phases: Phase, after: int = 0, deadline: float = DEADLINE) -> FlagChange:
        """Wait until the change after the first `after` ones is in one of the phases."""

        def there() -> FlagChange | None:
            found = self.installation.changes(self.namespace)[after:]
            if not found:
                return None
            if found[0].phase.ended and found[0].phase not in phases:
                raise UnexpectedEndError(f"{found[0].phase}: {found[0].message}\n{self.describe()}")
            return found[0] if found[0].phase in phases else None

        found = self.until(there, deadline=deadline)
        assert isinstance(found, FlagChange)
        return found

    def waited(self, change: FlagChange) -> float:
        """Seconds since a change entered the phase it was seen in."""
        return (datetime.now(UTC) - change.phase_since).total_seconds()

    def describe(self) -> str:
        """What a failed test wants to know."""
        policies = self.cluster.api.list(API, "SpeculationPolicy", namespace=self.namespace)
        said = [json.dumps(p.get("status"), indent=1) for p in policies]
        changes = [
            f"{c.id} {c.phase} {c.reason}: {c.message}"
            for c in self.installation.changes(self.namespace)
        ]
        operator = self.installation.log[-3000:]
        return "\n".join(
            [*said, *changes, "--- operator", operator, self.cluster.describe(self.namespace)]
        )


class UnexpectedEndError(Exception):
    """A flag change ended otherwise than the scenario has it."""


def told(pod: Object) -> Object | None:
    """What a pod's engine says its speculative config is; None is off."""
    answer = httpx.get(
        f"http://{pod['status']['podIP']}:8000/server_info", trust_env=False, timeout=30
    )
    found: Object | None = answer.json()["vllm_config"]["speculative_config"]
    return found


def restarts(pod: Object) -> int:
    return sum(int(s["restartCount"]) for s in pod["status"].get("containerStatuses") or ())


class Watcher:
    """Notes the fewest ready pods of an app while it runs; a context manager."""

    def __init__(self, serving: Serving, *, app: str = "chat") -> None:
        self._serving = serving
        self._app = app
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="ready")
        self.fewest = 1_000_000

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.2):
            ready = sum(map(is_ready, self._serving.pods(self._app)))
            self.fewest = min(self.fewest, ready)


def steps(installation: Installation, change: FlagChange) -> list[str]:
    """The actions of a change's audit records; fails when a step is missing or there twice."""
    records = installation.records(change.id)
    numbers = [r.draft.step for r in records]
    assert numbers == list(range(len(records))), f"one record a step: {numbers}"
    return [r.draft.action for r in records]
