"""The magic on a line: compile the function of one call, make the call, and explain it."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from jupyter_graphbreak.faults import suppress_faults
from jupyter_graphbreak.ipython.calls import FrontendComparison, evaluate
from jupyter_graphbreak.ipython.namespace import named_in
from jupyter_graphbreak.ipython.observation import Observation

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_graphbreak.ipython.cell.texts import CellTexts
    from jupyter_graphbreak.ipython.options import Options
    from jupyter_graphbreak.ipython.output import LiveOutputs


def explain_line(shell: InteractiveShell, cells: CellTexts, options: Options, live: LiveOutputs) -> Any:
    """Compile the function of a call, make the call and explain what happened; return the result.

    Raises
    ------
    UsageError
        If the line is not a call.
    """
    if options.log is not None:
        _explain_log(shell, options, options.log)
        return None
    from jupyter_graphbreak.compiling.compile_options import ensure_compiled
    from jupyter_graphbreak.recording.targets import forget, is_compiled

    tree, calls = _calls(options)
    observation: Observation | None = None
    with suppress_faults("watching the call", passing=(UsageError,)):
        cells.enter_caller()
        observation = Observation(shell, cells, options, named_in(tree, shell.user_ns), live)
    if observation is None:
        function, arguments, keywords = evaluate(calls[0], shell.user_ns)
        return function(*arguments, **keywords)
    failed: BaseException | None = None
    try:
        evaluated = [evaluate(call, shell.user_ns) for call in calls]
        function, arguments, keywords = evaluated[0]
        with suppress_faults("copying the inputs for the front ends", observation.note_fault):
            if options.frontends:
                observation.compare = FrontendComparison(shell, cells, options).prepared(evaluated)
        with suppress_faults("compiling the function", observation.note_fault):
            if is_compiled(function):
                observation.ignore_compile_options("the function is already compiled")
            forget(function)
            function = ensure_compiled(function, options.for_compile())
        return function(*arguments, **keywords)
    except BaseException as error:
        failed = error
        raise
    finally:
        with suppress_faults("making the report", observation.report_failure):
            observation.close(failed)
        with suppress_faults("undoing what the run needed"):
            observation.undo()


def _explain_log(shell: InteractiveShell, options: Options, path: str) -> None:
    """Show the report of trace logs, and store it if requested."""
    from jupyter_graphbreak.api.saved import read_trace
    from jupyter_graphbreak.trace.processes import UnreadableTrace

    if options.expression:
        raise UsageError(f"%compile_explain --log explains a log, not a call: leave out {options.expression!r}")
    try:
        folders = [Path(folder).expanduser() for folder in options.sources or ()]
        explained = read_trace(
            os.path.expanduser(path),  # noqa: PTH111 - a Path would change a URL
            sources=folders,
            progress=not options.quiet,
        )
    except (UnreadableTrace, OSError) as error:
        raise UsageError(str(error)) from None
    if options.output is not None:
        shell.user_ns[options.output] = explained
    if not options.quiet:
        display(explained)


def _calls(options: Options) -> tuple[ast.Expression, list[ast.Call]]:
    """Return the line as a syntax tree, and the calls in it: one, or with ``--frontends`` several of one function."""
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
