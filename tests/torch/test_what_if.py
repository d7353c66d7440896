"""The claims of a report about stricter settings agree with runs under these settings."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import textwrap
import warnings
from typing import TYPE_CHECKING

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.views.words.permission import stricter_setting_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jupyter_graphbreak.results import Report

PLAIN = 'torch.compile(backend="eager")'
STRICT = 'lambda f: torch._dynamo.error_on_graph_break(True)(torch.compile(f, backend="eager"))'
FULLGRAPH = 'torch.compile(backend="eager", fullgraph=True)'
HEAD = """\
import copy, itertools, logging, os, random, threading, time, warnings
import numpy as np
import torch
logger = logging.getLogger(__name__)
lstm = torch.nn.LSTM(3, 3)
lock = threading.Lock()
weight = torch.nn.Parameter(torch.ones(3))
weight.grad = torch.ones(3)
optimizer = torch.optim.SGD([weight], lr=0.1)
class Context:
    def __enter__(self):
        return self
    def __exit__(self, *_):
        return False
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print("forward")
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 2
@torch.compiler.disable
def disabled(x):
    return x + 1
def break_and_add(x):
    torch._dynamo.graph_break()
    return x + 1
def scale_by_item(x):
    return x * x.sum().item()
def numbers(x):
    yield x + 1
    torch._dynamo.graph_break()
    yield x + 2
