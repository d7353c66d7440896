"""Find the calls to a function in a cell, and compare PyTorch's front ends on them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_graphbreak.experiments.frontends import ComparisonCopies
    from jupyter_graphbreak.experiments.trial.arguments import Arguments
    from jupyter_graphbreak.experiments.trial.guard import RunEffects
    from jupyter_graphbreak.ipython.cell.texts import CellTexts
    from jupyter_graphbreak.ipython.options import Options
    from jupyter_graphbreak.results import Frontends

#: A function, its positional arguments and its keyword arguments.
EvaluatedCall = tuple[Any, list[Any], dict[str, Any]]

HOW_TO_COMPARE = "write the call on a line: %compile_explain --frontends f(x)"
#: Expressions that run arbitrary code or assign to a name.
_NODES_WITH_EFFECTS = (ast.Call, ast.NamedExpr)
_NO_ARGUMENTS = ast.arguments([], [], None, [], [], None, [])
_ARGS_AND_KWARGS_PARAMETERS = ast.arguments([], [], ast.arg("args"), [], [], ast.arg("kwargs"), [])
_ARGS_AND_KWARGS_TUPLE = ast.Tuple([ast.Name("args", ast.Load()), ast.Name("kwargs", ast.Load())], ast.Load())


class FrontendComparison:
    """Compares the front ends on a function that the notebook calls."""

    def __init__(self, shell: InteractiveShell, cells: CellTexts, options: Options) -> None:
        self._namespace = shell.user_ns
        self._cells = cells
        self._backend = options.backend or "eager"

    def compare_last_call(self, tree: ast.AST, effects: RunEffects | None) -> Frontends:
        """Compare the front ends on the user's function that a cell called last.

        The arguments are evaluated again, without changing the user's objects. A UsageError is raised if the cell calls
        none of the user's functions, if it assigns to the arguments after the call, or if evaluating the arguments
        again would have a side effect.
        """
        calls = calls_to_last_function(tree, self._is_users_function)
        if not calls:
            raise UsageError(
                "--frontends: the cell calls none of your own functions, or changes their arguments afterwards; "
                f"{HOW_TO_COMPARE}"
            )
        evaluated_calls = [self._evaluate_again(call) for call in calls]
        return self._compare(evaluated_calls[0][0], _as_arguments(evaluated_calls), effects)

    def prepare(self, calls: list[EvaluatedCall]) -> Callable[[RunEffects | None], Frontends]:
        """Return a function that compares the front ends on calls, with copies of their current arguments."""
        from jupyter_graphbreak.experiments.frontends import copy_for_comparison

        first, *other_inputs = _as_arguments(calls)
        copies = copy_for_comparison(calls[0][0], first, other_inputs)
        return lambda effects: self._compare(copies.function, copies.inputs, effects, copies)

    def _compare(
        self, function: Any, inputs: list[Arguments], effects: RunEffects | None, copies: ComparisonCopies | None = None
    ) -> Frontends:
        from jupyter_graphbreak.api.single_calls import compare_on_inputs

        first, *other_inputs = inputs
        return compare_on_inputs(
            function,
            first,
            other_inputs,
            backend=self._backend,
            find_cell=self._cells.find,
            copies=copies,
            effects=effects,
        )

    def _evaluate_again(self, call: ast.Call) -> EvaluatedCall:
        """Evaluate the arguments of a call that the cell has already made, without changing the user's objects."""
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        if not any(isinstance(node, _NODES_WITH_EFFECTS) for value in values for node in ast.walk(value)):
            return evaluate_without_calling(call, self._namespace)
        from jupyter_graphbreak.experiments.trial.outcome import sandbox_runs
        from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
        from jupyter_graphbreak.experiments.trial.subject import Subject

        function = eval(ast.unparse(call.func), self._namespace)  # noqa: S307 - evaluates a name, perhaps with attributes
        collecting_call = ast.Call(
            ast.Lambda(_ARGS_AND_KWARGS_PARAMETERS, _ARGS_AND_KWARGS_TUPLE), call.args, call.keywords
        )
        text = ast.unparse(ast.Lambda(_NO_ARGUMENTS, collecting_call))
        try:
            with sandbox_runs():
                subject = Subject(eval(text, self._namespace))  # noqa: S307 - wraps the user's code in a function
                with subject.prevent_effects(), subject.activate():
                    args, kwargs = subject.function()
        except TrialStoppedError as stopped:
            raise UsageError(
                f"--frontends: the arguments of {ast.unparse(call.func)} were not evaluated again, because that "
                f"{stopped.effect.description}; {HOW_TO_COMPARE}"
            ) from None
        return function, list(args), kwargs

    def _is_users_function(self, expression: ast.expr) -> bool:
        from jupyter_graphbreak._torch_compat.compiled import compiled_callable
        from jupyter_graphbreak.recording.targets import is_user_written

        nodes = [node for node in ast.walk(expression) if isinstance(node, ast.expr)]
        if not all(isinstance(node, ast.Name | ast.Attribute) for node in nodes):
            return False
        try:
            value = eval(ast.unparse(expression), self._namespace)  # noqa: S307 - evaluates a name, perhaps with attributes
        except Exception:  # noqa: BLE001 - the name was deleted, or a property fails
            return False
        return is_user_written(compiled_callable(value) or value)


def _as_arguments(calls: list[EvaluatedCall]) -> list[Arguments]:
    from jupyter_graphbreak.experiments.trial.arguments import Arguments

    return [Arguments(*args, **kwargs) for _, args, kwargs in calls]


def evaluate_without_calling(call: ast.Call, namespace: dict[str, Any]) -> EvaluatedCall:
    """Evaluate the function and the arguments of a call, in the notebook's namespace, without making the call."""
    collecting_call = ast.Call(ast.Name("_collect", ast.Load()), [call.func, *call.args], call.keywords)
    code = compile(ast.fix_missing_locations(ast.Expression(collecting_call)), "<compile_explain>", "eval")

    def _collect(function: Any, *args: Any, **kwargs: Any) -> EvaluatedCall:
        return function, list(args), kwargs

    return eval(code, namespace, {"_collect": _collect})  # type: ignore[no-any-return]  # noqa: S307 - evaluates the user's code


def calls_to_last_function(tree: ast.AST, is_function: Callable[[ast.expr], bool]) -> list[ast.Call]:
    """Return the calls, in order, to the function that the top level of a cell calls last.

    Only calls in top-level assignments and expressions are included, not those in blocks such as loops. Calls are
    omitted if the cell assigns to their arguments in the same statement or later, because the arguments then have
    different values after the cell. Calls to functions other than those of interest are searched for nested calls.
    """
    calls: list[ast.Call] = []
    assigned_names: set[str] = set()
    for statement in reversed(getattr(tree, "body", [])):
        assigned_names |= _names_in(statement, ast.Store)
        value = statement.value if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign) else None
        new_calls = [] if value is None else list(_outermost_calls(value, is_function))
        calls = [call for call in new_calls if not assigned_names & _names_in(call, ast.Load)] + calls
    if not calls:
        return []
    last_function = ast.dump(calls[-1].func)
    return [call for call in calls if ast.dump(call.func) == last_function]


def _names_in(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


def _outermost_calls(node: ast.AST, is_function: Callable[[ast.expr], bool]) -> Iterator[ast.Call]:
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Call) and is_function(node.func):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _outermost_calls(child, is_function)
