"""Rewrite the definitions of a script: with new names, without docstrings, and without the user's own words."""

from __future__ import annotations

import ast
import builtins
import copy
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.experiments.reproducer.definitions import bound_names, outer_names
from jupyter_graphbreak.experiments.reproducer.objects import is_user_module

if TYPE_CHECKING:
    import types
    from collections.abc import Callable


#: Names that are not replaced, because Python, PyTorch or the script itself relies on them.
_UNCHANGED_NAMES = {*dir(builtins), "torch", "self", "cls", "compiled"}
_UNCHANGED_ATTRIBUTES = {*dir(torch.Tensor), *dir(torch.nn.Module), *dir(torch), "forward"}
#: Methods that Python or PyTorch calls.
_CALLED_METHODS = {"forward", "backward", "setup_context"}
#: Arguments whose strings have a meaning for PyTorch.
_MEANINGFUL_KEYWORDS = {"backend", "device", "mode", "reduction", "padding_mode", "dtype"}


def parse_expression(text: str) -> ast.expr:
    """Parse an expression, and return its syntax tree."""
    return ast.parse(text, mode="eval").body


def simplify_definition(node: Any) -> Any:
    """Remove docstrings and ``torch.compile`` as a decorator, and make the variables of outer functions global."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        node.body = [ast.Global(part.names) if isinstance(part, ast.Nonlocal) else part for part in node.body]
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first_statement = part.body[0]
            if (
                isinstance(first_statement, ast.Expr)
                and isinstance(first_statement.value, ast.Constant)
                and isinstance(first_statement.value.value, str)
            ):
                part.body = part.body[1:] or [ast.Pass()]
            part.decorator_list = [
                decorator for decorator in part.decorator_list if not _is_compile_decorator(decorator)
            ]
    return node


def _is_compile_decorator(decorator: ast.expr) -> bool:
    called_function = decorator.func if isinstance(decorator, ast.Call) else decorator
    if (isinstance(called_function, ast.Attribute) and called_function.attr == "partial") or getattr(
        called_function, "id", ""
    ) == "partial":
        return "torch.compile" in ast.unparse(decorator)
    return ast.unparse(called_function) in {"torch.compile", "compile"}


class NameReplacer(ast.NodeTransformer):
    """Replaces the names of outer scopes that a definition uses."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the name, or the expression that replaces the name."""
        replacement = self._names.get(node.id)
        if replacement is None:
            return node
        return parse_expression(replacement) if isinstance(node.ctx, ast.Load) else ast.Name(replacement, node.ctx)

    def visit_Global(self, node: ast.Global) -> ast.Global:
        """Return the statement with the new names."""
        return ast.Global([self._names.get(name, name) for name in node.names])

    def visit(self, node: ast.AST) -> Any:
        """Visit a node; names that a function binds are not replaced inside the function."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            local_names = set(bound_names(node)) - outer_names(node)
            if local_names & self._names.keys():
                return NameReplacer(
                    {name: replacement for name, replacement in self._names.items() if name not in local_names}
                ).generic_visit(node)
        return super().visit(node)


class ModuleAttributeReplacer(ast.NodeTransformer):
    """Replaces an attribute of a module that the user wrote, such as ``helpers.norm``, with a name of the script."""

    def __init__(self, bind: Callable[[Any, str], str], modules: dict[str, types.ModuleType]) -> None:
        self._bind = bind
        #: The names of the replaced attributes in the script, by the names in the code.
        self.new_names: dict[str, str] = {}
        self._modules = modules

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Return the attribute, or the script's name for the object to which it refers in one of the modules."""
        attributes, owner = [node.attr], node.value
        while isinstance(owner, ast.Attribute):
            attributes.insert(0, owner.attr)
            owner = owner.value
        if isinstance(owner, ast.Name) and owner.id in self._modules and isinstance(node.ctx, ast.Load):
            value: Any = self._modules[owner.id]
            for number, attribute in enumerate(attributes, start=1):
                value = getattr(value, attribute)
                if not is_user_module(value):
                    name = self._bind(value, attribute)
                    self.new_names[".".join([owner.id, *attributes[:number]])] = name
                    return parse_expression(".".join([name, *attributes[number:]]))
        self.generic_visit(node)
        return node


