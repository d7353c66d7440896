"""Drop tests for empty tensors, if the code that they protect seems to change nothing for such tensors."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.element_counts import requires_elements
from jupyter_graphbreak.experiments.families.protection import assumptions_of
from jupyter_graphbreak.experiments.families.site import called_name, dotted_name, indentation_step, names_read

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
    is_shortcut, counting_call = requires_elements(tests[0]) is False, _counting_call(tests[0])
    method = called_name(counting_call) if counting_call is not None else ""
    block = source.block_of(if_statement)
    protected_code = ast.Module(block[block.index(if_statement) + 1 :] if is_shortcut else body, [])
    # A sum is a number of elements only if the values form a mask.
    indices = [node.slice for node in ast.walk(protected_code) if isinstance(node, ast.Subscript)]
    if not mask_names & names_read(ast.Tuple(indices) if method == "sum" else protected_code):
        return
    if is_shortcut:
        only_skips = len(parts) == 1 and len(body) == 1 and isinstance(body[0], ast.Continue | ast.Return)
        splices: list[Splice | None] = [source.deletion(if_statement)] if only_skips else []
        title = f"Drop the `{method}()` shortcut" if method else "Drop the shortcut for an empty tensor"
    else:
        are_changes = [
            isinstance(part, ast.Assign | ast.AugAssign | ast.AnnAssign)
            or (isinstance(part, ast.Expr) and re.search("[a-z]_$", called_name(part.value)))  # as in x.add_(1)
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
        mask = _counted_mask(counting_call, site.torch_name) if counting_call is not None else None
        # A mask such as `isnan(x)` says nothing about the other elements of x, which the protected code may change.
        if mask is not None and _is_computed(mask) and ast.dump(mask) not in ast.dump(protected_code):
            text = source.text_of(mask)
            assumptions.append(f"it assumes that the code below the test changes nothing if {text} is nowhere true")
        yield from site.propose_edit(family, title, splices, tests, assumptions)


def _counting_call(test: ast.expr) -> ast.Call | None:
    """Return the call with which a test finds or counts a mask's true values; ``None`` if it reads a size instead."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _COUNTING_METHODS:
            return node
    return None


def _counted_mask(call: ast.Call, torch_name: str) -> ast.expr | None:
    if isinstance(call.func, ast.Attribute) and dotted_name(call.func.value) != torch_name:
        return call.func.value
    return call.args[0] if call.args else None


def _is_computed(mask: ast.expr) -> bool:
    """Return whether an expression computes a mask, instead of naming it."""
    if isinstance(mask, ast.UnaryOp):
        return _is_computed(mask.operand)
    return not isinstance(mask, ast.Name | ast.Attribute | ast.Subscript)
