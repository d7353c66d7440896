"""Shared fixtures for tests of experiments."""

from __future__ import annotations

import os

import pytest

from jupyter_graphbreak.experiments.remedies import finding
from tests.support import warm_processes


@pytest.fixture(autouse=True)
def ample_time_for_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the search for remedies so much time that a busy machine does not change a verdict."""
    monkeypatch.setattr(finding, "PATIENCE_S", 1000.0)
    monkeypatch.setattr(finding, "_MIN_FIRST_RUN_S", 600.0)


@pytest.fixture
def few_unusual_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try only the first unusual inputs of a function, for tests that are not about the verdicts on changes."""
    if warm_processes.COLD_START not in os.environ:
        for owner, name, value in warm_processes.few_unusual_inputs():
            monkeypatch.setattr(owner, name, value)
