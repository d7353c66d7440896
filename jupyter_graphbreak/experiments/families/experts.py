"""Let loops over the experts that a batch uses run over all experts, because experts without rows change nothing."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.conditions import tensor_moved_to_host
from jupyter_graphbreak.experiments.families.element_counts import counts_elements, requires_elements
from jupyter_graphbreak.experiments.families.site import (
    called_name,
    dotted_name,
    names_bound,
    names_read,
    names_read_after,
    site_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode, Splice
    from jupyter_graphbreak.experiments.families.proposal import Problem, Proposal
    from jupyter_graphbreak.experiments.families.site import Site

FAMILY = "experts"
_ALL_EXPERTS_TITLE = "Loop over all of `{}`, not only over those that the batch uses"
_DROP_COUNTS_TITLE = "Drop the test for experts without rows"
#: Functions that return, in ascending order, the distinct values of a tensor, or the positions of its nonzero elements.
_INDEX_FUNCTIONS = {"unique", "nonzero"}
#: Methods that turn the rows of ``nonzero()``, which have one element each, into scalars.
_FLATTENING_METHODS = {"flatten", "squeeze", "view", "reshape", "ravel", "tolist"}
#: Methods that change some rows of a tensor, and leave it unchanged if they get no rows.
_ROW_UPDATES = {"index_add_", "index_copy_", "index_put_", "scatter_add_"}


@dataclass(frozen=True)
class _ExpertLoop:
    """A loop over the indices of the experts that occur in a tensor.

    ``assignment`` assigns these indices to a name, if the loop runs over a name. ``index_names`` contains the loop's
    variable, and the name to which the body's first statement assigns it as a Python number, if any. The
    index selects a module from ``module_list``, such as "self.experts".
    """

    loop: ast.For
    indices: ast.expr
    assignment: ast.Assign | None
    index_names: tuple[str, ...]
    module_list: str

    def contains(self, node: ast.AST) -> bool:
        """Return whether a node is part of the loop, or of the statement that computes the indices."""
        parts = [self.loop, *([self.assignment] if self.assignment is not None else [])]
        return any(node is part for outer in parts for part in ast.walk(outer))


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield changes that run all experts, so that neither their indices nor their row counts leave the device."""
    site = site_of(problem)
    function = site.function if site is not None else None
    if site is None or function is None:
        return
    for loop in (node for node in ast.walk(function) if isinstance(node, ast.For)):
        expert_loop = _parse_expert_loop(function, loop)
        if expert_loop is not None and expert_loop.contains(site.node):
            yield from _propose_all_experts(site, expert_loop)
    if isinstance(site.statement, ast.Assign):
        yield from _propose_without_counts(site, function, site.statement)


def _parse_expert_loop(function: FunctionNode, loop: ast.For) -> _ExpertLoop | None:
    """Return the parts of a loop over the experts in use; ``None`` if the loop has a different form."""
    if not isinstance(loop.target, ast.Name) or loop.orelse:
        return None
    assignment = _only_assignment(function, loop.iter.id) if isinstance(loop.iter, ast.Name) else None
    indices = assignment.value if assignment is not None else loop.iter
    if not any(called_name(node) in _INDEX_FUNCTIONS for node in ast.walk(indices)):
        return None
    names: tuple[str, ...] = (loop.target.id,)
    alias = _python_index_name(loop)
    if alias is not None:
        names = (*names, alias.id)
    modules = _indexed_module_list(loop, names)
    return _ExpertLoop(loop, indices, assignment, names, modules) if modules is not None else None


def _only_assignment(function: FunctionNode, name: str) -> ast.Assign | None:
    """Return the only assignment to a name; ``None`` if there is none, more than one, or one with further targets."""
    stores = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and name in names_bound(node)]
    is_only = len(stores) == 1 and len(stores[0].targets) == 1 and isinstance(stores[0].targets[0], ast.Name)
    return stores[0] if is_only else None


def _python_index_name(loop: ast.For) -> ast.Name | None:
    """Return the name that a loop's first statement gives to the index, as in ``i = int(e.item())``; else ``None``."""
    first = loop.body[0]
    if not isinstance(first, ast.Assign) or len(first.targets) != 1 or not isinstance(first.targets[0], ast.Name):
        return None
    value = first.value
    while (inner := tensor_moved_to_host(value)) is not None:
        value = inner
    is_number = isinstance(value, ast.Name) and value.id in names_bound(loop.target) and value is not first.value
    return first.targets[0] if is_number else None


def _indexed_module_list(loop: ast.For, names: Sequence[str]) -> str | None:
    """Return the list from which a loop's index selects a module; ``None`` if there is none."""
    calls = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
    called_names = {function.id for function in calls if isinstance(function, ast.Name)}
    selected_expressions = [function for function in calls if isinstance(function, ast.Subscript)]
    selected_expressions += [
        node.value
        for node in loop.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript) and names_bound(node) & called_names
    ]
    for node in selected_expressions:
        owner = dotted_name(node.value)
        if isinstance(node.slice, ast.Name) and node.slice.id in names and owner.startswith("self."):
            return owner
    return None


