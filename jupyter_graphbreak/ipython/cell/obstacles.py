"""Why a cell cannot be compiled as one function and do the same: what its own level would notice of it.

A page of the documentation, *Limits*, lists what is found here for the reader.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from jupyter_graphbreak.ipython.cell.bindings import own_nodes
from jupyter_graphbreak.recording.hazards import OF_THE_COMPILER, RANDOM_INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable

#: Names that mean another scope inside a function, or that read what only a module has.
_OF_THE_MODULE = frozenset(
    {"exec", "eval", "locals", "vars", "dir", "globals", "iter", "NameError", "__annotations__", "__name__", "__doc__"}
)
#: Attributes that ask for the code that is running, too (``logger.exception``, ``inspect.stack``), under names that
#: a variable may well have.
_COMMON = frozenset({"exception", "stack"})
_STATE = frozenset(
    (package, name)
    for package in ("_dynamo", "_inductor", "_functorch")
    for name in ("config", "reset", "utils", "explain", "export")
)


def obstacle_to_compiling(body: list[ast.stmt], code_magic: Callable[[str], bool]) -> str:
    """Return why statements cannot be the body of one function, as the end of a sentence; empty where they can.

    Parameters
    ----------
    body : list of ast.stmt
    code_magic : callable
        Whether a line magic runs code of its own.
    """
    if any(_is_text(statement) for statement in body[:-1]):
        return "it has a string by itself, which a module takes for its documentation"
    for node in own_nodes(body):
        reason = _obstacle(node, code_magic)
        if reason:
            return reason
    return next((reason for statement in body for node in ast.walk(statement) if (reason := _notices(node))), "")


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _notices(node: ast.AST) -> str:  # noqa: PLR0911 - a table
    """Return what code at any depth would notice of the compiler."""
    match node:
        case ast.Attribute(ast.Attribute(_, package) | ast.Name(package), name) if (package, name) in _STATE:
            return f"it uses the state of torch.{package}, which compiling changes, too"
        case ast.Constant(str(text)) if "funcName" in text:
            return "a log of it names the function that runs (funcName)"
        case ast.Attribute(_, "optim"):
            return "it makes an optimizer, which computes in another way when it is compiled"
        case ast.Attribute(ast.Name(package), name) if name in RANDOM_INTEGERS and package != "torch":
            return f"it draws an integer with {package}.{name}, which Dynamo can turn into a tensor"
        case ast.Attribute(_, name) if name in OF_THE_COMPILER | _COMMON:
            return f"it uses {name}, which would notice that it is compiled"
        case ast.Name(name) if name in RANDOM_INTEGERS:
            return f"it draws an integer with {name}, which Dynamo can turn into a tensor"
        case ast.Name(name) if name in OF_THE_COMPILER:
            return f"it uses {name}, which would notice that it is compiled"
        case ast.Expr(ast.Call(ast.Attribute(_, "set_grad_enabled") | ast.Name("set_grad_enabled"))):
            return "it sets the grad mode, which a graph that fails would leave otherwise"
        case ast.Call(ast.Name("type"), [_, _, _]):
            return "it makes a class with type(), which Dynamo does in a module of its own"
        case ast.keyword("stacklevel"):
            return "a warning of it names the code that calls it (stacklevel)"
    return ""


def _obstacle(node: ast.AST, code_magic: Callable[[str], bool]) -> str:  # noqa: PLR0911 - a table
    match node:
        case ast.Name(id=name) if name in _OF_THE_MODULE:
            return f"it uses {name}, which gives something else in a compiled function"
        case ast.Call(ast.Attribute(_, "run_line_magic"), [ast.Constant(str(name)), *_]) if code_magic(name):
            return f"it uses %{name}, which runs code of its own"
        case ast.Name(id="get_ipython"):
            return "it asks for IPython's own state"
        case ast.Await() | ast.AsyncFor() | ast.AsyncWith() | ast.comprehension(is_async=1):
            return "it awaits at its top level"
        case ast.ImportFrom(names=[ast.alias("*"), *_]):
            return "it imports *"
        case ast.ImportFrom(module="__future__"):
            return "it imports from __future__"
        case ast.Return() | ast.Yield() | ast.YieldFrom():
            return "it returns or yields outside a function"
        case ast.Global() | ast.Nonlocal():
            return "it declares names global or nonlocal"
        case ast.AnnAssign():
            return "it annotates a variable, which a module remembers and a function does not"
        case ast.ClassDef():
            return "it defines a class after its first other statement"
        case ast.Try() | ast.TryStar():
            return "it handles exceptions, which Dynamo does in ways of its own"
    return ""
