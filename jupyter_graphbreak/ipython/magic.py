"""Register ``%%compile_explain`` and ``%compile_explain`` with IPython, and explain the call on a line."""

from __future__ import annotations

import argparse
import ast
import os
import sys
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.getipython import get_ipython
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from jupyter_graphbreak.faults import suppress_faults, with_fallback
from jupyter_graphbreak.ipython.calls import FrontendComparison, evaluate_without_calling
from jupyter_graphbreak.ipython.cell.mentions import mentioned_objects
from jupyter_graphbreak.ipython.cell.rewriting import MAGIC, CellRewriter, replace_magic_line, without_magic_line
from jupyter_graphbreak.ipython.cell.texts import CellTexts
from jupyter_graphbreak.ipython.cell_run import CellRuns
from jupyter_graphbreak.ipython.observation import Observation
from jupyter_graphbreak.ipython.options import read_options
from jupyter_graphbreak.ipython.output import LiveOutputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_graphbreak.ipython.cell.rewriting import Plan
    from jupyter_graphbreak.ipython.options import Options

_LOADED_MAGICS: dict[int, CompileExplain] = {}


def load(shell: InteractiveShell) -> None:
    """Register the magics with a shell, unless they are already registered."""
    if id(shell) not in _LOADED_MAGICS:
        _LOADED_MAGICS[id(shell)] = magic = CompileExplain(shell)
        magic.connect()


def answer_requests(shell: InteractiveShell) -> None:
    """Load the extension for a front end that requests reports in the metadata of its execute requests."""
    if not hasattr(shell, "get_parent"):
        raise UsageError("this kernel does not pass on the metadata of requests")
    load(shell)


def unload(shell: InteractiveShell) -> None:
    """Remove the magics and their callbacks."""
    magic = _LOADED_MAGICS.pop(id(shell), None)
    if magic is not None:
        magic.disconnect()


# The functions that a rewritten cell calls; see :mod:`jupyter_graphbreak.ipython.cell.rewriting`.


def _begin(
    line: str,
    plan: Plan,
    cell_magic: str,
    only_torch: bool,  # noqa: FBT001 - rewritten cells pass it by position
    edited_cells: tuple[tuple[str, str], ...] = (),
) -> None:
    """Begin to observe the cell that calls this function."""
    filename = sys._getframe(2).f_code.co_filename  # noqa: SLF001 - the caller of with_fallback is the cell
    magic = _loaded_magic()
    options = read_options(magic.parser, line)
    magic.runs.begin(options, plan, cell_magic, filename, only_torch=only_torch, edited_cells=edited_cells)


def _cell_caller(name: str, bound_names: tuple[str, ...] | None = None) -> Callable[[], Any]:
    """Return a function that calls the observed cell's function, compiled if possible."""
    return _loaded_magic().runs.cell_caller(name, bound_names)


def _uncompiled_cell_caller(name: str, _: tuple[str, ...] | None = None) -> Callable[[], Any]:
    shell: Any = get_ipython()
    function: Callable[[], Any] = shell.user_ns.pop(name)
    return function


def _trim_traceback() -> None:
    """Make the traceback of the current error look like that of an ordinary cell."""
    error = sys.exc_info()[1]
    if error is not None:
        from jupyter_graphbreak.compiling.tracebacks import trim_error

        trim_error(error)


def _strip_own_frame() -> None:
    """Remove the frame that called the cell as a function from the traceback of the current error."""
    error = sys.exc_info()[1]
    if error is not None and error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


def _prepare_repeat() -> bool:
    """Prepare to run the cell again unchanged, and return true, if a graph of its function raised the current error."""
    error = sys.exc_info()[1]
    return isinstance(error, Exception) and _loaded_magic().runs.prepare_repeat(error)


def _should_repeat() -> bool:
    return _loaded_magic().runs.should_repeat()


