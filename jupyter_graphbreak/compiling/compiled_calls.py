"""Compile the outermost calls of modules, and the calls of the reader's tensor functions, while a program runs."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import types
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.isolation import eager_semantics, isolated_compilation, new_globals_readable
from jupyter_graphbreak._torch_compat.module_calls import (
    Interception,
    Standin,
    TraceableCallables,
    awaits_shapes,
    compile_caller,
    intercepted_module_calls,
    interposed,
    is_traced,
    while_converting,
)
from jupyter_graphbreak._torch_compat.patching import tell_fault
from jupyter_graphbreak._torch_compat.threads import claimed
from jupyter_graphbreak.compiling.descriptions import CompiledCallable, path_to
from jupyter_graphbreak.compiling.graph_warnings import warnings_at_own_lines
from jupyter_graphbreak.compiling.roles import is_driver, is_metric, may_be_compiled, plain_function, role_of, role_with
from jupyter_graphbreak.compiling.routes import RoutedFunctions, active
from jupyter_graphbreak.compiling.tracebacks import failed_assertion, hide_compiler, rehearse_hiding
from jupyter_graphbreak.faults import noted, shielded
from jupyter_graphbreak.recording.library import is_library
from jupyter_graphbreak.recording.steady import GuardedExitStack, deferred_interrupts
from jupyter_graphbreak.recording.targets import is_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak.compiling.compile_options import Options
    from jupyter_graphbreak.compiling.roles import Role


#: So many routed calls may be within each other: recursion of the program needs its frames itself.
_DEEPEST = 25


class CompiledCalls:
    """Compiles what a program calls; :attr:`compiled` has what that was.

    Parameters
    ----------
    options : Options
        How to compile.
    on_fault : callable
        Given what failed on our side, and the error; the program then runs uncompiled.
    filename : str or None
        The file name of the program's code, where it is known.
    opened : GuardedExitStack
        Undoes what it sets, when compiling ends.
    """

    def __init__(
        self,
        options: Options,
        on_fault: Callable[[str, Exception], None],
        filename: str | None,
        opened: GuardedExitStack,
    ) -> None:
        self.filename = filename
        self.compiled: list[CompiledCallable] = []
        self._known: dict[tuple[int, ...], CompiledCallable] = {}
        self._options = options
        self._on_fault = on_fault
        self._opened = opened
        self._thread = threading.get_ident()
        self._state = Interception()
        self._depth = 0
        self._roles: dict[types.CodeType, Role | None] = {}
        self._roles_with: dict[Any, Role] = {}
        self._cell: Callable[[], Any] | None = None
        self._caller: Callable[..., Any] | None = None
        self._traceable = TraceableCallables()
        self._routed = RoutedFunctions()

    @property
    def left_out(self) -> dict[str, str]:
        """Why modules that were called were not compiled, by the name of their class, in the order of their calls."""
        return self._state.left_out

    def open(self) -> None:
        """Begin to compile calls."""
        self._opened.undo_last("undoing what compiling needed", self._traceable.close)
        intercept = functools.partial(intercepted_module_calls, self._state, self._plan_module)
        self._opened.enter("compiling modules", intercept, None)
        self._opened.undo_last("undoing what compiling needed", self._end_routing)
        active[self._thread] = (*active.get(self._thread, ()), self.route)

    def _end_routing(self) -> None:
        left = tuple(route for route in active.pop(self._thread, ()) if route != self.route)
        if left:
            active[self._thread] = left

    def route(self, call: Any) -> Any:
        """Return what to call in place of a callable: itself, itself with routed calls, or what decides when called."""
        if (
            self._depth > _DEEPEST
            or self._state.inside
            or not may_be_compiled(call)
            or _is_compiled(call)
            or is_traced()
        ):
            return call
        try:
            role = self._role_of(call)
            if role == "look inside":
                return self._looked_into(call)
        except RecursionError:  # the program's own recursion is near its end
            return call
        return call if role == "leave" else interposed(call, self._state, functools.partial(self._plan, call))

    def _role_of(self, call: Any) -> Role | None:
        """Return what is done with calls of a callable, worked out once for its code."""
        function = plain_function(call)
        if function is None or isinstance(call, functools.partial):
            return role_of(call)
        if function.__code__ not in self._roles:
            self._roles[function.__code__] = role_of(call)
        return self._roles[function.__code__]

    def _role_with(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Role:
        """Return what is done with a call, worked out once for its code and the types of the arguments."""
        function = plain_function(call)
        if function is None:
            return role_with(call, args, kwargs)
        key = (function.__code__, tuple(map(type, args)), tuple((name, type(kwargs[name])) for name in sorted(kwargs)))
        if key not in self._roles_with:
            self._roles_with[key] = role_with(call, args, kwargs)
        return self._roles_with[key]

    def _plan(self, call: Any, *args: Any, **kwargs: Any) -> Standin:
        """Return how a routed call is made."""
        while isinstance(call, functools.partial):
            call, args, kwargs = call.func, (*call.args, *args), {**call.keywords, **kwargs}
        role: Role = "leave"
        with contextlib.suppress(RecursionError):  # the program's own recursion is near its end
            role = self._role_with(call, args, kwargs)
            if role == "look inside":
                call = self._looked_into(call)
        planned = self.plan(call, call, args, kwargs) if role == "compile" else None
        self._depth += 1
        return planned or Standin(call, args, kwargs, as_uncompiled, self._end)

    def _looked_into(self, call: Any) -> Any:
        """Return a function or method whose own calls are routed, where its source is known."""
        bound = call if isinstance(call, types.MethodType) else None
        if bound is None and not isinstance(call, types.FunctionType):
            bound = getattr(call, "__call__", None)  # noqa: B004 - the method of an instance
        function = bound.__func__ if isinstance(bound, types.MethodType) else call
        if not isinstance(function, types.FunctionType):
            return call
        twin = self._routed.routed(function)
        if twin is None:
            return call
        return types.MethodType(twin, bound.__self__) if isinstance(bound, types.MethodType) else twin

    def _plan_module(
        self, module: torch.nn.Module, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Standin | None:
        is_known = self._find(module) is not None
        reason = None if is_known else _why_run_eagerly(module)
        if reason is not None:
            self._state.left_out.setdefault(type(module).__name__, reason)
            return None
        planned = self.plan(original, module, args, kwargs)
        if planned is not None:
            self._depth += 1
        return planned

    def plan(
        self, call: Callable[..., Any], target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Standin | None:
        """Return how something is called compiled; ``None`` if it cannot be compiled.

        Parameters
        ----------
        call : callable
        target : object
            What a person would compile: the module that ``call`` is bound to, or ``call`` itself.
        args, kwargs
            What to call it with.
        """
        caller = self._prepared()
        if caller is None:
            return None
        traceable = self._traceable.traceable(call, target)
        self._note(target)
        failed = functools.partial(as_uncompiled, grad_mode=torch.is_grad_enabled())
        self._state.inside = True
        return Standin(caller, (traceable, args, kwargs), {}, failed, self._end)

    def _end(self) -> None:
        """Note that a planned call has ended."""
        self._depth -= 1
        self._state.inside = False

    def cell_caller(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Return what calls the function that a cell was made into, compiled if that is possible."""
        readable = self._opened.enter("reading new globals", new_globals_readable, default=False)
        if not readable:
            self._on_fault("compiling the cell", RuntimeError("this PyTorch cannot read back a new global"))
            return function
        self._cell = function
        return interposed(function, self._state, functools.partial(self._plan_cell, function))

    def _plan_cell(self, function: Callable[[], Any]) -> Standin | None:
        planned = self.plan(function, function, (), {})
        if planned is None:
            return None
        self._depth += 1
        # The magic trims the whole traceback when the error comes to the cell's own frame.
        return planned._replace(failed=functools.partial(_failed_in_graph, torch.is_grad_enabled()))

    def _prepared(self) -> Callable[..., Any] | None:
        """Return what calls things compiled; the first time, prepare PyTorch. ``None`` if that fails."""
        if self._caller is None and self._opened.complete:
            with deferred_interrupts():
                fullgraph = self._options.fullgraph
                semantics = functools.partial(while_converting, lambda _: eager_semantics(fullgraph=fullgraph))
                self._opened.enter("keeping what compiling changes", semantics, None)
                self._opened.enter("placing warnings", warnings_at_own_lines, None)
                self._opened.enter("isolating the compilation", isolated_compilation, None)
                if self._opened.complete:
                    self._opened.complete = False  # a second attempt would fail as well
                    with noted("preparing to compile", self._on_fault):
                        rehearse_hiding()
                        self._caller = compile_caller(self._options.arguments())
                        self._opened.complete = True
        return self._caller

    def _note(self, target: Any) -> None:
        """Remember what is compiled, once."""
        if target is self._cell or self._find(target) is not None:
            return
        reference: Callable[[], Any]
        try:
            make = weakref.WeakMethod if isinstance(target, types.MethodType) else weakref.ref
            reference = make(target)
        except TypeError:  # what cannot be referred to weakly is not held
            reference = _nothing
        module_type = type(target).__name__ if isinstance(target, torch.nn.Module) else None
        name = module_type or _name_of(target)
        line = _line_of(self.filename) if self.filename is not None else None
        path = _path_now(target) if self.filename is None else None
        made = CompiledCallable(reference, name, module_type, line, path)
        self.compiled.append(made)
        self._known[_key(target)] = made

    def _find(self, target: Any) -> CompiledCallable | None:
        """Return what is known of a callable that was compiled before."""
        known = self._known.get(_key(target))
        return known if known is not None and _is_same(known.target(), target) else None


