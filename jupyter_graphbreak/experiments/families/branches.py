"""Branches on a tensor's value: compute both sides and select between the results."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

from jupyter_graphbreak.analysis.python_text import parse_expression
from jupyter_graphbreak.experiments.families.arms import Arm, parenthesized, read_arm, render_value, select_value
from jupyter_graphbreak.experiments.families.bound_names import is_bound_before, read_after
from jupyter_graphbreak.experiments.families.conditions import split_test, tensor_condition
from jupyter_graphbreak.experiments.families.drafting import Splice, argument, fresh_name, operand
from jupyter_graphbreak.experiments.families.protection import assumptions_of
from jupyter_graphbreak.experiments.families.site import (
    Site,
    dotted,
    draft_of,
    names_bound,
    names_read,
    site_at,
    site_of,
    step_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jupyter_graphbreak.experiments.families.arms import Value
    from jupyter_graphbreak.experiments.families.proposal import Problem, Proposal

#: Functions and methods whose gradient may not be finite for zero or negative numbers, but is finite for the number 1.
_STEEP_FUNCTIONS = {"sqrt", "rsqrt", "log", "log2", "log10", "reciprocal"}


def guarded_arm(arm: Arm, condition: str, torch: str, *, is_taken: bool) -> Arm:
    """Return one side of a branch, with risky operands replaced with 1 when the other side is taken.

    Parameters
    ----------
    arm : Arm
        The side.
    condition : str
        The name of the condition.
    torch : str
        The name of the torch package.
    is_taken : bool
        Whether the side is taken if the condition is true.
    """

    def guarded(text: str) -> str:
        return guarded_text(text, condition, torch, is_taken=is_taken)

    def guarded_value(value: Value | None) -> Value | None:
        if value is None or isinstance(value, str):
            return value and guarded(value)
        kind, keys, members = value
        return kind, keys, tuple(member for member in map(guarded_value, members) if member is not None)

    lines = [f"{name} = {guarded(text)}" for name, _, text in (line.partition(" = ") for line in arm.lines)]
    values = {target: guarded(text) for target, text in arm.values.items()}
    return replace(arm, lines=lines, values=values, result=guarded_value(arm.result))


def guarded_text(text: str, condition: str, torch: str, *, is_taken: bool) -> str:
    """Return an expression, with risky operands replaced with 1 when the other side of its branch is taken."""
    try:
        tree = parse_expression(text)
    except SyntaxError:
        return text
    guard = _GuardedStatements(condition, torch, is_taken=is_taken)
    guarded = guard.visit(tree)
    return ast.unparse(guarded) if guard.found else text


class _GuardedStatements(ast.NodeTransformer):
    def __init__(self, condition: str, torch: str, *, is_taken: bool) -> None:
        self._condition = condition
        self._torch = torch
        self._is_taken = is_taken
        self.found = False

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Guard divisors, and the bases of fractional powers."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Div) and not isinstance(node.right, ast.Constant):
            node.right = self._guarded(node.right)
        exponent = node.right.value if isinstance(node.right, ast.Constant) else None
        if isinstance(node.op, ast.Pow) and isinstance(exponent, float):
            node.left = self._guarded(node.left)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Guard the arguments of roots and logarithms."""
        self.generic_visit(node)
        if dotted(node.func).rpartition(".")[2] in _STEEP_FUNCTIONS and isinstance(node.func, ast.Attribute):
            if node.args:
                node.args[0] = self._guarded(node.args[0])
            else:
                node.func.value = self._guarded(node.func.value)
        return node

    def _guarded(self, operand: ast.expr) -> ast.expr:
        self.found = True
        text, one = ast.unparse(operand), "1"
        sides = (text, one) if self._is_taken else (one, text)
        return parse_expression(f"{self._torch}.where({self._condition}, {sides[0]}, {sides[1]})")


