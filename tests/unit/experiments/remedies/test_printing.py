"""Proposals that move output and checks after the call."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields

from jupyter_graphbreak.experiments.families import printing
from jupyter_graphbreak.report.location import Source
from tests.support.break_problems import problem, proposals_of, proposed_texts

ORIGINAL_TEXT = '''\
import torch

@torch.compile(backend="eager")
def f(x, n: int = 3, *rest, k="(", **more) -> torch.Tensor:
    """Doc."""
    for i in range(2):
        x = x * 2
        print("step %d: %.3f" % (i, x.sum().item()))  # each
    print("done", flush=True); return x

y = f(torch.ones(3))
'''
CHANGED_TEXT = '''\
import torch

@torch.compile(backend="eager")
def _f_compiled(later, x, n: int = 3, *rest, k="(", **more) -> torch.Tensor:
    for i in range(2):
        x = x * 2
        later.append((0, i, x.sum()))  # each
    later.append((1,)); return x


def f(x, n: int = 3, *rest, k="(", **more) -> torch.Tensor:
    """Doc."""
    later = []
    result = _f_compiled(later, x, n, *rest, k=k, **more)
    for which, *values in later:
        if which == 0:
            i, value = values
            print("step %d: %.3f" % (i, value.item()))
        elif which == 1:
            print("done", flush=True)
    return result

y = f(torch.ones(3))
'''


def test_all_output_moves_after_the_call() -> None:
    (first, *_) = proposals_of("output", problem(ORIGINAL_TEXT, "x.sum().item()", "GB0124", entry="def f("))
    assert first.texts["s1"] == CHANGED_TEXT
    assert first.compiles_inner_function
    assert first.title == "Print after the call"


def test_a_call_in_a_default_runs_once_and_a_registered_function_keeps_its_name() -> None:
    text = "import torch\ndef f(x, n: int = make(), *, k=2):\n    print(x.sum())\n    return x\ng = torch.compile(f)\n"
    (first, *_) = proposed_texts("output", problem(text, "print(x.sum())", "GB0059", entry="def f("))
    assert "def _f_compiled(later, x, n: int, *, k):" in first
    assert "def f(x, n: int = make(), *, k=2):" in first
    registered_problem = problem(
        text.replace("def f", "@registry.add\ndef f"), "print(x.sum())", "GB0059", entry="def f("
    )
    assert not any("_f_compiled" in changed_text for changed_text in proposed_texts("output", registered_problem))


@pytest.mark.parametrize(
    ("before", "import_line"),
    [
        ("", "import torch\n"),  # the module that calls `f` compiles it
        ("def g(x):\n    import torch as t\n    return t.sin(x)\n", "import torch\n"),
        ("class A:\n    seen = torch.ones(2)\n", ""),  # another cell imports it
        ("from torch import nn\n", "import torch\n"),
    ],
)
def test_a_source_without_an_import_of_torch_gets_one(before: str, import_line: str) -> None:
    text = f"{before}def f(x):\n    print(x.sum())\n    return x\n"
    (first, *_) = proposed_texts("output", problem(text, "print(x.sum())", "GB0059", entry="def f("))
    assert first.startswith(f"{before}{import_line}@torch.compile\ndef _f_compiled(later, x):\n")
    method = f"{before}class M:\n    def forward(self, x):\n        print(x.sum())\n        return x\n"
    (first, *_) = proposed_texts("output", problem(method, "print(x.sum())", "GB0059", entry="def forward("))
    assert f"\n\n\n{import_line}@torch.compile\ndef _forward_compiled(later, self, x):\n" in first


def test_the_compile_call_moves_to_the_inner_function() -> None:
    text = "import torch as T\ndef f(x):\n\tprint(f'{x.mean():.2f} ü')\n\treturn x\ng = T.compile(f, dynamic=False)\n"
    (first, *_) = proposed_texts("output", problem(text, "print(f'{x.mean():.2f} ü')", "GB0059", entry="def f("))
    assert first == (
        "import torch as T\n@T.compile(dynamic=False)\ndef _f_compiled(later, x):\n"
        "\tlater.append((x.mean(),))\n\treturn x\n"
        "\n\ndef f(x):\n\tlater = []\n\tresult = _f_compiled(later, x)\n\tfor (value,) in later:\n"
        "\t\tprint(f'{value:.2f} ü')\n\treturn result\ng = f\n"
    )


@pytest.mark.parametrize(
    ("compile_statement", "expected_ending"),
    [
        ("h = f\ng = torch.compile(h, backend='eager')\n", "h = f\ng = h\n"),
        ("g = [torch.compile(h) for h in (f, abs)]\n", None),
        ("g = torch.compile(lambda x: f(x))\n", None),
    ],
)
def test_a_function_with_a_second_name_is_compiled_only_once(
    compile_statement: str, expected_ending: str | None
) -> None:
    text = f"import torch\ndef f(x):\n    print(x)\n    return x\n{compile_statement}"
    texts_after_move = [
        text
        for text in proposed_texts("output", problem(text, "print(x)", "GB0059", entry="def f("))
        if "later" in text
    ]
    if expected_ending is None:
        assert not texts_after_move
    else:
        assert texts_after_move[0].endswith(expected_ending)
        assert "@torch.compile(backend='eager')\ndef _f_compiled(" in texts_after_move[0]


@pytest.mark.parametrize(
    ("check", "code", "deferred_values", "after"),
    [
        ("if x.isnan().any():\n        raise ValueError('nan')", "x.isnan().any()", "x.isnan().any(),",
         "for (value,) in later:\n        if value:\n            raise ValueError('nan')"),
        ("assert x.sum() > 0, 'small'", "x.sum() > 0", "x.sum() > 0,",
         "for (value,) in later:\n        assert value, 'small'"),
        ("seen.append(x.max().item())", "x.max().item()", "x.max(),",
         "for (value,) in later:\n        seen.append(value.item())"),
    ],
)  # fmt: skip
def test_checks_and_records_move_after_the_call(check: str, code: str, deferred_values: str, after: str) -> None:
    text = f"import torch\nseen = []\ndef f(x):\n    {check}\n    return x\n"
    (first, *_) = proposals_of("output", problem(text, code, entry="def f("))
    assert f"later.append(({deferred_values}))" in first.texts["s1"]
    assert after in first.texts["s1"]
    assert bool(first.conditions) == ("seen.append" not in check)


METHOD = '''\
import torch
class Net(torch.nn.Module):
    def forward(self, x, *, n=1):
        """Doc.

        More.
        """
        y = x + n

        print(y.sum())  # why
        return y

    def other(self): ...

net = Net()
fast = torch.compile(net, dynamic=True)
'''
METHOD_AFTER = '''\
import torch
class Net(torch.nn.Module):
    def forward(self, x, *, n=1):
        """Doc.

        More.
        """
        later = []
        result = _forward_compiled(later, self, x, n=n)
        for (value,) in later:
            print(value)
        return result

    def other(self): ...


@torch.compile(dynamic=True)
def _forward_compiled(later, self, x, *, n=1):
    y = x + n

    later.append((y.sum(),))  # why
    return y

net = Net()
fast = net
'''


def test_a_method_calls_a_top_level_function() -> None:
    break_problem = problem(METHOD, "print(y.sum())", "GB0059", entry="def forward(")
    assert proposed_texts("output", break_problem)[0] == METHOD_AFTER
    library = Source("s1", "modeling.py", "library", "models/modeling.py")
    break_problem = replace(break_problem, report=replace_fields(break_problem.report, sources=[library]))
    assert not any(proposal.compiles_inner_function for proposal in proposals_of("output", break_problem))


@pytest.mark.parametrize(
    ("compile_statement", "expected_ending"),
    [
        ("net.compile(dynamic=True)", ""),
        ("net.forward = torch.compile(net.forward, dynamic=True)", ""),
        ("fast = torch.compile(net.forward, dynamic=True)", "fast = net.forward\n"),
        ("for block in blocks:\n    block.compile()", None),
        ("choice = True\nfast = torch.compile(net, dynamic=choice)", None),
        ("net.compile()\nfast = torch.compile(net, dynamic=True)", None),
    ],
)
def test_a_method_that_is_compiled_in_place_is_compiled_only_once(
    compile_statement: str, expected_ending: str | None
) -> None:
    text = METHOD.replace("fast = torch.compile(net, dynamic=True)", compile_statement)
    texts_after_move = proposed_texts("output", problem(text, "print(y.sum())", "GB0059", entry="def forward("))
    expected = None if expected_ending is None else METHOD_AFTER.replace("fast = net\n", expected_ending)
    assert next((after for after in texts_after_move if "later" in after), None) == expected


def test_a_tensor_changed_in_place_is_copied() -> None:
    text = "import torch\ndef f(x):\n    y = x + 1\n    print(y)\n    y.add_(1)\n    return y\n"
    (first, *_) = proposed_texts("output", problem(text, "print(y)", "GB0059", entry="def f("))
    assert "later.append((y.clone(),))" in first
    text = text.replace("y.add_(1)", "y += 1")
    first, second, *_ = proposed_texts("output", problem(text, "print(y)", "GB0059", entry="def f("))
    assert "later.append((y,))" in first
    assert "later.append((y.clone(),))" in second


def test_a_size_of_a_tensor_changed_in_place_is_not_copied() -> None:
    text = "import torch\ndef f(x):\n    y = x + 1\n    print(y.shape, len(y), y)\n    y.unsqueeze_(0)\n    return y\n"
    (first, *_) = proposed_texts("output", problem(text, "print(", "GB0059", entry="def f("))
    assert "later.append((y.shape, len(y), y.clone()))" in first


def test_output_of_an_inner_function_is_only_skipped() -> None:
    text = (
        "import torch\ndef inner(x):\n    if 1: print(x)\n    print(1)\n    return x\ndef f(x):\n    return inner(x)\n"
    )
    assert proposals_of("output", problem(text, "print(x)", "GB0059", entry="def f(")) == []
    text = text.replace("if 1: print(x)", "print(x)  # here")
    (proposal,) = proposals_of("output", problem(text, "print(x)", "GB0059", entry="def f("))
    assert proposal.title == "Print only when not compiling"
    guarded_print = "    if not torch.compiler.is_compiling():\n        print({})"
    assert proposal.texts["s1"].startswith(
        "import torch\ndef inner(x):\n" + guarded_print.format("x") + "  # here\n" + guarded_print.format("1")
    )


def test_settings_move_or_skip_output() -> None:
    text = "import torch\ndef f(x):\n    print(x)\n    return x\n"
    settings = [
        proposal.settings for proposal in proposals_of("output", problem(text, "print(x)", "GB0059", entry="def f("))
    ]
    assert {"torch._dynamo.config.reorderable_logging_functions": ["builtins.print"]} in settings
    text = text.replace("print(x)", "logger.warning_once('hm')")
    hints = ["Add the logging method to `torch._dynamo.config.ignore_logging_functions`."]
    for break_hints, name in ((hints, "ignore_logging_functions"), ([], "ignore_logger_methods")):
        proposals = proposals_of("output", problem(text, "logger.warning_once('hm')", "GB0291", hints=break_hints))
        assert proposals[0].settings == {f"torch._dynamo.config.{name}": ["logging.Logger.warning_once"]}
        assert proposals[0].title == "Leave `logging.Logger.warning_once` out of compiled code"
        assert {change.title for change in proposals if not change.assumptions} <= {"Write messages after the call"}


@pytest.mark.parametrize(
    "block", ["try:\n        {}\n    except ValueError: x = -x", "with suppress(ValueError):\n        {}"]
)
@pytest.mark.parametrize("check", ["if x.any(): raise ValueError", "assert x.any()"])
def test_a_check_whose_error_is_handled_stays_in_place(block: str, check: str) -> None:
    text = f"import torch\ndef f(x):\n    {block.format(check)}\n    return x\n"
    break_problem = problem(text, "x.any()", entry="def f(")
    assert [proposals_of(family, break_problem) for family in ("output", "rewrite", "branch")] == [[], [], []]


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    seen = []\n    seen.append(x.item())\n    return seen\n",
        "def f(x):\n    print(x.item())\n    yield x\n",
        "def f(x):\n    def g():\n        print(x.item())\n    g()\n    return x\n",
        "async def f(x):\n    print(x.item())\n",
        "def f(x):\n    n = x.item()\n    return n\n",
        "class M:\n    def f(self, x):\n        print(x.item())\n        return super().f(x)\n",
        "class M:\n    def f(self, x):\n        print(x.item())\n        return g(x, '''a\n  b''')\n",
        "class M:\n    @staticmethod\n    def f(x):\n        print(x.item())\n",
        "g = lambda x: print(x.item())\n",
    ],
)
def test_statements_that_cannot_be_deferred_are_not_changed(text: str) -> None:
    entry = "def f(" if "def f(" in text else None
    proposals = proposals_of("output", problem(text, "x.item()", "GB0124", entry=entry))
    assert not any(proposal.compiles_inner_function for proposal in proposals)


def test_every_proposed_text_is_valid_python() -> None:
    for text in proposed_texts("output", problem(ORIGINAL_TEXT, "x.sum().item()", "GB0124", entry="def f(")):
        ast.parse(text)


@pytest.mark.parametrize(
    ("statements", "title"),
    [
        ("print(x)", "Print after the call"),
        ("opt.step()", "Run `opt.step()` after the call"),
        ("logs['loss'].append(x)", "Run `append()` after the call"),
        ("opt.step(); print(x); assert x.any()", "Run `opt.step()`, write messages and check after the call"),
    ],
)
def test_the_title_names_the_moved_statements(statements: str, title: str) -> None:
    assert printing._title_for(ast.parse(statements).body) == title
