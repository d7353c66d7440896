"""Examine the tests of branches; rewrite tests as boolean tensors, and the guard of a ``case`` as an ``if``."""

from __future__ import annotations

import ast
import functools
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.element_counts import emptiness_condition
from jupyter_graphbreak.experiments.families.parsed_source import Splice, as_operand
from jupyter_graphbreak.experiments.families.site import (
    Site,
    arguments_of,
    called_name,
    dotted_name,
    indentation_step,
    parse_source,
)

if TYPE_CHECKING:
    from jupyter_graphbreak.experiments.families.parsed_source import ParsedSource

#: Methods and functions in torch that return a boolean tensor.
_BOOLEAN_FUNCTIONS = {
    "any", "all", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "isclose", "logical_and",
    "logical_or", "logical_not", "logical_xor", "bool",
}  # fmt: skip
#: Functions and methods that return a flag, a number or a tensor.
_NUMERIC_FUNCTIONS = {
    "amax", "amin", "count_nonzero", "equal", "allclose", "is_nonzero", "max", "mean", "min", "prod", "sum",
}  # fmt: skip
#: Methods that move a value to the host. A test on the device does not need them.
_METHODS_TO_HOST = {"item", "cpu", "tolist"}
_CASTS = {"bool", "float", "int"}
#: Single precision represents all integers up to this one.
_MAX_EXACT_SINGLE = 1 << 24
#: Double precision represents all integers below this one, and rounds some larger ones to it.
_MAX_EXACT_DOUBLE = 1 << 53


def tensor_moved_to_host(node: ast.expr) -> ast.expr | None:
    """Return the tensor that an expression moves to the host, such as ``x`` in ``x.item()``; else ``None``."""
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS_TO_HOST and not node.args:
        return node.func.value
    if isinstance(node.func, ast.Name) and node.func.id in _CASTS and len(node.args) == 1:
        return node.args[0]
    return None


