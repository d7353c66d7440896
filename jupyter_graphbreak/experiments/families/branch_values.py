"""Read the branches of an ``if`` as values of targets or of ``return``, and write code that selects between them."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.python_text import parse_expression
from jupyter_graphbreak.experiments.families.conditions import is_host_test, tensor_condition
from jupyter_graphbreak.experiments.families.parsed_source import as_argument, as_operand
from jupyter_graphbreak.experiments.families.site import called_name, global_and_nonlocal_names, names_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jupyter_graphbreak.experiments.families.parsed_source import ParsedSource

#: The source text of a value; for a tuple, list, dict or new object, its type, its keys and its members.
Value = str | tuple[str, tuple[str, ...], tuple["Value", ...]]
#: The symbols of the operators, such as ``+``.
OPERATOR_SYMBOLS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**", ast.FloorDiv: "//",
    ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip
#: Expressions that cannot be evaluated regardless of the condition, or that have their own scope.
_UNSUPPORTED_NODES = (
    ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp,
)  # fmt: skip
#: Methods that change a tensor in place. The same method without the final underscore returns a new tensor.
_IN_PLACE_METHODS = {
    "abs_", "add_", "addcdiv_", "addcmul_", "clamp_", "clamp_max_", "clamp_min_", "div_", "exp_", "index_add_",
    "index_copy_", "index_fill_", "lerp_", "logical_and_", "logical_or_", "masked_fill_", "mul_", "neg_", "pow_",
    "scatter_", "scatter_add_", "sqrt_", "sub_",
}  # fmt: skip
#: Functions and methods with side effects, which must not run in the branch that is not taken.
SIDE_EFFECT_FUNCTIONS = {
    "print", "append", "extend", "insert", "update", "pop", "add", "write", "open", "input", "setattr", "warn",
    "backward", "step", "zero_grad", "register_buffer", "info", "debug", "warning", "error", "warning_once", "next",
}  # fmt: skip
#: Parts of the names of operations that draw random numbers.
RANDOM_OPERATIONS = re.compile(r"drop|rand|bernoulli|multinomial|normal_|uniform_")


@dataclass
class Branch:
    """One branch of an ``if``: the assigned values, by the source text of the target.

    ``lines`` are statements that assign the values that later statements of the branch read. The targets in
    ``in_place_targets`` are changed in place: the value becomes the new content of their tensor.
    """

    lines: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    in_place_targets: set[str] = field(default_factory=set)
    result: Value | None = None
    returns: bool = False
    nested_tests: list[ast.expr] = field(default_factory=list)


class _UnsupportedBranchError(Exception):
    """The branch does something that cannot be done regardless of the condition."""


def has_no_side_effects(node: ast.expr) -> bool:
    """Return whether an expression has neither side effects, as far as its syntax shows, nor a scope of its own."""
    for part in ast.walk(node):
        if isinstance(part, _UNSUPPORTED_NODES):
            return False
        if isinstance(part, ast.Call) and ast.unparse(part.func).rpartition(".")[2] in SIDE_EFFECT_FUNCTIONS:
            return False
    return True


def read_branch(source: ParsedSource, block: Sequence[ast.stmt], suffix: str, torch_name: str) -> Branch | None:
    """Return the values that a branch computes; ``None`` if it cannot be computed regardless of the condition."""
    try:
        return _BranchReader(source, suffix, torch_name).read(block)
    except _UnsupportedBranchError:
        return None


def read_branches(
    source: ParsedSource, if_statement: ast.If, torch_name: str, suffix: str = ""
) -> tuple[Branch, Branch] | None:
    """Return both branches of an ``if``; ``None`` if one of them cannot be computed regardless of the condition."""
    if_branch = read_branch(source, if_statement.body, f"{suffix}_if", torch_name)
    else_branch = read_branch(source, if_statement.orelse, f"{suffix}_else", torch_name)
    return None if if_branch is None or else_branch is None else (if_branch, else_branch)


class _BranchReader:
    def __init__(self, source: ParsedSource, suffix: str, torch_name: str) -> None:
        self._source = source
        self._suffix = suffix
        self._torch_name = torch_name
        self._names_of_branch: set[str] = set()  # names that only this branch uses
        self._current_texts: dict[str, str] = {}  # the text of each target's current value
        self._branch = Branch()

    def read(self, block: Sequence[ast.stmt]) -> Branch:
        if block:
            nodes_of_branch = {node for part in block for node in ast.walk(part)}
            scope = self._source.enclosing_function(block[0]) or self._source.tree
            names_outside = global_and_nonlocal_names(scope) | {
                node.id for node in ast.walk(scope) if isinstance(node, ast.Name) and node not in nodes_of_branch
            }
            arguments = {node.arg for node in ast.walk(self._source.tree) if isinstance(node, ast.arg)}
            self._names_of_branch = names_bound(ast.Module(list(block), [])) - names_outside - arguments
        for index, statement in enumerate(block):
            later_statements = block[index + 1 :]
            names_read_later = {
                ast.unparse(node)
                for later_statement in later_statements
                for node in ast.walk(later_statement)
                if _is_read(node)
            }
            self._read_statement(statement, names_read_later, is_last=index == len(block) - 1)
        return self._branch

    def _read_statement(self, statement: ast.stmt, names_read_later: set[str], *, is_last: bool) -> None:
        if isinstance(statement, ast.Pass):
            return
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._assign(statement.targets[0], statement.value, names_read_later)
        elif isinstance(statement, ast.Assign) and all(isinstance(node, ast.Name) for node in statement.targets):
            text = self._resolved_text(statement.value)
            for node in statement.targets:
                self._set_value(ast.unparse(node), text, names_read_later)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._assign(statement.target, statement.value, names_read_later)
        elif isinstance(statement, ast.AugAssign) and type(statement.op) in OPERATOR_SYMBOLS:
            target = ast.unparse(statement.target)
            current_text = self._current_texts.get(target, self._source.text_of(statement.target))
            symbol = OPERATOR_SYMBOLS[type(statement.op)]
            self._set_value(
                target,
                f"{as_operand(current_text)} {symbol} {as_operand(self._resolved_text(statement.value))}",
                names_read_later,
            )
        elif isinstance(statement, ast.Return) and is_last:
            self._branch.returns = True
            self._branch.result = (
                value_of(statement.value, self._resolved_text) if statement.value is not None else "None"
            )
        elif isinstance(statement, ast.If):
            self._read_if(statement, names_read_later, is_last=is_last)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._change_in_place(statement.value, names_read_later)
        else:
            raise _UnsupportedBranchError

    def _assign(self, target: ast.expr, value: ast.expr, names_read_later: set[str]) -> None:
        if isinstance(target, ast.Tuple):
            if not isinstance(value, ast.Tuple) or len(value.elts) != len(target.elts):
                raise _UnsupportedBranchError
            texts = [self._resolved_text(node) for node in value.elts]
            for node, text in zip(target.elts, texts, strict=True):
                self._set_value(ast.unparse(node), text, names_read_later)
        elif isinstance(target, ast.Name | ast.Attribute | ast.Subscript):
            self._set_value(ast.unparse(target), self._resolved_text(value), names_read_later)
        else:
            raise _UnsupportedBranchError

    def _change_in_place(self, call: ast.Call, names_read_later: set[str]) -> None:
        target, text = self._changed_target(call)
        is_assigned_before = target in self._branch.values and target not in self._branch.in_place_targets
        if is_assigned_before and target not in self._names_of_branch:
            raise _UnsupportedBranchError
        self._branch.in_place_targets.discard(target)
        self._set_value(target, text, names_read_later)
        if not is_assigned_before:
            self._branch.in_place_targets.add(target)

    def _changed_target(self, node: ast.expr) -> tuple[str, str]:
        """Return the target that in-place methods such as ``add_`` change, and the expression for its new value."""
        if not isinstance(node, ast.Call):
            if not isinstance(node, ast.Name | ast.Attribute):
                raise _UnsupportedBranchError
            target = ast.unparse(node)
            return target, self._current_texts.get(target, target)
        if not isinstance(node.func, ast.Attribute):
            raise _UnsupportedBranchError
        target, text = self._changed_target(node.func.value)
        method = node.func.attr
        positional_texts = [self._resolved_text(part) for part in node.args]
        keywords = [f"{part.arg}={self._resolved_text(part.value)}" for part in node.keywords if part.arg is not None]
        if method == "zero_":
            return target, f"{self._torch_name}.zeros_like({target})"
        if method == "fill_" and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            return target, f"{self._torch_name}.full_like({target}, {positional_texts[0]})"
        if method == "copy_" and len(positional_texts) == 1 and not node.keywords:
            return target, positional_texts[0]
        if method not in _IN_PLACE_METHODS or len(keywords) != len(node.keywords):
            raise _UnsupportedBranchError
        return target, f"{as_operand(text)}.{method[:-1]}({', '.join([*positional_texts, *keywords])})"

    def _set_value(self, target: str, text: str, names_read_later: set[str]) -> None:
        if target in self._branch.in_place_targets:
            raise _UnsupportedBranchError
        if target in names_read_later:
            name = target if target in self._names_of_branch else target.replace(".", "_") + self._suffix
            if not name.isidentifier():
                raise _UnsupportedBranchError
            self._branch.lines.append(f"{name} = {parenthesize_lines(text)}")
            text = name
        self._current_texts[target] = text
        self._branch.values[target] = text

    def _read_if(self, if_statement: ast.If, names_read_later: set[str], *, is_last: bool) -> None:
        if self._branch.values or is_host_test(if_statement.test):
            raise _UnsupportedBranchError
        condition = tensor_condition(self._source, if_statement.test, self._torch_name)
        branches = read_branches(self._source, if_statement, self._torch_name, self._suffix)
        if condition is None or branches is None or branches[0].in_place_targets or branches[1].in_place_targets:
            raise _UnsupportedBranchError
        if_branch, else_branch = branches
        select = functools.partial(where_call, self._torch_name)
        self._branch.lines += [*if_branch.lines, *else_branch.lines]
        self._branch.nested_tests += [if_statement.test, *if_branch.nested_tests, *else_branch.nested_tests]
        if if_branch.returns and else_branch.returns and is_last:
            result = select_value(condition, if_branch.result, else_branch.result, select)
            if result is None:
                raise _UnsupportedBranchError
            self._branch.returns, self._branch.result = True, result
        elif if_branch.returns or else_branch.returns:
            raise _UnsupportedBranchError
        else:
            for target in {**if_branch.values, **else_branch.values}:
                texts = if_branch.values.get(target, target), else_branch.values.get(target, target)
                self._set_value(target, select(condition, *texts), names_read_later)

    def _resolved_text(self, node: ast.expr) -> str:
        if not has_no_side_effects(node):
            raise _UnsupportedBranchError
        reads = {part: ast.unparse(part) for part in ast.walk(node) if _is_read(part)}
        changes = {part: self._current_texts[name] for part, name in reads.items() if name in self._current_texts}
        if node in changes:
            return changes[node]
        if not changes:
            return as_argument(self._source, node)
        return self._source.text_with_changes(node, {part: as_operand(text) for part, text in changes.items()})


def value_of(node: ast.expr, text_of: Callable[[ast.expr], str]) -> Value:
    """Return an expression as a value, with tuples, lists, dicts and new objects split into their members."""

    def members(nodes: Sequence[ast.expr]) -> tuple[Value, ...]:
        return tuple(value_of(part, text_of) for part in nodes)

    if isinstance(node, ast.Tuple | ast.List) and not any(isinstance(part, ast.Starred) for part in node.elts):
        return type(node).__name__, (), members(node.elts)
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        return "Dict", tuple(ast.unparse(key) for key in node.keys if key), members(node.values)
    if isinstance(node, ast.Call) and _creates_object(node):
        keys = ("" for _ in node.args), (f"{part.arg}=" for part in node.keywords)
        values = (*node.args, *(part.value for part in node.keywords))
        return ast.unparse(node.func), tuple(itertools.chain(*keys)), members(values)
    return text_of(node)


def _creates_object(call: ast.Call) -> bool:
    """Return whether a call creates an object from its arguments.

    A function with a capitalized name is considered a class.
    """
    is_class = ast.unparse(call.func).rpartition(".")[2].lstrip("_")[:1].isupper()
    return is_class and has_no_unpacking(call) and bool(call.args or call.keywords)


def has_no_unpacking(call: ast.Call) -> bool:
    """Return whether a call passes its arguments one by one, without ``*`` and ``**``."""
    return not any(isinstance(part, ast.Starred) for part in call.args) and all(part.arg for part in call.keywords)


def _is_read(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load)


def parenthesize_lines(text: str) -> str:
    """Return the right-hand side of an assignment, in parentheses if it spans several lines."""
    return f"({text})" if "\n" in text else text


def where_call(torch_name: str, condition: str, if_text: str, else_text: str) -> str:
    """Return a call to ``torch.where`` that selects one of two values."""
    return f"{torch_name}.where({condition}, {if_text}, {else_text})"


def select_value(
    condition: str, if_value: Value | None, else_value: Value | None, choose: Callable[[str, str, str], str]
) -> Value | None:
    """Return a value that selects between two values, member by member; ``None`` if their members do not match."""
    if isinstance(if_value, str) and isinstance(else_value, str):
        if if_value == else_value:
            return if_value
        containers = _split_into_members(if_value, else_value)
        selected_value = select_value(condition, *containers, choose) if containers is not None else None
        return choose(condition, if_value, else_value) if selected_value is None else selected_value
    if (
        if_value is None
        or else_value is None
        or isinstance(if_value, str)
        or isinstance(else_value, str)
        or if_value[:2] != else_value[:2]
    ):
        return None
    members = [select_value(condition, a, b, choose) for a, b in zip(if_value[2], else_value[2], strict=False)]
    if len(if_value[2]) != len(else_value[2]) or any(member is None for member in members):
        return None
    return if_value[0], if_value[1], tuple(member for member in members if member is not None)


def _split_into_members(if_text: str, else_text: str) -> tuple[Value, Value] | None:
    """Split two expressions into their members; ``None`` if either is not a tuple, list, dict or new object.

    If both are copies of the same named tuple, created with ``_replace``, the members are the replaced fields.
    """
    try:
        if_node, else_node = parse_expression(if_text), parse_expression(else_text)
    except SyntaxError:
        return None
    (if_owner, if_fields), (else_owner, else_fields) = _copied_tuple(if_node), _copied_tuple(else_node)
    if if_owner == else_owner:
        names = list({**if_fields, **else_fields})
        keys = tuple(f"{name}=" for name in names)
        if_members, else_members = (
            tuple(fields.get(name, f"{if_owner}.{name}") for name in names) for fields in (if_fields, else_fields)
        )
        function = f"{if_owner}._replace"
        return (function, keys, if_members), (function, keys, else_members)
    if_value, else_value = (value_of(node, ast.unparse) for node in (if_node, else_node))
    return None if isinstance(if_value, str) or isinstance(else_value, str) else (if_value, else_value)


def _copied_tuple(node: ast.expr) -> tuple[str, dict[str, str]]:
    """Return the named tuple that an expression copies with ``_replace``, and the new fields; else its text."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as owner, attr="_replace"), args=[]):
            if all(part.arg for part in node.keywords):
                return ast.unparse(owner), {part.arg or "": ast.unparse(part.value) for part in node.keywords}
    return ast.unparse(node), {}


