"""Replace branches on a tensor's value: compute both, and select between their results."""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_graphbreak.analysis.python_text import parse_expression
from jupyter_graphbreak.experiments.families.branch_values import (
    RANDOM_OPERATIONS,
    Branch,
    guard_branch,
    guard_operands,
    has_no_side_effects,
    has_no_unpacking,
    parenthesize_lines,
    read_branch,
    read_branches,
    render_value,
    select_value,
    where_call,
)
from jupyter_graphbreak.experiments.families.conditions import (
    is_host_test,
    rewrite_guard_as_if,
    split_test,
    tensor_condition,
)
from jupyter_graphbreak.experiments.families.emptiness_tests import propose_without_test
from jupyter_graphbreak.experiments.families.parsed_source import Splice, as_argument, as_operand, fresh_name
from jupyter_graphbreak.experiments.families.protection import assumptions_of
from jupyter_graphbreak.experiments.families.site import (
    Site,
    dotted_name,
    global_and_nonlocal_names,
    indentation_step,
    is_bound_before,
    names_bound,
    names_read,
    names_read_after,
    parameters_of,
    parse_source,
    site_at,
    site_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyter_graphbreak.experiments.families.proposal import Problem, Proposal


FAMILY = "branch"
_WHERE_TITLE = "Compute both branches with torch.where"
_GUARDED_TITLE = "Compute both branches with torch.where, with harmless operands in the branch that is not taken"
_COND_TITLE = "Pass both branches to torch.cond"
#: For each operator of an augmented assignment, the operators to write instead, each with the sign of the value and
#: with a number that changes no value. A sum may have to become a difference because -0.0 + 0 is 0.0.
_NEUTRAL_OPERATIONS: dict[type[ast.operator], list[tuple[str, str, str]]] = {
    ast.Add: [("+=", "", "0"), ("-=", "-", "0")],
    ast.Sub: [("-=", "", "0")],
    ast.Mult: [("*=", "", "1")],
    ast.Div: [("/=", "", "1")],
}
#: For methods that change a tensor in place, a number that changes no value.
_NEUTRAL_VALUES = {"sub_": "0", "mul_": "1", "div_": "1"}


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield changes that select between values instead of branching, or that drop a test for an empty tensor."""
    site = site_of(problem)
    if site is None:
        return
    rewritten_site = rewrite_guard_as_if(site)
    if rewritten_site is not None and isinstance(rewritten_site.node, ast.If):
        case = site.source.enclosing_node(site.node, ast.match_case)
        conditions = (site.condition(case.guard),) if case is not None and case.guard is not None else ()
        for proposal in _propose_for_statement(rewritten_site, rewritten_site.node):
            yield replace(proposal, conditions=conditions)
        return
    if_expression = site.source.enclosing_node(site.node, ast.IfExp)
    if if_expression is not None and (if_expression is site.node or site.node in ast.walk(if_expression.test)):
        yield from _propose_for_expression(
            site, if_expression, _python_operand_count(problem, site, if_expression.test)
        )
        return
    if_statement = site.source.enclosing_node(site.node, ast.If)
    if if_statement is None or not (if_statement is site.node or site.node in ast.walk(if_statement.test)):
        return
    outermost_if = _outermost_breaking_if(problem, site, if_statement)
    if outermost_if is not if_statement:
        yield from _propose_for_statement(site, outermost_if, _python_operand_count(problem, site, outermost_if.test))
    yield from propose_without_test(site, if_statement, FAMILY)
    yield from _propose_for_statement(site, if_statement, _python_operand_count(problem, site, if_statement.test))


def propose_for_size(source_id: str, text: str, line: int) -> Iterator[Proposal]:
    """Yield changes that pass both branches of a condition on a size to torch.cond, which runs only one of them.

    The line is that of the condition, or the one that assigns the size to a name.
    """
    source = parse_source(text)
    statement = source.find_node(line, None, line, None) if source is not None else None
    if source is None or not isinstance(statement, ast.stmt):
        return
    conditions = [node for node in ast.walk(statement) if isinstance(node, ast.If | ast.IfExp)]
    function = source.enclosing_function(statement)
    if not conditions and isinstance(statement, ast.Assign) and function is not None:
        bound_names = names_bound(statement)
        conditional_nodes = [node for node in ast.walk(function) if isinstance(node, ast.If | ast.IfExp)]
        conditions = [node for node in conditional_nodes if not bound_names.isdisjoint(names_read(node.test))]
    for node in conditions:
        enclosing_statement = source.enclosing_node(node, ast.stmt)
        if enclosing_statement is None:
            continue
        site = Site(source_id, source, node, enclosing_statement, {source_id: text})
        if isinstance(node, ast.If):
            proposals = _propose_for_statement(site, node)
        else:
            proposals = _propose_for_expression(site, node)
        for proposal in proposals:
            if proposal.title == _COND_TITLE:
                yield replace(proposal, title=f"{_COND_TITLE} on line {node.lineno}")


def _python_operand_count(problem: Problem, site: Site, test: ast.expr) -> int:
    """Return how many of a test's first operands Python decides: those before the first one that breaks a graph."""
    if not isinstance(test, ast.BoolOp):
        return 0
    breaking_nodes = [break_site.node for break_site in _break_sites(problem, site)]
    breaking_operands = [
        index for index, operand in enumerate(test.values) if any(node in ast.walk(operand) for node in breaking_nodes)
    ]
    return min(breaking_operands, default=0)


def _break_sites(problem: Problem, site: Site) -> list[Site]:
    """Return the sites of all breaks in the source of a given site."""
    sites = (site_at(problem, break_.location) for break_ in problem.report.breaks)
    return [break_site for break_site in sites if break_site is not None and break_site.source is site.source]


def _outermost_breaking_if(problem: Problem, site: Site, if_statement: ast.If) -> ast.If:
    """Return the outermost ``if`` of an ``elif`` chain such that the tests from it to the given ``if`` all break."""
    breaking_nodes = [break_site.node for break_site in _break_sites(problem, site)]
    outermost = if_statement
    for ancestor in site.source.ancestors(if_statement):
        if not isinstance(ancestor, ast.If) or ancestor.orelse != [outermost] or not site.source.is_elif(outermost):
            break
        if not any(ancestor is node or node in ast.walk(ancestor.test) for node in breaking_nodes):
            break
        outermost = ancestor
    return outermost


def _propose_for_expression(site: Site, if_expression: ast.IfExp, python_operand_count: int = 0) -> Iterator[Proposal]:
    torch_name = site.torch_name
    test, python_test = split_test(if_expression.test, python_operand_count)
    condition = tensor_condition(site.source, test, torch_name)
    if condition is None:
        return
    if_text, else_text = as_argument(site.source, if_expression.body), as_argument(site.source, if_expression.orelse)
    texts = {_WHERE_TITLE: _selection_text(site, condition, if_text, else_text)[0]}
    guarded_texts = [
        guard_operands(text, condition, torch_name, is_taken=is_taken)
        for text, is_taken in ((if_text, True), (else_text, False))
    ]
    if guarded_texts != [if_text, else_text]:
        texts[_GUARDED_TITLE] = where_call(torch_name, condition, *guarded_texts)
    if _is_accepted_by_cond(if_text, else_text):
        texts[_COND_TITLE] = _cond_call(torch_name, condition, if_text, else_text)
    for title, text in texts.items():
        new_text = f"({text} if {python_test} else {else_text})" if python_test else text
        splice = site.source.replacement(if_expression, new_text)
        yield from _propose_both_branches(
            site, title, [splice], [if_expression.test], python_operand_count=python_operand_count
        )


def _propose_both_branches(
    site: Site,
    title: str,
    splices: Sequence[Splice | None],
    tests: Sequence[ast.expr],
    further_code: Sequence[ast.AST] = (),
    python_operand_count: int = 0,
) -> Iterator[Proposal]:
    """Yield the proposal that computes both branches of each test, with its assumptions."""
    yield from site.propose_edit(
        FAMILY, title, splices, tests, assumptions_of(site.source, tests, further_code, python_operand_count)
    )


def _is_accepted_by_cond(*branches: str) -> bool:
    """Return whether torch.cond probably accepts the branches.

    It may reject constants, random operations and calls to modules. A call to a plain name may be a call to a module.
    """
    for branch in branches:
        tree = parse_expression(branch)
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        module_calls = [
            call for call in calls if not isinstance(call, ast.Attribute) or dotted_name(call).startswith("self.")
        ]
        if module_calls or RANDOM_OPERATIONS.search(branch) or isinstance(tree, ast.Constant):
            return False
    return True


def _cond_call(torch_name: str, condition: str, if_text: str, else_text: str) -> str:
    # A branch must not return one of its inputs.
    functions = [
        f"lambda: {branch}.clone()" if branch.isidentifier() else f"lambda: {branch}" for branch in (if_text, else_text)
    ]
    return f"{torch_name}.cond({condition}, {functions[0]}, {functions[1]})"


def _propose_for_statement(site: Site, if_statement: ast.If, python_operand_count: int = 0) -> Iterator[Proposal]:
    torch_name = site.torch_name
    returns = any(isinstance(node, ast.Return | ast.Continue) for node in (*if_statement.body, *if_statement.orelse))
    python_operand_count = 0 if returns else python_operand_count
    test, python_test = split_test(if_statement.test, python_operand_count)
    condition = tensor_condition(site.source, test, torch_name)
    if condition is None:
        return
    if len(if_statement.body) == 1 and isinstance(if_statement.body[0], ast.Continue) and not if_statement.orelse:
        yield from _propose_without_skip(site, if_statement, condition, python_test)
        return
    yield from _propose_with_selected_arguments(site, if_statement, condition, python_test)
    yield from _propose_in_place(site, if_statement, condition, python_operand_count)
    branches = read_branches(site.source, if_statement, torch_name)
    if branches is None:
        return
    if_branch, else_branch = branches
    tests = [if_statement.test, *if_branch.nested_tests, *else_branch.nested_tests]
    if if_branch.returns and not python_test:
        yield from _propose_single_return(site, if_statement, condition, branches)
        return
    if if_branch.returns or else_branch.returns:
        return
    for title, selecting_condition, selected_branches, earlier_lines in _where_variants(site, condition, branches):
        selection = _selection_statements(site, if_statement, selecting_condition, selected_branches)
        if selection is not None:
            lines = _add_python_test(site, if_statement, python_test, [*earlier_lines, *selection])
            splice = site.source.statement_replacement(if_statement, lines) if lines is not None else None
            yield from _propose_both_branches(site, title, [splice], tests, python_operand_count=python_operand_count)
    values = [*if_branch.values.values(), *else_branch.values.values()]
    has_one_target = len({*if_branch.values, *else_branch.values}) == 1 and not (
        if_branch.in_place_targets or else_branch.in_place_targets
    )
    if python_test or not has_one_target or not _is_accepted_by_cond(*values):
        return
    (target,) = {*if_branch.values, *else_branch.values}
    has_other_value = target in else_branch.values or is_bound_before(site.source, if_statement, target)
    if target.isidentifier() and target in if_branch.values and has_other_value:
        texts = if_branch.values[target], else_branch.values.get(target, target)
        lines = [*if_branch.lines, *else_branch.lines, f"{target} = {_cond_call(torch_name, condition, *texts)}"]
        yield from _propose_both_branches(
            site, _COND_TITLE, [site.source.statement_replacement(if_statement, lines)], tests
        )


def _where_variants(
    site: Site, condition: str, branches: tuple[Branch, Branch], *, must_name_condition: bool = False
) -> Iterator[tuple[str, str, tuple[Branch, Branch], list[str]]]:
    """Yield variants of computing both branches: the title, the condition, the branches, the statements before them."""
    name = fresh_name(site.source, "condition")
    naming_line = f"{name} = {parenthesize_lines(condition)}"
    yield _WHERE_TITLE, *((name, branches, [naming_line]) if must_name_condition else (condition, branches, []))
    guarded_branches = (
        guard_branch(branches[0], name, site.torch_name, is_taken=True),
        guard_branch(branches[1], name, site.torch_name, is_taken=False),
    )
    if guarded_branches != branches:
        yield _GUARDED_TITLE, name, guarded_branches, [naming_line]


def _add_python_test(site: Site, if_statement: ast.If, python_test: str, if_lines: list[str]) -> list[str] | None:
    """Return lines under an ``if`` with the Python test, and the original ``else``; ``None`` if that is impossible."""
    if not python_test:
        return if_lines
    step = indentation_step(site.source, if_statement)
    lines = [f"if {python_test}:", *(f"{step}{line}" for line in if_lines)]
    else_texts = [site.source.text_of(statement) for statement in if_statement.orelse]
    if any("\n" in text for text in else_texts):
        return None
    return [*lines, "else:", *(f"{step}{text}" for text in else_texts)] if else_texts else lines


def _selection_statements(
    site: Site, if_statement: ast.If, condition: str, branches: tuple[Branch, Branch]
) -> list[str] | None:
    """Return the statements that select each target's value after the ``if``.

    The result is ``None`` if there is no target, if a target that is read later may be unbound, or if one branch
    changes the tensor of an attribute or item in place and the other branch assigns a new one.
    """
    if_branch, else_branch = branches
    in_place_targets = if_branch.in_place_targets | else_branch.in_place_targets
    # One branch changes the tensor in place, and the other branch assigns a new one.
    mixed_targets = {
        target
        for branch in branches
        for target in in_place_targets - branch.in_place_targets
        if target in branch.values
    }
    if any(not target.isidentifier() for target in mixed_targets):
        return None
    in_place_targets -= mixed_targets
    targets = []
    for target in {**if_branch.values, **else_branch.values}:
        is_set_in_both = target in if_branch.values and target in else_branch.values
        if is_set_in_both or target in in_place_targets or is_bound_before(site.source, if_statement, target):
            targets.append(target)
        elif target in names_read_after(site.source, if_statement):
            return None
    if not targets:
        return None
    value_pairs = {
        target: (if_branch.values.get(target, target), else_branch.values.get(target, target)) for target in targets
    }
    lines = [*if_branch.lines, *else_branch.lines]
    # The caller must see the change to an argument.
    changed_arguments = {
        target: fresh_name(site.source, f"{target}_before")
        for target in sorted(mixed_targets & (parameters_of(site.function) if site.function is not None else set()))
    }
    if not condition.isidentifier() and (
        len(targets) > 1 or changed_arguments or _selection_text(site, condition, *value_pairs[targets[0]])[1] > 1
    ):
        name = fresh_name(site.source, "condition")
        lines.insert(0, f"{name} = {parenthesize_lines(condition)}")
        condition = name
    if len(targets) > 1:
        lines += _save_overwritten_values(site, value_pairs)
    selections = [
        (target, _selection_text(site, condition, a, b)[0]) for target, (a, b) in value_pairs.items() if a != b
    ]
    return [
        *lines,
        *(f"{name} = {target}" for target, name in changed_arguments.items()),
        *(
            f"{target}.copy_({text})" if target in in_place_targets else f"{target} = {text}"
            for target, text in selections
        ),
        *(
            f"{name}.copy_({where_call(site.torch_name, condition, *contents)})"
            for target, name in changed_arguments.items()
            for contents in [(target, name) if target in if_branch.in_place_targets else (name, target)]
        ),
    ]


def _selection_text(site: Site, condition: str, if_text: str, else_text: str) -> tuple[str, int]:
    """Return an expression that selects one of two values, member by member, and how often it reads the condition."""
    read_count = 0

    def where(condition: str, if_member: str, else_member: str) -> str:
        nonlocal read_count
        read_count += 1
        return where_call(site.torch_name, condition, if_member, else_member)

    value = select_value(condition, if_text, else_text, where)
    return render_value(value or where(condition, if_text, else_text)), read_count


def _save_overwritten_values(site: Site, value_pairs: dict[str, tuple[str, str]]) -> list[str]:
    """Save the values that an earlier selection would overwrite: return the statements, and update ``value_pairs``."""
    lines = []
    for number, (target, texts) in enumerate(value_pairs.items()):
        names = []
        for text, suffix in zip(texts, ("_if", "_else"), strict=True):
            name = text
            if any(_mentions(text, earlier_target) for earlier_target in list(value_pairs)[:number]):
                name = fresh_name(site.source, re.sub(r"\W+", "_", target).strip("_") + suffix)
                lines.append(f"{name} = {parenthesize_lines(text)}")
            names.append(name)
        value_pairs[target] = (names[0], names[1])
    return lines


def _mentions(text: str, target: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(target)}(?!\w)", text) is not None


def _propose_in_place(
    site: Site, if_statement: ast.If, condition: str, python_operand_count: int
) -> Iterator[Proposal]:
    """Yield a change that updates tensors in place, by a neutral value if the branch would not update them."""
    source, block, headers = site.source, if_statement.body, list[str]()
    loops: list[ast.For] = []
    while len(block) == 1 and isinstance(block[0], ast.For | ast.If) and not block[0].orelse:
        outer = block[0]
        if isinstance(outer, ast.For):
            loops.append(outer)
            headers.append(f"for {source.text_of(outer.target)} in {as_operand(source.text_of(outer.iter))}:")
        elif is_host_test(outer.test):
            headers.append(f"if {source.text_of(outer.test)}:")
        else:
            return
        block = outer.body
    name = fresh_name(source, "condition") if headers else condition
    names_read_later = names_read_after(source, if_statement)
    if len(block) != 1 or if_statement.orelse or any(names_read_later & names_bound(loop.target) for loop in loops):
        return
    step = indentation_step(source, if_statement)
    for update in _updates_by_neutral_value(site, block[0], name):
        lines = [f"{step * depth}{line}" for depth, line in enumerate([*headers, update])]
        if headers:
            lines.insert(0, f"{name} = {parenthesize_lines(condition)}")
        new_lines = _add_python_test(site, if_statement, split_test(if_statement.test, python_operand_count)[1], lines)
        if new_lines is not None:
            splice = source.statement_replacement(if_statement, new_lines)
            yield from _propose_both_branches(
                site, f"{_WHERE_TITLE}, in place", [splice], [if_statement.test], loops, python_operand_count
            )


def _updates_by_neutral_value(site: Site, statement: ast.stmt, condition: str) -> Iterator[str]:
    """Yield updates such as ``y *= c`` or ``y.mul_(c)`` that change no value if the condition is false."""
    match statement:
        case ast.AugAssign(target, op, value) if type(op) in _NEUTRAL_OPERATIONS:
            text, target_text = as_argument(site.source, value), site.source.text_of(target)
            for symbol, sign, neutral_value in _NEUTRAL_OPERATIONS[type(op)]:
                change = f"{sign}{as_operand(text)}" if sign else text
                yield f"{target_text} {symbol} {where_call(site.torch_name, condition, change, neutral_value)}"
        case ast.Expr(ast.Call(ast.Attribute(attr=method) as function, [value], [])) if method in _NEUTRAL_VALUES:
            text = as_argument(site.source, value)
            selection = where_call(site.torch_name, condition, text, _NEUTRAL_VALUES[method])
            yield f"{site.source.text_of(function)}({selection})"


def _propose_with_selected_arguments(
    site: Site, if_statement: ast.If, condition: str, python_test: str
) -> Iterator[Proposal]:
    """Yield a change that calls a function once, with selected arguments, if each branch only calls this function."""
    calls = [
        block[0].value
        for block in (if_statement.body, if_statement.orelse)
        if len(block) == 1 and isinstance(block[0], ast.Expr) and isinstance(block[0].value, ast.Call)
    ]
    if len(calls) != 2 or python_test:  # noqa: PLR2004 - each branch has one call
        return
    arguments = [[*call.args, *(keyword.value for keyword in call.keywords)] for call in calls]
    evaluated_parts = [call.func for call in calls] + [part for parts in arguments for part in parts]
    if not all(map(has_no_unpacking, calls)) or not all(map(has_no_side_effects, evaluated_parts)):
        return
    if_value, else_value = (
        (
            ast.unparse(call.func),
            (*("" for _ in call.args), *(f"{keyword.arg}=" for keyword in call.keywords)),
            tuple(as_argument(site.source, part) for part in parts),
        )
        for call, parts in zip(calls, arguments, strict=True)
    )
    name = fresh_name(site.source, "condition")
    selected_value = select_value(name, if_value, else_value, functools.partial(where_call, site.torch_name))
    if selected_value is None or isinstance(selected_value, str):
        return
    lines = [f"{name} = {parenthesize_lines(condition)}", render_value(selected_value)]
    yield from _propose_both_branches(
        site, _WHERE_TITLE, [site.source.statement_replacement(if_statement, lines)], [if_statement.test]
    )


def _propose_single_return(
    site: Site, if_statement: ast.If, condition: str, branches: tuple[Branch, Branch]
) -> Iterator[Proposal]:
    source, (if_branch, else_branch) = site.source, branches
    tests = [if_statement.test, *if_branch.nested_tests, *else_branch.nested_tests]
    where, cond = (functools.partial(call, site.torch_name) for call in (where_call, _cond_call))
    block = source.block_of(if_statement)
    statements_after = block[block.index(if_statement) + 1 :] if if_statement in block else []
    final_return = statements_after[0] if len(statements_after) == 1 else None
    if not if_statement.orelse and isinstance(final_return, ast.Return):
        else_branch = read_branch(source, [final_return], "_else", site.torch_name) or else_branch
    has_effects = _lasting_changes(site, if_statement, condition, (if_branch, else_branch)) != []
    selected_value = select_value(condition, if_branch.result, else_branch.result, where)
    is_repeated = selected_value is not None and render_value(selected_value).count(condition) > 1
    variants = [
        (where, *variant)
        for variant in _where_variants(
            site, condition, (if_branch, else_branch), must_name_condition=is_repeated or has_effects
        )
    ]
    if not has_effects:
        variants.append((cond, _COND_TITLE, condition, (if_branch, else_branch), []))
    for select, title, test, selected_branches, earlier_lines in variants if else_branch.returns else []:
        result = select_value(test, selected_branches[0].result, selected_branches[1].result, select)
        if result is None:
            break
        if select is cond and not (
            isinstance(if_branch.result, str)
            and isinstance(else_branch.result, str)
            and _is_accepted_by_cond(if_branch.result, else_branch.result)
        ):
            return
        effects = _lasting_changes(site, if_statement, test, selected_branches)
        if effects is None:
            return
        result_text = render_value(result)
        if effects:
            name = fresh_name(source, "result")
            effects, result_text = [f"{name} = {parenthesize_lines(result_text)}", *effects], name
        lines = [*earlier_lines, *selected_branches[0].lines, *selected_branches[1].lines, *effects]
        lines.append(f"return {result_text}")
        splices = [source.statement_replacement(if_statement, lines)]
        if not if_statement.orelse and isinstance(final_return, ast.Return) and source.has_own_lines(final_return):
            splices.append(source.line_deletion(final_return.lineno, final_return.end_lineno or final_return.lineno))
        yield from _propose_both_branches(site, title, splices, tests)
    if not else_branch.returns and not if_statement.orelse and statements_after:
        yield from _propose_without_early_return(site, if_statement, condition, if_branch)


def _lasting_changes(
    site: Site, if_statement: ast.If, condition: str, branches: tuple[Branch, Branch]
) -> list[str] | None:
    """Return statements for the branches' changes to anything but local names; ``None`` if that is impossible."""
    lasting_targets = (
        branches[0].in_place_targets
        | branches[1].in_place_targets
        | global_and_nonlocal_names(site.function or site.source.tree)
    )
    if_branch, else_branch = (
        Branch(
            values={
                target: text
                for target, text in branch.values.items()
                if target in lasting_targets or not target.isidentifier()
            },
            in_place_targets=branch.in_place_targets,
        )
        for branch in branches
    )
    if not if_branch.values and not else_branch.values:
        return []
    return _selection_statements(site, if_statement, condition, (if_branch, else_branch))


def _propose_without_early_return(
    site: Site, if_statement: ast.If, condition: str, returning_branch: Branch
) -> Iterator[Proposal]:
    """Yield a change that continues after the early return, and selects the result in each later ``return``."""
    source, function = site.source, site.source.enclosing_function(if_statement)
    if function is None or if_statement not in function.body or not isinstance(function.body[-1], ast.Return):
        return
    statements_after = function.body[function.body.index(if_statement) + 1 :]
    later_returns = [node for part in statements_after for node in ast.walk(part) if isinstance(node, ast.Return)]
    name, early_result = fresh_name(source, "condition"), fresh_name(source, "early")
    lines = [*returning_branch.lines, f"{name} = {parenthesize_lines(condition)}"]
    result, effects = returning_branch.result, _lasting_changes(site, if_statement, name, (returning_branch, Branch()))
    if effects is None or (effects and not isinstance(result, str)):
        return
    if isinstance(result, str):
        lines += [f"{early_result} = {parenthesize_lines(result)}", *effects]
        result = early_result
    splices: list[Splice | None] = [source.statement_replacement(if_statement, lines)]
    for later_return in later_returns:
        if source.enclosing_function(later_return) is not function:
            continue
        branch_of_return = read_branch(source, [later_return], "_else", site.torch_name)
        if branch_of_return is None:
            return
        select = functools.partial(where_call, site.torch_name)
        selected_value = select_value(name, result, branch_of_return.result, select)
        if selected_value is None:
            return
        splices.append(source.replacement(later_return, f"return {render_value(selected_value)}"))
    yield from _propose_both_branches(
        site, _WHERE_TITLE, splices, [if_statement.test, *returning_branch.nested_tests], statements_after
    )


def _propose_without_skip(site: Site, if_statement: ast.If, condition: str, python_test: str) -> Iterator[Proposal]:
    """Yield a change that runs the rest of a loop's body in every iteration, and undoes it if it should be skipped."""
    source = site.source
    loop = source.enclosing_node(if_statement, ast.For)
    if loop is None:
        return
    loop_statement = next((part for part in loop.body if if_statement in ast.walk(part)), None)
    is_guarded = (
        isinstance(loop_statement, ast.If)
        and loop_statement is not if_statement
        and not loop_statement.orelse
        and if_statement is loop_statement.body[-1]
    )
    if loop_statement is None or (loop_statement is not if_statement and not is_guarded):
        return
    skipped_statements = loop.body[loop.body.index(loop_statement) + 1 :]
    changed_names = [
        name
        for name in sorted(names_bound(ast.Module(skipped_statements, [])))
        if is_bound_before(site.source, loop, name)
    ]
    nodes = (node for part in skipped_statements for node in ast.walk(part))
    jumps = [node for node in nodes if isinstance(node, ast.Continue | ast.Break | ast.Return)]
    tested_names = names_read(parse_expression(python_test)) if python_test else set()
    if not skipped_statements or not changed_names or jumps or not tested_names.isdisjoint(changed_names):
        return
    skip = fresh_name(source, "skip")
    saved_names = {name: fresh_name(source, f"{name}_before") for name in changed_names}
    lines = [
        f"{skip} = {parenthesize_lines(condition)}",
        *(f"{saved_name} = {name}" for name, saved_name in saved_names.items()),
    ]
    restoring_lines = [
        f"{name} = {where_call(site.torch_name, skip, saved_name, name)}" for name, saved_name in saved_names.items()
    ]

    def run_if(test: str, guarded_lines: list[str]) -> list[str]:
        return [f"if {test}:", *(f"{indentation_step(source, loop)}{line}" for line in guarded_lines)]

    if python_test:
        lines, restoring_lines = run_if(python_test, lines), run_if(python_test, restoring_lines)
    if is_guarded and isinstance(loop_statement, ast.If):
        restoring_lines = run_if(source.text_of(loop_statement.test), restoring_lines)
    splices = [
        source.statement_replacement(if_statement, lines),
        source.insertion_after(skipped_statements[-1], restoring_lines),
    ]
    title = "Always run the skipped statements, and undo their changes with torch.where"
    yield from _propose_both_branches(site, title, splices, [if_statement.test], skipped_statements)
