"""Replace loops whose end depends on a tensor: run all iterations and keep the right values, or use while_loop."""

from __future__ import annotations

import ast
import itertools
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.branch_values import (
    OPERATOR_SYMBOLS,
    RANDOM_OPERATIONS,
    has_no_side_effects,
    parenthesize_lines,
)
from jupyter_graphbreak.experiments.families.conditions import is_host_test, tensor_condition
from jupyter_graphbreak.experiments.families.parsed_source import as_argument, as_operand, fresh_name
from jupyter_graphbreak.experiments.families.protection import assumptions_of
from jupyter_graphbreak.experiments.families.site import (
    indentation_step,
    is_bound_before,
    names_bound,
    names_read,
    names_read_after,
    parameters_of,
    site_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyter_graphbreak.experiments.families.parsed_source import ParsedSource, Splice
    from jupyter_graphbreak.experiments.families.proposal import Problem, Proposal
    from jupyter_graphbreak.experiments.families.site import Site

FAMILY = "loops"
_RUN_TO_END_TITLE = "Run the loop to its end, and use torch.where to keep the values that it would have stopped with"
_INTEGER_COUNT_TITLE = (
    "Run the loop to its end, use torch.where to keep the values that it would have stopped with, and turn the number "
    "of iterations into an int"
)
#: The setting with which a tensor's value becomes a number without a graph break.
_CAPTURE_SCALARS = {"torch._dynamo.config.capture_scalar_outputs": True}
#: Methods, and functions in modules such as torch: their results share no memory with their arguments.
_COMPUTING_METHODS = frozenset({
    "abs", "all", "any", "argmax", "argmin", "clone", "cos", "exp", "full", "full_like", "item", "log", "max", "mean",
    "min", "norm", "numel", "ones", "ones_like", "pow", "rand", "rand_like", "randn", "randn_like", "sigmoid", "sin",
    "size", "softmax", "sqrt", "square", "std", "sum", "tanh", "tensor", "tolist", "var", "zeros", "zeros_like",
})  # fmt: skip
#: Builtin functions whose results share no memory with their arguments, unlike ``max``, which may return an argument.
_COMPUTING_FUNCTIONS = frozenset({"abs", "float", "int", "len", "print", "round", "sum"})
_WHILE_LOOP_TITLE = "Write the loop with torch.while_loop"


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield changes that make a loop end without reading a tensor's value."""
    site = site_of(problem)
    if site is None or site.function is None:
        return
    loop = site.source.enclosing_node(site.node, ast.While)
    if loop is not None and (loop is site.node or site.node in ast.walk(loop.test)):
        yield from _propose_for_bounded_while(site, loop)
        yield from _propose_while_loop(site, loop)
        return
    if_statement = site.source.enclosing_node(site.node, ast.If)
    if if_statement is None or not (if_statement is site.node or site.node in ast.walk(if_statement.test)):
        return
    outer = next(iter(site.source.ancestors(if_statement)))
    if isinstance(outer, ast.For | ast.While) and if_statement in outer.body:
        yield from _propose_for_if(site, outer, if_statement)


@dataclass(frozen=True)
class _LoopExit:
    """An exit from a loop that would also end without it.

    ``statements_before`` and ``statements_after`` are the statements of the loop's body around the exit. A tensor
    decides the test; ``condition`` is the tensor expression that is true when the loop exits.
    """

    loop: ast.For | ast.While
    statements_before: Sequence[ast.stmt]
    statements_after: Sequence[ast.stmt]
    test: ast.expr
    condition: str


def _propose_for_if(site: Site, loop: ast.For | ast.While, if_statement: ast.If) -> Iterator[Proposal]:
    source = site.source
    condition = tensor_condition(source, if_statement.test, site.torch_name)
    index = loop.body.index(if_statement)
    last_statement = if_statement.body[-1]
    if condition is None or if_statement.orelse or not _ends_without_exit(loop):
        return
    exit_ = _LoopExit(loop, loop.body[:index], loop.body[index + 1 :], if_statement.test, condition)
    if isinstance(last_statement, ast.Break):
        yield from _propose_run_to_end(site, exit_, if_statement, if_statement.body[:-1])
    elif isinstance(last_statement, ast.Return) and len(if_statement.body) == 1:
        splices = _splices_to_return_after_end(site, exit_, if_statement, last_statement)
        if splices is not None:
            assumptions = _assumptions_of_exit(site, exit_)
            yield from site.propose_edit(FAMILY, _RUN_TO_END_TITLE, splices, [exit_.test], assumptions)


def _propose_run_to_end(
    site: Site,
    exit_: _LoopExit,
    if_statement: ast.If | None,
    exit_statements: Sequence[ast.stmt],
    further_splices: Sequence[Splice | None] = (),
) -> Iterator[Proposal]:
    """Yield changes that run a loop to its end; its counter then is a tensor or, in a second change, a number."""
    counter = _counter_to_keep(site.source, exit_.loop)
    variants = {_RUN_TO_END_TITLE: False} | ({_INTEGER_COUNT_TITLE: True} if counter is not None else {})
    for title, keeps_number in variants.items():
        splices = _splices_to_run_to_end(site, exit_, if_statement, exit_statements, keeps_number=keeps_number)
        if splices is None:
            return
        for proposal in site.propose_edit(
            FAMILY, title, [*splices, *further_splices], [exit_.test], _assumptions_of_exit(site, exit_)
        ):
            yield replace(proposal, settings=_CAPTURE_SCALARS) if keeps_number else proposal


def _assumptions_of_exit(site: Site, exit_: _LoopExit) -> list[str]:
    loop = exit_.loop
    return [
        *assumptions_of(site.source, [exit_.test], loop.body),
        *_assumptions_about_items(site, loop),
        *_assumptions_about_first_exit(site, exit_),
    ]


def _ends_without_exit(loop: ast.For | ast.While) -> bool:
    """Return whether a loop ends without reading a tensor's value, as far as its syntax shows."""
    if isinstance(loop, ast.For):
        return not isinstance(loop.iter, ast.Call) or ast.unparse(loop.iter.func) not in {"iter", "count"}
    is_comparison = isinstance(loop.test, ast.Compare) and len(loop.test.ops) == 1
    return is_comparison and bool(_counters(loop))


def _counters(loop: ast.While) -> set[str]:
    """Return the names that count iterations: the test reads them, and the body changes them once, by a constant."""
    steps = [node for node in loop.body if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Constant)]
    counted_names = {node.target.id for node in steps if isinstance(node.target, ast.Name)}
    stores = [node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return {name for name in counted_names & names_read(loop.test) if stores.count(name) == 1}


def _propose_for_bounded_while(site: Site, loop: ast.While) -> Iterator[Proposal]:
    """Yield a change that runs ``while count < limit and tensor`` as often as the Python part of the test allows."""
    source, test = site.source, loop.test
    counters = _counters(loop)
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And) or not counters:
        return
    counting_tests = [node for node in test.values if names_read(node) & counters]
    other_tests = [node for node in test.values if node not in counting_tests]
    if len(counting_tests) != 1 or not isinstance(counting_tests[0], ast.Compare) or len(other_tests) != 1:
        return
    continue_condition = tensor_condition(source, other_tests[0], site.torch_name)
    if continue_condition is None or is_host_test(other_tests[0]):
        return
    exit_ = _LoopExit(loop, [], loop.body, other_tests[0], f"{site.torch_name}.logical_not({continue_condition})")
    remaining_test = source.replacement(test, source.text_of(counting_tests[0]))
    yield from _propose_run_to_end(site, exit_, None, [], [remaining_test])


