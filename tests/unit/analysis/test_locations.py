"""Locations have the editor's line numbers, and stacks are shown without PyTorch's and the kernel's internal frames."""

from __future__ import annotations

import ast

import pytest

from jupyter_graphbreak.analysis.locations import Sources, SourceText, branch_uses, shown_stack
from jupyter_graphbreak.records.records import ExpressionSpan, StackFrame, original_name
from jupyter_graphbreak.report.location import Segment

CELL = "/tmp/ipykernel_7/123.py"
TEXT = """%%compile_explain
import torch
def f(x):
    é = x; print("ü", x)
    if (x.sum()
            > 3000):
        return x
"""


def cell() -> SourceText:
    return SourceText(CELL, "Cell In[3]", "cell", [Segment(1, TEXT)])


def test_columns_are_characters_not_bytes() -> None:
    line = TEXT.split("\n")[3]
    start, end = line.index("print"), line.index(")") + 1
    span = ExpressionSpan(len(line[:start].encode()), len(line[:end].encode()), 4)
    location = Sources([cell()]).location(CELL, 4, "f", span)
    assert location is not None
    assert location.code == 'print("ü", x)'
    assert (location.column, location.end_column) == (start, end)


def test_the_end_line_is_inferred_if_torch_does_not_give_it() -> None:
    location = Sources([cell()]).location(CELL, 5, "f", ExpressionSpan(8, 18, None))
    assert location is not None
    assert location.code == "x.sum()\n            > 3000"
    assert (location.line, location.end_line) == (5, 6)


def test_the_whole_statement_of_a_jump_is_narrowed_to_its_condition() -> None:
    location = Sources([cell()]).location(CELL, 5, "f", ExpressionSpan(4, 16, 7))
    assert location is not None
    assert location.code == "x.sum()\n            > 3000"
    assert (location.column, location.end_line, location.end_column) == (8, 6, 18)


def test_cells_of_marimo_have_names_and_columns() -> None:
    text = "@app.cell\ndef define(torch):\n    def f(x):\n        print(x)\n"
    file = SourceText("/tmp/nb.py", "nb.py", "file", [Segment(1, text)])
    location = Sources([file]).location("/tmp/nb.py", 4, "f", ExpressionSpan(4, 12, 4))
    assert location is not None
    assert location.code == "print(x)"
    assert location.column == 8
    assert Sources([]).name("/tmp/marimo_7/__marimo__cell_MJUe_.py") == "marimo cell MJUe"
    assert Sources([cell()]).name(CELL) == "Cell In[3]"


INLINED_CALL = """\
def f(x):
    logger.warning(
        "a message",
        x,
    )
    print("one", (
        2,
    ))
    if x.sum() > 0:
        y = x + 1
    else:
        y = x - 1
    if (
        x.max() > 0
    ):
        y = x
    z = {
        name: value
        for name, value in x
    }
    assert all(
        x
    ), "no"
"""


@pytest.mark.parametrize(
    ("line", "columns", "code", "end"),
    [
        (2, (4, 5), 'logger.warning(\n        "a message",\n        x,\n    )', (5, 5)),
        (2, (4, 18), "logger.warning", (2, 18)),
        (6, (4, 6), 'print("one", (\n        2,\n    ))', (8, 6)),
        (9, (4, 17), "x.sum() > 0", (9, 18)),
        (9, (7, 18), "x.sum() > 0", (9, 18)),
        (13, (4, 13), "if (\n        x.max() > 0", (14, 19)),
        (17, (8, 5), "{\n        name: value\n        for name, value in x\n    }", (20, 5)),
        (21, (11, 5), "all(\n        x\n    )", (23, 5)),
    ],
)
def test_the_last_line_of_an_expression_in_an_inlined_frame_is_inferred(
    line: int, columns: tuple[int, int], code: str, end: tuple[int, int]
) -> None:
    source = SourceText("/project/model.py", "model.py", "file", [Segment(1, INLINED_CALL)])
    location = Sources([source]).location("/project/model.py", line, "f", ExpressionSpan(*columns, None))
    assert location is not None
    assert (location.line, location.code, (location.end_line, location.end_column)) == (line, code, end)


def test_lines_are_counted_as_in_the_editor() -> None:
    source = SourceText(CELL, "Cell In[1]", "cell", [Segment(1, "\n\n  def f():\n      g()")], line_offset=2, indent=2)
    location = Sources([source]).location(CELL, 2, "f", ExpressionSpan(4, 7, 2))
    assert location is not None
    assert (location.line, location.column, location.code) == (4, 6, "g()")


