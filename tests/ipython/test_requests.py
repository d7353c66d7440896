"""A front end requests a report for a cell, which runs unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from jupyter_graphbreak import answer_requests
from jupyter_graphbreak.report.schema import MIME_TYPE
from jupyter_graphbreak.results import Report
from tests.ipython.conftest import Kernel

REQUEST = {"graphbreak": {"explain": ""}}
REQUEST_FOR_ALL = {"graphbreak": {"explain": "", "only_torch": True}}
STEP = """import torch
@torch.compile(backend="eager")
def f(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2
"""
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def traceback_of(kernel: Kernel) -> str:
    (error,) = [m["content"] for m in kernel.messages if m["msg_type"] == "error"]
    text = COLOURS.sub("", "\n".join(error["traceback"]))
    return re.sub(r"In\[\d+\]|0x\w+", "", text)


def break_locations(report: Report) -> list[tuple[str, int, int | None]]:
    names = {source.id: source.name for source in report.sources}
    locations = [break_.location for break_ in report.breaks]
    return [(names[location.source], location.line, location.column) for location in locations if location is not None]


def test_breaks_have_lines_and_columns_of_the_cell(kernel: Kernel) -> None:
    reply = kernel.run(f"{STEP}f(torch.ones(2)).tolist()", REQUEST)
    report = kernel.report()
    assert break_locations(report) == [(f"Cell In[{reply['execution_count']}]", 5, 4)]
    assert report.sources[0].segments[0].text == f"{STEP}f(torch.ones(2)).tolist()"
    (result,) = [m["content"] for m in kernel.messages if m["msg_type"] == "execute_result"]
    assert result["data"]["text/plain"] == "[4.0, 4.0]"
    assert result["execution_count"] == reply["execution_count"]


@pytest.mark.parametrize("lines_above", ["\n\n", "    \n", "# what this is for\n\n", '"""What this is for."""\n'])
def test_lines_are_counted_from_the_top_of_the_editor(kernel: Kernel, lines_above: str) -> None:
    kernel.run(f"{lines_above}{STEP}f(torch.ones(2))", REQUEST)
    ((_, line, column),) = break_locations(kernel.report())
    assert (line, column) == (5 + lines_above.count("\n"), 4)


def test_an_indented_cell_has_its_own_columns(kernel: Kernel) -> None:
    kernel.run("".join(f"  {line}\n" for line in [*STEP.splitlines(), "f(torch.ones(2))"]), REQUEST)
    ((_, line, column),) = break_locations(kernel.report())
    assert (line, column) == (5, 6)


@pytest.mark.parametrize("cell", [f"{STEP}f(torch.ones(2))\n1 / 0", "x = 1\ny = x / 0\nz = 3", "def g(:\n  pass"])
def test_an_error_looks_the_same_as_in_a_plain_run(kernel: Kernel, cell: str) -> None:
    kernel.run(cell)
    plain_traceback = traceback_of(kernel)
    reply = kernel.run(cell, REQUEST)
    assert traceback_of(kernel) == plain_traceback
    assert reply["status"] == "error"
    if "def g(:" not in cell:
        assert kernel.report().status == "error"


def test_history_and_count_are_the_same_as_in_a_plain_run(kernel: Kernel) -> None:
    first = kernel.run(f"{STEP}f(torch.ones(2)).tolist()", REQUEST)["execution_count"]
    second = kernel.run("print(repr(_i), _, _ih[-2] == _i)")["execution_count"]
    assert second == first + 1
    assert kernel.stdout() == f"{f'{STEP}f(torch.ones(2)).tolist()'!r} [4.0, 4.0] True\n"


def test_code_has_the_file_name_that_a_debugger_expects(kernel: Kernel) -> None:
    cell = "def g(): pass\nprint(g.__code__.co_filename, g.__code__.co_firstlineno)"
    kernel.run(cell)
    plain_output = kernel.stdout()
    kernel.run(cell, REQUEST)
    assert kernel.stdout() == plain_output


def test_a_request_does_not_affect_the_next_cell(kernel: Kernel) -> None:
    for cell in (f"{STEP}f(torch.ones(2))", "1 / 0", "def g(:"):
        kernel.run(cell, REQUEST)
        kernel.run(f"{STEP}f(torch.ones(2))")
        assert kernel.bundles() == []
    kernel.run("print([name for name in dir() if 'graphbreak' in name])")
    assert kernel.stdout() == "[]\n"


def test_await_works_and_assigned_names_stay(kernel: Kernel) -> None:
    reply = kernel.run("import asyncio\nasync def g():\n    return 3\nvalue = await g()", REQUEST)
    assert reply["status"] == "ok"
    kernel.run("print(value)")
    assert kernel.stdout() == "3\n"


def test_a_request_can_contain_options_of_the_magic(kernel: Kernel) -> None:
    kernel.run(f"{STEP}f(torch.ones(2))", {"graphbreak": {"explain": "--device cpu -o stored"}})
    kernel.run("print(stored.summary.breaks, stored.device.requested)")
    assert kernel.stdout() == "1 cpu\n"
    reply = kernel.run("ran = True", {"graphbreak": {"explain": "--backend egaer"}})
    assert (reply["ename"], reply["status"]) == ("UsageError", "error")


def test_a_cell_with_the_magic_runs_unchanged(kernel: Kernel) -> None:
    reply = kernel.run(f"%%compile_explain -o own\n{STEP}f(torch.ones(2))", REQUEST)
    assert break_locations(kernel.report()) == [(f"Cell In[{reply['execution_count']}]", 6, 4)]
    kernel.run("print(own.summary.breaks)")
    assert kernel.stdout() == "1\n"


def test_requested_options_are_added_to_those_of_the_magic(kernel: Kernel) -> None:
    kernel.run(f"%%compile_explain -o own\n{STEP}f(torch.ones(2))", {"graphbreak": {"explain": "--device cpu"}})
    kernel.run("print(own.summary.breaks, own.device.requested)")
    assert kernel.stdout() == "1 cpu\n"


def test_a_cell_magic_runs_and_its_python_is_explained(kernel: Kernel) -> None:
    kernel.run(f"%%capture shown\n{STEP}print(f(torch.ones(2)).tolist())", REQUEST)
    report = kernel.report()
    assert [(line, column) for _, line, column in break_locations(report)] == [(6, 4)]
    kernel.run("print(shown.stdout, end='')")
    assert kernel.stdout() == "[4.0, 4.0]\n"
    kernel.run("%%bash\necho from the shell", REQUEST)
    assert kernel.stdout() == "from the shell\n"
    report = kernel.report()
    assert [note.message for note in report.diagnostics] == [
        "%%bash runs the cell's code: only the modules that it calls in this process were compiled."
    ]


@pytest.mark.parametrize("cell", ["import torch\ndef g(): pass", "%load_ext jupyter_graphbreak", "!true", "# nothing"])
def test_explain_all_runs_cells_with_nothing_to_compile_unchanged(kernel: Kernel, cell: str) -> None:
    kernel.run(cell, REQUEST_FOR_ALL)
    assert kernel.bundles() == []
    kernel.run(cell, REQUEST)
    (note,) = kernel.report().diagnostics
    assert "nothing to compile" in note.message


@pytest.mark.parametrize(
    "cell",
    [
        "import json, random\nprint(json.dumps(random.random()))",
        "shape = torch.ones(2).shape if False else (2, 3)\nprint(shape)",
        "try:\n    print('a')\nexcept ValueError:\n    pass",
        "for i in range(3):\n    print(i)",
        "1 / 0",
    ],
)
def test_explain_all_has_no_report_for_cells_without_tensor_operations(kernel: Kernel, cell: str) -> None:
    kernel.run("import torch, time\nx = torch.ones(2)")
    kernel.run(cell, REQUEST_FOR_ALL)
    assert kernel.bundles() == []
    kernel.run(cell, REQUEST)
    assert kernel.report().torch is not None


@pytest.mark.parametrize(
    ("cell", "breaks", "ops"),
    [
        ("y = x + 1", 0, 1),
        ("x.tolist()", 1, 0),
        ("for i in range(2):\n    y = x + i\n    time.sleep(0)", 0, 0),
        ("try:\n    y = torch.nn.Linear(2, 2)(x)\nexcept ValueError:\n    pass", 0, 1),
        ("try:\n    y = x + 1\nexcept ValueError:\n    pass", 0, 0),
        ("torch.compile(lambda: time.sleep(0), backend='eager')()", 1, 0),
    ],
)
def test_explain_all_explains_cells_with_tensors(kernel: Kernel, cell: str, breaks: int, ops: int) -> None:
    kernel.run("import torch, time\nx = torch.ones(2)")
    kernel.run(cell, REQUEST_FOR_ALL)
    summary = kernel.report().summary
    assert (summary.breaks, summary.ops) == (breaks, ops)


@pytest.mark.exhaustive
def test_explain_all_shows_that_a_long_cell_runs(kernel: Kernel) -> None:
    kernel.run("import torch, time\nx = torch.ones(2)")
    kernel.run("y = torch.nn.Linear(2, 2)(x)\ntime.sleep(2)", REQUEST_FOR_ALL)
    first, *_, last = [m["msg_type"] for m in kernel.messages if "display" in m["msg_type"]]
    assert (first, last) == ("display_data", "update_display_data")
    assert WIDGET_VIEW in kernel.bundles()[0]
    kernel.run("y = x + 1", REQUEST_FOR_ALL)
    assert WIDGET_VIEW in kernel.bundles()[-1]


def test_explain_all_explains_cells_that_compile(kernel: Kernel) -> None:
    kernel.run(f"{STEP}f(torch.ones(2))", REQUEST_FOR_ALL)
    assert kernel.report().summary.breaks == 1


@pytest.mark.parametrize("metadata", [{}, {"graphbreak": None}, {"graphbreak": {"explain": 3}}, {"cellId": "a"}])
def test_metadata_without_a_valid_request_has_no_effect(kernel: Kernel, metadata: dict[str, Any]) -> None:
    assert kernel.run(f"{STEP}f(torch.ones(2))", metadata)["status"] == "ok"
    assert kernel.bundles() == []


def test_a_front_end_loads_the_extension_without_side_effects() -> None:
    load = '__import__("jupyter_graphbreak").answer_requests(get_ipython())'
    fresh_kernel = Kernel("before = set(dir())")
    try:
        for _ in range(2):
            assert fresh_kernel.run(load, silent=True, store_history=False)["status"] == "ok"
        assert fresh_kernel.run(f"{STEP}f(torch.ones(2))", REQUEST)["execution_count"] == 2
        assert fresh_kernel.report().summary.breaks == 1
        fresh_kernel.run("print({name for name in dir() if not name.startswith('_')} - before)")
        names = fresh_kernel.stdout()
        assert sorted(re.findall(r"'(\w+)'", names)) == ["before", "f", "torch"]
    finally:
        fresh_kernel.stop()


class AnsweringShell:
    """A shell of this process that answers requests, like the shell of a kernel."""

    def __init__(self) -> None:
        InteractiveShell.clear_instance()
        self.ip: Any = InteractiveShell.instance()
        self.ip.display_pub = CapturingDisplayPublisher()
        self.request: dict[str, Any] = {}
        vars(self.ip)["get_parent"] = lambda: self.request
        answer_requests(self.ip)

    def explain(self, code: str) -> list[Report]:
        self.ip.display_pub.outputs.clear()
        self.request = {"content": {"code": code}, "metadata": REQUEST}
        self.ip.run_cell(code, store_history=True)
        bundles = [output["data"] for output in self.ip.display_pub.outputs]
        return [Report.from_dict(bundle[MIME_TYPE]) for bundle in bundles if MIME_TYPE in bundle]


@pytest.fixture
def answering_shell() -> Iterator[AnsweringShell]:
    torch._dynamo.reset()
    shell = AnsweringShell()
    yield shell
    shell.ip.run_line_magic("unload_ext", "jupyter_graphbreak")
    InteractiveShell.clear_instance()


def test_cells_that_a_cell_runs_are_part_of_it(answering_shell: AnsweringShell) -> None:
    """IPython runs the inner cells for the same request as the outer cell."""
    inner_cell = "get_ipython().run_cell('1 + 1')"
    (report,) = answering_shell.explain(f"{inner_cell}\n{STEP}f(torch.ones(2))\n{inner_cell}")
    assert report.summary.breaks == 1


def test_a_cell_without_compile_is_compiled_as_one_function(answering_shell: AnsweringShell) -> None:
    (report,) = answering_shell.explain("x = torch.ones(2) if 'torch' in globals() else __import__('torch').ones(2)")
    assert report.status == "ok"
    (report,) = answering_shell.explain("import torch\nx = torch.ones(2)\nprint('a')\ny = x + 1")
    assert [line for _, line, _ in break_locations(report)] == [3]


def test_a_shell_without_requests_raises_an_error() -> None:
    InteractiveShell.clear_instance()
    with pytest.raises(UsageError, match="metadata of requests"):
        answer_requests(InteractiveShell.instance())
    InteractiveShell.clear_instance()
