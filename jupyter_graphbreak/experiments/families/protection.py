"""Find code that a condition protects: without the condition, the code may raise or have side effects."""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.operations import LOOKUP_FUNCTIONS
from jupyter_graphbreak.experiments.families.branch_values import has_no_side_effects
from jupyter_graphbreak.experiments.families.conditions import split_test
from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode
from jupyter_graphbreak.experiments.families.site import (
    arguments_of,
    called_name,
    dotted_name,
    names_bound,
    names_read,
    parameters_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jupyter_graphbreak.experiments.families.parsed_source import ParsedSource

#: Methods and functions that hardly ever raise because of a tensor's size and values.
_RARELY_RAISING_FUNCTIONS = {
    "sum", "mean", "any", "all", "abs", "norm", "std", "var", "square", "sqrt", "exp", "sign", "neg", "clone", "detach",
    "isnan", "isinf", "isfinite", "isclose", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or",
    "logical_not", "logical_xor", "count_nonzero", "numel", "size", "dim", "float", "double", "half", "long", "bool",
    "len", "item", "isinstance", "hasattr", "equal", "allclose", "is_nonzero", "relu", "sigmoid", "tanh",
    "is_floating_point", "get", "keys", "values", "is_tensor", "is_grad_enabled", "is_compiling",
}  # fmt: skip
_SIZE_ATTRIBUTES = {"shape", "ndim"}


def first_part_that_may_raise(node: ast.expr) -> ast.expr | None:
    """Return the first part of an expression that may raise for some sizes or values; ``None`` if none is evident."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and called_name(part) not in _RARELY_RAISING_FUNCTIONS:
            return part
        if (
            isinstance(part, ast.Subscript)
            and not _is_size_or_shape(part.value)
            and not isinstance(part.slice, ast.Slice)
        ):
            return part
        if isinstance(part, ast.BinOp) and _may_divide_by_zero(part):
            return part
    return None


def assumptions_of(
    source: ParsedSource, tests: Iterable[ast.expr], further_code: Iterable[ast.AST] = (), python_operand_count: int = 0
) -> list[str]:
    """Return the assumptions of a change that computes all operands and both branches of the given tests.

    ``further_code`` runs in cases in which it did not run before. Python still decides ``python_operand_count``
    operands of the first test, besides those that its syntax shows.
    """
    tests = list(tests)
    risky_parts: list[ast.expr] = []
    for test in tests:
        for operation in (node for node in ast.walk(test) if isinstance(node, ast.BoolOp)):
            # Python still decides the operands that precede the rest.
            rest_of_test = split_test(operation, python_operand_count if operation is tests[0] else 0)[0]
            values = rest_of_test.values if isinstance(rest_of_test, ast.BoolOp) else [rest_of_test]
            risky_parts += [part for part in map(first_part_that_may_raise, values[1:]) if part is not None]
            earlier_operands = operation.values[: -len(values)]
            risky_parts += _uses_of_optional_values(
                source, operation, values[1:], decided_operands=earlier_operands, evaluated_operands=values[:1]
            )
            class_tests = [index for index, value in enumerate(values) if _tests_class_or_attribute(value)]
            risky_parts += values[class_tests[0] + 1 :] if class_tests else []
        # In the original, `any` and `all` stop at the first item that decides the result.
        generators = (node for node in ast.walk(test) if isinstance(node, ast.GeneratorExp))
        risky_parts += [part for node in generators if (part := first_part_that_may_raise(node.elt)) is not None]
    for test in tests:
        rest_of_test = split_test(test, python_operand_count if test is tests[0] else 0)[0]
        values = rest_of_test.values if isinstance(rest_of_test, ast.BoolOp) else [rest_of_test]
        earlier_operands = test.values[: -len(values)] if isinstance(test, ast.BoolOp) else []
        risky_parts += _uses_of_optional_values(
            source, test, _nodes_in_branches(source, test), decided_operands=earlier_operands, evaluated_operands=values
        )
    for protected_node in (*(node for test in tests for node in _nodes_in_branches(source, test)), *further_code):
        risky_parts += [
            node for node in ast.walk(protected_node) if isinstance(node, ast.expr) and _is_risky(source, node)
        ]
    for test in tests:
        compared_names = _names_compared_by_order(source, test)
        branch_nodes = (part for node in _nodes_in_branches(source, test) for part in ast.walk(node))
        nodes = [node for node in branch_nodes if isinstance(node, ast.expr)]
        risky_parts += [node for node in nodes if not compared_names.isdisjoint(_names_in_lookups(source, node))]
    return [
        f"it assumes that {source.text_of(node)}, which a condition protects, never raises and has no effect"
        for node in dict.fromkeys(risky_parts)
    ]


def _names_compared_by_order(source: ParsedSource, test: ast.expr) -> set[str]:
    """Return the names that a test, or the value of a name in the test, compares by order, as in ``i < n``."""
    read_names, scope = names_read(test), source.enclosing_function(test) or source.tree
    assignments = (node for node in ast.walk(scope) if isinstance(node, ast.Assign) and names_bound(node) & read_names)
    values = [test, *(node.value for node in assignments)]
    comparisons = (part for value in values for part in ast.walk(value) if isinstance(part, ast.Compare))
    order_comparisons = (part for part in comparisons if any(isinstance(op, _ORDER_COMPARISONS) for op in part.ops))
    return {name for part in order_comparisons for name in names_read(part)}


def _names_in_lookups(source: ParsedSource, node: ast.AST) -> set[str]:
    """Return the names in the indices or labels that an expression, or a function it calls, uses to look items up."""
    if not isinstance(node, ast.Call):
        return _names_in_direct_lookup(source, node)
    name = called_name(node)
    functions = [part for part in ast.walk(source.tree) if isinstance(part, FunctionNode) and part.name == name]
    looked_up = (
        _names_in_direct_lookup(source, part) & parameters_of(function)
        for function in functions
        for part in ast.walk(function)
    )
    return _names_of_arguments(node) if any(looked_up) else _names_in_direct_lookup(source, node)


def _names_in_direct_lookup(source: ParsedSource, node: ast.AST) -> set[str]:
    """Return the names in the indices or labels that an expression itself uses to look items up."""
    if isinstance(node, ast.Subscript):
        parts = [part for part in ast.walk(node.slice) if isinstance(part, ast.Slice | ast.Compare)]
        return set() if parts else names_read(node.slice)
    if not isinstance(node, ast.Call):
        return set()
    name = called_name(node)
    return _names_of_arguments(node) if name in LOOKUP_FUNCTIONS or name in _embeddings(source) else set()


def _names_of_arguments(call: ast.Call) -> set[str]:
    return {name for argument in arguments_of(call) for name in names_read(argument)}


@functools.lru_cache(maxsize=8)
def _embeddings(source: ParsedSource) -> set[str]:
    """Return the names and attributes to which the source assigns embeddings."""
    assignments = (node for node in ast.walk(source.tree) if isinstance(node, ast.Assign))
    return {
        dotted_name(target).rpartition(".")[2]
        for node in assignments
        if isinstance(node.value, ast.Call) and dotted_name(node.value.func).endswith(("Embedding", "EmbeddingBag"))
        for target in node.targets
    }


def _tests_class_or_attribute(node: ast.expr) -> bool:
    """Return whether an expression calls ``hasattr``, ``isinstance`` or ``callable``, to protect later operands."""
    calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
    return any(dotted_name(call.func) in {"hasattr", "isinstance", "callable"} for call in calls)


def is_protected(source: ParsedSource, node: ast.AST) -> bool:
    """Return whether an expression may be skipped because of the expression around it."""
    inner = node
    for outer in source.ancestors(node):
        if isinstance(outer, ast.stmt):
            return False
        is_later_operand = isinstance(outer, ast.BoolOp) and inner is not outer.values[0]
        is_chosen = isinstance(outer, ast.IfExp) and inner is not outer.test
        if is_later_operand or is_chosen or isinstance(outer, ast.Lambda | ast.comprehension | ast.GeneratorExp):
            return True
        if isinstance(outer, ast.ListComp | ast.SetComp | ast.DictComp):
            return True
        inner = outer
    return False


def may_be_handled(source: ParsedSource, node: ast.AST) -> bool:
    """Return whether an enclosing statement of the same function may handle errors that a piece of code raises."""
    inner = node
    for outer in source.ancestors(node):
        if isinstance(outer, FunctionNode):
            return False
        if isinstance(outer, ast.Try | ast.TryStar) and inner in outer.body:
            if any(_may_handle(node, handler.type) for handler in outer.handlers):
                return True
        elif isinstance(outer, ast.With) and inner in outer.body:
            contexts = (item.context_expr for item in outer.items)
            if any(_may_suppress(source, node, context) for context in contexts):
                return True
        inner = outer
    return False


def _may_handle(node: ast.AST, error_types: ast.expr | None) -> bool:
    """Return whether a handler for the given types may catch errors of code. ``item()`` raises only RuntimeError."""
    names = {
        dotted_name(part)
        for part in (error_types.elts if isinstance(error_types, ast.Tuple) else [error_types])
        if part is not None
    }
    reads_number = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item"
    return not (reads_number and names and names.isdisjoint({"RuntimeError", "Exception", "BaseException"}))


def _may_suppress(source: ParsedSource, node: ast.AST, context: ast.expr) -> bool:
    """Return whether a context may suppress errors of code, judging by the context's name and definition."""
    name = dotted_name(context.func if isinstance(context, ast.Call) else context).rpartition(".")[2]
    if name == "suppress" and isinstance(context, ast.Call):
        return any(_may_handle(node, error) for error in context.args)
    definitions = [
        part for part in ast.walk(source.tree) if isinstance(part, FunctionNode | ast.ClassDef) and part.name == name
    ]
    return any(_definition_may_suppress(part) for definition in definitions for part in ast.walk(definition))


def _definition_may_suppress(part: ast.AST) -> bool:
    """Return whether a part of a context's definition, a handler or the result of ``__exit__``, may suppress errors."""
    match part:
        case ast.Try(handlers=handlers):
            return bool(handlers)
        case ast.Call(func=function):
            return dotted_name(function).rpartition(".")[2] == "suppress"
        case ast.FunctionDef(name="__exit__"):
            results = [node.value for node in ast.walk(part) if isinstance(node, ast.Return)]
            return any(result is not None and not _is_false(result) for result in results)
    return False


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _nodes_in_branches(source: ParsedSource, test: ast.expr) -> Iterator[ast.AST]:
    parent = next(source.ancestors(test), None)
    match parent:
        case ast.IfExp():
            yield from (parent.body, parent.orelse)
        case ast.If() | ast.While():
            yield from (*parent.body, *parent.orelse)


def _is_risky(source: ParsedSource, node: ast.expr) -> bool:
    """Return whether an expression may raise in a way that trials on different inputs do not show."""
    if isinstance(node, ast.BinOp):
        return _may_divide_by_zero(node) and not isinstance(node.right, ast.Name | ast.Attribute)
    if isinstance(node, ast.Subscript):
        owner = dotted_name(node.value).rpartition(".")[2]
        return not isinstance(node.slice, ast.Slice) and owner in _possibly_empty_containers(source)
    if isinstance(node, ast.Call):
        name = dotted_name(node.func).removeprefix("self.")
        functions = (part for part in ast.walk(source.tree) if isinstance(part, FunctionNode))
        return any(function.name == name and not _is_harmless(function) for function in functions)
    return False


@functools.lru_cache(maxsize=8)
def _possibly_empty_containers(source: ParsedSource) -> set[str]:
    """Return the names of containers that the source empties, shrinks or creates without items."""
    names: set[str] = set()
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in _REMOVING_METHODS:
                names.add(dotted_name(owner).rpartition(".")[2])
            case ast.Delete(targets=targets):
                names |= {
                    dotted_name(part.value).rpartition(".")[2] for part in targets if isinstance(part, ast.Subscript)
                }
            case ast.Assign(targets=targets, value=ast.List(elts=[]) | ast.Dict(keys=[])):
                names |= {dotted_name(target).rpartition(".")[2] for target in targets}
    return names


def _is_harmless(function: FunctionNode) -> bool:
    """Return whether a function of the source has no side effects and never raises, as far as its syntax shows."""
    harmful_nodes = (ast.Raise, ast.Assert, ast.Global, ast.Nonlocal, ast.Delete)
    return not any(
        isinstance(node, harmful_nodes) or (isinstance(node, ast.Call) and not has_no_side_effects(node))
        for node in ast.walk(function)
    )


def _may_divide_by_zero(node: ast.BinOp) -> bool:
    """Return whether Python may divide by zero in an operation, judging by the syntax of the operands."""
    if not isinstance(node.op, ast.FloorDiv | ast.Mod | ast.Div) or isinstance(node.left, ast.JoinedStr):
        return False
    if isinstance(node.right, ast.Constant):
        return node.right.value == 0
    if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
        return False
    if isinstance(node.op, ast.Div) and not (isinstance(node.left, ast.Constant) or _is_size_or_shape(node.left)):
        return False  # most likely a tensor
    return not any(isinstance(part, ast.Call) and not _is_size_or_shape(part) for part in ast.walk(node.right))


def _is_size_or_shape(node: ast.expr) -> bool:
    """Return whether an expression is a size or a shape."""
    match node:
        case ast.Attribute():
            return node.attr in _SIZE_ATTRIBUTES
        case ast.Subscript():
            return _is_size_or_shape(node.value)
        case ast.Call():
            return called_name(node) in {"len", "numel", "size", "dim"}
    return False


_REMOVING_METHODS = {"clear", "pop", "popitem", "popleft", "remove"}
_ORDER_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_COMPARISONS_WITH_NONE = (ast.Is, ast.IsNot, ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def _uses_of_optional_values(
    source: ParsedSource,
    test: ast.expr,
    nodes: Iterable[ast.AST],
    *,
    decided_operands: Sequence[ast.expr],
    evaluated_operands: Sequence[ast.expr],
) -> Iterator[ast.expr]:
    """Yield the expressions in the given code that probably raise for a value that the source allows to be ``None``.

    The test protects the nodes, but a change runs them regardless of its result. Python still decides the
    ``decided_operands``, and the original program always evaluates the ``evaluated_operands`` at the test.
    """
    function = source.enclosing_function(test)
    if function is None:
        return
    scope = source.enclosing_node(function, ast.ClassDef) or function
    names = {*_optional_parameters(function), *_optional_values(scope)}
    names -= {dotted_name(part) for operand in decided_operands for part in ast.walk(operand)}
    names -= _names_known_not_none(source, test, evaluated_operands, names)
    for node in nodes:
        for part in ast.walk(node):
            parent = next(source.ancestors(part), None)
            if (
                isinstance(part, ast.Name | ast.Attribute)
                and dotted_name(part) in names
                and _raises_for_none(parent, part)
            ):
                yield parent if isinstance(parent, ast.expr) else part


def _optional_parameters(function: FunctionNode) -> Iterator[str]:
    """Yield the parameters that are ``None`` by default, or may be ``None`` according to their annotations."""
    arguments = function.args
    positional_parameters = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip(reversed(positional_parameters), reversed(arguments.defaults), strict=False))
    defaults |= {
        arg: value for arg, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value is not None
    }
    for arg in (*positional_parameters, *arguments.kwonlyargs):
        if _is_none(defaults.get(arg)) or _allows_none(arg.annotation):
            yield arg.arg


def _optional_values(scope: ast.AST) -> Iterator[str]:
    """Yield the names and attributes that code compares with ``None``, or sets to a value that may be ``None``."""
    for node in ast.walk(scope):
        match node:
            case ast.Compare(left=left, comparators=[right]) if _is_none(right):
                yield dotted_name(left)
            case ast.Assign(targets=targets, value=value) if _may_be_none(value):
                yield from map(dotted_name, targets)
            case ast.AnnAssign(target=target, annotation=annotation) if _allows_none(annotation):
                yield from (dotted_name(target), f"self.{dotted_name(target)}")
            case ast.FunctionDef():
                optional_names = set(_optional_parameters(node))
                for part in ast.walk(node):
                    if isinstance(part, ast.Assign) and dotted_name(part.value) in optional_names:
                        yield from (dotted_name(target) for target in part.targets if isinstance(target, ast.Attribute))


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


def _raises_for_none(parent: ast.AST | None, part: ast.expr) -> bool:
    """Return whether an expression probably raises if a part of it is ``None``."""
    match parent:
        case ast.Compare():
            return not any(isinstance(op, _COMPARISONS_WITH_NONE) for op in parent.ops)
        case ast.UnaryOp():
            return not isinstance(parent.op, ast.Not)
        case ast.Attribute() | ast.Subscript():
            return parent.value is part
        case ast.Call():
            return parent.func is part or part in parent.args
    return isinstance(parent, ast.BinOp)


def _names_known_not_none(
    source: ParsedSource, test: ast.expr, evaluated_operands: Sequence[ast.expr], names: set[str]
) -> set[str]:
    """Return the names that cannot be ``None`` at a test, because earlier code assigns, uses or tests them."""
    known_names: set[str] = set()
    earlier_nodes: list[ast.AST] = [*evaluated_operands]
    inner: ast.AST = test
    for outer in source.ancestors(test):
        if isinstance(outer, FunctionNode):
            break
        if isinstance(outer, ast.If | ast.IfExp | ast.While) and inner is not outer.test:
            known_names |= {
                dotted_name(part) for part in ast.walk(outer.test) if isinstance(part, ast.Name | ast.Attribute)
            }
        inner = outer
    statement = source.enclosing_node(test, ast.stmt)
    while statement is not None:
        block = source.block_of(statement)
        earlier_nodes += block[: block.index(statement)]
        outer_statement = next(source.ancestors(statement), None)
        statement = (
            outer_statement
            if isinstance(outer_statement, ast.stmt) and not isinstance(outer_statement, FunctionNode)
            else None
        )
    for node in earlier_nodes:
        is_test = isinstance(node, ast.If | ast.Assert)
        for part in ast.walk(node.test if isinstance(node, ast.If | ast.Assert) else node):
            if not isinstance(part, ast.Name | ast.Attribute) or (name := dotted_name(part)) not in names:
                continue
            parent = next(source.ancestors(part), None)
            is_assigned = isinstance(parent, ast.Assign) and part in parent.targets and not _may_be_none(parent.value)
            if is_test or is_assigned or _raises_for_none(parent, part):
                known_names.add(name)
    return known_names