FAMILY = "branch"
_WHERE_TITLE = "Take both sides with torch.where"
_GUARDED_TITLE = "Take both sides with torch.where, and keep gradients finite on the side that is not taken"
_COND_TITLE = "Give both sides to torch.cond"
_RANDOM = re.compile(r"drop|rand|bernoulli|multinomial|normal_|uniform_")
#: The operators of assignments in place, with the signs and numbers that change no value: -0.0 + 0 is 0.0, so a sum is
#: written as a difference.
_NEUTRAL_CHANGES = {ast.Add: ("-=", "0"), ast.Sub: ("-=", "0"), ast.Mult: ("*=", "1"), ast.Div: ("/=", "1")}


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield changes that select between values instead of branching."""
    site = site_of(problem)
    if site is None:
        return
    choice = site.draft.enclosing(site.node, ast.IfExp)
    if choice is not None and (choice is site.node or _contains(choice.test, site.node)):
        yield from _propose_for_expression(site, choice, _decided_operands(problem, site, choice.test))
        return
    branch = site.draft.enclosing(site.node, ast.If)
    if branch is None or not (branch is site.node or _contains(branch.test, site.node)):
        return
    chain = _whole_chain(problem, site, branch)
    if chain is not branch:
        yield from _propose_for_statement(site, chain, _decided_operands(problem, site, chain.test))
    yield from _drop_test(site, branch)
    yield from _keep_flag_as_tensor(site, branch)
    yield from _propose_for_statement(site, branch, _decided_operands(problem, site, branch.test))


def propose_for_size(source: str, text: str, line: int) -> Iterator[Proposal]:
    """Yield changes that give both sides of a condition on a size to torch.cond, which runs only one of them.

    Parameters
    ----------
    source : str
        The id of the source.
    line : int
        The line of the condition, or the line that gives the size a name.
    """
    draft = draft_of(text)
    statement = draft.find(line, None, line, None) if draft is not None else None
    if draft is None or not isinstance(statement, ast.stmt):
        return
    conditions = [node for node in ast.walk(statement) if isinstance(node, ast.If | ast.IfExp)]
    function = draft.enclosing_function(statement)
    if not conditions and isinstance(statement, ast.Assign) and function is not None:
        named = names_bound(statement)
        later = [node for node in ast.walk(function) if isinstance(node, ast.If | ast.IfExp)]
        conditions = [node for node in later if not named.isdisjoint(names_read(node.test))]
    for node in conditions:
        enclosing = draft.enclosing(node, ast.stmt)
        if enclosing is None:
            continue
        site = Site(source, draft, node, enclosing, {source: text})
        if isinstance(node, ast.If):
            proposals = _propose_for_statement(site, node)
        else:
            proposals = _propose_for_expression(site, node)
        for proposal in proposals:
            if proposal.title == _COND_TITLE:
                yield replace(proposal, title=f"{_COND_TITLE} on line {node.lineno}")


def _decided_operands(problem: Problem, site: Site, test: ast.expr) -> int:
    """Return how many operands of a test were evaluated before the first one that breaks: Python decides these."""
    if not isinstance(test, ast.BoolOp):
        return 0
    broken = [place.node for place in _places(problem, site)]
    first = [n for n, operand in enumerate(test.values) if any(_contains(operand, node) for node in broken)]
    return min(first, default=0)


def _places(problem: Problem, site: Site) -> list[Site]:
    """Return the places of all breaks in the source of a break."""
    places = (site_at(problem, break_.location) for break_ in problem.report.breaks)
    return [place for place in places if place is not None and place.draft is site.draft]


def _contains(outer: ast.AST, inner: ast.AST) -> bool:
    return any(node is inner for node in ast.walk(outer))


def _whole_chain(problem: Problem, site: Site, branch: ast.If) -> ast.If:
    """Return the outermost branch of an ``elif`` chain up to which all branches break."""
    broken = [place.node for place in _places(problem, site)]
    first = branch
    for enclosing in site.draft.ancestors(branch):
        if not isinstance(enclosing, ast.If) or enclosing.orelse != [first] or not site.draft.is_elif(first):
            break
        if any(enclosing is node or _contains(enclosing.test, node) for node in broken):
            first = enclosing
        else:
            break
    return first


def _propose_for_expression(site: Site, choice: ast.IfExp, decided: int = 0) -> Iterator[Proposal]:
    torch, needed = site.torch()
    test, kept = split_test(choice.test, decided)
    condition = tensor_condition(site.draft, test, torch)
    if condition is None:
        return
    taken, other = argument(site.draft, choice.body), argument(site.draft, choice.orelse)
    texts = {_WHERE_TITLE: f"{torch}.where({condition}, {taken}, {other})"}
    sides = [
        guarded_text(text, condition, torch, is_taken=is_taken) for text, is_taken in ((taken, True), (other, False))
    ]
    if sides != [taken, other]:
        texts[_GUARDED_TITLE] = f"{torch}.where({condition}, {sides[0]}, {sides[1]})"
    if _fits_cond(taken, other):
        texts[_COND_TITLE] = _cond(torch, condition, taken, other)
    for title, text in texts.items():
        new = f"({text} if {kept} else {other})" if kept else text
        splices = [site.draft.replacement(choice, new), *needed]
        yield from _proposals(site, title, splices, [choice.test], decided=decided)


def _proposals(
    site: Site,
    title: str,
    splices: Sequence[Splice | None],
    tests: Sequence[ast.expr],
    further_code: Sequence[ast.AST] = (),
    decided: int = 0,
) -> Iterator[Proposal]:
    """Yield the proposal that computes both sides of some tests, with its assumptions."""
    yield from site.edit(FAMILY, title, splices, tests, assumptions_of(site.draft, tests, further_code, decided))


def _fits_cond(*sides: str) -> bool:
    """Return whether torch.cond accepts the sides: tensors, without calls of modules or random numbers."""
    for side in sides:
        tree = parse_expression(side)
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        own = [call for call in calls if not isinstance(call, ast.Attribute) or dotted(call).startswith("self.")]
        if own or _RANDOM.search(side) or isinstance(tree, ast.Constant):
            return False
    return True


def _cond(torch: str, condition: str, taken: str, other: str) -> str:
    # A side must not return one of its inputs.
    sides = [f"lambda: {side}.clone()" if side.isidentifier() else f"lambda: {side}" for side in (taken, other)]
    return f"{torch}.cond({condition}, {sides[0]}, {sides[1]})"


def _propose_for_statement(site: Site, branch: ast.If, decided: int = 0) -> Iterator[Proposal]:
    torch, needed = site.torch()
    returns = any(isinstance(node, ast.Return | ast.Continue) for node in (*branch.body, *branch.orelse))
    decided = 0 if returns else decided
    test, kept = split_test(branch.test, decided)
    condition = tensor_condition(site.draft, test, torch)
    if condition is None:
        return
    if _is_continue(branch.body) and not branch.orelse:
        yield from _run_skipped_statements(site, branch, condition, torch, needed)
        return
    taken = read_arm(site.draft, branch.body, "_if", torch)
    other = read_arm(site.draft, branch.orelse, "_else", torch)
    if taken is None or other is None:
        return
    tests = [branch.test, *taken.tests, *other.tests]
    if taken.returns and not kept:
        yield from _merge_returns(site, branch, condition, (taken, other), torch, needed)
        return
    if taken.returns or other.returns:
        return
    yield from _in_place(site, branch, condition, torch, needed, decided)
    for title, chosen_by, arms, first in _variants(site, condition, (taken, other), torch):
        merged = _merged(site, branch, chosen_by, arms, f"{torch}.where")
        if merged is not None:
            lines = _under_python_test(site, branch, kept, [*first, *merged])
            splice = site.draft.statement_replacement(branch, lines) if lines is not None else None
            yield from _proposals(site, title, [splice, *needed], tests, decided=decided)
    values = [*taken.values.values(), *other.values.values()]
    if kept or len({*taken.values, *other.values}) != 1 or not _fits_cond(*values):
        return
    (target,) = {*taken.values, *other.values}
    bound = target in other.values or is_bound_before(site.draft, branch, target)
    if target.isidentifier() and target in taken.values and bound:
        sides = taken.values[target], other.values.get(target, target)
        lines = [*taken.lines, *other.lines, f"{target} = {_cond(torch, condition, *sides)}"]
        yield from _proposals(site, _COND_TITLE, [site.draft.statement_replacement(branch, lines), *needed], tests)


def _variants(
    site: Site, condition: str, arms: tuple[Arm, Arm], torch: str
) -> Iterator[tuple[str, str, tuple[Arm, Arm], list[str]]]:
    """Yield variants that compute both sides: a title, the condition, the sides, and the statements before them."""
    yield _WHERE_TITLE, condition, arms, []
    name = fresh_name(site.draft, "condition")
    guarded = guarded_arm(arms[0], name, torch, is_taken=True), guarded_arm(arms[1], name, torch, is_taken=False)
    if guarded != arms:
        yield _GUARDED_TITLE, name, guarded, [f"{name} = {parenthesized(condition)}"]


def _under_python_test(site: Site, branch: ast.If, kept: str, merged: list[str]) -> list[str] | None:
    """Put statements under a Python test; the other side of the branch stays unchanged."""
    if not kept:
        return merged
    step = step_of(site.draft, branch)
    lines = [f"if {kept}:", *(f"{step}{line}" for line in merged)]
    other = [site.draft.text_of(statement) for statement in branch.orelse]
    if any("\n" in text for text in other):
        return None
    return [*lines, "else:", *(f"{step}{text}" for text in other)] if other else lines


def _merged(site: Site, branch: ast.If, condition: str, arms: tuple[Arm, Arm], where: str) -> list[str] | None:
    """Return the statements that select the value of each target after the branch."""
    taken, other = arms
    targets = []
    for target in {**taken.values, **other.values}:
        in_both = target in taken.values and target in other.values
        if in_both or is_bound_before(site.draft, branch, target):
            targets.append(target)
        elif target in read_after(site.draft, branch):
            return None
    if not targets:
        return None
    sides = {target: (taken.values.get(target, target), other.values.get(target, target)) for target in targets}
    lines = [*taken.lines, *other.lines]
    if len(targets) > 1:
        if not condition.isidentifier():
            name = fresh_name(site.draft, "condition")
            lines.insert(0, f"{name} = {parenthesized(condition)}")
            condition = name
        lines += _save_values(site, sides)
    return [*lines, *(f"{target} = {where}({condition}, {a}, {b})" for target, (a, b) in sides.items() if a != b)]


def _save_values(site: Site, sides: dict[str, tuple[str, str]]) -> list[str]:
    """Save values that an earlier selection would change under new names; return the statements."""
    lines = []
    for number, (target, pair) in enumerate(sides.items()):
        names = []
        for text, suffix in zip(pair, ("_if", "_else"), strict=True):
            name = text
            if any(_mentions(text, earlier) for earlier in list(sides)[:number]):
                name = fresh_name(site.draft, re.sub(r"\W+", "_", target).strip("_") + suffix)
                lines.append(f"{name} = {parenthesized(text)}")
            names.append(name)
        sides[target] = (names[0], names[1])
    return lines


def _mentions(text: str, target: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(target)}(?!\w)", text) is not None


def _drop_test(site: Site, branch: ast.If) -> Iterator[Proposal]:
    """Drop a test for elements: without elements, the block, or the code after a shortcut, changes nothing."""
    parts = branch.test.values if _is_and(branch.test) else [branch.test]
    tests = [part for part in parts if _asks_for_elements(part) is not None]
    marks = names_read(tests[0]) - {"torch"} if len(tests) == 1 else set()
    if not marks or branch.orelse:
        return
    body, draft = branch.body, site.draft
    is_shortcut, question = _asks_for_elements(tests[0]) is False, _question_about_values(tests[0])
    block = draft.block_of(branch)
    used = ast.Module(block[block.index(branch) + 1 :] if is_shortcut else body, [])
    if not marks & (_names_of_indices(used) if _is_sum(tests[0]) else names_read(used)):
        return
    if is_shortcut:
        skips = len(parts) == 1 and len(body) == 1 and isinstance(body[0], ast.Continue | ast.Return)
        splices: list[Splice | None] = [draft.deletion(branch)] if skips else []
        title = f"Drop the `{question}()` shortcut" if question else "Drop the shortcut for an empty tensor"
    else:
        changes = [isinstance(part, ast.Assign | ast.AugAssign | ast.AnnAssign) or _is_in_place(part) for part in body]
        kept = " and ".join(draft.text_of(part) for part in parts if part is not tests[0])
        step = step_of(draft, branch) if kept else ""
        lines = [*([f"if {kept}:"] if kept else []), *(f"{step}{draft.text_of(part)}" for part in body)]
        splices = [draft.statement_replacement(branch, lines)] if all(changes) and draft.indent_of(body[0]) else []
        title = f"Drop the `{question}()` test" if question else "Drop the test for an empty tensor"
    if splices:
        yield from site.edit(FAMILY, title, splices, tests, assumptions_of(draft, [branch.test]))


def _is_sum(test: ast.expr) -> bool:
    """Return whether a test adds up values; the sum is a number of elements only if the values are a mask."""
    return any(isinstance(node, ast.Attribute) and node.attr == "sum" for node in ast.walk(test))


def _question_about_values(test: ast.expr) -> str | None:
    """Return the method with which a test asks whether a mask has true values; ``None`` if it asks for a size."""
    attributes = (node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute))
    return next((name for name in attributes if name in {"any", "count_nonzero", "sum"}), None)


def _names_of_indices(tree: ast.AST) -> set[str]:
    return {name for node in ast.walk(tree) if isinstance(node, ast.Subscript) for name in names_read(node.slice)}


def _is_and(test: ast.expr) -> TypeGuard[ast.BoolOp]:
    return isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)


def _is_in_place(statement: ast.stmt) -> bool:
    """Return whether a statement is a call such as ``x.add_(1)``."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and re.search(r"[a-z]_$", dotted(call.func)) is not None