@pytest.mark.parametrize(
    ("name", "plain_name"),
    [
        ("f", "f"),
        ("torch_dynamo_resume_in_f_at_5", "f"),
        ("torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_5_at_6", "f"),
    ],
)
def test_a_resume_function_is_shown_under_the_name_of_its_function(name: str, plain_name: str) -> None:
    assert original_name(name) == plain_name


@pytest.mark.parametrize(
    ("path", "function", "kind"),
    [
        (CELL, "f", "cell"),
        ("/home/me/train.py", "main", "file"),
        ("/home/me/IPython_notes.py", "main", "file"),
        ("/venv/lib/site-packages/transformers/x.py", "forward", "library"),
        ("/py/lib/copy.py", "deepcopy", "library"),
        ("/venv/lib/site-packages/torch/nn/functional.py", "linear", "library"),
        ("/venv/lib/site-packages/torch/nn/modules/module.py", "_call_impl", "machinery"),
        ("/venv/lib/site-packages/torch/_dynamo/eval_frame.py", "compile_wrapper", "machinery"),
        ("/venv/lib/site-packages/ipykernel/kernelapp.py", "start", "machinery"),
        ("C:\\venv\\Lib\\site-packages\\IPython\\core\\x.py", "run", "machinery"),
        ("<frozen runpy>", "_run", "machinery"),
        ("<string>", "__init__", "library"),
        ("<stdin>", "f", "file"),
        ("<python-input-3>", "f", "file"),
        ("<ipython-input-1-9813614b4989>", "f", "file"),
        ("/usr/lib64/python3.13t/asyncio/events.py", "run", "machinery"),
        ("C:\\Program Files\\Python312\\Lib\\threading.py", "run", "machinery"),
        ("/build/pytorch/torch/_dynamo/eval_frame.py", "compile_wrapper", "machinery"),
        ("/venv/lib/site-packages/mine/torch/fx/node.py", "f", "library"),
        ("/venv/lib/site-packages/mine/torch/nn/modules/module.py", "_call_impl", "library"),
        ("/tmp/torch_geometric.nn.conv.gcn_conv_GCNConv_propagate_o9.py", "propagate", "library"),
        ("/tmp/torch.fx.py", "f", "file"),
    ],
)
def test_the_kind_of_a_frame_depends_on_its_file(path: str, function: str, kind: str) -> None:
    assert Sources([cell()], ["/py/lib"], package_folders=["/build/pytorch/torch"]).kind(path, function) == kind


@pytest.mark.parametrize(
    "path",
    [
        "/home/u/runpytorch/train.py",
        "/data/asyncio/loop.py",
        "/data/jupyter_graphbreak/examples/x.py",
        "/data/jupyter_graphbreak/commands/script.py",
        "/home/u/proj/torch/_dynamo/mine.py",
        "/home/u/proj/torch/nn/modules/module.py",
        "/home/u/torch/utils/device.py",
        "/home/u/IPython/notes.py",
        "/home/u/proj/runpy.py",
        "/home/u/proj/contextlib.py",
        "/home/u/proj/tornado/web.py",
        "/home/u/my-site-packages/torch/fx/x.py",
        "/home/u/site-packages-old/torch/fx/x.py",
        "/py/library/asyncio/x.py",
        "/py/lib-mine/copy.py",
        "/build/pytorch/torchmine/x.py",
        "/build/pytorch/test/test_x.py",
        "/home/u/lib/python3.12/project/train.py",
        "C:\\Users\\u\\asyncio\\x.py",
    ],
)
@pytest.mark.parametrize("function", ["f", "_call_impl", "__torch_function__"])
def test_the_users_files_are_recognized_in_folders_with_any_name(path: str, function: str) -> None:
    sources = Sources([], ["/py/lib"], package_folders=["/build/pytorch/torch"])
    assert sources.kind(path, function) == "file"
    stack = [StackFrame("<frozen runpy>", 1, "run"), StackFrame(path, 3, function), StackFrame(path, 5, function)]
    assert [location.line for location in shown_stack(sources, stack)] == [3, 5]
    assert sources.owner(stack) == "own"


