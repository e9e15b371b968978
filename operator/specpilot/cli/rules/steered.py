"""The policy that rules are looked at for, and the engine it steers.

Which batch limits are left to rules depends on the engine. It is the one that the options state,
else the one that the policy's target is seen to run; where neither is known, rules are taken to
keep every limit that some engine would not.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from specpilot.cli import live
from specpilot.cli.operator import IN_CLUSTER
from specpilot.cli.rules.source import STDIN, read_text
from specpilot.controller.targets import limits_left_to_rules
from specpilot.domain.engine_run import EngineRun
from specpilot.domain.policy import Policy
from specpilot.domain.ports import FleetError
from specpilot.engines import render_for
from specpilot.fleets.kubernetes import FIELD_MANAGER, connect
from specpilot.resources import Fault, ResourceError, load, policy_from

PolicyOption = Annotated[
    str,
    typer.Option(
        "--policy",
        help="Look at the rules for this policy: its name, or a file that holds it.",
    ),
]

Namespace = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", help="The policy is in this namespace of the cluster, not here."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """A policy and the engine of its target.

    Attributes:
        policy: The policy.
        run: The engine, as far as it is known.
    """

    policy: Policy
    run: EngineRun = field(default_factory=EngineRun)

    @property
    def limits(self) -> dict[str, int]:
        """Batch limits that rules must enforce, by setting."""
        return limits_left_to_rules(self.policy, engine=self.run)

    @property
    def kept_by_the_engine(self) -> dict[str, int]:
        """Batch limits that the engine keeps."""
        return {
            setting.name: setting.disable_above_batch_size
            for setting in self.policy.settings.values()
            if setting.disable_above_batch_size is not None
            and setting.name not in self.limits
            and not render_for(setting, self.run).refused
        }

    @property
    def engine(self) -> str:
        """The engine in words."""
        if not self.run.version:
            return "an engine of which the version is not known"
        return f"vLLM {self.run.version}"

    def why(self, setting: str) -> str:
        """What becomes of a setting's limit, in words."""
        return render_for(self.policy.settings[setting], self.run).instead


def steered(word: str, namespace: str, *, state: Path, run: EngineRun | None) -> Steered:
    """Find a policy by name, here or in a cluster, or in a file.

    Args:
        word: Its name, or the file.
        namespace: Its namespace in a cluster, "" for this machine.
        state: The state directory.
        run: The engine, where options state it.

    Raises:
        BadParameter: There is no such policy.
        ResourceError: It is not valid, or a file holds none or several.
        FleetError: The API server did not answer.
    """
    path = Path(word)
    if path.suffix in {".yaml", ".yml", ".json"} or word == STDIN:
        policy = _of_file(word, namespace)
        return Steered(policy=policy, run=run or EngineRun())
    if not namespace:
        policy, observe = live.on_this_machine(word, state)
        return Steered(policy=policy, run=run or _seen(policy, observe))
    api = connect(in_cluster=IN_CLUSTER.exists(), field_manager=FIELD_MANAGER)
    try:
        policy, observe = live.in_a_cluster(word, namespace, api)
        return Steered(policy=policy, run=run or _seen(policy, observe))
    finally:
        api.close()


def _seen(policy: Policy, observe: live.Observe) -> EngineRun:
    """The engine of a target, which is looked at only where a limit depends on it."""
    if all(s.disable_above_batch_size is None for s in policy.settings.values()):
        return EngineRun()
    try:
        return observe().engine
    except FleetError:
        return EngineRun()


def _of_file(word: str, namespace: str) -> Policy:
    policies = [d for d in load(read_text(word), source=word) if d.kind == "SpeculationPolicy"]
    if len(policies) != 1:
        message = f"it holds {len(policies)} SpeculationPolicies, and one is asked for"
        raise ResourceError(Fault(where=word, field="", message=message))
    return policy_from(policies[0], namespace=namespace)
