"""Make the errors of a program that was compiled for a report look like those of the uncompiled program."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import linecache
import os
import re
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.patching import report_to_run
from jupyter_graphbreak.analysis.python_text import hide_python_warnings, parse_python
from jupyter_graphbreak.records.attributes import is_hashable
from jupyter_graphbreak.records.package_paths import OWN_FOLDER
from jupyter_graphbreak.records.records import is_resume_name, original_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Folders whose frames only run compiled code.
_MACHINERY_FOLDERS = (str(Path(inspect.getfile(torch)).parent / "_dynamo") + os.sep, OWN_FOLDER)
#: The beginning of the file name of a graph's code.
_GRAPH_FILE_PREFIX = "<eval_with_key>"
#: The folder of the code that calls an Inductor or AOTAutograd graph.
_GRAPH_CALLER_FOLDER = str(Path(inspect.getfile(torch)).parent / "_functorch") + os.sep
_TESTED_RESUME_NAME = "torch_dynamo_resume_in_tested_at_1"
#: The qualified name of the wrapper around a function with disabled compilation, which also runs in uncompiled code.
_DISABLING_WRAPPER = "DisableContext.__call__.<locals>._fn"


def hide_compiler(error: BaseException) -> None:
    """Remove the compiler's frames from the traceback of an error and of the errors chained to it.

    The error must be handled in the frame that called the program's compiled code.
    """
    for chained_error in _chained_errors(error):
        entries = list(_traceback_entries(chained_error.__traceback__))
        if any(_is_machinery(tb) or is_resume_name(tb.tb_frame.f_code.co_name) for tb in entries):
            try:
                chained_error.__traceback__ = _relink([*_drop_machinery(_insert_program_lines(entries))])
            except Exception as fault:  # noqa: BLE001 - the traceback is still usable
                report_to_run("hiding the frames of the compiler", fault)


def check_hiding() -> None:
    """Hide the frames of an imitated compiler, so that an incompatibility shows before anything is compiled.

    The imitated function calls a resume function, which calls a graph, which raises an error. If the frames of the last
    two cannot be hidden, an AssertionError is raised.
    """
    filename = f"{__name__}.tested"
    function = compile(f"def tested(x):\n {_TESTED_RESUME_NAME}(x)\n", filename, "exec").co_consts[0]
    resume_code = compile(f"def {_TESTED_RESUME_NAME}(x):\n self(x)\n", filename, "exec").co_consts[0]
    graph_code = compile(
        "def forward(self, x):\n y: 'Any' = x.missing\n", f"{_GRAPH_FILE_PREFIX}.tested", "exec"
    ).co_consts[0]
    node = types.SimpleNamespace(name="y", stack_trace=f'File "{filename}", line 2, in {resume_code.co_name}')
    graph_module = types.SimpleNamespace(graph=types.SimpleNamespace(nodes=[node]))
    linecache.cache[graph_code.co_filename] = 1, None, ["def forward(self, x):\n", " y: 'Any' = x.missing\n"], ""
    try:
        namespace: dict[str, Any] = {"self": functools.partial(types.FunctionType(graph_code, {}), graph_module)}
        namespace[_TESTED_RESUME_NAME] = types.FunctionType(resume_code, namespace)
        types.FunctionType(function, namespace)(None)
    except AttributeError as error:
        failed_assertion(RuntimeError().with_traceback(error.__traceback__))
        entries = list(_drop_machinery(_insert_program_lines(list(_traceback_entries(error.__traceback__)))))
        names = [tb.tb_frame.f_code.co_name for tb in _traceback_entries(_relink(entries))]
        if names[-1] != function.co_name:
            raise AssertionError(f"the frames of the compiler cannot be hidden: {names}") from None
        is_hashable(function)
        _node_at(filename, (1, 0, 1, 0))
        trim_error(error)
        hide_compiler(error)
    finally:
        linecache.cache.pop(graph_code.co_filename, None)


def failed_assertion(error: BaseException) -> AssertionError | None:
    """Return the AssertionError of a failed ``assert`` in a graph, for which PyTorch raises a RuntimeError.

    For any other error, the result is ``None``.
    """
    if type(error) is not RuntimeError:
        return None
    last = list(_traceback_entries(error.__traceback__))[-1]
    if not last.tb_frame.f_code.co_filename.startswith(_GRAPH_FILE_PREFIX):
        return None
    line = linecache.getline(last.tb_frame.f_code.co_filename, last.tb_lineno)
    if "_assert_async" not in line and "_assert_scalar" not in line:
        return None
    message = str(error)
    assertion = AssertionError() if message == _DEFAULT_ASSERT_MESSAGE else AssertionError(message)
    return assertion.with_traceback(error.__traceback__)


#: The instruction index of a traceback entry if only its line is known.
_NO_INSTRUCTION = -1
#: The message that PyTorch gives to an ``assert`` without a message in a graph.
_DEFAULT_ASSERT_MESSAGE = "assertion error"
_ASSIGNED_NAME = re.compile(r"\s*(\w+)\s*(?::[^=]*)?=")
_USER_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)')


def _insert_program_lines(entries: list[types.TracebackType]) -> list[types.TracebackType]:
    """Return entries with the program's lines instead of the line that called the graph."""
    new_entries: list[types.TracebackType] = []
    for tb in entries:
        stack = stack_of_graph_line(tb.tb_frame, tb.tb_lineno)
        caller = next(
            (index for index in range(len(new_entries) - 1, -1, -1) if not _is_machinery(new_entries[index])), None
        )
        if stack and caller is not None:
            caller_entry = new_entries[caller]
            (_, line, _), *inlined_lines = stack
            stand_ins = [_entry_at_line(caller_entry, name, filename, line) for filename, line, name in inlined_lines]
            new_entries[caller:] = [
                types.TracebackType(None, caller_entry.tb_frame, _NO_INSTRUCTION, line),
                *(stand_in for stand_in in stand_ins if stand_in is not None),
            ]
        new_entries.append(tb)
    return new_entries


