"""The only module that touches PyTorch's internals.

Every hook has a feature test: where a release of PyTorch lacks what it needs, the hook is left out and
:func:`watch` says so in a sentence, for the report's diagnostics. Written against torch 2.9.1, 2.13.0 and 2.15.0.
Nothing is patched at import; what :func:`watch` patches it restores.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
import json
import logging
import re
import sys
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType

MINIMUM_TORCH = (2, 9)
_OWN = __file__.rpartition("/")[0].replace("\\", "/") + "/"
_CONVERT_FRAME = "torch._dynamo.convert_frame"
_SYMBOLIC_CONVERT = "torch._dynamo.symbolic_convert"

#: A stack entry as our records hold it: file, line, function, the function's first line, and, where Python tells,
#: the column range in UTF-8 bytes and the last line of the expression.
StackEntry = list[Any]


class TorchUnavailable(RuntimeError):  # noqa: N818 - reads as the sentence it reports
    """There is no torch, or one that is too old; the message says how to get one."""


class Emit(Protocol):
    """Receives what the hooks see: the kind of the record, its data, the envelope's context."""

    def __call__(self, kind: str, data: dict[str, Any]) -> None:
        """Take one observation."""


def require_torch() -> str:
    """Import torch and return its version.

    Raises
    ------
    TorchUnavailable
        If torch cannot be imported or is older than 2.9.
    """
    need = ".".join(map(str, MINIMUM_TORCH))
    try:
        import torch
    except ImportError as error:
        raise TorchUnavailable(f"PyTorch is not installed here ({error}): pip install 'torch>={need}'") from None
    version = str(torch.__version__)
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or tuple(map(int, found.groups())) < MINIMUM_TORCH:
        raise TorchUnavailable(f"PyTorch {version} is too old, {need} is needed: pip install -U 'torch>={need}'")
    return version


@contextlib.contextmanager
def watch(emit: Emit, spent: Callable[[float], None]) -> Iterator[list[str]]:
    """Send what Dynamo does to ``emit`` while the context is open.

    Parameters
    ----------
    emit : Emit
        Called under no lock, from the thread that compiles. An exception in it never reaches PyTorch.
    spent : callable
        Told the seconds that each observation took.

    Yields
    ------
    list of str
        A sentence for each hook that this release of PyTorch does not support.
    """
    missing: list[str] = []
    with contextlib.ExitStack() as stack:
        hooks = (
            _watch_scopes, _watch_fullgraph, _watch_starts, _watch_breaks, _watch_failures, _watch_resumes,
            _watch_graphs, _watch_refusals,
        )  # fmt: skip
        for hook in hooks:
            try:
                stack.enter_context(hook(_guarded(emit, spent)))
            except (AttributeError, ImportError) as error:
                missing.append(f"{(hook.__doc__ or '').splitlines()[0]} Not available in this torch: {error}.")
        yield missing


def _guarded(emit: Emit, spent: Callable[[float], None]) -> Callable[[str, Callable[[], dict[str, Any] | None]], None]:
    """Wrap ``emit`` so that observing neither fails nor goes unmeasured."""

    def observe(kind: str, look: Callable[[], dict[str, Any] | None]) -> None:
        start = time.perf_counter()
        try:
            data = look()
            if data is not None:
                emit(kind, data)
        except Exception as error:  # noqa: BLE001 - the user's program must not notice us
            with contextlib.suppress(Exception):
                emit("graphbreak_fault", {"hook": kind, "message": f"{type(error).__name__}: {error}"})
        finally:
            spent(time.perf_counter() - start)

    return observe


_Observe = "Callable[[str, Callable[[], dict[str, Any] | None]], None]"


