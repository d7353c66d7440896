"""Make the error of a program that was compiled for a report look like that of the program itself."""

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

from jupyter_graphbreak._torch_compat.patching import tell_fault
from jupyter_graphbreak.analysis.source.python_text import parse_python, without_warnings
from jupyter_graphbreak.recording.records import is_resume, plain_function

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Where the frames lie that carry compiled code, and the code of a graph itself.
_CARRIERS = (str(Path(inspect.getfile(torch)).parent / "_dynamo") + os.sep, str(Path(__file__).parents[1]) + os.sep)
_GRAPH = "<eval_with_key>"
_RESUMED = "torch_dynamo_resume_in_rehearsed_at_1"
#: What calls a function that is not to be compiled, whether the code that calls it is compiled or not.
_DISABLING = "DisableContext.__call__.<locals>._fn"


def hide_compiler(error: BaseException) -> None:
    """Remove the frames of compiling from an error's traceback, and from those of the errors that it is chained to.

    Parameters
    ----------
    error : BaseException
        While it is handled in the frame of ours that called the program's code, compiled.
    """
    for chained in _chain(error):
        entries = list(_entries(chained.__traceback__))
        if any(_carries(entry) or is_resume(entry.tb_frame.f_code.co_name) for entry in entries):
            try:
                chained.__traceback__ = _relinked([*_without_carriers(_with_lines_of_graphs(entries))])
            except Exception as fault:  # noqa: BLE001 - then it keeps some frames more
                tell_fault("hiding the frames of the compiler", fault)


def rehearse_hiding() -> None:
    """Hide a compiler that is not there, so that what fails of it fails before anything is compiled.

    The error comes from a graph, in a resume function, in a compiled function.
    """
    filename = f"{__name__}.rehearsed"
    function = compile(f"def rehearsed(x):\n {_RESUMED}(x)\n", filename, "exec").co_consts[0]
    resumed = compile(f"def {_RESUMED}(x):\n self(x)\n", filename, "exec").co_consts[0]
    inside = compile("def forward(self, x):\n y: 'Any' = x.missing\n", f"{_GRAPH}.rehearsed", "exec").co_consts[0]
    node = types.SimpleNamespace(name="y", stack_trace=f'File "{filename}", line 2, in {resumed.co_name}')
    holder = types.SimpleNamespace(graph=types.SimpleNamespace(nodes=[node]))
    linecache.cache[inside.co_filename] = 1, None, ["def forward(self, x):\n", " y: 'Any' = x.missing\n"], ""
    try:
        scope: dict[str, Any] = {"self": functools.partial(types.FunctionType(inside, {}), holder)}
        scope[_RESUMED] = types.FunctionType(resumed, scope)
        types.FunctionType(function, scope)(None)
    except AttributeError as error:
        failed_assertion(RuntimeError().with_traceback(error.__traceback__))
        entries = list(_without_carriers(_with_lines_of_graphs(list(_entries(error.__traceback__)))))
        names = [entry.tb_frame.f_code.co_name for entry in _entries(_relinked(entries))]
        if names[-1] != function.co_name:
            raise AssertionError(f"the frames of the compiler cannot be hidden: {names}") from None
        _is_hashable(function)
        _node_at(filename, (1, 0, 1, 0))
        trim(error)
        hide_compiler(error)
    finally:
        linecache.cache.pop(inside.co_filename, None)


def failed_assertion(error: BaseException) -> AssertionError | None:
    """Return the error of an ``assert`` that failed in a graph, where PyTorch raises a RuntimeError instead of it."""
    if type(error) is not RuntimeError:
        return None
    last = list(_entries(error.__traceback__))[-1]
    if not last.tb_frame.f_code.co_filename.startswith(_GRAPH):
        return None
    line = linecache.getline(last.tb_frame.f_code.co_filename, last.tb_lineno)
    if "_assert_async" not in line and "_assert_scalar" not in line:
        return None
    message = str(error)
    assertion = AssertionError() if message == _NO_MESSAGE else AssertionError(message)
    return assertion.with_traceback(error.__traceback__)


