"""What is worked out from a report once and asked for again and again, for as long as the report lives."""

from __future__ import annotations

import weakref
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.report.schema import Report

_T = TypeVar("_T")


def per_report(function: Callable[[Report], _T]) -> Callable[[Report], _T]:
    """Remember what a function returns for a report. Reports are frozen; the result must not hold the report itself."""
    known: dict[int, tuple[weakref.ref[Report], _T]] = {}

    @wraps(function)
    def remembered(report: Report) -> _T:
        ident = id(report)
        entry = known.get(ident)
        if entry is not None and entry[0]() is report:
            return entry[1]

        def forget(gone: weakref.ref[Report]) -> None:
            entry = known.get(ident)
            if entry is not None and entry[0] is gone:
                known.pop(ident, None)

        result = function(report)
        known[ident] = weakref.ref(report, forget), result
        return result

    return remembered
