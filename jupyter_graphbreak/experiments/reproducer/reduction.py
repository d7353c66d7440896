"""Reduce a script step by step: remove and simplify parts of it as long as it reproduces the finding."""

from __future__ import annotations

import ast
import builtins
import copy
import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BLOCK_FIELDS = ("body", "orelse", "finalbody")


def reduce_script(
    tree: ast.Module, reproduces: Callable[[str], bool], is_time_up: Callable[[], bool]
) -> tuple[ast.Module, int]:
    """Return the reduced script, and the number of reduction steps."""
    tried_scripts = {ast.unparse(tree)}
    step_count = 0
    made_progress = True
    while made_progress:
        made_progress = False
        for changes in (
            _without_statements,
            _with_simpler_statement,
            _without_parameters,
            _without_items_or_keywords,
            _with_simpler_expression,
            _without_aliases,
        ):
            number = 0
            while True:
                smaller_tree, number = _next_smaller_script(
                    tree, changes, number, tried_scripts, reproduces, is_time_up
                )
                if smaller_tree is None:
                    break
                tree, step_count, made_progress = smaller_tree, step_count + 1, True
            if is_time_up():
                return tree, step_count
    return tree, step_count


def _next_smaller_script(
    tree: ast.Module,
    changes: Callable[[ast.Module], Iterator[ast.Module]],
    first_number: int,
    tried_scripts: set[str],
    reproduces: Callable[[str], bool],
    is_time_up: Callable[[], bool],
) -> tuple[ast.Module | None, int]:
    """Return the next changed script that reproduces the finding, and the number of its change.

    If there is none, or if time is up, return ``None`` and the number of the change to continue with.
    """
    number = first_number
    for number, changed_tree in enumerate(changes(tree)):
        if number < first_number:
            continue
        if is_time_up():
            return None, number
        try:
            text = ast.unparse(ast.fix_missing_locations(changed_tree))
            compile(text, "<reduced>", "exec")
        except (SyntaxError, ValueError, RecursionError):
            continue
        if text in tried_scripts or _uses_undefined_names(changed_tree):
            continue
        tried_scripts.add(text)
        if reproduces(text):
            return changed_tree, number
    return None, number + 1


def _uses_undefined_names(tree: ast.Module) -> bool:
    """Return whether a top-level assignment or expression of a script uses a name that is not defined before it."""
    defined_names = {*dir(builtins), "__name__", "__file__"}
    for statement in tree.body:
        match statement:
            case ast.Import(names) | ast.ImportFrom(names=names):
                defined_names |= {alias.asname or alias.name.partition(".")[0] for alias in names}
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined_names.add(name)
            case ast.Assign() | ast.Expr():
                name_nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
                bound_names = {node.id for node in name_nodes if isinstance(node.ctx, ast.Store)}
                is_lazy = any(isinstance(node, ast.Lambda) for node in ast.walk(statement))
                if not is_lazy and any(node.id not in defined_names | bound_names for node in name_nodes):
                    return True
                defined_names |= bound_names
            case _:
                defined_names |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return False


def _without_statements(tree: ast.Module) -> Iterator[ast.Module]:
    """Yield the script without some consecutive statements of a block, long sequences first."""
    for number, block in enumerate(_blocks(tree)):
        length = len(block)
        while length >= 1:
            for start in range(len(block) - length, -1, -length):
                changed_tree, statements = _copy_with_block(tree, number)
                del statements[start : start + length]
                if not statements and number:  # only the script itself may be empty
                    statements.append(ast.Pass())
                yield changed_tree
            length //= 2


def _blocks(tree: ast.AST) -> Iterator[list[Any]]:
    """Yield the lists of statements in a tree, outer lists first."""
    unvisited_nodes: list[ast.AST] = [tree]
    while unvisited_nodes:
        node = unvisited_nodes.pop(0)
        for name in _BLOCK_FIELDS:
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block
                unvisited_nodes += block
        unvisited_nodes += getattr(node, "handlers", [])


