"""What a fleet reports of a target. Observation only: no wish, no history."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from specpilot.domain.engine_run import EngineRun
from specpilot.domain.settings import Declared


class Channel(StrEnum):
    """How a setting reaches a target's replicas."""

    AUTO = "Auto"
    ANNOTATION = "Annotation"
    ARGS = "Args"
    OWNER = "Owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRef:
    """Names a target. `namespace` is "local" on one machine.

    Attributes:
        kind: `Deployment`, `Local`, ...
        namespace: Namespace of the workload.
        name: Name of the workload or of the local group.
        container: The container that runs the engine; "" means the only one, or the one named vllm.
        channel: How its settings travel; AUTO leaves the choice to the fleet.
    """

    kind: str
    namespace: str
    name: str
    container: str = ""
    channel: Channel = Channel.AUTO

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity: container and channel are details of the same workload."""
        return (self.kind, self.namespace, self.name)


class TargetProblem(StrEnum):
    """Why a target cannot be steered as it stands."""

    NOT_FOUND = "NotFound"
    UNSUPPORTED_KIND = "UnsupportedKind"
    OWNED_BY_OTHER = "OwnedByOther"
    CONTAINER_NOT_FOUND = "ContainerNotFound"
    NOT_WIRED = "NotWired"
    SHADOWED_BY_ARGS = "ShadowedByArgs"
    PAUSED_BY_USER = "PausedByUser"
    UNSUITABLE_STRATEGY = "UnsuitableStrategy"
    CHANNEL_DOES_NOT_FIT = "ChannelDoesNotFit"
    UNREACHABLE = "Unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem with the words a user needs: what is wrong, and the exact next step."""

    reason: TargetProblem
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One pod or process.

    Attributes:
        id: Pod name, or `<group>-<slot>` on one machine; unique per start is not promised.
        instance: Identity of this very process (pod uid, or slot and start time).
        declared: What it was started with, read from the replica itself.
        ready: Whether it serves.
        ready_since: When it last became ready.
        started_at: When it was created.
        restarts: Times the engine was restarted in place.
        failure: "" or what is wrong in words (`CrashLoopBackOff: exit 1`).
        terminating: It is going away; its numbers no longer count.
        lost: It failed for a reason of the machine (node gone, evicted), not of the setting.
        namespace: Namespace of the pod, "" for a process.
        endpoint: Base URL of the engine, "" when it has no address yet.
        node: Where it runs.
        key: Names this very process among all: a name may be taken over by a later one.
    """

    id: str
    instance: str = ""
    declared: Declared
    ready: bool = False
    ready_since: datetime | None = None
    started_at: datetime | None = None
    restarts: int = 0
    failure: str = ""
    terminating: bool = False
    lost: bool = False
    namespace: str = ""
    endpoint: str = ""
    node: str = ""
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Once, since it is asked for a dozen times a tick.
        object.__setattr__(self, "key", f"{self.namespace}\0{self.id}\0{self.instance}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Who applies a workload from elsewhere, and may take foreign fields away.

    Attributes:
        tool: `Argo CD`, `Flux` or `Helm`.
        name: The application or release.
        snippet: What makes it leave our fields alone, as its own configuration.
    """

    tool: str
    name: str
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetState:
    """What is, at one moment.

    Attributes:
        ref: Which target.
        problem: Set when it cannot be steered; the rest may then be empty.
        declared: What the workload says new replicas should run.
        desired_replicas: Replicas wanted by the user or an autoscaler. Never changed by us.
        replicas: All replicas, terminating ones included.
        user_template: Hash of the workload's template without the keys that are ours; a change
            of it in mid-flip is an edit by somebody else.
        rolling: Words when replicas are being replaced or scaled, "" at rest.
        halted: The roll is held after its first replicas (a paused Deployment, a partition).
        unheld: Why a roll cannot be held after its first replicas, in words; it reaches all of them
            in one go. "" where it can be.
        can_add_replica: Whether a canary can come up without fewer replicas serving than the
            workload's own strategy allows; without that a change means downtime.
        deadlock: Why a roll by the workload's own strategy would wait for ever, in words: it
            starts a replica before one stops, and no node has room. "" when it would not.
        engine: The engine that new replicas run, and how it is run.
        labels: Labels of the workload itself.
        progress_deadline_s: The workload's own limit for a replica to become ready, 0 for none.
        kv_transfer: It is one half of a disaggregated pair (prefill, decode) that hands its KV
            cache over: the other half must run the same drafter.
        scaling: Words while an autoscaler changes the number of replicas, "" otherwise.
        keeper: The GitOps tool that applies the workload, None when none does.
        channel: How settings travel to it, and why so, in words; "" where there is but one way.
    """

    ref: TargetRef
    problem: Problem | None = None
    declared: Declared = field(default_factory=Declared)
    desired_replicas: int = 0
    replicas: tuple[Replica, ...] = ()
    user_template: str = ""
    rolling: str = ""
    halted: bool = False
    unheld: str = ""
    can_add_replica: bool = True
    deadlock: str = ""
    engine: EngineRun = field(default_factory=EngineRun)
    labels: Mapping[str, str] = field(default_factory=dict)
    progress_deadline_s: float = 0.0
    kv_transfer: bool = False
    scaling: str = ""
    keeper: Keeper | None = None
    channel: str = ""

    @property
    def engine_version(self) -> str:
        """The engine's version as text, "" when not known."""
        return self.engine.version

    def first_wave(self, canaries: int) -> int:
        """How many replicas try a setting first: all of them where a roll cannot be held."""
        wanted = max(self.desired_replicas, 1)
        return wanted if self.unheld else min(canaries, wanted)

    def live(self) -> tuple[Replica, ...]:
        """Replicas that are not going away."""
        return tuple(r for r in self.replicas if not r.terminating)

    def others(self, declared: Declared) -> tuple[Replica, ...]:
        """Live replicas that were started with anything else than this declaration."""
        return tuple(r for r in self.live() if r.declared != declared)

    def arm(self, declared: Declared) -> tuple[Replica, ...]:
        """Live replicas started with exactly this declaration."""
        return tuple(r for r in self.live() if r.declared == declared)

    def all_run(self, declared: Declared) -> bool:
        """At rest, every live replica ready, and each one started with this declaration."""
        live = self.live()
        return (
            not self.rolling
            and self.declared == declared
            and len(live) == self.desired_replicas
            and all(r.declared == declared and r.ready for r in live)
        )
