"""The ``--sim-`` options: what a command line must say because no hardware says it."""

from __future__ import annotations

import argparse
from dataclasses import replace

from specpilot.sim.costs import PROFILES, constant_names
from specpilot.sim.faults import Faults, change
from specpilot.sim.launch import SimOptions

ANY_METHOD = "any"
"""Value of ``--sim-fault-if-method`` for "whenever speculation is on"."""


def add_sim_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to vLLM's parser, in a group of their own."""
    group = parser.add_argument_group("simulator")
    add = group.add_argument
    add("--sim-version", help="vLLM release to stand in for (env SPECPILOT_SIM_VERSION)")
    add("--sim-profile", default="h100-8b", help=f"cost model: {', '.join(PROFILES)}")
    add(
        "--sim-constant",
        action="append",
        default=[],
        metavar="NAME=SECONDS",
        help=f"override a constant of the profile: {', '.join(constant_names())}",
    )
    add("--sim-time-scale", type=float, default=1.0, help="wall seconds per simulated second")
    add("--sim-startup-seconds", type=float, default=0.0, help="until the first answer")
    add("--sim-acceptance", type=float, default=0.7, help="of drafters on unmarked prompts")
    add("--sim-seed", type=int, default=0, help="of the acceptance draws")
    add("--sim-model-runner", choices=("v1", "v2"), default="v1")
    on_term = group.add_mutually_exclusive_group()
    on_term.add_argument(
        "--sim-abort-on-term",
        action="store_true",
        help="on SIGTERM cut all connections and exit, which vLLM only does when killed",
    )
    on_term.add_argument(
        "--sim-hang-on-term",
        type=float,
        metavar="SECONDS",
        help="on SIGTERM hang for so long, whether or not clients wait",
    )
    add("--sim-control", action="store_true", help="serve /sim/state and /sim/fault")
    faults = parser.add_argument_group("simulated faults")
    add = faults.add_argument
    add("--sim-crash-at-start", type=int, metavar="CODE")
    add("--sim-crash-if-method", metavar="METHOD", help="crash at start with exit code 1")
    add("--sim-crash-after", type=float, metavar="SECONDS")
    add("--sim-hang-after", type=float, metavar="SECONDS", help="the engine stops stepping")
    add("--sim-slow", type=float, default=1.0, metavar="FACTOR")
    add("--sim-kv-fraction", type=float, default=1.0, help="usable part of the KV cache")
    add("--sim-acceptance-factor", type=float, default=1.0, help="a drafter gone bad")
    add(
        "--sim-fault-if-method",
        metavar="METHOD",
        help=f"the faults hold only with this method; '{ANY_METHOD}': with speculation on, "
        "'off': without",
    )


def read_sim_options(namespace: argparse.Namespace) -> SimOptions:
    """Check and collect the options; the faults' condition is left to :func:`apply_condition`.

    Raises:
        ValueError: an option outside its range; the message names it.
    """
    if namespace.sim_profile not in PROFILES:
        raise ValueError(
            f"--sim-profile: {namespace.sim_profile!r} is not one of {', '.join(PROFILES)}"
        )
    if not 0 < namespace.sim_time_scale < float("inf"):
        raise ValueError(f"--sim-time-scale: {namespace.sim_time_scale} must be positive, finite")
    for name, value in (
        ("--sim-startup-seconds", namespace.sim_startup_seconds),
        ("--sim-hang-on-term", namespace.sim_hang_on_term or 0.0),
    ):
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name}: {value} must be zero or more seconds, and finite")
    if not 0 <= namespace.sim_acceptance <= 1:
        raise ValueError(f"--sim-acceptance: {namespace.sim_acceptance} must be in [0, 1]")
    faults = change(
        Faults(),
        to={
            "slow": namespace.sim_slow,
            "kv_fraction": namespace.sim_kv_fraction,
            "acceptance_factor": namespace.sim_acceptance_factor,
        },
    )
    return SimOptions(
        profile=namespace.sim_profile,
        constants=dict(_constant(text) for text in namespace.sim_constant),
        time_scale=namespace.sim_time_scale,
        startup_seconds=namespace.sim_startup_seconds,
        acceptance=namespace.sim_acceptance,
        abort_on_term=namespace.sim_abort_on_term,
        hang_on_term=namespace.sim_hang_on_term,
        seed=namespace.sim_seed,
        control=namespace.sim_control,
        crash_at_start=namespace.sim_crash_at_start,
        crash_after=namespace.sim_crash_after,
        hang_after=namespace.sim_hang_after,
        faults=faults,
    )


def _constant(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    if name not in constant_names():
        raise ValueError(f"--sim-constant: {name!r} is not one of {', '.join(constant_names())}")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError(f"--sim-constant: {text!r}: write {name}=SECONDS, zero or more")
    return name, value


def apply_condition(
    options: SimOptions,
    *,
    method: str | None,
    fault_if: str | None,
    crash_if: str | None,
) -> SimOptions:
    """Drop the faults whose condition on the speculation method does not hold."""

    def holds(condition: str) -> bool:
        if condition == ANY_METHOD:
            return method is not None
        return (method or "off") == condition

    if fault_if is not None and not holds(fault_if):
        options = replace(
            options, crash_at_start=None, crash_after=None, hang_after=None, faults=Faults()
        )
    if crash_if is not None and holds(crash_if):
        options = replace(options, crash_at_start=1)
    return options
