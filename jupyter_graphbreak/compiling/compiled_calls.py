"""Compile the outermost calls to modules, and the calls to the user's tensor functions, while a program runs."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import traceback
import types
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.isolation import eager_semantics, isolated_compilation, make_new_globals_readable
from jupyter_graphbreak._torch_compat.module_calls import (
    Interception,
    SubstituteCall,
    TraceableCallables,
    compile_caller,
    intercept_module_calls,
    is_lazy_module,
    is_traced_or_disabled,
    make_interceptor,
    why_not_compiled,
    wrap_frame_conversions,
)
from jupyter_graphbreak._torch_compat.patching import redirect_calls_on_thread, report_to_run
from jupyter_graphbreak._torch_compat.threads import claim_thread
from jupyter_graphbreak.compiling.call_treatments import (
    is_metric,
    may_be_compiled,
    plain_function,
    trains_in_forward,
    treatment_of,
    treatment_with_arguments,
)
from jupyter_graphbreak.compiling.descriptions import CompiledCallable, expression_for
from jupyter_graphbreak.compiling.routes import RoutedFunctions, active_routes
from jupyter_graphbreak.compiling.tracebacks import check_hiding, failed_assertion, hide_compiler, stack_of_graph_line
from jupyter_graphbreak.faults import suppress_faults, with_fallback
from jupyter_graphbreak.recording.exit_stack import GuardedExitStack, defer_interrupts
from jupyter_graphbreak.recording.targets import is_compiled
from jupyter_graphbreak.records.package_paths import OWN_FOLDER, is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from jupyter_graphbreak.compiling.call_treatments import CallTreatment
    from jupyter_graphbreak.compiling.compile_options import CompileOptions


def show_warnings_at_source_lines() -> contextlib.AbstractContextManager[None]:
    """Show warnings from this thread's graphs at the source lines of the operations, while the context is open."""
    return redirect_calls_on_thread(warnings, "_showwarnmsg", _redirect_to_source_line)


