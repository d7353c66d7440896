"""Code that moves past a branch needs a trial in which the branch changes what the code reads."""

from __future__ import annotations

import textwrap

import pytest

from tests.support.break_problems import problem, proposals_of

PRINTED = """
import torch
def f(x, ys, opts):
    {before}
    print(ys)
    {after}
    return x
"""
READ = """
import torch
def f(x, n):
    {before}
    parts = x.split(n.tolist())
    return parts
"""
WITHIN = """
import torch
def f(x):
    {before}
    with lock:
        y = x * 2
    return y
"""


def conditions(family: str, text: str, code: str, gb_id: str) -> list[tuple[str, tuple[bool, ...]]]:
    """Return the tests that the first proposal passes, and the sides of each that must run."""
    text = textwrap.dedent(text)
    first = proposals_of(family, problem(text, code, gb_id, entry="def f("))[0]
    lines = text.split("\n")
    return [(lines[c.line - 1][c.column : c.end_column], c.sides) for c in first.conditions]


def one_line(code: str) -> str:
    """Return code that fits into an indented line of a template."""
    return textwrap.indent(code, "    ").lstrip()


@pytest.mark.parametrize(
    "arm",
    ["ys.reverse()", "ys[0] = x", "opts.scale = 2", "x += 1", "x.add_(1)", "torch.add(x, 1, out=x)", "change(ys)"],
)
def test_an_arm_that_may_change_what_is_printed_must_run(arm: str) -> None:
    text = PRINTED.format(before="pass", after=one_line(f"if x.dim() > 1:\n    {arm}"))
    assert conditions("output", text, "print(ys)", "GB0059") == [("x.dim() > 1", (True,))]


@pytest.mark.parametrize("arm", ["y = x + 1", "y = torch.relu(x)", "y = x.view(-1)", "z = float(x)", "y = change(x)"])
def test_an_arm_that_changes_nothing_need_not_run(arm: str) -> None:
    text = PRINTED.format(before="pass", after=one_line(f"if x.dim() > 1:\n    {arm}"))
    assert conditions("output", text, "print(ys)", "GB0059") == []


def test_only_branches_between_the_old_and_the_new_place_count() -> None:
    branch = one_line("if x.dim() > 1:\n    ys.reverse()")
    assert conditions("output", PRINTED.format(before=branch, after="pass"), "print(ys)", "GB0059") == []
    branch = one_line("if x.dim() > 1:\n    pass\nelse:\n    n.add_(x)")
    text = READ.format(before=branch.replace("n.add_(x)", "other.add_(x)"))
    assert conditions("sizes", text, "n.tolist()", "GB0033") == [("x.dim() > 1", (False,))]


def test_a_loop_repeats_what_stands_before_the_moved_code() -> None:
    text = """
    import torch
    def f(x, ys):
        for y in ys:
            if y.dim() > 1:
                ys.reverse()
            print(ys)
        return x
    """
    assert conditions("output", text, "print(ys)", "GB0059") == [("y.dim() > 1", (True,))]


def test_code_that_runs_in_a_context_only_after_the_change_must_run() -> None:
    text = WITHIN.format(before=one_line("if x.dim() > 1:\n    x = x @ x"))
    assert conditions("hoisting", text, "with lock:", "GB0142") == [("x.dim() > 1", (True,))]


@pytest.mark.parametrize(
    ("passed", "code"),
    [
        ("for hook in hooks:\n        hook(state)", "hook(state)"),
        ("try:\n        y = x[k]\n    except KeyError:\n        state.n += 1", "1"),
        ("match k:\n        case 0:\n            state.reset()", "state.reset()"),
        ("refresh(state)", "state.reset()"),
    ],
)
def test_code_in_loops_handlers_cases_and_callees_must_run(passed: str, code: str) -> None:
    helper = "import torch\ndef refresh(given):\n    for _ in given.steps:\n        state.reset()\n"
    text = f"{helper}def f(x, k):\n    print(state.n)\n    {passed}\n    return x\n"
    assert conditions("output", text, "print(state.n)", "GB0059") == [(code, ())]


def test_an_augmented_assignment_calls_a_method() -> None:
    """A branch of ``__iadd__`` may decide whether ``tally += x`` changes the object."""
    text = """
    import torch
    class Tally:
        def __iadd__(self, x):
            if x.dim() > 1:
                self.total = x
            return self
    def f(x, tally):
        print(tally)
        tally += x
        return x
    """
    assert ("x.dim() > 1", (True,)) in conditions("output", text, "print(tally)", "GB0059")
