from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from specpilot.alerts import make_client
from specpilot.store import Store
from tests.unit.alerts import receiver as receiving


class ManualClock:
    def __init__(self) -> None:
        self.time = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def advance(self, **by: float) -> None:
        self.time += timedelta(**by)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path}/alerts.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def receiver() -> Iterator[receiving.Receiver]:
    with receiving.running() as running:
        yield running


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with make_client() as made:
        yield made
