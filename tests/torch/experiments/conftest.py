"""Shared fixtures for tests of experiments."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.experiments.remedies import finding


@pytest.fixture(autouse=True)
def ample_time_for_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the search for remedies so much time that a busy machine does not change a verdict."""
    monkeypatch.setattr(finding, "PATIENCE_S", 1000.0)
    monkeypatch.setattr(finding, "_MIN_FIRST_RUN_S", 600.0)
