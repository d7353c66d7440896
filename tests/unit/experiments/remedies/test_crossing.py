"""Code may move past a branch only after a trial that runs the arm which may change the values that the code reads."""

from __future__ import annotations

import textwrap

import pytest

from tests.support.break_problems import problem, proposals_of

PRINT = """
import torch
def f(x, ys, opts):
    {before}
    print(ys)
    {after}
    return x
"""
SPLIT = """
import torch
def f(x, n):
    {before}
    parts = x.split(n.tolist())
    return parts
"""
IN_CONTEXT = """
import torch
def f(x):
    {before}
    with lock:
        y = x * 2
    return y
"""


def conditions(family: str, text: str, code: str, gb_id: str) -> list[tuple[str, tuple[bool, ...]]]:
    """Return the tests that code of the first proposal moves past, each with its required results."""
    text = textwrap.dedent(text)
    first = proposals_of(family, problem(text, code, gb_id, entry="def f("))[0]
    lines = text.split("\n")
    return [(lines[c.line - 1][c.column : c.end_column], c.required_results) for c in first.conditions]


def indent_for_template(code: str) -> str:
    """Return code that fits into an indented line of a template."""
    return textwrap.indent(code, "    ").lstrip()


@pytest.mark.parametrize(
    "arm",
    [
        "ys.reverse()", "ys[0] = x", "opts.scale = 2", "x += 1", "x.add_(1)", "torch.add(x, 1, out=x)", "change(ys)",
        "y = unknown(x)", "y = next(ys)", "setattr(opts, 'scale', 2)", "y = torch.relu(x, True)",
        "y = torch.nn.functional.relu(x, inplace=True)", "y = opts.layer(x)", "y = random.random()",
    ],
)  # fmt: skip
def test_an_arm_that_may_change_what_is_printed_must_run(arm: str) -> None:
    text = PRINT.format(before="pass", after=indent_for_template(f"if x.dim() > 1:\n    {arm}"))
    assert conditions("output", text, "print(ys)", "GB0059") == [("x.dim() > 1", (True,))]


@pytest.mark.parametrize("arm", ["y = x + 1", "y = torch.relu(x)", "y = x.view(-1)", "z = float(x)"])
def test_an_arm_that_changes_nothing_need_not_run(arm: str) -> None:
    text = PRINT.format(before="pass", after=indent_for_template(f"if x.dim() > 1:\n    {arm}"))
    assert conditions("output", text, "print(ys)", "GB0059") == []


def test_only_branches_between_the_old_and_the_new_position_count() -> None:
    branch = indent_for_template("if x.dim() > 1:\n    ys.reverse()")
    assert conditions("output", PRINT.format(before=branch, after="pass"), "print(ys)", "GB0059") == []
    branch = indent_for_template("if x.dim() > 1:\n    pass\nelse:\n    n.add_(x)")
    text = SPLIT.format(before=branch.replace("n.add_(x)", "other.add_(x)"))
    assert conditions("sizes", text, "n.tolist()", "GB0033") == [("x.dim() > 1", (False,))]


def test_a_loop_also_runs_the_code_above_the_moved_code() -> None:
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
    text = IN_CONTEXT.format(before=indent_for_template("if x.dim() > 1:\n    x = x @ x"))
    assert conditions("hoisting", text, "with lock:", "GB0142") == [("x.dim() > 1", (True,))]


@pytest.mark.parametrize(
    ("crossed_code", "code"),
    [
        ("for hook in hooks:\n        hook(state)", "hook(state)"),
        ("try:\n        y = x[k]\n    except KeyError:\n        state.n += 1", "1"),
        ("match k:\n        case 0:\n            state.reset()", "state.reset()"),
        ("refresh(state)", "state.reset()"),
    ],
)
def test_code_in_loops_handlers_cases_and_callees_must_run(crossed_code: str, code: str) -> None:
    helper = "import torch\ndef refresh(given):\n    for _ in given.steps:\n        state.reset()\n"
    text = f"{helper}def f(x, k):\n    print(state.n)\n    {crossed_code}\n    return x\n"
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


@pytest.mark.parametrize(
    ("definition", "arm", "may_change"),
    [
        ("def bump(by):\n    state.n += by", "bump(1)", True),
        ("def twice(by):\n    total = by\n    total += by\n    return total", "twice(1)", False),
        ("class Sample:\n    def __init__(self, n):\n        Sample.count = n", "y = Sample(1)", True),
        ("class Sample:\n    def __init__(self, n):\n        self.count = n", "y = Sample(1)", False),
        ("class Clock:\n    @property\n    def now(self):\n        self.n += 1\n        return 1", "y = k.now", True),
        ("class Total:\n    def __add__(self, x):\n        self.n += x", "y = k + 1", True),
    ],
)
def test_functions_properties_and_operators_may_change_what_is_printed(
    definition: str, arm: str, *, may_change: bool
) -> None:
    body = indent_for_template(f"print(state)\nif x.dim() > 1:\n    {arm}\nreturn x")
    text = f"import torch\n{definition}\ndef f(x, k):\n    {body}\n"
    assert (("x.dim() > 1", (True,)) in conditions("output", text, "print(state)", "GB0059")) is may_change


