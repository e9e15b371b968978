"""The YAML kinds, for a cluster and for one machine: text or object -> checked document -> value.

load(text) -> [Document]        policy_from(document, ...) -> Policy
read(object) -> Document        rule_set_from(document) -> RuleSet
"""

from specpilot.domain.policy import Policy, PolicyRef
from specpilot.domain.rules import RuleSet
from specpilot.resources.alert_channel import AlertChannelSpec
from specpilot.resources.base import API_VERSION
from specpilot.resources.documents import (
    KINDS,
    Document,
    Fault,
    Metadata,
    ResourceError,
    load,
    read,
    spec_of,
)
from specpilot.resources.flag_change import FlagChangeSpec, FlagChangeStatus
from specpilot.resources.local_fleet import LocalFleetSpec
from specpilot.resources.policy import LOCAL_NAMESPACE, PolicySpec, policy
from specpilot.resources.rule_set import RuleSetSpec, rule_set

__all__ = [
    "API_VERSION",
    "KINDS",
    "LOCAL_NAMESPACE",
    "AlertChannelSpec",
    "Document",
    "Fault",
    "FlagChangeSpec",
    "FlagChangeStatus",
    "LocalFleetSpec",
    "Metadata",
    "ResourceError",
    "channel_from",
    "flag_change_from",
    "load",
    "local_fleet_from",
    "policy_from",
    "read",
    "rule_set_from",
]


def policy_from(
    document: Document, *, uid: str = "", generation: int = 0, namespace: str = ""
) -> Policy:
    """Make a policy of a SpeculationPolicy.

    Args:
        document: The document.
        uid: Identity of the object; "" takes the document's own, or its name on one machine.
        generation: Generation of the spec; 0 takes the document's own.
        namespace: Namespace; "" takes the document's own, or the one of one machine.
    """
    spec: PolicySpec = spec_of(document, PolicySpec)
    metadata = document.metadata
    ref = PolicyRef(
        namespace=namespace or metadata.namespace or LOCAL_NAMESPACE,
        name=metadata.name,
        uid=uid or metadata.uid or f"{document.kind}/{metadata.name}",
    )
    return policy(spec, ref=ref, generation=generation or metadata.generation)


def rule_set_from(document: Document) -> RuleSet:
    """Make the content of a rule set's version of a RuleSet."""
    spec: RuleSetSpec = spec_of(document, RuleSetSpec)
    return rule_set(spec, name=document.metadata.name)


def channel_from(document: Document) -> AlertChannelSpec:
    """The spec of an AlertChannel; its name is the document's."""
    spec: AlertChannelSpec = spec_of(document, AlertChannelSpec)
    return spec


def flag_change_from(document: Document) -> FlagChangeSpec:
    """The spec of a FlagChange."""
    spec: FlagChangeSpec = spec_of(document, FlagChangeSpec)
    return spec


def local_fleet_from(document: Document) -> LocalFleetSpec:
    """The spec of a LocalFleet; its name is the document's, and the target's."""
    spec: LocalFleetSpec = spec_of(document, LocalFleetSpec)
    return spec
