"""Hooks on calls to ``torch.compile``. They record the location of ``fullgraph=True``, and repeated compilation."""

from __future__ import annotations

import importlib
import sys
import weakref
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.compiled import compiled_callable
from jupyter_graphbreak._torch_compat.hooks.observer import observe_calls
from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import site_of, wrapped_code
from jupyter_graphbreak._torch_compat.module_calls import enclosing_compiled_calls
from jupyter_graphbreak.records.additions import CompiledAgain, FullgraphSite
from jupyter_graphbreak.records.attributes import attribute_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from jupyter_graphbreak._torch_compat.hooks.observer import Observer, WatchedCall
    from jupyter_graphbreak.records.records import StackFrame

#: The location of each call to torch.compile. It outlives a run, for functions that an earlier cell compiled.
_SITES: weakref.WeakKeyDictionary[Any, StackFrame] = weakref.WeakKeyDictionary()


def watch_compile_calls(observer: Observer) -> AbstractContextManager[None]:
    """Store the location of each call to torch.compile, for reports of fullgraph=True."""
    context = importlib.import_module("torch._dynamo.eval_frame").OptimizeContext

    def observation(call: WatchedCall) -> None:
        site = site_of(call.caller)
        if site is not None:
            _SITES[call.argument("self")] = site

    return observe_calls(context, "__init__", observer, after=observation)


def fullgraph_site(observer: Observer) -> FullgraphSite | None:
    """Return the call to torch.compile that compiles the current frame, and the compiled function, if there is one."""
    wrapper = next(enclosing_compiled_calls(sys._getframe(1)), None)
    if wrapper is None:
        return None
    context, compiled = observer.local_variable(wrapper, "self"), observer.local_variable(wrapper, "fn")
    return FullgraphSite(_SITES.get(context) if context is not None else None, wrapped_code(compiled))


def watch_repeated_compiling(observer: Observer) -> AbstractContextManager[None]:
    """Record calls to torch.compile with a callable that is already compiled."""
    context = importlib.import_module("torch._dynamo.eval_frame").OptimizeContext
    module_class = importlib.import_module("torch.nn").Module

    def observation(call: WatchedCall) -> CompiledAgain | None:
        target = call.argument("fn")
        site = site_of(call.caller)
        if site is None or not _is_compiled(target):
            return None
        is_module = isinstance(target, module_class)
        inner = compiled_callable(target)
        return CompiledAgain(
            name=type(inner).__name__ if is_module else str(getattr(target, "__name__", "a function")),
            is_module=is_module,
            stays_module=is_module and isinstance(call.result, module_class),
            site=site,
        )

    return observe_calls(context, "__call__", observer, after=observation)


def _is_compiled(value: Any) -> bool:
    if compiled_callable(value) is None or attribute_of(value, "_torchdynamo_disable"):
        return False
    # A bound method, or a function with copied attributes of a compiled one, is not itself compiled.
    wrapper_id = attribute_of(value, "_torchdynamo_wrapper_id")
    return wrapper_id is None or wrapper_id == id(value)