def script_text(tree: ast.Module) -> str:
    """Return the text of a script, with blank lines around definitions and after imports."""
    text, kind_before = "", ""
    for statement in tree.body:
        kind = "import" if isinstance(statement, ast.Import | ast.ImportFrom) else type(statement).__name__
        kind = kind if kind in {"import", "FunctionDef", "AsyncFunctionDef", "ClassDef"} else "statement"
        text += "\n" if kind_before and (kind != kind_before or kind.endswith("Def")) else ""
        text += ast.unparse(statement).strip() + "\n"
        kind_before = kind
    return text.rstrip("\n")


def redact_script(tree: ast.Module, *, keeps_strings: bool) -> str:
    """Return the text of a script in which functions, classes, variables and attributes have names such as ``f1``.

    With ``keeps_strings``, strings stay unchanged, because the script may need them.
    """
    changed_tree = copy.deepcopy(tree)
    names, attributes = _new_names_of_definitions(changed_tree)
    for node in ast.walk(changed_tree):
        match node:
            case ast.ClassDef():
                node.name = names.get(node.name, node.name)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                node.name = names.get(node.name) or attributes.get(node.name, node.name)
            case ast.Name():
                node.id = names.get(node.id, node.id)
            case ast.arg():
                node.arg = names.get(node.arg, node.arg)
            case ast.keyword(arg=str(name)):
                node.arg = names.get(name, name)
            case ast.Attribute():
                node.attr = attributes.get(node.attr, node.attr)
            case ast.Global() | ast.Nonlocal():
                node.names = [names.get(name, name) for name in node.names]
            case ast.ExceptHandler(name=str(name)):
                node.name = names.get(name, name)
    if not keeps_strings:
        _StringReplacer(names | attributes).visit(changed_tree)
    return script_text(ast.fix_missing_locations(changed_tree))


def _new_names_of_definitions(tree: ast.Module) -> tuple[dict[str, str], dict[str, str]]:
    """Return new names for the functions, classes and variables that the script defines, and for its attributes."""
    imported_names = {alias.asname or alias.name.partition(".")[0] for node in ast.walk(tree)
                if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}  # fmt: skip
    names: dict[str, str] = {}
    attributes: dict[str, str] = {}
    counts = {"f": 0, "C": 0, "v": 0, "a": 0}

    def add(name: str, letter: str) -> None:
        new_names, unchanged_names = (attributes, _UNCHANGED_ATTRIBUTES) if letter == "a" else (names, _UNCHANGED_NAMES)
        if not name.startswith("__") and name not in {*unchanged_names, *imported_names, *new_names}:
            counts[letter] += 1
            new_names[name] = f"{letter}{counts[letter]}"

    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                add(node.name, "C")
                for part in node.body:
                    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                        add(part.name, "a")
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name not in {*attributes, *_CALLED_METHODS}:
                add(node.name, "f")
            case ast.Name(ctx=ast.Store()):
                add(node.id, "v")
            case ast.arg():
                add(node.arg, "v")
            case ast.Attribute(ctx=ast.Store()) if not ast.unparse(node).startswith("torch."):
                add(node.attr, "a")
            case ast.ExceptHandler(name=str(name)):
                add(name, "v")
    return names, attributes


class _StringReplacer(ast.NodeTransformer):
    """Replaces strings, except those that PyTorch reads."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._new_strings: dict[str, str] = {}

    def visit_Call(self, node: ast.Call) -> ast.Call:
        if ast.unparse(node.func).startswith("torch."):
            return node
        self.generic_visit(node)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        if node.arg not in _MEANINGFUL_KEYWORDS:
            self.generic_visit(node)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and not node.value.startswith("__"):
            new_text = self._names.get(node.value) or self._new_strings.setdefault(
                node.value, f"s{len(self._new_strings) + 1}"
            )
            return ast.Constant(new_text)
        return node
