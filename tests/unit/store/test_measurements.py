"""Costs and hourly acceptance in the database: written once, bounded, there after an upgrade."""

from dataclasses import fields, replace
from datetime import timedelta

from alembic import command
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.economics import Measurement
from specpilot.domain.memory import PolicyMemory
from specpilot.store import AcceptanceSample, RuleOwner, Store, migrate
from specpilot.store.database import make_engine, parse_url
from specpilot.store.measurements import KEPT, measurement_from_plain, measurement_to_plain
from tests.unit.store.examples import MINUTE, T0, change, draft, rule_set

HOUR = timedelta(hours=1)
BASE = Measurement(
    change_id="chat-1",
    target="Deployment/serving/vllm",
    setting="eagle3",
    config="abc",
    engine="0.32.0",
    template="t1",
    start=T0 - 5 * MINUTE,
    at=T0,
    batch_on=31.5,
    batch_off=33.0,
    ratio=1.31,
    error=0.02,
    step_ratio=1.31,
    acceptance_length=2.4,
    tokens_per_step=2.4,
    speedup=1.83,
    requests_on=120.0,
    requests_off=260.0,
    drafts=8000.0,
    slices=6,
    same_window=True,
)


def sample(
    target: str = "t", *, config: str = "abc", value: float = 2.0, hour: int = 0
) -> AcceptanceSample:
    return AcceptanceSample(target=target, config=config, at=T0 + hour * HOUR, value=value)


def test_the_stored_form_has_every_field() -> None:
    assert set(measurement_to_plain(BASE)) == {f.name for f in fields(Measurement)}


@given(st.floats(0.01, 1e6))
def test_a_measurement_comes_back_as_it_was(number: float) -> None:
    value = replace(BASE, ratio=number, drafts=number, same_window=number > 1)
    assert measurement_from_plain(measurement_to_plain(value)) == value


def test_a_measurement_is_written_once_however_often_it_is_added(store: Store) -> None:
    with store.begin() as unit:
        unit.measurements.add(BASE)
    with store.begin() as unit:
        unit.measurements.add(replace(BASE, ratio=9.9))
    with store.read() as unit:
        assert unit.measurements.of(["Deployment/serving/vllm", "none"]) == {
            "Deployment/serving/vllm": [BASE]
        }
        assert unit.measurements.of([]) == {}
        assert unit.measurements.stamps([BASE.target, "none"]) == {BASE.target: (1, BASE.at)}
    later = replace(BASE, change_id="chat-2", at=BASE.at + MINUTE)
    with store.begin() as unit:
        unit.measurements.add(later)
        assert unit.measurements.stamps([BASE.target]) == {BASE.target: (2, later.at)}


def test_the_newest_of_each_setting_are_kept(store: Store) -> None:
    other = replace(BASE, change_id="other", config="other", at=T0 - 1000 * MINUTE)
    elsewhere = replace(BASE, change_id="elsewhere", target="Local/local/b")
    with store.begin() as unit:
        unit.measurements.add(other)
        unit.measurements.add(elsewhere)
        for n in range(KEPT + 5):
            unit.measurements.add(replace(BASE, change_id=f"chat-{n}", at=T0 + n * MINUTE))
    with store.read() as unit:
        found = unit.measurements.of([BASE.target, elsewhere.target])
    own = [m.change_id for m in found[BASE.target] if m.config == BASE.config]
    assert own == [f"chat-{n}" for n in range(5, KEPT + 5)], "oldest first"
    assert other in found[BASE.target]
    assert found[elsewhere.target] == [elsewhere]


def test_values_are_added_up_by_the_hour(store: Store) -> None:
    with store.begin() as unit:
        unit.acceptance.add([])
        unit.acceptance.add([sample(value=2.0), sample("u", value=5.0)])
    with store.begin() as unit:
        unit.acceptance.add([sample(value=3.0), sample(config="xyz", value=7.0)])
        unit.acceptance.add([sample(value=1.5, hour=1)])
    with store.read() as unit:
        found = unit.acceptance.of(["t", "u", "none"], since=T0 - 2 * HOUR)
        later = unit.acceptance.of(["t"], since=T0)
    assert {key: [(h.samples, h.total) for h in hours] for key, hours in found.items()} == {
        ("t", "abc"): [(2, 5.0), (1, 1.5)],
        ("t", "xyz"): [(1, 7.0)],
        ("u", "abc"): [(1, 5.0)],
    }
    assert found["t", "abc"][0].hour == T0.replace(minute=0, second=0, microsecond=0)
    assert [h.samples for h in later["t", "abc"]] == [1]


def test_old_hours_are_pruned(store: Store) -> None:
    with store.begin() as unit:
        for hour in range(60):
            unit.acceptance.add([sample(hour=-hour)])
        assert unit.acceptance.prune(before=T0 - 48 * HOUR) == 12
    with store.read() as unit:
        assert len(unit.acceptance.of(["t"], since=T0 - 100 * HOUR)["t", "abc"]) == 48


def test_a_database_of_the_first_schema_keeps_what_is_in_it(store: Store, store_url: str) -> None:
    """What a release before this one has written, brought to this schema."""
    memory = PolicyMemory(active="eagle3", active_since=T0)
    flag_change = change()
    with store.begin() as unit:
        unit.changes.add(flag_change)
        unit.memory.put("uid-chat", memory)
        unit.audit.append(draft(), at=T0)
        unit.rules.apply(
            namespace="serving",
            rule_set=rule_set(),
            owner=RuleOwner.FILE,
            author="a",
            source="s",
            at=T0,
        )
    engine = make_engine(parse_url(store_url), busy_timeout_s=5)
    with engine.begin() as connection:
        command.downgrade(migrate.configuration(connection), "0001")
    with engine.connect() as connection:
        assert migrate.current(connection) == {"0001"}
    engine.dispose()
    again = Store.open(store_url)
    with again.begin() as unit:
        assert unit.changes.get("chat-1") == flag_change
        assert unit.memory.get("uid-chat") == memory
        unit.measurements.add(BASE)
        unit.acceptance.add([sample()])
        assert unit.measurements.of([BASE.target])[BASE.target] == [BASE]
        assert unit.audit.verify().ok
        latest = unit.rules.latest(namespace="serving", name="hit-rate")
        assert latest is not None
        assert latest.rule_set == rule_set()
    again.close()
