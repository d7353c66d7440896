"""Observe PyTorch from within its own calls without raising errors, and measure the time that this takes."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from jupyter_graphbreak._torch_compat.patching import patch_attribute, report_to_run
from jupyter_graphbreak._torch_compat.threads import current_run_check
from jupyter_graphbreak.records.additions import Addition, CodeObject, Note, WatchFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from types import FrameType

    from jupyter_graphbreak._torch_compat.threads import Claim
    from jupyter_graphbreak.records.additions import OpenScope
    from jupyter_graphbreak.records.records import StackFrame


class Emit(Protocol):
    """Receives the observations of a hook."""

    def __call__(self, addition: Addition) -> None:
        """Receive one observation."""


class Observer:
    """The state that the hooks of one watch share.

    ``emit`` receives each observation, without holding a lock, on the thread that compiles; ``add_time`` receives the
    seconds that it took. Only the threads of the run with the claim are observed; without a claim, those of the run
    that creates the observer.
    """

    def __init__(self, emit: Emit, add_time: Callable[[float], None], claim: Claim | None = None) -> None:
        #: Returns whether the calling thread is observed.
        self.covers_this_thread: Callable[[], bool] = (
            claim.covers_this_thread if claim is not None else current_run_check()
        )
        self.scopes = ThreadScopes()
        self._emit = emit
        self._add_time = add_time
        self._faults: set[tuple[str, str]] = set()
        self._missing_variables: set[str] = set()
        #: The last observation of each code object that Dynamo reached, by the number of the code object.
        self.code_objects: dict[int, CodeObject] = {}

    def observe(self, hook: str, make_addition: Callable[[], Addition | None]) -> None:
        """Call ``make_addition`` and emit its result, unless that is ``None``; each error of a hook is noted once."""
        start = time.perf_counter()
        try:
            addition = make_addition()
            if isinstance(addition, CodeObject) and addition.id is not None:
                self.code_objects[addition.id] = addition
            if addition is not None:
                self._emit(addition)
        except Exception as error:  # noqa: BLE001 - our errors must not reach the user's program
            self.note_fault(hook, error)
        finally:
            with contextlib.suppress(Exception):
                self._add_time(time.perf_counter() - start)

    def local_variable(self, frame: FrameType | None, name: str) -> Any:
        """Return a local variable of one of torch's functions; ``None``, with a note, if it does not exist."""
        if frame is not None and name in frame.f_locals:
            return frame.f_locals[name]
        function = frame.f_code.co_name if frame is not None else "a function"
        sentence = f"This PyTorch has no variable `{name}` in `{function}`; the report lacks that detail."
        if sentence not in self._missing_variables:
            self._missing_variables.add(sentence)
            self._emit(Note(level="info", message=sentence))
        return None

    def note_fault(self, hook: str, error: Exception) -> None:
        """Note once that a hook failed; never raise."""
        with contextlib.suppress(Exception):
            message = f"{type(error).__name__}: {error}"
            if (hook, message) not in self._faults:
                self._faults.add((hook, message))
                self._emit(WatchFailed(hook=hook, message=message))


class WatchedCall:
    """A call to a watched torch function."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any], caller: FrameType) -> None:
        self.args = args
        self.kwargs = kwargs
        self.caller = caller
        #: The result, after the call has returned; the function that runs after the call may replace it for the caller.
        self.result: Any = None
        #: The exception, after the call has raised.
        self.error: BaseException | None = None
        #: A value that the function that runs before the call keeps for the one that runs after it.
        self.value_before: Any = None
        self._function = function

    def argument(self, name: str) -> Any:
        """Return the argument for a parameter; ``None`` if the call passes none."""
        return inspect.signature(self._function).bind_partial(*self.args, **self.kwargs).arguments.get(name)


def wrap_with_uncompiled_hook(
    original: Callable[..., Any], observer: Observer, observe_call: Callable[[WatchedCall], Addition | None]
) -> Callable[..., Any]:
    """Return a wrapper for a function that may run within compiled code; it calls the function and then observes it."""
    eval_frame = importlib.import_module("torch._dynamo.eval_frame")
    set_eval_frame = eval_frame.set_eval_frame
    set_eval_frame(set_eval_frame(None))  # fails if it is not supported

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        caller = sys._getframe(1)
        while caller.f_code == function.__code__ and caller.f_back is not None:  # skips nested watches
            caller = caller.f_back
        callback = set_eval_frame(None)
        try:
            if observer.covers_this_thread():
                observer.observe(
                    original.__name__, functools.partial(observe_call, WatchedCall(original, args, kwargs, caller))
                )
        except Exception as error:  # noqa: BLE001 - our errors must not reach the user's program
            report_to_run(original.__name__, error)
        finally:
            set_eval_frame(callback)
        return result

    # Traced code may reach this wrapper, for example through contextlib.ExitStack. Because of the original's file name,
    # Dynamo treats the wrapper like the original; it does not trace torch's functions.
    function: Any = wrapper
    function.__code__ = function.__code__.replace(co_filename=original.__code__.co_filename)
    eval_frame.skip_code(function.__code__)
    return wrapper


_HOOKS_FOLDER = str(Path(__file__).parent)


def _caller() -> FrameType:
    """Return the frame that calls a watched function; several nested watches may wrap the function."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HOOKS_FOLDER):
        frame = frame.f_back
    return frame