def test_an_arm_cannot_change_numbers_that_the_graph_computes_for_a_print() -> None:
    text = PRINT.format(before="pass", after=indent_for_template("if x.dim() > 1:\n    y = unknown(x)"))
    assert conditions("output", text.replace("print(ys)", "print(ys.sum())"), "print(ys.sum())", "GB0059") == []


@pytest.mark.parametrize("expression", ["next(ys)", "ys.pop()", "random.random()"])
def test_arms_that_may_read_what_a_print_changes_must_run(expression: str) -> None:
    text = PRINT.format(before="pass", after=indent_for_template("if x.dim() > 1:\n    x = x + opts.n"))
    results = conditions("output", text.replace("print(ys)", f"print({expression})"), f"print({expression})", "GB0059")
    assert results == [("x.dim() > 1", (True,))]


def test_a_setting_that_prints_at_the_end_of_the_graph_has_conditions() -> None:
    text = PRINT.format(before="pass", after=indent_for_template("if x.dim() > 1:\n    y = opts.layer(ys)"))
    proposals = proposals_of("output", problem(text, "print(ys)", "GB0059", entry="def f("))
    setting = next(proposal for proposal in proposals if proposal.settings)
    assert [condition.required_results for condition in setting.conditions] == [(True,)]


@pytest.mark.parametrize(
    ("definition", "after", "expected"),
    [
        ("def smooth(x):\n    if len(log) > 4:\n        x = x + 1\n    return x", "x = smooth(x)", True),
        ("def smooth(x, seen):\n    if seen:\n        x = x + 1\n    return x", "x = smooth(x, log)", True),
        ("", "if len(log) > 4:\n    x = x + 1", True),
        ("", "n = len(log)\nx = x if n < 4 else x + 1", True),
        ("", "x = x * (len(log) > 4)", True),
        ("def smooth(x):\n    if len(other) > 4:\n        x = x + 1\n    return x", "x = smooth(x)", False),
        ("", "if x.dim() > 1:\n    y = x + 1", False),
    ],
)
def test_tests_that_depend_on_what_a_moved_call_changes_need_both_results(
    definition: str, after: str, *, expected: bool
) -> None:
    body = indent_for_template(f"log.append(x.sum().item())\n{after}\nreturn x")
    text = f"import torch\nlog, other = [], []\n{definition}\ndef f(x):\n    {body}\n"
    results = {result for _, results in conditions("output", text, "x.sum().item()", "GB0109") for result in results}
    assert results == ({True, False} if expected else set())


@pytest.mark.parametrize(
    ("definition", "call", "expected"),
    [
        ("def notify(v):\n    for hook in hooks:\n        hook(v)", "notify(x.sum().item())", True),
        ("", "handlers['loss'](x.sum().item())", True),
        ("class Loop:\n    def __init__(self, hook):\n        self.hook = hook", "loop.hook(x.sum().item())", True),
        ("def notify(v):\n    tracker.update(v)", "notify(x.sum().item())", False),
        ("from somewhere import notify", "notify(x.sum().item())", False),
    ],
)
def test_a_moved_call_of_an_unknown_function_may_change_any_shared_object(
    definition: str, call: str, *, expected: bool
) -> None:
    body = indent_for_template(f"{call}\nif len(rows) > 50:\n    x = x * 0\nreturn x")
    text = f"import torch\n{definition}\ndef f(x):\n    {body}\n"
    results = {result for _, results in conditions("output", text, "x.sum().item()", "GB0109") for result in results}
    assert results == ({True, False} if expected else set())


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("buf.write('a')", "y = x * (1 if buf.tell() < 1000 else 2)", {"buf.tell() < 1000"}),
        ("opts.n = 1", "n = buf.tell()\nif n > 1000:\n    x = x + 1", {"n > 1000"}),
        ("x = x + 1", "y = x * (1 if buf.tell() < 1000 else 2)", set()),
        ("buf.write('a')", "y = x * buf.tell()", set()),
    ],
)
def test_tests_of_a_result_from_before_earlier_effects_need_both_results(
    before: str, after: str, expected: set[str]
) -> None:
    body = indent_for_template(f"{before}\n{after}\nreturn x")
    text = f"import torch\ndef f(x):\n    {body}\n"
    results = conditions("hoisting", text, "buf.tell()", "GB0059")
    assert {code for code, _ in results if "1000" in code} == expected
    assert {result for code, results in results if "1000" in code for result in results} == (
        {True, False} if expected else set()
    )
