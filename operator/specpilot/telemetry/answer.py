"""Ask a source and derive readings, whatever goes wrong on the way.

The tick that asks has other targets to serve: nothing raised here may reach it.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from specpilot.domain.ports import Ask
from specpilot.domain.readings import Readings, UnknownReason
from specpilot.telemetry.derive import derive, needs_devices
from specpilot.telemetry.windows import Arm, Source, failed, serving

log = logging.getLogger(__name__)


def answer(
    source: Source, asks: Sequence[Ask], *, deadline_s: float, devices: Source | None = None
) -> Mapping[str, Readings]:
    """Readings for every ask, under its key. Never raises: what fails is Unknown.

    Args:
        source: Where the engines' numbers come from.
        asks: What is asked.
        deadline_s: Longest time it may take.
        devices: Where the numbers of GPUs come from; a failure there leaves the others alone.
    """
    proper = [ask for ask in asks if not _refusal(ask)]
    arms: Mapping[str, Arm] = {}
    problem = "gave no answer"
    try:
        arms = source.windows(proper, deadline_s=deadline_s)
    except Exception as error:
        log.exception("telemetry failed")
        problem = f"failed ({type(error).__name__}); the log has the details"
    gpu = _devices(devices, proper, deadline_s=deadline_s)
    return {
        ask.key: _readings(ask, arms.get(ask.key), _refusal(ask) or problem, gpu) for ask in asks
    }


def _devices(source: Source | None, asks: Sequence[Ask], *, deadline_s: float) -> Mapping[str, Arm]:
    if source is None:
        return {}
    wanted = [ask for ask in asks if needs_devices(ask.signals)]
    try:
        return source.windows(wanted, deadline_s=deadline_s) if wanted else {}
    except Exception as error:
        log.exception("GPU telemetry failed")
        words = f"failed ({type(error).__name__}); the log has the details"
        return {ask.key: replace(_failed(ask, words), source="GPU") for ask in wanted}


def _refusal(ask: Ask) -> str:
    """Why a question makes no sense, or ""."""
    if ask.start.tzinfo is None or ask.end.tzinfo is None:
        return "the window's times have no time zone"
    if ask.start >= ask.end:
        return f"the window is empty: it starts at {ask.start} and ends at {ask.end}"
    return ""


def _readings(ask: Ask, arm: Arm | None, problem: str, devices: Mapping[str, Arm]) -> Readings:
    ready = len(serving(ask))
    try:
        return derive(
            arm or _failed(ask, problem),
            ready=ready,
            devices=devices.get(ask.key),
            signals=ask.signals,
        )
    except Exception as error:
        log.exception("deriving signals of %s failed", ask.target)
        words = f"failed ({type(error).__name__}); the log has the details"
        return derive(_failed(ask, words), ready=ready, signals=ask.signals)


def _failed(ask: Ask, words: str) -> Arm:
    replicas = tuple(failed(each, UnknownReason.SOURCE_ERROR, words) for each in serving(ask))
    return Arm(source="telemetry", end=ask.end, window_s=0.0, replicas=replicas)
