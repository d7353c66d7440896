"""Find the names that a function binds before a statement, and the names that it reads after the statement."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.drafting import FunctionNode
from jupyter_graphbreak.experiments.families.site import global_and_nonlocal_names

if TYPE_CHECKING:
    from jupyter_graphbreak.experiments.families.drafting import Draft


def is_bound_before(draft: Draft, statement: ast.stmt, target: str) -> bool:
    """Return whether a target is bound before a statement, as is assumed for any target that is not a plain name."""
    if not target.isidentifier():
        return True
    scope = draft.enclosing_function(statement) or draft.tree
    if isinstance(scope, FunctionNode):
        parameters = [part.arg for part in ast.walk(scope.args) if isinstance(part, ast.arg)]
        if target in parameters:
            return True
    return target in global_and_nonlocal_names(scope) or any(
        isinstance(node, ast.Name) and node.id == target and isinstance(node.ctx, ast.Store)
        and node.lineno < statement.lineno
        for node in ast.walk(scope)
    )  # fmt: skip


def names_read_after(draft: Draft, statement: ast.stmt) -> set[str]:
    """Return the names read after a statement, including those read in the next iteration of a loop around it."""
    scope: ast.AST = draft.enclosing_function(statement) or draft.tree
    last_line = statement.end_lineno or statement.lineno
    loops = [part for part in draft.ancestors(statement) if isinstance(part, ast.For | ast.While)]
    first_line = min((part.lineno for part in loops), default=last_line + 1)
    nodes_of_statement = set(ast.walk(statement))
    return {
        node.id
        for node in ast.walk(scope)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and (node.lineno > last_line or (node.lineno >= first_line and node not in nodes_of_statement))
    }