def _with_simpler_statement(tree: ast.Module) -> Iterator[ast.Module]:
    """Yield the script with one statement simplified.

    A compound statement is replaced by one of its blocks; a definition loses a decorator, a base, or all annotations.
    """
    for number, block in enumerate(_blocks(tree)):
        for index, statement in enumerate(block):
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for name in _BLOCK_FIELDS:
                    inner_block = getattr(statement, name, None)
                    if inner_block and not isinstance(inner_block[-1], ast.Raise):  # would always raise an error
                        changed_tree, statements = _copy_with_block(tree, number)
                        statements[index : index + 1] = getattr(statements[index], name)
                        yield changed_tree
                continue
            for name in ("decorator_list", "bases"):
                for part in range(len(getattr(statement, name, []))):
                    changed_tree, statements = _copy_with_block(tree, number)
                    del getattr(statements[index], name)[part]
                    yield changed_tree
            if not isinstance(statement, ast.ClassDef) and any(
                isinstance(node, ast.arg) and node.annotation is not None for node in ast.walk(statement)
            ):
                changed_tree, statements = _copy_with_block(tree, number)
                for node in ast.walk(statements[index]):
                    if isinstance(node, ast.arg):
                        node.annotation = None
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                        node.returns = None
                yield changed_tree


def _copy_with_node(tree: ast.Module, number: int) -> tuple[ast.Module, Any]:
    """Return a copy of a script, and the copy's node with the given number in the order of :func:`ast.walk`."""
    copied_tree = copy.deepcopy(tree)
    return copied_tree, next(itertools.islice(ast.walk(copied_tree), number, None))


def _copy_with_block(tree: ast.Module, number: int) -> tuple[ast.Module, list[Any]]:
    """Return a copy of a script, and the copy's block with the given number in the order of :func:`_blocks`."""
    copied_tree = copy.deepcopy(tree)
    return copied_tree, next(itertools.islice(_blocks(copied_tree), number, None))


