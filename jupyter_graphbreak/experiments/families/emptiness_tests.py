"""Drop tests for empty tensors, if the code that they protect seems to change nothing for such tensors."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.element_counts import requires_elements
from jupyter_graphbreak.experiments.families.protection import assumptions_of
from jupyter_graphbreak.experiments.families.site import dotted_name, indentation_step, names_read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.experiments.families.parsed_source import Splice
    from jupyter_graphbreak.experiments.families.proposal import Proposal
    from jupyter_graphbreak.experiments.families.site import Site

#: The methods and functions that find or count the true values of a mask.
_COUNTING_METHODS = {"any", "count_nonzero", "sum"}


def propose_without_test(site: Site, if_statement: ast.If, family: str) -> Iterator[Proposal]:
    """Yield a change that drops a test for an empty tensor, if the protected code seems to change nothing for it."""
    test = if_statement.test
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    tests = [part for part in parts if requires_elements(part) is not None]
    mask_names = names_read(tests[0]) - {"torch"} if len(tests) == 1 else set()
    if not mask_names or if_statement.orelse:
        return
    body, source = if_statement.body, site.source
    is_shortcut, method = requires_elements(tests[0]) is False, _counting_method(tests[0])
    block = source.block_of(if_statement)
    protected_code = ast.Module(block[block.index(if_statement) + 1 :] if is_shortcut else body, [])
    if not mask_names & (_names_of_indices(protected_code) if _is_sum(tests[0]) else names_read(protected_code)):
        return
    if is_shortcut:
        only_skips = len(parts) == 1 and len(body) == 1 and isinstance(body[0], ast.Continue | ast.Return)
        splices: list[Splice | None] = [source.deletion(if_statement)] if only_skips else []
        title = f"Drop the `{method}()` shortcut" if method else "Drop the shortcut for an empty tensor"
    else:
        are_changes = [
            isinstance(part, ast.Assign | ast.AugAssign | ast.AnnAssign) or _calls_in_place_method(part)
            for part in body
        ]
        remaining_test = " and ".join(source.text_of(part) for part in parts if part is not tests[0])
        step = indentation_step(source, if_statement) if remaining_test else ""
        lines = [
            *([f"if {remaining_test}:"] if remaining_test else []),
            *(f"{step}{source.text_of(part)}" for part in body),
        ]
        splices = (
            [source.statement_replacement(if_statement, lines)]
            if all(are_changes) and source.indent_of(body[0])
            else []
        )
        title = f"Drop the `{method}()` test" if method else "Drop the test for an empty tensor"
    if splices:
        assumptions = assumptions_of(source, [if_statement.test])
        mask = _counted_mask(tests[0], site.torch_name)
        # A mask such as `isnan(x)` says nothing about the other elements of x, which the protected code may change.
        if mask is not None and _is_computed(mask) and not _contains_code(protected_code, mask):
            text = source.text_of(mask)
            assumptions.append(f"it assumes that the code below the test changes nothing if {text} is nowhere true")
        yield from site.propose_edit(family, title, splices, tests, assumptions)


def _counted_mask(test: ast.expr, torch_name: str) -> ast.expr | None:
    """Return the mask whose true values a test finds or counts; ``None`` if the test reads a size instead."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _COUNTING_METHODS:
            is_function = dotted_name(node.func.value) == torch_name
            return node.func.value if not is_function else node.args[0] if node.args else None
    return None


def _is_computed(mask: ast.expr) -> bool:
    """Return whether an expression computes a mask, instead of naming it."""
    if isinstance(mask, ast.UnaryOp):
        return _is_computed(mask.operand)
    return not isinstance(mask, ast.Name | ast.Attribute | ast.Subscript)


def _contains_code(tree: ast.AST, expression: ast.expr) -> bool:
    text = ast.dump(expression)
    return any(isinstance(node, ast.expr) and ast.dump(node) == text for node in ast.walk(tree))


def _is_sum(test: ast.expr) -> bool:
    """Return whether a test adds up values. The sum is a number of elements only if the values form a mask."""
    return any(isinstance(node, ast.Attribute) and node.attr == "sum" for node in ast.walk(test))


def _counting_method(test: ast.expr) -> str | None:
    """Return the method with which a test finds or counts a mask's true values; ``None`` if it reads a size instead."""
    attributes = (node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute))
    return next((name for name in attributes if name in _COUNTING_METHODS), None)


def _names_of_indices(tree: ast.AST) -> set[str]:
    return {name for node in ast.walk(tree) if isinstance(node, ast.Subscript) for name in names_read(node.slice)}


def _calls_in_place_method(statement: ast.stmt) -> bool:
    """Return whether a statement calls an in-place method, such as ``x.add_(1)``."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and re.search(r"[a-z]_$", dotted_name(call.func)) is not None
