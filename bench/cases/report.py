"""The figures: packs beside always-on and beside the best single threshold there is.

The thresholds of the rivals are chosen on the very cases they are then judged by, which favours
them. Nothing of the packs was chosen on these cases, so none are kept back.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from bench.cases.judging import Answer, Judge, PackJudge, Score, score
from bench.cases.published import Case, load, others_of
from specpilot.domain.recall import REACH
from specpilot.resources.packs import pack, pack_names

BREAK_EVEN = "break-even"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Scores over some of the cases."""

    title: str
    rivals: tuple[Score, ...]
    packs: tuple[Score, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Robustness:
    """How `break-even` does when its one measurement is another one.

    Attributes:
        any_nearest: Balanced accuracy of the judged cases, mean over all cases that are equally
            near and could have been the one measurement.
        within_reach: Score when it must be as near in batch size as the product asks for.
        other_batch: Score when it must be from another batch size, however far.
        other_within_reach: Both.
        off_by: Balanced accuracy of the judged cases by error of the cost ratio (0.1: 10 % too
            high).
        losing_sources: Losing cases by source.
    """

    any_nearest: float
    within_reach: Score
    other_batch: Score
    other_within_reach: Score
    off_by: dict[float, float]
    losing_sources: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that is printed."""

    measured: Scope
    everything: Scope
    break_even: Robustness


def report(cases: Sequence[Case] | None = None) -> Report:
    """Judge all cases."""
    cases = load() if cases is None else cases
    measured = [case for case in cases if case.measured]
    return Report(
        measured=_scope("Acceptance length and batch size are published", measured),
        everything=_scope("All cases", cases),
        break_even=_robustness(measured),
    )


def as_json(found: Report) -> dict[str, object]:
    """Plain data."""
    return {
        "measured": _scope_json(found.measured),
        "all": _scope_json(found.everything),
        "break_even": {
            "any_nearest": found.break_even.any_nearest,
            "within_reach": _score_json(found.break_even.within_reach),
            "other_batch": _score_json(found.break_even.other_batch),
            "other_within_reach": _score_json(found.break_even.other_within_reach),
            "cost_ratio_off_by": {str(k): v for k, v in found.break_even.off_by.items()},
            "losing_by_source": found.break_even.losing_sources,
        },
    }


def _score_json(found: Score) -> dict[str, object]:
    return asdict(found) | {"balanced_accuracy": found.balanced}


def _scope_json(scope: Scope) -> dict[str, object]:
    return {
        "title": scope.title,
        "rivals": [_score_json(s) for s in scope.rivals],
        "packs": [_score_json(s) for s in scope.packs],
    }


def _scope(title: str, cases: Sequence[Case]) -> Scope:
    return Scope(
        title=title,
        rivals=(
            score("always on", lambda _: Answer.ON, cases),
            _best("batch <=", lambda c: c.batch, cases, above=True),
            _best("acceptance rate >=", lambda c: c.acceptance_rate, cases, above=False),
            _best("acceptance length >=", lambda c: c.acceptance_length, cases, above=False),
        ),
        packs=tuple(score(name, _with_cost(name, cases), cases) for name in pack_names()),
    )


def _best(
    name: str,
    value: Callable[[Case], float | None],
    cases: Sequence[Case],
    *,
    above: bool,
) -> Score:
    """The threshold that does best, off beyond it; the first of equally good ones."""

    def judge(limit: float) -> Judge:
        def answer(case: Case) -> Answer:
            found = value(case)
            if found is None:
                return Answer.UNKNOWN
            return Answer.OFF if (found > limit if above else found < limit) else Answer.ON

        return answer

    limits = sorted({found for case in cases if (found := value(case)) is not None})
    scores = [score(f"{name} {limit:g}", judge(limit), cases) for limit in limits]
    return max(scores, key=lambda s: s.balanced)


def _with_cost(
    name: str, cases: Iterable[Case], *, other_batch: bool = False, reach: float = math.inf
) -> Judge:
    """A pack that knows what a step costs from one other case, where there is one."""
    judge, known = PackJudge(pack(name)), tuple(cases)

    def answer(case: Case) -> Answer:
        others = others_of(case, known, other_batch=other_batch, reach=reach)
        return judge(case, cost_ratio=others[0].cost_ratio if others else None)

    return answer


def _robustness(cases: Sequence[Case]) -> Robustness:
    def asked(name: str, *, other_batch: bool = False, reach: float = math.inf) -> Score:
        judge = _with_cost(BREAK_EVEN, cases, other_batch=other_batch, reach=reach)
        return score(name, judge, cases)

    return Robustness(
        any_nearest=_over_choices(cases, factor=1.0),
        within_reach=asked("near batch", reach=REACH),
        other_batch=asked("another batch", other_batch=True),
        other_within_reach=asked("another near batch", other_batch=True, reach=REACH),
        off_by={error: _over_choices(cases, factor=1 + error) for error in (-0.2, -0.1, 0.1, 0.2)},
        losing_sources={
            source: sum(c.loses for c in cases if c.source == source)
            for source in dict.fromkeys(c.source for c in cases if c.loses)
        },
    )


def _over_choices(cases: Sequence[Case], *, factor: float) -> float:
    """Balanced accuracy with each case counting the share of its choices that judge it rightly."""
    judge = PackJudge(pack(BREAK_EVEN))
    right: dict[bool, list[float]] = {True: [], False: []}
    for case in cases:
        ratios = [o.cost_ratio for o in others_of(case, cases) if o.cost_ratio is not None]
        if ratios:
            right[case.loses].append(
                fmean(
                    (judge(case, cost_ratio=r * factor) is Answer.OFF) == case.loses for r in ratios
                )
            )
    return fmean(fmean(shares) for shares in right.values())
