"""The ways in which a setting travels to a workload's pods; see `base`."""

from specpilot.domain.targets import Channel as ChannelName
from specpilot.fleets.kubernetes.channels.annotation import AnnotationChannel
from specpilot.fleets.kubernetes.channels.arguments import ArgumentsChannel
from specpilot.fleets.kubernetes.channels.base import Channel, Letters, View
from specpilot.fleets.kubernetes.workloads.base import Workload

_ANNOTATION = AnnotationChannel()
_ARGUMENTS = ArgumentsChannel()


def choose(workload: Workload, asked: ChannelName) -> Channel | None:
    """Return the channel for a workload, None when the one asked for does not exist for its kind.

    AUTO takes the owner's field where there is one, because whoever owns the pods would undo
    anything else; and the annotation otherwise. It never takes the arguments: to have them
    rewritten is for the user to allow.
    """
    match asked:
        case ChannelName.OWNER:
            return workload.owner_channel
        case ChannelName.AUTO if workload.owner_channel is not None:
            return workload.owner_channel
        case ChannelName.AUTO | ChannelName.ANNOTATION:
            return _ANNOTATION if workload.templates else None
        case ChannelName.ARGS:
            return _ARGUMENTS if workload.templates else None


def owned_fields(workload: Workload) -> tuple[tuple[str, ...], ...]:
    """Fields of a workload whose owners are asked for, by any channel or for the hold."""
    channels = (_ANNOTATION, *([workload.owner_channel] if workload.owner_channel else []))
    paths = (workload.hold_field, *(p for c in channels for p in c.owned_fields(workload)))
    return tuple(tuple(str(step) for step in path) for path in paths if path)


__all__ = ["Channel", "Letters", "View", "choose", "owned_fields"]
