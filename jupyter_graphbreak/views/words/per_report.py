"""Cache results that are computed from a report, for as long as the report lives."""

from __future__ import annotations

import weakref
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.report.schema import Report

_T = TypeVar("_T")


def per_report(function: Callable[[Report], _T]) -> Callable[[Report], _T]:
    """Cache the result of a function for each report. The result must not refer to the report itself."""
    entries: dict[int, tuple[weakref.ref[Report], _T]] = {}

    @wraps(function)
    def cached_function(report: Report) -> _T:
        ident = id(report)
        entry = entries.get(ident)
        if entry is not None and entry[0]() is report:
            return entry[1]

        def forget(reference: weakref.ref[Report]) -> None:
            entry = entries.get(ident)
            if entry is not None and entry[0] is reference:
                entries.pop(ident, None)

        result = function(report)
        entries[ident] = weakref.ref(report, forget), result
        return result

    return cached_function