def _redirect_to_source_line(message: Any) -> tuple[Callable[..., None], tuple[Any, ...], dict[str, Any]] | None:
    """Return the call that warns at the source line of an operation; ``None`` if the warning is not from a graph."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - finds the graph that warns
    while frame is not None and frame.f_code.co_filename != message.filename:
        frame = frame.f_back
    stack = stack_of_graph_line(frame, message.lineno) if frame is not None else []
    if frame is not None and not stack and frame.f_back is not None:  # the graph calls an operator that warns
        frame = frame.f_back
        stack = stack_of_graph_line(frame, frame.f_lineno)
    outer = frame.f_back if frame is not None and stack else None
    while outer is not None and outer.f_code.co_filename != stack[-1][0]:
        outer = outer.f_back
    if outer is None:
        return None
    filename, line, _ = stack[-1]
    globals_ = outer.f_globals
    registry = globals_.setdefault("__warningregistry__", {})
    name = globals_.get("__name__", "<unknown>")
    return warnings.warn_explicit, (message.message, message.category, filename, line, name, registry), {}


#: The number of routed calls that may be nested: a recursive program needs the stack for its own frames.
_MAX_DEPTH = 25


class CompiledCalls:
    """Compiles the modules and functions that a program calls, and lists them in :attr:`compiled_callables`.

    After an internal error, which ``on_fault`` receives, the program runs uncompiled. ``exit_stack`` undoes all
    changes.
    """

    def __init__(
        self,
        options: CompileOptions,
        on_fault: Callable[[str, Exception], None],
        filename: str | None,
        exit_stack: GuardedExitStack,
    ) -> None:
        self.filename = filename
        self.compiled_callables: list[CompiledCallable] = []
        self._compiled_by_key: dict[tuple[int, ...], CompiledCallable] = {}
        self._options = options
        self._on_fault = on_fault
        self._exit_stack = exit_stack
        self._thread = threading.get_ident()
        self._state = Interception()
        self._depth = 0
        self._treatments: dict[types.CodeType, CallTreatment | None] = {}
        #: The treatments of calls by the code and the types of the arguments.
        self._treatments_by_types: dict[Any, CallTreatment] = {}
        self._cell_function: Callable[[], Any] | None = None
        self._caller: Callable[..., Any] | None = None
        self._traceable_callables = TraceableCallables()
        self._routed_functions = RoutedFunctions()

    @property
    def reasons_not_compiled(self) -> dict[str, str]:
        """The reasons why called modules were not compiled, by class name, in the order of the calls."""
        return self._state.reasons_not_compiled

    def open(self) -> None:
        """Start compiling calls."""
        self._exit_stack.undo_at_end("undoing the changes for compiling", self._traceable_callables.close)
        intercept = functools.partial(intercept_module_calls, self._state, self._plan_module)
        self._exit_stack.enter("compiling modules", intercept, None)
        self._exit_stack.undo_at_end("undoing the changes for compiling", self._end_routing)
        active_routes[self._thread] = (*active_routes.get(self._thread, ()), self.route)

    def _end_routing(self) -> None:
        remaining_routes = tuple(route for route in active_routes.pop(self._thread, ()) if route != self.route)
        if remaining_routes:
            active_routes[self._thread] = remaining_routes

    def route(self, callable_: Any) -> Any:
        """Return the callable to call instead: the same one, a copy with routed calls, or a wrapper that decides later.

        The wrapper decides when it is called, because the decision depends on the arguments.
        """
        if (
            not self._exit_stack.is_complete
            or self._depth > _MAX_DEPTH
            or self._state.is_inside_call
            or not may_be_compiled(callable_)
            or _is_compiled(callable_)
            or is_traced_or_disabled()
        ):
            return callable_
        if isinstance(callable_, torch.nn.Module):
            return make_interceptor(callable_, self._state, functools.partial(self._plan_overridden_call, callable_))
        try:
            treatment = self._treatment_of(callable_)
            if treatment == "look inside":
                return self._with_routed_calls(callable_)
        except RecursionError:  # the program's own recursion is near its limit
            return callable_
        return (
            callable_
            if treatment == "leave"
            else make_interceptor(callable_, self._state, functools.partial(self._plan_routed_call, callable_))
        )

    def _treatment_of(self, callable_: Any) -> CallTreatment | None:
        """Return the treatment of a callable, cached by its code."""
        function = plain_function(callable_)
        if function is None or isinstance(callable_, functools.partial):
            return treatment_of(callable_)
        if function.__code__ not in self._treatments:
            self._treatments[function.__code__] = treatment_of(callable_)
        return self._treatments[function.__code__]

    def _treatment_of_call(self, callable_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallTreatment:
        """Return the treatment of a call, cached by its code and the types of the arguments."""
        function = plain_function(callable_)
        if function is None:
            return treatment_with_arguments(callable_, args, kwargs)
        key = (function.__code__, tuple(map(type, args)), tuple((name, type(kwargs[name])) for name in sorted(kwargs)))
        if key not in self._treatments_by_types:
            self._treatments_by_types[key] = treatment_with_arguments(callable_, args, kwargs)
        return self._treatments_by_types[key]

    def _plan_routed_call(self, callable_: Any, *args: Any, **kwargs: Any) -> SubstituteCall:
        """Return the call that replaces a routed call."""
        while isinstance(callable_, functools.partial):
            callable_, args, kwargs = callable_.func, (*callable_.args, *args), {**callable_.keywords, **kwargs}
        treatment: CallTreatment = "leave"
        with contextlib.suppress(RecursionError):  # the program's own recursion is near its limit
            treatment = self._treatment_of_call(callable_, args, kwargs)
            if treatment == "look inside":
                callable_ = self._with_routed_calls(callable_)
        substitute = self.plan_compiled_call(callable_, callable_, args, kwargs) if treatment == "compile" else None
        self._depth += 1
        return substitute or SubstituteCall(callable_, args, kwargs, hide_compilation, self._leave_call)

    def _with_routed_calls(self, callable_: Any) -> Any:
        """Return a function or method with its own calls routed, or the callable itself if its source is unknown."""
        bound = callable_ if isinstance(callable_, types.MethodType) else None
        if bound is None and not isinstance(callable_, types.FunctionType):
            bound = getattr(callable_, "__call__", None)  # noqa: B004 - reads the method of an instance
        function = bound.__func__ if isinstance(bound, types.MethodType) else callable_
        if not isinstance(function, types.FunctionType):
            return callable_
        routed_function = self._routed_functions.copy_with_routed_calls(function)
        if routed_function is None:
            return callable_
        if isinstance(bound, types.MethodType):
            return types.MethodType(routed_function, bound.__self__)
        return routed_function

    def _plan_overridden_call(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> SubstituteCall | None:
        """Return the compiled call to a module whose class overrides ``__call__``; ``None`` to call it uncompiled."""
        reason = why_not_compiled(module)
        if reason is not None:
            self._state.reasons_not_compiled.setdefault(type(module).__name__, reason)
            return None
        return self._plan_module(module, module, args, kwargs)

    def _plan_module(
        self, module: torch.nn.Module, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> SubstituteCall | None:
        is_listed = self._find_entry(module) is not None
        reason = None if is_listed else _why_run_eagerly(module)
        if reason is not None:
            self._state.reasons_not_compiled.setdefault(type(module).__name__, reason)
            return None
        substitute = self.plan_compiled_call(original, module, args, kwargs)
        if substitute is not None:
            self._depth += 1
        return substitute

    def plan_compiled_call(
        self, callable_: Callable[..., Any], target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> SubstituteCall | None:
        """Return the compiled call to make; ``None`` if it cannot be compiled.

        ``target`` is the object that a user would compile: the module to which the callable is bound, or the callable.
        """
        caller = self._prepare()
        if caller is None:
            return None
        traceable_callable = self._traceable_callables.make_traceable(callable_, target)
        self._list_compiled_callable(target)
        on_failure = functools.partial(hide_compilation, grad_mode=torch.is_grad_enabled())
        self._state.is_inside_call = True
        return SubstituteCall(caller, (traceable_callable, args, kwargs), {}, on_failure, self._leave_call)

    def _leave_call(self) -> None:
        """Update the state at the end of a substituted call."""
        self._depth -= 1
        self._state.is_inside_call = False

    def cell_caller(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Return a callable that calls the function of a cell, compiled if possible."""
        can_read_globals = self._exit_stack.enter("reading new globals", make_new_globals_readable, default=False)
        if not can_read_globals:
            self._on_fault("compiling the cell", RuntimeError("this PyTorch cannot read back a new global"))
            return function
        self._cell_function = function
        return make_interceptor(function, self._state, functools.partial(self._plan_cell, function))

    def _plan_cell(self, function: Callable[[], Any]) -> SubstituteCall | None:
        substitute = self.plan_compiled_call(function, function, (), {})
        if substitute is None:
            return None
        self._depth += 1
        # The magic trims the whole traceback when the error reaches the cell's own frame.
        return substitute._replace(on_failure=functools.partial(_restore_after_failure, torch.is_grad_enabled()))

    def _prepare(self) -> Callable[..., Any] | None:
        """Return the compiled caller, after preparing PyTorch for the first call; ``None`` if preparing fails."""
        if self._caller is None and self._exit_stack.is_complete:
            with defer_interrupts():
                options = self._options
                make_context = functools.partial(
                    eager_semantics, fullgraph=options.fullgraph, eager_random_numbers=options.eager_random_numbers
                )
                semantics = functools.partial(wrap_frame_conversions, lambda _: make_context())
                self._exit_stack.enter("preserving eager semantics", semantics, None)
                self._exit_stack.enter("placing warnings", show_warnings_at_source_lines, None)
                self._exit_stack.enter("isolating the compilation", isolated_compilation, None)
                if self._exit_stack.is_complete:
                    self._exit_stack.is_complete = False  # a second attempt would also fail
                    with suppress_faults("preparing to compile", self._on_fault):
                        check_hiding()
                        self._caller = compile_caller(self._options.arguments())
                        self._exit_stack.is_complete = True
        return self._caller

    def _list_compiled_callable(self, target: Any) -> None:
        """Add a callable to the list of compiled callables, unless it is already listed."""
        if target is self._cell_function or self._find_entry(target) is not None:
            return
        reference: Callable[[], Any]
        try:
            make_reference = weakref.WeakMethod if isinstance(target, types.MethodType) else weakref.ref
            reference = make_reference(target)
        except TypeError:  # the object supports no weak references
            reference = _no_object
        module_type = type(target).__name__ if isinstance(target, torch.nn.Module) else None
        name = module_type or _name_of(target)
        line = _running_top_level_line(self.filename) if self.filename is not None else None
        expression = _expression_in_callers(target) if self.filename is None else None
        entry = CompiledCallable(reference, name, module_type, line, expression)
        self.compiled_callables.append(entry)
        self._compiled_by_key[_identity(target)] = entry

    def _find_entry(self, target: Any) -> CompiledCallable | None:
        """Return the entry of a callable in the list of compiled callables; ``None`` if it has not been compiled."""
        entry = self._compiled_by_key.get(_identity(target))
        return entry if entry is not None and _identity(entry.get_target()) == _identity(target) else None


