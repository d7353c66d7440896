"""Hooks on the opening and closing of ``error_on_graph_break`` scopes, in Python and while Dynamo traces."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.hooks.observer import (
    CREATION_SITES,
    ThreadScopes,
    observe_calls,
    wrap_with_uncompiled_hook,
)
from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import site_of, wrapped_code
from jupyter_graphbreak._torch_compat.module_calls import enclosing_compiled_calls
from jupyter_graphbreak._torch_compat.patching import patch_attribute
from jupyter_graphbreak.records.additions import OpenScope, ScopeOpened
from jupyter_graphbreak.records.records import StackFrame, is_resume_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

    from jupyter_graphbreak._torch_compat.hooks.observer import Observer, WatchedCall


#: The scopes of each open watch.
_watched_scopes: list[ThreadScopes] = []


@contextlib.contextmanager
def watch_scopes(observer: Observer) -> Iterator[None]:
    """Record the error_on_graph_break scopes that Python or Dynamo enters, each with the scopes around it."""
    scopes = observer.scopes
    scopes.inherit_scopes(_watched_scopes)
    _watched_scopes.append(scopes)
    try:
        with _watch_entered_scopes(observer), _watch_traced_scopes(observer):
            yield
    finally:
        _watched_scopes[:] = [other for other in _watched_scopes if other is not scopes]


@contextlib.contextmanager
def _watch_entered_scopes(observer: Observer) -> Iterator[None]:
    """Watch Python create, enter and leave scopes."""
    scope_class = importlib.import_module("torch._dynamo.decorators").ErrorOnGraphBreakDecoratorContextManager
    scopes = observer.scopes

    def note_creation(call: WatchedCall) -> None:
        site = site_of(call.caller)
        if site is not None:
            CREATION_SITES[call.args[0]] = site

    def note_entry(call: WatchedCall) -> ScopeOpened:
        scope = _entered_scope(observer, _original_scope(observer, call.caller, call.args[0]), call.caller)
        outer_scopes = scopes.entered_scopes
        scopes.enter(call.args[0], scope)
        return _scope_opened(scope, outer_scopes)

    def note_exit(call: WatchedCall) -> None:
        scopes.leave(call.args[0])

    with (
        patch_attribute(
            scope_class, "__init__", wrap_with_uncompiled_hook(scope_class.__init__, observer, note_creation)
        ),
        patch_attribute(
            scope_class, "__enter__", wrap_with_uncompiled_hook(scope_class.__enter__, observer, note_entry)
        ),
        patch_attribute(scope_class, "__exit__", wrap_with_uncompiled_hook(scope_class.__exit__, observer, note_exit)),
    ):
        yield


@contextlib.contextmanager
def _watch_traced_scopes(observer: Observer) -> Iterator[None]:
    """Watch Dynamo trace into and out of scopes."""
    variable = importlib.import_module("torch._dynamo.variables.ctx_manager").ErrorOnGraphBreakVariable

    scopes = observer.scopes

    def note_traced_entry(call: WatchedCall) -> ScopeOpened:
        scope_variable, tracer = call.argument("self"), call.argument("tx")
        scope = _traced_scope(tracer, value=bool(scope_variable.target_values[0]))
        outer_scopes = scopes.open_scopes(tracer)
        scopes.open_traced(tracer, scope_variable, scope)
        return _scope_opened(scope, outer_scopes)

    def note_traced_exit(call: WatchedCall) -> None:
        scopes.close_traced(call.argument("tx"), call.argument("self"))

    with (
        observe_calls(variable, "enter", observer, after=note_traced_entry),
        observe_calls(variable, "exit", observer, before=note_traced_exit),
    ):
        yield


def _scope_opened(scope: OpenScope, outer_scopes: list[OpenScope]) -> ScopeOpened:
    return ScopeOpened(**{name: getattr(scope, name) for name in scope.__struct_fields__}, around=outer_scopes)


def _original_scope(observer: Observer, frame: FrameType, scope: Any) -> Any:
    """Return the original of a scope object, because Dynamo's code for a decorated function opens a copy."""
    if not is_scope_wrapper(frame.f_code):
        return scope
    original = observer.local_variable(frame, "self")
    return original if isinstance(original, type(scope)) else scope


def is_scope_wrapper(code: CodeType) -> bool:
    """Return whether a code object belongs to the wrapper that torch puts around a function decorated with a scope."""
    return code.co_filename.endswith("external_utils.py") and {"self", "func"} <= set(code.co_freevars)


def _entered_scope(observer: Observer, scope: Any, frame: FrameType) -> OpenScope:
    wrapped = observer.local_variable(frame, "func") if is_scope_wrapper(frame.f_code) else None
    entered_site = site_of(frame)
    # Dynamo's own code has no columns: the line on which it opens the scope again is not the line of the scope.
    is_generated = entered_site is not None and (is_resume_name(entered_site.function) or entered_site.column is None)
    return OpenScope(
        value=bool(scope.error_on_graph_break),
        site=CREATION_SITES.get(scope) if wrapped is not None else None,
        entered=entered_site,
        wrapped=wrapped_code(wrapped),
        inside=any(True for _ in enclosing_compiled_calls(frame)),
        generated=wrapped is None and is_generated,
    )


def _traced_scope(tracer: Any, *, value: bool) -> OpenScope:
    code = tracer.f_code
    position = getattr(tracer.current_instruction, "positions", None)
    line = getattr(position, "lineno", None) or tracer.lineno
    if not is_scope_wrapper(code):
        return OpenScope(
            value=value,
            entered=StackFrame(code.co_filename, line, code.co_name, code.co_firstlineno),
            inside=True,
            generated=is_resume_name(code.co_name),
        )
    cells: dict[str, Any] = {}
    closure = getattr(tracer, "closure", None) or ()
    if not closure:
        with contextlib.suppress(Exception):
            closure = tracer.funcvar.get_function().__closure__ or ()
    for name, cell in zip(code.co_freevars, closure, strict=False):
        with contextlib.suppress(ValueError):
            cells[name] = cell.cell_contents
    return OpenScope(
        value=value,
        site=CREATION_SITES.get(cells["self"]) if "self" in cells else None,
        entered=StackFrame(code.co_filename, tracer.lineno, code.co_name, code.co_firstlineno),
        wrapped=wrapped_code(cells.get("func")),
        inside=True,
    )
