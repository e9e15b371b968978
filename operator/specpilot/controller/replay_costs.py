"""Which remembered costs speak of the settings of a replay."""

from collections.abc import Mapping, Sequence

from specpilot.domain.economics import Measurement, config_hash
from specpilot.domain.engine_run import EngineRun
from specpilot.domain.policy import Policy
from specpilot.domain.settings import Setting
from specpilot.engines.runs import renderings
from specpilot.store import Store

_TEMPLATE = "template "
"""Begins the engine of a measurement whose version was not known (`economics.engine_of`)."""


def remembered_costs(store: Store, policy: Policy) -> dict[str, list[Measurement]]:
    """Measurements of a policy's target by setting, oldest first.

    Which engine ran in the past is not known to a Prometheus: it is taken to be the one that was
    measured last. A setting that has been edited since has other measurements, or none.
    """
    target = str(policy.target)
    with store.read() as unit:
        found = unit.measurements.of([target]).get(target, [])
    return costs_of(found, policy.settings)


def costs_of(
    measurements: Sequence[Measurement], settings: Mapping[str, Setting]
) -> dict[str, list[Measurement]]:
    """Those of the newest engine and of the very config that a setting is rendered to."""
    if not measurements:
        return {}
    engine = measurements[-1].engine
    own = [m for m in measurements if m.engine == engine]
    version = "" if engine.startswith(_TEMPLATE) else engine
    found = {}
    for setting in settings.values():
        if setting.is_off:
            continue
        said = renderings(setting, EngineRun(version=version))
        configs = {config_hash(each.config) for each in said if not each.refused}
        if of_it := [m for m in own if m.config in configs]:
            found[setting.name] = of_it
    return found
