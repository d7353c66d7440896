"""Find the syntax trees of functions and classes, as their files or cells define them."""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import textwrap
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.analysis.python_text import without_warnings
from jupyter_graphbreak.experiments.reproducer.unwritable import UnwritableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def function_node(function: types.FunctionType) -> Definition:
    """Return the definition of a function, with its decorators.

    Raises
    ------
    UnwritableError
        If its source text is not available.
    """
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if code.co_name == "<module>":
        return _cell_function(_parsed("".join(lines), code.co_name))
    tree = _parsed(_block(lines, code.co_firstlineno), code.co_qualname)
    name = code.co_name
    found = [node for node in ast.walk(tree) if isinstance(node, _SCOPES) and _name(node) == name]
    if name == "<lambda>":
        found = [node for node in found if _parameters(node) == _names_of_parameters(code)]
    if not found:
        raise UnwritableError(f"the source text of {code.co_qualname} is not available")
    return found[0]


def class_node(kind: type) -> ast.ClassDef:
    """Return the definition of a class.

    Raises
    ------
    UnwritableError
        If its source text is not available.
    """
    try:
        text = textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):
        text = _text_of_class(kind)
    found = [node for node in ast.walk(_parsed(text, kind.__name__)) if isinstance(node, ast.ClassDef)]
    if not found or found[0].name != kind.__name__:
        raise UnwritableError(f"the source text of the class {kind.__name__} is not available")
    return found[0]


def _text_of_class(kind: type) -> str:
    """Return the text of a class whose module has no file, such as one of a notebook.

    It is found from its methods; if it has none, it is the last class with its name and members in a cell.
    """
    functions = [inspect.unwrap(getattr(member, "__func__", member)) for member in vars(kind).values()]
    files = [function.__code__.co_filename for function in functions if isinstance(function, types.FunctionType)]
    cells = [file for file in reversed(list(linecache.cache)) if not Path(file).is_file()]
    for file in dict.fromkeys([*files, *cells]):
        with contextlib.suppress(UnwritableError):
            for node in ast.walk(_parsed("".join(linecache.getlines(file)), kind.__name__)):
                if isinstance(node, ast.ClassDef) and node.name == kind.__name__ and _has_members(kind, node):
                    return ast.unparse(node)
    raise UnwritableError(f"the source text of the class {kind.__name__} is not available")


def _has_members(kind: type, node: ast.ClassDef) -> bool:
    """Return whether a class has the methods and the annotated and assigned names of a definition."""
    has = {*vars(kind), *inspect.get_annotations(kind), *getattr(kind, "__slots__", ())}
    names: set[str] = set()
    for part in node.body:
        match part:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
    private = f"_{kind.__name__.lstrip('_')}__"
    return all(name in has or f"{private}{name.lstrip('_')}" in has for name in names)


@without_warnings()
def _parsed(text: str, name: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnwritableError(f"the source text of {name} is not available") from None


def _block(lines: list[str], first: int) -> str:
    """Return the lines of a definition that begins at a line, or of the statement that contains a lambda there."""
    if not 0 < first <= len(lines):
        return ""
    block = inspect.getblock(lines[first - 1 :])
    text = textwrap.dedent("".join(block))
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        whole = _whole_statement("".join(lines), first)
        return whole if whole is not None else text
    return text


def _whole_statement(text: str, line: int) -> str | None:
    """Return the innermost statement at a line of a file."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    enclosing = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return ast.unparse(min(enclosing, key=lambda node: (node.end_lineno or 0) - node.lineno)) if enclosing else None


def _cell_function(tree: ast.Module) -> ast.FunctionDef:
    """Return a function with the statements of a cell that was compiled as one."""
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    body = [statement for statement in tree.body if not _is_magic(statement)]
    return ast.FunctionDef("cell", empty, body or [ast.Pass()], [], None, lineno=1, col_offset=0)


def _is_magic(statement: ast.stmt) -> bool:
    return "get_ipython()" in ast.unparse(statement)


def _name(node: Definition) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _parameters(node: Definition) -> tuple[str, ...]:
    arguments = node.args
    return tuple(argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))


def _names_of_parameters(code: types.CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def outer_names(node: ast.AST) -> set[str]:
    """Return the names of outer scopes that a definition reads or assigns."""
    return set(_names_outside(node))


def _names_outside(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            arguments = node.args
            outside: list[Any] = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
            outside += _annotations(node)
            outside += getattr(node, "decorator_list", [])
            for part in outside:
                yield from _names_outside(part)
            body = node.body if isinstance(node.body, list) else [node.body]
            shared = {
                name for part in _own_parts(body) if isinstance(part, ast.Global | ast.Nonlocal) for name in part.names
            }
            bound = set(bound_names(node)) - shared
            for part in body:
                yield from (name for name in _names_outside(part) if name not in bound)
        case ast.Global() | ast.Nonlocal():
            yield from node.names
        case ast.Name():
            yield node.id
        case ast.ClassDef():
            yield node.name
            for child in ast.iter_child_nodes(node):
                yield from _names_outside(child)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _names_outside(child)


def _annotations(node: Any) -> list[ast.expr]:
    annotations = [argument.annotation for argument in _all_arguments(node)]
    return [*filter(None, annotations), *filter(None, [getattr(node, "returns", None)])]


def _all_arguments(node: Definition) -> list[ast.arg]:
    arguments = node.args
    return [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        *filter(None, [arguments.vararg, arguments.kwarg]),
    ]


def bound_names(node: Definition) -> Iterator[str]:
    """Yield the names that are local to a function."""
    yield from (argument.arg for argument in _all_arguments(node))
    for part in _own_parts(node.body if isinstance(node.body, list) else [node.body]):
        match part:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name.partition(".")[0]


def _own_parts(body: list[Any]) -> Iterator[ast.AST]:
    """Yield the nodes of a function's own scope; comprehensions count as part of it."""
    pending = list(body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (*_SCOPES, ast.ClassDef)):
            pending += ast.iter_child_nodes(node)
