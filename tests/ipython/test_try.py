"""With ``--try``, a cell runs as usual, and the report shows tried remedies with the line numbers of the cell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jupyter_graphbreak.report.remedies import WORKING, Remedy
from jupyter_graphbreak.results import Report
from tests.ipython.conftest import Kernel
from tests.support.sampling import sample_parameters

TRY = "%%compile_explain --try\n"
STEP = """import torch
def step(x):
    y = x + 1
    torch._dynamo.graph_break()
    print("in step")
    return y * 2
"""
COMPILED_STEP = f"{STEP}step = torch.compile(step, backend='eager')\n"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def working_remedies(report: Report) -> list[Remedy]:
    return [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING]


def has_remedies_for_all_breaks(report: Report) -> bool:
    return {b for remedy in working_remedies(report) for b in remedy.breaks} == {b.id for b in report.breaks} != set()


def apply_edits(cell: str, report: Report, remedy: Remedy) -> str:
    """Return a cell with the edits of a remedy applied, as in a front end."""
    kinds = {source.id: source.kind for source in report.sources}
    lines = cell.split("\n")
    for edit in sorted(remedy.edits, key=lambda edit: edit.first_line, reverse=True):
        assert kinds[edit.source] == "cell"
        assert "\n".join(lines[edit.first_line - 1 : edit.last_line]) == edit.old
        lines[edit.first_line - 1 : edit.last_line] = edit.new.split("\n") if edit.new else []
    return "\n".join(lines)


def outputs(kernel: Kernel) -> dict[str, Any]:
    """Return everything that the last cell showed except its report."""
    values = [m["content"]["data"]["text/plain"] for m in kernel.messages if m["msg_type"] == "execute_result"]
    errors = [m["content"] for m in kernel.messages if m["msg_type"] == "error"]
    tracebacks = [re.sub(r"In\[\d+\]|0x\w+", "", COLOURS.sub("", "\n".join(e["traceback"]))) for e in errors]
    displays = [bundle.get("text/plain") for bundle in kernel.bundles() if len(bundle) == 1]
    # A CUDA build of PyTorch prints once that there is no GPU, when Inductor looks for one.
    output = re.sub(r".*No CUDA runtime is found.*\n", "", kernel.stdout())
    return {"printed": output, "values": values, "errors": tracebacks, "displayed": displays}


CELLS = {
    "a plain cell": f"{STEP}step(torch.ones(2)).tolist()",
    "a cell that compiles": f"{COMPILED_STEP}step(torch.ones(2)).tolist()",
    "leading blank lines": f"\n\n{COMPILED_STEP}step(torch.ones(2)).tolist()",
    "indented": "\n".join(f"    {line}" for line in f"{COMPILED_STEP}step(torch.ones(2)).tolist()".split("\n")),
    "a magic inside": f"%precision 3\n{COMPILED_STEP}step(torch.ones(2)).tolist()",
    "a display": f"from IPython.display import display\n{COMPILED_STEP}display(7)\nstep(torch.ones(2)).tolist()",
    "a class": """import torch
class Net(torch.nn.Module):
    def forward(self, x):
        torch._dynamo.graph_break()
        if x.sum() > 0:
            x = x + 1
        return x * 2
torch.compile(Net(), backend="eager")(torch.ones(2)).tolist()""",
    "a break at the top": "import torch\nx = torch.ones(3)\nif x.sum() > 0:\n    x = x + 1\nx.tolist()",
}


@pytest.mark.parametrize("name", sample_parameters(CELLS, 5))
def test_the_cell_runs_as_without_trials_and_an_applied_remedy_works(kernel: Kernel, name: str) -> None:
    cell = f"%%compile_explain\n{CELLS[name]}"
    assert kernel.run(cell)["status"] == "ok"
    outputs_without_trials = outputs(kernel)
    assert kernel.report().remedies is None
    cell_with_trials = cell.replace("%%compile_explain", "%%compile_explain --try", 1)
    assert kernel.run(cell_with_trials)["status"] == "ok"
    report = kernel.report()
    assert outputs(kernel) == outputs_without_trials
    assert [note.message for note in report.diagnostics if note.level == "error"] == []
    assert has_remedies_for_all_breaks(report), [
        (r.title, r.verdict, r.reason, r.person) for r in report.remedies or []
    ]
    for remedy in [remedy for remedy in working_remedies(report) if remedy.edits][:2]:
        edited_cell = apply_edits(cell_with_trials, report, remedy)
        kernel.run(edited_cell.replace("%%compile_explain --try", "%%compile_explain", 1))
        assert outputs(kernel) == outputs_without_trials
        assert len(kernel.report().breaks) < len(report.breaks), edited_cell


def test_names_that_only_the_cell_assigns_do_not_prevent_trials(kernel: Kernel) -> None:
    """Copies of the cell also start without these names, and Dynamo reads back the stored values."""
    cell = "import torch\nfresh = torch.ones(3)\nif fresh.sum() > 0:\n    fresh = fresh + 1\nfresh.tolist()"
    kernel.run(f"{TRY}{cell}")
    report = kernel.report()
    assert has_remedies_for_all_breaks(report), [
        (r.title, r.verdict, r.reason, r.person) for r in report.remedies or []
    ]


def test_a_cell_raises_the_same_error_with_trials(kernel: Kernel) -> None:
    cell = f"{COMPILED_STEP}step(torch.ones(2))\nraise LookupError('after it')"
    reply = kernel.run(f"%%compile_explain\n{cell}")
    outputs_without_trials = outputs(kernel)
    reply = kernel.run(f"{TRY}{cell}")
    outputs_with_trials = outputs(kernel)
    outputs_with_trials["errors"] = [text.replace(" --try", "") for text in outputs_with_trials["errors"]]
    assert reply["ename"] == "LookupError"
    assert outputs_with_trials == outputs_without_trials
    assert has_remedies_for_all_breaks(kernel.report())


@pytest.mark.exhaustive
def test_remedies_are_found_below_a_different_magic(kernel: Kernel) -> None:
    kernel.run(f"%%capture captured\n%%compile_explain --try -o report\n{COMPILED_STEP}step(torch.ones(2))")
    assert kernel.bundles() == []
    kernel.run("print(captured.stdout.strip(), [r.verdict for r in report.remedies])")
    assert kernel.stdout().startswith("in step ['")


@pytest.mark.exhaustive
def test_the_line_magic_finds_remedies(kernel: Kernel) -> None:
    kernel.run(STEP)
    kernel.run("%compile_explain --try step(torch.ones(2))")
    report = kernel.report()
    assert kernel.stdout() == "in step\n"
    assert outputs(kernel)["values"] == ["tensor([4., 4.])"]
    assert has_remedies_for_all_breaks(report)


def test_trials_change_no_variable_of_the_notebook(kernel: Kernel) -> None:
    kernel.run("import torch\nhistory, total, model = [], 0, torch.nn.Linear(2, 2)")
    cell = """def count(x):
    global total
    total = len(history)
    history.append(total)
    torch._dynamo.graph_break()
    return model(x)
