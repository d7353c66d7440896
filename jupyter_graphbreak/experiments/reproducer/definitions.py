"""Find the syntax trees of functions and classes in the files or cells that define them."""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import textwrap
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.analysis.python_text import hide_python_warnings, names_bound_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class UnwritableError(Exception):
    """A value that the code uses cannot be written as source text; the message names it, without a final period."""


def function_node(function: types.FunctionType) -> Definition:
    """Return the definition of a function, with its decorators."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if code.co_name == "<module>":
        return _cell_function(_parse_definitions("".join(lines), code.co_name))
    tree = _parse_definitions(_definition_text(lines, code.co_firstlineno), code.co_qualname)
    name = code.co_name
    candidates = [node for node in ast.walk(tree) if isinstance(node, _SCOPES) and _definition_name(node) == name]
    if name == "<lambda>":
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        candidates = [node for node in candidates if _parameter_names(node) == parameters]
    if not candidates:
        raise UnwritableError(f"the source text of {code.co_qualname} is not available")
    return candidates[0]


def class_node(class_: type) -> ast.ClassDef:
    """Return the definition of a class."""
    try:
        text = textwrap.dedent(inspect.getsource(class_))
    except (OSError, TypeError):
        text = _text_of_class(class_)
    candidates = [
        node for node in ast.walk(_parse_definitions(text, class_.__name__)) if isinstance(node, ast.ClassDef)
    ]
    if not candidates or candidates[0].name != class_.__name__:
        raise UnwritableError(f"the source text of the class {class_.__name__} is not available")
    return candidates[0]


def _text_of_class(class_: type) -> str:
    """Return the text of a class whose module has no file, such as a class that a notebook defines."""
    functions = [inspect.unwrap(getattr(member, "__func__", member)) for member in vars(class_).values()]
    files = [function.__code__.co_filename for function in functions if isinstance(function, types.FunctionType)]
    cells = [file for file in reversed(list(linecache.cache)) if not Path(file).is_file()]
    for file in dict.fromkeys([*files, *cells]):
        with contextlib.suppress(UnwritableError):
            for node in ast.walk(_parse_definitions("".join(linecache.getlines(file)), class_.__name__)):
                if isinstance(node, ast.ClassDef) and node.name == class_.__name__ and _has_members(class_, node):
                    return ast.unparse(node)
    raise UnwritableError(f"the source text of the class {class_.__name__} is not available")


def _has_members(class_: type, node: ast.ClassDef) -> bool:
    """Return whether a class has the methods and the annotated and assigned names of a definition."""
    members = {*vars(class_), *inspect.get_annotations(class_), *getattr(class_, "__slots__", ())}
    names: set[str] = set()
    for part in node.body:
        match part:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
    mangling_prefix = f"_{class_.__name__.lstrip('_')}__"
    return all(name in members or f"{mangling_prefix}{name.lstrip('_')}" in members for name in names)


@hide_python_warnings()
def _parse_definitions(text: str, name: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnwritableError(f"the source text of {name} is not available") from None


def _definition_text(lines: list[str], first_line: int) -> str:
    """Return the text of the definition that begins on a line, or of the statement that contains a lambda there."""
    if not 0 < first_line <= len(lines):
        return ""
    block = inspect.getblock(lines[first_line - 1 :])
    text = textwrap.dedent("".join(block))
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        statement_text = _statement_on_line("".join(lines), first_line)
        return statement_text if statement_text is not None else text
    return text


def _statement_on_line(text: str, line: int) -> str | None:
    """Return the text of the innermost statement on a line of a file; ``None`` if there is none."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    statements = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return ast.unparse(min(statements, key=lambda node: (node.end_lineno or 0) - node.lineno)) if statements else None


def _cell_function(tree: ast.Module) -> ast.FunctionDef:
    """Return the definition of a function with the statements of a cell that was compiled as one function."""
    no_arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    body = [statement for statement in tree.body if "get_ipython()" not in ast.unparse(statement)]  # without magics
    return ast.FunctionDef("cell", no_arguments, body or [ast.Pass()], [], None, lineno=1, col_offset=0)


def _definition_name(node: Definition) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _parameter_names(node: Definition) -> tuple[str, ...]:
    arguments = node.args
    return tuple(argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))


def outer_names(node: ast.AST) -> set[str]:
    """Return the names of outer scopes that a definition reads or assigns."""
    return set(_names_outside(node))


def _names_outside(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            arguments = node.args
            outer_nodes: list[Any] = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
            annotations = [*(argument.annotation for argument in _all_arguments(node)), getattr(node, "returns", None)]
            outer_nodes += [*filter(None, annotations), *getattr(node, "decorator_list", [])]
            for part in outer_nodes:
                yield from _names_outside(part)
            body = node.body if isinstance(node.body, list) else [node.body]
            shared_names = {
                name
                for part in _nodes_in_scope(body)
                if isinstance(part, ast.Global | ast.Nonlocal)
                for name in part.names
            }
            local_names = set(bound_names(node)) - shared_names
            for part in body:
                yield from (name for name in _names_outside(part) if name not in local_names)
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


def _all_arguments(node: Definition) -> list[ast.arg]:
    arguments = node.args
    variadic_arguments = filter(None, [arguments.vararg, arguments.kwarg])
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *variadic_arguments]


def bound_names(node: Definition) -> Iterator[str]:
    """Yield the names that are local to a function."""
    yield from (argument.arg for argument in _all_arguments(node))
    for part in _nodes_in_scope(node.body if isinstance(node.body, list) else [node.body]):
        yield from names_bound_by(part)


def _nodes_in_scope(body: list[Any]) -> Iterator[ast.AST]:
    """Yield the nodes in the scope of a function, including those in comprehensions."""
    pending_nodes = list(body)
    while pending_nodes:
        node = pending_nodes.pop()
        yield node
        if not isinstance(node, (*_SCOPES, ast.ClassDef)):
            pending_nodes += ast.iter_child_nodes(node)
