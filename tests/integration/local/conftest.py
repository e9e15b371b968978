import pytest


@pytest.fixture
def control(tmp_path, monkeypatch):
    """Directory by which the tiny servers are told to misbehave."""
    directory = tmp_path / "control"
    directory.mkdir()
    monkeypatch.setenv("CONTROL_DIR", str(directory))
    return directory