def _assumptions_about_items(site: Site, loop: ast.For | ast.While) -> Iterator[str]:
    """Yield an assumption for each item of a local object that iterations read, unless the object limits the loop."""
    function = site.function
    local_names = names_bound(function) | parameters_of(function) if function is not None else set[str]()
    counters = names_bound(loop.target) if isinstance(loop, ast.For) else _counters(loop)
    limit = loop.iter if isinstance(loop, ast.For) else loop.test
    for node in (node for part in loop.body for node in ast.walk(part)):
        if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Slice):
            continue
        owners = names_read(node.value) & local_names - counters - {"self"}
        if owners - names_read(limit) and counters & names_read(node.slice):
            text = site.source.text_of(node)
            yield f"it assumes that {text}, which the early exit protects, exists in every iteration"


def _assumptions_about_first_exit(site: Site, exit_: _LoopExit) -> Iterator[str]:
    """Yield an assumption for each object from before the loop that the function keeps if the loop exits at once.

    ``torch.where`` returns a new tensor even if the loop exits before it assigns to a name for the first time. Few
    inputs make a loop exit so early, so trials may not show the difference.
    """
    source, loop = site.source, exit_.loop
    set_only_after_exit = _assigned_names(exit_.statements_after) - _assigned_names(exit_.statements_before)
    scope: ast.AST = source.enclosing_function(loop) or source.tree
    nodes_of_loop = set(ast.walk(loop)) - {
        node for part in ast.walk(loop) if isinstance(part, ast.Return) for node in ast.walk(part)
    }
    for name in sorted(set_only_after_exit):
        uses = [
            node
            for node in ast.walk(scope)
            if isinstance(node, ast.Name) and node.id == name and node not in nodes_of_loop and _may_keep(source, node)
        ]
        value = _value_before(source, loop, name)
        is_shared = (
            value is None
            or not _computes_value(value)
            or any(_position(value) < _position(use) < _position(loop) for use in uses)
        )
        last_line = _last_line_with_value(source, loop, name)
        if is_shared and any(loop.lineno < use.lineno <= last_line for use in uses):
            yield f"it assumes that the loop never stops before it assigns to {name}, which then is a new tensor"