def stack_of_graph_line(frame: types.FrameType, line: int) -> list[tuple[str, int, str]]:
    """Return the stack (file, line, function) of the operation on a line of a graph's code, outermost first."""
    if not frame.f_code.co_filename.startswith(_GRAPH_FILE_PREFIX):
        return []
    assignment = _ASSIGNED_NAME.match(linecache.getline(frame.f_code.co_filename, line))
    graph = getattr(frame.f_locals.get("self"), "graph", None)
    if assignment is None or graph is None:
        return []
    stack = next((node.stack_trace for node in graph.nodes if node.name == assignment[1]), None) or ""
    return [(match["file"], int(match["line"]), match["name"]) for match in _USER_LINE.finditer(stack)]


def _entry_at_line(tb: types.TracebackType, name: str, filename: str, line: int) -> types.TracebackType | None:
    """Return a traceback entry for a line of an inlined function, because such a function has no frame."""
    line_range = ast.Pass(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)
    raise_statement = ast.copy_location(
        ast.Raise(ast.copy_location(ast.Name("StopIteration", ast.Load()), line_range), None), line_range
    )
    code = compile(ast.Module([raise_statement], []), filename, "exec").replace(co_name=name, co_qualname=name)
    try:
        exec(code, tb.tb_frame.f_globals, {})  # noqa: S102 - runs the statement above
    except StopIteration as error:
        own_traceback = error.__traceback__
        return own_traceback.tb_next if own_traceback is not None else None
    return None


def is_raised_in_graph(error: BaseException) -> bool:
    """Return whether a captured graph raised an error while it ran."""
    filenames = [tb.tb_frame.f_code.co_filename for tb in _traceback_entries(error.__traceback__)]
    return any(filename.startswith((_GRAPH_FILE_PREFIX, _GRAPH_CALLER_FOLDER)) for filename in filenames)


def trim_error(error: BaseException) -> None:
    """Remove frames that a plain run would not have from the tracebacks of an error and of its chained errors.

    These are the frames between the notebook and the cell, and Dynamo's frames. A resume function is shown as the
    function that it resumes. The error must be handled in the cell's own code.
    """
    if error.__traceback__ is None:
        return
    filename = error.__traceback__.tb_frame.f_code.co_filename
    for chained_error in _chained_errors(error):
        chained_error.__traceback__ = _trim_traceback(chained_error.__traceback__, filename)


def _chained_errors(error: BaseException) -> Iterator[BaseException]:
    pending: list[BaseException | None] = [error]
    yielded_ids: set[int] = set()
    while pending:
        chained_error = pending.pop()
        if chained_error is not None and id(chained_error) not in yielded_ids:
            yielded_ids.add(id(chained_error))
            yield chained_error
            pending += [chained_error.__cause__, chained_error.__context__]


def _trim_traceback(traceback: types.TracebackType | None, filename: str) -> types.TracebackType | None:
    entries = list(_drop_machinery(_insert_program_lines(list(_traceback_entries(traceback)))))
    first = next((i for i, tb in enumerate(entries) if _is_cell(tb, filename)), None)
    if first is None:
        return traceback  # raised elsewhere, and chained to an error of the cell
    return _relink(entries[first:])