begin = with_fallback("watching the cell", _begin, lambda *_: None, errors_to_raise=(UsageError,))
cell_caller = with_fallback("compiling the cell", _cell_caller, _uncompiled_cell_caller)
trim_traceback = with_fallback("hiding the frames of the compiler", _trim_traceback, _strip_own_frame)
prepare_repeat = with_fallback("running the cell again", _prepare_repeat, lambda: False)
should_repeat = with_fallback("running the cell again", _should_repeat, lambda: False)
#: The values of cells that run as functions, until they are displayed.
values: list[Any] = []


def _loaded_magic() -> CompileExplain:
    magic = _LOADED_MAGICS.get(id(get_ipython()))
    if magic is None:
        raise UsageError("the extension is not loaded: %load_ext jupyter_graphbreak")
    return magic


#: If :func:`replace_magic_line` fails, the cell runs without the magic.
_replace_magic_line = with_fallback("reading the cell", replace_magic_line, without_magic_line)


@magics_class
class CompileExplain(Magics):
    """Explain what torch.compile does with a cell."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._ip = shell  # the declared type of self.shell allows None
        self._cells = CellTexts(shell)
        self._live_outputs = LiveOutputs()
        self.runs = CellRuns(shell, self._cells, self._live_outputs)
        self._is_running_cell = False
        self._ast_transformer: Any = CellRewriter(  # IPython only needs visit()
            self.runs.uses_compile,
            self.runs.magic_runs_code,
            self.runs.pop_request,
            shell.user_ns,
            self._suspend_transformer,
        )
        # The callbacks around a cell, shielded because IPython would show their errors to the user.
        self._callbacks = {
            "pre_execute": with_fallback(
                "preparing for the cell",
                self._add_transformer,
                lambda: shell.ast_transformers.append(self._ast_transformer),
            ),
            "pre_run_cell": with_fallback("reading the request", self.runs.read_request, lambda _: None),
            "post_run_cell": with_fallback("building the report", self.runs.end, self.runs.undo_observation),
        }

    @property
    def parser(self) -> argparse.ArgumentParser:
        """The parser of the magic's options."""
        parser: argparse.ArgumentParser = type(self).compile_explain.parser
        return parser

    def connect(self) -> None:
        """Register with the shell."""
        self._ip.register_magics(self)
        self._ip.input_transformers_cleanup.insert(0, _replace_magic_line)
        for event, callback in self._callbacks.items():
            self._ip.events.register(event, callback)

    def disconnect(self) -> None:
        """Remove everything that :meth:`connect` registered, and end the current observation."""
        self.runs.end(None)
        self._ip.input_transformers_cleanup.remove(_replace_magic_line)
        self._remove_transformer()
        for event, callback in self._callbacks.items():
            self._ip.events.unregister(event, callback)
        for kind in ("line", "cell"):
            self._ip.magics_manager.magics[kind].pop("compile_explain", None)

    def _add_transformer(self) -> None:
        """Add our transformer at the end, so that it receives the cell after all others."""
        self._remove_transformer()
        self._ip.ast_transformers.append(self._ast_transformer)

    def _suspend_transformer(self) -> None:
        """If our transformer is the last one, remove it before IPython checks whether there are transformers.

        If there are some, IPython walks the whole cell recursively (``ast.fix_missing_locations``), which fails for a
        sum of a thousand terms. IPython is iterating over the list now and would skip the transformer after a
        removed one.
        """
        if self._ip.ast_transformers[-1:] == [self._ast_transformer]:
            self._ip.ast_transformers.pop()

    def _remove_transformer(self) -> None:
        if self._ast_transformer in self._ip.ast_transformers:
            self._ip.ast_transformers.remove(self._ast_transformer)

    @magic_arguments()
    @argument(
        "-d", "--device", default="auto", metavar="DEVICE",
        help="The device: auto (the default: the kernel's CUDA device, unless the cell uses a tensor or a model on the "
        "CPU), cpu, cuda or cuda:N.",
    )  # fmt: skip
    @argument(
        "-b", "--backend", default=None, metavar="NAME",
        help="The backend for everything that is compiled while the cell runs, including by the cell's own calls to "
        "torch.compile. By default, those calls keep their backends and the magic compiles with eager, which has the "
        "same graphs and breaks but generates no code; with --mode, --cost or --check, the magic compiles with "
        "inductor.",
    )  # fmt: skip
    @argument("--fullgraph", action="store_true", help="Compile with fullgraph=True: a break is an error.")
    @argument(
        "--mode", default=None, metavar="MODE",
        help="Compile with this mode of torch.compile; without --backend, this uses the backend inductor.",
    )  # fmt: skip
    @argument(
        "--dynamic", default=None, choices=["true", "false"],
        help="Compile with dynamic=True or dynamic=False; by default, PyTorch makes a size dynamic when it changes.",
    )  # fmt: skip
    @argument(
        "--frontends", action="store_true",
        help="Compare how torch.jit, torch.fx, torch.compile and torch.export capture the called function. "
        "Further calls give more inputs: %%compile_explain --frontends f(x), f(-x)",
    )  # fmt: skip
    @argument(
        "-o", "--output", default=None, metavar="NAME",
        help="Store the report in this variable; with --frontends, store the comparison; its .report is the report.",
    )  # fmt: skip
    @argument(
        "--processes", action="store_true",
        help="Also explain the processes that the cell starts: workers of a data loader, ranks of a distributed run.",
    )  # fmt: skip
    @argument(
        "--try",
        dest="remedies",
        action="store_true",
        help="Try changes to code and settings that may remove breaks and recompiles; each change runs on copies and "
        "is compared with the original.",
    )
    @argument(
        "--patch", default=None, metavar="PATH",
        help="Try only your own change, given as a unified diff; with --try, it is tried before all other changes.",
    )  # fmt: skip
    @argument(
        "--cost",
        action="store_true",
        help="Measure what compiling costs and saves: compiled calls alternate with eager ones, on copies.",
    )
    @argument(
        "--check",
        action="store_true",
        help="Compare compiled results with eager ones, and name the first operation that differs.",
    )
    @argument(
        "--values",
        action="store_true",
        help="Show the range of the values that each line computes inside compiled code, and where NaN and Inf arise, "
        "forward and backward.",
    )
    @argument(
        "--at", action="append", default=None, metavar="LINE",
        help="Like --values, but only for this line, operation by operation: 12 or model.py:12; can be repeated.",
    )  # fmt: skip
    @argument(
        "--repro",
        action="store_true",
        help="Write a standalone script for each break, recompile, error and wrong result; each is reduced and run.",
    )
    @argument(
        "--fresh",
        action="store_true",
        help="First forget everything that this kernel has compiled, so that runs can be compared; by default, only "
        "the functions that the cell mentions are compiled again.",
    )
    @argument(
        "--log", default=None, metavar="PATH",
        help="Explain the logs that a program wrote with TORCH_TRACE: a folder or a file.",
    )  # fmt: skip
    @argument("expression", nargs=argparse.REMAINDER, help="With %%compile_explain on a line: the call to explain.")
    @no_var_expand
    @line_cell_magic
    def compile_explain(self, line: str, cell: str | None = None) -> Any:
        """Run a cell, or one call, and explain what torch.compile did with it.

        ::

            %%compile_explain [options]       as the first line of a cell
            %compile_explain [options] f(x)   on a line: compiles f, calls it, returns its value
            %compile_explain --frontends f(x), f(-x)   compares the front ends on f, for x and -x
            %compile_explain --log PATH       explains logs that TORCH_TRACE wrote

        A cell whose code uses torch.compile runs unchanged. In any other cell, the magic compiles what the cell calls:
        the outermost call of each module, and your own functions that compute with tensors. A cell that only computes
        with tensors is compiled as one function. --fullgraph, --mode and --dynamic apply to what the magic compiles.
        The report shows every graph break once, on its line, with its reason; the graphs and the lines that they
        capture; and the code that runs eagerly, with the reason.
        """
        if cell is None:
            return explain_line(self._ip, self._cells, read_options(self.parser, line), self._live_outputs)
        # Another cell runs this cell as a string, or an internal error prevented replacing the magic's line.
        text = cell if self._is_running_cell else f"{MAGIC} {line}\n{cell}"
        self._is_running_cell = True
        try:
            result = self._ip.run_cell(text, store_history=False)
        finally:
            self._is_running_cell = False
        result.raise_error()
        return result.result