def _hide_compilation(error: BaseException, *, grad_mode: bool | None = None) -> BaseException | None:
    """Make an error look as if nothing were compiled; return a different error to raise instead, if needed.

    ``grad_mode`` is the mode at the start of the call: a graph that fails within ``no_grad`` leaves gradients off.
    """
    replacement = _restore_after_failure(grad_mode, error) if grad_mode is not None else None
    hide_compiler(replacement or error)
    return replacement


hide_compilation = with_fallback(
    "restoring an error", _hide_compilation, lambda error, **_: hide_compiler(error), report_to_run
)


def _restore_after_failure(grad_mode: bool, error: BaseException) -> BaseException | None:  # noqa: FBT001 - functools.partial binds the parameter
    """Restore the grad mode; return an AssertionError if an ``assert`` of the program failed within a graph."""
    torch.set_grad_enabled(grad_mode)
    return failed_assertion(error)


def _why_run_eagerly(module: torch.nn.Module) -> str | None:
    """Return why calls to a module are not compiled, as the end of a sentence; ``None`` if they are."""
    if is_metric(module):
        return "it is a metric, which only collects values"
    if trains_in_forward(module):
        return "it trains, so the modules that it calls are compiled instead"
    return "its first call creates its parameters" if is_lazy_module(module) else None


