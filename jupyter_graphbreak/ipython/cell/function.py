"""Turn a cell that compiles nothing itself into one function that can be compiled."""

from __future__ import annotations

import ast
import inspect
import types
import warnings
from typing import TYPE_CHECKING

from jupyter_graphbreak.ipython.cell.bindings import bound_names

if TYPE_CHECKING:
    from collections.abc import Callable

#: The function that contains a cell's code.
CELL_FUNCTION = "_graphbreak_cell"
_QUALNAME_PREFIX = f"{CELL_FUNCTION}.<locals>."
_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def count_leading_statements(body: list[ast.stmt]) -> int:
    """Return the number of statements that must stay first: a docstring and imports from ``__future__``."""
    count = 0
    if len(body) > 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        count = int(isinstance(body[0].value.value, str))
    for node in body[count:]:
        if not isinstance(node, ast.ImportFrom) or node.module != "__future__":
            break
        count += 1
    return count


def split_cell(body: list[ast.stmt], magic_runs_code: Callable[[str], bool]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Separate the imports, definitions and magics at the top, which run unchanged, from the code to compile."""
    first = count_leading_statements(body)
    leading_flags = (isinstance(node, _DEFINITIONS) or _is_command(node, magic_runs_code) for node in body[first:])
    count = next((index for index, is_leading in enumerate(leading_flags, start=first) if not is_leading), len(body))
    return body[:count], body[count:]


def _is_command(node: ast.stmt, magic_runs_code: Callable[[str], bool]) -> bool:
    """Return whether a statement is a line magic or a shell command that contains nothing to compile."""
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Call(ast.Name("get_ipython")), "run_line_magic"), [name, *_])):
            return not (isinstance(name, ast.Constant) and magic_runs_code(str(name.value)))
        case ast.Expr(ast.Call(ast.Attribute(ast.Call(ast.Name("get_ipython")), "system" | "getoutput"))):
            return True
    return False


def can_repeat(body: list[ast.stmt]) -> bool:
    """Return whether statements that end in an error can run again from the start.

    They must only compute and bind names, because only the names and the state of random generators are restored.
    """
    for node in (node for statement in body for node in ast.walk(statement)):
        match node:
            case ast.AugAssign() | ast.Call(ast.Name("print")) | ast.keyword("out"):
                return False
            case ast.Subscript(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                return False
            case ast.Call(ast.Attribute(attr=name)) if name.endswith("_"):
                return False
    return True


def function_statements(
    body: list[ast.stmt], anchor: ast.stmt, make_call: Callable[[str, list[ast.expr], ast.stmt], ast.Expr]
) -> list[ast.stmt]:
    """Return statements that define a function with the given body, compile it, run it and end with its value.

    The names that the body binds are declared global, so that they stay names of the notebook. A graph binds names only
    after it has run, so the body runs again unchanged after an error in a graph, if that is possible. The new
    statements get the position of ``anchor``; ``make_call`` creates a call to one of our functions.
    """
    names = sorted(bound_names(body))
    is_repeatable = can_repeat(body)
    last = body[-1]
    unchanged_body = list(body)
    if isinstance(last, ast.Expr):  # the cell's value, which IPython displays
        unchanged_body[-1] = make_call("values.append", [last.value], last)
        body = [*body[:-1], ast.copy_location(ast.Return(last.value), last)]
    if names:
        body = [ast.copy_location(ast.Global(names), anchor), *body]
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    function = ast.FunctionDef(CELL_FUNCTION, arguments, body, [])
    if "type_params" in ast.FunctionDef._fields:  # Python 3.12
        setattr(function, "type_params", [])  # noqa: B010 - Python 3.11's types lack the attribute
    # The error is shown without the compiler's frames, as in any other cell.
    on_error: list[ast.stmt] = [make_call("trim_traceback", [], anchor), ast.copy_location(ast.Raise(), anchor)]
    name_constants = ast.Tuple([ast.Constant(name) for name in names], ast.Load())
    caller = make_call(
        "cell_caller", [ast.Constant(CELL_FUNCTION), *([name_constants] if is_repeatable else [])], anchor
    ).value
    run_statement = make_call("values.append", [ast.copy_location(ast.Call(caller, [], []), anchor)], anchor)
    base_exception = ast.Name("BaseException", ast.Load())
    if is_repeatable:
        will_not_repeat = ast.UnaryOp(ast.Not(), make_call("prepare_repeat", [], anchor).value)
        on_error = [ast.If(will_not_repeat, on_error, [])]
    statements: list[ast.stmt] = [
        function,
        ast.Try([run_statement], [ast.ExceptHandler(base_exception, None, on_error)], [], []),
    ]
    if is_repeatable:
        statements.append(ast.If(make_call("should_repeat", [], anchor).value, unchanged_body, []))
    return [ast.copy_location(statement, anchor) for statement in (*statements, make_call("values.pop", [], anchor))]


def can_compile_without_warning(statements: list[ast.stmt]) -> bool:
    """Return whether Python compiles each statement alone without an error or a warning.

    IPython compiles one statement at a time, so errors and warnings appear only after the statements above have run.
    The warnings are hidden here, because Python warns again when IPython compiles the statements.
    """
    warning_messages: list[object] = []
    original = warnings._showwarnmsg  # type: ignore[attr-defined]  # noqa: SLF001 - the compiler calls this function
    warnings._showwarnmsg = warning_messages.append  # type: ignore[attr-defined]  # noqa: SLF001
    try:
        for statement in statements:
            compile(ast.Module([statement], []), "<statement>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    finally:
        warnings._showwarnmsg = original  # type: ignore[attr-defined]  # noqa: SLF001
    return not warning_messages


def as_module_code(code: types.CodeType) -> types.CodeType:
    """Return the code of a cell's function as a module's code; qualified names also change, at any depth."""
    constants = tuple(
        as_module_code(constant) if isinstance(constant, types.CodeType) else constant for constant in code.co_consts
    )
    if code.co_name == CELL_FUNCTION:
        return code.replace(co_name="<module>", co_qualname="<module>", co_consts=constants)
    name = code.co_qualname.removeprefix(_QUALNAME_PREFIX)
    is_nested = ".<locals>." in name
    flags = code.co_flags if is_nested else code.co_flags & ~inspect.CO_NESTED
    return code.replace(co_qualname=name, co_consts=constants, co_flags=flags)
