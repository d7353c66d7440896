"""Replace functions of torch and of Python for a while, for all threads or for one; none of our faults gets out.

What PyTorch, Python or the user's program calls in place of another function is made here: it calls ours within a
``try`` and does without it if it fails.
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
#: What was below replacements that are over while others above them are in place, by the address of the replacement.
#: Contexts on several threads end in any order.
_below: dict[int, tuple[Any, Any]] = {}
_lock = threading.RLock()


def tell_fault(what: str, fault: Exception) -> None:
    """Tell the run that the calling thread works for what failed on our side; this does not fail."""
    if isinstance(fault, RecursionError):  # the program's own recursion is near its end
        return
    faults.report_fault(what, fault, note_fault)


@contextlib.contextmanager
def patched(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Give a module, a class or an instance another attribute while the context is open.

    Contexts may end in any order. What was inherited is inherited again.
    """
    inspect.getattr_static(owner, name)  # what is missing fails here
    below = vars(owner).get(name, _MISSING)
    try:
        with _lock:
            below = vars(owner).get(name, _MISSING)
            setattr(owner, name, replacement)
        yield
    finally:
        with _lock:
            if vars(owner).get(name) is replacement:
                while id(below) in _below:  # replacements that are over
                    below = _below.pop(id(below))[1]
                if below is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, below)
            else:  # the replacement on top calls ours, which calls what is below; it is taken out when that one ends
                _below[id(replacement)] = replacement, below


def in_place(function: Any) -> Any:
    """Return what a replacement replaces if it is over, and the function itself otherwise."""
    while id(function) in _below:
        function = _below[id(function)][1]
    return function


@contextlib.contextmanager
def redirected_here(owner: Any, name: str, plan: Callable[..., Any]) -> Iterator[None]:
    """Decide about each call of a function on the thread that opens the context, while it is open.

    Other threads call the original, and so does this thread if the plan fails.

    Parameters
    ----------
    owner : module or class
    name : str
    plan : callable
        Receives the arguments of a call. It returns the function, the positional and the keyword arguments of the call
        that is made instead, or ``None`` for the original. It does not call any code of the user.
    """
    static = inspect.getattr_static(owner, name)
    original = _function(static)
    thread, is_open = get_ident(), [True]

    @functools.wraps(original)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        chosen = None
        try:
            if is_open and get_ident() == thread:
                chosen = plan(*args, **kwargs)
        except Exception as fault:  # noqa: BLE001 - see the module
            tell_fault(f"following calls of `{name}`", fault)
        function, args, kwargs = chosen or (original, args, kwargs)
        return function(*args, **kwargs)

    with patched(owner, name, _as(static, dispatch)):
        try:
            yield
        finally:
            is_open.clear()


def patched_here(owner: Any, name: str, replacement: Callable[..., Any]) -> AbstractContextManager[None]:
    """Replace a function for the thread that opens the context, while it is open; other threads call the original.

    An error of the replacement is raised; use :func:`followed_here` for one that only looks.
    """
    return redirected_here(owner, name, lambda *args, **kwargs: (replacement, args, kwargs))


def followed_here(
    owner: Any, name: str, after: Callable[..., None], before: Callable[..., Any] = lambda *_, **__: None
) -> AbstractContextManager[None]:
    """Look at each call of a function on the thread that opens the context, while it is open.

    Parameters
    ----------
    owner : module or class
    name : str
    after : callable
        Receives what ``before`` returned, what the call returned, and its arguments.
    before : callable
        Receives the arguments of the call.
    """
    original = _function(inspect.getattr_static(owner, name))

    def plan(*args: Any, **kwargs: Any) -> Any:
        kept = before(*args, **kwargs)

        def follow() -> Any:
            result = original(*args, **kwargs)
            try:
                after(kept, result, *args, **kwargs)
            except Exception as fault:  # noqa: BLE001 - see the module
                tell_fault(f"following calls of `{name}`", fault)
            return result

        return follow, (), {}

    return redirected_here(owner, name, plan)


@contextlib.contextmanager
def prepared_here(owner: Any, name: str, prepare: Callable[..., None]) -> Iterator[None]:
    """Prepare each call of a function of Dynamo's on the thread that opens the context, while it is open.

    If preparing fails, Dynamo gives up the frame that it compiles, and the function is not called: what the call would
    change could not be undone.

    Parameters
    ----------
    owner : module or class
    name : str
    prepare : callable
        Given the arguments of the call; arranges for what it changes to be undone.
    """
    original = inspect.getattr_static(owner, name)
    give_up = importlib.import_module("torch._dynamo.exc").SkipFrame
    thread, is_open = get_ident(), [True]

    @functools.wraps(original)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        try:
            if is_open and get_ident() == thread:
                prepare(*args, **kwargs)
        except Exception as fault:  # noqa: BLE001 - see the module
            tell_fault(f"preparing calls of `{name}`", fault)
            raise give_up from None
        return original(*args, **kwargs)

    with patched(owner, name, dispatch):
        try:
            yield
        finally:
            is_open.clear()


@contextlib.contextmanager
def replaced_result(owner: Any, name: str, result: Callable[..., Any]) -> Iterator[None]:
    """Replace what a function returns, on all threads, while the context is open.

    Parameters
    ----------
    owner : module or class
    name : str
    result : callable
        Given what a call returns and its arguments; returns what is returned instead.
    """
    original, is_open = getattr(owner, name), [True]

    @functools.wraps(original)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        try:
            return result(made, *args, **kwargs) if is_open else made
        except Exception as fault:  # noqa: BLE001 - see the module
            tell_fault(f"following calls of `{name}`", fault)
            return made

    with patched(owner, name, dispatch):
        try:
            yield
        finally:
            is_open.clear()


def _function(static: Any) -> Any:
    return static.__func__ if isinstance(static, classmethod | staticmethod) else static


def _as(static: Any, function: Any) -> Any:
    return type(static)(function) if isinstance(static, classmethod | staticmethod) else function
