"""Rewrite definitions, so that they can stand in a script: other names, and no noise."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.experiments.reproducer.definitions import bound_names, outer_names
from jupyter_graphbreak.experiments.reproducer.objects import is_own_module

if TYPE_CHECKING:
    import types
    from collections.abc import Callable


def expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression."""
    return ast.parse(text, mode="eval").body


def without_noise(node: Any) -> Any:
    """Remove docstrings and ``torch.compile`` as a decorator, and make the variables of outer functions global."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        node.body = [_as_global(statement) for statement in node.body]
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = part.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                part.body = part.body[1:] or [ast.Pass()]
            part.decorator_list = [decorator for decorator in part.decorator_list if not _compiles(decorator)]
    return node


def _as_global(statement: ast.stmt) -> ast.stmt:
    return ast.Global(statement.names) if isinstance(statement, ast.Nonlocal) else statement


def _compiles(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    if (isinstance(called, ast.Attribute) and called.attr == "partial") or getattr(called, "id", "") == "partial":
        return "torch.compile" in ast.unparse(decorator)
    return ast.unparse(called) in {"torch.compile", "compile"}


class Renamed(ast.NodeTransformer):
    """Replaces names that a definition takes from outside."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the name, or the expression that replaces it."""
        new = self._names.get(node.id)
        if new is None:
            return node
        return expression(new) if isinstance(node.ctx, ast.Load) else ast.Name(new, node.ctx)

    def visit_Global(self, node: ast.Global) -> ast.Global:
        """Return the statement with the new names."""
        return ast.Global([self._names.get(name, name) for name in node.names])

    def visit(self, node: ast.AST) -> Any:
        """Visit a node; in a function, names that it binds itself stay."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            hidden = set(bound_names(node)) - outer_names(node)
            if hidden & self._names.keys():
                return Renamed({name: new for name, new in self._names.items() if name not in hidden}).generic_visit(
                    node
                )
        return super().visit(node)


class WithoutModules(ast.NodeTransformer):
    """Replaces ``helpers.norm``, a part of a module that the user wrote, by a name of the script."""

    def __init__(self, bind: Callable[[Any, str], str], modules: dict[str, types.ModuleType]) -> None:
        self._bind = bind
        #: How the code names parts of the modules, and the names in the script.
        self.renamed: dict[str, str] = {}
        self._modules = modules

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Return the attribute, or the name of what the module has under it."""
        chain, inner = [node.attr], node.value
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in self._modules and isinstance(node.ctx, ast.Load):
            value: Any = self._modules[inner.id]
            for number, part in enumerate(reversed(chain), start=1):
                value = getattr(value, part)
                if not is_own_module(value):
                    name = self._bind(value, part)
                    rest = list(reversed(chain))[number:]
                    self.renamed[".".join([inner.id, *list(reversed(chain))[:number]])] = name
                    return expression(".".join([name, *rest]))
        self.generic_visit(node)
        return node