def _as_uncompiled(error: BaseException, *, grad_mode: bool | None = None) -> BaseException | None:
    """Make an error look as if nothing was compiled; return what is to be raised instead of it, if it is not it.

    Parameters
    ----------
    error : BaseException
    grad_mode : bool or None
        The grad mode when the compiled call began: a graph that fails within ``no_grad`` leaves it off.
    """
    instead = _failed_in_graph(grad_mode, error) if grad_mode is not None else None
    hide_compiler(instead or error)
    return instead


def _hidden(error: BaseException, **_: object) -> None:
    hide_compiler(error)


as_uncompiled = shielded("restoring an error", _as_uncompiled, _hidden, tell_fault)


def _failed_in_graph(grad_mode: bool, error: BaseException) -> BaseException | None:  # noqa: FBT001 - the first is bound
    """Restore the grad mode; return the program's own AssertionError if one failed within a graph."""
    torch.set_grad_enabled(grad_mode)
    return failed_assertion(error)


def _why_run_eagerly(module: torch.nn.Module) -> str | None:
    """Return why a module's call is not compiled, as the end of a sentence; ``None`` if it is."""
    if is_metric(module):
        return "it is a metric, which keeps lists and counts"
    if is_driver(module):
        return "it trains; what it calls is compiled instead"
    return "its first call makes its parameters" if awaits_shapes(module) else None


