"""A cell that compiles nothing itself, as one function that can be compiled."""

from __future__ import annotations

import ast
import dis
import types
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The function that a cell is made into.
_FUNCTION = "_graphbreak_cell"


def split(body: list[ast.stmt], code_magic: Callable[[str], bool]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Part the imports, definitions and magics at the top, which run as they are, from the code to compile."""
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    leading = (isinstance(each, kinds) or is_command(each, code_magic) for each in body)
    count = next((index for index, leads in enumerate(leading) if not leads), len(body))
    return body[:count], body[count:]


def own_nodes(nodes: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes of the cell's own level, not those inside functions and classes that it defines."""
    pending: list[ast.AST] = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)


# What means another scope inside a function, or is looked up while nothing is assigned yet.
_OF_THE_MODULE = frozenset({"exec", "eval", "locals", "vars", "dir", "globals", "NameError", "__annotations__"})


def why_no_function(body: list[ast.stmt], code_magic: Callable[[str], bool] = lambda _: False) -> str:
    for node in own_nodes(body):
        if isinstance(node, ast.Name) and node.id in _OF_THE_MODULE:
            return f"it uses {node.id}, which means something else inside a function"
        match node:
            case ast.Call(ast.Attribute(_, "run_line_magic"), [ast.Constant(str(name)), *_]) if code_magic(name):
                return f"it uses %{name}, which runs code of its own"
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
            return "it awaits at its top level"
        if isinstance(node, ast.ImportFrom) and any(each.name == "*" for each in node.names):
            return "it imports *"
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return "it imports from __future__"
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
            return "it returns or yields outside a function"
    return ""


class _DropAnnotations(ast.NodeTransformer):
    """``x: int = 3`` cannot be said of a global name; ``x = 3`` does the same."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if not isinstance(node.target, ast.Name):
            return node
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        return node


def as_function(
    body: list[ast.stmt], at: ast.stmt, call: Callable[[str, list[ast.expr], ast.stmt], ast.Expr]
) -> list[ast.stmt]:
    """Return the definition of a function with the given body, and what compiles it, runs it and takes its value.

    Parameters
    ----------
    body : list of ast.stmt
        The names that it assigns are declared global, so that they go to the notebook as ever.
    at : ast.stmt
        The statement whose place the code takes.
    call : callable
        Makes a call of a function of ours.
    """
    names = sorted(assigned_names(body))
    awaited = ",".join(stored_first(body))
    body = [_DropAnnotations().visit(each) for each in body]
    last = body[-1]
    if isinstance(last, ast.Expr):  # the cell's value, which IPython displays
        body = [*body[:-1], ast.copy_location(ast.Return(last.value), last)]
    declared: list[ast.stmt] = [ast.Global(names)] if names else []
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    function = ast.FunctionDef(_FUNCTION, arguments, [*declared, *body], [])
    for each in declared:
        ast.copy_location(each, at)
    run = call("run_function", [ast.Constant(_FUNCTION), ast.Constant(awaited)], at)
    # The error of the cell is shown as that of any cell: without the frames in between.
    handler = ast.ExceptHandler(
        ast.Name("BaseException", ast.Load()), None, [call("trim_traceback", [], at), ast.Raise()]
    )
    attempt = ast.Try([run], [handler], [], [])
    return [ast.copy_location(each, at) for each in (function, attempt, call("value", [], at))]


def stored_first(body: list[ast.stmt]) -> list[str]:
    """Return the names that are assigned before they are read, in the order of the text.

    Only these may exist before the cell runs: a name that is read first is one that is there, or an error.
    """
    code = compile(ast.fix_missing_locations(ast.Module(body, [])), "<names>", "exec", dont_inherit=True)
    first: dict[str, bool] = {}
    for each in dis.get_instructions(code):
        if each.opname in {"STORE_NAME", "STORE_GLOBAL"}:
            first.setdefault(each.argval, True)
        elif each.opname in {"LOAD_NAME", "LOAD_GLOBAL", "DELETE_NAME", "DELETE_GLOBAL"}:
            first.setdefault(each.argval, False)
    inner = assigned_names(body) - set(first)  # by a walrus inside a comprehension
    return sorted({name for name, stored in first.items() if stored} | inner)


def assigned_names(body: list[ast.stmt]) -> set[str]:
    """Return the names that some statements assign or delete at the level of the module."""
    code = compile(ast.fix_missing_locations(ast.Module(body, [])), "<names>", "exec", dont_inherit=True)
    names = set()
    pending = [code]
    while pending:
        each = pending.pop()
        # a name of the module that a function in the cell declares global is stored as a global, too
        stores = ("STORE_NAME", "DELETE_NAME", "STORE_GLOBAL", "DELETE_GLOBAL") if each is code else ("STORE_GLOBAL",)
        names |= {i.argval for i in dis.get_instructions(each) if i.opname in stores}
        # a walrus inside a comprehension assigns in the scope around it
        pending += [c for c in each.co_consts if hasattr(c, "co_code") and c.co_name.endswith("comp>")]
    return names


class Unassigned(msgspec.Struct, frozen=True):
    """Stands for a name that is to be assigned: Dynamo reads back a new global only if it was there before."""


UNASSIGNED = Unassigned()


def declare(namespace: dict[str, Any], names: str) -> None:
    """Make sure that names to be assigned exist."""
    for name in filter(None, names.split(",")):
        namespace.setdefault(name, UNASSIGNED)


def withdraw(namespace: dict[str, Any], names: str) -> None:
    """Take names away again that were not assigned after all."""
    for name in filter(None, names.split(",")):
        if namespace.get(name) is UNASSIGNED:
            del namespace[name]


def as_module_code(code: types.CodeType) -> types.CodeType:
    """Return the code of the function that a cell was made into, and of what is in it, under the names of a module."""
    prefix = f"{_FUNCTION}.<locals>."
    constants = tuple(as_module_code(each) if isinstance(each, types.CodeType) else each for each in code.co_consts)
    if code.co_name == _FUNCTION:
        return code.replace(co_name="cell", co_qualname="cell", co_consts=constants)
    return code.replace(co_qualname=code.co_qualname.removeprefix(prefix), co_consts=constants)


def is_command(node: ast.stmt, code_magic: Callable[[str], bool]) -> bool:
    """Whether a statement is a line magic or a shell command, which have nothing to compile in them."""
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Call(ast.Name("get_ipython")), "run_line_magic"), [name, *_])):
            return not (isinstance(name, ast.Constant) and code_magic(str(name.value)))
        case ast.Expr(ast.Call(ast.Attribute(ast.Call(ast.Name("get_ipython")), "system" | "getoutput"))):
            return True
    return False
