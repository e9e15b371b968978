"""What the first release wrote is read by this one: waiting rules go on waiting, hashes stay."""

import json
from datetime import timedelta

from alembic import command
from sqlalchemy import text

from specpilot.domain.memory import Pending, PolicyMemory
from specpilot.domain.rules import Rule, RuleSet
from specpilot.store import RuleOwner, Store, codec, migrate
from specpilot.store.database import make_engine, parse_url
from tests.unit.store.examples import MINUTE, T0

MEMORY = {
    "rules": "guard@1",
    "pending": {
        "a": {"since": T0.isoformat(), "last_true": (T0 + MINUTE).isoformat()},
    },
    "active": "eagle3",
    "active_since": None,
    "last_speculating": "eagle3",
    "probes_lost": 0,
    "last_probe_ended": None,
    "last_flip": None,
    "advised": "",
    "signals_lost": None,
    "signals_lost_alerted": False,
}
CONTENT = {
    "name": "guard",
    "description": "d",
    "parameters": {"busy": 32.0},
    "rules": [
        {"name": "a", "when": "batch_size > params.busy", "setting": "off", "for_s": 300.0,
         "min_drafts": 100},
        {"name": "b", "when": "batch_size < 4", "setting": "eagle3", "for_s": 0.0,
         "min_drafts": 0},
    ],
}  # fmt: skip
HASH = "7d6bd35d067c0a1094be1e504e268e5c6728dde52a2917dfef518145e8d9ad32"
RULE_SET = RuleSet(
    name="guard",
    description="d",
    parameters={"busy": 32.0},
    rules=(
        Rule(
            name="a",
            when="batch_size > params.busy",
            setting="off",
            hold=timedelta(minutes=5),
            min_drafts=100,
        ),
        Rule(name="b", when="batch_size < 4", setting="eagle3"),
    ),
)


def write_as_the_first_release(url: str) -> None:
    engine = make_engine(parse_url(url), busy_timeout_s=5)
    with engine.begin() as connection:
        command.upgrade(migrate.configuration(connection), "0001")
        connection.execute(
            text("INSERT INTO policy_memory (policy_uid, body) VALUES ('u', :body)"),
            {"body": json.dumps(MEMORY)},
        )
        connection.execute(text("INSERT INTO rule_set VALUES ('serving', 'guard', 'file', 1)"))
        connection.execute(
            text(
                "INSERT INTO rule_set_version (namespace, name, version, content, content_hash, "
                "owner, author, source, applied_at) VALUES ('serving', 'guard', 1, :content, "
                ":hash, 'file', 'ann', 'guard.yaml', :at)"
            ),
            {
                "content": json.dumps(CONTENT),
                "hash": HASH,
                "at": T0.strftime("%Y-%m-%d %H:%M:%S.%f"),
            },
        )
    engine.dispose()


def test_a_database_of_the_first_release_is_taken_over(store_url: str) -> None:
    Store.open(store_url).close()  # makes the directory
    engine = make_engine(parse_url(store_url), busy_timeout_s=5)
    with engine.begin() as connection:
        command.downgrade(migrate.configuration(connection), "base")
    engine.dispose()
    write_as_the_first_release(store_url)
    store = Store.open(store_url)
    with store.read() as unit:
        memory = unit.memory.get("u")
        before = unit.rules.latest(namespace="serving", name="guard")
    assert memory == PolicyMemory(
        rules="guard@1",
        pending={"a": Pending(since=T0, last_true=T0 + MINUTE)},
        active="eagle3",
        last_speculating="eagle3",
    )
    assert before is not None
    assert before.rule_set == RULE_SET
    with store.begin() as unit:
        after = unit.rules.apply(
            namespace="serving",
            rule_set=RULE_SET,
            owner=RuleOwner.FILE,
            author="ann",
            source="guard.yaml",
            at=T0,
        )
    assert (after.version, after.content_hash) == (1, HASH), "no new version of the same rules"
    store.close()


def test_what_a_rule_does_not_use_is_not_written() -> None:
    """So that a release before this one could read it, were it to come back."""
    plain = codec.memory_to_plain(codec.memory_from_plain(MEMORY))
    assert plain["pending"] == MEMORY["pending"]
