"""The magic in a shell of this process: options, misuse, and the absence of side effects."""

from __future__ import annotations

import ast
import contextlib
import linecache
import logging
import pkgutil
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import CapturedIO, capture_output

import jupyter_graphbreak
from jupyter_graphbreak._torch_compat.default_device import default_device_state
from jupyter_graphbreak.ipython.cell.texts import CellTexts
from jupyter_graphbreak.ipython.observation import Observation
from jupyter_graphbreak.recording.exit_stack import GuardedExitStack
from jupyter_graphbreak.records.source_texts import CellText
from jupyter_graphbreak.report.schema import MIME_TYPE
from jupyter_graphbreak.results import Report
from jupyter_graphbreak.views.html.bundle import read_report
from jupyter_graphbreak.views.rows.sections import build_rows

BREAK = """import torch
@torch.compile(backend="eager")
def f(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2
"""


class Shell:
    """A shell with the extension loaded, which stores the displays and the output of the last cell."""

    def __init__(self) -> None:
        InteractiveShell.clear_instance()
        self.ip: Any = InteractiveShell.instance()
        self.ip.display_pub = CapturingDisplayPublisher()
        self.ip.run_line_magic("load_ext", "jupyter_graphbreak")
        self.io: CapturedIO

    def run(self, cell: str) -> Any:
        self.ip.display_pub.outputs.clear()
        with capture_output(display=False) as self.io:
            return self.ip.run_cell(cell, store_history=True)

    @property
    def bundles(self) -> list[dict[str, Any]]:
        return [output["data"] for output in self.ip.display_pub.outputs if MIME_TYPE in output["data"]]

    @property
    def report(self) -> Report:
        (bundle,) = self.bundles
        return Report.from_dict(bundle[MIME_TYPE])


@pytest.fixture
def shell() -> Iterator[Shell]:
    torch._dynamo.reset()
    shell = Shell()
    yield shell
    shell.ip.run_line_magic("unload_ext", "jupyter_graphbreak")
    InteractiveShell.clear_instance()


def test_a_break_is_shown_with_its_line(shell: Shell) -> None:
    result = shell.run(f"%%compile_explain\n{BREAK}f(torch.ones(2)).tolist()")
    assert result.result == [4.0, 4.0]
    (break_,) = shell.report.breaks
    assert break_.location is not None
    assert (break_.location.line, break_.location.code) == (6, "torch._dynamo.graph_break()")
    assert "line 6 in f" in shell.bundles[0]["text/plain"]


def test_a_method_of_a_compiled_module_is_not_compiled(shell: Shell) -> None:
    shell.run("import torch\nclass Solver(torch.nn.Module):\n    def solve(self, x):\n        return x.sin()")
    shell.run("%%compile_explain\nsolver = torch.compile(Solver().eval())\nsolver.solve(torch.ones(2))")
    (note,) = [note.message for note in shell.report.diagnostics]
    assert note.startswith("Nothing was compiled: the cell calls `solver.solve`")
    assert note.endswith("Compile the method: `torch.compile(solver.solve)`.")


def test_a_stance_that_the_cell_sets_and_resets_is_named(shell: Shell) -> None:
    shell.run("import torch\nf = torch.compile(torch.sin, backend='eager')")
    shell.run(
        "%%compile_explain\ntorch.compiler.set_stance('force_eager')\nf(torch.ones(2))\n"
        "torch.compiler.set_stance('default')"
    )
    (note,) = [note.message for note in shell.report.diagnostics]
    assert note.startswith('Nothing was compiled: the cell sets the stance "force_eager"')


def test_a_module_whose_method_calls_the_module_is_compiled_in_place(shell: Shell) -> None:
    shell.run(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x.sin()\n"
        "    @torch.no_grad()\n    def generate(self, x):\n        return self(x)"
    )
    shell.run("%%compile_explain\nmodel = torch.compile(Model().eval())\nmodel.generate(torch.ones(2))")
    (note,) = [note.message for note in shell.report.diagnostics]
    assert note.endswith("`generate` calls the module: compile the module in place, with its method `compile()`.")


@pytest.mark.parametrize(
    ("method", "call", "note"),
    [
        (
            "",
            "net.forward(x)",
            "the cell calls `net.forward`, and `net.compile()` compiles only calls to the module itself.",
        ),
        (
            "def __call__(self, x):\n        return self.forward(x)",
            "net(x)",
            "the class of `net` defines `__call__` itself, so `net.compile()` has no effect. Use `torch.compile(net)`.",
        ),
    ],
)
def test_a_call_that_compile_in_place_does_not_compile_is_noted(
    shell: Shell, method: str, call: str, note: str
) -> None:
    shell.run(
        f"import torch\nclass Net(torch.nn.Module):\n    {method}\n    def forward(self, x):\n        return x.sin()"
    )
    shell.run(f"%%compile_explain\nnet, x = Net(), torch.ones(2)\nnet.compile(backend='eager')\n{call}")
    assert any(note in diagnostic.message for diagnostic in shell.report.diagnostics)
    if "__call__" in method:
        shell.run("%%compile_explain\ncompiled = torch.compile(Net(), backend='eager')\ncompiled(x)")
        assert shell.report.graphs


