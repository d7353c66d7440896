"""Hooks on ``error_on_graph_break``: which scopes open and close, in Python and while Dynamo traces."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import weakref
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.hooks.observer import watched
from jupyter_graphbreak._torch_compat.hooks.stacks_and_codes import site_of, wrapped_code
from jupyter_graphbreak._torch_compat.patching import patched, patched_inherited
from jupyter_graphbreak.recording.additions import OpenScope, ScopeOpened
from jupyter_graphbreak.recording.records import StackEntry, is_resume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    from jupyter_graphbreak._torch_compat.hooks.observer import Call, Observer
    from jupyter_graphbreak.recording.additions import Addition


class Scopes:
    """The ``error_on_graph_break`` scopes that are open: those that Python has entered, then those being traced.

    The setting itself is one global of torch; which scope set it is known only to who watches scopes open and close.
    """

    def __init__(self) -> None:
        self._entered: list[tuple[int, OpenScope]] = []  # each with the id() of its scope object
        self._last: list[OpenScope] = []
        #: Where each scope object was made; kept between runs, for functions that an earlier cell decorated.
        self.sites: weakref.WeakKeyDictionary[Any, StackEntry] = weakref.WeakKeyDictionary()

    @property
    def entered(self) -> list[OpenScope]:
        """The scopes that Python has entered, outermost first."""
        return [scope for _, scope in self._entered]

    def forget(self) -> None:
        """Forget the scopes of an earlier watch."""
        self._entered.clear()
        self._last.clear()

    def made(self, manager: Any, frame: FrameType) -> None:
        """Note where a scope object was made."""
        site = site_of(frame)
        if site is not None:
            self.sites[manager] = site

    def enter(self, manager: Any, scope: OpenScope) -> None:
        """Note that Python has entered a scope."""
        self._entered.append((id(manager), scope))

    def leave(self, manager: Any) -> None:
        """Note that Python has left a scope."""
        index = next((i for i in reversed(range(len(self._entered))) if self._entered[i][0] == id(manager)), None)
        if index is not None:
            del self._entered[index]

    def open_traced(self, tracer: Any, variable: Any, scope: OpenScope) -> None:
        """Note that the tracer has entered a scope; each attempt to trace a frame has an output of its own."""
        tracer.output.graphbreak_scopes = [*self._traced(tracer), (id(variable), scope)]
        self._last = self.chain(tracer)

    def close_traced(self, tracer: Any, variable: Any) -> None:
        """Note that the tracer has left a scope."""
        tracer.output.graphbreak_scopes = [traced for traced in self._traced(tracer) if traced[0] != id(variable)]
        self._last = self.chain(tracer)

    @staticmethod
    def _traced(tracer: Any) -> list[tuple[int, OpenScope]]:
        traced: list[tuple[int, OpenScope]] = getattr(getattr(tracer, "output", None), "graphbreak_scopes", [])
        return traced

    def begin_trace(self) -> None:
        """Close what the last frame left open: another is about to be traced."""
        self._last = self.entered

    def chain(self, tracer: Any) -> list[OpenScope]:
        """Return the open scopes, outermost first."""
        return [*self.entered, *(scope for _, scope in self._traced(tracer))]

    def last_chain(self) -> list[OpenScope]:
        """Return the scopes that were open when tracing last said so; for an error that has lost its tracer."""
        return list(self._last)


SCOPES = Scopes()


@contextlib.contextmanager
def watch_scopes(observer: Observer) -> Iterator[None]:
    """Record which error_on_graph_break scope is in force."""
    SCOPES.forget()
    with _watch_entered(observer), _watch_traced(observer):
        yield


@contextlib.contextmanager
def _watch_entered(observer: Observer) -> Iterator[None]:
    """Watch Python make, enter and leave scopes."""
    manager = importlib.import_module("torch._dynamo.decorators").ErrorOnGraphBreakDecoratorContextManager
    eval_frame = importlib.import_module("torch._dynamo.eval_frame")
    skip_code, set_eval_frame = eval_frame.skip_code, eval_frame.set_eval_frame
    set_eval_frame(set_eval_frame(None))  # what fails of this fails here

    def watched_apart(original: Callable[..., Any], look: Callable[[Any, FrameType], Addition | None]) -> Any:
        # It runs amid code that Dynamo compiled. Dynamo must compile neither it (skip_code) nor what it calls.
        @functools.wraps(original)
        def watching(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            frame = sys._getframe(1)
            callback = set_eval_frame(None)
            try:
                observer.observe("error_on_graph_break", functools.partial(look, args[0], frame))
            except Exception as error:  # noqa: BLE001 - the user's program must not notice us
                observer.note_fault("error_on_graph_break", error)
            finally:
                set_eval_frame(callback)
            return result

        # Traced code may reach it, too, as through contextlib.ExitStack: then Dynamo must find what it would find
        # without us, a function of torch that it does not trace. It goes by the file.
        function: Any = watching
        function.__code__ = function.__code__.replace(co_filename=original.__code__.co_filename)
        skip_code(function.__code__)
        return function

    def entered(scope_object: Any, frame: FrameType) -> ScopeOpened:
        scope = _entered_scope(observer, _original(observer, frame, scope_object), frame)
        around = SCOPES.entered
        SCOPES.enter(scope_object, scope)
        return _opened(scope, around)

    def left(scope_object: Any, _: FrameType) -> None:
        SCOPES.leave(scope_object)

    with (
        patched(manager, "__init__", watched_apart(manager.__init__, SCOPES.made)),
        patched(manager, "__enter__", watched_apart(manager.__enter__, entered)),
        patched(manager, "__exit__", watched_apart(manager.__exit__, left)),
    ):
        yield


@contextlib.contextmanager
def _watch_traced(observer: Observer) -> Iterator[None]:
    """Watch Dynamo trace into scopes and out of them."""
    variable = importlib.import_module("torch._dynamo.variables.ctx_manager").ErrorOnGraphBreakVariable

    def opened(call: Call) -> ScopeOpened:
        scope_variable, tracer = call.argument("self"), call.argument("tx")
        scope = _traced_scope(tracer, value=bool(scope_variable.target_values[0]))
        around = SCOPES.chain(tracer)
        SCOPES.open_traced(tracer, scope_variable, scope)
        return _opened(scope, around)

    def closed(call: Call) -> None:
        SCOPES.close_traced(call.argument("tx"), call.argument("self"))

    with (
        patched_inherited(variable, "enter", watched(variable.enter, observer, after=opened)),
        patched_inherited(variable, "exit", watched(variable.exit, observer, before=closed)),
    ):
        yield


def _opened(scope: OpenScope, around: list[OpenScope]) -> ScopeOpened:
    return ScopeOpened(**{name: getattr(scope, name) for name in scope.__struct_fields__}, around=around)


def _original(observer: Observer, frame: FrameType, manager: Any) -> Any:
    """Return the scope object of a decorated function; code that Dynamo made opens a copy of it."""
    if not is_wrapper(frame.f_code):
        return manager
    held = observer.local(frame, "self")
    return held if isinstance(held, type(manager)) else manager


def _inside_compiled(frame: FrameType | None) -> bool:
    """Whether a frame was reached through a compiled function."""
    while frame is not None:
        if frame.f_code.co_name == "compile_wrapper" and frame.f_code.co_filename.endswith("eval_frame.py"):
            return True
        frame = frame.f_back
    return False


def is_wrapper(code: CodeType) -> bool:
    """Whether this is the code that torch wraps around a function decorated with a scope."""
    return code.co_filename.endswith("external_utils.py") and {"self", "func"} <= set(code.co_freevars)


def _entered_scope(observer: Observer, manager: Any, frame: FrameType) -> OpenScope:
    wrapped = observer.local(frame, "func") if is_wrapper(frame.f_code) else None
    entered = site_of(frame)
    # Dynamo's own code has no columns: the line at which it opens the scope again is not the scope's.
    generated = entered is not None and (is_resume(entered.function) or entered.column is None)
    return OpenScope(
        value=bool(manager.error_on_graph_break),
        site=SCOPES.sites.get(manager) if wrapped is not None else None,
        entered=entered,
        wrapped=wrapped_code(wrapped),
        inside=_inside_compiled(frame),
        generated=wrapped is None and generated,
    )


def _traced_scope(tx: Any, *, value: bool) -> OpenScope:
    code = tx.f_code
    position = getattr(tx.current_instruction, "positions", None)
    line = getattr(position, "lineno", None) or tx.lineno
    if not is_wrapper(code):
        return OpenScope(
            value=value,
            entered=StackEntry(code.co_filename, line, code.co_name, code.co_firstlineno),
            inside=True,
            generated=is_resume(code.co_name),
        )
    cells: dict[str, Any] = {}
    closure = getattr(tx, "closure", None) or ()
    if not closure:
        with contextlib.suppress(Exception):
            closure = tx.funcvar.get_function().__closure__ or ()
    for name, cell in zip(code.co_freevars, closure, strict=False):
        with contextlib.suppress(ValueError):
            cells[name] = cell.cell_contents
    return OpenScope(
        value=value,
        site=SCOPES.sites.get(cells["self"]) if "self" in cells else None,
        entered=StackEntry(code.co_filename, tx.lineno, code.co_name, code.co_firstlineno),
        wrapped=wrapped_code(cells.get("func")),
        inside=True,
    )