y = torch.compile(count, backend='eager')(torch.ones(1, 2))
names = sorted(globals())"""
    kernel.run(f"{TRY}{cell}")
    assert has_remedies_for_all_breaks(kernel.report())
    kernel.run(
        "(history, total, sorted(set(globals()) - set(names) - {'names'} - {n for n in globals() if n[0] == '_'}))"
    )
    assert outputs(kernel)["values"] == ["([0], 0, [])"]


MODULE = """import torch


def clip(x):
    if x.sum() > 3:
        x = x - 1
    return x
"""


def test_the_patch_of_a_module_is_applied_by_a_cell(kernel: Kernel, tmp_path: Path) -> None:
    """JupyterLab inserts such a cell. It works although IPython strips the spaces of empty lines in the patch."""
    (tmp_path / "clipping.py").write_text(MODULE)
    kernel.run(f"import sys, torch\nsys.path.insert(0, {str(tmp_path)!r})\nimport clipping")
    cell = "step = torch.compile(lambda x: clipping.clip(x * 2), backend='eager')\nstep(torch.ones(4)).tolist()"
    assert kernel.run(f"%%compile_explain --try\n{cell}")["status"] == "ok"
    patch = next(remedy.patch for remedy in working_remedies(kernel.report()) if remedy.patch)
    assert "\n \n" in patch
    inserted_cell = f"import jupyter_graphbreak\njupyter_graphbreak.apply_patch(r'''{patch}''')"
    assert kernel.run(inserted_cell)["status"] == "ok"
    kernel.run(f"%%compile_explain\n{cell}")
    assert kernel.report().breaks == []


INTERRUPT = """
from jupyter_graphbreak.experiments.remedies import search
_search, _lines = search.Search._search_break, []
def _interrupt_second(self, break_):
    if _lines:
        raise KeyboardInterrupt
    return _record_line(self, break_)
def _record_line(self, break_):
    _lines.append(break_.location.line)
    return _search(self, break_)
search.Search._search_break = _interrupt_second
"""
BRANCHES = """import torch
@torch.compile(backend="eager")
def f(x):
    if x.sum() > 3:
        x = x + 1
    else:
        x = x - 1
    if x.max() > 5:
        x = x * 2
    return x
f(torch.ones(4)).tolist()"""


def test_interrupted_trials_are_reported_and_continue_with_the_remaining_breaks(kernel: Kernel) -> None:
    kernel.run(INTERRUPT)
    kernel.run(f"{TRY}{BRANCHES}", {"cellId": "interrupted"})
    report = kernel.report()
    assert [remedy.breaks for remedy in working_remedies(report)] == [["b1"]]
    assert report.status == "ok"
    text = " ".join(report.to_text().split())
    assert "that removes break 1. The trials were interrupted; nothing was tried for break 2." in text
    assert "do: " in text.partition("x.max() > 5")[2]
    assert "Decide whether" not in text  # as long as changes are left to try
    kernel.run("search.Search._search_break = _record_line\n_lines.clear()")
    kernel.run(f"{TRY}{BRANCHES}", {"cellId": "interrupted"})
    assert has_remedies_for_all_breaks(kernel.report())
    kernel.run("print(_lines)")
    assert kernel.stdout() == "[9, 5]\n"  # the untried break comes first