@contextlib.contextmanager
def _patched(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    original = inspect.getattr_static(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        # Somebody who patched after us keeps their patch; it calls ours, which calls the original.
        if inspect.getattr_static(owner, name) is replacement:
            setattr(owner, name, original)


@contextlib.contextmanager
def _watch_starts(observe: Any) -> Iterator[None]:
    """The caller of a frame and the identity of a resume function."""
    module = importlib.import_module(_CONVERT_FRAME)
    original = module.log_dynamo_start

    @functools.wraps(original)
    def log_dynamo_start(code: CodeType, skip: int = 0) -> Any:
        _SCOPES.begin_trace()
        one_graph = sys._getframe(1).f_locals.get("one_graph")  # of _compile

        def look() -> dict[str, Any]:
            fullgraph_site = _fullgraph_site() if one_graph else None
            return {**_code(code), "stack": _stack_above(), "fullgraph_site": fullgraph_site}

        observe("graphbreak_start", look)
        # One more frame to leave out of the stack that the original takes.
        return original(code, skip + 1)

    with _patched(module, "log_dynamo_start", log_dynamo_start):
        yield


@contextlib.contextmanager
def _watch_breaks(observe: Any) -> Iterator[None]:
    """The exact expression of a break and the settings in force at it."""
    module = importlib.import_module(_SYMBOLIC_CONVERT)
    if not hasattr(module.InstructionTranslatorBase, "log_graph_break"):  # torch < 2.11: a function without a tracer
        original_function = module.log_graph_break

        @functools.wraps(original_function)
        def log_function(code_options: Any, *args: Any, **kwargs: Any) -> Any:
            user_stack = (
                inspect.signature(original_function).bind(code_options, *args, **kwargs).arguments.get("user_stack")
            )
            caller = sys._getframe(1)
            tracer = next((f.f_locals["self"] for f in _outward(caller, 3) if "self" in f.f_locals), None)

            def look() -> dict[str, Any]:
                stack = _entries(user_stack if user_stack is not None else _tracing_stack())
                return {
                    **_tracer_state(tracer),
                    "stack": _with_positions(stack, tracer),
                    "above": _stack_above(),
                    "scopes": _SCOPES.chain(tracer),
                }

            observe("graphbreak_break", look)
            return original_function(code_options, *args, **kwargs)

        with _patched(module, "log_graph_break", log_function):
            yield
        return

    original = module.InstructionTranslatorBase.log_graph_break

    @functools.wraps(original)
    def log_graph_break(self: Any, code_options: Any, reason: str, exc: Any) -> Any:
        def look() -> dict[str, Any] | None:
            if getattr(exc, "logged", False):  # the original returns at once, too
                return None
            stack = getattr(exc, "real_stack", None)
            return {
                **_exception(exc),
                **_tracer_state(self),
                "stack": _with_positions(_entries(stack if stack is not None else _tracing_stack()), self),
                "above": _stack_above(),
                "scopes": _SCOPES.chain(self),
            }

        observe("graphbreak_break", look)
        return original(self, code_options, reason, exc)

    with _patched(module.InstructionTranslatorBase, "log_graph_break", log_graph_break):
        yield


@contextlib.contextmanager
def _watch_failures(observe: Any) -> Iterator[None]:
    """The place of an error that no break event tells of, and whether it went up to the user."""
    module = importlib.import_module(_CONVERT_FRAME)
    original = module.exception_handler

    @functools.wraps(original)
    def exception_handler(e: Exception, *args: Any, **kwargs: Any) -> Any:
        one_graph = sys._getframe(1).f_locals.get("one_graph")  # of _compile

        def look() -> dict[str, Any]:
            exc = importlib.import_module("torch._dynamo.exc")
            tracer = getattr(e, "_torch_dynamo_tracer_output", None)
            setting = getattr(tracer, "error_on_graph_break", None)
            if setting is None:
                setting = error_on_graph_break()
            hard = tuple(
                getattr(exc, name)
                for name in ("UncapturedHigherOrderOpError", "ResumePrologueTracingError")
                if hasattr(exc, name)
            )
            soft = isinstance(e, (exc.Unsupported, exc.UserError))
            suppressed = bool(importlib.import_module("torch._dynamo.config").suppress_errors)
            raised = bool(one_graph) or bool(setting) or isinstance(e, hard) or not (soft or suppressed)
            return {
                **_exception(e),
                "message": str(e),
                "stack": _entries(getattr(e, "real_stack", None)),
                "above": _stack_above(),
                "error_on_graph_break": setting,
                "fullgraph": one_graph,
                "fullgraph_site": _fullgraph_site() if one_graph else None,
                "scopes": _SCOPES.last_chain(),
                "raised": raised,
            }

        observe("graphbreak_failure", look)
        return original(e, *args, **kwargs)

    with _patched(module, "exception_handler", exception_handler):
        yield


@contextlib.contextmanager
def _watch_resumes(observe: Any) -> Iterator[None]:
    """The break that made a resume function, and the line at which it goes on."""
    cache = importlib.import_module("torch._dynamo.resume_execution").ContinueExecutionCache
    original = inspect.getattr_static(cache, "lookup")
    parameters = list(inspect.signature(cache.generate).parameters)
    at = parameters.index("resume_offset") if "resume_offset" in parameters else None

    def lookup(cls: Any, code: CodeType, *args: Any) -> Any:
        made = original.__func__(cls, code, *args)

        def look() -> dict[str, Any]:
            resume = made if hasattr(made, "co_name") else made[0]  # some releases pair it with its name
            offset = args[at - 1] if at is not None else None
            return {**_code(resume), "of": _code(code), "line": _line_at(code, offset)}

        observe("graphbreak_resume", look)
        return made

    with _patched(cache, "lookup", classmethod(functools.wraps(original.__func__)(lookup))):
        yield


@contextlib.contextmanager
def _watch_graphs(observe: Any) -> Iterator[None]:
    """The call stack of each operation of a graph."""
    graph_type = importlib.import_module("torch._dynamo.output_graph").OutputGraph
    original = graph_type.call_user_compiler

    @functools.wraps(original)
    def call_user_compiler(self: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
        def look() -> dict[str, Any]:
            stacks: dict[str, int] = {}
            ops: dict[str, int] = {}
            for node in gm.graph.nodes:
                trace = node.stack_trace
                if trace and node.op.startswith("call"):
                    ops[node.name] = stacks.setdefault(trace, len(stacks))
            reason = getattr(getattr(gm, "compile_subgraph_reason", None), "reason", None)
            return {"stacks": list(stacks), "ops": ops, "reason": reason}

        observe("graphbreak_graph", look)
        return original(self, gm, *args, **kwargs)

    with _patched(graph_type, "call_user_compiler", call_user_compiler):
        yield


@contextlib.contextmanager
def _watch_refusals(observe: Any) -> Iterator[None]:
    """Frames that Dynamo did not begin to compile, and why."""
    module = importlib.import_module(_CONVERT_FRAME)
    with contextlib.ExitStack() as stack:
        is_generator = module.is_generator

        @functools.wraps(is_generator)
        def saw_generator(code: CodeType) -> Any:
            refused = is_generator(code)
            if refused:
                convert = sys._getframe(1).f_locals.get("self")

                def look() -> dict[str, Any]:
                    one_graph = getattr(convert, "_one_graph", None)
                    setting = getattr(getattr(convert, "_box", None), "error_on_graph_break", None)
                    return {
                        **_code(code),
                        "reason": "generator",
                        "registry": _registry_entry("Attempt to trace generator"),
                        "above": _stack_above(),
                        "fullgraph": one_graph,
                        "fullgraph_site": _fullgraph_site() if one_graph else None,
                        "error_on_graph_break": setting,
                        "scopes": _SCOPES.chain(None),
                        "raised": bool(one_graph) or bool(setting),
                    }

                observe("graphbreak_refusal", look)
            return refused

        stack.enter_context(_patched(module, "is_generator", saw_generator))

        exceeds = module.exceeds_recompile_limit

        @functools.wraps(exceeds)
        def saw_limit(*args: Any, **kwargs: Any) -> Any:
            exceeded, limit = exceeds(*args, **kwargs)
            if exceeded:
                caller = sys._getframe(1).f_locals

                def look() -> dict[str, Any]:
                    config = importlib.import_module("torch._dynamo.config")
                    code = caller.get("code")
                    cells = dict(zip(getattr(code, "co_freevars", ()), caller.get("closure") or (), strict=False))
                    wrapped = cells["func"].cell_contents if code is not None and _is_wrapper(code) else None
                    return {
                        **(_code(code) if code is not None else {}),
                        "wrapped": _wrapped(wrapped),
                        "reason": "recompile limit",
                        "registry": _registry_entry("Dynamo recompile limit exceeded"),
                        "limit": limit,
                        "limit_value": getattr(config, limit, None),
                        "above": _stack_above(),
                        "fullgraph": caller.get("one_graph"),
                        "fullgraph_site": _fullgraph_site() if caller.get("one_graph") else None,
                        "scopes": _SCOPES.chain(None),
                        "raised": bool(caller.get("one_graph")) or bool(config.fail_on_recompile_limit_hit),
                    }

                observe("graphbreak_refusal", look)
            return exceeded, limit

        stack.enter_context(_patched(module, "exceeds_recompile_limit", saw_limit))

        wrapper = module.CatchErrorsWrapper
        if hasattr(wrapper, "_handle_skip"):  # torch >= 2.13
            handle_skip = wrapper._handle_skip

            @functools.wraps(handle_skip)
            def saw_skip(self: Any, result: Any, frame: Any) -> Any:
                def look() -> dict[str, Any] | None:
                    reason = result.skip_reason
                    if reason is None or result.guarded_code is not None:
                        return None
                    return {**_code(frame.f_code), "reason": reason, "above": _stack_above()}

                observe("graphbreak_skip", look)
                return handle_skip(self, result, frame)

            stack.enter_context(_patched(wrapper, "_handle_skip", saw_skip))
        yield
        if not hasattr(wrapper, "_handle_skip"):
            observe(
                "graphbreak_blind", lambda: {"what": "frames skipped because a TorchDispatchMode was on (torch < 2.13)"}
            )


class _Scopes:
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
        site = _site(frame)
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
        """A frame is about to be traced anew: what the last one left open is closed."""
        self._last = list(self.entered)

    def chain(self, tracer: Any) -> list[dict[str, Any]]:
        """Return the open scopes, outermost first."""
        return [*self.entered, *(scope for _, scope in self._traced(tracer))]

    def last_chain(self) -> list[dict[str, Any]]:
        """Return the scopes that were open when tracing last said so; for an error that has lost its tracer."""
        return list(self._last)


_SCOPES = _Scopes()


@contextlib.contextmanager
def _watch_scopes(observe: Any) -> Iterator[None]:
    """Which error_on_graph_break scope is in force."""
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
        apart(lambda: _SCOPES.made(self, frame))

    @functools.wraps(enter)
    def entered(self: Any) -> Any:
        result = enter(self)
        frame = sys._getframe(1)

        def look() -> dict[str, Any]:
            scope = {"of": id(self), "inside": _inside_compiled(frame), **_scope(_original(frame, self), frame)}
            around = list(_SCOPES.entered)
            _SCOPES.entered.append(scope)
            return {**scope, "around": around}

        apart(lambda: observe("graphbreak_scope", look))
        return result

    @functools.wraps(leave)
    def left(self: Any, *args: Any) -> Any:
        apart(lambda: _SCOPES.left(self))
        return leave(self, *args)

    # Traced code may reach them, too, as through contextlib.ExitStack: then Dynamo must find what it would find
    # without us, functions of torch that it does not trace. It tells by the file.
    for function, original in ((made, make), (entered, enter), (left, leave)):
        function.__code__ = function.__code__.replace(co_filename=original.__code__.co_filename)
        skip_code(function.__code__)
    skip_code(apart.__code__)

    @functools.wraps(trace_enter)
    def traced(self: Any, tx: Any, *args: Any) -> Any:
        result = trace_enter(self, tx, *args)

        def look() -> dict[str, Any]:
            scope = {"inside": True, **_traced_scope(tx, bool(self.target_values[0]))}
            around = _SCOPES.chain(tx)
            _SCOPES.open_traced(tx, self, scope)
            return {**scope, "around": around}

        observe("graphbreak_scope", look)
        return result

    @functools.wraps(trace_exit)
    def untraced(self: Any, tx: Any, *args: Any) -> Any:
        with contextlib.suppress(Exception):
            _SCOPES.close_traced(tx, self)
        return trace_exit(self, tx, *args)

    del _SCOPES.entered[:]
    with (
        _patched(manager, "__init__", made),
        _patched(manager, "__enter__", entered),
        _patched(manager, "__exit__", left),
        _patched_inherited(variable, "enter", traced),
        _patched_inherited(variable, "exit", untraced),
    ):
        yield


@contextlib.contextmanager
def _patched_inherited(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Give a class a method that it inherits so far."""
    if name in vars(owner):
        with _patched(owner, name, replacement):
            yield
        return
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if vars(owner).get(name) is replacement:
            delattr(owner, name)


def _original(frame: FrameType, manager: Any) -> Any:
    """Return the scope object of a decorated function; code that Dynamo made opens a copy of it."""
    if not _is_wrapper(frame.f_code):
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


def _is_wrapper(code: CodeType) -> bool:
    """Whether this is the code that torch wraps around a function decorated with a scope."""
    return code.co_filename.endswith("external_utils.py") and {"self", "func"} <= set(code.co_freevars)


def _scope(manager: Any, frame: FrameType) -> dict[str, Any]:
    wrapped = frame.f_locals.get("func") if _is_wrapper(frame.f_code) else None
    return {
        "value": bool(manager.error_on_graph_break),
        "site": _SCOPES.sites.get(manager) if wrapped is not None else None,
        "entered": _site(frame),
        "wrapped": _wrapped(wrapped),
    }


def _traced_scope(tx: Any, value: bool) -> dict[str, Any]:
    code = tx.f_code
    if not _is_wrapper(code):
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
        "site": _SCOPES.sites.get(cells["self"]) if "self" in cells else None,
        "entered": [code.co_filename, tx.lineno, code.co_name, code.co_firstlineno],
        "wrapped": _wrapped(cells.get("func")),
    }


def _wrapped(function: Any) -> dict[str, Any] | None:
    """Return the code of a wrapped function, behind methods and further wrappers."""
    while function is not None:
        inner = getattr(function, "_torchdynamo_orig_callable", None) or getattr(function, "__func__", None)
        if inner is None:
            break
        function = inner
    code = getattr(function, "__code__", None) or getattr(getattr(function, "forward", None), "__code__", None)
    return _code(code) if code is not None else None


def _site(frame: FrameType | None) -> StackEntry | None:
    """Return the place of the innermost frame outside torch and this module, with its columns."""
    while frame is not None:
        filename = frame.f_code.co_filename.replace("\\", "/")
        torch_own = "/torch/_dynamo/" in filename or filename.endswith(
            ("/torch/__init__.py", "/torch/nn/modules/module.py")
        )
        if not torch_own and not filename.startswith(_OWN) and not filename.endswith("/contextlib.py"):
            code = frame.f_code
            positions = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
            return [
                code.co_filename, positions[0] or frame.f_lineno, code.co_name, code.co_firstlineno,
                positions[2], positions[3], positions[1],
            ]  # fmt: skip
        frame = frame.f_back
    return None


#: Where each torch.compile(fullgraph=True) was written; kept between runs like the sites of scopes.
_FULLGRAPH_SITES: weakref.WeakKeyDictionary[Any, StackEntry] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def _watch_fullgraph(observe: Any) -> Iterator[None]:
    """Which torch.compile(fullgraph=True) is in force."""
    del observe
    context = importlib.import_module("torch._dynamo.eval_frame").OptimizeContext
    make = context.__init__

    @functools.wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        with contextlib.suppress(Exception):
            site = _site(sys._getframe(1))
            if site is not None:
                _FULLGRAPH_SITES[self] = site

    with _patched_inherited(context, "__init__", made):
        yield


def _fullgraph_site() -> dict[str, Any] | None:
    """Return the place of the torch.compile call around the frame being compiled, and the function that it compiles."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("eval_frame.py") and frame.f_code.co_name == "compile_wrapper":
            names = frame.f_locals
            return {"site": _FULLGRAPH_SITES.get(names.get("self")), "wrapped": _wrapped(names.get("fn"))}
        frame = frame.f_back
    return None


def _code(code: CodeType) -> dict[str, Any]:
    return {
        "id": id(code),
        "name": code.co_name,
        "qualname": getattr(code, "co_qualname", code.co_name),
        "filename": code.co_filename,
        "firstlineno": code.co_firstlineno,
    }


def _exception(exc: BaseException) -> dict[str, Any]:
    return {"type": type(exc).__name__, "gb_type": getattr(exc, "gb_type", None) or None}


def _tracer_state(tracer: Any) -> dict[str, Any]:
    return {
        "error_on_graph_break": getattr(tracer, "error_on_graph_break", None),
        "fullgraph": getattr(tracer, "one_graph", None),
    }


def _outward(frame: FrameType | None, most: int) -> Iterator[FrameType]:
    while frame is not None and most > 0:
        yield frame
        frame, most = frame.f_back, most - 1


def _stack_above() -> list[StackEntry]:
    """The Python stack at the call that made Dynamo compile, outermost first, without Dynamo's own frames inside."""
    frame: FrameType | None = sys._getframe(1)
    here = __file__
    inside = True
    entries: list[StackEntry] = []
    while frame is not None:
        code = frame.f_code
        filename = code.co_filename
        if inside:
            # Dynamo enters Python through CatchErrorsWrapper; what is further out is the program.
            if (
                filename != here
                and filename.endswith("convert_frame.py")
                and code.co_qualname == "CatchErrorsWrapper.__call__"
            ):
                inside = False
        else:
            entries.append([filename, frame.f_lineno, code.co_name, code.co_firstlineno])
        frame = frame.f_back
    entries.reverse()
    return entries


def _entries(stack: Iterable[Any] | None) -> list[StackEntry]:
    """Return the entries of a ``traceback.StackSummary``; the function's first line is not in it."""
    return [
        [
            entry.filename,
            entry.lineno,
            entry.name,
            None,
            getattr(entry, "colno", None),
            getattr(entry, "end_colno", None),
            getattr(entry, "end_lineno", None),
        ]
        for entry in stack or ()
    ]


def _tracing_stack() -> Any:
    return importlib.import_module("torch._guards").TracingContext.extract_stack()


def _with_positions(stack: list[StackEntry], tracer: Any) -> list[StackEntry]:
    """Fill in the columns of the innermost entry from the instruction that the tracer is at, if it is at that line."""
    if not stack or tracer is None:
        return stack
    positions = getattr(getattr(tracer, "current_instruction", None), "positions", None)
    code = getattr(tracer, "f_code", None)
    leaf = stack[-1]
    if positions is None or code is None or (code.co_filename, positions.lineno) != (leaf[0], leaf[1]):
        return stack
    columns = [positions.col_offset, positions.end_col_offset, positions.end_lineno]
    if leaf[4] is not None and leaf[4:6] != columns[:2]:
        return stack
    return [*stack[:-1], [*leaf[:4], *columns]]


def _line_at(code: CodeType, offset: int | None) -> int | None:
    if offset is None:
        return None
    return next((line for start, end, line in code.co_lines() if start <= offset < end), None)


@functools.cache
def _registry() -> dict[str, tuple[str, dict[str, Any]]]:
    path = Path(importlib.import_module("torch._dynamo").__file__ or "").with_name("graph_break_registry.json")
    try:
        registry = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {entry["Gb_type"]: (gb_id, entry) for gb_id, entries in registry.items() for entry in reversed(entries)}


def _registry_entry(gb_type: str) -> dict[str, Any]:
    gb_id, entry = _registry().get(gb_type, (None, {}))
    return {
        "gb_id": gb_id,
        "gb_type": gb_type,
        "explanation": entry.get("Explanation"),
        "hints": [hint for hint in entry.get("Hints", []) if "{" not in hint],
    }


def error_on_graph_break() -> bool | None:
    """Return the value of the setting outside any traced function, where it can be read."""
    read = getattr(importlib.import_module("torch._dynamo.utils"), "_get_error_on_graph_break", None)
    return bool(read()) if read is not None else None


def envelope() -> dict[str, Any]:
    """Return the context of the compilation in progress on this thread, in the trace's own keys."""
    trace_id = importlib.import_module("torch._guards").CompileContext.current_trace_id()
    if trace_id is None:
        return {}
    compile_id = trace_id.compile_id
    context = {
        "compiled_autograd_id": getattr(compile_id, "compiled_autograd_id", None),
        "frame_id": compile_id.frame_id,
        "frame_compile_id": compile_id.frame_compile_id,
        "attempt": trace_id.attempt,
    }
    return {key: value for key, value in context.items() if value is not None}


def trace_logger() -> logging.Logger:
    """Return the logger that carries the structured trace."""
    importlib.import_module("torch._logging")
    return logging.getLogger("torch.__trace")


def interned_name(number: int) -> str | None:
    """Return the file name behind a number of the trace; only those interned since torch was imported are known."""
    table: dict[str, int] = importlib.import_module("torch._logging.structured").INTERN_TABLE
    return next((name for name, known in table.items() if known == number), None)


def dynamo_config() -> dict[str, Any]:
    """Return the settings of ``torch._dynamo.config`` that differ from their default, and two that always matter."""
    config = importlib.import_module("torch._dynamo.config")
    values: dict[str, Any] = {}
    is_default = getattr(config, "_is_default", None)
    for name, value in getattr(config, "get_config_copy", dict)().items():
        if name.startswith("_") or is_default is None:
            continue
        if not is_default(name) and isinstance(value, bool | int | float | str | type(None)):
            values[name] = value
    for name in ("nested_graph_breaks", "recompile_limit"):
        values[name] = getattr(config, name, None)
    return values


def is_torch_compile(value: Any) -> bool:
    """Whether an object is ``torch.compile`` itself, also with arguments bound to it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    optimize = getattr(sys.modules.get("torch._dynamo"), "optimize", None)
    return (value.func if isinstance(value, functools.partial) else value) in (torch.compile, optimize)


def compiled_callable(value: Any) -> Any:
    """Return the plain function behind a compiled function or module, ``None`` if the object is not compiled."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if isinstance(value, torch.nn.Module):
        inner = value.__dict__.get("_orig_mod") or value.__dict__.get("_modules", {}).get("_orig_mod")
        if inner is not None:
            return inner
        return value if value.__dict__.get("_compiled_call_impl") is not None else None
    try:
        return inspect.getattr_static(value, "_torchdynamo_orig_callable", None) or (
            getattr(value, "__func__", None) and compiled_callable(value.__func__)
        )
    except TypeError:
        return None


def resume_codes(code: CodeType) -> list[CodeType]:
    """Return the resume functions that Dynamo has made for a code object, and those made for these."""
    cache = importlib.import_module("torch._dynamo.resume_execution").ContinueExecutionCache.cache
    found: list[CodeType] = []
    for made in cache.get(code, {}).values():
        resume = made if hasattr(made, "co_name") else made[0]
        found += [resume, *resume_codes(resume)]
    return found


def has_cached_code(code: CodeType) -> bool:
    """Whether Dynamo holds a compiled version of a code object."""
    read = getattr(importlib.import_module("torch._dynamo.eval_frame"), "_debug_get_cache_entry_list", None)
    return bool(read(code)) if read is not None else False


def forget(codes: Iterable[CodeType]) -> None:
    """Make Dynamo forget what it compiled or skipped of some code objects, and of their resume functions."""
    reset_code = importlib.import_module("torch._C._dynamo.eval_frame").reset_code
    for code in codes:
        for each in (code, *resume_codes(code)):
            reset_code(each)


def backends() -> list[str]:
    """Return the names that ``torch.compile(backend=...)`` takes."""
    listed: list[str] = importlib.import_module("torch._dynamo").list_backends(exclude_tags=())
    return sorted(set(listed))


def modes() -> list[str]:
    """Return the names that ``torch.compile(mode=...)`` takes."""
    listed: list[str] = list(importlib.import_module("torch._inductor").list_mode_options())
    return listed


def errors_suppressed() -> contextlib.AbstractContextManager[Any]:
    """Have Dynamo run eagerly what it fails to compile while the context is open."""
    patch: contextlib.AbstractContextManager[Any] = importlib.import_module("torch._dynamo.config").patch(
        suppress_errors=True
    )
    return patch


@contextlib.contextmanager
def forced_backend(backend: str | None) -> Iterator[None]:
    """Make every ``torch.compile`` use one backend while the context is open; ``None`` leaves them alone."""
    if backend is None:
        yield
        return
    import torch

    with torch.compiler.set_stance("default", force_backend=backend):
        yield


@contextlib.contextmanager
def default_device(device: str | None) -> Iterator[None]:
    """Make a device the default one while the context is open; what the code itself sets meanwhile stays."""
    if device is None:
        yield
        return
    import torch

    state = importlib.import_module("torch.utils._device")
    before = getattr(state, "CURRENT_DEVICE", None)
    torch.set_default_device(device)
    ours = getattr(state, "CURRENT_DEVICE", None)
    try:
        yield
    finally:
        if getattr(state, "CURRENT_DEVICE", None) is ours:
            torch.set_default_device(before)


def cuda_devices() -> tuple[list[str], int, str]:
    """Return the names of the CUDA devices, the number of the current one, and why there is none."""
    import torch

    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        return [torch.cuda.get_device_name(index) for index in range(count)], torch.cuda.current_device(), ""
    if torch.version.cuda is None:
        return [], 0, f"torch {torch.__version__} is built without CUDA"
    return [], 0, "no CUDA device is visible to this kernel"


def default_device_name() -> str:
    """Return the device on which new tensors are made now."""
    import torch

    return str(torch.get_default_device())


def library_roots() -> list[str]:
    """Return the folders whose files are nobody's own: the standard library, torch, and what pip installed."""
    import sysconfig

    paths = sysconfig.get_paths()
    return sorted({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths})
