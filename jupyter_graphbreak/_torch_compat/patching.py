"""Temporarily replace PyTorch and Python functions, for all threads or one, without leaking internal errors.

Unless a docstring says otherwise, a replacement calls our code within ``try``, and continues without it if it fails.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import threading
from threading import get_ident
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak import faults
from jupyter_graphbreak._torch_compat.threads import note_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

_MISSING = object()
#: The function below each replacement whose context ended while a later replacement was still on top of it, by the
#: address of the replacement. Contexts on several threads end in any order.
_replaced_functions: dict[int, tuple[Any, Any]] = {}
_lock = threading.RLock()


def report_to_run(activity: str, fault: Exception) -> None:
    """Report an internal error to the run that the calling thread works for; never raise."""
    if isinstance(fault, RecursionError):  # the program's own recursion is near its limit
        return
    faults.report_fault(activity, fault, note_fault)


@contextlib.contextmanager
def patch_attribute(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Replace an attribute of a module, class or instance while the context is open.

    Contexts may end in any order. An inherited attribute is inherited again afterwards.
    """
    inspect.getattr_static(owner, name)  # fails if the attribute is missing
    previous = vars(owner).get(name, _MISSING)
    try:
        with _lock:
            previous = vars(owner).get(name, _MISSING)
            setattr(owner, name, replacement)
        yield
    finally:
        with _lock:
            if vars(owner).get(name) is replacement:
                while id(previous) in _replaced_functions:  # replacements whose context has ended
                    previous = _replaced_functions.pop(id(previous))[1]
                if previous is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, previous)
            else:  # a later replacement calls this one, which is removed when the later one ends
                _replaced_functions[id(replacement)] = replacement, previous


def active_function(function: Any) -> Any:
    """Return the given function, or the one that it replaced if the context of the replacement has ended."""
    while id(function) in _replaced_functions:
        function = _replaced_functions[id(function)][1]
    return function


@contextlib.contextmanager
def _patch_while_open(owner: Any, name: str, replacement: Any, is_open: list[bool]) -> Iterator[None]:
    """Replace an attribute while the context is open; then empty ``is_open``, since code may keep the replacement."""
    with patch_attribute(owner, name, replacement):
        try:
            yield
        finally:
            is_open.clear()


def redirect_calls_on_thread(owner: Any, name: str, plan: Callable[..., Any]) -> AbstractContextManager[None]:
    """Redirect calls to a function on the thread that opens the context, while it is open.

    Other threads call the original, and so does this thread if the plan fails. ``plan`` receives the arguments of a
    call. It returns the function, the positional and the keyword arguments to call instead, or ``None`` for the
    original, and must not call user code.
    """
    static_attribute = inspect.getattr_static(owner, name)
    original = _underlying_function(static_attribute)
    thread, is_open = get_ident(), [True]

    @functools.wraps(original)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        redirection = None
        try:
            if is_open and get_ident() == thread:
                redirection = plan(*args, **kwargs)
        except Exception as fault:  # noqa: BLE001 - our errors must not reach the user's program
            report_to_run(f"following calls to `{name}`", fault)
        function, args, kwargs = redirection or (original, args, kwargs)
        return function(*args, **kwargs)

    return _patch_while_open(owner, name, _with_same_binding(static_attribute, dispatch), is_open)


def patch_on_thread(owner: Any, name: str, replacement: Callable[..., Any]) -> AbstractContextManager[None]:
    """Replace a function for the thread that opens the context, while it is open; other threads call the original.

    An error in the replacement is raised; use :func:`observe_calls_on_thread` to only observe calls.
    """
    return redirect_calls_on_thread(owner, name, lambda *args, **kwargs: (replacement, args, kwargs))


def observe_calls_on_thread(owner: Any, name: str, on_result: Callable[..., None]) -> AbstractContextManager[None]:
    """While the context is open, pass the result and arguments of each call on this thread to ``on_result``."""
    original = _underlying_function(inspect.getattr_static(owner, name))

    def plan(*args: Any, **kwargs: Any) -> Any:
        def follow() -> Any:
            result = original(*args, **kwargs)
            try:
                on_result(result, *args, **kwargs)
            except Exception as fault:  # noqa: BLE001 - our errors must not reach the user's program
                report_to_run(f"following calls to `{name}`", fault)
            return result

        return follow, (), {}

    return redirect_calls_on_thread(owner, name, plan)


def prepare_calls_on_thread(owner: Any, name: str, prepare: Callable[..., None]) -> AbstractContextManager[None]:
    """Call ``prepare`` before each call to one of Dynamo's functions on this thread, while the context is open.

    ``prepare`` receives the arguments. If it fails, Dynamo gives up on the frame that it compiles, and the function is
    not called.
    """
    original = inspect.getattr_static(owner, name)
    give_up = importlib.import_module("torch._dynamo.exc").SkipFrame
    thread, is_open = get_ident(), [True]

    @functools.wraps(original)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        try:
            if is_open and get_ident() == thread:
                prepare(*args, **kwargs)
        except Exception as fault:  # noqa: BLE001 - our errors must not reach the user's program
            report_to_run(f"preparing calls to `{name}`", fault)
            raise give_up from None
        return original(*args, **kwargs)

    return _patch_while_open(owner, name, dispatch, is_open)


def replace_result(owner: Any, name: str, transform: Callable[..., Any]) -> AbstractContextManager[None]:
    """Replace the result of a function, on all threads, while the context is open.

    ``transform`` receives the result of a call and its arguments; it returns the new result.
    """
    original, is_open = getattr(owner, name), [True]

    @functools.wraps(original)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        try:
            return transform(result, *args, **kwargs) if is_open else result
        except Exception as fault:  # noqa: BLE001 - our errors must not reach the user's program
            report_to_run(f"following calls to `{name}`", fault)
            return result

    return _patch_while_open(owner, name, dispatch, is_open)


def _underlying_function(static_attribute: Any) -> Any:
    return static_attribute.__func__ if isinstance(static_attribute, classmethod | staticmethod) else static_attribute


def _with_same_binding(static_attribute: Any, function: Any) -> Any:
    return type(static_attribute)(function) if isinstance(static_attribute, classmethod | staticmethod) else function
