"""A function and the ``torch.compile`` call for it are in different cells: a remedy that works changes both."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.report.remedies import WORKING, Remedy
from jupyter_graphbreak.results import Report
from tests.ipython.conftest import Kernel
from tests.support.sampling import sample_parameters

FUNCTION = """import torch
def step(x):
    y = x * 2
    print("sum", y.sum().item())
    return y + 1"""
MODULE = """import torch
class Net(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        print("sum", y.sum().item())
        return y + 1"""
CALL = "compiled(torch.ones(3)).tolist()"
PROGRAMS = {
    "a function": [FUNCTION, "compiled = torch.compile(step, backend='eager', dynamic=True)", CALL],
    "a class": [MODULE, "compiled = torch.compile(Net(), backend='eager')", CALL],
    "an object": [MODULE, "net = Net()", "compiled = torch.compile(net, backend='eager')", CALL],
    "with its call": [FUNCTION, f"compiled = torch.compile(step, backend='eager')\n{CALL}"],
}


def apply_remedy(cells: list[str], report: Report, remedy: Remedy) -> list[str]:
    """Return the cells with the edits of a remedy applied."""
    texts = {source.id: source.segments[0].text for source in report.sources if source.kind == "cell"}
    edited_cells = list(cells)
    for source in {edit.source for edit in remedy.edits}:
        lines = texts[source].split("\n")
        for edit in sorted(remedy.edits, key=lambda edit: edit.first_line, reverse=True):
            if edit.source == source:
                assert "\n".join(lines[edit.first_line - 1 : edit.last_line]) == edit.old
                lines[edit.first_line - 1 : edit.last_line] = edit.new.split("\n") if edit.new else []
        edited_cells[cells.index(texts[source])] = "\n".join(lines)
    return edited_cells


@pytest.mark.parametrize("name", sample_parameters(PROGRAMS, 4))
def test_an_applied_remedy_works(kernel: Kernel, name: str) -> None:
    # Other tests compile in the same kernel, so names must differ.
    renamed_cells = [
        cell.replace("step", f"step_{len(name)}").replace("Net", f"Net{len(name)}") for cell in PROGRAMS[name]
    ]
    cells = [*renamed_cells[:-1], f"%%compile_explain --try\n{renamed_cells[-1]}"]
    for cell in cells:
        assert kernel.run(cell)["status"] == "ok"
    report = kernel.report()
    working_remedies = [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING and remedy.edits]
    assert any("after the call" in remedy.title for remedy in working_remedies), [
        (remedy.title, remedy.verdict, remedy.reason) for remedy in report.remedies or []
    ]
    for remedy in working_remedies:
        changed_cells = apply_remedy(cells, report, remedy)
        assert "backend='eager'" in "\n".join(changed_cells)
        assert ("dynamic=True" in "\n".join(changed_cells)) == ("dynamic=True" in "\n".join(cells))
        for cell in changed_cells:
            assert kernel.run(cell.replace("%%compile_explain --try", "%%compile_explain"))["status"] == "ok"
        assert "sum 6.0\n" in kernel.stdout()
        report_after = kernel.report()
        removed_code = {b.location.code for b in report.breaks if b.id in remedy.breaks and b.location is not None}
        assert not removed_code & {b.location.code for b in report_after.breaks if b.location is not None}, (
            changed_cells
        )
        assert report_after.summary.graphs >= 1, changed_cells


def test_reports_of_the_python_api_name_cells(kernel: Kernel) -> None:
    """The magic explains none of these cells."""
    kernel.run("import torch, jupyter_graphbreak\n" + FUNCTION.replace("step", "plain_step"))
    kernel.run(
        "with jupyter_graphbreak.capture() as run:\n"
        "    torch.compile(plain_step, backend='eager')(torch.ones(3))\n"
        "call = plain_step, torch.ones(3)\n"
        "reports = [run.report, jupyter_graphbreak.explain(*call), jupyter_graphbreak.check(*call)]\n"
        "breaks = [report.breaks[0].location for report in reports]\n"
        "sources = [{source.id: source for source in report.sources} for report in reports]\n"
        "for place, by_id in zip(breaks, sources):\n"
        "    print(by_id[place.source].kind, by_id[place.source].name[:8], place.line, place.code)"
    )
    assert kernel.stdout().splitlines()[-3:] == ["cell Cell In[ 5 y.sum().item()"] * 3


@pytest.mark.exhaustive
def test_options_that_are_names_of_a_different_cell_are_not_moved(kernel: Kernel) -> None:
    kernel.run(FUNCTION.replace("step", "named_step"))
    kernel.run("chosen = 'eager'\ncompiled = torch.compile(named_step, backend=chosen)")
    kernel.run(f"%%compile_explain --try\n{CALL}")
    titles = [remedy.title for remedy in kernel.report().remedies or [] if remedy.verdict in WORKING]
    assert not any("after the call" in title for title in titles), titles
