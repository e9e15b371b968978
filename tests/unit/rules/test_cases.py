"""The figures of the packs on published cases, and that the pages quote them as they are."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from bench.cases.judging import Answer, PackJudge, score
from bench.cases.published import Case, load, others_of
from bench.cases.report import Report, Scope, report
from bench.cases.tables import blocks, with_figures
from specpilot.resources.packs import pack

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs" / "rules").glob("*.md"))


@cache
def figures() -> Report:
    return report()


def case(**fields: object) -> Case:
    base: dict[str, object] = {
        "source": "s",
        "model": "m",
        "hardware": "h",
        "method": "eagle",
        "depth": "3",
        "acceptance_rate": 0.5,
        "acceptance_length": 2.0,
        "batch": 8.0,
        "speedup": 1.25,
    }
    return Case(**(base | fields))  # type: ignore[arg-type]


def pack_score(scope: Scope, name: str) -> object:
    return next(s for s in scope.packs if s.name == name)


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_the_pages_quote_what_is_printed(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert "<!-- figures: " in page
    assert page == with_figures(page, blocks(figures())), (
        "the figures have changed: look at them, then `python -m bench.cases --update-docs`"
    )


def test_a_page_with_another_figure_is_found() -> None:
    page = (ROOT / "docs" / "rules" / "break-even.md").read_text(encoding="utf-8")
    assert page.count("| break-even | 1.00 |") == 1
    forged = page.replace("| break-even | 1.00 |", "| break-even | 0.99 |")
    assert with_figures(forged, blocks(figures())) == page


def test_break_even_decides_from_one_measurement_and_never_guesses() -> None:
    found = next(s for s in figures().measured.packs if s.name == "break-even")
    assert found.judged is not None
    assert found.judged >= 0.95
    assert found.balanced >= 0.95
    cases = load()
    alone = [c for c in cases if c.measured and not others_of(c, cases)]
    assert found.unknown == len(alone) == 7, "Unknown exactly where there is no other case"


def test_it_beats_the_best_threshold_chosen_with_hindsight() -> None:
    found = next(s for s in figures().measured.packs if s.name == "break-even")
    assert all(found.balanced > rival.balanced + 0.3 for rival in figures().measured.rivals)


def test_without_a_measurement_break_even_holds() -> None:
    judge = PackJudge(pack("break-even"))
    assert judge(case(acceptance_length=1.01), cost_ratio=None) is Answer.UNKNOWN
    assert judge(case(acceptance_length=None), cost_ratio=1.5) is Answer.UNKNOWN


@pytest.mark.parametrize(
    ("cost", "expected", "reason"),
    [
        (2.01, Answer.OFF, "dearer than it yields, and held"),
        (2.0, Answer.ON, "break-even is not below"),
        (1.5, Answer.ON, "cheaper"),
    ],
)
def test_the_packs_own_file_is_what_judges(cost: float, expected: Answer, reason: str) -> None:
    assert PackJudge(pack("break-even"))(case(), cost_ratio=cost) is expected, reason


def test_the_one_measurement_is_another_case_of_the_same_target_at_the_nearest_batch() -> None:
    judged = case(batch=8)
    near = case(batch=16, speedup=1.1)
    also_near = case(batch=0, speedup=1.3)
    far = case(batch=64)
    foreign = [
        replace(near, batch=8.0, **{field: "other"})
        for field in ("source", "model", "hardware", "method", "depth")
    ]
    silent = case(acceptance_length=None)
    cases = [far, *foreign, silent, judged, near, also_near]
    assert others_of(judged, cases) == (near, also_near)
    assert others_of(judged, cases, reach=2) == (near,)
    assert others_of(judged, [judged, *foreign, silent]) == ()
    twin = case(batch=8)
    assert others_of(judged, [*cases, twin]) == (twin,)
    assert others_of(judged, [*cases, twin], other_batch=True) == (near, also_near)


def test_scores_count_an_unknown_case_as_left_on() -> None:
    answers = {1: Answer.OFF, 2: Answer.UNKNOWN, 3: Answer.OFF, 4: Answer.ON, 5: Answer.UNKNOWN}
    cases = [
        case(batch=1, speedup=0.5),
        case(batch=2, speedup=0.9),
        case(batch=3, speedup=1.0),
        case(batch=4, speedup=2.0),
        case(batch=5, speedup=1.5),
    ]
    found = score("mine", lambda c: answers[int(c.batch or 0)], cases)
    assert (found.losing, found.unknown, found.unknown_losing) == (2, 2, 1)
    assert found.recall == pytest.approx(1 / 2)
    assert found.kept == pytest.approx(2 / 3)
    assert found.judged == pytest.approx((1 + 1 / 2) / 2)


def test_what_is_not_a_plain_number_is_not_known(tmp_path: Path) -> None:
    head = (ROOT / "bench" / "cases" / "published.csv").read_text(encoding="utf-8").splitlines()[0]
    rows = ["s,m,h,x,3,0.86-0.91,,QPS=4,1.2,n", "s,m,h,x,3,,2.1,sessions=4,0.10-0.68 vs static,n"]
    path = tmp_path / "cases.csv"
    path.write_text("\n".join([head, *rows]), encoding="utf-8")
    (found,) = load(path)
    assert (found.acceptance_rate, found.acceptance_length, found.batch) == (None, None, None)


def test_for_machines() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.cases", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    packs = {p["name"]: p for p in found["measured"]["packs"]}
    assert packs["break-even"]["balanced_accuracy"] >= 0.95
    assert packs["break-even"]["unknown"] == 7