def _asks_for_elements(test: ast.expr) -> bool | None:
    """Return ``True`` if a test is true for non-empty tensors only, ``False`` for empty ones only, else ``None``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _asks_for_elements(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        is_number = _is_number_of_elements(test.left)
        return _COMPARISONS.get((type(test.ops[0]), test.comparators[0].value)) if is_number else None
    return True if _is_number_of_elements(test) else None


def _is_number_of_elements(node: ast.expr) -> bool:
    """Return whether an expression is like ``x.numel()``, ``len(x)``, ``x.shape[0]`` or ``mask.sum()``."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "item":
        return _is_number_of_elements(node.func.value)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
    return name in {"any", "count_nonzero", "len", "numel", "size", "sum"}


#: Comparisons with a number of elements: whether each is true for some elements, or for none.
_COMPARISONS: Mapping[tuple[type[ast.cmpop], object], bool] = {
    (ast.Eq, 0): False, (ast.Lt, 1): False, (ast.LtE, 0): False,
    (ast.NotEq, 0): True, (ast.Gt, 0): True, (ast.GtE, 1): True,
}  # fmt: skip


def _in_place(
    site: Site, branch: ast.If, condition: str, torch: str, needed: Sequence[Splice | None], decided: int
) -> Iterator[Proposal]:
    """Change a tensor in place by a neutral value if the branch would not change it."""
    only = branch.body[0] if len(branch.body) == 1 and not branch.orelse else None
    if not isinstance(only, ast.AugAssign) or type(only.op) not in _NEUTRAL_CHANGES:
        return
    target, value = site.draft.text_of(only.target), argument(site.draft, only.value)
    sign, neutral = _NEUTRAL_CHANGES[type(only.op)]
    changed = f"-{operand(value)}" if isinstance(only.op, ast.Add) else value
    line = f"{target} {sign} {torch}.where({condition}, {changed}, {neutral})"
    lines = _under_python_test(site, branch, split_test(branch.test, decided)[1], [line])
    if lines is not None:
        splices = [site.draft.statement_replacement(branch, lines), *needed]
        yield from _proposals(site, f"{_WHERE_TITLE}, in place", splices, [branch.test], decided=decided)


