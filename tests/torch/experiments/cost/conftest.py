"""A fixture for the tests of costs."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.experiments.cost import further_measurements


@pytest.fixture(autouse=True)
def _enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every measurement finish, whatever the load of the machine."""
    monkeypatch.setattr(further_measurements, "MIN_S", 60.0)
