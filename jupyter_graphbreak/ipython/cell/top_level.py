"""Decide whether a cell only computes with tensors at its top level, so it can be compiled as one function.

Only listed constructs are allowed: assignments, conditions, loops, and calls to PyTorch's functions, tensor methods
and a few builtins. Any other cell runs as usual, and the functions that it calls are compiled.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.ipython.cell.bindings import bound_names, top_level_nodes
from jupyter_graphbreak.records.attributes import attribute_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALLOWED_STATEMENTS = (
    ast.Assign, ast.AugAssign, ast.Expr, ast.If, ast.For, ast.While, ast.With, ast.Pass, ast.Break, ast.Continue,
)  # fmt: skip
_ALLOWED_EXPRESSIONS = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Attribute, ast.Subscript, ast.Slice,
    ast.Name, ast.Constant, ast.Tuple, ast.List, ast.JoinedStr, ast.FormattedValue,
)  # fmt: skip
_PARTS_OF_NODES = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context, ast.keyword, ast.withitem)
_ALLOWED_BUILTINS = frozenset(
    {"print", "len", "range", "float", "int", "bool", "abs", "min", "max", "sum", "zip", "enumerate", "round"}
)
#: Names in PyTorch and methods of tensors that train, change process-wide settings, write files, or return something
#: other than tensors.
_NON_COMPUTING_NAMES = frozenset(
    {"autograd", "backward", "backends", "compile", "compiler", "cuda", "export", "func", "jit", "load", "manual_seed",
     "mps", "multiprocessing", "numpy", "optim", "profiler", "random", "register_hook", "save", "seed", "serialization",
     "share_memory_", "utils", "vmap"}
)  # fmt: skip
#: Methods of tensors that are not treated as operations.
_NON_OPERATION_METHODS = frozenset(
    {"backward", "clone", "cpu", "cuda", "detach", "dim", "item", "numel", "numpy", "size", "to", "tolist"}
)


def only_computes(leading_statements: list[ast.stmt], body: list[ast.stmt], namespace: Mapping[str, Any]) -> bool:
    """Return whether statements below imports and definitions compute with tensors and call nothing to compile."""
    imports_torch = any(
        "torch" in ast.unparse(node) for node in leading_statements if isinstance(node, ast.Import | ast.ImportFrom)
    )
    if "torch" not in sys.modules and not imports_torch:
        return False
    resolver = _NameResolver(leading_statements, body, namespace)
    nodes = [node for statement in body for node in ast.walk(statement)]
    return all(resolver.allows(node) for node in nodes) and any(resolver.uses_torch(node) for node in nodes)


def lines_with_tensor_operations(body: list[ast.stmt], namespace: Mapping[str, Any]) -> list[int]:
    """Return the lines at the top level of a cell that operate on tensors; the cell must have run."""
    import torch

    lines = set()
    for node in top_level_nodes(body):
        match node:
            case ast.BinOp(left, _, right):
                operands = [left, right]
            case ast.Call(ast.Attribute(operand, attr=name), arguments) if name not in _NON_OPERATION_METHODS:
                operands = [operand, *arguments]
            case _:
                continue
        names = [operand.id for operand in operands if isinstance(operand, ast.Name)]
        if any(isinstance(namespace.get(name), torch.Tensor) for name in names):
            lines.add(node.lineno)
    return sorted(lines)


class _NameResolver:
    """Finds the objects that the names of a cell refer to, as far as they are known before the cell runs."""

    def __init__(self, leading_statements: list[ast.stmt], body: list[ast.stmt], namespace: Mapping[str, Any]) -> None:
        imported = _imported_objects(leading_statements)
        self._known_objects = {
            **{name: namespace[name] for name in namespace if name not in bound_names(leading_statements)},
            **imported,
        }
        self._bound_names = bound_names(body)

    def allows(self, node: ast.AST) -> bool:
        """Return whether a node may be part of a cell that only computes."""
        match node:
            case ast.Call(function):
                return self._allows_call(function)
            case ast.Attribute(attr=name):
                return name not in _NON_COMPUTING_NAMES and not name.startswith(("set_", "_"))
            case ast.Name(name, ast.Load()):
                return name in self._bound_names or _is_allowed_value(self._value(name))
            case ast.Assign() | ast.AugAssign() | ast.For():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                return all(isinstance(target, ast.Name | ast.Tuple | ast.Subscript) for target in targets)
            case ast.With(items):
                return all(isinstance(item.context_expr, ast.Call) and item.optional_vars is None for item in items)
            case ast.Expr(ast.Constant(str())):
                return False  # the first string would be the docstring of a module
        return isinstance(node, (*_ALLOWED_STATEMENTS, *_ALLOWED_EXPRESSIONS, *_PARTS_OF_NODES))

    def uses_torch(self, node: ast.AST) -> bool:
        """Return whether a node is the name of a tensor or a call to one of PyTorch's functions."""
        import torch

        match node:
            case ast.Name(name, ast.Load()):
                return isinstance(self._known_objects.get(name), torch.Tensor)
            case ast.Call(function):
                return _is_in_package(_module_name(self._resolve(function)), "torch")
        return False

    def _allows_call(self, function: ast.expr) -> bool:
        import torch

        match function:
            case ast.Name(name) if name not in self._known_objects and name not in self._bound_names:
                return name in _ALLOWED_BUILTINS
            case ast.Name() | ast.Attribute():
                callee = self._resolve(function)
                if callee is None:  # a method of something that the cell computes
                    return isinstance(function, ast.Attribute) and self._is_computed(function.value)
                if isinstance(callee, types.MethodType | types.BuiltinMethodType) and isinstance(
                    callee.__self__, torch.Tensor
                ):
                    return True
                return _is_computing_function(callee)
        return False

    def _is_computed(self, value: ast.expr) -> bool:
        """Return whether an expression depends only on values that the cell computes, not on other objects."""
        names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
        values = [self._value(name) for name in names if name not in self._bound_names]
        return all(_is_tensor(value) or isinstance(value, types.ModuleType) for value in values)

    def _value(self, name: str) -> Any:
        # getattr would create `builtins.__annotations__`, which the cell could see.
        return self._known_objects[name] if name in self._known_objects else vars(builtins).get(name, _UNKNOWN_VALUE)

    def _resolve(self, expression: ast.expr) -> Any:
        """Return the object with a dotted name; ``None`` if it is not known yet."""
        match expression:
            case ast.Name(name) if name not in self._bound_names:
                return self._known_objects.get(name)
            case ast.Attribute(value, name):
                owner = self._resolve(value)
                is_readable = isinstance(owner, types.ModuleType) or _is_tensor(owner)
                return getattr(owner, name, None) if is_readable else None
        return None


