"""Which devices a server of a local group was given, as its own environment says.

On one machine no exporter knows which process is which replica: the fleet that starts it does.
"""

from collections.abc import Callable, Iterable, Mapping

from specpilot.domain.targets import Replica
from specpilot.fleets.local import LocalGroup

VARIABLE = "CUDA_VISIBLE_DEVICES"


def devices_of(
    groups: Iterable[LocalGroup], *, inherited: Mapping[str, str]
) -> Callable[[Replica], tuple[str, ...]]:
    """Tell the devices of a replica: indices or UUIDs; none where nothing names them.

    Args:
        groups: The groups; what one slot is given goes before what its group is.
        inherited: The supervisor's own environment, which every server gets.
    """
    given = {
        f"{group.name}-{slot}": _visible({**inherited, **group.environment(slot)}.get(VARIABLE, ""))
        for group in groups
        for slot in range(group.replicas)
    }
    return lambda replica: given.get(replica.id, ())


def _visible(value: str) -> tuple[str, ...]:
    """The devices that the CUDA runtime takes: those before the first that is none."""
    names: list[str] = []
    for word in value.split(","):
        name = word.strip()
        if not name or name.startswith("-"):
            break
        names.append(name)
    return tuple(names)