def _name_of(function: Any) -> str:
    """Return the name of a function; ``vmap(module)`` is named after the class of the module."""
    name = str(getattr(function, "__qualname__", type(function).__name__))
    wrapped = getattr(function, "__wrapped__", None)
    if isinstance(wrapped, torch.nn.Module):
        return f"{name.partition('.')[0]}({type(wrapped).__name__})"
    return name.rpartition("<locals>.")[2]


def _identity(target: Any) -> tuple[int, ...]:
    """Return the ids that identify a callable, since each access to a method creates a new object."""
    if isinstance(target, types.MethodType):
        return id(target.__self__), id(target.__func__)
    return (id(target),)


def _is_compiled(callable_: Any) -> bool:
    """Return whether a callable is compiled; fast for functions, because this is checked for every call."""
    if type(callable_) is types.FunctionType:
        return "_torchdynamo_orig_callable" in vars(callable_)
    return is_compiled(callable_)


def _no_object() -> None:
    return None


def _expression_in_callers(target: Any) -> str | None:
    """Return the expression for an object in the outermost caller outside libraries that has one; ``None`` if none."""
    callers = []
    for frame, _ in traceback.walk_stack(sys._getframe(1)):  # noqa: SLF001 - the only way to find the caller
        filename = frame.f_code.co_filename
        if not filename.startswith((OWN_FOLDER, "<frozen")) and not is_library(filename):
            callers.append(frame)
    expressions = (expression_for(target, {**caller.f_globals, **caller.f_locals}) for caller in reversed(callers))
    return next((expression for expression in expressions if expression is not None), None)


def _running_top_level_line(filename: str) -> int | None:
    """Return the line of a program's top level that is running; ``None`` if none is running."""
    for frame, line in traceback.walk_stack(sys._getframe(1)):  # noqa: SLF001 - the only way to find the caller
        if frame.f_code.co_filename == filename and frame.f_code.co_name == "<module>":
            return line
    return None


@contextlib.contextmanager
def compile_calls(
    options: CompileOptions, on_fault: Callable[[str, Exception], None], filename: str | None = None
) -> Iterator[CompiledCalls]:
    """Compile calls while the context is open; see :class:`CompiledCalls`."""
    exit_stack = GuardedExitStack(on_fault)
    with claim_thread(on_fault):
        try:
            calls = CompiledCalls(options, on_fault, filename, exit_stack)
            calls.open()
            yield calls
        finally:
            with_fallback("undoing the changes for compiling", exit_stack.contexts.close, lambda: None, on_fault)()