def test_code_that_is_not_in_the_history_is_not_a_cell(shell: Shell) -> None:
    """The host may run code of its own, such as that of a variable viewer, with the number of the next cell."""

    def cell_of(name: str) -> CellText | None:
        return CellTexts(shell.ip).find(shell.ip.user_ns[name].__code__.co_filename)

    shell.ip.run_cell("def unseen():\n    pass", store_history=False)
    texts = {
        "plain": "def plain():\n    pass\n",
        "indented": "\n    def indented():\n        pass",
        "after_magic": "%pwd\ndef after_magic():\n    pass",
        "explained": "%%compile_explain\ndef explained():\n    pass",
    }
    for text in texts.values():
        shell.run(text)
    assert cell_of("unseen") is None
    # A short cell is not a part of the running cell, although that cell's text contains it.
    shell.run("plain")
    (short_cell_filename,) = [name for name in linecache.cache if linecache.cache[name][2:3] == (["plain\n"],)]
    cells = CellTexts(shell.ip)
    shell.run("%%compile_explain\nplain")
    cells.note_running_cell(cell_name := list(linecache.cache)[-1])
    assert cells.running_filename == cell_name
    cell = cells.find(short_cell_filename)
    assert cell is not None
    assert cell.text == "plain"
    for name, text in texts.items():
        cell = cell_of(name)
        assert cell is not None
        assert cell.text == text.rstrip("\n")


EXPLAIN = "%%compile_explain -o report"


@pytest.mark.parametrize(
    "magics",
    [
        f"{EXPLAIN} --try\n%%time",
        f"%%time\n{EXPLAIN}",
        *(
            pytest.param(magics, marks=pytest.mark.exhaustive)
            for magics in (
                f"{EXPLAIN} --try\n\n%%capture\n",
                f"%%capture\n\n{EXPLAIN} --try",
                f"%%time\n{EXPLAIN} --try",
                f"{EXPLAIN}\n%%time\n%%capture",
            )
        ),
    ],
)
def test_a_break_below_two_magics_has_its_line(shell: Shell, magics: str) -> None:
    text = f"{magics}\n{BREAK}f(torch.ones(2))"
    shell.run("%%time\nimport torch\ndef other(x):\n    return x")
    shell.run(text)
    report = shell.ip.user_ns["report"]
    (break_,) = report.breaks
    assert text.split("\n")[break_.location.line - 1] == "    torch._dynamo.graph_break()"
    cells = [source.name for source in report.sources if source.kind == "cell"]
    assert cells == [f"Cell In[{shell.ip.execution_count - 1}]"]
    assert {remedy.verdict for remedy in report.remedies or []} <= {"works"}


def test_code_of_an_earlier_cell_with_a_magic_is_not_attributed_to_this_cell(shell: Shell) -> None:
    shell.run(f"%%time\n{BREAK}")
    shell.run("%%compile_explain\n%%time\nf(torch.ones(2))\nx = 1")
    (break_,) = shell.report.breaks
    assert break_.location is not None
    assert "cell" not in {source.kind for source in shell.report.sources if source.id == break_.location.source}


