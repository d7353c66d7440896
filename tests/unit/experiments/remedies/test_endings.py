"""The end of a compiled function runs after the call."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from jupyter_graphbreak.experiments.families.proposal import Problem
from jupyter_graphbreak.report.location import Location, Source
from jupyter_graphbreak.report.schema import Frame, Graph, GraphLine
from tests.support.break_problems import location_of, problem, proposals_of


def ending_of(
    body: str, code: str, compiled_lines: list[int], *, parameters: str = "x", outcome: str = "resumed"
) -> str:
    """Return the new text of a compiled function that breaks at the given code; empty if its end does not move."""
    text = f"import torch\n@torch.compile\ndef f({parameters}):\n" + "".join(
        f"    {line}\n" for line in body.split("\n")
    )
    base = problem(text, code, "GB0109", entry="def f(")
    graphs = [Graph("A", "f", "0/0", lines=[GraphLine("s1", line, 1) for line in compiled_lines])]
    break_ = replace(base.break_, outcome=outcome)
    proposals = proposals_of("ending", Problem(replace(base.report, graphs=graphs), break_, base.texts))
    assert all(proposal.title == "Run the end of f after the call" for proposal in proposals)
    assert all(proposal.compiles_inner_function for proposal in proposals)
    return proposals[0].texts["s1"] if proposals else ""


def split(inner: str, outer: str, parameters: str = "x") -> str:
    functions = [
        (f"@torch.compile\ndef _f_compiled({parameters}):", inner),
        (f"def f({parameters}):", outer),
    ]
    return "import torch\n" + "\n\n\n".join(
        "\n".join([header, *(f"    {line}" for line in body.split("\n"))]) for header, body in functions
    )


def test_statements_without_operations_run_after_the_call() -> None:
    body = "y = x * 2\nnames = ['a', 'b']\nreturn [names[i] for i in y.tolist()]"
    after = "y = _f_compiled(x)\nnames = ['a', 'b']\nreturn [names[i] for i in y.tolist()]"
    assert ending_of(body, "y.tolist()", [4]) == split("y = x * 2\nreturn y", after) + "\n"


def test_the_graph_computes_the_tensors_that_a_statement_converts() -> None:
    body = "y = x * 2\nreturn len(y), y.max(-1)[0].tolist(), float((y + 1).sum())"
    inner = "y = x * 2\nreturn y, y.max(-1)[0], (y + 1).sum()"
    after = "y, value, value_2 = _f_compiled(x)\nreturn len(y), value.tolist(), float(value_2)"
    assert ending_of(body, "y.max(-1)[0].tolist()", [4, 5]) == split(inner, after) + "\n"


def test_operands_that_python_may_skip_stay_after_the_call() -> None:
    body = "y = x * 2\nreturn (y + 1).tolist() if float(y.sum()) else (y / y).tolist()"
    inner = "y = x * 2\nreturn y, y.sum()"
    after = "y, value = _f_compiled(x)\nreturn (y + 1).tolist() if float(value) else (y / y).tolist()"
    assert ending_of(body, "float(y.sum())", [4, 5]) == split(inner, after) + "\n"


def test_the_end_needs_the_names_that_it_changes_or_deletes() -> None:
    head, end = "y = x * 2\nn = 0\nbig = y + 1", "for v in y.tolist():\n    n += v > 9\ndel big"
    changed_text = ending_of(f"{head}\n{end}", "y.tolist()", [4, 6])
    (names,) = re.findall(r"return (.*)", changed_text)
    assert sorted(names.split(", ")) == ["big", "n", "y"]
    assert changed_text == split(f"{head}\nreturn {names}", f"{names} = _f_compiled(x)\n{end}") + "\n"


def test_a_loop_that_keeps_the_function_uncompiled_runs_after_the_call() -> None:
    loop = "for b in boxes:\n    if b > 1:\n        results.append(b.item())\nreturn results"
    body = f"boxes = x.sin()\nresults = []\n{loop}"
    expected = split("boxes = x.sin()\nresults = []\nreturn boxes, results", f"boxes, results = _f_compiled(x)\n{loop}")
    assert ending_of(body, "b > 1", [], outcome="skipped") == f"{expected}\n"
    for call in ("torch.sin(b)", "self.head(b)", "head(b)"):
        assert not ending_of(body.replace("b.item()", call), "b > 1", [], outcome="skipped"), call
    assert not ending_of(body.replace("b.item()", "b @ b"), "b > 1", [], outcome="skipped")


@pytest.mark.parametrize(
    ("body", "compiled_lines"),
    [
        ("y = x * 2\nz = y.tolist()\nreturn x + len(z)", [4, 6]),  # a graph follows
        ("return (x * 2).tolist(), y.tolist()", [4]),  # nothing comes before
        ("if x is None:\n    return 1\ny = x * 2\nreturn y.tolist()", [6]),  # the function may end before
        ("if flag:\n    y = x * 2\nreturn y.tolist()", [5]),  # a name may be unbound
        ("y = x * 2\ndef g():\n    return y\nz = g() + 1\nreturn y.tolist()", [4, 7]),
        ("global y\ny = x * 2\nreturn y.tolist()", [5]),
        ('y = x * 2\nprint("""\n    a""")\nreturn y.tolist()', [4]),  # moving would change the string
    ],
)
def test_an_end_that_cannot_be_separated_stays(body: str, compiled_lines: list[int]) -> None:
    assert not ending_of(body, "y.tolist()", compiled_lines)


def test_an_end_that_may_call_compiled_functions_stays() -> None:
    text = "import torch\n@torch.compile\ndef f(x):\n    y = x * 2\n    return [g(i) for i in y.tolist()]\n"
    base = problem(text, "y.tolist()", "GB0109", entry="def f(")
    graphs = [Graph("A", "f", "0/0", lines=[GraphLine("s1", 4, 1)])]
    called = Frame("1/0", "g", location_of(text, "g(i)"), "call", "compiled", caller="0/0")
    for frames, count in ((base.report.frames, 1), ([*base.report.frames, called], 0)):
        report = replace(base.report, graphs=graphs, frames=frames)
        assert len(proposals_of("ending", Problem(report, base.break_, base.texts))) == count


@pytest.mark.parametrize("decorator", ["@torch.no_grad()", "@torch.inference_mode()", "@torch.no_grad"])
def test_the_context_of_a_decorated_function_also_covers_its_end(decorator: str) -> None:
    """PyTorch calls a decorated function through wrappers of its own."""
    text = f"import torch\n{decorator}\ndef f(x):\n    y = x * 2\n    return y.tolist()\n"
    base = problem(text, "y.tolist()", "GB0109", entry="def f(")
    wrapper = Frame("0/0", "inner", Location("s2", 69, 69), "entry", "compiled")
    frames = [wrapper, replace(base.report.frames[0], id="1/0", role="call", caller="0/0")]
    sources = [*base.report.sources, Source("s2", "external_utils.py", "library", "torch/_dynamo/external_utils.py")]
    graphs = [Graph("A", "f", "1/0", lines=[GraphLine("s1", 4, 1)])]
    report = replace(base.report, frames=frames, sources=sources, graphs=graphs)
    (proposal,) = proposals_of("ending", Problem(report, base.break_, base.texts))
    functions = [f"@torch.compile\n{decorator}\ndef _f_compiled(x):\n    y = x * 2\n    return y"]
    functions.append(f"{decorator}\ndef f(x):\n    y = _f_compiled(x)\n    return y.tolist()\n")
    assert proposal.texts["s1"] == "import torch\n" + "\n\n\n".join(functions)