def _merge_returns(
    site: Site, branch: ast.If, condition: str, arms: tuple[Arm, Arm], torch: str, needed: Sequence[Splice | None]
) -> Iterator[Proposal]:
    draft, (taken, other) = site.draft, arms
    tests = [branch.test, *taken.tests, *other.tests]

    def where(test: str, a: str, b: str) -> str:
        return f"{torch}.where({test}, {a}, {b})"

    def cond(test: str, a: str, b: str) -> str:
        return _cond(torch, test, a, b)

    block = draft.block_of(branch)
    after = block[block.index(branch) + 1 :] if branch in block else []
    last = after[0] if len(after) == 1 else None
    if not branch.orelse and isinstance(last, ast.Return):
        other = read_arm(draft, [last], "_else", torch) or other
    variants = [*((where, *variant) for variant in _variants(site, condition, (taken, other), torch))]
    for choose, title, test, sides, first in [*variants, (cond, _COND_TITLE, condition, (taken, other), [])]:
        result = select_value(test, sides[0].result, sides[1].result, choose) if other.returns else None
        if result is None:
            break
        if choose is cond and not (
            isinstance(taken.result, str) and isinstance(other.result, str) and _fits_cond(taken.result, other.result)
        ):
            return
        lines = [*first, *sides[0].lines, *sides[1].lines, f"return {render_value(result)}"]
        splices = [draft.statement_replacement(branch, lines), *needed]
        if not branch.orelse and isinstance(last, ast.Return) and draft.has_own_lines(last):
            splices.append(draft.line_deletion(last.lineno, last.end_lineno or last.lineno))
        yield from _proposals(site, title, splices, tests)
    if not other.returns and not branch.orelse and after:
        yield from _merge_early_return(site, branch, condition, taken, torch, needed)