def _relink(entries: list[types.TracebackType]) -> types.TracebackType | None:
    """Return a traceback from entries, with resume functions merged into the functions that they resume."""
    frames: list[tuple[types.TracebackType, types.CodeType]] = []  # entry, code of the function
    for tb in entries:
        if frames and _resumes(tb, frames[-1][0]):
            frames[-1] = (tb, frames[-1][1])
        else:
            frames.append((tb, tb.tb_frame.f_code))
    traceback = None
    for tb, code in reversed(frames):
        traceback = _link(tb, code, traceback)
    return traceback


def _traceback_entries(traceback: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _drop_machinery(entries: list[types.TracebackType]) -> Iterator[types.TracebackType]:
    for tb, next_tb in itertools.zip_longest(entries, entries[1:]):
        code = tb.tb_frame.f_code
        is_disabled_call = code.co_qualname == _DISABLING_WRAPPER and (next_tb is None or not _is_machinery(next_tb))
        if is_disabled_call or not _is_machinery(tb):
            yield tb


def _is_machinery(tb: types.TracebackType) -> bool:
    return tb.tb_frame.f_code.co_filename.startswith((_GRAPH_FILE_PREFIX, *_MACHINERY_FOLDERS))


def _is_cell(tb: types.TracebackType, filename: str) -> bool:
    """Return whether an entry is in the function of the cell, or in a resume function of it."""
    code = tb.tb_frame.f_code
    is_function = is_resume_name(code.co_name) or bool(code.co_flags & inspect.CO_NEWLOCALS)
    return code.co_filename == filename and original_name(code.co_name) == "<module>" and is_function


def _resumes(tb: types.TracebackType, caller: types.TracebackType) -> bool:
    code, caller_code = tb.tb_frame.f_code, caller.tb_frame.f_code
    is_same_function = (
        original_name(code.co_name) == original_name(caller_code.co_name)
        and code.co_filename == caller_code.co_filename
    )
    return is_resume_name(code.co_name) and is_same_function


def _link(
    tb: types.TracebackType, function_code: types.CodeType, next_tb: types.TracebackType | None
) -> types.TracebackType:
    """Return an entry linked to the following one; for a cell or for Dynamo's code, a stand-in.

    Stand-ins are also necessary because IPython hashes the code of each frame, and Dynamo's code may be unhashable.
    """
    code = tb.tb_frame.f_code
    needs_stand_in = tb.tb_lasti == _NO_INSTRUCTION or not is_hashable(code)
    if needs_stand_in or original_name(code.co_name) == "<module>" or is_resume_name(code.co_name):
        stand_in = _stand_in(tb, function_code)
        if stand_in is not None:
            return types.TracebackType(next_tb, stand_in.tb_frame, stand_in.tb_lasti, stand_in.tb_lineno)
    return types.TracebackType(next_tb, tb.tb_frame, max(tb.tb_lasti, 0), tb.tb_lineno)


@hide_python_warnings()
def _stand_in(tb: types.TracebackType, function_code: types.CodeType) -> types.TracebackType | None:
    """Return a traceback entry for the same position in the code, with the user's name of the function."""
    frame = tb.tb_frame
    filename, name = frame.f_code.co_filename, original_name(frame.f_code.co_name)
    statement = _raising_statement(tb)
    namespace: dict[str, Any] = {_RAISER_NAME: _Raiser()}
    try:
        if name == "<module>":
            code = compile(ast.Module([statement], []), filename, "exec")
            exec(code, frame.f_globals, namespace)  # noqa: S102 - runs the statement above
        else:
            args, kwargs = _call_arguments(function_code, frame.f_locals)
            definition = _stand_in_function(statement, function_code)
            code = compile(ast.Module([definition], []), filename, "exec")
            namespace = {**frame.f_globals, **namespace}
            exec(code, namespace)  # noqa: S102 - runs the statement above
            stand_in = namespace["stand_in"]
            stand_in.__code__ = stand_in.__code__.replace(co_name=name, co_qualname=name)
            stand_in(*args, **kwargs)
    except StopIteration as error:
        own_traceback = error.__traceback__
        return own_traceback.tb_next if own_traceback is not None else None
    return None


_RAISER_NAME = "raiser"


class _Raiser:
    """Raises ``StopIteration`` in each operation that :func:`_node_at` creates."""

    def _raise(self, *_: object) -> Any:
        raise StopIteration

    __call__ = __getattr__ = __getitem__ = __neg__ = __pos__ = __invert__ = _raise
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = _raise
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _raise
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _raise


def _raising_statement(tb: types.TracebackType) -> ast.stmt:
    """Return a statement that raises in the source range of an entry's instruction.

    If possible, it is the same kind of expression as in the source, so that tools can mark the failing part of a line.
    """
    positions = tb.tb_frame.f_code.co_positions()
    position = next(itertools.islice(positions, max(tb.tb_lasti, 0) // 2, None), (None, None, None, None))
    line, end_line, column, end_column = (number if number is not None else -1 for number in position)
    raising_statement: ast.stmt = ast.Raise(ast.Name("StopIteration", ast.Load()), None)
    if line != tb.tb_lineno or min(end_line, column, end_column) < 0:
        line = end_line = tb.tb_lineno
        column = end_column = 0
    else:
        node = _node_at(tb.tb_frame.f_code.co_filename, (line, column, end_line, end_column))
        raising_statement = ast.Expr(node) if node is not None else raising_statement
    for part in ast.walk(raising_statement):
        if isinstance(part, ast.stmt | ast.expr):
            part.lineno, part.end_lineno, part.col_offset, part.end_col_offset = line, end_line, column, end_column
    last_line = tb.tb_frame.f_lineno
    if last_line is None or last_line == line:
        return raising_statement
    # The frame continued to a different line, for example to leave a with block, and IPython shows that line.
    last = ast.Pass(lineno=last_line, end_lineno=last_line, col_offset=0, end_col_offset=0)
    return ast.copy_location(ast.Try([raising_statement], [], [], [last]), raising_statement)


def _node_at(filename: str, source_range: tuple[int, int, int, int]) -> ast.expr | None:
    """Return the expression in a range of a file, with operands that raise; ``None`` if its kind is unsupported."""
    tree = parse_python("".join(linecache.getlines(filename)))
    raiser = ast.Name(_RAISER_NAME, ast.Load())
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.expr):
            continue
        if (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset) != source_range:
            continue
        match node:
            case ast.BinOp(op=op):
                return ast.BinOp(raiser, op, ast.Constant(0))
            case ast.Call():
                return ast.Call(raiser, [], [])
            case ast.Attribute(attr=attr, ctx=ast.Load()):
                return ast.Attribute(raiser, attr, ast.Load())
            case ast.Subscript(ctx=ast.Load()):
                return ast.Subscript(raiser, ast.Constant(0), ast.Load())
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert() as op):
                return ast.UnaryOp(op, raiser)
            case ast.Compare(ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()] as ops):
                return ast.Compare(raiser, ops, [ast.Constant(0)])
    return None


