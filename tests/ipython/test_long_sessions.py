"""Many runs in one kernel do not accumulate reports or widgets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_graphbreak.report.schema import MIME_TYPE
from jupyter_graphbreak.views.html.bundle import WIDGET_VIEW
from tests.ipython.conftest import Kernel

CELL = """%%compile_explain
import torch
@torch.compile(backend="eager")
def f(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2
f(torch.ones(2))
"""
COUNT_COMMS_AND_REPORTS = """import gc, comm
from jupyter_graphbreak import Report
gc.collect()
reports = sum(type(thing) is Report for thing in gc.get_objects())
print(len(comm.get_comm_manager().comms), reports)
"""
#: The maximum number of cells whose output is live (a widget and its layout); users have a higher limit.
MAX_LIVE = 10
LOADING_CELL = f"""from jupyter_graphbreak.ipython import output
output._MAX_LIVE_OUTPUTS = {MAX_LIVE}
%load_ext jupyter_graphbreak"""


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = Kernel(LOADING_CELL)
    yield kernel
    kernel.stop()


def count_comms_and_reports(kernel: Kernel) -> tuple[int, int]:
    kernel.run(COUNT_COMMS_AND_REPORTS)
    comms, reports = map(int, kernel.stdout().split())
    return comms, reports


def test_running_one_cell_again_leaves_one_widget(kernel: Kernel) -> None:
    for _ in range(5):
        kernel.run(CELL, {"cellId": "one"})
    comms, reports = count_comms_and_reports(kernel)
    assert comms <= 2
    assert reports <= 3


def test_the_oldest_reports_of_many_cells_become_static(kernel: Kernel) -> None:
    for number in range(MAX_LIVE + 5):
        kernel.run(CELL, {"cellId": f"cell {number}"})
    first, *_, last = kernel.bundles()  # the oldest live cell, and the cell that ran
    assert {"text/html", MIME_TYPE} < set(first)
    assert WIDGET_VIEW not in first
    assert WIDGET_VIEW in last
    comms, _ = count_comms_and_reports(kernel)
    assert comms <= 2 * MAX_LIVE


@pytest.mark.exhaustive
def test_a_very_long_line_is_not_stored_repeatedly(kernel: Kernel) -> None:
    kernel.run(f"{CELL}text = {'x' * 200_000!r}; f(torch.ones(3)); torch._dynamo.graph_break()")
    report = kernel.report()
    assert len(report.to_json()) < 700_000
