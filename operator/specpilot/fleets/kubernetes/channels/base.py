"""How a setting is written into a workload, and read back from it: the interface of a channel.

A channel is about words, an adapter (`workloads.base`) about rolls; any channel that fits a
workload goes with any adapter. Both are pure: what is to be sent is returned as a request.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specpilot.domain.engine_run import EngineRun
from specpilot.domain.settings import Declared, JsonValue
from specpilot.domain.targets import Channel as ChannelName
from specpilot.domain.targets import Problem
from specpilot.fleets.kubernetes.request import Object, Request
from specpilot.fleets.kubernetes.running_engines import engine_run
from specpilot.fleets.kubernetes.wiring import running
from specpilot.fleets.kubernetes.workloads.base import Family, Path, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
    """What stands, or is to stand, in a workload, to the letter.

    The same value in another notation is another template, hence new pods.

    Attributes:
        annotations: Those that are ours.
        values: Further fields that the channel writes, by their path in the root.
    """

    annotations: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[Path, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A workload as a channel sees it.

    Attributes:
        workload: Its adapter.
        root: The object.
        container: The container that runs the engine, "" where no template tells.
        version: Version of the engine, "" when not known.
        pods: The pods that run it.
        answer: What was answered to the channel's `question`, "" for nothing.
    """

    workload: Workload
    root: Object
    container: str = ""
    version: str = ""
    pods: tuple[Object, ...] = ()
    answer: str = ""

    @property
    def words(self) -> str:
        """The workload, for a message."""
        metadata = self.root["metadata"]
        return f"{self.workload.resource.kind} {metadata.get('namespace', '')}/{metadata['name']}"

    def templates(self) -> list[tuple[Path, Object]]:
        """Its pod templates, the engine's first."""
        return self.workload.pod_templates(self.root)

    def engine(self) -> tuple[Path, Object]:
        """Path and content of the engine's container.

        Raises:
            LookupError: No template has it; `fleet` looks first.
        """
        path, template = self.templates()[0]
        for index, container in enumerate(template["spec"]["containers"]):
            if container["name"] == self.container:
                return (*path, "spec", "containers", index), container
        raise LookupError(self.container)


class Channel(ABC):
    """One way in which a setting travels.

    Attributes:
        name: Its name in a policy.
        why: Why it is the one used, in words for the status.
        needs_version: Whether what it writes depends on the engine's version.
    """

    name: ChannelName
    why: str
    needs_version: bool = False

    def owned_fields(self, workload: Workload) -> tuple[Path, ...]:
        """Fields whose owners it asks for; the caches keep no others."""
        return ()

    @abstractmethod
    def problem(self, view: View) -> Problem | None:
        """Why settings do not travel this way as the workload stands, with the next step."""

    @abstractmethod
    def declared(self, view: View) -> Declared:
        """What new replicas are told to run."""

    @abstractmethod
    def edits(self, view: View) -> str:
        """Hash of what is the user's; what the channel writes does not change it."""

    @abstractmethod
    def present(self, view: View) -> Letters:
        """What stands there now."""

    @abstractmethod
    def meaning(self, view: View, letters: Letters) -> Declared:
        """What letters declare."""

    @abstractmethod
    def letters(self, view: View, family: Family, wanted: Declared) -> Letters:
        """Letters that declare it: those of a revision that still exists, else new ones."""

    def tidied(self, view: View, letters: Letters) -> Letters:
        """The letters without what says nothing true any more."""
        return letters

    @abstractmethod
    def released(self, view: View) -> Letters:
        """What stays when our value has been replaced by somebody: theirs, and nothing of ours."""

    @abstractmethod
    def taken_over(self, view: View, *, manager: str) -> bool:
        """Whether the value is somebody else's and no longer ours."""

    def leftover(self, view: View, *, manager: str) -> bool:
        """Whether something of ours still stands beside a value that is somebody else's."""
        return False

    @abstractmethod
    def request(
        self, view: View, letters: Letters, *, hold: JsonValue, manager: str
    ) -> Request | None:
        """Write letters and hold (None gives it back) in one go; None when all stands already."""

    def claims(self, view: View) -> tuple[Declared, ...]:
        """Declarations that pods may be recognised by where they carry no annotations of ours."""
        return ()

    def question(self, view: View) -> str:
        """Address to ask what runs, where no pod's own words tell; "" where they do."""
        return ""

    def engine_run(self, view: View, engine: Mapping[str, Any]) -> EngineRun:
        """How the engine of a container is run."""
        return engine_run(engine, version=view.version)

    def runs(self, view: View, pod: Object, engine: Mapping[str, Any]) -> Declared:
        """What a pod runs in the engine's container."""
        return running(pod["metadata"], engine, version=view.version, claims=self.claims(view))
