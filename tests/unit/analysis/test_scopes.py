"""The line that opened a scope."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.analysis.locations import Sources, SourceText
from jupyter_graphbreak.analysis.scopes import ScopeTable
from jupyter_graphbreak.records.additions import CodeObject, ScopeOpened
from jupyter_graphbreak.report.location import Segment

FILE = "/project/model.py"
TEXT = """\
def plain(x):
    return x + 1

@first
@error_on_graph_break(True)
def decorated(x):
    return x - 1
"""


@pytest.mark.parametrize(
    ("function", "line", "form", "opener"), [("plain", 1, "call", 1), ("decorated", 4, "decorator", 5)]
)
def test_a_function_has_only_its_own_decorators(function: str, line: int, form: str, opener: int) -> None:
    table = ScopeTable(Sources([SourceText(FILE, "model.py", "file", [Segment(1, TEXT)])]))
    table.add_opened_scope(ScopeOpened(value=True, wrapped=CodeObject(name=function, filename=FILE, firstlineno=line)))
    (scope,) = table.scopes()
    assert scope.location is not None
    assert (scope.form, scope.location.line) == (form, opener)