def _merge_early_return(
    site: Site, branch: ast.If, condition: str, taken: Arm, torch: str, needed: Sequence[Splice | None]
) -> Iterator[Proposal]:
    """Continue after the early return, and select the result at each later ``return``."""
    draft, function = site.draft, site.draft.enclosing_function(branch)
    if function is None or branch not in function.body or not isinstance(function.body[-1], ast.Return):
        return
    after = function.body[function.body.index(branch) + 1 :]
    ends = [node for part in after for node in ast.walk(part) if isinstance(node, ast.Return)]
    name, early = fresh_name(draft, "condition"), fresh_name(draft, "early")
    lines = [*taken.lines, f"{name} = {parenthesized(condition)}"]
    result = taken.result
    if isinstance(result, str):
        lines.append(f"{early} = {parenthesized(result)}")
        result = early
    splices: list[Splice | None] = [draft.statement_replacement(branch, lines), *needed]
    for end in ends:
        if draft.enclosing_function(end) is not function:
            continue
        other = read_arm(draft, [end], "_else", torch)
        if other is None:
            return
        chosen = select_value(name, result, other.result, lambda test, a, b: f"{torch}.where({test}, {a}, {b})")
        if chosen is None:
            return
        splices.append(draft.replacement(end, f"return {render_value(chosen)}"))
    yield from _proposals(site, _WHERE_TITLE, splices, [branch.test, *taken.tests], after)