def _propose_all_experts(site: Site, expert_loop: _ExpertLoop) -> Iterator[Proposal]:
    source, loop = site.source, expert_loop.loop
    tests = [node for node in loop.body if _is_shortcut(node)]
    dropped_statements = [*tests, *(loop.body[:1] if len(expert_loop.index_names) > 1 else [])]
    body = [node for node in loop.body if node not in dropped_statements]
    index_splices = _index_splices(site, expert_loop, body)
    if index_splices is None or not body or not _changes_only_rows(site, loop, body):
        return
    number = expert_loop.index_names[-1]
    splices: list[Splice | None] = [
        source.replacement(loop.target, number),
        source.replacement(loop.iter, f"range(len({expert_loop.module_list}))"),
        *map(source.deletion, dropped_statements),
        *index_splices,
    ]
    assignment = expert_loop.assignment
    if assignment is not None and _read_count(site, assignment) == 1:
        splices.append(source.deletion(assignment))
    yield from site.propose_edit(FAMILY, _ALL_EXPERTS_TITLE.format(expert_loop.module_list), splices)


def _is_shortcut(statement: ast.stmt, is_row_count: Callable[[ast.expr], bool] = counts_elements) -> bool:
    """Return whether a statement continues with the next expert if there are no rows for this one."""
    if not isinstance(statement, ast.If) or statement.orelse or len(statement.body) != 1:
        return False
    return isinstance(statement.body[0], ast.Continue) and requires_elements(statement.test, is_row_count) is False


def _index_splices(site: Site, expert_loop: _ExpertLoop, body: Sequence[ast.stmt]) -> list[Splice] | None:
    """Return splices that replace the index tensor with a Python number; ``None`` if the body needs the tensor."""
    source = site.source
    tensor, number = expert_loop.index_names[0], expert_loop.index_names[-1]
    splices: list[Splice] = []
    for name in (node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Name)):
        if name.id not in expert_loop.index_names:
            continue
        if isinstance(name.ctx, ast.Store):
            return None
        used_expression: ast.expr = name  # with the calls that move it to the host
        for outer in source.ancestors(name):
            if not isinstance(outer, ast.expr) or tensor_moved_to_host(outer) is not used_expression:
                break
            used_expression = outer
        parent = next(iter(source.ancestors(used_expression)), None)
        new_text = number
        if used_expression is name and name.id == tensor:
            if not isinstance(parent, ast.Subscript | ast.Compare):
                return None
            selects_row = isinstance(parent, ast.Subscript) and dotted_name(parent.value) != expert_loop.module_list
            new_text = f"[{number}]" if selects_row and _are_rows(expert_loop.indices) else number
        if new_text != source.text_of(used_expression):
            splices.append(source.replacement(used_expression, new_text))
    return splices


def _are_rows(indices: ast.expr) -> bool:
    """Return whether the loop's items are rows of ``nonzero()``, which are tensors with one element, not scalars."""
    names = {called_name(node) for node in ast.walk(indices)}
    return "nonzero" in names and not names & _FLATTENING_METHODS and isinstance(indices, ast.Call)


def _changes_only_rows(site: Site, loop: ast.For, body: Sequence[ast.stmt]) -> bool:
    """Return whether a loop's body changes only rows of local tensors and names that nothing reads later."""
    set_names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.Assign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        elif isinstance(statement, ast.Expr) and called_name(statement.value) in _ROW_UPDATES:
            targets = [statement.value]
        else:
            return False
        for target in targets:
            if isinstance(target, ast.Name | ast.Tuple) and isinstance(statement, ast.Assign):
                set_names |= names_bound(target)
                continue
            changed_expression = target.value if isinstance(target, ast.Subscript) else getattr(target, "func", None)
            if changed_expression is None or "self" in names_read(changed_expression):
                return False
    return not set_names & names_read_after(site.source, loop)


def _read_count(site: Site, assignment: ast.Assign) -> int:
    """Return how often the function reads the name that a statement assigns to."""
    names = names_bound(assignment)
    nodes = ast.walk(site.function) if site.function is not None else ()
    return sum(isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names for node in nodes)


def _propose_without_counts(site: Site, function: FunctionNode, assignment: ast.Assign) -> Iterator[Proposal]:
    """Yield a change that drops ``if counts[i] == 0: continue``, and ``counts`` if only such tests read them."""
    counts = names_bound(assignment)
    source = site.source
    if len(counts) != 1 or tensor_moved_to_host(assignment.value) is None:
        return

    def is_count(node: ast.expr) -> bool:
        return isinstance(node, ast.Subscript) and bool(names_read(node.value) & counts)

    tests: list[ast.If] = []
    for loop in (node for node in ast.walk(function) if isinstance(node, ast.For)):
        shortcuts = [node for node in loop.body if isinstance(node, ast.If) and _is_shortcut(node, is_count)]
        if shortcuts and _changes_only_rows(site, loop, [node for node in loop.body if node not in shortcuts]):
            tests += shortcuts
    if tests and sum(len(names_read(node.test) & counts) for node in tests) == _read_count(site, assignment):
        splices = [*map(source.deletion, tests), source.deletion(assignment)]
        yield from site.propose_edit(FAMILY, _DROP_COUNTS_TITLE, splices, [node.test for node in tests])