def _parameters(function_code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...], str | None, str | None]:
    """Return the names of a function's parameters: positional, keyword-only, ``*`` and ``**``."""
    names = iter(function_code.co_varnames)
    positional_names = tuple(itertools.islice(names, function_code.co_argcount))
    keyword_only_names = tuple(itertools.islice(names, function_code.co_kwonlyargcount))
    args_name = next(names) if function_code.co_flags & inspect.CO_VARARGS else None
    return (
        positional_names,
        keyword_only_names,
        args_name,
        next(names) if function_code.co_flags & inspect.CO_VARKEYWORDS else None,
    )


def _call_arguments(function_code: types.CodeType, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a function call from the variables of its frame."""
    positional_names, keyword_only_names, args_name, kwargs_name = _parameters(function_code)
    args = [*(values.get(name) for name in positional_names), *(values.get(args_name, ()) if args_name else ())]
    kwargs = dict(values.get(kwargs_name, {}) if kwargs_name else {})
    return args, {**kwargs, **{name: values.get(name) for name in keyword_only_names}}


def _stand_in_function(statement: ast.stmt, function_code: types.CodeType) -> ast.FunctionDef:
    line = function_code.co_firstlineno
    line_range = ast.Pass(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)

    def parameter(name: str) -> ast.arg:
        return ast.copy_location(ast.arg(name), line_range)

    positional_names, keyword_only_names, args_name, kwargs_name = _parameters(function_code)
    args = ast.arguments(
        posonlyargs=[],
        args=[parameter(name) for name in positional_names],
        vararg=parameter(args_name) if args_name is not None else None,
        kwonlyargs=[parameter(name) for name in keyword_only_names],
        kw_defaults=[None for _ in keyword_only_names],
        kwarg=parameter(kwargs_name) if kwargs_name is not None else None,
        defaults=[],
    )
    definition = ast.FunctionDef("stand_in", args, [statement], [])
    if "type_params" in ast.FunctionDef._fields:  # Python 3.12
        setattr(definition, "type_params", [])  # noqa: B010 - Python 3.11's types lack the attribute
    return ast.copy_location(definition, line_range)
