"""Each hook passes on all arguments and returns the result of torch's function."""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from jupyter_graphbreak._torch_compat.structured_trace import restrict_trace, trace_logger
from jupyter_graphbreak._torch_compat.threads import claim_thread
from jupyter_graphbreak.recording.recorder import watch

HOOKED_FUNCTIONS = [
    ("torch._dynamo.convert_frame", "log_dynamo_start"),
    ("torch._dynamo.convert_frame", "exception_handler"),
    ("torch._dynamo.convert_frame", "is_generator"),
    ("torch._dynamo.convert_frame", "exceeds_recompile_limit"),
    ("torch._dynamo.convert_frame", "compile_frame"),
    ("torch._dynamo.convert_frame", "should_skip_due_to_torch_dispatch_mode"),
    ("torch._dynamo.convert_frame", "any_torch_dispatch_mode_on_stack"),
    ("torch._dynamo.convert_frame", "is_in_any_mode_without_ignore_compile_internals"),
    ("torch._dynamo.convert_frame", "CatchErrorsWrapper._handle_skip"),
    ("torch._dynamo.resume_execution", "ContinueExecutionCache.lookup"),
    ("torch._dynamo.output_graph", "OutputGraph.call_user_compiler"),
    ("torch._dynamo.output_graph", "OutputGraph.create_node"),
    ("torch._dynamo.symbolic_convert", "InstructionTranslatorBase.log_graph_break"),
    ("torch._dynamo.symbolic_convert", "log_graph_break"),
    ("torch._dynamo.decorators", "ErrorOnGraphBreakDecoratorContextManager.__init__"),
    ("torch._dynamo.decorators", "ErrorOnGraphBreakDecoratorContextManager.__enter__"),
    ("torch._dynamo.decorators", "ErrorOnGraphBreakDecoratorContextManager.__exit__"),
    ("torch._dynamo.variables.ctx_manager", "ErrorOnGraphBreakVariable.enter"),
    ("torch._dynamo.variables.ctx_manager", "ErrorOnGraphBreakVariable.exit"),
    ("torch._dynamo.eval_frame", "OptimizeContext.__init__"),
    ("torch._inductor.cudagraph_utils", "get_metrics_context"),
    ("torch._logging._internal", "trace_structured"),
]
#: Functions that are also replaced, but that test_silent_causes.py tests in real calls, because only PyTorch can create
#: their arguments.
HOOKS_TESTED_IN_REAL_CALLS = [
    ("torch._dynamo.eval_frame", "OptimizeContext.__call__"),
    ("torch._dynamo.eval_frame", "_maybe_set_eval_frame"),
    ("torch._dynamo.eval_frame", "OptimizedModule.__reduce__"),
]
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((1, 2, 3, 4, 5), {}), ((), {"alpha": 1, "beta": 2}), ((), {})]


def owner_and_name(module: str, path: str) -> tuple[Any, str]:
    """Return the module or class that has the last name of a path, and that name."""
    owner = importlib.import_module(module)
    *classes, name = path.split(".")
    for inner in classes:
        owner = getattr(owner, inner)
    return owner, name


def test_the_table_has_all_hooks() -> None:
    """Every function that a watch replaces in this PyTorch is in the table above."""
    functions_before = {module: function_ids(module) for module, _ in HOOKED_FUNCTIONS}
    with claim_thread() as claim, watch(lambda addition: None, lambda seconds: None, claim):  # noqa: ARG005 - the protocol defines the signature
        functions_now = {module: function_ids(module) for module, _ in HOOKED_FUNCTIONS}
    replaced_functions = {
        (module, path)
        for module, ids_before in functions_before.items()
        for path in functions_now[module]
        if ids_before.get(path) != functions_now[module][path]
    }
    assert replaced_functions <= {*HOOKED_FUNCTIONS, *HOOKS_TESTED_IN_REAL_CALLS}
    assert len(replaced_functions) >= 12


def function_ids(module: str) -> dict[str, int]:
    """Return the id of each callable of a module and of each attribute of its classes, by path."""
    module_object = importlib.import_module(module)
    ids = {name: id(value) for name, value in vars(module_object).items() if callable(value)}
    for name, value in vars(module_object).items():
        if inspect.isclass(value) and value.__module__ == module:
            ids |= {f"{name}.{inner}": id(part) for inner, part in vars(value).items()}
    return ids


@pytest.mark.parametrize(("module", "path"), HOOKED_FUNCTIONS)
@pytest.mark.parametrize("is_raising", [False, True])
def test_a_hook_passes_everything_on(module: str, path: str, is_raising: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        owner, name = owner_and_name(module, path)
        torch_function = inspect.getattr_static(owner, name)
    except AttributeError:
        assert torch.__version__ < "2.13" or "skip" in path or "mode" in path or path == "log_graph_break"
        return
    calls: list[Any] = []

    def original(*args: Any, **kwargs: Any) -> Any:
        calls.append((args, kwargs))
        if is_raising:
            raise LookupError("torch's own")
        return ("result",)

    is_class_method = isinstance(torch_function, classmethod)
    monkeypatch.setattr(owner, name, classmethod(original) if is_class_method else original)
    for args, kwargs in CALLS:
        calls.clear()
        with (
            claim_thread() as claim,
            watch(lambda addition: None, lambda seconds: None, claim),  # noqa: ARG005
            restrict_trace(logging.NullHandler(), frozenset(), lambda kind, error: None, claim),  # noqa: ARG005
        ):
            assert result_or_message(getattr(owner, name), args, kwargs) == (
                "torch's own" if is_raising else ("result",)
            )
        assert calls == [((owner, *args) if is_class_method else args, kwargs)]


def result_or_message(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except LookupError as error:
        return error.args[0]


def test_errors_of_entries_that_only_this_package_needs_are_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    internal = importlib.import_module("torch._logging._internal")
    faults: list[str] = []

    def original(*_: Any, **__: Any) -> None:
        raise LookupError("torch's own")

    monkeypatch.setattr(internal, "trace_structured", original)
    handler = logging.NullHandler()
    logger = trace_logger()
    monkeypatch.setattr(logger, "handlers", [handler])
    with (
        claim_thread() as claim,
        restrict_trace(handler, frozenset({"kept"}), lambda kind, error: faults.append(f"{kind}: {error}"), claim),
    ):
        internal.trace_structured("kept")
        internal.trace_structured("other")
    assert faults == ["kept: torch's own"]
