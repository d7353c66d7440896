"""A cell's text and syntax tree are rewritten before IPython runs it."""

from __future__ import annotations

import ast
import math
import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from jupyter_graphbreak.ipython.cell.mentions import mentions_compile
from jupyter_graphbreak.ipython.cell.rewriting import CellRewriter, replace_magic_line
from jupyter_graphbreak.ipython.cell.top_level import only_computes


def lines_of(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def rewrite(body: str, *, uses_compile: bool = False) -> str:
    text = "".join(replace_magic_line(lines_of("%%compile_explain --fresh\n" + body)))
    return ast.unparse(CellRewriter(lambda _: uses_compile).visit(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    ["x = 1\n", "%%time\nx\n", "%%compile_explain?\n", "%%compile_explainer\nx\n", "  %%compile_explain\nx\n", ""],
)
def test_other_cells_stay_unchanged(text: str) -> None:
    assert replace_magic_line(lines_of(text)) == lines_of(text)


@pytest.mark.parametrize("before", ["", "\n", "\n\n\n"])
@pytest.mark.parametrize("body", ["x = 1\ny\n", "\n\nx\n", "    x\n    y\n", "\tif x:\n\t\ty\n"])
def test_every_line_keeps_its_number(before: str, body: str) -> None:
    text = f"{before}%%compile_explain --backend eager\n{body}"
    new_lines = replace_magic_line(lines_of(text))
    assert len(new_lines) == len(lines_of(text))
    assert new_lines[len(lines_of(before)) + 1 :] == lines_of(body)
    assert new_lines[0].strip() == repr("%%compile_explain --backend eager")


def test_a_second_cell_magic_becomes_the_call_that_ipython_makes_of_it() -> None:
    new_lines = replace_magic_line(lines_of("%%compile_explain\n%%time\nx = 1\n"))
    assert new_lines[1].startswith("get_ipython().run_cell_magic('time', '', 'x = 1")


def test_cell_that_compiles_runs_unchanged() -> None:
    text = rewrite("x = 1\nx\n", uses_compile=True)
    assert re.fullmatch(r"__import__\(.*\)\.ipython\.magic\.begin\('--fresh', 'unchanged', '', False\)\nx = 1\nx", text)


ROUTE = "__import__('jupyter_graphbreak.compiling.routes').compiling.routes.route"


def test_the_calls_of_a_cell_that_compiles_nothing_are_routed() -> None:
    text = rewrite("import a\ndef g():\n    h()\nx = g(1, k=m.f(2))\nfor i in x[0]():\n    y = 'a'.upper()\ny\n")
    body = text.replace(ROUTE, "route")
    assert body.endswith(
        "import a\n\ndef g():\n    h()\nx = route(g)(1, k=route(m.f)(2))\n"
        "for i in route(x[0])():\n    y = route('a'.upper)()\ny"
    )


def test_a_cell_that_only_computes_becomes_one_function() -> None:
    text = rewrite("import torch\ndef g(): pass\nx = torch.ones(2)\nfor i in range(3):\n    y = x * i\ny\n")
    assert "def _graphbreak_cell():\n    global i, x, y\n    x = torch.ones(2)\n" in text
    assert "    return y\n" in text
    assert text.index("import torch") < text.index("def g") < text.index("def _graphbreak_cell")
    caller = r"\S+\.cell_caller\('_graphbreak_cell', \('i', 'x', 'y'\)\)"
    assert re.search(rf"\.values\.append\({caller}\(\)\)", text)
    code_after_error = text[text.index("should_repeat") :]  # runs after an error in a graph
    assert code_after_error.index("x = torch.ones(2)") < code_after_error.index("values.append(y)")
    assert text.endswith(".magic.values.pop()")


@pytest.mark.parametrize("change", ["x += 1", "x.add_(1)", "x[0] = 1", "print(x)", "torch.add(x, 1, out=x)"])
def test_a_cell_that_changes_more_than_variables_is_not_repeated(change: str) -> None:
    text = rewrite(f"import torch\nx = torch.ones(2)\n{change}\n")
    assert "cell_caller('_graphbreak_cell')" in text
    assert "should_repeat" not in text


@pytest.mark.parametrize(
    ("body", "plan"),
    [
        ("import torch\ndef f(): pass\n", "'nothing', ''"),
        ("", "'nothing', ''"),
        ("await f()\n", "'calls', ''"),
        ("x = 1\nfrom os import *\n", "'calls', ''"),
        ("x = 1\nyield x\n", "'calls', ''"),
        ("async def f():\n    await g()\nx = f\n", "'calls', ''"),
        ("x = 1\nx\n", "'calls', ''"),
        ("get_ipython().run_cell_magic('time', '', 'f(x)')\n", "'calls', '%%time'"),
        ("get_ipython().run_cell_magic('time', '', 'torch.compile(f)(x)')\n", "'unchanged', '%%time'"),
        ("import torch\nx = torch.ones(2) + 1\n", "'function', ''"),
    ],
)
def test_the_call_before_a_cell_names_its_plan(body: str, plan: str) -> None:
    assert f"begin('--fresh', {plan}, False)" in rewrite(body)


@pytest.mark.parametrize(
    "cell",
    [
        "y = torch.ones(2)\nif y.sum() > 0:\n    y = y + 1\nprint(y)",
        "with torch.no_grad():\n    y = x @ x.T",
        "y = x.relu()\nwhile y.sum() > 3:\n    y = y / 2",
        "x[0] = math.sqrt(2) * x[1]",
        "y = F.relu(x)",
        "y = torch.fft.fft(x).abs().to(torch.float32)",
        "with torch.autocast('cpu'):\n    y = x @ x",
        "y = x + len(numbers) + numbers[0]",
    ],
)
def test_cells_that_only_compute_are_recognized(cell: str) -> None:
    assert _only_computes(cell)


@pytest.mark.parametrize(
    "cell",
    [
        "y = net(x)",
        "y = helper(x)",
        "net = torch.nn.Linear(2, 2)\ny = net(x)",
        "y = torch.nn.Linear(2, 2)(x)",
        "y = x + 1\ntry:\n    y.nope\nexcept AttributeError:\n    pass",
        "y = x + 1\nimport os",
        "torch.manual_seed(0)\ny = torch.rand(2)",
        "torch.set_grad_enabled(False)\ny = x + 1",
        "(x * 2).sum().backward()",
        "y = x + np.ones(2)",
        "y = [v * 2 for v in x]",
        "y = lambda: x + 1",
        "data.value = x + 1",
        "y = x + 1\nassert y.sum() > 0",
        "y = x.numpy() + 1",
        "a = 1 + 2",
        "'text'\ny = x + 1",
        "a = math.sqrt(4)",
        "y = x + by_name['a']",
        "seed(0)\ny = x + 1",
        "for batch in Loader(data):\n    print(batch)",
        "for batch in Loader(dataset):\n    print(batch)",
        "with Flops():\n    y = x @ x",
        "y, = torch.autograd.grad(x.sum(), x)",
    ],
)
def test_cells_that_do_more_than_compute_are_recognized(cell: str) -> None:
    assert not _only_computes(cell)


def _only_computes(cell: str) -> bool:
    namespace = {"x": torch.ones(2, 2), "torch": torch, "math": math, "F": torch.nn.functional, "np": UnknownObject()}
    names = {
        **namespace,
        "net": torch.nn.Linear(2, 2),
        "helper": lambda x: x,
        "data": UnknownObject(),
        "dataset": torch.utils.data.TensorDataset(torch.ones(2)),
        "Loader": torch.utils.data.DataLoader,
        "Flops": FlopCounterMode,
        "seed": torch.manual_seed,
        "by_name": {"a": 1},
        "numbers": [1, 2.0],
    }
    return only_computes([], ast.parse(cell).body, names)


class UnknownObject:
    """An object that is neither a tensor nor from PyTorch."""


class _Module:
    __spec__ = None

    def __init__(self, name: str) -> None:
        self.__name__ = name


@pytest.mark.parametrize(
    ("code", "uses"),
    [
        ("torch.compile(f)", True),
        ("@torch.compile\ndef f(): pass", True),
        ("from torch import compile as c\nc(f)", True),
        ("import torch as t\nt.compile(f)", True),
        ("model.compile()", True),
        ("torch._dynamo.optimize()(f)", True),
        ("import re\nre.compile('x')", False),
        ("r.compile('x')", False),
        ("optimizer.optimize()", False),
        ("print('torch.compile')", False),
    ],
)
def test_use_of_compile_is_detected_in_the_code(code: str, uses: bool) -> None:
    assert mentions_compile(ast.parse(code), {"r": _Module("regex"), "model": object()}) is uses
