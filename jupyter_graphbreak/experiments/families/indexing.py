"""Change how code indexes tensors: ``cache[:, k]`` makes ``k`` a constant, and ``x[tensor]`` breaks the graph."""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.parsed_source import Splice, as_operand
from jupyter_graphbreak.experiments.families.proposal import Proposal
from jupyter_graphbreak.experiments.families.site import parse_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyter_graphbreak.experiments.families.parsed_source import ParsedSource
    from jupyter_graphbreak.experiments.families.site import Site

FAMILY = "indexing"
#: The expressions that may compute an index from a tensor.
_COMPUTED_INDEX_NODES = (ast.Attribute, ast.BinOp, ast.Call, ast.Name, ast.Subscript)


def propose_selecting(source_id: str, text: str, line: int) -> Proposal | None:
    """Return a change that writes a line's indices, wherever its function uses them, with ``select()``; else ``None``.

    The line has an index that PyTorch makes a constant, such as ``cache[:, position] = value``.
    """
    source = parse_source(text)
    if source is None:
        return None
    nodes_on_line = [node for node in _subscripts(source.tree) if node.lineno <= line <= (node.end_lineno or 0)]
    numbers = {ast.unparse(index) for node in nodes_on_line for index in _number_indices(node)}
    function = source.enclosing_function(nodes_on_line[0]) if nodes_on_line else None
    if function is None or not numbers:
        return None
    nodes = [node for node in _subscripts(function) if not numbers.isdisjoint(map(ast.unparse, _number_indices(node)))]
    outermost_nodes = [node for node in nodes if not any(outer in nodes for outer in source.ancestors(node))]
    new_text = source.apply_splices([_with_select(source, node) for node in outermost_nodes])
    if new_text is None:
        return None
    names = " and ".join(f"`{name}`" for name in sorted(numbers))
    return Proposal(FAMILY, f"Index by {names} with `select()`", {source_id: new_text})


def _subscripts(tree: ast.AST) -> Iterator[ast.Subscript]:
    """Yield the subscripts with several indices, at least one of which may be a number in a variable."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Del) and _number_indices(node):
            yield node


def _number_indices(node: ast.Subscript) -> list[ast.expr]:
    """Return those of several indices that may be numbers in variables; empty unless all others are slices or integers.

    An ellipsis counts as a slice.
    """
    indices = _indices(node) if isinstance(node.slice, ast.Tuple) else []
    numbers: list[ast.expr] = [index for index in indices if isinstance(index, ast.Name | ast.Attribute | ast.BinOp)]
    are_others_simple = all(
        index in numbers or isinstance(index, ast.Slice) or _is_ellipsis(index) or _is_number(index)
        for index in indices
    )
    return numbers if are_others_simple else []


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _is_number(node: ast.expr) -> bool:
    operand = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(operand, ast.Constant) and type(operand.value) is int


def _selects_everything(index: ast.expr) -> bool:
    return _is_ellipsis(index) or (
        isinstance(index, ast.Slice) and index.lower is None and index.upper is None and index.step is None
    )


def _with_select(source: ParsedSource, node: ast.Subscript) -> Splice:
    """Return the splice that indexes with ``select()``, last dimension first, and then with the slices."""
    remaining_indices = list(_indices(node))
    text = source.text_of(node.value)
    for number in reversed(_number_indices(node)):
        position = remaining_indices.index(number)
        del remaining_indices[position]
        has_ellipsis = any(map(_is_ellipsis, remaining_indices[:position]))
        dimension = position - len(remaining_indices) - 1 if has_ellipsis else position
        text = f"{text}.select({dimension}, {source.text_of(number)})"
    return source.replacement(
        node, text + _index_text(source, remaining_indices, is_read=isinstance(node.ctx, ast.Load))
    )


def _index_text(source: ParsedSource, indices: Sequence[ast.expr], *, is_read: bool) -> str:
    """Return the text of the remaining indices in brackets; empty if they are not needed to read the tensor."""
    needed_indices = list(indices)
    while needed_indices and _selects_everything(needed_indices[-1]):
        needed_indices.pop()
    if needed_indices:
        return f"[{', '.join(map(source.text_of, needed_indices))}]"
    return "" if is_read else "[...]"


def index_with_vector(site: Site, family: str) -> Iterator[Proposal]:
    """Propose to write ``x[i]``, in which ``i`` is a zero-dimensional tensor, as ``x[i.reshape(1)][0]``.

    PyTorch turns a zero-dimensional index into a number, which a graph does not know. If the index is a variable, all
    subscripts of the function that use it as an index are rewritten, because each of them would break the graph.
    Otherwise, those of the statement that contain the same expression are rewritten.
    """
    source, node = site.source, site.node
    targets = getattr(node, "targets", []) if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    subscript = next((part for part in (node, *targets) if isinstance(part, ast.Subscript)), None)
    for index in _computed_indices(subscript) if subscript is not None else ():
        text = source.text_of(index)
        scope = site.function if isinstance(index, ast.Name) and site.function is not None else site.statement
        splices: list[Splice] = []
        for part in ast.walk(scope):
            if isinstance(part, ast.Subscript):
                equal_index = next((other for other in _computed_indices(part) if source.text_of(other) == text), None)
                if equal_index is not None:
                    splices += _splices_for_vector(site, part, equal_index)
        yield from site.propose_edit(family, "Index with a tensor of one element", splices)


def _computed_indices(subscript: ast.Subscript) -> list[ast.expr]:
    """Return the indices of a subscript that may be tensors and whose dimension in the result is known."""
    indices_before_ellipsis = itertools.takewhile(lambda index: not _is_ellipsis(index), _indices(subscript))
    return [index for index in indices_before_ellipsis if isinstance(index, _COMPUTED_INDEX_NODES)]


def _indices(subscript: ast.Subscript) -> list[ast.expr]:
    return subscript.slice.elts if isinstance(subscript.slice, ast.Tuple) else [subscript.slice]


def _splices_for_vector(site: Site, subscript: ast.Subscript, index: ast.expr) -> list[Splice]:
    """Return the splices that index with a vector and, if the result is read, remove the dimension of the vector."""
    splices = [site.source.replacement(index, f"{as_operand(site.source.text_of(index))}.reshape(1)")]
    if isinstance(subscript.ctx, ast.Load):
        indices = _indices(subscript)
        dimension = sum(
            isinstance(earlier_index, ast.Slice)
            or (isinstance(earlier_index, ast.Constant) and earlier_index.value is None)
            for earlier_index in indices[: indices.index(index)]
        )
        end = site.source.end_of(subscript)
        splices.append(Splice(end, end, f".squeeze({dimension})" if dimension else "[0]"))
    return splices
