"""A finding is recognized in a script: a break by its code in any format, a wrong result by the comparing line."""

from __future__ import annotations

import ast

import pytest

from jupyter_graphbreak.experiments.reproducer.target import CHECK_ID, Target, comparable_code_of
from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.report.schema import Break, Device, Report, RunError


def break_in(code: str) -> Break:
    return Break("b1", "GB0170", "Data-dependent branching", Location("s1", 1, 1, code=code), "resumed")


@pytest.mark.parametrize(
    "code",
    [
        "torch.any(scale > 1e4)",
        "x[1_000:].sum() > .5",
        "mask & 0xFF",
        "y.item() * 2E-3",
        "cells[3.].norm2(1) > 10_0.",
        'log("step", 7)',
    ],
)
def test_code_is_recognized_after_unparsing(code: str) -> None:
    unparsed_code = ast.unparse(ast.parse(code))
    assert comparable_code_of(break_in(code)) == comparable_code_of(break_in(unparsed_code))
    assert comparable_code_of(break_in(f"if {code}:")).startswith("if")


def test_different_numbers_are_different_code() -> None:
    assert comparable_code_of(break_in("x > 1e4")) != comparable_code_of(break_in("x > 1e5"))
    assert comparable_code_of(break_in("x1 > 2")) != comparable_code_of(break_in("x2 > 2"))
    assert comparable_code_of(break_in("def f(x=1):")) == ""


@pytest.mark.parametrize(
    ("code", "is_shown"),
    [("torch.testing.assert_close(actual, expected)", True), ("assert x.sum() > 0", False)],
)
def test_a_wrong_result_is_an_error_on_the_line_that_compares(code: str, *, is_shown: bool) -> None:
    error = RunError("AssertionError", "Tensor-likes are not close!", Location("s1", 9, 9, code=code), None)
    report = Report("error", Device("auto", "cpu"), error=error)
    assert Target(CHECK_ID, "wrong result", kind="check").is_shown_by(report, {}) is is_shown
