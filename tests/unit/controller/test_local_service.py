"""One supervisor a state directory."""

from contextlib import closing
from pathlib import Path

import pytest

from specpilot.controller.local_service import LocalService
from specpilot.domain.ports import FleetError
from specpilot.store import Store


def test_a_second_supervisor_on_one_state_directory_is_refused(tmp_path: Path) -> None:
    with closing(Store.open(f"sqlite:///{tmp_path / 'specpilot.sqlite'}")) as store:
        with (
            LocalService(store=store, state_dir=tmp_path),
            pytest.raises(FleetError, match=str(tmp_path)),
            LocalService(store=store, state_dir=tmp_path),
        ):
            pytest.fail("the second one started")
        with LocalService(store=store, state_dir=tmp_path):
            pass  # and after the first one has gone, another may start
