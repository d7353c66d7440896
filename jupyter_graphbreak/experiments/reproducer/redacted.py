"""Replace the names and texts of a script, so that it can be shared."""

from __future__ import annotations

import ast
import builtins
import copy

import torch

from jupyter_graphbreak.experiments.reproducer.script import spaced

#: Names that have a meaning for Python or PyTorch.
_KEPT = {*dir(builtins), "torch", "self", "cls", "compiled"}
_KEPT_ATTRIBUTES = {*dir(torch.Tensor), *dir(torch.nn.Module), *dir(torch), "forward"}
#: Methods that Python or PyTorch calls.
_METHODS = {"forward", "backward", "setup_context"}
#: Arguments whose texts have a meaning.
_KEYWORDS = {"backend", "device", "mode", "reduction", "padding_mode", "dtype"}


def redacted_script(tree: ast.Module, *, keeps_texts: bool) -> str:
    """Return a script in which functions, classes, variables and attributes have numbers for names.

    Parameters
    ----------
    tree : Module
    keeps_texts : bool
        Whether strings stay, because the script may need them.
    """
    changed = copy.deepcopy(tree)
    names, attributes = _own_names(changed)
    for node in ast.walk(changed):
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
    if not keeps_texts:
        _Texts(names | attributes).visit(changed)
    return spaced(ast.fix_missing_locations(changed))


def _own_names(tree: ast.Module) -> tuple[dict[str, str], dict[str, str]]:
    """Return the new names of what the script itself defines: functions, classes and variables, and attributes."""
    imported = {alias.asname or alias.name.partition(".")[0] for node in ast.walk(tree)
                if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}  # fmt: skip
    names: dict[str, str] = {}
    attributes: dict[str, str] = {}
    counts = {"f": 0, "C": 0, "v": 0, "a": 0}

    def add(name: str, letter: str) -> None:
        known, kept = (attributes, _KEPT_ATTRIBUTES) if letter == "a" else (names, _KEPT)
        if not name.startswith("__") and name not in kept and name not in imported and name not in known:
            counts[letter] += 1
            known[name] = f"{letter}{counts[letter]}"

    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                add(node.name, "C")
                for part in node.body:
                    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                        add(part.name, "a")
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name not in {*attributes, *_METHODS}:
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


class _Texts(ast.NodeTransformer):
    """Replaces strings, but not those that PyTorch reads."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._texts: dict[str, str] = {}

    def visit_Call(self, node: ast.Call) -> ast.Call:
        if ast.unparse(node.func).startswith("torch."):
            return node
        self.generic_visit(node)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        if node.arg not in _KEYWORDS:
            self.generic_visit(node)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and not node.value.startswith("__"):
            new = self._names.get(node.value) or self._texts.setdefault(node.value, f"s{len(self._texts) + 1}")
            return ast.Constant(new)
        return node
