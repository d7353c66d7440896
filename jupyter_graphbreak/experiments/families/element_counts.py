"""Recognize tests of how many elements a tensor has, and rewrite those of indices as tests of the mask."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.parsed_source import as_operand
from jupyter_graphbreak.experiments.families.site import called_name, dotted_name, names_bound, names_read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jupyter_graphbreak.experiments.families.parsed_source import ParsedSource

#: Comparisons of an element count: ``True`` if only non-empty tensors pass them, ``False`` if only empty ones do.
_REQUIRES_ELEMENTS_BY_COMPARISON: Mapping[tuple[type[ast.cmpop], object], bool] = {
    (ast.Eq, 0): False, (ast.Lt, 1): False, (ast.LtE, 0): False,
    (ast.NotEq, 0): True, (ast.Gt, 0): True, (ast.GtE, 1): True,
}  # fmt: skip
#: Methods that keep the number of indices that ``nonzero()`` returns.
_METHODS_THAT_KEEP_THE_COUNT = {"flatten", "squeeze", "to"}


def requires_elements(test: ast.expr, is_element_count: Callable[[ast.expr], bool] | None = None) -> bool | None:
    """Return ``True`` if a test is true only for non-empty tensors, ``False`` if only for empty ones, else ``None``."""
    is_element_count = is_element_count or counts_elements
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = requires_elements(test.operand, is_element_count)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        key = type(test.ops[0]), test.comparators[0].value
        return _REQUIRES_ELEMENTS_BY_COMPARISON.get(key) if is_element_count(test.left) else None
    return True if is_element_count(test) else None


def counts_elements(node: ast.expr) -> bool:
    """Return whether an expression counts elements, like ``x.numel()``, ``x.shape[0]`` and ``mask.sum()``."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "item":
        return counts_elements(node.func.value)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else dotted_name(node.func)
    return name in {"any", "count_nonzero", "len", "numel", "size", "sum"}


def emptiness_condition(source: ParsedSource, test: ast.expr, torch_name: str) -> str | None:
    """Return a test such as ``len(rows) == 0`` as a test of the mask whose ``True`` elements have the indices ``rows``.

    A graph does not know the number of indices, but it computes ``mask.any()``. The result is ``None`` for any other
    test.
    """
    is_true_with_elements = requires_elements(test, lambda node: _counted_name(node) is not None)
    name = next((name for node in ast.walk(test) if (name := _counted_name(node)) is not None), None)
    mask = _mask_of_indices(source, name) if name is not None else None
    if mask is None or is_true_with_elements is None:
        return None
    condition = f"{as_operand(source.text_of(mask))}.any()"
    return condition if is_true_with_elements else f"{torch_name}.logical_not({condition})"


def _counted_name(node: ast.AST) -> ast.Name | None:
    """Return the variable whose elements an expression counts, as in ``len(x)`` or ``x.shape[0]``; else ``None``."""
    match node:
        case ast.Call(func=ast.Name("len"), args=[ast.Name() as name]):
            return name
        case ast.Call(func=ast.Attribute(ast.Name() as name, "numel"), args=[]):
            return name
        case ast.Call(func=ast.Attribute(ast.Name() as name, "size"), args=[ast.Constant(0)]):
            return name
        case ast.Subscript(value=ast.Attribute(ast.Name() as name, "shape"), slice=ast.Constant(0)):
            return name
    return None


def _mask_of_indices(source: ParsedSource, name: ast.Name) -> ast.expr | None:
    """Return the mask if a variable that is assigned once contains the indices of the mask's nonzero elements."""
    nodes = list(ast.walk(source.enclosing_function(name) or source.tree))
    stores = [
        node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name.id
    ]
    assignments = [node for node in nodes if isinstance(node, ast.Assign) and name.id in names_bound(node)]
    if len(stores) != 1 or len(assignments) != 1 or assignments[0].lineno >= name.lineno:
        return None
    value = assignments[0].value
    is_tuple = isinstance(value, ast.Call) and _returns_tuple(value)
    if is_tuple != isinstance(assignments[0].targets[0], ast.Tuple):
        return None
    mask = _mask_of(value)
    later_names = {
        node.id
        for node in nodes
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and assignments[0].lineno < node.lineno < name.lineno
    }
    return mask if mask is not None and later_names.isdisjoint(names_read(mask)) else None


def _mask_of(indices: ast.expr) -> ast.expr | None:
    """Return ``mask`` for expressions like ``torch.where(mask)[0]`` or ``mask.nonzero().squeeze(1)``; else ``None``."""
    while True:
        match indices:
            case ast.Subscript(value=ast.Call() as value, slice=ast.Constant()) if _returns_tuple(value):
                indices = value
            case ast.Subscript(value=value, slice=ast.Tuple([ast.Slice(None, None, None), ast.Constant()])):
                indices = value
            case ast.Call(func=ast.Attribute(value, method)) if method in _METHODS_THAT_KEEP_THE_COUNT:
                indices = value
            case ast.Call(
                func=ast.Attribute(value, "reshape" | "view"), args=[ast.UnaryOp(ast.USub(), ast.Constant(1))]
            ):
                indices = value
            case _:
                break
    if not isinstance(indices, ast.Call) or called_name(indices) not in {"where", "nonzero", "argwhere"}:
        return None
    is_method = isinstance(indices.func, ast.Attribute) and dotted_name(indices.func.value) != "torch"
    operands = [indices.func.value] if is_method and isinstance(indices.func, ast.Attribute) else indices.args
    is_condition_alone = not (is_method and indices.args)
    return operands[0] if len(operands) == 1 and is_condition_alone else None


def _returns_tuple(call: ast.Call) -> bool:
    """Return whether a call returns a tuple with the indices of each dimension, as ``torch.where(mask)`` does."""
    return called_name(call) == "where" or any(keyword.arg == "as_tuple" for keyword in call.keywords)
