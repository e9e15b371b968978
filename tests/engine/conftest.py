"""Which of the two subjects a test looks at: both the simulator and, if marked, the real engine."""

from __future__ import annotations

import pytest

from scripts.engine import install
from tests.engine.servers import Subject, real_engine, simulator


@pytest.fixture(
    scope="module", params=["simulator", pytest.param("engine", marks=pytest.mark.engine)]
)
def subject(request: pytest.FixtureRequest) -> Subject:
    """The simulator, and the engine that it must resemble."""
    return simulator() if request.param == "simulator" else engine()


def engine() -> Subject:
    """Return the real engine, or skip."""
    directory = install.install_dir()
    if not install.is_installed(directory):
        pytest.skip("the real engine is not installed: python scripts/engine/install.py")
    return real_engine(directory)
