"""The obvious client: each policy asks Prometheus its own questions.

    python -m bench.signals.naive --url URL --pods 20000 --policies 25 --at SECONDS

The same signals as the shipped rules and two guardrails need, as anyone would write them down:
`increase` and `histogram_quantile` over the policy's pods, one query a signal. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys

import httpx

from bench.signals.fleet import PODS_PER_POLICY, namespace, speculates, workload
from bench.signals.meter import Meter

_PATIENCE_S = 120.0
_QUERIES = {
    "mean_acceptance_length": "1 + sum(increase(vllm:spec_decode_num_accepted_tokens_total{W}[5m]))"
    " / sum(increase(vllm:spec_decode_num_drafts_total{W}[5m]))",
    "drafts": "sum(increase(vllm:spec_decode_num_drafts_total{W}[5m]))",
    "batch_size": "avg(avg_over_time(vllm:num_requests_running{W}[5m]))",
    "queue_depth": "avg(avg_over_time(vllm:num_requests_waiting{W}[5m]))",
    "tpot_mean": "sum(increase(vllm:request_time_per_output_token_seconds_sum{W}[5m]))"
    " / sum(increase(vllm:request_time_per_output_token_seconds_count{W}[5m]))",
    "e2e_p99": "histogram_quantile(0.99, "
    "sum by (le) (increase(vllm:e2e_request_latency_seconds_bucket{W}[5m])))",
}


def measure(*, url: str, pods: int, policies: int, at: float) -> dict[str, object]:
    """Ask for some policies of the fleet, spread over it."""
    step = max(1, pods // PODS_PER_POLICY // policies) | 1  # odd: both kinds come up
    asked = [i * step for i in range(policies)]
    values: dict[str, list[float]] = {name: [] for name in _QUERIES}
    with httpx.Client(base_url=url, timeout=_PATIENCE_S, trust_env=False) as http, Meter() as spent:
        for policy in asked:
            where = f'{{namespace="{namespace(policy)}",pod=~"{workload(policy)}-.*"}}'
            for name, query in _QUERIES.items():
                form = {"query": query.replace("{W}", where), "time": f"{at:.3f}"}
                answer = http.post("/api/v1/query", data=form).raise_for_status().json()
                values[name] += [float(each["value"][1]) for each in answer["data"]["result"]]
    return {
        "pods": pods,
        "policies": policies,
        "speculating": sum(map(speculates, asked)),
        "queries": policies * len(_QUERIES),
        "cpu_s": spent.cpu_s,
        "wall_s": spent.wall_s,
        "known": {name: len(each) for name, each in values.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.signals.naive", description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--policies", type=int, default=25)
    parser.add_argument("--at", type=float, required=True, help="the end of the windows")
    given = parser.parse_args()
    found = measure(url=given.url, pods=given.pods, policies=given.policies, at=given.at)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
