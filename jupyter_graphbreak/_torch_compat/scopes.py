"""Which scope allows a break or makes it an error: those of ``error_on_graph_break``, and ``fullgraph``."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import weakref
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.frames import StackEntry, code_data, site_of
from jupyter_graphbreak._torch_compat.patching import Observe, patched, patched_inherited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType


class Scopes:
    """The ``error_on_graph_break`` scopes that are open: those that Python has entered, then those being traced.

    The setting itself is one global of torch; which scope set it is known only to who watches scopes open and close.
    """

    def __init__(self) -> None:
        self.entered: list[dict[str, Any]] = []
        self._last: list[dict[str, Any]] = []
        #: Where each scope object was made; kept between runs, for functions that an earlier cell decorated.
        self.sites: weakref.WeakKeyDictionary[Any, StackEntry] = weakref.WeakKeyDictionary()

    def made(self, manager: Any, frame: FrameType) -> None:
        """Note where a scope object was made."""
        site = site_of(frame)
        if site is not None:
            self.sites[manager] = site

    def left(self, manager: Any) -> None:
        """Note that Python has left a scope."""
        index = next((i for i in reversed(range(len(self.entered))) if self.entered[i]["of"] == id(manager)), None)
        if index is not None:
            del self.entered[index]

    def open_traced(self, tracer: Any, variable: Any, scope: dict[str, Any]) -> None:
        """Note that the tracer has entered a scope; each attempt to trace a frame has an output of its own."""
        tracer.output.graphbreak_scopes = [*self._traced(tracer), (id(variable), scope)]
        self._last = self.chain(tracer)

    def close_traced(self, tracer: Any, variable: Any) -> None:
        """Note that the tracer has left a scope."""
        tracer.output.graphbreak_scopes = [each for each in self._traced(tracer) if each[0] != id(variable)]
        self._last = self.chain(tracer)

    @staticmethod
    def _traced(tracer: Any) -> list[tuple[int, dict[str, Any]]]:
        found: list[tuple[int, dict[str, Any]]] = getattr(getattr(tracer, "output", None), "graphbreak_scopes", [])
        return found

    def begin_trace(self) -> None:
        """Close what the last frame left open: another is about to be traced."""
        self._last = list(self.entered)

    def chain(self, tracer: Any) -> list[dict[str, Any]]:
        """Return the open scopes, outermost first."""
        return [*self.entered, *(scope for _, scope in self._traced(tracer))]

    def last_chain(self) -> list[dict[str, Any]]:
        """Return the scopes that were open when tracing last said so; for an error that has lost its tracer."""
        return list(self._last)


SCOPES = Scopes()


@contextlib.contextmanager
def watch_scopes(observe: Observe) -> Iterator[None]:
    """Tell which error_on_graph_break scope is in force."""
    manager = importlib.import_module("torch._dynamo.decorators").ErrorOnGraphBreakDecoratorContextManager
    variable = importlib.import_module("torch._dynamo.variables.ctx_manager").ErrorOnGraphBreakVariable
    skip_code = importlib.import_module("torch._dynamo.eval_frame").skip_code
    set_eval_frame = importlib.import_module("torch._dynamo.eval_frame").set_eval_frame
    make, enter, leave = manager.__init__, manager.__enter__, manager.__exit__
    trace_enter, trace_exit = variable.enter, variable.exit

    # These three run amid code that Dynamo compiled. It must compile neither them (skip_code) nor what they call.
    def apart(look: Callable[[], Any]) -> None:
        callback = set_eval_frame(None)
        try:
            look()
        finally:
            set_eval_frame(callback)

    @functools.wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        frame = sys._getframe(1)
        apart(lambda: SCOPES.made(self, frame))

    @functools.wraps(enter)
    def entered(self: Any) -> Any:
        result = enter(self)
        frame = sys._getframe(1)

        def look() -> dict[str, Any]:
            scope = {"of": id(self), "inside": _inside_compiled(frame), **_scope(_original(frame, self), frame)}
            around = list(SCOPES.entered)
            SCOPES.entered.append(scope)
            return {**scope, "around": around}

        apart(lambda: observe("graphbreak_scope", look))
        return result

    @functools.wraps(leave)
    def left(self: Any, *args: Any) -> Any:
        apart(lambda: SCOPES.left(self))
        return leave(self, *args)

    # Traced code may reach them, too, as through contextlib.ExitStack: then Dynamo must find what it would find
    # without us, functions of torch that it does not trace. It tells by the file.
    ours: list[tuple[Any, Any]] = [(made, make), (entered, enter), (left, leave)]
    for function, original in ours:
        function.__code__ = function.__code__.replace(co_filename=original.__code__.co_filename)
        skip_code(function.__code__)
    skip_code(apart.__code__)

    @functools.wraps(trace_enter)
    def traced(self: Any, tx: Any, *args: Any) -> Any:
        result = trace_enter(self, tx, *args)

        def look() -> dict[str, Any]:
            scope = {"inside": True, **_traced_scope(tx, value=bool(self.target_values[0]))}
            around = SCOPES.chain(tx)
            SCOPES.open_traced(tx, self, scope)
            return {**scope, "around": around}

        observe("graphbreak_scope", look)
        return result

    @functools.wraps(trace_exit)
    def untraced(self: Any, tx: Any, *args: Any) -> Any:
        with contextlib.suppress(Exception):
            SCOPES.close_traced(tx, self)
        return trace_exit(self, tx, *args)

    del SCOPES.entered[:]
    with (
        patched(manager, "__init__", made),
        patched(manager, "__enter__", entered),
        patched(manager, "__exit__", left),
        patched_inherited(variable, "enter", traced),
        patched_inherited(variable, "exit", untraced),
    ):
        yield


def _original(frame: FrameType, manager: Any) -> Any:
    """Return the scope object of a decorated function; code that Dynamo made opens a copy of it."""
    if not is_wrapper(frame.f_code):
        return manager
    held = frame.f_locals.get("self")
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


def _scope(manager: Any, frame: FrameType) -> dict[str, Any]:
    wrapped = frame.f_locals.get("func") if is_wrapper(frame.f_code) else None
    return {
        "value": bool(manager.error_on_graph_break),
        "site": SCOPES.sites.get(manager) if wrapped is not None else None,
        "entered": site_of(frame),
        "wrapped": wrapped_code(wrapped),
    }


def _traced_scope(tx: Any, *, value: bool) -> dict[str, Any]:
    code = tx.f_code
    if not is_wrapper(code):
        position = getattr(tx.current_instruction, "positions", None)
        line = getattr(position, "lineno", None) or tx.lineno
        return {
            "value": value,
            "site": None,
            "entered": [code.co_filename, line, code.co_name, code.co_firstlineno],
            "wrapped": None,
        }
    cells: dict[str, Any] = {}
    closure = getattr(tx, "closure", None) or ()
    if not closure:
        with contextlib.suppress(Exception):
            closure = tx.funcvar.get_function().__closure__ or ()
    for name, cell in zip(code.co_freevars, closure, strict=False):
        with contextlib.suppress(ValueError):
            cells[name] = cell.cell_contents
    return {
        "value": value,
        "site": SCOPES.sites.get(cells["self"]) if "self" in cells else None,
        "entered": [code.co_filename, tx.lineno, code.co_name, code.co_firstlineno],
        "wrapped": wrapped_code(cells.get("func")),
    }


def wrapped_code(function: Any) -> dict[str, Any] | None:
    """Return the code of a wrapped function, behind methods and further wrappers."""
    while function is not None:
        inner = getattr(function, "_torchdynamo_orig_callable", None) or getattr(function, "__func__", None)
        if inner is None:
            break
        function = inner
    code = getattr(function, "__code__", None) or getattr(getattr(function, "forward", None), "__code__", None)
    return code_data(code) if code is not None else None


#: Where each torch.compile(fullgraph=True) was written; kept between runs like the sites of scopes.
_FULLGRAPH_SITES: weakref.WeakKeyDictionary[Any, StackEntry] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def watch_fullgraph(observe: Observe) -> Iterator[None]:
    """Tell which torch.compile(fullgraph=True) is in force."""
    del observe
    context = importlib.import_module("torch._dynamo.eval_frame").OptimizeContext
    make = context.__init__

    @functools.wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        with contextlib.suppress(Exception):
            site = site_of(sys._getframe(1))
            if site is not None:
                _FULLGRAPH_SITES[self] = site

    with patched_inherited(context, "__init__", made):
        yield


def fullgraph_site() -> dict[str, Any] | None:
    """Return the place of the torch.compile call around the frame being compiled, and the function that it compiles."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("eval_frame.py") and frame.f_code.co_name == "compile_wrapper":
            names = frame.f_locals
            return {"site": _FULLGRAPH_SITES.get(names.get("self")), "wrapped": wrapped_code(names.get("fn"))}
        frame = frame.f_back
    return None
