"""Which remembered costs speak of the settings of a replay."""

from dataclasses import replace
from pathlib import Path

from specpilot.controller.replay_costs import costs_of, remembered_costs
from specpilot.domain.economics import Measurement, config_hash
from specpilot.domain.settings import OFF, Setting
from specpilot.engines import render
from specpilot.store import Store
from tests.unit.domain.builders import NGRAM, at, policy
from tests.unit.domain.test_recall import measurement

ENGINE = "0.32.0"
SETTINGS = {"off": OFF, "ngram": NGRAM}


def of(setting: Setting, *, engine: str = ENGINE, minute: int = 0) -> Measurement:
    config = config_hash(render(setting, version=ENGINE).config)
    base = measurement(engine=engine, config=config, at=at(60 * minute))
    return replace(base, change_id=f"{setting.name}-{engine}-{minute}")


def test_a_setting_has_the_measurements_of_its_very_config() -> None:
    deeper = replace(NGRAM, name="deep", num_speculative_tokens=7)
    found = costs_of([of(NGRAM), of(deeper, minute=1)], SETTINGS)
    assert found == {"ngram": [of(NGRAM)]}
    both = costs_of([of(NGRAM), of(deeper, minute=1)], SETTINGS | {"deep": deeper})
    assert both == {"ngram": [of(NGRAM)], "deep": [of(deeper, minute=1)]}


def test_of_another_engine_than_the_newest_nothing_is_used() -> None:
    old, new = of(NGRAM, engine="0.31.0"), of(NGRAM, minute=1)
    assert costs_of([old, new], SETTINGS) == {"ngram": [new]}


def test_nothing_measured_is_nothing_known() -> None:
    assert costs_of([], SETTINGS) == {}


def test_they_are_read_from_the_database_of_the_operator(tmp_path: Path) -> None:
    given = policy()
    mine = replace(of(NGRAM), target=str(given.target))
    foreign = replace(of(NGRAM, minute=1), target="Deployment/prod/other")
    store = Store.open(f"sqlite:///{tmp_path / 's.sqlite'}")
    try:
        with store.begin() as unit:
            unit.measurements.add(mine)
            unit.measurements.add(foreign)
        assert remembered_costs(store, given) == {"ngram": [mine]}
    finally:
        store.close()
