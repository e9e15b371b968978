"""Which of the engine's series are behind a signal, so that nothing is fetched for nobody.

A round's cost is that of the numbers in it: an engine shows some 250, a policy with the shipped
rules needs a dozen. Gauges are not told apart: they are few, and each is one number.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from specpilot.domain.signals import MEASURED, position_signal
from specpilot.domain.signals import POSITIONS as MOST_POSITIONS
from specpilot.telemetry.names import POSITIONS, SPECULATION, Counter, Family, buckets_of


@dataclass(frozen=True, slots=True)
class Series:
    """A choice of the engine's series.

    Attributes:
        counters: Counters.
        totals: Histograms of which sum and count are wanted.
        buckets: Histograms of which the buckets are wanted.
        positions: Whether the tokens accepted at each position are.
    """

    counters: frozenset[Counter] = frozenset()
    totals: frozenset[Family] = frozenset()
    buckets: frozenset[Family] = frozenset()
    positions: bool = False

    def __or__(self, other: "Series") -> "Series":
        return Series(
            self.counters | other.counters,
            self.totals | other.totals,
            self.buckets | other.buckets,
            self.positions or other.positions,
        )

    def names(self) -> frozenset[str]:
        """Their names, as faults name them."""
        found: set[str] = {*self.counters, *self.totals, *map(buckets_of, self.buckets)}
        return frozenset(found | {POSITIONS}) if self.positions else frozenset(found)


ALWAYS = Series(
    counters=frozenset({Counter.GENERATION_TOKENS, Counter.REQUESTS, Counter.DRAFTS}),
)
"""They tell whether an engine reports, has served anything, was restarted, and speculates."""


def _counters(*names: Counter) -> Series:
    return Series(counters=frozenset(names))


def _totals(*families: Family) -> Series:
    return Series(totals=frozenset(families))


def _quantiles(prefix: str, family: Family) -> dict[str, Series]:
    series = Series(totals=frozenset({family}), buckets=frozenset({family}))
    return {f"{prefix}_p{q}": series for q in (50, 90, 95, 99)}


_ACCEPTED = Series(counters=SPECULATION)

_BEHIND: Mapping[str, Series] = {
    "acceptance_rate": _ACCEPTED,
    "mean_acceptance_length": _ACCEPTED,
    **{
        position_signal(index): Series(counters=SPECULATION, positions=True)
        for index in range(MOST_POSITIONS)
    },
    "draft_tokens": _ACCEPTED,
    "tokens_per_step": _totals(Family.STEPS),
    "error_rate": _counters(Counter.HTTP_REQUESTS, Counter.HTTP_FAILED),
    "preemptions": _counters(Counter.PREEMPTIONS),
    "prefix_cache_hit_rate": _counters(Counter.PREFIX_QUERIES, Counter.PREFIX_HITS),
    # Engines before 0.11 have no histogram of it: decode time over tokens stands in.
    "tpot_mean": _totals(Family.TPOT, Family.DECODE_TIME, Family.GENERATION_TOKENS),
    "ttft_mean": _totals(Family.TTFT),
    "e2e_mean": _totals(Family.E2E),
    "queue_time_mean": _totals(Family.QUEUE_TIME),
    "prompt_length_mean": _totals(Family.PROMPT_TOKENS),
    "generation_length_mean": _totals(Family.GENERATION_TOKENS),
    **_quantiles("tpot", Family.TPOT),
    **_quantiles("ttft", Family.TTFT),
    **_quantiles("e2e", Family.E2E),
    **_quantiles("queue_time", Family.QUEUE_TIME),
}
"""What a signal needs beside `ALWAYS` and gauges; the others need nothing."""

_NOTHING = Series()


def behind(signals: Collection[str]) -> Series:
    """Series that these signals are made of, `ALWAYS` among them; of all when there are none."""
    found = ALWAYS
    for signal in signals or MEASURED:
        found |= _BEHIND.get(signal, _NOTHING)
    return found