def explain_line(shell: InteractiveShell, cells: CellTexts, options: Options, live_outputs: LiveOutputs) -> Any:
    """Compile the function of a call, make the call and explain what happened; return the result.

    With ``--log``, explain a log instead, and return ``None``. A UsageError is raised if the line is not a call, or if
    the log cannot be read.
    """
    if options.log is not None:
        _explain_log(shell, options, options.log)
        return None
    from jupyter_graphbreak.compiling.compile_options import ensure_compiled
    from jupyter_graphbreak.recording.targets import forget_compiled_code, is_compiled

    tree, calls = _parse_calls(options)
    observation: Observation | None = None
    with suppress_faults("watching the call", errors_to_raise=(UsageError,)):
        cells.note_calling_cell()
        observation = Observation(shell, cells, options, mentioned_objects(tree, shell.user_ns), live_outputs)
    if observation is None:
        function, args, kwargs = evaluate_without_calling(calls[0], shell.user_ns)
        return function(*args, **kwargs)
    error_of_call: BaseException | None = None
    try:
        evaluated_calls = [evaluate_without_calling(call, shell.user_ns) for call in calls]
        function, args, kwargs = evaluated_calls[0]
        with suppress_faults("copying the inputs for the front ends", observation.note_fault):
            if options.frontends:
                observation.compare = FrontendComparison(shell, cells, options).prepare(evaluated_calls)
        with suppress_faults("compiling the function", observation.note_fault):
            if is_compiled(function):
                observation.ignore_compile_options("the function is already compiled")
            forget_compiled_code(function)
            function = ensure_compiled(function, options.compile_options())
        return function(*args, **kwargs)
    except BaseException as error:
        error_of_call = error
        raise
    finally:
        with suppress_faults("building the report", observation.report_failure):
            observation.close(error_of_call)
        with suppress_faults("undoing our changes"):
            observation.undo()


