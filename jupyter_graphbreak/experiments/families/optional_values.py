"""Find expressions that raise if a value is ``None``, which the source allows, and that a condition protects."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.drafting import FunctionNode
from jupyter_graphbreak.experiments.families.site import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jupyter_graphbreak.experiments.families.drafting import Draft

_IDENTITIES = (ast.Is, ast.IsNot, ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def uses_of_optional(
    draft: Draft,
    test: ast.expr,
    nodes: Iterable[ast.AST],
    *,
    kept: Sequence[ast.expr] = (),
    used: Sequence[ast.expr] = (),
) -> Iterator[ast.expr]:
    """Yield the expressions in some code that raise if a value is ``None``, although the source allows ``None``.

    Parameters
    ----------
    draft : Draft
        The source.
    test : ast.expr
        The test that protects the code.
    nodes : iterable of ast.AST
        The code that a change runs whatever the test says.
    kept : sequence of ast.expr
        The operands of the test that Python still decides first.
    used : sequence of ast.expr
        The operands that the original evaluates as well, whenever it reaches the test.
    """
    function = draft.enclosing_function(test)
    if function is None:
        return
    scope = draft.enclosing(function, ast.ClassDef) or function
    names = {*_optional_parameters(function), *_optional_values(scope)}
    names -= {dotted(part) for operand in kept for part in ast.walk(operand)}
    names -= _settled_names(draft, test, used, names)
    for node in nodes:
        for part in ast.walk(node):
            parent = next(draft.ancestors(part), None)
            if isinstance(part, ast.Name | ast.Attribute) and dotted(part) in names and _needs_value(parent, part):
                yield parent if isinstance(parent, ast.expr) else part


def _optional_parameters(function: FunctionNode) -> Iterator[str]:
    """Yield the parameters that are ``None`` by default, or may be by their annotations."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    defaults = dict(zip(reversed(positional), reversed(spec.defaults), strict=False))
    defaults |= {arg: value for arg, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value is not None}
    for arg in (*positional, *spec.kwonlyargs):
        if _is_none(defaults.get(arg)) or _allows_none(arg.annotation):
            yield arg.arg


def _optional_values(scope: ast.AST) -> Iterator[str]:
    """Yield the names and attributes that code compares with ``None``, or to which it assigns a value that may be."""
    for node in ast.walk(scope):
        match node:
            case ast.Compare(left=left, comparators=[right]) if _is_none(right):
                yield dotted(left)
            case ast.Assign(targets=targets, value=value) if _may_be_none(value):
                yield from map(dotted, targets)
            case ast.AnnAssign(target=target, annotation=annotation) if _allows_none(annotation):
                yield from (dotted(target), f"self.{dotted(target)}")
            case ast.FunctionDef():
                optional = set(_optional_parameters(node))
                for part in ast.walk(node):
                    if isinstance(part, ast.Assign) and dotted(part.value) in optional:
                        yield from (dotted(target) for target in part.targets if isinstance(target, ast.Attribute))


def _may_be_none(value: ast.expr) -> bool:
    match value:
        case ast.IfExp():
            return _may_be_none(value.body) or _may_be_none(value.orelse)
        case ast.Call(func=ast.Attribute(attr="get"), args=[_], keywords=[]):
            return True
        case ast.Call(func=ast.Name(id="getattr"), args=[_, _, default]):
            return _is_none(default)
    return _is_none(value)


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _allows_none(annotation: ast.expr | None) -> bool:
    text = ast.unparse(annotation) if annotation is not None else ""
    return "None" in text or "Optional" in text


def _needs_value(parent: ast.AST | None, part: ast.expr) -> bool:
    """Return whether an expression raises if a part of it is ``None``."""
    match parent:
        case ast.Compare():
            return not any(isinstance(op, _IDENTITIES) for op in parent.ops)
        case ast.UnaryOp():
            return not isinstance(parent.op, ast.Not)
        case ast.Attribute() | ast.Subscript():
            return parent.value is part
        case ast.Call():
            return parent.func is part or part in parent.args
    return isinstance(parent, ast.BinOp)


def _settled_names(draft: Draft, test: ast.expr, used: Sequence[ast.expr], names: set[str]) -> set[str]:
    """Return the names that code before a test uses or tests, so that they are not ``None`` when it is reached."""
    settled: set[str] = set()
    before: list[ast.AST] = [*used]
    inner: ast.AST = test
    for outer in draft.ancestors(test):
        if isinstance(outer, FunctionNode):
            break
        if isinstance(outer, ast.If | ast.IfExp | ast.While) and inner is not outer.test:
            settled |= {dotted(part) for part in ast.walk(outer.test) if isinstance(part, ast.Name | ast.Attribute)}
        inner = outer
    statement = draft.enclosing(test, ast.stmt)
    while statement is not None:
        block = draft.block_of(statement)
        before += block[: block.index(statement)]
        around = next(draft.ancestors(statement), None)
        statement = around if isinstance(around, ast.stmt) and not isinstance(around, FunctionNode) else None
    for node in before:
        is_test = isinstance(node, ast.If | ast.Assert)
        for part in ast.walk(node.test if isinstance(node, ast.If | ast.Assert) else node):
            if not isinstance(part, ast.Name | ast.Attribute) or (name := dotted(part)) not in names:
                continue
            parent = next(draft.ancestors(part), None)
            is_assigned = isinstance(parent, ast.Assign) and part in parent.targets and not _may_be_none(parent.value)
            if is_test or is_assigned or _needs_value(parent, part):
                settled.add(name)
    return settled