def render_value(value: Value) -> str:
    """Return the source text of a value."""
    if isinstance(value, str):
        return value
    container_type, keys, members = value
    texts = [render_value(member) for member in members]
    if container_type == "Dict":
        return "{" + ", ".join(f"{key}: {text}" for key, text in zip(keys, texts, strict=True)) + "}"
    if container_type == "List":
        return f"[{', '.join(texts)}]"
    if container_type != "Tuple":
        return f"{container_type}({', '.join(key + text for key, text in zip(keys, texts, strict=True))})"
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


#: Functions and methods whose gradient may be infinite or NaN at zero and below, but is finite at 1.
_STEEP_FUNCTIONS = {"sqrt", "rsqrt", "log", "log2", "log10", "reciprocal"}


def guard_branch(branch: Branch, condition: str, torch_name: str, *, is_taken: bool) -> Branch:
    """Return a branch in which ``torch.where`` replaces risky operands with 1 when the other branch is taken.

    Without this, an integer division by zero would raise an error, and a gradient might become NaN.
    """

    def guard(text: str) -> str:
        return guard_operands(text, condition, torch_name, is_taken=is_taken)

    def guard_value(value: Value | None) -> Value | None:
        if value is None or isinstance(value, str):
            return value and guard(value)
        container_type, keys, members = value
        return container_type, keys, tuple(member for member in map(guard_value, members) if member is not None)

    lines = [f"{name} = {guard(text)}" for name, _, text in (line.partition(" = ") for line in branch.lines)]
    values = {target: guard(text) for target, text in branch.values.items()}
    return replace(branch, lines=lines, values=values, result=guard_value(branch.result))