def _position(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _value_before(source: ParsedSource, loop: ast.stmt, name: str) -> ast.expr | None:
    """Return the value that the block of a loop last gives a name before the loop; ``None`` if it is not evident."""
    block = source.block_of(loop)
    for statement in reversed(block[: block.index(loop)] if loop in block else []):
        if name in _assigned_names([statement]):
            assignment = _assignment(statement) if isinstance(statement, ast.Assign | ast.AnnAssign) else None
            return assignment[1] if assignment is not None else None
    return None


def _last_line_with_value(source: ParsedSource, loop: ast.stmt, name: str) -> float:
    """Return the last line that may read the value that a loop leaves in a name, before the name gets a new value."""
    block = source.block_of(loop)
    for statement in block[block.index(loop) + 1 :] if loop in block else []:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and name in _assigned_names([statement]):
            return statement.end_lineno or statement.lineno
    return math.inf


def _may_keep(source: ParsedSource, node: ast.Name) -> bool:
    """Return whether code may return or store an object, or change it in place, judging by the code around its name."""
    parent, *outer = itertools.islice(source.ancestors(node), 2)
    match parent:
        case ast.AugAssign(target=target):
            return target is node
        case ast.Attribute():
            is_called = bool(outer) and isinstance(outer[0], ast.Call) and outer[0].func is parent
            return not (is_called and _computes_value(outer[0]))
        case ast.Call() | ast.BinOp() | ast.UnaryOp() | ast.Compare():
            return not _computes_value(parent)
    return isinstance(node.ctx, ast.Load)


def _computes_value(value: ast.AST) -> bool:
    """Return whether an expression creates a new object that shares no memory, as far as its syntax shows."""
    match value:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _COMPUTING_METHODS
        case ast.Call(func=ast.Name(id=name)):
            return name in _COMPUTING_FUNCTIONS
        case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.Constant():
            return True
    return False


def _splices_to_run_to_end(
    site: Site,
    exit_: _LoopExit,
    if_statement: ast.If | None,
    exit_statements: Sequence[ast.stmt],
    *,
    keeps_number: bool,
) -> list[Splice | None] | None:
    """Return splices that run a loop to its end and keep its values at the exit; ``None`` if that is impossible.

    ``if_statement`` exits the loop, after its ``exit_statements``; it is ``None`` if the loop's own test ends the loop.
    ``keeps_number`` tells whether the loop's counter is a number after the loop, and not a tensor.
    """
    source, loop, torch_name = site.source, exit_.loop, site.torch_name
    counter = _counter_to_keep(source, loop)
    state = _carried_names(site, exit_, exit_statements, restored_counter=counter)
    if state is None:
        return None
    is_over_name, stops_name = fresh_name(source, "over"), fresh_name(source, "stop")
    saved_names = {name: fresh_name(source, f"{name}_kept") for name in state}

    def selections(names: Sequence[str]) -> list[str]:
        return [f"{name} = {torch_name}.where({is_over_name}, {saved_names[name]}, {name})" for name in names]

    set_before_exit = [name for name in state if name in _assigned_names(exit_.statements_before)]
    set_after_exit = [name for name in state if name in _assigned_names(exit_.statements_after)]
    # In the first iteration, ``False | (stop & False)`` makes a tensor on the device of the test.
    lines = [
        f"{stops_name} = {parenthesize_lines(exit_.condition)}",
        f"{is_over_name} = {is_over_name} | ({stops_name} & False)",
        *selections(set_before_exit),
    ]
    last_name = fresh_name(source, f"last_{counter}")
    keeping_line = f"{last_name} = {torch_name}.where({is_over_name}, {last_name}, {counter})"
    if counter is not None:
        lines.append(keeping_line)
    for statement in exit_statements:
        assignment = _assignment(statement)
        if assignment is None:
            return None
        name, value = assignment[0].id, as_argument(source, assignment[1])
        if isinstance(statement, ast.AugAssign):
            value = f"{name} {OPERATOR_SYMBOLS[type(statement.op)]} {as_operand(source.text_of(statement.value))}"
        lines.append(
            f"{name} = {torch_name}.where({stops_name} & {torch_name}.logical_not({is_over_name}), {value}, {name})"
        )
    lines.append(f"{is_over_name} = {is_over_name} | {stops_name}")
    lines += [f"{saved_names[name]} = {name}" for name in set_after_exit]
    is_while = isinstance(loop, ast.While)
    first_count = [f"{last_name} = {counter if is_while else 0}"] if counter is not None else []
    lines_before = [f"{is_over_name} = False", *first_count]
    splices = [source.insertion_before(loop, lines_before)]
    if set_before_exit:
        splices.append(
            source.insertion_before(loop.body[0], [f"{saved_names[name]} = {name}" for name in set_before_exit])
        )
    if if_statement is not None:
        splices.append(source.statement_replacement(if_statement, lines))
    else:
        splices.append(source.insertion_before(loop.body[0], lines))
    lines_at_end = selections(set_after_exit)
    if counter is not None:  # the test of a ``while`` needs the number, which the body has changed
        lines_at_end.append(keeping_line if is_while else f"{counter} = {last_name}")
    if lines_at_end:
        splices.append(source.insertion_after(loop.body[-1], lines_at_end))
    if counter is not None and (is_while or keeps_number):
        count = last_name if is_while else counter  # after an empty ``for`` loop, the counter stays unbound
        final_count = f"int({count})" if keeps_number else count
        splices.append(source.insertion_after(loop, [f"{counter} = {final_count}"]))
    return [*splices, *_out_of_place_splices(site, [*exit_.statements_before, *exit_.statements_after], state)]


def _splices_to_return_after_end(
    site: Site, exit_: _LoopExit, if_statement: ast.If, early_return: ast.Return
) -> list[Splice | None] | None:
    """Return splices that run a loop to its end and then select its early result; ``None`` if that is impossible."""
    source, loop, function = site.source, exit_.loop, site.function
    final_return = function.body[-1] if function is not None else None
    if (
        function is None
        or loop not in function.body
        or not isinstance(final_return, ast.Return)
        or early_return.value is None
    ):
        return None
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    containers = ast.Tuple | ast.List | ast.Dict | ast.Constant
    if len(returns) != 2 or final_return.value is None or isinstance(final_return.value, containers):  # noqa: PLR2004 - one return is early, one final
        return None
    if (
        isinstance(early_return.value, containers)
        or _carried_names(site, exit_, []) is None
        or not _is_pure(early_return.value)
    ):
        return None
    is_over_name, stops_name, early_name = (fresh_name(source, name) for name in ("over", "stop", "early"))
    torch_name, value = site.torch_name, as_argument(source, early_return.value)
    lines = [
        f"{stops_name} = {parenthesize_lines(exit_.condition)}",
        (
            f"{early_name} = {value} if {early_name} is None"
            f" else {torch_name}.where({is_over_name}, {early_name}, {value})"
        ),
        f"{is_over_name} = {is_over_name} | {stops_name}",
    ]
    return [
        source.insertion_before(loop, [f"{is_over_name}, {early_name} = False, None"]),
        source.statement_replacement(if_statement, lines),
        source.replacement(
            final_return.value,
            f"{torch_name}.where({is_over_name}, {early_name}, {as_argument(source, final_return.value)})",
        ),
    ]


def _propose_while_loop(site: Site, loop: ast.While) -> Iterator[Proposal]:
    source = site.source
    condition = tensor_condition(source, loop.test, site.torch_name)
    if (
        condition is None
        or loop.orelse
        or not all(map(_only_assigns_names, loop.body))
        or not source.has_own_lines(loop)
    ):
        return
    state = sorted(name for name in _assigned_names(loop.body) if is_bound_before(source, loop, name))
    if not state or (_assigned_names(loop.body) - set(state)) & names_read_after(source, loop):
        return
    condition_function, body_function = fresh_name(source, "cond_fn"), fresh_name(source, "body_fn")
    step = indentation_step(source, loop)
    body = [_out_of_place_text(site, node, set(state)) or source.text_of(node) for node in loop.body]
    # The body must not return one of its inputs.
    results = [name if _is_new_tensor(loop.body, name) else f"{name}.clone()" for name in state]
    comma = "," if len(state) == 1 else ""
    names = ", ".join(state)
    lines = [
        f"def {condition_function}({names}):",
        f"{step}return {parenthesize_lines(condition)}",
        f"def {body_function}({names}):",
        *(f"{step}{line}" for line in body),
        f"{step}return {', '.join(results)}{comma}",
        f"{names}{comma} = {site.torch_name}.while_loop({condition_function}, {body_function}, ({names}{comma}))",
    ]
    splice = source.statement_replacement(loop, lines)
    yield from site.propose_edit(FAMILY, _WHILE_LOOP_TITLE, [splice], [loop.test], assumptions_of(source, [loop.test]))


def _is_new_tensor(body: Sequence[ast.stmt], name: str) -> bool:
    assigned_values = [pair[1] for pair in map(_assignment, body) if pair is not None and pair[0].id == name]
    return bool(assigned_values) and not isinstance(assigned_values[-1], ast.Name | ast.Attribute | ast.Subscript)


def _counter_to_keep(source: ParsedSource, loop: ast.For | ast.While) -> str | None:
    """Return the counter of ``for i in range(n)`` or ``while i < n`` if code after the loop reads it; else ``None``."""
    match loop:
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"))):
            counters = {name}
        case ast.While():
            counters = _counters(loop)
        case _:
            return None
    return min(counters & names_read_after(source, loop), default=None)


def _carried_names(
    site: Site, exit_: _LoopExit, exit_statements: Sequence[ast.stmt], *, restored_counter: str | None = None
) -> list[str] | None:
    """Return the names whose values pass between iterations; ``None`` if further iterations may change a result."""
    source, loop = site.source, exit_.loop
    statements = [*exit_.statements_before, *exit_.statements_after, *exit_statements]
    if loop.orelse or not all(map(_only_assigns_names, statements)) or not _is_pure(exit_.test):
        return None
    counters = _counters(loop) if isinstance(loop, ast.While) else names_bound(loop.target)
    read_after_loop = names_read_after(source, loop) - {restored_counter}
    assigned_names = _assigned_names(statements)
    names_of_iteration = {name for name in assigned_names - counters if not is_bound_before(source, loop, name)}
    if (
        (names_of_iteration | counters) & read_after_loop
        or counters & _assigned_names(exit_statements)
        or _reads_before_setting(statements, names_of_iteration)
    ):
        return None
    if isinstance(loop, ast.For) and counters & assigned_names:
        return None
    return sorted(assigned_names - counters - names_of_iteration)


def _reads_before_setting(statements: Sequence[ast.stmt], names: set[str]) -> bool:
    """Return whether an iteration reads one of the names before it sets that name."""
    set_names: set[str] = set()
    for statement in statements:
        assignment = _assignment(statement)
        read_names = names_read(assignment[1]) if assignment is not None else set()
        if isinstance(statement, ast.AugAssign):
            read_names |= names_bound(statement.target)
        if read_names & names - set_names:
            return True
        set_names |= _assigned_names([statement])
    return False


def _assigned_names(statements: Sequence[ast.stmt]) -> set[str]:
    return names_bound(ast.Module(list(statements), []))


def _assignment(statement: ast.stmt) -> tuple[ast.Name, ast.expr] | None:
    """Return the name and the value of an assignment to a name, or the operand of one such as ``+=``; else ``None``."""
    target: ast.expr | None = None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
        target = statement.target
    value = getattr(statement, "value", None)
    return (target, value) if isinstance(target, ast.Name) and isinstance(value, ast.expr) else None


def _only_assigns_names(statement: ast.stmt) -> bool:
    """Return whether a statement only assigns to names, as far as its syntax shows."""
    if isinstance(statement, ast.Pass):
        return True
    value = getattr(statement, "value", None)
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign) or not isinstance(value, ast.expr):
        return False
    if isinstance(statement, ast.AugAssign) and type(statement.op) not in OPERATOR_SYMBOLS:
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    names = [name for node in targets for name in (node.elts if isinstance(node, ast.Tuple) else [node])]
    return all(isinstance(name, ast.Name) for name in names) and _is_pure(value)


def _is_pure(value: ast.expr) -> bool:
    in_place_calls = (isinstance(node, ast.Attribute) and re.search(r"[^_]_$", node.attr) for node in ast.walk(value))
    # An additional iteration would draw random numbers that the program does not draw.
    return has_no_side_effects(value) and not any(in_place_calls) and not RANDOM_OPERATIONS.search(ast.unparse(value))


def _out_of_place_splices(site: Site, statements: Sequence[ast.stmt], state: Sequence[str]) -> Iterator[Splice | None]:
    """Yield splices that write ``x += y`` as ``x = x + y``, so that saved values do not change."""
    for statement in statements:
        text = _out_of_place_text(site, statement, set(state))
        if text is not None:
            yield site.source.replacement(statement, text)


def _out_of_place_text(site: Site, statement: ast.stmt, state: set[str]) -> str | None:
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.target, ast.Name):
        return None
    name = statement.target.id
    operator_symbol = OPERATOR_SYMBOLS[type(statement.op)]
    value = as_operand(site.source.text_of(statement.value))
    return f"{name} = {name} {operator_symbol} {value}" if name in state else None
