"""Select the eager functions that matter to a reader."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Report, Skipped

#: The names of the code objects that Python creates for comprehensions.
_COMPREHENSIONS = frozenset({"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"})


def functions_worth_counting(report: Report, functions: Collection[Skipped]) -> list[Skipped]:
    """Return the eager functions that matter to a reader.

    Functions of Python's standard library are left out, because they compute nothing with tensors. So is a
    comprehension inside a function that is returned.
    """
    standard_library = {
        source.id
        for source in report.sources
        if source.kind == "library" and _top_module(source.path or "") in sys.stdlib_module_names
    }
    relevant = [
        function
        for function in functions
        if function.location is None or function.location.source not in standard_library
    ]
    enclosing = [function.location for function in relevant if function.function not in _COMPREHENSIONS]
    return [
        function
        for function in relevant
        if function.function not in _COMPREHENSIONS
        or not any(_contains(lines, function.location) for lines in enclosing)
    ]


def _top_module(path: str) -> str:
    return path.partition("/")[0].removesuffix(".py")


def _contains(outer: Location | None, inner: Location | None) -> bool:
    if outer is None or inner is None or outer.source != inner.source:
        return False
    return outer.line <= inner.line and inner.end_line <= outer.end_line