_UNKNOWN_VALUE = object()


def _is_allowed_value(value: Any) -> bool:
    """Return whether a value is a tensor, number, string, container of these, PyTorch object, or builtin."""
    import torch

    if isinstance(value, list | tuple):
        return all(map(_is_allowed_value, value))
    if isinstance(value, torch.Tensor | bool | int | float | complex | str | None | torch.dtype | torch.device):
        return True
    if isinstance(value, types.ModuleType):
        return _is_in_package(value.__name__, "torch", "math")
    return _is_computing_function(value) or any(value is getattr(builtins, name) for name in _ALLOWED_BUILTINS)


def _is_computing_function(callee: Any) -> bool:
    """Return whether a callable is a PyTorch or ``math`` function that computes, or a mode such as ``no_grad``."""
    import torch

    if isinstance(callee, type):
        return callee in {torch.no_grad, torch.enable_grad, torch.inference_mode, torch.autocast, torch.Size}
    if not isinstance(callee, types.FunctionType | types.BuiltinFunctionType):
        return False
    module_name = _module_name(callee)
    parts_of_name = {*module_name.split("."), callee.__name__}
    return (
        _is_in_package(module_name, "torch", "math")
        and not parts_of_name & _NON_COMPUTING_NAMES
        and not callee.__name__.startswith("set_")
    )


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_in_package(module_name: str, *packages: str) -> bool:
    return module_name.partition(".")[0] in packages


def _module_name(value: Any) -> str:
    name = value.__name__ if isinstance(value, types.ModuleType) else attribute_of(value, "__module__")
    if name is None and isinstance(value, types.BuiltinFunctionType):
        name = type(value.__self__).__module__ if value.__self__ is not None else None
    return name if isinstance(name, str) else ""


def _imported_objects(leading_statements: list[ast.stmt]) -> dict[str, Any]:
    """Return the objects that a cell imports from PyTorch and ``math`` at its top; other imports are omitted."""
    objects: dict[str, Any] = {}
    for node in leading_statements:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in {"torch", "math"}:
                    module = importlib.import_module(alias.name)
                    root = importlib.import_module(alias.name.partition(".")[0])
                    objects[alias.asname or alias.name.partition(".")[0]] = module if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in {"torch", "math"}:
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                value = getattr(module, alias.name, None)
                if value is not None:
                    objects[alias.asname or alias.name] = value
    return objects
