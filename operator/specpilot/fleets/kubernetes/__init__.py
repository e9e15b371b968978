"""Targets on Kubernetes: observing and changing workloads, watches, custom resources, election.

api = connect(kubeconfig=..., field_manager=...)
    watches = Watches(api=api, clock=..., on_change=..., namespaces=...)
    fleet = KubernetesFleet(
        api, source=Cached(watches, live=Live(api)), version=ask_engine, get=get_text
    )
"""

from specpilot.fleets.kubernetes.api import FIELD_MANAGER, Api, ApiError, connect
from specpilot.fleets.kubernetes.election import Elector, Terms, Token
from specpilot.fleets.kubernetes.flagchanges import FlagChangeMirror
from specpilot.fleets.kubernetes.fleet import KubernetesFleet
from specpilot.fleets.kubernetes.request import (
    ALERT_CHANNELS,
    DEPLOYMENTS,
    FLAG_CHANGES,
    POLICIES,
    RULE_SETS,
    Resource,
)
from specpilot.fleets.kubernetes.source import Cached, Live
from specpilot.fleets.kubernetes.status import StatusWriter
from specpilot.fleets.kubernetes.versions import ask_engine, get_text
from specpilot.fleets.kubernetes.watch import Pace, WatchState
from specpilot.fleets.kubernetes.watches import WATCHED, Watches, installed

__all__ = [
    "ALERT_CHANNELS",
    "DEPLOYMENTS",
    "FIELD_MANAGER",
    "FLAG_CHANGES",
    "POLICIES",
    "RULE_SETS",
    "WATCHED",
    "Api",
    "ApiError",
    "Cached",
    "Elector",
    "FlagChangeMirror",
    "KubernetesFleet",
    "Live",
    "Pace",
    "Resource",
    "StatusWriter",
    "Terms",
    "Token",
    "WatchState",
    "Watches",
    "ask_engine",
    "connect",
    "get_text",
    "installed",
]
