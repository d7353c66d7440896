"""The columns of a bytecode instruction locate its expression, and the code of a branch shows what it is for."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from jupyter_graphbreak.analysis.breaks import advise
from jupyter_graphbreak.analysis.locations import (
    ExpressionRange,
    Sources,
    SourceText,
    branch_uses,
    find_expression,
    whole_test,
)
from jupyter_graphbreak.analysis.messages import Cause
from jupyter_graphbreak.records.records import ExpressionSpan
from jupyter_graphbreak.report.location import Segment

if TYPE_CHECKING:
    from jupyter_graphbreak.knowledge.entries import BranchUse

TWO_OPERANDS = "def f(e, p):\n    if e is not None and torch.isin(e, p).any():\n        return p\n"
SEVERAL_LINES = "def f(e, p):\n    if (\n        e.ok\n        and p.any()\n    ):\n        return p\n"


def test_the_first_operand_of_a_test_locates_the_whole_test() -> None:
    """Python 3.11 gives both jumps the columns of ``e is not None``."""
    sources = Sources([SourceText("m.py", "m.py", "file", [Segment(1, TWO_OPERANDS)])])
    branch = sources.location("m.py", 2, "f", ExpressionSpan(7, 20, 2), is_branch=True)
    assert branch is not None
    assert branch.code == "e is not None and torch.isin(e, p).any()"
    operand = sources.location("m.py", 2, "f", ExpressionSpan(7, 20, 2))
    assert operand is not None
    assert operand.code == "e is not None"


@pytest.mark.parametrize(("columns", "is_first"), [((7, 20), True), ((25, 46), False), ((7, 46), False)])
def test_only_the_first_operand_stands_for_the_whole_test(columns: tuple[int, int], is_first: bool) -> None:
    expression = find_expression(ast.parse(TWO_OPERANDS), 2, *columns, 2) or ExpressionRange(
        2, columns[0], 2, columns[1]
    )
    assert (whole_test(ast.parse(TWO_OPERANDS), expression) is not None) is is_first


BRANCHES = """\
def f(x, n):
    if x.isnan().any():
        raise ValueError
    while x.sum() < n:
        x = x * 2
    for _ in range(9):
        if (
            x.norm() < 1
        ):
            break
        elif x.max() > 3: return x
        def inner(y):
            if y > 0:
                return y
    if x.min() < 0:
        return x
    else:
        raise ValueError
    if x.max() > 9:
        warnings.warn("large")
        log.info("max %s", x.max())
    if x.max() > 9:
        print("large")
    else:
        print("small")
    if x.max() > 9:
        x = x / 2
        print("large")
"""


def test_branches_that_raise_write_messages_or_end_loops_are_recognized() -> None:
    end: BranchUse = "end of a loop"
    assert branch_uses(ast.parse(BRANCHES)) == {2: "error", 4: end, 8: end, 11: end, 19: "message", 22: "message"}


@pytest.mark.parametrize(
    ("body", "returns_no_result"),
    [
        ("return None", True),
        ("return", True),
        ("log(kl)\n        return None, kl", True),
        ("return x", False),
        ("return None if y else x", False),
    ],
)
def test_a_branch_that_returns_no_result_is_recognized(body: str, *, returns_no_result: bool) -> None:
    text = f"def f(x, kl):\n    if kl > 1:\n        {body}\n    return x, kl\n"
    assert branch_uses(ast.parse(text)) == ({2: "no result"} if returns_no_result else {})


@pytest.mark.parametrize(
    ("test", "is_flag"),
    [
        ("self.initialized", True),
        ("not self.initialized", True),
        ("self.training and not self.initialized.item()", True),
        ("bool(self.initialized)", True),
        ("self.initialized == 0", True),
        ("self.count > 3", False),
        ("self.training and x.max() > 3", False),
        ("x.flag", False),
    ],
)
def test_a_test_of_a_flag_is_recognized(test: str, is_flag: bool) -> None:
    assert branch_uses(ast.parse(f"if {test}:\n    x = 1")) == ({1: "flag"} if is_flag else {})


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        ("flag", "if this tensor is a flag that changes only once"),
        ("error", "return the condition and raise the error after the call"),
        ("message", "return the condition and write the message after the call"),
        ("end of a loop", "compile one step and call it from a loop"),
        ("no result", "compute the result on every call, return the condition with it"),
        (None, "compute both branches with torch.where"),
    ],
)
def test_the_advice_about_a_branch_fits_its_use(use: BranchUse | None, advice: str) -> None:
    first, *_ = advise(Cause("Data-dependent branching", "GB0170"), None, use=use)
    assert first.text.startswith(advice)


def test_the_location_of_a_test_on_a_later_line_begins_at_its_if() -> None:
    sources = Sources([SourceText("m.py", "m.py", "file", [Segment(1, SEVERAL_LINES)])])
    location = sources.location("m.py", 2, "f", ExpressionSpan(4, 16, 6), is_branch=True)
    assert location is not None
    assert (location.line, location.end_line) == (2, 4)
    assert location.code == "if (\n        e.ok\n        and p.any()"


def test_only_text_in_the_source_is_quoted() -> None:
    """If a function is too long, only some of its lines are recorded."""
    known_lines = {2: "    if (", 4: "        and p.any()"}
    sources = Sources([SourceText("m.py", "m.py", "library", [], known_lines)])
    location = sources.location("m.py", 2, "f", ExpressionSpan(4, 16, 4))
    assert location is not None
    assert (location.code, location.end_line) == ("if (", 2)
