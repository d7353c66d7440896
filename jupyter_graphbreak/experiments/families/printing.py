"""What is printed, logged or warned, and checks that raise: after the call, by a setting, or not while compiling."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families import deferral
from jupyter_graphbreak.experiments.families.proposal import Proposal
from jupyter_graphbreak.experiments.families.site import dotted, site_of
from jupyter_graphbreak.experiments.families.wrapping import entry_function
from jupyter_graphbreak.knowledge.lookup import known_cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.experiments.families.drafting import FunctionNode
    from jupyter_graphbreak.experiments.families.proposal import Problem
    from jupyter_graphbreak.experiments.families.site import Site

FAMILY = "output"
_CONFIG = "torch._dynamo.config."
_LEVELS = {"debug", "info", "warning", "warn", "error", "critical", "exception", "log", "warning_once", "info_once"}
_SAYS = {
    "print", "warnings.warn", "warn", "sys.stdout.write", "sys.stderr.write", "pprint", "pprint.pprint", "tqdm.write",
}  # fmt: skip


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield ways to have what is said, or checked, outside of the graph."""
    site = site_of(problem)
    if site is None:
        return
    statement = _deferrable(problem, site)
    if statement is None:
        return
    function = entry_function(problem, site)
    if function is not None:
        yield from _after_the_call(problem, site, function, statement)
    said = _said(statement)
    if said is None:
        return
    if function is not None and said in {"print", "warnings.warn"}:
        setting = f"builtins.{said}" if said == "print" else said
        title = f"Let PyTorch move {said} to the end of the graph"
        yield Proposal(FAMILY, title, settings={f"{_CONFIG}reorderable_logging_functions": [setting]})
    method = said.rpartition(".")[2]
    if method in _LEVELS and not said.startswith("warn"):
        known = any("ignore_logging_functions" in hint for hint in problem.break_.hints)
        name = "ignore_logging_functions" if known else "ignore_logger_methods"
        where = "logging" if said.startswith("logging.") else "logging.Logger"
        yield Proposal(
            FAMILY, f"Leave {method} out of what is traced", settings={_CONFIG + name: [f"{where}.{method}"]}
        )
    torch, needed = site.torch()
    splices = list(needed)
    for each in _all_of(problem, site, site.function, statement) if site.function is not None else [statement]:
        if _said(each) is not None:
            text = site.draft.text_of(each)
            lines = [f"if not {torch}.compiler.is_compiling():", f"    {text}"]
            splices.append(site.draft.replacing_statement(each, lines))
    yield from site.edit(FAMILY, "Say it only where it is not compiled", splices)


def _said(statement: ast.stmt) -> str | None:
    """Return the name of the function by which a statement says something."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    name = dotted(statement.value.func)
    method = name.rpartition(".")[2]
    of = ast.unparse(statement.value.func.value) if isinstance(statement.value.func, ast.Attribute) else ""
    is_log = method in _LEVELS and "log" in of.lower()
    return name if is_log or name in _SAYS else None


def _deferrable(problem: Problem, site: Site) -> ast.stmt | None:
    """Return the statement at a break that only says, notes or checks something."""
    statement = site.statement
    if isinstance(statement, ast.Expr | ast.Raise):
        around = next(site.draft.ancestors(statement))
        if isinstance(around, ast.If) and around in deferral.tests_that_broke(problem, site) and _only_says(around):
            return around
        if isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Call):
            return None
        rewrites = known_cause(problem.break_.gb_id, problem.break_.gb_type).rewrites
        marked = isinstance(statement, ast.Expr) and "delete the call" in rewrites
        return statement if not marked else None
    if isinstance(statement, ast.Assert) or (isinstance(statement, ast.If) and _only_says(statement)):
        return statement if statement in deferral.tests_that_broke(problem, site) else None
    return None


def _only_says(branch: ast.If) -> bool:
    return not branch.orelse and all(isinstance(each, ast.Raise) or _said(each) is not None for each in branch.body)


def _after_the_call(problem: Problem, site: Site, function: FunctionNode, statement: ast.stmt) -> Iterator[Proposal]:
    draft = site.draft
    statements = _all_of(problem, site, function, statement)
    inner = [
        each for top in statements for each in ast.walk(top) if isinstance(each, ast.Expr | ast.Raise | ast.Assert)
    ]
    title = "Do it after the call"
    if all(_said(each) is not None for each in inner):
        title = "Say it after the call"
    elif all(isinstance(each, ast.Raise | ast.Assert) for each in inner):
        title = "Check it after the call"
    for cloned in (False, True):
        parts = [deferral.deferred(draft, function, each, cloned=cloned) for each in statements]
        found = [part for part in parts if part is not None]
        texts = deferral.done_after(site, function, found) if len(found) == len(parts) else None
        if texts is None:
            return
        tests = [each.test for each in statements if isinstance(each, ast.If | ast.Assert)]
        conditions = tuple(map(site.condition, tests))
        yield Proposal(FAMILY, title, texts, conditions=conditions, compiles_itself=True)
        title = f"{title}, with copies of what changes in place"


def _all_of(problem: Problem, site: Site, function: FunctionNode, statement: ast.stmt) -> list[ast.stmt]:
    """Return all statements of a function that say something: moved one by one, they would change their order."""
    broken = deferral.tests_that_broke(problem, site)
    found: list[ast.stmt] = []
    nodes = [each for each in ast.walk(function) if isinstance(each, ast.stmt)]
    own = [each for each in nodes if site.draft.function_of(each) is function]
    for each in sorted(own, key=lambda node: (node.lineno, node.col_offset)):
        inside = any(each in ast.walk(outer) for outer in found)
        says = _said(each) is not None or (each in broken and (isinstance(each, ast.Assert) or _checks(each)))
        if not inside and (each is statement or says):
            found.append(each)
    return found


def _checks(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and _only_says(statement)
