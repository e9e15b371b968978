"""Local groups as a fleet: the same port the controller uses for a cluster."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from specpilot.domain.changes import Intent
from specpilot.domain.ports import Clock, FleetError
from specpilot.domain.targets import Problem, TargetProblem, TargetRef, TargetState
from specpilot.fleets.local.command import Arguments, config_argument
from specpilot.fleets.local.group import GroupSupervisor
from specpilot.fleets.local.spec import LocalGroup, LocalGroupError

KIND = "Local"
NAMESPACE = "local"


class LocalFleet:
    """Supervises groups of servers on this machine, and steers what they run.

    Everything runs in threads of this process; when it ends, in whatever way, all servers end.
    It is started once; one that has been stopped is not started again.

    Args:
        groups: The groups.
        state_dir: Where states, locks and logs are kept; one supervisor at a time for a group.
        clock: Time of record.
        arguments: Renders a declared setting into command-line arguments for an engine version.
    """

    def __init__(
        self,
        groups: Sequence[LocalGroup],
        *,
        state_dir: Path,
        clock: Clock,
        arguments: Arguments = config_argument,
    ) -> None:
        names = [group.name for group in groups]
        for name in names:
            if names.count(name) > 1:
                raise LocalGroupError(f"name: {name!r} is given twice; give each group its own")
        processes = sum(group.replicas + 1 for group in groups)
        self._executor = ThreadPoolExecutor(max(1, processes), thread_name_prefix="health")
        self._groups: Mapping[str, GroupSupervisor] = {
            group.name: GroupSupervisor(
                group,
                state_dir=state_dir,
                clock=clock,
                arguments=arguments,
                executor=self._executor,
            )
            for group in groups
        }

    def start(self) -> None:
        """Take all groups over and begin to start their servers; does not wait for them.

        Raises:
            FleetError: A group could not be taken over; none is running then.
        """
        try:
            for group in self._groups.values():
                group.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Finish requests in flight and stop all servers; returns when all are gone."""
        with ThreadPoolExecutor(max(1, len(self._groups))) as pool:
            for ending in [pool.submit(group.stop) for group in self._groups.values()]:
                ending.result()
        self._executor.shutdown()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def refs(self) -> tuple[TargetRef, ...]:
        """The groups as targets."""
        return tuple(TargetRef(kind=KIND, namespace=NAMESPACE, name=n) for n in self._groups)

    def gateway_url(self, name: str) -> str:
        """Base URL clients of a group use.

        Raises:
            FleetError: There is no such group, or it is not started.
        """
        return self._group(name).gateway_url

    def logs(self, name: str) -> Mapping[str, Path]:
        """Log file of each replica of a group; former ones beside it as `.1`, `.2` ...

        Raises:
            FleetError: There is no such group.
        """
        return self._group(name).logs()

    def observe(self, ref: TargetRef) -> TargetState:
        """Report what is; see `specpilot.domain.ports.Fleet`."""
        if ref.kind != KIND:
            return TargetState(
                ref=ref,
                problem=Problem(
                    reason=TargetProblem.UNSUPPORTED_KIND,
                    message=f"kind: {ref.kind!r} is not on this machine; use {KIND!r}",
                ),
            )
        group = self._groups.get(ref.name) if ref.namespace == NAMESPACE else None
        if group is None:
            return TargetState(
                ref=ref,
                problem=Problem(reason=TargetProblem.NOT_FOUND, message=self._unknown(ref.name)),
            )
        return group.observe(ref)

    def carry_out(self, intent: Intent) -> bool:
        """Have the next step taken; see `specpilot.domain.ports.Fleet`."""
        if intent.target.kind != KIND or intent.target.namespace != NAMESPACE:
            raise FleetError(f"{intent.target} is not on this machine; use kind {KIND!r}")
        return self._group(intent.target.name).carry_out(intent)

    def _group(self, name: str) -> GroupSupervisor:
        if name not in self._groups:
            raise FleetError(self._unknown(name))
        return self._groups[name]

    def _unknown(self, name: str) -> str:
        known = ", ".join(sorted(self._groups)) or "none"
        return f"there is no local group {name!r}; known: {known}"
