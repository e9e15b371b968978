"""Names that people look for, with why they are no signals and what to use."""

import re

_TPOT = (
    "the engine counts inter-token latency once per output, and with speculation an output carries "
    "several tokens: it rises while every token comes sooner. Use tpot_mean or tpot_p99"
)
_ONLY_MEAN = "of this signal there is no percentile, only one number over the window; use {name}"

_KNOWN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?:itl|inter_?token).*", re.IGNORECASE), _TPOT),
    (re.compile(r"(?:time_per_output_token|tpot|token_latency).*"), "use tpot_mean or tpot_p99"),
    (re.compile(r"time_to_first_token.*"), "use ttft_mean or ttft_p99"),
    (re.compile(r"(?:request_)?latency.*"), "use e2e_mean or e2e_p99 for whole requests"),
    (re.compile(r"(?:qps|rps|request_rate)"), "use requests_per_second"),
    (re.compile(r"(?:concurrency|num_requests_running|running)"), "use batch_size"),
    (re.compile(r"(?:num_requests_waiting|waiting)"), "use queue_depth"),
    (
        re.compile(r"(?:acceptance_length|mean_accept_len|accept_len.*)"),
        "use mean_acceptance_length",
    ),
    (re.compile(r"(?:hit_rate|acceptance)"), "use acceptance_rate or mean_acceptance_length"),
)
_PERCENTILE = re.compile(r"(batch_size|queue_depth|acceptance_rate|mean_acceptance_length)_p\d+")


def hint(name: str) -> str:
    """What to use instead of a name that is no signal; "" when nothing better is known."""
    if match := _PERCENTILE.fullmatch(name):
        return _ONLY_MEAN.format(name=match.group(1))
    return next((words for pattern, words in _KNOWN if pattern.fullmatch(name)), "")
