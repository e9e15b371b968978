"""Measuring a policy's target from the command line, arm by arm, while nothing is decided.

It samples by itself instead of asking the operator: what the operator sees is in the policy's
status, and a second, independent look at the same replicas is what one wants when in doubt.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import typer

from specpilot.cli.readings import plain
from specpilot.cli.state import existing_state
from specpilot.controller.local_registry import as_object
from specpilot.controller.targets import active_setting
from specpilot.domain.policy import Policy
from specpilot.domain.ports import Ask, Clock
from specpilot.domain.readings import Readings
from specpilot.domain.targets import Replica, TargetState
from specpilot.fleets.kubernetes import POLICIES, Api, KubernetesFleet, ask_engine, get_text
from specpilot.fleets.local import running
from specpilot.resources import LOCAL_NAMESPACE, policy_from, read
from specpilot.telemetry import Source, answer

Observe = Callable[[], TargetState]


class Sampler(Source, Protocol):
    """A source of measurements that is sampled by whoever asks."""

    def sample(self) -> None:
        """Take one sample of every tracked replica, now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One answer.

    Attributes:
        policy: The policy.
        state: What was observed last.
        settings: The setting that each live replica runs, by replica.
        at: When it was measured.
        window: How long the measurement took in all.
        arms: Readings of all replicas that run a setting, by its name.
        replicas: Readings of each single replica, by its id.
    """

    policy: Policy
    state: TargetState
    settings: Mapping[str, str]
    at: datetime
    window: timedelta
    arms: Mapping[str, Readings]
    replicas: Mapping[str, Readings]

    def counts(self, setting: str) -> tuple[int, int]:
        """How many replicas run a setting and serve, and how many run it."""
        chosen = [r for r in self.state.live() if self.settings[r.id] == setting]
        return sum(r.ready for r in chosen), len(chosen)

    def as_data(self, *, with_replicas: bool) -> dict[str, Any]:
        """As plain data. An interface: scripts rely on its keys."""
        arms = []
        for setting, readings in self.arms.items():
            ready, total = self.counts(setting)
            arms.append(
                {
                    "setting": setting,
                    "ready": ready,
                    "replicas": total,
                    "signals": plain(readings),
                }
            )
        found: dict[str, Any] = {
            "policy": str(self.policy.ref),
            "target": str(self.state.ref),
            "at": self.at.isoformat(),
            "window_s": self.window.total_seconds(),
            "engine": {"version": self.state.engine_version or None},
            "arms": arms,
        }
        if with_replicas:
            found["replicas"] = [
                {"id": name, "setting": self.settings[name], "signals": plain(readings)}
                for name, readings in self.replicas.items()
            ]
        return found


@dataclass(slots=True, kw_only=True)
class Measurement:
    """Samples a target as often as told, and answers over the policy's window.

    Attributes:
        policy: Whose target.
        observe: Tells what the target is now.
        telemetry: Where numbers of engines come from.
        devices: Where numbers of GPUs come from; None where nobody is asked.
        clock: The time.
        knows_past: Whether the source has numbers from before the first look; without them the
            window begins there.
    """

    policy: Policy
    observe: Observe
    telemetry: Sampler
    clock: Clock
    devices: Sampler | None = None
    knows_past: bool = False
    state: TargetState = field(init=False)
    _since: datetime | None = None

    def look(self) -> TargetState:
        """Observe the target and take a sample of each replica.

        Raises:
            FleetError: The fleet did not answer.
        """
        self.state = self.observe()
        self._since = self._since or self.clock.now()
        sources = [source for source in (self.telemetry, self.devices) if source is not None]
        for source in sources:
            source.track(self.state.live())
        self.answer()  # a source may fetch only what it has been asked for
        for source in sources:
            source.sample()
        return self.state

    def answer(self) -> Measured:
        """The signals over the policy's window, as far as it is known."""
        now = self.clock.now()
        start = now - self.policy.window
        if not self.knows_past and self._since is not None:
            start = max(start, self._since)
        settings = {r.id: self._setting(r) for r in self.state.live()}
        arms: dict[str, list[Replica]] = {}
        for replica in self.state.live():
            arms.setdefault(settings[replica.id], []).append(replica)
        asks = [self._ask(f"arm/{name}", each, start, now) for name, each in sorted(arms.items())]
        asks += [self._ask(f"replica/{r.id}", [r], start, now) for r in self.state.live()]
        answers = answer(self.telemetry, asks, deadline_s=0.0, devices=self.devices)
        return Measured(
            policy=self.policy,
            state=self.state,
            settings=settings,
            at=now,
            window=now - start,
            arms={name: answers[f"arm/{name}"] for name in sorted(arms)},
            replicas={r.id: answers[f"replica/{r.id}"] for r in self.state.live()},
        )

    def _setting(self, replica: Replica) -> str:
        """The policy's name for what a replica runs; the replica's own where it has none."""
        return active_setting(self.policy, replica.declared, engine=self.state.engine).name

    def _ask(self, key: str, replicas: Sequence[Replica], start: datetime, end: datetime) -> Ask:
        return Ask(
            key=key,
            target=self.policy.target,
            replicas=tuple(replicas),
            start=start,
            end=end,
            source=self.policy.source,
        )


def on_this_machine(name: str, state_dir: Path) -> tuple[Policy, Observe]:
    """A policy of the embedded store, and a look at the processes it steers.

    Raises:
        BadParameter: There is no such policy.
        ResourceError: It is not valid any more.
    """
    with existing_state(state_dir).read() as unit:
        stored = unit.resources.list(kind=POLICIES.kind, namespace=LOCAL_NAMESPACE)
    chosen = next((resource for resource in stored if resource.name == name), None)
    if chosen is None:
        known = ", ".join(sorted(r.name for r in stored)) or "none"
        raise typer.BadParameter(
            f"there is no SpeculationPolicy called {name} on this machine (there is {known}); for "
            "one in a cluster give its namespace with -n",
            param_hint="--policy",
        )
    policy = policy_from(read(as_object(chosen)))
    return policy, lambda: running(policy.target, state_dir=state_dir)


def in_a_cluster(name: str, namespace: str, api: Api) -> tuple[Policy, Observe]:
    """A policy of a cluster, and a look at the workload it steers.

    Raises:
        BadParameter: There is no such policy.
        FleetError: The API server did not answer.
        ResourceError: The policy is not valid.
    """
    found = api.find(POLICIES, namespace=namespace, name=name)
    if found is None:
        raise typer.BadParameter(
            f"there is no SpeculationPolicy called {name} in namespace {namespace}; "
            f"`kubectl get specpol -n {namespace}` lists them",
            param_hint="--policy",
        )
    policy = policy_from(read(found))
    fleet = KubernetesFleet(api, version=ask_engine, get=get_text)
    return policy, lambda: fleet.observe(policy.target)