def wrap_with_hooks(
    function: Callable[..., Any],
    observer: Observer,
    *,
    before: Callable[[WatchedCall], Addition | None] | None = None,
    after: Callable[[WatchedCall], Addition | None] | None = None,
    on_error: Callable[[WatchedCall], Addition | None] | None = None,
) -> Callable[..., Any]:
    """Return a function that calls the given one, and observes each call before it, after it, or on its error."""
    name = getattr(function, "__name__", "a hook")

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = None
        try:
            if observer.covers_this_thread():
                call = WatchedCall(function, args, kwargs, _caller())
            if before is not None and call is not None:
                observer.observe(name, functools.partial(before, call))
        except Exception as error:  # noqa: BLE001 - our errors must not reach the user's program
            report_to_run(name, error)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            if on_error is not None and call is not None:
                try:
                    call.error = error
                    observer.observe(name, functools.partial(on_error, call))
                except Exception as fault:  # noqa: BLE001 - our errors must not reach the user's program
                    report_to_run(name, fault)
            entry = error.__traceback__
            if entry is not None and entry.tb_frame is sys._getframe():
                error.__traceback__ = entry.tb_next  # a bare raise adds no entry, so no trace of this wrapper is left
            raise
        if after is not None and call is not None:
            try:
                call.result = result
                observer.observe(name, functools.partial(after, call))
                result = call.result
            except Exception as error:  # noqa: BLE001 - our errors must not reach the user's program
                report_to_run(name, error)
        return result

    return wrapper


def observe_calls(
    owner: Any,
    name: str,
    observer: Observer,
    *,
    before: Callable[[WatchedCall], Addition | None] | None = None,
    after: Callable[[WatchedCall], Addition | None] | None = None,
    on_error: Callable[[WatchedCall], Addition | None] | None = None,
) -> AbstractContextManager[None]:
    """Observe calls to a function of a module or class while the context is open; see :func:`wrap_with_hooks`."""
    function = getattr(owner, name)
    return patch_attribute(
        owner, name, wrap_with_hooks(function, observer, before=before, after=after, on_error=on_error)
    )


#: The location at which each scope object was created. It outlives a run, for functions that an earlier cell decorated.
CREATION_SITES: weakref.WeakKeyDictionary[Any, StackFrame] = weakref.WeakKeyDictionary()


_OUTPUT_ATTRIBUTE = "graphbreak_scopes"


class ThreadScopes(threading.local):
    """The open scopes of a thread: those that Python has entered, then those that are being traced.

    The setting is a single global torch variable, so only watching the scopes shows which of them set it.
    """

    def __init__(self) -> None:
        self._entered_scopes: list[tuple[int, OpenScope]] = []  # each with the id() of its scope object
        self._last_scopes: list[OpenScope] = []

    @property
    def entered_scopes(self) -> list[OpenScope]:
        """The scopes that Python has entered, outermost first."""
        return [scope for _, scope in self._entered_scopes]

    def inherit_scopes(self, other_watches: Iterable[ThreadScopes]) -> None:
        """Start with the scopes that other observers have seen Python enter on this thread."""
        self._entered_scopes = max((list(other._entered_scopes) for other in other_watches), key=len, default=[])

    def enter(self, scope_object: Any, scope: OpenScope) -> None:
        """Note that Python has entered a scope."""
        self._entered_scopes.append((id(scope_object), scope))

    def leave(self, scope_object: Any) -> None:
        """Note that Python has left a scope."""
        index = next(
            (i for i in reversed(range(len(self._entered_scopes))) if self._entered_scopes[i][0] == id(scope_object)),
            None,
        )
        if index is not None:
            del self._entered_scopes[index]

    def open_traced(self, tracer: Any, variable: Any, scope: OpenScope) -> None:
        """Note that the tracer has entered a scope."""
        self._set_traced(tracer, [*self._traced_scopes(tracer), (id(variable), scope)])
        self._last_scopes = self.open_scopes(tracer)

    def close_traced(self, tracer: Any, variable: Any) -> None:
        """Note that the tracer has left a scope."""
        self._set_traced(tracer, [scope for scope in self._traced_scopes(tracer) if scope[0] != id(variable)])
        self._last_scopes = self.open_scopes(tracer)

    def begin_trace(self) -> None:
        """Forget the traced scopes of the last frame, before the next one is traced."""
        self._last_scopes = self.entered_scopes

    def open_scopes(self, tracer: Any) -> list[OpenScope]:
        """Return the open scopes, outermost first."""
        return [*self.entered_scopes, *(scope for _, scope in self._traced_scopes(tracer))]

    def last_open_scopes(self) -> list[OpenScope]:
        """Return the last known open scopes, for an error that has lost its tracer."""
        return list(self._last_scopes)

    def _traced_scopes(self, tracer: Any) -> list[tuple[int, OpenScope]]:
        """Return the traced scopes, which are stored in the output of each attempt to trace a frame."""
        output = getattr(tracer, "output", None)
        scopes_by_watch: dict[int, list[tuple[int, OpenScope]]] = getattr(output, _OUTPUT_ATTRIBUTE, {})
        return scopes_by_watch.get(id(self), [])

    def _set_traced(self, tracer: Any, scopes: list[tuple[int, OpenScope]]) -> None:
        vars(tracer.output).setdefault(_OUTPUT_ATTRIBUTE, {})[id(self)] = scopes
