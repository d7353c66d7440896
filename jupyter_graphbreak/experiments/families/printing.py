"""Keep output and checks that raise out of graphs: move them, use a setting, or skip them when compiling."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families import crossing, deferral
from jupyter_graphbreak.experiments.families.proposal import Proposal
from jupyter_graphbreak.experiments.families.site import called_name, dotted_name, site_of
from jupyter_graphbreak.experiments.families.wrapping import entry_function
from jupyter_graphbreak.knowledge.entries import CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode
    from jupyter_graphbreak.experiments.families.proposal import Condition, Problem
    from jupyter_graphbreak.experiments.families.site import Site

FAMILY = "output"
#: A title names the calls that move only if there are at most this many.
_MAX_NAMED_CALLS = 2
_LOGGING_METHODS = {
    "debug", "info", "warning", "warn", "error", "critical", "exception", "log", "warning_once", "info_once",
}  # fmt: skip
_OUTPUT_FUNCTIONS = {
    "print", "warnings.warn", "warn", "sys.stdout.write", "sys.stderr.write", "pprint", "pprint.pprint", "tqdm.write",
}  # fmt: skip

#: An assumption about messages that compiled code omits: a trial notices lost messages only if they are written.
_LEVEL_ASSUMPTION = "its messages are lost as soon as the logger's level is lowered"


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield changes that move output and checks out of the graph, or that leave output out of compiled code."""
    site = site_of(problem)
    if site is None:
        return
    statement = _deferrable_statement(problem, site)
    if statement is None:
        return
    function = entry_function(problem, site)
    if function is not None:
        yield from _propose_after_call(problem, site, function, statement)
    function_name = _output_function(statement)
    if function_name is None:
        return
    if function is not None and function_name in {"print", "warnings.warn"}:
        setting = "builtins.print" if function_name == "print" else function_name
        title = f"Let PyTorch move {function_name} to the end of the graph"
        crossed_conditions = _conditions_changing_output(
            site, function, _all_output_statements(problem, site, function, statement)
        )
        settings = {f"{CONFIG}reorderable_logging_functions": [setting]}
        yield Proposal(FAMILY, title, settings=settings, conditions=crossed_conditions)
    method = function_name.rpartition(".")[2]
    assumptions: tuple[str, ...] = ()
    if method in _LOGGING_METHODS and not function_name.startswith("warn"):
        assumptions = (_LEVEL_ASSUMPTION,)
        has_new_setting = any("ignore_logging_functions" in hint for hint in problem.break_.hints)
        name = "ignore_logging_functions" if has_new_setting else "ignore_logger_methods"
        ignored_function = f"logging.{'' if function_name.startswith('logging.') else 'Logger.'}{method}"
        title = f"Leave `{ignored_function}` out of compiled code"
        yield Proposal(FAMILY, title, settings={CONFIG + name: [ignored_function]}, assumptions=assumptions)
    statements = [statement]
    if site.function is not None:
        statements = _all_output_statements(problem, site, site.function, statement)
    test = f"if not {site.torch_name}.compiler.is_compiling():"
    splices = [
        site.source.statement_replacement(node, [test, f"    {site.source.text_of(node)}"])
        for node in filter(_is_output, statements)
    ]
    is_print = method in {"print", "pprint", "write"}
    verb = "Print" if is_print else "Warn" if function_name in {"warnings.warn", "warn"} else "Log"
    yield from site.propose_edit(FAMILY, f"{verb} only when not compiling", splices, assumptions=assumptions)


def _output_function(statement: ast.stmt) -> str | None:
    """Return the name of the output function that a statement calls; ``None`` if it calls none."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    name = dotted_name(statement.value.func)
    method = name.rpartition(".")[2]
    receiver = ast.unparse(statement.value.func.value) if isinstance(statement.value.func, ast.Attribute) else ""
    is_log = method in _LOGGING_METHODS and "log" in receiver.lower()
    return name if is_log or name in _OUTPUT_FUNCTIONS else None


def _is_output(statement: ast.stmt) -> bool:
    return _output_function(statement) is not None


def _deferrable_statement(problem: Problem, site: Site) -> ast.stmt | None:
    """Return the statement at a break if it may run after the call; otherwise ``None``.

    It is a call whose result is not used, a ``raise``, an ``assert``, or an ``if`` around output or a ``raise``.
    """
    statement = site.statement
    if isinstance(statement, ast.Expr | ast.Raise):
        outer = next(site.source.ancestors(statement))
        if (
            isinstance(outer, ast.stmt)
            and outer in deferral.statements_with_breaking_tests(problem, site)
            and _only_outputs_or_raises(outer)
        ):
            return outer
        if isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Call):
            return None
        is_marker = isinstance(statement, ast.Expr) and "delete the call" in problem.cause.rewrites
        return statement if not is_marker else None
    if isinstance(statement, ast.Assert) or _only_outputs_or_raises(statement):
        return statement if statement in deferral.statements_with_breaking_tests(problem, site) else None
    return None


def _only_outputs_or_raises(statement: ast.stmt) -> bool:
    """Return whether a statement is an ``if`` without ``else`` that only writes output or raises."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    return all(isinstance(node, ast.Raise) or _is_output(node) for node in statement.body)