def _name_of(function: Any) -> str:
    """Return the name that a function has where it is defined; that of a module in ``vmap(module)`` is its class."""
    name = str(getattr(function, "__qualname__", type(function).__name__))
    wrapped = getattr(function, "__wrapped__", None)
    if isinstance(wrapped, torch.nn.Module):
        return f"{name.partition('.')[0]}({type(wrapped).__name__})"
    return name.rpartition("<locals>.")[2]


def _key(target: Any) -> tuple[int, ...]:
    if isinstance(target, types.MethodType):
        return id(target.__self__), id(target.__func__)
    return (id(target),)


def _is_compiled(call: Any) -> bool:
    """Whether a callable is compiled; quick for a function, which is asked of every call."""
    if type(call) is types.FunctionType:
        return "_torchdynamo_orig_callable" in vars(call)
    return is_compiled(call)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, types.MethodType) and isinstance(other, types.MethodType):
        return one.__self__ is other.__self__ and one.__func__ is other.__func__
    return one is other


def _nothing() -> None:
    return None


def _path_now(target: Any) -> str | None:
    """Return the expression by which code that calls something names it: the outermost code that does, no library's."""
    ours = (str(Path(__file__).parents[1]) + os.sep, "<frozen")
    callers: list[types.FrameType] = []
    frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to ask who calls
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(ours) and not is_library(filename):
            callers.append(frame)
        frame = frame.f_back
    paths = (path_to(target, {**caller.f_globals, **caller.f_locals}) for caller in reversed(callers))
    return next((path for path in paths if path is not None), None)


def _line_of(filename: str) -> int | None:
    """Return the line that runs at the top level of a program."""
    frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to ask who calls
    while frame is not None:
        if frame.f_code.co_filename == filename and frame.f_code.co_name == "<module>":
            return frame.f_lineno
        frame = frame.f_back
    return None


@contextlib.contextmanager
def compiled_calls(
    options: Options, on_fault: Callable[[str, Exception], None], filename: str | None = None
) -> Iterator[CompiledCalls]:
    """Compile calls while the context is open; see :class:`CompiledCalls`."""
    opened = GuardedExitStack(on_fault)
    with claimed(on_fault):
        try:
            calls = CompiledCalls(options, on_fault, filename, opened)
            calls.open()
            yield calls
        finally:
            shielded("undoing what compiling needed", opened.contexts.close, lambda: None, on_fault)()