def is_host_test(node: ast.expr) -> bool:
    """Return whether a test such as ``x is None`` or ``len(x) > 1`` needs no tensor's value, judging by its syntax."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return is_host_test(node.operand)
    if isinstance(node, ast.Compare):
        compares_sizes = all(
            _is_size(part) or isinstance(part, ast.Constant) for part in (node.left, *node.comparators)
        )
        return compares_sizes or all(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops)
    if _is_size(node):
        return True
    if isinstance(node, ast.Call):
        return dotted_name(node.func) in {"isinstance", "hasattr", "callable", "len"}
    return isinstance(node, ast.Attribute) and node.attr == "training"


def _is_size(node: ast.expr) -> bool:
    """Return whether an expression is a size of a tensor, or its number of elements or dimensions."""
    if isinstance(node, ast.Call):
        name = called_name(node)
        return name in {"numel", "dim", "ndimension", "len"} or (name == "size" and bool(node.args))
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    return isinstance(node, ast.Attribute) and node.attr == "ndim"


def split_test(test: ast.expr, python_operand_count: int = 0) -> tuple[ast.expr, str]:
    """Return the part of a test that a tensor decides, and the text of the operands before it that Python decides.

    Python is known to decide the first ``python_operand_count`` operands. The syntax may show more.
    """
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
        return test, ""
    first_tensor_operand = next(
        (index for index, node in enumerate(test.values) if index >= python_operand_count and not is_host_test(node)), 0
    )
    if not first_tensor_operand:
        return test, ""
    python_test = " and ".join(ast.unparse(node) for node in test.values[:first_tensor_operand])
    tensor_operands = test.values[first_tensor_operand:]
    if len(tensor_operands) == 1:
        return tensor_operands[0], python_test
    return ast.copy_location(ast.BoolOp(ast.And(), tensor_operands), tensor_operands[0]), python_test


def tensor_condition(source: ParsedSource, test: ast.expr, torch_name: str) -> str | None:
    """Return a test as an expression for a boolean tensor; ``None`` if its form is not supported."""
    if isinstance(test, ast.BoolOp):
        return _combined_condition(source, test, torch_name)
    if (condition_on_mask := emptiness_condition(source, test, torch_name)) is not None:
        return condition_on_mask
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        condition = tensor_condition(source, test.operand, torch_name)
        return f"{torch_name}.logical_not({condition})" if condition else None
    if isinstance(test, ast.Compare):
        return _comparison_condition(source, test)
    if isinstance(test, ast.Name) and _is_flag(source, test):
        return f"{torch_name}.as_tensor({test.id})"
    if isinstance(test, ast.NamedExpr | ast.Constant | ast.Lambda | ast.Await):
        return None
    return _call_condition(source, test, torch_name) or f"{as_operand(_text_on_device(source, test))} != 0"


def _combined_condition(source: ParsedSource, test: ast.BoolOp, torch_name: str) -> str | None:
    first, *rest = test.values
    form = _form_of(first)
    if form is not None and all(_form_of(node) == form for node in rest):
        # If the first operand is a tensor, all are. For any other object, the function raises instead of testing it.
        function = "logical_and" if isinstance(test.op, ast.And) else "logical_or"
        texts = map(source.text_of, test.values)
        return functools.reduce(lambda left, right: f"{torch_name}.{function}({left}, {right})", texts)
    parts = [
        tensor_condition(source, first, torch_name),
        *(_later_condition(source, node, torch_name) for node in rest),
    ]
    sign = " & " if isinstance(test.op, ast.And) else " | "
    return sign.join(as_operand(part) for part in parts if part) if all(parts) else None


def _form_of(node: ast.expr) -> str | None:
    """Return the attribute that an expression reads, such as ``.hot`` in ``a.hot``, or the function that it calls.

    The result is ``None`` for any other expression, and if the name already tells the type of the expression's result.
    """
    if isinstance(node, ast.Attribute):
        return None if is_host_test(node) else f".{node.attr}"
    name = called_name(node)
    has_known_result = tensor_moved_to_host(node) is not None or name in _BOOLEAN_FUNCTIONS | _NUMERIC_FUNCTIONS
    return f"{name}()" if name and not has_known_result and not is_host_test(node) else None


def _later_condition(source: ParsedSource, node: ast.expr, torch_name: str) -> str | None:
    """Return a later operand, which may be any object, as a condition; ``None`` if its form is not supported."""
    name = called_name(node)
    is_number = (
        tensor_moved_to_host(node) is not None or name in _BOOLEAN_FUNCTIONS | _NUMERIC_FUNCTIONS or _is_size(node)
    )
    is_known_form = isinstance(node, ast.BoolOp | ast.Compare | ast.Constant | ast.NamedExpr | ast.Lambda | ast.Await)
    is_negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    if is_number or is_known_form or is_negated or (isinstance(node, ast.Name) and _is_flag(source, node)):
        return tensor_condition(source, node, torch_name)
    return f"bool({source.text_of(node)})"  # `!= 0` would be true for an empty list


def _is_flag(source: ParsedSource, name: ast.Name) -> bool:
    """Return whether an assignment in the function sets a name to ``True`` or ``False``."""
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, bool)
        and any(isinstance(target, ast.Name) and target.id == name.id for target in node.targets)
        for node in ast.walk(source.enclosing_function(name) or source.tree)
    )


def _call_condition(source: ParsedSource, test: ast.expr, torch_name: str) -> str | None:
    while (moved_tensor := tensor_moved_to_host(test)) is not None:
        test = moved_tensor
    if not isinstance(test, ast.Call):
        return tensor_condition(source, test, torch_name) if isinstance(test, ast.Compare) else None
    name = called_name(test)
    if isinstance(test.func, ast.Name) and name in {"any", "all"}:
        return _condition_of_items(source, test, torch_name)
    if name in {"equal", "allclose"} and len(test.args) >= 2:  # noqa: PLR2004 - the function has two operands
        return _equality_condition(source, test, torch_name)
    if name == "is_nonzero" and len(test.args) == 1:
        return f"{as_operand(_text_on_device(source, test.args[0]))} != 0"
    return source.text_of(test) if name in _BOOLEAN_FUNCTIONS else None


def _condition_of_items(source: ParsedSource, test: ast.Call, torch_name: str) -> str | None:
    """Return a call of ``any`` or ``all`` on a comprehension as a condition that counts deciding items, if possible."""
    items = test.args[0] if len(test.args) == 1 and not test.keywords else None
    if not isinstance(items, ast.GeneratorExp | ast.ListComp):
        return None
    is_any, deciding_test = called_name(test) == "any", items.elt
    if not is_any:
        match deciding_test:
            case ast.UnaryOp(op=ast.Not(), operand=negated):
                deciding_test = negated
            case _:
                deciding_test = ast.UnaryOp(ast.Not(), deciding_test)
    condition = tensor_condition(source, deciding_test, torch_name)
    loops = [
        f"for {source.text_of(loop.target)} in {as_operand(source.text_of(loop.iter))}"
        + "".join(f" if {as_operand(source.text_of(test))}" for test in loop.ifs)
        for loop in items.generators
    ]
    sign = ">" if is_any else "=="
    return f"{torch_name}.as_tensor(sum([{condition} {' '.join(loops)}]) {sign} 0)" if condition else None


def _comparison_condition(source: ParsedSource, test: ast.Compare) -> str | None:
    if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in test.ops):
        return None
    numbers = (node.value for node in ast.walk(test) if isinstance(node, ast.Constant))
    if any(type(number) is int and number >= _MAX_EXACT_DOUBLE for number in numbers):
        return None  # no dtype compares such an integer exactly with both integers and floating-point numbers
    if len(test.ops) == 1:
        return _text_on_device(source, test)
    operands = [test.left, *test.comparators]
    signs = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
    is_exact = _is_exact(test)
    texts = [as_operand(_text_on_device(source, node, is_exact=is_exact)) for node in operands]
    pairs = zip(texts, test.ops, texts[1:], strict=False)
    return " & ".join(f"({left} {signs[type(op)]} {right})" for left, op, right in pairs)


def _equality_condition(source: ParsedSource, test: ast.Call, torch_name: str) -> str:
    name = called_name(test)
    if name == "equal":
        left, right = (as_operand(source.text_of(node)) for node in test.args[:2])
        are_names = all(isinstance(node, ast.Name | ast.Attribute) for node in test.args[:2])
        # Tensors of different shapes are not equal, but `==` broadcasts them.
        same_shape = f" & ({left}.shape == {right}.shape)" if are_names else ""
        return f"({left} == {right}).all(){same_shape}"
    arguments = arguments_of(test)
    names = ["" for _ in test.args] + [f"{keyword.arg}=" for keyword in test.keywords]
    texts = (f"{name}{source.text_of(node)}" for name, node in zip(names, arguments, strict=True))
    return f"{torch_name}.isclose({', '.join(texts)}).all()"


def _text_on_device(source: ParsedSource, node: ast.expr, *, is_exact: bool | None = None) -> str:
    """Return the text of an expression, rewritten so that its values stay on the device.

    ``is_exact`` tells whether single precision represents the compared numbers exactly. If not, they are compared in
    double precision, as Python does. By default, :func:`_is_exact` decides.
    """
    if (inner := tensor_moved_to_host(node)) is not None:
        text = _text_on_device(source, inner)
        is_int_cast = isinstance(node, ast.Call) and dotted_name(node.func) == "int"
        cast = ".long()" if is_int_cast else ".double()" if is_exact is False else ""
        return f"{as_operand(text)}{cast}" if cast else text
    changes: dict[ast.AST, str] = {}
    _collect_replacements(source, node, changes, is_exact=_is_exact(node) if is_exact is None else is_exact)
    return source.text_with_changes(node, changes)


def _collect_replacements(source: ParsedSource, node: ast.AST, changes: dict[ast.AST, str], *, is_exact: bool) -> None:
    """Collect the outermost expressions in a node that move a tensor to the host, with their replacements."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and tensor_moved_to_host(child) is not None:
            changes[child] = as_operand(_text_on_device(source, child, is_exact=is_exact))
        else:
            _collect_replacements(source, child, changes, is_exact=is_exact)