def _without_parameters(tree: ast.Module) -> Iterator[ast.Module]:
    """Yield the script without a parameter of a function, and without the arguments for it in calls."""
    for number, node in enumerate(ast.walk(tree)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        parameters = [*node.args.posonlyargs, *node.args.args]
        for index, parameter in enumerate(parameters):
            is_method = parameters[0].arg == "self"
            if parameter.arg == "self":
                continue
            changed_tree, function = _copy_with_node(tree, number)
            _drop_parameter(function, index)
            position = index - 1 if is_method else index
            for call in ast.walk(changed_tree):
                if isinstance(call, ast.Call) and _may_call(call, function.name, is_method=is_method):
                    if position < len(call.args) and not any(isinstance(arg, ast.Starred) for arg in call.args):
                        del call.args[position]
                    call.keywords = [keyword for keyword in call.keywords if keyword.arg != parameter.arg]
            yield changed_tree


def _drop_parameter(function: Any, index: int) -> None:
    arguments = function.args
    all_parameters = [*arguments.posonlyargs, *arguments.args]
    first_default = len(all_parameters) - len(arguments.defaults)
    if index >= first_default:
        del arguments.defaults[index - first_default]
    if index < len(arguments.posonlyargs):
        del arguments.posonlyargs[index]
    else:
        del arguments.args[index - len(arguments.posonlyargs)]


def _may_call(call: ast.Call, name: str, *, is_method: bool) -> bool:
    match call.func:
        case ast.Name(id=called):
            return called in {name, "compiled"} or (is_method and name in {"forward", "__call__"})
        case ast.Attribute(attr=called):
            return called == name or (is_method and name in {"forward", "__call__"})
    return False


def _without_aliases(tree: ast.Module) -> Iterator[ast.Module]:
    """Yield the script without an assignment such as ``y = x``, with ``x`` instead of ``y`` in later statements."""
    for number, node in enumerate(ast.walk(tree)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for index, statement in enumerate(node.body):
            match statement:
                case ast.Assign([ast.Name(id=name)], ast.Name(id=other)):
                    changed_tree, function = _copy_with_node(tree, number)
                    del function.body[index]
                    for later_statement in function.body[index:]:
                        for part in ast.walk(later_statement):
                            if isinstance(part, ast.Name) and part.id == name:
                                part.id = other
                    yield changed_tree


def _without_items_or_keywords(tree: ast.Module) -> Iterator[ast.Module]:
    """Yield the script without an item of a container, or without keyword arguments of a call, many of them first."""
    for number, node in enumerate(ast.walk(tree)):
        is_sequential = isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.nn.Sequential"
        name = "elts" if isinstance(node, ast.List | ast.Set) else "args" if is_sequential else ""
        for index in range(len(getattr(node, name)) if name else 0):
            changed_tree, changed_node = _copy_with_node(tree, number)
            del getattr(changed_node, name)[index]
            yield changed_tree
        for index in range(len(node.keys) if isinstance(node, ast.Dict) else 0):
            changed_tree, changed_node = _copy_with_node(tree, number)
            del changed_node.keys[index], changed_node.values[index]
            yield changed_tree
        if not isinstance(node, ast.Call):
            continue
        if ast.unparse(node.func).startswith("torch.compile"):  # the other arguments are part of the finding
            if any(keyword.arg == "options" for keyword in node.keywords):
                changed_tree, compiling_node = _copy_with_node(tree, number)
                compiling_node.keywords = [keyword for keyword in compiling_node.keywords if keyword.arg != "options"]
                yield changed_tree
            continue
        length = len(node.keywords)
        while length >= 1:
            for start in range(0, len(node.keywords), length):
                changed_tree, call = _copy_with_node(tree, number)
                part = call.keywords[start : start + length]
                # Keyword arguments that are integers are kept: without them, a model may be large.
                if not any(
                    isinstance(keyword.value, ast.Constant) and type(keyword.value.value) is int for keyword in part
                ):
                    del call.keywords[start : start + length]
                    yield changed_tree
            length //= 2


def _with_simpler_expression(tree: ast.Module) -> Iterator[ast.Module]:
    """Yield the script with an expression replaced by one of its parts, or ``C.__new__(...)`` replaced by ``C()``."""
    for number, node in enumerate(ast.walk(tree)):
        for name, index, part in _replaceable_expressions(node):
            for simpler_part in _simpler_expressions(part):
                changed_tree, owner = _copy_with_node(tree, number)
                replacement = copy.deepcopy(simpler_part)
                if index is None:
                    setattr(owner, name, replacement)
                else:
                    getattr(owner, name)[index] = replacement
                yield changed_tree


def _replaceable_expressions(node: ast.AST) -> Iterator[tuple[str, int | None, ast.expr]]:
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func) == "torch.compile"
    ):
        return
    for name, field in ast.iter_fields(node):
        if name in {"decorator_list", "bases", "func", "annotation", "returns"}:
            continue
        if isinstance(field, ast.expr):
            yield name, None, field
        elif isinstance(field, list):
            for index, part in enumerate(field):
                if isinstance(part, ast.expr):
                    yield name, index, part


def _simpler_expressions(node: ast.expr) -> list[ast.expr]:
    """Return the expressions that may replace an expression."""
    match node:
        case ast.BinOp(left, _, right) | ast.IfExp(_, left, right):
            return [left, right]
        case ast.BoolOp(_, values):
            return values
        case ast.Call(ast.Attribute(ast.Name(name), "__new__")):
            return [ast.Call(ast.Name(name, ast.Load()), [], [])]
        case ast.Call(ast.Attribute(attr=name)) if name.startswith(("rand", "tensor", "empty")):
            return []  # the call creates a tensor
        case ast.Call(func, args):
            parts = [arg for arg in args if not isinstance(arg, ast.Starred | ast.Constant)]
            is_method = isinstance(func, ast.Attribute) and not ast.unparse(func).startswith("torch.")
            return [func.value, *parts] if isinstance(func, ast.Attribute) and is_method else parts
        case ast.Subscript(value) | ast.UnaryOp(_, value):
            return [value]
        case ast.Tuple(elts, ast.Load()) | ast.List(elts, ast.Load()) if len(elts) > 1:
            return [elts[0]]
    return []
