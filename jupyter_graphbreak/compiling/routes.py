"""Route the calls in some code through one of our functions, which may compile the callee.

``f(x)`` becomes ``route(f)(x)``: the call itself stays where it is, so that results, errors and tracebacks are the
same.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import threading
import types
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.patching import report_to_run
from jupyter_graphbreak.analysis.functions import first_line
from jupyter_graphbreak.analysis.python_text import hide_python_warnings
from jupyter_graphbreak.faults import with_fallback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: The module and name of the function that routed code calls. The module can always be imported, without PyTorch.
_ROUTE = ("jupyter_graphbreak.compiling.routes", "route")
#: The functions that decide about calls, by the id of the thread whose calls are compiled; the innermost comes last.
active_routes: dict[int, tuple[Callable[[Any], Any], ...]] = {}
#: The kinds of callees whose calls are routed. Calls to literals stay unchanged, so that Python still warns about them.
_CALLABLE_EXPRESSIONS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
_SCOPE_NODES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
#: The compiler flags in a code object for the ``__future__`` imports of its file.
_FUTURE_FLAGS = 0x1FF0000


def _route(callable_: Any) -> Any:
    route_functions = active_routes.get(threading.get_ident())
    return route_functions[-1](callable_) if route_functions else callable_


#: The function that routed code calls; it returns the replacement for a callable.
route = with_fallback("deciding what to compile", _route, lambda callable_: callable_, report_to_run)


def route_calls(statements: Iterable[ast.stmt]) -> None:
    """Route the calls in statements, in place, except those inside the functions and classes that they define.

    There is no recursion, because a cell may be nested more deeply than Python's stack.
    """
    pending: list[ast.AST] = list(statements)
    while pending:
        current = pending.pop()
        if isinstance(current, ast.Call) and isinstance(current.func, _CALLABLE_EXPRESSIONS):
            current.func = _route_call(current.func)
            pending += [current.func.args[0], *current.args, *current.keywords]
        elif isinstance(current, _SCOPE_NODES):
            pending += _parts_evaluated_outside(current)
        else:
            pending += ast.iter_child_nodes(current)


def _parts_evaluated_outside(definition: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a definition that are evaluated outside it: decorators, defaults, base classes."""
    yield from getattr(definition, "decorator_list", ())
    yield from getattr(definition, "bases", ())
    yield from getattr(definition, "keywords", ())
    arguments = getattr(definition, "args", None)
    if isinstance(arguments, ast.arguments):
        yield from arguments.defaults
        yield from (default for default in arguments.kw_defaults if default is not None)


def _route_call(function: ast.expr) -> ast.Call:
    module, name = _ROUTE
    route_expression: ast.expr = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant(module)], [])
    for part in [*module.split(".")[1:], name]:
        route_expression = ast.Attribute(route_expression, part, ast.Load())
    call = ast.Call(route_expression, [function], [])
    for node in itertools.chain([call], ast.walk(route_expression)):
        ast.copy_location(node, function)
    return call


class RoutedFunctions:
    """Copies the user's functions with their calls routed."""

    def __init__(self) -> None:
        self._routed_code: dict[types.CodeType, types.CodeType | None] = {}

    def copy_with_routed_calls(self, function: types.FunctionType) -> types.FunctionType | None:
        """Return a copy of a function with its calls routed; ``None`` if its source is unknown or has changed."""
        code = function.__code__
        if code not in self._routed_code:
            self._routed_code[code] = route_code(code)
        new_code = self._routed_code[code]
        if new_code is None:
            return None
        copy = types.FunctionType(
            new_code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        copy.__kwdefaults__ = function.__kwdefaults__
        copy.__qualname__ = function.__qualname__
        copy.__dict__.update(function.__dict__)
        return copy


@hide_python_warnings()
def route_code(code: types.CodeType) -> types.CodeType | None:
    """Return a function's code with its calls routed; ``None`` if its source is unknown or has changed."""
    text = "".join(linecache.getlines(code.co_filename))
    if not text:
        return None
    flags = code.co_flags & _FUTURE_FLAGS | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # as IPython compiles cells
    try:
        tree = ast.parse(text)
        original = _find_code(compile(text, code.co_filename, "exec", flags, dont_inherit=True), code)
        definition = _definition(tree, code)
        if original is None or definition is None or not have_equal_code(original, code):
            return None
        route_calls(definition.body)
        new_code = _find_code(compile(tree, code.co_filename, "exec", flags, dont_inherit=True), code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if new_code is None or new_code.co_freevars != code.co_freevars:
        return None
    return new_code.replace(co_qualname=code.co_qualname)


def _find_code(module: types.CodeType, code_to_find: types.CodeType) -> types.CodeType | None:
    """Return the code of a function from the code of its file; ``None`` if the file does not define the function."""
    pending = [module]
    while pending:
        code = pending.pop()
        if code.co_name == code_to_find.co_name and code.co_firstlineno == code_to_find.co_firstlineno:
            return code
        pending += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return None


def _definition(tree: ast.AST, code: types.CodeType) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name == code.co_name
            and first_line(node) == code.co_firstlineno
        ):
            return node
    return None


def have_equal_code(one: types.CodeType, other: types.CodeType) -> bool:
    """Return whether two code objects do the same, regardless of where they were defined."""
    return (
        one.co_code == other.co_code
        and one.co_names == other.co_names
        and one.co_varnames == other.co_varnames
        and one.co_freevars == other.co_freevars
        and len(one.co_consts) == len(other.co_consts)
        and all(itertools.starmap(_is_equivalent_constant, zip(one.co_consts, other.co_consts, strict=True)))
    )


def _is_equivalent_constant(one: object, other: object) -> bool:
    if isinstance(one, types.CodeType) and isinstance(other, types.CodeType):
        return have_equal_code(one, other)
    if isinstance(one, frozenset):  # equal sets may have a different order
        return one == other
    return repr(one) == repr(other)  # 1, 1.0 and True are equal
