"""Disabled functions stay disabled, whichever cell disabled them and however often cells are explained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from jupyter_graphbreak.report.schema import MIME_TYPE

DISABLED_FUNCTION = """
import functools, torch

def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

{of_function}
def quiet(x):
    return x.sin() + 1

class Layer:
    {of_method}
    def quiet(self, x):
        return x.sin() + 1

layer = Layer()

@torch.compiler.disable(recursive=False)
def other(x):
    return x.tan()
"""
CALLER = """
graphs = []

def counting(graph, inputs):
    graphs.append(sum(node.op.startswith("call") for node in graph.graph.nodes))
    return graph

@torch.compile(backend=counting)
def f(x):
    y = {callee}(x * 2)
    return y.cos()

f(torch.ones(3))
"""
DECORATORS = [
    "@torch.compiler.disable(recursive=False)",
    "@torch.compiler.disable(recursive=False, reason='a reason')",
    "@torch.compiler.disable",
    "@torch._dynamo.disable(recursive=False)",
    "@torch._dynamo.decorators.skip",
    "@logged\n@torch.compiler.disable(recursive=False)",
]


@pytest.fixture
def shell() -> Iterator[Any]:
    torch._dynamo.reset()
    InteractiveShell.clear_instance()
    shell: Any = InteractiveShell.instance()
    shell.display_pub = CapturingDisplayPublisher()
    shell.run_line_magic("load_ext", "jupyter_graphbreak")
    yield shell
    shell.run_line_magic("unload_ext", "jupyter_graphbreak")
    InteractiveShell.clear_instance()
    torch._dynamo.reset()


def run_and_count(shell: Any, code: str) -> list[int]:
    """Run a cell, and return the number of operations in each graph that it compiled."""
    shell.display_pub.outputs.clear()
    with capture_output(display=False):
        shell.run_cell(code, store_history=True).raise_error()
    return list(shell.user_ns.get("graphs", []))


def reported_operation_counts(shell: Any) -> list[int]:
    """Return the number of operations in each graph of the last report."""
    reports = [output["data"][MIME_TYPE] for output in shell.display_pub.outputs if MIME_TYPE in output["data"]]
    return [len(graph["ops"]) for graph in reports[-1]["graphs"]]


@pytest.mark.parametrize(
    ("decorator", "callee"),
    [
        *((decorator, "quiet") for decorator in DECORATORS),
        *((decorator, "layer.quiet") for decorator in DECORATORS[:2]),
    ],
)
def test_a_function_disabled_in_an_earlier_cell_stays_disabled(shell: Any, decorator: str, callee: str) -> None:
    run_and_count(shell, DISABLED_FUNCTION.format(of_function=decorator, of_method=decorator.replace("\n", "\n    ")))
    caller = CALLER.format(callee=callee)
    assert run_and_count(shell, caller) == [1, 1]
    for _ in range(2):
        assert run_and_count(shell, f"%%compile_explain\n{caller}") == [1, 1]
        assert reported_operation_counts(shell) == [1, 1]
    other = CALLER.format(callee="other")
    assert run_and_count(shell, f"%%compile_explain\n{other}") == [1, 1]
    assert run_and_count(shell, other) == [1, 1]