def guard_operands(text: str, condition: str, torch_name: str, *, is_taken: bool) -> str:
    """Return an expression in which ``torch.where`` replaces risky operands with 1 when the other branch is taken."""
    try:
        tree = parse_expression(text)
    except SyntaxError:
        return text
    guard = _OperandGuard(condition, torch_name, is_taken=is_taken)
    guarded_tree = guard.visit(tree)
    return ast.unparse(guarded_tree) if guard.has_risky_operand else text


class _OperandGuard(ast.NodeTransformer):
    def __init__(self, condition: str, torch_name: str, *, is_taken: bool) -> None:
        self._condition = condition
        self._torch_name = torch_name
        self._is_taken = is_taken
        self.has_risky_operand = False

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Guard divisors that are not constants, and the bases of powers with a constant floating-point exponent."""
        self.generic_visit(node)
        is_division = isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod) and not _is_string(node.left)
        if is_division and not isinstance(node.right, ast.Constant):
            node.right = self._guard_operand(node.right)
        exponent = node.right.value if isinstance(node.right, ast.Constant) else None
        if isinstance(node.op, ast.Pow) and isinstance(exponent, float):
            node.left = self._guard_operand(node.left)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Guard the arguments of roots, logarithms and reciprocals."""
        self.generic_visit(node)
        if called_name(node) in _STEEP_FUNCTIONS and isinstance(node.func, ast.Attribute):
            if node.args:
                node.args[0] = self._guard_operand(node.args[0])
            else:
                node.func.value = self._guard_operand(node.func.value)
        return node

    def _guard_operand(self, operand: ast.expr) -> ast.expr:
        self.has_risky_operand = True
        text = ast.unparse(operand)
        operands = (text, "1") if self._is_taken else ("1", text)
        return parse_expression(where_call(self._torch_name, self._condition, *operands))


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