@pytest.mark.parametrize(
    ("filename", "path"),
    [
        (CELL, None),
        ("/home/me/work/train.py", "train.py"),
        ("/home/me/work/venv/lib/site-packages/transformers/x.py", "transformers/x.py"),
        ("/home/me/lib/helpers.py", "~/lib/helpers.py"),
        ("/py/lib/copy.py", "copy.py"),
        ("/elsewhere/site-packages/torch/optim/sgd.py", "torch/optim/sgd.py"),
        ("/home/me/other/lib/python3.12/site-packages/torch/optim/sgd.py", "torch/optim/sgd.py"),
        ("/srv/shared/layers.py", "/srv/shared/layers.py"),
    ],
)
def test_shown_paths_do_not_identify_the_machine(filename: str, path: str | None) -> None:
    sources = Sources([cell()], ["/py/lib", "/home/me/work/venv/lib/site-packages"], "/home/me/work", "/home/me")
    assert sources.source(filename).path == path


def test_windows_paths_are_shortened() -> None:
    sources = Sources([], ["C:\\py\\Lib\\site-packages"], "C:\\Users\\me\\work", "C:\\Users\\me")
    assert sources.source("C:\\py\\Lib\\site-packages\\torch\\nn\\x.py").path == "torch/nn/x.py"
    assert sources.source("C:\\Users\\me\\work\\train.py").path == "train.py"
    assert sources.source("C:\\Users\\me\\x.py").path == "~/x.py"


def test_locations_in_pytorchs_messages_have_the_editors_line_numbers() -> None:
    source = SourceText(CELL, "Cell In[1]", "cell", [Segment(1, "\n\ndef f():\n    g()")], line_offset=2)
    sources = Sources([source])
    text = f'computed as follows:\n  # File "{CELL}", line 2, in f, code: g()\n  # File "/a/b.py", line 7, in h'
    expected = "computed as follows:\n  # Cell In[1], line 4, in f, code: g()\n  # b.py, line 7, in h"
    assert sources.with_user_names(text) == expected
    assert sources.with_user_names(None) is None


def test_the_stack_of_a_kernel_only_shows_relevant_frames() -> None:
    stack: list[tuple[str, int, str]] = [
        ("<frozen runpy>", 198, "_run_module_as_main"),
        ("/v/site-packages/ipykernel_launcher.py", 18, "<module>"),
        ("/v/site-packages/mystery_kernel/run.py", 18, "run"),
        (CELL, 7, "<module>"),
        ("/v/site-packages/torch/_dynamo/eval_frame.py", 1, "compile_wrapper"),
        ("/v/site-packages/transformers/m.py", 9, "forward"),
        (CELL, 3, "f"),
        (CELL, 4, "torch_dynamo_resume_in_f_at_3"),
    ]
    shown_functions = [
        (location.function, location.line)
        for location in shown_stack(Sources([cell()]), [StackFrame(*entry) for entry in stack])
    ]
    assert shown_functions == [("<module>", 7), ("forward", 9), ("f", 4)]


def test_frames_that_start_the_shell_or_the_program_are_hidden() -> None:
    terminal_stack: list[tuple[str, int, str]] = [("/home/u/bin/ipython", 8, "<module>"), (CELL, 7, "<module>")]
    script_stack: list[tuple[str, int, str]] = [
        ("/home/u/bin/graphbreak", 8, "<module>"),
        ("/v/site-packages/click/core.py", 1, "main"),
        ("<frozen runpy>", 291, "run_path"),
        ("/home/u/train.py", 12, "<module>"),
    ]
    cell_as_function: list[tuple[str, int, str]] = [(CELL, 1, "<module>"), (CELL, 7, "<module>")]
    for stack, line in ((terminal_stack, 7), (script_stack, 12), (cell_as_function, 7)):
        entries = shown_stack(Sources([cell()]), [StackFrame(*entry) for entry in stack])
        assert [location.line for location in entries] == [line]


def test_pytorchs_messages_are_shown_without_folders_of_the_machine() -> None:
    sources = Sources([], ["/v/lib/python3.12", "/v/lib/python3.12/site-packages"], folder="/", home="/home/u")
    text = "`f` in file `/v/lib/python3.12/site-packages/torch/x.py` (/home/u/job/y.py) / `/v/lib/python3.12/z.py`"
    assert sources.with_user_names(text) == "`f` in file `torch/x.py` (~/job/y.py) / `z.py`"


def test_an_assertion_is_a_branch_that_raises_an_error() -> None:
    assert branch_uses(ast.parse("assert x.sum() > 0, f'{x}'\nif x.any():\n    raise ValueError\n")) == {
        1: "error",
        2: "error",
    }
