"""Choose which of many similar cases ``make test`` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pytest.mark import ParameterSet


def sample_parameters(values: Iterable[object], every: int) -> list[ParameterSet]:
    """Return values as parameters; ``make test`` runs only the first of each ``every`` values."""
    return [
        pytest.param(value, marks=[pytest.mark.exhaustive] if number % every else [])
        for number, value in enumerate(values)
    ]