def _explain_log(shell: InteractiveShell, options: Options, path: str) -> None:
    """Show the report of trace logs, and store it if ``--output`` requests that."""
    from jupyter_graphbreak.api.saved import read_trace
    from jupyter_graphbreak.trace.log_files import UnreadableTrace

    if options.expression:
        raise UsageError(f"%compile_explain --log explains a log, not a call: leave out {options.expression!r}")
    try:
        report_or_job = read_trace(os.path.expanduser(path), progress=True)  # noqa: PTH111 - a Path would change a URL
    except (UnreadableTrace, OSError) as error:
        raise UsageError(str(error)) from None
    if options.output is not None:
        shell.user_ns[options.output] = report_or_job
    display(report_or_job)


def _parse_calls(options: Options) -> tuple[ast.Expression, list[ast.Call]]:
    """Return the line as a syntax tree, and its call; with ``--frontends``, its calls to one function."""
    text = options.expression
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise UsageError(f"%compile_explain cannot read {text!r}: {error.msg}") from None
    parts = tree.body.elts if options.frontends and isinstance(tree.body, ast.Tuple) else [tree.body]
    calls = [call for call in parts if isinstance(call, ast.Call)]
    if not calls or len(calls) < len(parts):
        raise UsageError(f"%compile_explain explains a call, but {text!r} is not a call: write f(x)")
    if len({ast.dump(call.func) for call in calls}) > 1:
        raise UsageError(f"--frontends compares one function, but {text!r} calls several")
    return tree, calls