def _keep_flag_as_tensor(site: Site, branch: ast.If) -> Iterator[Proposal]:
    """Keep a flag as a tensor, and let it select between values where the code tests it."""
    draft, only = site.draft, branch.body[0]
    if len(branch.body) != 1 or branch.orelse or not isinstance(only, ast.Assign):
        return
    (target,) = only.targets if len(only.targets) == 1 else (None,)
    if not isinstance(target, ast.Name) or not isinstance(only.value, ast.Constant) or only.value.value is not True:
        return
    torch, needed = site.torch()
    condition = tensor_condition(draft, branch.test, torch)
    scope = draft.enclosing(branch, ast.For) or draft.enclosing_function(branch)
    later = next(
        (
            node
            for node in ast.walk(scope or draft.tree)
            if isinstance(node, ast.If) and node.lineno > branch.lineno and target.id in names_read(node.test)
        ),
        None,
    )
    is_shortcut = tensor_condition(draft, later.test, torch) if later is not None else None
    if condition is None or later is None or is_shortcut is None:
        return
    taken, other = read_arm(draft, later.body, "_if", torch), read_arm(draft, later.orelse, "_else", torch)
    if taken is None or other is None or taken.returns or other.returns:
        return
    lines = _merged(site, later, is_shortcut, (taken, other), f"{torch}.where")
    if lines is None:
        return
    flag = f"{target.id} = {torch}.where({condition}, True, {target.id})"
    splices = [draft.statement_replacement(branch, [flag]), draft.statement_replacement(later, lines), *needed]
    yield from _proposals(site, _WHERE_TITLE, splices, [branch.test, later.test])


def _is_continue(block: Sequence[ast.stmt]) -> bool:
    return len(block) == 1 and isinstance(block[0], ast.Continue)


def _run_skipped_statements(
    site: Site, branch: ast.If, condition: str, torch: str, needed: Sequence[Splice | None]
) -> Iterator[Proposal]:
    """Run the rest of the loop's body in every iteration, and undo its changes if it would have been skipped."""
    draft = site.draft
    loop = draft.enclosing(branch, ast.For)
    if loop is None:
        return
    top = next((part for part in loop.body if _contains(part, branch)), None)
    guarded = isinstance(top, ast.If) and top is not branch and not top.orelse and branch is top.body[-1]
    if top is None or (top is not branch and not guarded):
        return
    rest = loop.body[loop.body.index(top) + 1 :]
    carried = [name for name in sorted(names_bound(ast.Module(rest, []))) if is_bound_before(site.draft, loop, name)]
    nodes = (node for part in rest for node in ast.walk(part))
    jumps = [node for node in nodes if isinstance(node, ast.Continue | ast.Break | ast.Return)]
    if not rest or not carried or jumps:
        return
    skip = fresh_name(draft, "skip")
    kept = {name: fresh_name(draft, f"{name}_before") for name in carried}
    lines = [f"{skip} = {parenthesized(condition)}", *(f"{before} = {name}" for name, before in kept.items())]
    back = [f"{name} = {torch}.where({skip}, {before}, {name})" for name, before in kept.items()]
    if guarded and isinstance(top, ast.If):
        back = [f"if {draft.text_of(top.test)}:", *(f"{step_of(draft, top)}{line}" for line in back)]
    splices = [draft.statement_replacement(branch, lines), draft.insertion_after(rest[-1], back), *needed]
    title = "Always run the skipped statements, and undo their changes with torch.where"
    yield from _proposals(site, title, splices, [branch.test], rest)