def _propose_after_call(
    problem: Problem, site: Site, function: FunctionNode, statement: ast.stmt
) -> Iterator[Proposal]:
    source = site.source
    statements = _all_output_statements(problem, site, function, statement)
    title = _title_for(statements)
    for clone_changed_values in (False, True):
        parts = [
            deferral.defer(source, function, node, clone_changed_values=clone_changed_values) for node in statements
        ]
        deferred_parts = [part for part in parts if part is not None]
        texts = deferral.move_after_call(site, function, deferred_parts) if len(deferred_parts) == len(parts) else None
        if texts is None:
            return
        tests = [node.test for node in statements if isinstance(node, ast.If | ast.Assert)]
        crossed_conditions = crossing.conditions_after(
            site, function, statements, _values_of(deferred_parts), _is_output
        )
        conditions = (*map(site.condition, tests), *crossed_conditions)
        yield Proposal(FAMILY, title, texts, conditions=conditions, compiles_inner_function=True)
        title = f"{title}, with copies of values that change in place"


def _values_of(statements: Sequence[deferral.DeferredStatement]) -> list[str]:
    return [value for statement in statements for value in statement.values]


def _conditions_changing_output(
    site: Site, function: FunctionNode, statements: Sequence[ast.stmt]
) -> tuple[Condition, ...]:
    """Return the conditions whose branches may change a tensor before PyTorch prints it at the end of the graph."""
    parts = [deferral.defer(site.source, function, node) for node in statements]
    values = _values_of([part for part in parts if part is not None])
    if None not in parts and not crossing.reads_shared_state(site, function, statements, values):
        return ()
    return crossing.conditions_after(site, function, statements, values, _is_output)


def _title_for(statements: list[ast.stmt]) -> str:
    """Return a title for moved calls: "Print after the call", "Run `opt.step()`, write messages and check ..."."""
    output_functions: set[str] = set()
    called_functions: dict[str, None] = {}
    has_checks = False
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Raise | ast.Assert):
            has_checks = True
        elif isinstance(node, ast.Expr) and (name := _output_function(node)) is not None:
            output_functions.add(name)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name = dotted_name(node.value.func)
            called_functions[f"`{called_name(node.value) if '()' in name else name}()`"] = None
    parts = (
        [f"run {' and '.join(called_functions) if len(called_functions) <= _MAX_NAMED_CALLS else 'calls'}"]
        if called_functions
        else []
    )
    if output_functions:
        parts.append(
            "print" if output_functions == {"print"} and not called_functions and not has_checks else "write messages"
        )
    if has_checks:
        parts.append("check")
    text = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]])) if parts else "run it"
    return f"{text[:1].upper()}{text[1:]} after the call"


def _all_output_statements(problem: Problem, site: Site, function: FunctionNode, statement: ast.stmt) -> list[ast.stmt]:
    """Return a statement and all output and breaking checks of its function, in their order."""
    breaking_tests = deferral.statements_with_breaking_tests(problem, site)
    statements: list[ast.stmt] = []
    nodes = [part for part in ast.walk(function) if isinstance(part, ast.stmt)]
    nodes_of_function = [part for part in nodes if site.source.enclosing_function(part) is function]
    for part in sorted(nodes_of_function, key=lambda node: (node.lineno, node.col_offset)):
        is_inside = any(part in ast.walk(outer) for outer in statements)
        is_check = part in breaking_tests and (isinstance(part, ast.Assert) or _only_outputs_or_raises(part))
        if not is_inside and (part is statement or _is_output(part) or is_check):
            statements.append(part)
    return statements