def test_the_report_of_a_cell_that_fails_is_shown_and_the_error_is_raised(shell: Shell) -> None:
    result = shell.run(f"%%compile_explain\n{BREAK}f(torch.ones(2))\n1 / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    report = shell.report
    assert report.status == "error"
    assert report.error is not None
    assert report.error.location is not None
    assert (report.error.type, report.error.location.line) == ("ZeroDivisionError", 9)
    assert report.summary.breaks == 1


def test_the_headline_names_the_cell_that_ran(shell: Shell) -> None:
    """The name depends neither on the cell that defines the function nor on the program that runs the shell."""
    shell.run(BREAK)
    shell.run("compiled = f")
    shell.run("whole = torch.compile(torch.nn.Linear(2, 2), backend='eager')")
    shell.run("%%compile_explain\ny = whole(torch.ones(2))")
    assert [source.kind for source in shell.report.sources][:1] == ["cell"]
    assert (
        shell.bundles[0]["text/plain"].split("\n")[1].startswith(f"Cell In[{shell.ip.execution_count - 1}], Linear: ")
    )
    for cell, line in (
        ("%%compile_explain\nx = compiled(torch.ones(2))", 2),
        ("x = 1\n%compile_explain f(torch.ones(2))", 2),
        ("%compile_explain f(torch.ones(2))", 1),
    ):
        shell.run(cell)
        number = shell.ip.execution_count - 1
        text = shell.bundles[0]["text/plain"]
        assert f"\nCell In[{number}], " in text
        assert "1  Cell In[1] line 5 in f" in text
        assert f"called from line {line}\n" in text
    shell.run("%%compile_explain\nx = torch.ones(2)\nprint('a cell that is one function calls itself from nowhere')")
    assert "called from" not in shell.bundles[0]["text/plain"]


def test_an_interrupt_is_raised_and_reported(shell: Shell) -> None:
    result = shell.run(f"%%compile_explain\n{BREAK}f(torch.ones(2))\nraise KeyboardInterrupt")
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert shell.report.status == "interrupted"
    assert shell.report.to_text().startswith("Interrupted, ")


def test_an_interrupt_during_a_compilation_is_raised_and_reported(shell: Shell) -> None:
    cell = (
        "%%compile_explain\nimport torch\ndef stop(gm, inputs):\n    raise KeyboardInterrupt\n"
        "@torch.compile(backend=stop)\ndef f(x):\n    return x + 1\nf(torch.ones(2))"
    )
    result = shell.run(cell)
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert [frame.outcome for frame in shell.report.frames] == ["error"]
    shell.run(f"%%compile_explain\n{BREAK}f(torch.ones(2))")
    assert shell.report.summary.breaks == 1


@pytest.mark.parametrize("options", ["", "--try"])
def test_an_interrupt_while_the_report_is_made_is_raised_after_the_report(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    make_report = Observation._report

    def make_report_and_interrupt(self: Observation, *args: Any) -> Any:
        result = make_report(self, *args)
        signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(Observation, "_report", make_report_and_interrupt)
    handler_before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = shell.run(f"%%compile_explain {options}\n{BREAK}f(torch.ones(2))")
    finally:
        signal.signal(signal.SIGINT, handler_before)
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert (shell.report.summary.breaks, shell.report.remedies) == (1, None)
    note_on_interrupt = "The run was not repeated, because it was interrupted."
    assert [note.message for note in shell.report.diagnostics] == ([note_on_interrupt] if options else [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--bakend eager", "unrecognized arguments: --bakend"),
        ("--backend egaer", "unknown backend 'egaer': use one of"),
        ("--device tpu", "unknown device 'tpu': use auto, cpu, cuda or cuda:N"),
        ("--mode fast", "unknown mode 'fast': use one of"),
        ("--dynamic maybe", "--dynamic: invalid choice: 'maybe'"),
        ("-o 3x", "-o 3x: not a valid variable name"),
        ("f(x)", "write %compile_explain f(x)"),
        pytest.param(
            "--device cuda", "use --device cpu", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA")
        ),
    ],
)
def test_misuse_is_reported_in_one_line_and_the_cell_does_not_run(shell: Shell, options: str, message: str) -> None:
    shell.run(f"%%compile_explain {options}\nran = True")
    printed_lines = [line for line in shell.io.stderr.split("\n") if line]
    assert any(message in line for line in printed_lines), printed_lines
    assert len([line for line in printed_lines if "UsageError" in line]) == 1
    assert "ran" not in shell.ip.user_ns
    assert shell.run("1 + 1").result == 2


@pytest.mark.parametrize(
    ("line", "message"), [("3 + 4", "is not a call: write f(x)"), ("f(", "cannot read 'f('"), ("", "cannot read ''")]
)
def test_the_line_magic_needs_a_call(shell: Shell, line: str, message: str) -> None:
    shell.run(f"%compile_explain {line}")
    assert message in shell.io.stderr


def test_a_syntax_error_is_ipythons_own_with_the_line_of_the_editor(shell: Shell) -> None:
    result = shell.run("%%compile_explain\nx = 1\ny = = 2\n")
    assert isinstance(result.error_before_exec, SyntaxError)
    assert result.error_before_exec.lineno == 3
    assert shell.bundles == []
    assert shell.run("1 + 1").result == 2


@pytest.mark.parametrize(
    ("version", "expected"), [(None, "PyTorch is not installed here"), ("2.8.1", "2.9 or newer is needed")]
)
def test_a_missing_or_old_pytorch_is_reported(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, version: str | None, expected: str
) -> None:
    if version is None:
        monkeypatch.setitem(sys.modules, "torch", None)
    else:
        monkeypatch.setattr(torch, "__version__", version)
    shell.run("%%compile_explain\nran = True")
    assert expected in shell.io.stderr
    assert "pip install" in shell.io.stderr
    assert "ran" not in shell.ip.user_ns


def test_the_line_magic_compiles_one_call_and_returns_its_value(shell: Shell) -> None:
    shell.run("import torch\ndef g(x, k=1):\n    y = x + k\n    print('hi')\n    return y\nx = torch.ones(2)")
    result = shell.run("r = %compile_explain g(x, k=2)\nr.tolist()")
    assert result.result == [3.0, 3.0]
    (break_,) = shell.report.breaks
    assert break_.location is not None
    assert (break_.location.line, break_.location.function) == (4, "g")


def test_the_report_is_stored_in_a_variable(shell: Shell) -> None:
    shell.run(f"%%compile_explain -o stored\n{BREAK}f(torch.ones(2))")
    assert shell.ip.user_ns["stored"].summary.breaks == 1
    shell.run("stored")
    assert read_report({MIME_TYPE: stored_bundle(shell)}).to_dict() == shell.ip.user_ns["stored"].to_dict()


def stored_bundle(shell: Shell) -> dict[str, Any]:
    data, _ = shell.ip.display_formatter.format(shell.ip.user_ns["stored"])
    assert "compile_explain" in data["text/plain"]
    bundle: dict[str, Any] = data[MIME_TYPE]
    return bundle


def test_the_backend_option_applies_to_the_cells_own_calls(shell: Shell) -> None:
    cell = (
        "%%compile_explain --backend eager\nimport torch\ndef broken(gm, inputs):\n    raise RuntimeError('never')\n"
        "torch.compile(lambda x: x + 1, backend=broken)(torch.ones(2)).tolist()"
    )
    assert shell.run(cell).result == [2.0, 2.0]
    assert shell.report.summary.graphs == 1


def test_the_backend_option_keeps_fullgraph(shell: Shell) -> None:
    strict_cell = BREAK.replace('backend="eager"', "fullgraph=True")
    result = shell.run(f"%%compile_explain --backend eager\n{strict_cell}f(torch.ones(2))")
    assert type(result.error_in_exec).__name__ == "Unsupported"
    assert [break_.outcome for break_ in shell.report.breaks] == ["error"]


def test_a_cell_without_compile_is_compiled_as_one_function(shell: Shell) -> None:
    shell.run("%%compile_explain\nimport torch\nx = torch.ones(3)\ny = x * 2\nif y.sum() > 0:\n    z = y + 1\nz")
    report = shell.report
    assert any("compiled as one function" in note.message for note in report.diagnostics)
    assert [(b.location.line, b.gb_type) for b in report.breaks if b.location] == [(5, "Data-dependent branching")]
    assert shell.ip.user_ns["z"].tolist() == [3.0, 3.0, 3.0]
    assert not [name for name in shell.ip.user_ns if "graphbreak" in name]


def test_a_cell_that_calls_previously_compiled_code_runs_unchanged(shell: Shell) -> None:
    shell.run(BREAK + "def caller(x):\n    return f(x)\nx = torch.ones(2)\nf(x)")
    shell.run("%%compile_explain\ncaller(x)")
    report = shell.report
    assert not any("one function" in note.message for note in report.diagnostics)
    # compiled again, although it was compiled before
    assert (report.summary.breaks, report.summary.graphs) == (1, 2)


def test_earlier_compiled_code_stays_if_the_cell_forbids_compiling(shell: Shell) -> None:
    shell.run("import torch\n@torch.compile(backend='eager')\ndef f(x, n):\n    return x * n\nf(torch.ones(3), 5)")
    stance = "with torch.compiler.set_stance('fail_on_recompile'):\n    "
    shell.run(f"%%compile_explain\n{stance}f(torch.ones(3), 5)")
    assert shell.report.error is None
    error = shell.run(f"%%compile_explain\n{stance}f(torch.ones(3), 6)").error_in_exec
    assert "Detected recompile" in str(error)
    names_guard = "guard failure" in str(error)
    assert names_guard or torch.__version__ < "2.13"  # the error of torch 2.9 does not name the guard
    text = " ".join(shell.report.to_text().split())
    assert ("forbids a recompile, but n: 5 -> different value" in text) is names_guard


def test_an_internal_error_of_dynamo_is_linked_to_its_break(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_attribute_error(*_: Any, **__: Any) -> Any:
        raise AttributeError("nothing like it")

    monkeypatch.setattr(torch._dynamo.variables.tensor.TensorVariable, "call_method", raise_attribute_error)
    shell.run("%%compile_explain\nimport torch\ntorch.compile(lambda x: x.sum(), backend='eager')(torch.ones(2))")
    assert shell.report.error is not None
    assert (shell.report.error.break_, len(shell.report.breaks)) == ("b1", 1)
    assert shell.report.to_text().startswith("Break 1 ended the run: Internal error in Dynamo, line 3")


def test_fullgraph_makes_a_break_an_error(shell: Shell) -> None:
    result = shell.run("%%compile_explain --fullgraph\nimport torch\nx = torch.ones(3)\nprint('hi')\nx + 1")
    assert type(result.error_in_exec).__name__ == "Unsupported"
    assert shell.report.breaks[0].outcome == "error"


def test_options_without_effect_are_reported(shell: Shell) -> None:
    shell.run(f"%%compile_explain --fullgraph\n{BREAK}f(torch.ones(2))")
    assert any("--fullgraph had no effect" in note.message for note in shell.report.diagnostics)


def test_saving_names_with_the_prefix_of_the_wrapper_is_noted_once(shell: Shell) -> None:
    cell = """%%compile_explain -o report
import io, torch
model = torch.compile(torch.nn.Linear(2, 2), backend="eager")
y = model(torch.ones(2))
torch.save(model.state_dict(), io.BytesIO())"""
    for expected_notes in (1, 0):
        assert shell.run(cell).success
        notes = [note.message for note in shell.ip.user_ns["report"].diagnostics if "_orig_mod." in note.message]
        assert len(notes) == expected_notes
        assert all(note.startswith("Line 5 saves `model.state_dict()`") for note in notes)


def test_nothing_to_compile_is_reported(shell: Shell) -> None:
    shell.run("%%compile_explain\nimport math\ndef g(): pass")
    assert any("nothing to compile" in note.message for note in shell.report.diagnostics)


def test_settings_are_restored(shell: Shell) -> None:
    trace = logging.getLogger("torch.__trace")
    torch.compile(torch.sin, backend="eager")(torch.ones(2))  # PyTorch's own handler removes itself at the first entry

    def settings() -> tuple[object, ...]:
        return list(trace.handlers), trace.level, default_device_state(), torch.random.get_rng_state().tolist()

    settings_before = settings()
    original_function = torch._dynamo.convert_frame.log_dynamo_start
    shell.run(f"%%compile_explain --device cpu --backend eager\n{BREAK}f(torch.ones(2))")
    assert settings() == settings_before
    assert torch._dynamo.convert_frame.log_dynamo_start is original_function
    assert torch._dynamo.eval_frame._stance.backend is None


def test_a_default_device_set_by_the_cell_stays(shell: Shell) -> None:
    try:
        shell.run("%%compile_explain --device cpu\nimport torch\ntorch.compile\ntorch.set_default_device('meta')")
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_device(None)


def test_an_error_while_undoing_never_reaches_the_user(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    class FailingStack(contextlib.ExitStack):
        def close(self) -> None:
            super().close()
            raise RuntimeError("stuck")

    original = GuardedExitStack.__init__

    def init(stack: GuardedExitStack, on_fault: Callable[[str, Exception], None]) -> None:
        original(stack, on_fault)
        stack.contexts = FailingStack()

    monkeypatch.setattr(GuardedExitStack, "__init__", init)
    result = shell.run("%%compile_explain -b eager\nimport torch\nx = torch.ones(2)\nx.sum().item()")
    assert result.result == 2
    messages = [note.message for note in shell.report.diagnostics if note.level == "error"]
    assert len(messages) == 2
    assert all("(RuntimeError: stuck)" in message for message in messages)


def test_an_internal_error_never_reaches_the_user(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr("jupyter_graphbreak.api.run_reports.build_with_files", fail)
    result = shell.run(f"%%compile_explain\n{BREAK}f(torch.ones(2)).tolist()")
    assert result.result == [4.0, 4.0]
    assert [fault.level for fault in shell.report.diagnostics] == ["error"]
    assert shell.report.diagnostics[0].message == (
        "Internal error in compile_explain while building the report (RuntimeError: ours); your code is not affected."
    )


#: Functions of the magic that the next test makes fail.
MAGIC_FUNCTIONS = (
    "cell.rewriting:replace_magic_line",
    "cell.rewriting:CellRewriter._rewrite_safely",
    "cell.rewriting:CellRewriter._make_plan",
    "magic:CompileExplain._add_transformer",
    "magic:CompileExplain._suspend_transformer",
    "magic:_begin",
    "magic:_cell_caller",
    "options:read_options",
    "cell_run:mentioned_objects",
    "cell_run:_note_plan",
    "cell_run:as_module_code",
    "cell_run:CellRuns.read_request",
    "cell_run:CellRuns.end",
    "cell_run:CellRuns.cell_caller",
    "observation:Observation._start",
    "observation:Observation._choose_device",
    "observation:Observation.compile_calls",
    "observation:Observation.cell_caller",
    "observation:Observation.close",
    "observation:Observation._stop",
    "observation:Observation.undo",
    "observation:Observation._report",
)


#: A cell that is compiled as one function, one whose calls are compiled, one that runs unchanged, one with two magics.
BODIES = (
    "z = x * 2\nif z.sum() > 0:\n    z = z + 1\nz",
    "def double(t):\n    return t * 2\nz = double(x) + 1\nz",
    "z = torch.compile(lambda t: t * 2 + 1, backend='eager')(x)\nz",
    "%%time\nz = x * 2 + 1",
)


@pytest.mark.parametrize(
    ("function", "body"),
    [
        pytest.param(function, body, marks=[] if i % len(BODIES) == j else [pytest.mark.exhaustive])
        for i, function in enumerate(MAGIC_FUNCTIONS)
        for j, body in enumerate(BODIES)
    ],
)
def test_a_cell_runs_even_if_the_magic_fails(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, function: str, body: str
) -> None:
    magic_function = pkgutil.resolve_name(f"jupyter_graphbreak.ipython.{function}")
    shell.run("import torch\nx = torch.ones(2)")
    trace = logging.getLogger("torch.__trace")
    state_before = (list(trace.handlers), torch.nn.Module.__call__, threading.Thread.start)
    with monkeypatch.context() as patch:
        patch.setattr(magic_function, "__code__", _raise_error.__code__)  # also affects references to the function
        result = shell.run(f"%%compile_explain\n{body}")
    assert result.success
    assert shell.ip.user_ns["z"].tolist() == [3, 3]
    if not body.startswith("%%"):
        assert result.result.tolist() == [3, 3]
    assert "compile_explain" not in str(shell.ip.user_ns["__doc__"])
    output = shell.io.stdout + shell.io.stderr
    assert "Traceback" not in output
    assert "Error in callback" not in output
    assert (list(trace.handlers), torch.nn.Module.__call__, threading.Thread.start) == state_before
    later_run = shell.run("%%compile_explain\ndef other(t):\n    return t + 1\nother(x)")
    assert later_run.result.tolist() == [2, 2]
    assert len(shell.report.graphs) == 1


def _raise_error(*_: object, **__: object) -> None:
    raise RuntimeError("a fault")


@pytest.mark.parametrize(
    "cell",
    ["for z in range(3):\n    nonlocal z", "x = 1\nbreak", "*a, *b = [1]", "__debug__ = 1"],
)
def test_the_magic_works_after_a_cell_that_python_cannot_compile(shell: Shell, cell: str) -> None:
    plain_run = shell.run(f"'as many lines'\n{cell}")
    explained_run = shell.run(f"%%compile_explain\n{cell}")
    error, expected = (run.error_in_exec or run.error_before_exec for run in (explained_run, plain_run))
    assert isinstance(expected, SyntaxError)
    assert (type(error), str(error).split(" (")[0]) == (SyntaxError, str(expected).split(" (")[0])
    assert shell.io.stderr == ""
    shell.run(f"%%compile_explain\n{BREAK}f(torch.ones(2))")
    assert shell.report.summary.breaks == 1


@pytest.mark.parametrize("first_line", ["", "%%compile_explain\n"])
def test_ipython_holds_no_transformer_of_the_extension_while_a_cell_runs(shell: Shell, first_line: str) -> None:
    """With transformers, IPython walks a cell recursively and fails for a sum of many terms that Python can compile."""
    shell.run(f"{first_line}transformers = list(get_ipython().ast_transformers)")
    assert shell.ip.user_ns["transformers"] == []


def test_transformers_of_the_user_see_the_original_cell(shell: Shell) -> None:
    class ConstantDoubler(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            return ast.copy_location(ast.Constant(node.value * 2), node) if node.value == 21 else node

    doubler = ConstantDoubler()
    # A transformer that is added just before the cell is read comes after ours.
    shell.ip.events.register("pre_run_cell", lambda _: shell.ip.ast_transformers.append(doubler))
    assert shell.run("y = 21").success
    assert shell.ip.user_ns["y"] == 42
    shell.ip.events.callbacks["pre_run_cell"].pop()
    for first_line in ("", "%%compile_explain\n"):
        assert shell.run(f"{first_line}import torch\ny = torch.ones(1) * 21").success
        assert shell.ip.user_ns["y"].item() == 42
    shell.ip.run_line_magic("unload_ext", "jupyter_graphbreak")
    assert shell.ip.ast_transformers == [doubler]
    shell.ip.run_line_magic("load_ext", "jupyter_graphbreak")


def test_run_cell_magic_runs_and_raises(shell: Shell) -> None:
    assert shell.ip.run_cell_magic("compile_explain", "", f"{BREAK}f(torch.ones(2)).tolist()") == [4.0, 4.0]
    with pytest.raises(ZeroDivisionError), capture_output():
        shell.ip.run_cell_magic("compile_explain", "", "1 / 0")


def test_the_extension_can_be_loaded_twice_and_unloaded(shell: Shell) -> None:
    shell.ip.run_line_magic("reload_ext", "jupyter_graphbreak")
    shell.ip.run_line_magic("load_ext", "jupyter_graphbreak")
    shell.run(f"%%compile_explain\n{BREAK}f(torch.ones(2))")
    assert len(shell.bundles) == 1
    shell.ip.run_line_magic("unload_ext", "jupyter_graphbreak")
    shell.run("%%compile_explain\n1")
    assert "not found" in shell.io.stderr
    shell.ip.run_line_magic("load_ext", "jupyter_graphbreak")


def test_the_help_lists_the_options(shell: Shell) -> None:
    with capture_output() as io:
        shell.ip.run_cell("from IPython.core import page; page.page = print")
    text = shell.ip.find_line_magic("compile_explain").__doc__
    assert text is not None
    for word in ("--device", "--backend", "--fullgraph", "--mode", "--dynamic", "-o", "%%compile_explain"):
        assert word in text
    assert io.stderr == ""


def test_code_from_an_earlier_compilation_is_reported(shell: Shell) -> None:
    shell.run(
        "import torch\n@torch.compile(backend='eager')\n@torch._dynamo.error_on_graph_break(False)\n"
        "def g(x):\n    return x + 1\nx = torch.ones(2)\ng(x)"
    )
    # Torch's wrapper of g is shared with other functions, so Dynamo must not forget what it compiled in the wrapper.
    shell.run("%%compile_explain\ng(x)")
    assert shell.report.summary.graphs == 0
    assert any("g was compiled before and was not compiled again" in note.message for note in shell.report.diagnostics)


def test_the_fresh_option_forgets_earlier_compilations(shell: Shell) -> None:
    shell.run(
        "import torch\n@torch.compile(backend='eager')\n@torch._dynamo.error_on_graph_break(False)\n"
        "def fresh(x):\n    return x + 1\nx = torch.ones(2)\nfresh(x)"
    )
    shell.run("%%compile_explain\nfresh(x)")
    assert "Nothing was compiled in this run" in shell.report.to_text()
    shell.run("%%compile_explain --fresh\nfresh(x)")
    assert shell.report.summary.graphs == 1
    assert shell.report.diagnostics == []


def test_a_reassigned_name_is_not_reported_as_compiled_before(shell: Shell) -> None:
    cell = "import torch\ng = torch.compile(lambda x: x + 1, backend='eager')\ng(torch.ones(2))"
    shell.run(cell)
    shell.run(f"%%compile_explain\n{cell}")
    assert shell.report.summary.graphs == 1
    assert shell.report.diagnostics == []


BRANCH = """import torch
def f(x):
    if x.sum() > 0:
        return x + 10
    return x - 10
"""


def frontend_tables(shell: Shell) -> list[str]:
    """Return the tables of front ends that the last cell displayed above its report."""
    bundles = [output["data"] for output in shell.ip.display_pub.outputs]
    return [bundle["text/plain"] for bundle in bundles if bundle["text/plain"].startswith("front ends on")]


def test_front_ends_of_one_call_are_above_its_report(shell: Shell) -> None:
    shell.run(f"{BRANCH}x = torch.ones(1)")
    result = shell.run("%compile_explain --frontends -o comparison f(x), f(-x)")
    assert result.result.tolist() == [11]
    (table,) = frontend_tables(shell)
    assert table in shell.ip.display_pub.outputs[0]["data"]["text/plain"]
    assert "with x = tensor([-1.]): tensor([9.]) instead of tensor([-11.])" in table
    assert shell.report.summary.breaks == 1
    frontends = shell.ip.user_ns["comparison"]
    assert frontends.report.summary.breaks == frontends["torch.compile"].breaks == 1


def test_the_frontends_option_compares_the_function_that_a_cell_calls_last(shell: Shell) -> None:
    shell.run(f"%%compile_explain --frontends\n{BRANCH}x = torch.ones(1)\nprint(f(x).tolist())\ny = f(-x)")
    (table,) = frontend_tables(shell)
    assert table.startswith("front ends on f(x = tensor([1.]))")
    assert "Also run with: x = tensor([-1.])." in table
    assert shell.ip.user_ns["y"].tolist() == [-11]
    assert shell.report.sources[0].name == "Cell In[1]"


def test_the_frontends_option_compares_a_function_that_a_cell_compiles(shell: Shell) -> None:
    shell.run(f"%%compile_explain --frontends\n{BRANCH}c = torch.compile(f, backend='eager')\ny = c(torch.ones(1))")
    assert frontend_tables(shell)[0].startswith("front ends on f(x = tensor([1.]))")


def test_front_ends_compare_the_original_arguments_of_a_call_that_changes_them(shell: Shell) -> None:
    shell.run("import torch\nx = torch.ones(1)\ndef f(x):\n    x.add_(1)\n    return x * 2")
    shell.run("%compile_explain --frontends f(x)")
    assert frontend_tables(shell)[0].startswith("front ends on f(x = tensor([1.]))")
    assert shell.ip.user_ns["x"].tolist() == [2]


def test_front_ends_start_with_the_original_state_of_a_call_that_changes_it(shell: Shell) -> None:
    shell.run("import torch\nx = torch.ones(1)\nseen = {}\ndef f(x):\n    return x + seen.setdefault('first', x * 2)")
    shell.run("%compile_explain --frontends f(x), f(-x)")
    (table,) = frontend_tables(shell)
    assert "with x = tensor([-1.]): tensor([-3.]) instead of tensor([1.])" in table
    assert "A call changes seen, so each further input ran after a call with the first input." in table
    assert shell.ip.user_ns["seen"]["first"].tolist() == [2]


@pytest.mark.exhaustive
def test_the_frontends_option_compares_compiled_functions_and_methods(shell: Shell) -> None:
    shell.run(f"{BREAK}class A:\n    def g(self, x):\n        return x + 1\na = A()\nx = torch.ones(2)")
    shell.run("%compile_explain --frontends f(x)")
    assert " torch.compile                     right, with breaks   2 graphs, 1 break" in frontend_tables(shell)[0]
    shell.run("%compile_explain --frontends a.g(x)")
    assert frontend_tables(shell)[0].startswith("front ends on A.g(x = tensor([1., 1.]))")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%compile_explain --frontends\ny = 1", "the cell calls no function; write the call on a line"),
        ("%%compile_explain --frontends\nx = abs(-1)", "the cell calls none of your own functions"),
        ("%%compile_explain --frontends\nx = torch.ones(1)\nx = f(x)", "the cell calls none of your own functions"),
        ("%compile_explain --frontends f", "write f(x)"),
        ("%compile_explain --frontends f(1), abs(1)", "compares one function"),
    ],
)
def test_without_a_call_to_compare_the_message_shows_what_to_write(shell: Shell, cell: str, message: str) -> None:
    shell.run(BRANCH)
    shell.run(cell)
    errors = [line for line in shell.io.stderr.split("\n") if "UsageError" in line]
    assert len(errors) == 1
    assert message in errors[0]
    assert frontend_tables(shell) == []


def test_front_ends_of_a_cell_that_fails_are_not_compared(shell: Shell) -> None:
    result = shell.run(f"%%compile_explain --frontends\n{BRANCH}f(torch.ones(1))\n1 / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert frontend_tables(shell) == []
    assert shell.report.status == "error"


@pytest.mark.parametrize(
    ("module", "function", "options"),
    [
        ("experiments.frontends", "copy_for_comparison", "--frontends"),
        ("recording.targets", "forget_compiled_code", ""),
        ("recording.targets", "is_compiled", ""),
        ("compiling.compile_options", "ensure_compiled", ""),
    ],
)
def test_an_internal_error_does_not_prevent_the_call_of_a_line_magic(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, module: str, function: str, options: str
) -> None:
    shell.run("import torch\nmade = []\ndef f(x):\n    made.append(x)\n    return x * 2")

    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr(f"jupyter_graphbreak.{module}.{function}", fail)
        result = shell.run(f"%compile_explain {options} f(torch.ones(1))")
    assert result.error_in_exec is None
    assert result.result.tolist() == [2]
    assert len(shell.ip.user_ns["made"]) == 1
    assert any("(RuntimeError: a fault)" in note.message for note in shell.report.diagnostics)


def test_a_cell_that_compiles_nothing_keeps_its_generators(shell: Shell) -> None:
    shell.run("import torch\ndef echo():\n    got = yield 0\n    while True:\n        got = yield got * 2")
    shell.run("def started(x):\n    y = x + 1\n    g = echo(); next(g)\n    print(g.send(2))\n    return g, y * 2")
    shell.run("%%compile_explain\ng, y = started(torch.ones(2))")
    assert shell.io.stdout == "4\n"
    assert type(shell.ip.user_ns["g"]).__name__ == "generator"
    assert shell.ip.user_ns["g"].send(3) == 6
    assert any("a generator is in use" in skipped.reason for skipped in shell.report.skipped)


@pytest.mark.parametrize(
    "code",
    [
        "y = t + 1\nprint(y)",
        "def f(t):\n    match t:\n        case torch.Tensor(shape=s): print(s)\n        case {'k': 1}: pass\ny = f(t)",
        "print(type(t))\nf = torch.nn.Linear(2, 2)\nf(t)\nprint(2)\n1 / 0",
    ],
)
def test_no_name_of_dynamo_stays_in_the_notebook(shell: Shell, code: str) -> None:
    shell.run("import torch\nt = torch.ones(2)\nsize = y = f = None")
    names_before = {name for name in shell.ip.user_ns if not re.fullmatch(r"_i?\d*|_i+", name)}
    shell.run(f"%%compile_explain\n{code}")
    assert shell.report.frames
    assert {name for name in shell.ip.user_ns if not re.fullmatch(r"_i?\d*|_i+", name)} - names_before == set()


def test_a_traceback_names_all_parameters_of_a_function_that_broke_before(shell: Shell) -> None:
    define = "def f(x, *rest, flag=True, **more):\n    if x.sum() > 1 and flag:\n        z += 1\n    return x\n"
    signatures = []
    for first_line in ("#", "%%compile_explain"):
        shell.run(f"{first_line}\nimport torch\n{define}y = torch.ones(2) + 1\nf(y, 3, other=4)")
        output = re.sub(r"\x1b\[[0-9;]*m", "", shell.io.stdout)
        signatures.append(re.findall(r"line \d+, in (f\(.*\))", output))
    assert signatures == [["f(x, flag, *rest, **more)"]] * 2
    assert shell.report.frames


TWO_BREAKS = """import torch
@torch.compile(backend="eager")
def g(x):
    torch._dynamo.graph_break()
    torch._dynamo.graph_break()
    return x - 1
"""
CALLED_MODULE = """import torch
class Net(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x * 2
        return x + 1
net = Net()
net(torch.ones(3))"""


def test_a_different_thread_can_record_while_a_cell_is_explained(shell: Shell) -> None:
    shell.run(TWO_BREAKS)
    compiled_g, has_begun, may_end = shell.ip.user_ns["g"], threading.Event(), threading.Event()
    reports: list[Report] = []

    def work() -> None:
        with jupyter_graphbreak.capture() as run:
            has_begun.set()
            may_end.wait()
            compiled_g(torch.ones(3))
        reports.append(run.report)

    thread = threading.Thread(target=work)
    thread.start()
    has_begun.wait()
    shell.run(f"%%compile_explain\n{CALLED_MODULE}")
    explained_report = shell.report
    shell.run(f"%%compile_explain\n{BREAK}f(torch.ones(3))")
    may_end.set()
    thread.join()
    assert [compiled.name for compiled in explained_report.compiled or ()] == ["net"]
    assert (explained_report.summary.breaks, shell.report.summary.breaks) == (1, 1)
    assert [break_.location.code for break_ in reports[0].breaks if break_.location is not None] == [
        "torch._dynamo.graph_break()"
    ] * 2


NAN = """\
%%compile_explain --at 4 -o report
def f(x):
    y = x + 1
    z = (x - 1).log()
    return z.sum() + y
f(torch.zeros(2))"""


def test_values_of_a_line_are_shown(shell: Shell) -> None:
    shell.run("import torch")
    shell.run(NAN)
    (values,) = shell.report.values or []
    assert [(line.op.rpartition(".")[2], line.location.line) for line in values.lines] == [("sub", 4), ("log", 4)]
    assert [(first.kind, first.location and first.location.line, first.eager) for first in values.first] == [
        ("nan", 4, "same")
    ]
    section = next(section for section in build_rows(shell.report).sections if section.id == "value")
    assert [(row.beside, row.spot and row.spot.line) for row in section.rows] == [
        ("NaN begins here", 4),
        ("2 float32, all -1", 4),
        ("2 float32, 2 NaN of 2", 4),
    ]
    shell.run("%%compile_explain --at f\n1")
    assert "UsageError: --at 'f' is not a line: use, for example, 12 or model.py:12" in shell.io.stderr


@pytest.mark.exhaustive
def test_scripts_of_a_cell_are_written_and_run_alone(shell: Shell) -> None:
    shell.run(BREAK)
    shell.run("%%compile_explain --repro -o report\nf(torch.ones(3))")
    (reproducer,) = shell.report.reproducers or []
    assert reproducer.script is not None, reproducer.reason
    assert "torch._dynamo.graph_break()" in reproducer.script
    assert shell.report.reproducer("b1") == reproducer.script
    assert reproducer.issue is not None
    assert "### Versions" in reproducer.issue
    assert 'data-reproducer="0"' in shell.report.to_html()


@pytest.mark.parametrize("options", ["", "--try", "--check"])
def test_other_threads_notice_nothing_of_an_explained_cell(shell: Shell, options: str) -> None:
    """Calls to the same module on another thread are not compiled and run no changed code."""
    shell.run(CALLED_MODULE)
    net, has_begun, may_end = shell.ip.user_ns["net"], threading.Event(), threading.Event()
    values: list[Any] = []

    def work() -> None:
        while not may_end.wait(0.001):  # without a pause, this thread would slow the cell down
            values.append(net(torch.ones(3)).tolist())
            has_begun.set()

    thread = threading.Thread(target=work)
    thread.start()
    has_begun.wait()
    shell.run(f"%%compile_explain {options}\nnet(torch.ones(3))")
    may_end.set()
    thread.join()
    assert shell.report.summary.breaks == 1
    assert all(value == [3.0, 3.0, 3.0] for value in values)
    assert shell.ip.user_ns["_"].tolist() == [3.0, 3.0, 3.0]