#: The instruction of a traceback's entry whose place is its line alone.
_NO_INSTRUCTION = -1
#: What an ``assert`` without a message says in a graph.
_NO_MESSAGE = "assertion error"
_ASSIGNED = re.compile(r"\s*(\w+)\s*(?::[^=]*)?=")
_USER_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)')


def _with_lines_of_graphs(entries: list[types.TracebackType]) -> list[types.TracebackType]:
    """Return entries with the program's own lines in place of a graph's: the graph is called from one line of many."""
    found: list[types.TracebackType] = []
    for entry in entries:
        places = places_in_graph(entry.tb_frame, entry.tb_lineno)
        caller = next((at for at in range(len(found) - 1, -1, -1) if not _carries(found[at])), None)
        if places and caller is not None:
            calling = found[caller]
            (_, line, _), *inlined = places
            stand_ins = [_at_line(calling, name, filename, line) for filename, line, name in inlined]
            found[caller:] = [
                types.TracebackType(None, calling.tb_frame, _NO_INSTRUCTION, line),
                *(stand_in for stand_in in stand_ins if stand_in is not None),
            ]
        found.append(entry)
    return found


def places_in_graph(frame: types.FrameType, line: int) -> list[tuple[str, int, str]]:
    """Return file, line and function of the operation on a line of a graph's code, outermost first; else nothing."""
    if not frame.f_code.co_filename.startswith(_GRAPH):
        return []
    assigned = _ASSIGNED.match(linecache.getline(frame.f_code.co_filename, line))
    graph = getattr(frame.f_locals.get("self"), "graph", None)
    if assigned is None or graph is None:
        return []
    stack = next((node.stack_trace for node in graph.nodes if node.name == assigned[1]), None) or ""
    return [(place["file"], int(place["line"]), place["name"]) for place in _USER_LINE.finditer(stack)]


def _at_line(entry: types.TracebackType, name: str, filename: str, line: int) -> types.TracebackType | None:
    """Return the entry of a traceback for a line of a function that has no frame of its own."""
    at = ast.Pass(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)
    raising = ast.copy_location(ast.Raise(ast.copy_location(ast.Name("StopIteration", ast.Load()), at), None), at)
    code = compile(ast.Module([raising], []), filename, "exec").replace(co_name=name, co_qualname=name)
    try:
        exec(code, entry.tb_frame.f_globals, {})  # noqa: S102 - the statement above
    except StopIteration as raised:
        own = raised.__traceback__
        return own.tb_next if own is not None else None
    return None


def trim(error: BaseException) -> None:
    """Take out of an error's traceback, and of those that it is chained to, what a plain run does not have.

    These are the frames between the notebook and the cell's own, the frames of Dynamo, and resume functions, which
    stand for the function that they resume.

    Parameters
    ----------
    error : BaseException
        While it is handled in the cell's own code.
    """
    if error.__traceback__ is None:
        return
    filename = error.__traceback__.tb_frame.f_code.co_filename
    for chained in _chain(error):
        chained.__traceback__ = _trimmed(chained.__traceback__, filename)


def _chain(error: BaseException) -> Iterator[BaseException]:
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        chained = pending.pop()
        if chained is not None and id(chained) not in seen:
            seen.add(id(chained))
            yield chained
            pending += [chained.__cause__, chained.__context__]


def _trimmed(traceback: types.TracebackType | None, filename: str) -> types.TracebackType | None:
    entries = list(_without_carriers(_with_lines_of_graphs(list(_entries(traceback)))))
    first = next((i for i, entry in enumerate(entries) if _is_cell(entry, filename)), None)
    if first is None:
        return traceback  # it was raised elsewhere, and chained to an error of the cell
    return _relinked(entries[first:])


