"""Choose which of many similar cases every run of the tests includes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pytest.mark import ParameterSet


def sample_parameters(values: Iterable[object], every: int) -> list[ParameterSet]:
    """Return values as parameters: ``make test`` runs one of ``every``, and ``make test-exhaustive`` the others."""
    return [
        pytest.param(value, marks=[pytest.mark.exhaustive] if number % every else [])
        for number, value in enumerate(values)
    ]
