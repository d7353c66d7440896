"""Cells that were edited but not run, and patches, are tried as remedies."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import pytest

from jupyter_graphbreak.report.remedies import Remedy
from jupyter_graphbreak.results import Report
from tests.ipython.conftest import Kernel

STEP = """import torch
def step(x):
    y = x + 1
    if y.sum() > 0:
        y = y * 2
    return y
"""
BRANCH = "    if y.sum() > 0:\n        y = y * 2\n"
WHERE_LINE = "    y = torch.where(y.sum() > 0, y * 2, y)\n"
COMPILED_STEP = f"{STEP}step = torch.compile(step, backend='eager')\n"
CALL = "step(torch.ones(2)).tolist()"


def edit_request(*edits: tuple[str, str]) -> dict[str, Any]:
    return {"graphbreak": {"explain": "--try", "edited": edits}}


def own_remedies(report: Report) -> list[Remedy]:
    return [remedy for remedy in report.remedies or [] if remedy.family == "own"]


@pytest.mark.parametrize(
    "cell",
    [f"{COMPILED_STEP}{CALL}", pytest.param(f"%%compile_explain\n{COMPILED_STEP}{CALL}", marks=pytest.mark.exhaustive)],
)
def test_an_edited_cell_is_tried(kernel: Kernel, cell: str) -> None:
    kernel.run(cell, edit_request((cell, cell.replace(BRANCH, WHERE_LINE))))
    (own_remedy,) = own_remedies(kernel.report())
    assert (own_remedy.verdict, own_remedy.title) == ("works", "Your edit")
    assert [edit.new for edit in own_remedy.edits] == [WHERE_LINE.rstrip()]
    (result,) = [m["content"] for m in kernel.messages if m["msg_type"] == "execute_result"]
    assert result["data"]["text/plain"] == "[4.0, 4.0]"
    kernel.run(cell, edit_request((cell, cell.replace(BRANCH, "    y = y * 2\n"))))
    assert [remedy.verdict for remedy in own_remedies(kernel.report())] == ["another result"]
    kernel.run("print('where' in _ih[-2], 'where' in _ih[-3])")  # the edited cell never ran
    assert kernel.stdout() == "False False\n"


@pytest.mark.exhaustive
def test_an_edit_of_a_cell_that_is_one_function_is_tried(kernel: Kernel) -> None:
    cell = "import torch\nx = torch.ones(3) * 2\nif x.sum() > 0:\n    x = x + 1\nx.tolist()"
    new = cell.replace("if x.sum() > 0:\n    x = x + 1", "x = torch.where(x.sum() > 0, x + 1, x)")
    kernel.run(cell, edit_request((cell, new)))
    # The cell has no arguments, so there is only one input, and one branch never runs.
    assert [remedy.verdict for remedy in own_remedies(kernel.report())] == ["works on what ran"]


def test_an_edit_of_an_earlier_cell_is_tried(kernel: Kernel) -> None:
    count = kernel.run(COMPILED_STEP)["execution_count"]
    kernel.run(CALL, edit_request((COMPILED_STEP, COMPILED_STEP.replace(BRANCH, WHERE_LINE))))
    (own_remedy,) = own_remedies(kernel.report())
    names = {source.id: source.name for source in kernel.report().sources}
    assert own_remedy.verdict == "works"
    assert {names[edit.source] for edit in own_remedy.edits} == {f"Cell In[{count}]"}


@pytest.mark.exhaustive
def test_several_cells_are_one_edit(kernel: Kernel) -> None:
    helper = "import torch\ndef positive(y):\n    return bool(y.sum() > 0)"
    step = COMPILED_STEP.replace("y.sum() > 0", "positive(y)")
    kernel.run(helper)
    kernel.run(step)
    new = step.replace(BRANCH.replace("y.sum() > 0", "positive(y)"), WHERE_LINE.replace("y.sum() > 0", "positive(y)"))
    kernel.run(CALL, edit_request((helper, helper.replace("bool(y.sum() > 0)", "y.sum() > 0")), (step, new)))
    (own_remedy,) = own_remedies(kernel.report())
    assert (own_remedy.verdict, len({edit.source for edit in own_remedy.edits})) == ("works", 2)


@pytest.mark.exhaustive
def test_an_edit_that_cannot_be_judged_has_a_reason(kernel: Kernel) -> None:
    cell = f"{COMPILED_STEP}{CALL}"
    kernel.run(cell, edit_request((cell, cell.replace("torch.ones(2)", "torch.ones(3)"))))
    (own_remedy,) = own_remedies(kernel.report())
    assert own_remedy.verdict == "not tried"
    assert own_remedy.reason == "line 8 is outside of functions: run the cell to see the effect of changing it"
    kernel.run(cell, edit_request(("other = 1", "other = 2")))
    assert own_remedies(kernel.report()) == []
    assert "Your edit was not tried" in " ".join(note.message for note in kernel.report().diagnostics)


def test_a_patch_is_tried(kernel: Kernel, tmp_path: Path) -> None:
    other_break = "    int(y.sum().item()) if y.sum() > 9 else 0\n"
    cell = f"{COMPILED_STEP}{CALL}".replace("    return y", f"{other_break}    return y")
    count = kernel.run("1")["execution_count"] + 1
    path = tmp_path / "own.patch"
    cell_with_magic = f"%%compile_explain --patch {path}\n{cell}"
    name = f"Cell In[{count}]"
    new = cell_with_magic.replace(BRANCH, WHERE_LINE)
    patch = difflib.unified_diff(cell_with_magic.split("\n"), new.split("\n"), f"a/{name}", f"b/{name}", lineterm="")
    path.write_text("\n".join(patch) + "\n")
    kernel.run(cell_with_magic)
    assert [(remedy.verdict, remedy.title) for remedy in own_remedies(kernel.report())] == [
        ("works", "Your patch, own.patch")
    ]
    remedies = kernel.report().remedies or []
    assert {remedy.family for remedy in remedies if not remedy.person} == {"own"}
    # With --patch, only the patch is tried, so the manual step needs no reason why nothing else was.
    assert [remedy.reason for remedy in remedies if remedy.person] == [None]
    reply = kernel.run(f"%%compile_explain --patch {tmp_path / 'none.patch'}\n{cell}")
    assert reply["ename"] == "UsageError"
    assert "none.patch: " in reply["evalue"]