def _relinked(entries: list[types.TracebackType]) -> types.TracebackType | None:
    """Return a traceback of some entries, with each resume function as part of the function that it resumes."""
    kept: list[tuple[types.TracebackType, types.CodeType]] = []  # each with the code of the function itself
    for entry in entries:
        if kept and _resumes(entry, kept[-1][0]):
            kept[-1] = (entry, kept[-1][1])
        else:
            kept.append((entry, entry.tb_frame.f_code))
    trimmed = None
    for entry, code in reversed(kept):
        trimmed = _linked(entry, code, trimmed)
    return trimmed


def _entries(traceback: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _without_carriers(entries: list[types.TracebackType]) -> Iterator[types.TracebackType]:
    for entry, following in itertools.zip_longest(entries, entries[1:]):
        code = entry.tb_frame.f_code
        disables = code.co_qualname == _DISABLING and (following is None or not _carries(following))
        if disables or not _carries(entry):
            yield entry


def _carries(entry: types.TracebackType) -> bool:
    return entry.tb_frame.f_code.co_filename.startswith((_GRAPH, *_CARRIERS))


def _is_cell(entry: types.TracebackType, filename: str) -> bool:
    """Whether an entry is that of the cell as a function, or of what goes on with it after a break."""
    code = entry.tb_frame.f_code
    as_function = is_resume(code.co_name) or bool(code.co_flags & _NEW_LOCALS)
    return code.co_filename == filename and plain_function(code.co_name) == "<module>" and as_function


#: A function has locals of its own, a module has not (``inspect.CO_NEWLOCALS``).
_NEW_LOCALS = 0x0002


def _resumes(entry: types.TracebackType, caller: types.TracebackType) -> bool:
    code, calling = entry.tb_frame.f_code, caller.tb_frame.f_code
    same = plain_function(code.co_name) == plain_function(calling.co_name) and code.co_filename == calling.co_filename
    return is_resume(code.co_name) and same


def _linked(
    entry: types.TracebackType, function: types.CodeType, following: types.TracebackType | None
) -> types.TracebackType:
    """Return an entry that goes on with another one; of a cell or of code that Dynamo made a stand-in.

    Not only for its looks: IPython hashes the code of each frame, and Dynamo's has constants that have no hash.
    """
    code = entry.tb_frame.f_code
    is_made = entry.tb_lasti == _NO_INSTRUCTION or not _is_hashable(code)
    if is_made or plain_function(code.co_name) == "<module>" or is_resume(code.co_name):
        stand_in = _stand_in(entry, function)
        if stand_in is not None:
            return types.TracebackType(following, stand_in.tb_frame, stand_in.tb_lasti, stand_in.tb_lineno)
    return types.TracebackType(following, entry.tb_frame, max(entry.tb_lasti, 0), entry.tb_lineno)


def _is_hashable(code: types.CodeType) -> bool:
    try:
        hash(code)
    except TypeError:
        return False
    return True


@without_warnings()
def _stand_in(entry: types.TracebackType, function: types.CodeType) -> types.TracebackType | None:
    """Return the entry of a traceback whose code raises at the same place, under the name that the reader gave."""
    frame = entry.tb_frame
    filename, name = frame.f_code.co_filename, plain_function(frame.f_code.co_name)
    statement = _raising(entry)
    scope: dict[str, Any] = {_RAISER: _Raiser()}
    try:
        if name == "<module>":
            code = compile(ast.Module([statement], []), filename, "exec")
            exec(code, frame.f_globals, scope)  # noqa: S102 - the statement above
        else:
            arguments, keywords = _given(function, frame.f_locals)
            definition = _function(statement, function)
            code = compile(ast.Module([definition], []), filename, "exec")
            scope = {**frame.f_globals, **scope}
            exec(code, scope)  # noqa: S102 - as above
            made = scope["stand_in"]
            made.__code__ = made.__code__.replace(co_name=name, co_qualname=name)
            made(*arguments, **keywords)
    except StopIteration as raised:
        own = raised.__traceback__
        return own.tb_next if own is not None else None
    return None


_RAISER = "raiser"


class _Raiser:
    """Raises whatever is done with it."""

    def _raise(self, *_: object) -> Any:
        raise StopIteration

    __call__ = __getattr__ = __getitem__ = __neg__ = __pos__ = __invert__ = _raise
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = _raise
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _raise
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _raise


def _raising(entry: types.TracebackType) -> ast.stmt:
    """Return a statement that raises at the range of an entry's instruction.

    It is the same kind of expression as in the source, so that tools that mark the failing part of a line know it.
    """
    positions = entry.tb_frame.f_code.co_positions()
    position = next(itertools.islice(positions, max(entry.tb_lasti, 0) // 2, None), (None, None, None, None))
    line, end_line, column, end_column = (number if number is not None else -1 for number in position)
    raising: ast.stmt = ast.Raise(ast.Name("StopIteration", ast.Load()), None)
    if line != entry.tb_lineno or min(end_line, column, end_column) < 0:
        line = end_line = entry.tb_lineno
        column = end_column = 0
    else:
        node = _node_at(entry.tb_frame.f_code.co_filename, (line, column, end_line, end_column))
        raising = ast.Expr(node) if node is not None else raising
    for part in ast.walk(raising):
        if isinstance(part, ast.stmt | ast.expr):
            part.lineno, part.end_lineno, part.col_offset, part.end_col_offset = line, end_line, column, end_column
    came_to = entry.tb_frame.f_lineno
    if came_to is None or came_to == line:
        return raising
    # The frame went on to another line, to leave a with block for one: IPython shows that line.
    last = ast.Pass(lineno=came_to, end_lineno=came_to, col_offset=0, end_col_offset=0)
    return ast.copy_location(ast.Try([raising], [], [], [last]), raising)


def _node_at(filename: str, place: tuple[int, int, int, int]) -> ast.expr | None:
    """Return the expression at a place of a file, its parts replaced by one that raises; ``None`` for other kinds."""
    tree = parse_python("".join(linecache.getlines(filename)))
    raiser = ast.Name(_RAISER, ast.Load())
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.expr):
            continue
        if (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset) != place:
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
            case _:
                pass
    return None


def _parameters(function: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...], str | None, str | None]:
    """Return the names of a function's parameters: by position, by keyword only, ``*`` and ``**``."""
    names = iter(function.co_varnames)
    positional = tuple(itertools.islice(names, function.co_argcount))
    by_keyword = tuple(itertools.islice(names, function.co_kwonlyargcount))
    rest = next(names) if function.co_flags & inspect.CO_VARARGS else None
    return positional, by_keyword, rest, next(names) if function.co_flags & inspect.CO_VARKEYWORDS else None


def _given(function: types.CodeType, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return what a function was called with, as far as its frame has it."""
    positional, by_keyword, rest, others = _parameters(function)
    arguments = [*(values.get(name) for name in positional), *(values.get(rest, ()) if rest else ())]
    keywords = dict(values.get(others, {}) if others else {})
    return arguments, {**keywords, **{name: values.get(name) for name in by_keyword}}


def _function(statement: ast.stmt, function: types.CodeType) -> ast.FunctionDef:
    line = function.co_firstlineno
    at = ast.Pass(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)

    def parameter(name: str) -> ast.arg:
        return ast.copy_location(ast.arg(name), at)

    positional, by_keyword, rest, others = _parameters(function)
    arguments = ast.arguments(
        posonlyargs=[],
        args=[parameter(name) for name in positional],
        vararg=parameter(rest) if rest is not None else None,
        kwonlyargs=[parameter(name) for name in by_keyword],
        kw_defaults=[None for _ in by_keyword],
        kwarg=parameter(others) if others is not None else None,
        defaults=[],
    )
    definition = ast.FunctionDef("stand_in", arguments, [statement], [])
    if "type_params" in ast.FunctionDef._fields:  # Python 3.12
        setattr(definition, "type_params", [])  # noqa: B010 - unknown to the types of Python 3.11
    return ast.copy_location(definition, at)
