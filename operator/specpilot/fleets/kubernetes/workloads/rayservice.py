"""KubeRay RayService: one key inside the YAML text of `serveConfigV2`.

What is easy to get wrong:

- The configuration is text in the object. Only the one key is written; comments, order and notation
  of everything else stay (see `serveconfig`).
- A changed serveConfigV2 is applied in place, in the running RayCluster: no pod is replaced, and no
  pod's command line says what its engine runs. So Ray Serve itself is asked, through the dashboard
  of the head pod, and without its answer nothing counts as known.
- Any change of rayClusterConfig starts a second RayCluster of the same size (twice the GPUs) before
  the first one goes. Nothing there is written; and while one is pending, nothing is started.
- Serve replaces the engine's replicas with nothing to hold them, and starts a new one where the
  cluster has a GPU to spare; where it has none, serving stops for as long as a model loads. Which
  of both cannot be told from here, so the user's word is needed (`rollout.allowDowntime`).
- Several models in one RayService share its pods and are refused.

The CRD in the tests is KubeRay's own; KubeRay and Ray Serve were not run.
"""

import json
from collections.abc import Mapping
from typing import Any

from specpilot.domain.engine_run import EngineRun
from specpilot.domain.settings import UNRECOGNISED, Declared, JsonValue, canonical_json
from specpilot.fleets.kubernetes.channels.base import View
from specpilot.fleets.kubernetes.channels.owner import OwnerChannel
from specpilot.fleets.kubernetes.replicas import address_of
from specpilot.fleets.kubernetes.request import Object, Resource
from specpilot.fleets.kubernetes.wiring import named
from specpilot.fleets.kubernetes.workloads import serveconfig
from specpilot.fleets.kubernetes.workloads.base import Family, HasRoom, Path, dig
from specpilot.fleets.kubernetes.workloads.owned import OwnedWorkload

RAY_SERVICES = Resource(group="ray.io", version="v1", plural="rayservices", kind="RayService")
RAY_CLUSTERS = Resource(group="ray.io", version="v1", plural="rayclusters", kind="RayCluster")

_TEXT: Path = ("spec", "serveConfigV2")
_NODE_TYPE = "ray.io/node-type"
_DASHBOARD_PORT = 8265


class ServeConfig(OwnerChannel):
    """See the module."""

    why = (
        "Ray Serve is told by serveConfigV2 and changes in place; rayClusterConfig is not touched, "
        "for that would start a second cluster with as many GPUs"
    )
    needs_version = False

    def unfit(self, view: View) -> str:
        """See `OwnerChannel`."""
        try:
            serveconfig.find(self._text(self.values(view)))
        except ValueError as error:
            return f"spec.serveConfigV2: {error}"
        return ""

    def values(self, view: View) -> dict[Path, JsonValue]:
        """See `PatchChannel`."""
        return {_TEXT: dig(view.root, _TEXT)}

    def config_of(self, view: View, values: Mapping[Path, JsonValue]) -> str | None:
        """See `PatchChannel`."""
        try:
            return _canonical(serveconfig.find(self._text(values)).config)
        except ValueError:
            return None

    def rest(self, view: View, values: Mapping[Path, JsonValue]) -> JsonValue:
        """See `PatchChannel`."""
        return serveconfig.write(self._text(values), None)

    def values_for(self, view: View, config: str) -> dict[Path, JsonValue]:
        """See `PatchChannel`."""
        text = self._text(self.values(view))
        return {_TEXT: serveconfig.write(text, json.loads(config) if config else None)}

    def question(self, view: View) -> str:
        """See `Channel`."""
        bases = (address_of(pod, _dashboard_port(pod)) for pod in view.pods)
        return next((f"{base}/api/serve/applications/" for base in bases if base), "")

    def engine_run(self, view: View, engine: Mapping[str, Any]) -> EngineRun:
        """See `Channel`: a pod's command line starts Ray, and says nothing of the engine."""
        try:
            ranks = serveconfig.find(self._text(self.values(view))).data_parallel
        except ValueError:
            ranks = None
        return EngineRun(version=view.version, data_parallel=ranks)

    def runs(self, view: View, pod: Object, engine: Mapping[str, Any]) -> Declared:
        """See `Channel`: what Ray Serve says it has deployed, once that runs."""
        try:
            wanted = serveconfig.find(self._text(self.values(view)))
            application = json.loads(view.answer)["applications"][wanted.application]
            deployed = serveconfig.config_in(application["deployed_app_config"])
        except (ValueError, KeyError, TypeError):
            return Declared(setting=UNRECOGNISED)
        states = [d.get("status") for d in (application.get("deployments") or {}).values()]
        if application.get("status") != "RUNNING" or any(s != "HEALTHY" for s in states):
            return Declared(setting=UNRECOGNISED)
        return named(_canonical(deployed), claims=self.claims(view))

    def _elsewhere(self, view: View) -> str:
        return ""

    @staticmethod
    def _text(values: Mapping[Path, JsonValue]) -> str:
        return str(values.get(_TEXT) or "")


class RayServiceWorkload(OwnedWorkload):
    """See the module."""

    resource = RAY_SERVICES
    between = (RAY_CLUSTERS,)
    heads = (RAY_CLUSTERS,)
    container = "ray-head"
    reports_observed = True
    owner_channel = ServeConfig()

    def replicas_at(self, root: Object) -> Path:
        """See `Workload`."""
        return ()

    def replicas_wanted(self, root: Object) -> int:
        """See `Workload`: the cluster as a whole."""
        return 1

    def is_engine(self, root: Object, member: Object) -> bool:
        """See `OwnedWorkload`: not the cluster that is pending."""
        active = dig(root, ("status", "activeServiceStatus", "rayClusterName"))
        return bool(active) and member["metadata"]["name"] == active

    def replicas(self, family: Family) -> list[tuple[Object, ...]]:
        """See `Workload`: the head stands for all; a worker without a replica is never ready."""
        heads = [
            pod
            for pod in self.engine_pods(family)
            if (pod["metadata"].get("labels") or {}).get(_NODE_TYPE) == "head"
        ]
        return [(pod,) for pod in heads]

    def rolling(self, family: Family) -> str:
        """See `Workload`."""
        root = family.root
        status = root.get("status") or {}
        words = self.not_observed(root)
        pending = dig(status, ("pendingServiceStatus", "rayClusterName"))
        if pending:
            words.append(f"a second RayCluster {pending} is being started, with as many GPUs")
        applications = dig(status, ("activeServiceStatus", "applicationStatuses")) or {}
        words += [
            f"application {name} is {state.get('status') or 'of unknown state'}"
            for name, state in applications.items()
            if state.get("status") != "RUNNING"
        ]
        return "; ".join(words)

    def can_add_replica(self, family: Family, has_room: HasRoom) -> bool:
        """See `Workload`: whether Serve finds a GPU inside the cluster is not known here."""
        return False


def _canonical(config: JsonValue) -> str:
    return canonical_json(config) if config else ""


def _dashboard_port(pod: Object) -> int:
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == "dashboard":
                return int(port["containerPort"])
    return _DASHBOARD_PORT