def _is_exact(node: ast.expr) -> bool:
    """Return whether an expression only compares numbers that are exact in single precision.

    Numbers moved to the host are treated as exact: single precision represents them, but not the results that Python
    computes from them.
    """
    unchecked_nodes: list[ast.AST] = [node]
    while unchecked_nodes:
        part = unchecked_nodes.pop()
        if isinstance(part, ast.Name | ast.BinOp) or (
            isinstance(part, ast.Constant) and not _is_exact_number(part.value)
        ):
            return False
        unchecked_nodes += [
            child
            for child in ast.iter_child_nodes(part)
            if not isinstance(child, ast.expr) or tensor_moved_to_host(child) is None
        ]
    return True


def _is_exact_number(number: object) -> bool:
    """Return whether a value is a number up to ``_MAX_EXACT_SINGLE`` that single precision represents exactly."""
    if not isinstance(number, int | float) or abs(number) > _MAX_EXACT_SINGLE:
        return False
    return bool(struct.unpack("f", struct.pack("f", number))[0] == number)


def rewrite_guard_as_if(site: Site) -> Site | None:
    """Rewrite the guard of the ``case`` at a site as an ``if``, and return its site; ``None`` if that is impossible.

    The ``else`` contains the body of the case that matches if the guard is false.
    """
    source = site.source
    statement, case = source.enclosing_node(site.node, ast.Match), source.enclosing_node(site.node, ast.match_case)
    if statement is None or case is None or case.guard is None or site.node not in ast.walk(case.guard):
        return None
    later_cases = statement.cases[statement.cases.index(case) + 1 :]
    fallback = next((part for part in later_cases if not _are_disjoint(part.pattern, case.pattern)), None)
    bodies = [case.body] if fallback is None else [case.body, fallback.body]
    indents = {source.indent_of(body[0]) for body in bodies}
    (indent,) = indents if len(indents) == 1 else (None,)
    if indent is None or (
        fallback is not None and (fallback.guard is not None or not _includes(fallback.pattern, case.pattern))
    ):
        return None
    literals = (node for body in bodies for part in body for node in ast.walk(part) if isinstance(node, ast.expr))
    if any(isinstance(node, ast.Constant | ast.JoinedStr) and node.lineno != node.end_lineno for node in literals):
        return None  # the lines of a string would be indented
    step = indentation_step(source, site.function) if site.function is not None else "    "
    texts = [source.text[source.line_start(body[0].lineno) : source.end_of(body[-1])].split("\n") for body in bodies]
    lines = [
        line
        for header, text in zip((f"if {source.text_of(case.guard)}:", "else:"), texts, strict=False)
        for line in (f"{indent}{header}", *(f"{step}{line}" if line.strip() else line for line in text))
    ]
    start, end = source.end_of(case.pattern), source.end_of(case.guard)
    splices = [
        Splice(start, end, ""),
        Splice(source.line_start(case.body[0].lineno), source.end_of(case.body[-1]), "\n".join(lines)),
    ]
    text = source.apply_splices(splices)
    new_source = parse_source(text, source.taken_names) if text is not None else None
    line = case.body[0].lineno - source.text.count("\n", start, end)
    if_statement = new_source.find_node(line, None, line, None) if new_source is not None else None
    if new_source is None or not isinstance(if_statement, ast.If):
        return None
    return replace(site, source=new_source, node=if_statement, statement=if_statement)


def _includes(outer: ast.pattern, inner: ast.pattern) -> bool:
    """Return whether the first pattern matches everything that the second one matches, judging by their syntax."""
    alternatives = outer.patterns if isinstance(outer, ast.MatchOr) else [outer]
    inner_alternatives = inner.patterns if isinstance(inner, ast.MatchOr) else [inner]
    is_wildcard = isinstance(outer, ast.MatchAs) and outer.name is None
    return is_wildcard or {ast.dump(part) for part in inner_alternatives} <= {ast.dump(part) for part in alternatives}


def _are_disjoint(first: ast.pattern, second: ast.pattern) -> bool:
    """Return whether two patterns match only strings and have no string in common."""
    alternatives = [part.patterns if isinstance(part, ast.MatchOr) else [part] for part in (first, second)]
    values = [
        {part.value.value if isinstance(part, ast.MatchValue) and isinstance(part.value, ast.Constant) else None
         for part in parts}
        for parts in alternatives
    ]  # fmt: skip
    return all(isinstance(value, str) for part in values for value in part) and values[0].isdisjoint(values[1])
