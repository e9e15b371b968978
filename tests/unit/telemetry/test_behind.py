"""A signal is the same whether everything of an engine was fetched or only what is behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specpilot.domain.signals import MEASURED, SIGNALS, STANDING
from specpilot.telemetry.behind import ALWAYS, Series, behind
from specpilot.telemetry.derive import derive
from specpilot.telemetry.exposition import PROCESS_START, Page, parse
from specpilot.telemetry.history import History
from specpilot.telemetry.names import POSITIONS, QUANTILES, Counter, Family
from tests import recordings
from tests.unit.telemetry.builders import arm, cut
from tests.unit.telemetry.builders import recording as read

PAIRS = [name for name in recordings.names("*-before.prom") if "/" not in name]


def stripped(page: Page, series: Series) -> Page:
    """The page without the series that were not chosen."""

    def chosen(name: str, part: str | float) -> bool:
        if name == POSITIONS:
            return series.positions
        if isinstance(part, float):
            return name in series.buckets
        return (name, part) == PROCESS_START or name in series.counters | series.totals

    return replace(page, values={k: v for k, v in page.values.items() if chosen(*k)})


def history(pages: list[Page]) -> History:
    found = History(keep_s=1e9)
    for at, page in enumerate(pages):
        found.add(1000.0 + 60 * at, page)
    return found


@pytest.mark.parametrize("before", PAIRS)
def test_every_signal_on_every_recording(before: str) -> None:
    pages = [parse(read(name)) for name in (before, before.replace("-before", "-after"))]
    whole = derive(arm(cut(history(pages))), ready=1)
    for signal in MEASURED:
        few = history([stripped(page, behind([signal])) for page in pages])
        found = derive(arm(cut(few)), ready=1, signals=[signal])[signal]
        assert found == whole[signal], signal


def test_what_is_chosen_grows_with_what_is_asked() -> None:
    assert behind(["batch_size"]) == ALWAYS
    assert behind(["tpot_p99"]).buckets == {Family.TPOT}
    assert behind(["nonsense"]) == ALWAYS, "what it is not is said elsewhere"
    assert behind(["preemptions", "e2e_mean"]) == behind(["preemptions"]) | behind(["e2e_mean"])
    whole = behind([])
    assert whole == behind(MEASURED)
    assert whole.counters == set(Counter)
    assert whole.totals == set(Family)
    assert whole.buckets == set(QUANTILES)


def test_names_are_those_of_faults() -> None:
    assert behind(["tpot_p99"]).names() >= {Family.TPOT, f"{Family.TPOT}_bucket", Counter.DRAFTS}
    assert POSITIONS in behind(["acceptance_rate_pos_0"]).names()


def test_standing_signals_hold_what_a_comparison_rests_on() -> None:
    assert set(SIGNALS) >= STANDING
    slices = {"tpot_mean", "tokens_per_second_per_request", "e2e_mean", "drafts"}
    costs = {"tpot_mean", "batch_size", "mean_acceptance_length"}
    assert slices | costs <= STANDING
    assert not behind(STANDING).buckets, "a percentile's buckets are for whoever names it"
