"""A fixture that sets how long the tests of costs measure."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.experiments.cost import entry_cost


@pytest.fixture(autouse=True)
def _enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every measurement finish, even on a busy machine."""
    monkeypatch.setattr(entry_cost, "MIN_BASIS_S", 60.0)
