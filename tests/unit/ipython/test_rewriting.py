"""What becomes of a cell's text and tree before IPython runs it."""

from __future__ import annotations

import ast
import re

import pytest

from jupyter_graphbreak.ipython.cell.mentions import mentions_compile
from jupyter_graphbreak.ipython.cell.rewriting import BeginObservation, replace_magic_line


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def rewritten(body: str, *, uses_compile: bool = False) -> str:
    text = "".join(replace_magic_line(lines("%%compile_explain -q\n" + body)))
    return ast.unparse(BeginObservation(lambda _: uses_compile).visit(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    ["x = 1\n", "%%time\nx\n", "%%compile_explain?\n", "%%compile_explainer\nx\n", "  %%compile_explain\nx\n", ""],
)
def test_other_cells_stay_as_they_are(text: str) -> None:
    assert replace_magic_line(lines(text)) == lines(text)


@pytest.mark.parametrize("before", ["", "\n", "\n\n\n"])
@pytest.mark.parametrize("body", ["x = 1\ny\n", "\n\nx\n", "    x\n    y\n", "\tif x:\n\t\ty\n"])
def test_every_line_keeps_its_number(before: str, body: str) -> None:
    text = f"{before}%%compile_explain --backend eager\n{body}"
    made = replace_magic_line(lines(text))
    assert len(made) == len(lines(text))
    assert made[len(lines(before)) + 1 :] == lines(body)
    assert made[0].strip() == repr("%%compile_explain --backend eager")


def test_a_magic_below_becomes_the_call_that_ipython_makes_of_it() -> None:
    made = replace_magic_line(lines("%%compile_explain\n%%time\nx = 1\n"))
    assert made[1].startswith("get_ipython().run_cell_magic('time', '', 'x = 1")


def test_cell_that_compiles_runs_as_it_stands() -> None:
    text = rewritten("x = 1\nx\n", uses_compile=True)
    assert re.fullmatch(r"__import__\(.*\)\.ipython\.magic\.begin\('-q', 'as it stands', '', False\)\nx = 1\nx", text)


def test_cell_that_compiles_nothing_becomes_one_function() -> None:
    text = rewritten("import a\ndef g(): pass\nx = g()\nfor i in x:\n    y = [k := j for j in i]\ny\n")
    assert "def _graphbreak_cell():\n    global i, k, x, y\n    x = g()\n" in text
    assert "    return y\n" in text
    assert text.index("import a") < text.index("def g") < text.index("def _graphbreak_cell")
    assert ".run_function('_graphbreak_cell')" in text
    assert text.endswith(".magic.value()")


@pytest.mark.parametrize(
    ("body", "plan"),
    [
        ("import torch\ndef f(): pass\n", "'nothing', ''"),
        ("", "'nothing', ''"),
        ("await f()\n", "'not compilable', 'it awaits at its top level'"),
        ("x = 1\nfrom os import *\n", "'not compilable', 'it imports *'"),
        ("x = 1\nyield x\n", "'not compilable', 'it returns or yields outside a function'"),
        ("async def f():\n    await g()\nx = f\n", "'compiled', ''"),
    ],
)
def test_plans(body: str, plan: str) -> None:
    assert f"begin('-q', {plan}, False)" in rewritten(body)


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
def test_use_of_compile_is_seen_in_the_code(code: str, uses: bool) -> None:
    assert mentions_compile(ast.parse(code), {"r": _Module("regex"), "model": object()}) is uses
