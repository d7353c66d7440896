"""Find the names that the code of a cell binds, in its syntax tree.

The bytecode is not enough: CPython omits code that can never run, but a name that only such code binds still belongs
to its scope.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.python_text import names_bound_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def top_level_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of the top level of a cell, without those inside its functions and classes.

    The decorators, defaults and base classes of a definition belong to the top level. The nodes are walked without
    recursion, because the code of a cell may nest deeper than Python's stack.
    """
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending += [*getattr(node, "decorator_list", []), *node.args.defaults]
            pending += [default for default in node.args.kw_defaults if default is not None]
        elif isinstance(node, ast.ClassDef):
            pending += [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]
        else:
            pending += ast.iter_child_nodes(node)


def bound_names(body: Iterable[ast.stmt]) -> set[str]:
    """Return the names that statements bind or delete in their own scope."""
    names: set[str] = set()
    comprehension_targets = _comprehension_targets(body)
    for node in top_level_nodes(body):
        if node not in comprehension_targets:
            names.update(names_bound_by(node))
    return names


def _comprehension_targets(body: Iterable[ast.stmt]) -> set[ast.AST]:
    """Return the targets of comprehensions, which are local to them, unlike the target of ``:=`` inside one."""
    targets: set[ast.AST] = set()
    for node in top_level_nodes(body):
        if isinstance(node, _COMPREHENSIONS):
            for generator in node.generators:
                targets.update(ast.walk(generator.target))
    return targets
