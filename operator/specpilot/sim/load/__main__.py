"""``python -m specpilot.sim.load``: put load on replicas and report what it was worth."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from specpilot.sim.load.client import ClientOptions, endpoints_of_file, send
from specpilot.sim.load.records import Objective, Record, as_json, by_phase, summarise
from specpilot.sim.load.workload import Arrival, Phase, arrivals, parse_phase, read_trace, span


def main(argv: Sequence[str] | None = None) -> int:
    """Run the load; return 0 if every request was served, 1 if not."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        phases = [parse_phase(text, number=i) for i, text in enumerate(options.phase)]
        schedule = (
            arrivals(phases, seed=options.seed)
            if phases
            else read_trace(options.trace, seed=options.seed)
        )
    except (OSError, ValueError) as error:
        parser.error(str(error))
    fixed = list(options.endpoint)
    endpoints = endpoints_of_file(options.endpoints_file) if options.endpoints_file else fixed.copy
    sampling: dict[str, object] = {"ignore_eos": True}
    if options.temperature is not None:
        sampling["temperature"] = options.temperature
    client = ClientOptions(
        model=options.model, stream=options.stream, timeout=options.timeout, sampling=sampling
    )
    records = asyncio.run(send(schedule, endpoints=endpoints, options=client))
    objective = Objective(e2e=options.e2e, ttft=options.ttft, tpot=options.tpot)
    print(_report(records, schedule, phases, objective=objective, as_text=not options.json))  # noqa: T201
    return 0 if all(record.ok for record in records) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specpilot.sim.load", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--endpoint", action="append", default=[], metavar="URL")
    where.add_argument("--endpoints-file", type=Path, help="URLs, one a line; read again and again")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--phase",
        action="append",
        default=[],
        metavar="KEY=VALUE,...",
        help="seconds=60,rate=2,kind=repetitive|random|accept:P,prompt_tokens=48,output_tokens=64",
    )
    what.add_argument("--trace", type=Path, help="CSV: at,kind,prompt_tokens,output_tokens,phase")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="name in the requests; by default whatever is served")
    parser.add_argument("--temperature", type=float, help="by default the engine's")
    parser.add_argument("--stream", action="store_true", help="measure the first token too")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS")
    parser.add_argument("--e2e", type=float, metavar="SECONDS", help="objective")
    parser.add_argument("--ttft", type=float, metavar="SECONDS", help="objective")
    parser.add_argument("--tpot", type=float, metavar="SECONDS", help="objective")
    parser.add_argument("--json", action="store_true")
    return parser


def _report(
    records: Sequence[Record],
    schedule: Sequence[Arrival],
    phases: Sequence[Phase],
    *,
    objective: Objective,
    as_text: bool,
) -> str:
    whole = span(phases) or max([1.0, *(arrival.at for arrival in schedule)])
    total = summarise(records, objective=objective, span=whole)
    spans = {phase.name: phase.seconds for phase in phases}
    parts = by_phase(records, objective=objective, spans=spans) if spans else {}
    if not as_text:
        shown = {"total": as_json(total), "phases": {k: as_json(v) for k, v in parts.items()}}
        return json.dumps(shown, indent=1)
    lines = [
        f"{'phase':<16}{'sent':>6}{'served':>8}{'met':>6}{'goodput':>9}{'p50 s':>8}{'p99 s':>8}"
    ]
    for name, each in {**parts, "total": total}.items():
        p50, p99 = each.latency_p50 or 0.0, each.latency_p99 or 0.0
        lines.append(
            f"{name:<16}{each.requests:>6}{each.served:>8}{each.met:>6}{each.goodput:>9.1f}"
            f"{p50:>8.2f}{p99:>8.2f}"
        )
    lines += [f"{count} x {error}" for error, count in total.errors.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