"""
# Function bodies, in which x is a tensor of three ones. Each function sets y to x + 1 first, and returns y at the end.
BODIES = {
    "nothing": "pass",
    "branch": "if y.sum() > 0: y = y - 1",
    "loop on data": "while y.sum() < 100: y = y * 2",
    "assert": "assert y.sum() > 0, f'sum {y.sum()}'",
    "item": "y = y * y.sum().item()",
    "int()": "y = y * int(y.sum())",
    "item in a loop": "for _ in range(2): y = y * y.sum().item()",
    "item in a call": "y = scale_by_item(y)",
    "item and a branch on it": "n = y.sum().item()\nif n > 3: y = y - 1",
    "item as an index": "n = int(y.sum().item())\ny = y + [0, 1, 2, 3, 4, 5, 6][n]",
    "item and its text": "y = y + len(str(y.sum().item()))",
    "item, then a break": "y = y * y.sum().item()\ntorch._dynamo.graph_break()",
    "item in a loop, then a break": "for _ in range(2): y = y * y.sum().item()\nprint('after')",
    "item where breaks are allowed": "with torch._dynamo.error_on_graph_break(False): y = y * y.sum().item()",
    "tolist": "y = y + y.long().tolist()[0]",
    "equal": "y = y + 1 if torch.equal(x, y) else y",
    "mask": "y = y[y > 0].reshape(-1, 1)",
    "masked_select": "y = torch.masked_select(y, y > 0)",
    "nonzero": "y = y[y.nonzero()].sum()",
    "unique, then a branch": "z = torch.unique(y)\nif z.sum() > 0: y = y + 1",
    "print": "print('here')",
    "item, then print": "n = y.sum().item()\nprint(n)",
    "print, then item": "print('here')\ny = y * y.sum().item()",
    "log": "logger.warning('sum %s', y)",
    "warning": "warnings.warn('here')",
    "time": "y = y + time.time()",
    "random": "y = y + random.choice([1, 2])",
    "numpy's random numbers": "y = y + np.random.rand()",
    "disabled": "y = disabled(y)",
    "break": "torch._dynamo.graph_break()",
    "break that is allowed": "with torch._dynamo.error_on_graph_break(False): torch._dynamo.graph_break()",
    "break in a loop": "for _ in range(2): y = break_and_add(y)",
    "break in try": "try:\n    torch._dynamo.graph_break()\nexcept ValueError:\n    y = y + 1",
    "break in with": "with torch.no_grad(): torch._dynamo.graph_break()",
    "break in a context of one's own": "with Context(): torch._dynamo.graph_break()",
    "break in a call": "y = break_and_add(y)",
    "break in a resume function": "torch._dynamo.graph_break()\ny = y + 1\nprint('again')",
    "skip_frame": "torch._dynamo.skip_frame()",
    "generator": "y = sum(numbers(y))",
    "context": "with torch.backends.cudnn.flags(enabled=False): y = y + 1",
    "lock": "with lock: y = y + 1",
    "deepcopy": "y = y + copy.deepcopy(y)",
    "file": "open(os.devnull).close()",
    "builtin": "y = y + hash(y)",
    "tensor as a key": "y = y + {y: 1}[y]",
    "set of tensors": "y = y + len({x, y})",
    "groups by a tensor": "for _ in itertools.groupby([1, 2], key=lambda n: y.sum().item() > n): y = y + 1",
    "autograd.Function": "y = Double.apply(y)",
    "LSTM": "y = lstm(y[None])[0]",
    "backward": "(weight * y).sum().backward()",
    "requires_grad_": "y.requires_grad_()",
    "optimizer": "optimizer.step()",
}
NESTED_SCOPES = [
    "item", "item in a call", "mask", "break in a call", "break in a loop", "generator", "item, then a break",
    "break in a resume function", "break in try",
]  # fmt: skip
CASES = [(name, False) for name in BODIES] + [(name, True) for name in NESTED_SCOPES]


def run_program(folder: Path, body: str, entry: str) -> tuple[Report, BaseException | None]:
    """Run a function that the decorator ``entry`` compiles, and return the report and the exception."""
    lines = ["@entry", "def run(x):", "    y = x + 1", textwrap.indent(body, "    "), "    return y"]
    path = folder / "program.py"
    path.write_text(f"{HEAD}entry = {entry}\n" + "\n".join(lines) + "\n")
    name = f"what_if_{abs(hash((body, entry)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    torch._dynamo.reset()
    program_error = None
    with pytest.MonkeyPatch.context() as patch, ignore_warnings(), jupyter_graphbreak.capture() as run:
        patch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        try:
            module.run(torch.ones(3))
        except Exception as error:  # noqa: BLE001 - Dynamo may raise anything
            program_error = error
    return run.report, program_error


@contextlib.contextmanager
def ignore_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def lines_of(report: Report, outcome: str | None = None) -> dict[str, int]:
    breaks = [b for b in report.breaks if b.location is not None and (outcome is None or b.outcome == outcome)]
    return {b.id: b.location.line for b in breaks if b.location is not None}


@pytest.mark.parametrize(("name", "is_nested"), CASES)
def test_claims_about_stricter_settings_are_true(name: str, *, is_nested: bool, tmp_path: Path) -> None:
    with torch._dynamo.config.patch(nested_graph_breaks=is_nested):
        report, program_error = run_program(tmp_path, BODIES[name], PLAIN)
        strict_report, strict_error = run_program(tmp_path, BODIES[name], STRICT)
        full_report, full_error = run_program(tmp_path, BODIES[name], FULLGRAPH)
    if torch.__version__ < "2.10" and (name, is_nested) == ("generator", True):
        assert isinstance(program_error, AssertionError)  # an internal Dynamo error, which that release cannot avoid
        assert [(b.gb_type, b.outcome) for b in report.breaks[1:]] == [("AssertionError", "error")]
        return
    assert program_error is None
    lines, claims = lines_of(report), report.what_if
    claimed_lines = [lines[ident] for ident in claims.error_on_graph_break]
    assert list(lines_of(strict_report, "error").values()) == claimed_lines[:1]
    assert (strict_error is not None) == bool(claimed_lines)
    if claims.captured:  # an error occurs at or before the claimed break, if there is one
        assert full_error is not None or claims.fullgraph is None
        return
    assert (full_error is not None) == (claims.fullgraph is not None)
    if claims.fullgraph is not None and name != "requires_grad_":  # raised when the function returns
        assert lines[claims.fullgraph] in lines_of(full_report, "error").values()


@pytest.mark.parametrize("name", ["item", "int()", "item in a loop", "item in a call", "tolist", "mask", "nonzero"])
def test_fullgraph_captures_what_is_claimed(name: str, tmp_path: Path) -> None:
    report, _ = run_program(tmp_path, BODIES[name], PLAIN)
    full_report, error = run_program(tmp_path, BODIES[name], FULLGRAPH)
    if torch.__version__ < "2.10" and name == "tolist":  # captured under any setting
        assert (report.breaks, error, len(report.graphs)) == ([], None, 1)
        return
    first = report.breaks[0].id
    if torch.__version__ < "2.10":  # in these releases, fullgraph=True does not imply the settings that capture values
        assert (report.what_if.captured, report.what_if.fullgraph) == ([], first)
        assert error is not None
        assert [parts[0] for parts in stricter_setting_sentences(report)][
            -1
        ] == "With fullgraph=True, the run would end with an error at"
        return
    assert (report.what_if.captured, report.what_if.fullgraph) == ([first], None)
    assert error is None
    assert len(full_report.graphs) == 1
    assert [parts[0] for parts in stricter_setting_sentences(report)][
        -1
    ] == "With fullgraph=True, PyTorch would try to capture"


def test_a_generator_function_is_not_an_error_under_a_scope() -> None:
    def squares(x: torch.Tensor) -> Iterator[torch.Tensor]:
        yield x * x

    torch._dynamo.reset()
    with jupyter_graphbreak.capture() as run:
        next(torch.compile(squares, backend="eager")(torch.ones(3)))
    assert run.report.what_if.error_on_graph_break == []
    assert run.report.what_if.fullgraph == run.report.breaks[0].id
    strict_squares = torch._dynamo.error_on_graph_break(True)(torch.compile(squares, backend="eager"))
    next(strict_squares(torch.ones(3)))  # raises nothing
