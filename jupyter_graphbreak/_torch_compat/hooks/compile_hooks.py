"""Hooks on the compilation of a frame: its start, its breaks and failures, its resume functions and graphs."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.compiled import has_cached_code
from jupyter_graphbreak._torch_compat.configuration import dynamo_settings
from jupyter_graphbreak._torch_compat.hooks.fullgraph_sites import fullgraph_site
from jupyter_graphbreak._torch_compat.hooks.scope_hooks import SCOPES
from jupyter_graphbreak._torch_compat.hooks.stacks_and_codes import (
    code_object,
    gb_type,
    identity,
    line_at,
    outward,
    stack_above,
    stack_entries,
    tracing_stack,
    with_positions,
)
from jupyter_graphbreak._torch_compat.patching import patched
from jupyter_graphbreak.recording.additions import (
    BreakSeen,
    FrameFailed,
    FrameStarted,
    GraphStacks,
    ResumeMade,
    SettingsInForce,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak._torch_compat.hooks.observer import Observer

_CONVERT_FRAME = "torch._dynamo.convert_frame"
_SYMBOLIC_CONVERT = "torch._dynamo.symbolic_convert"


@contextlib.contextmanager
def watch_starts(observer: Observer) -> Iterator[None]:
    """Record who calls a frame, which resume function it is, and which settings it is compiled with."""
    module = importlib.import_module(_CONVERT_FRAME)
    original = module.log_dynamo_start
    takes_skip = "skip" in inspect.signature(original).parameters
    settings: list[SettingsInForce] = []

    def look_at_settings() -> SettingsInForce | None:
        values, defaults = dynamo_settings()
        now = SettingsInForce(values=values, defaults=defaults)
        if settings[-1:] == [now]:
            return None
        settings.append(now)
        return now

    @functools.wraps(original)
    def log_dynamo_start(code: Any, *args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)  # _compile

        def look() -> FrameStarted:
            SCOPES.begin_trace()
            site = fullgraph_site(observer) if observer.local(caller, "one_graph") else None
            return FrameStarted(**identity(code), stack=stack_above(), fullgraph_site=site)

        observer.observe("log_dynamo_start", look_at_settings)
        observer.observe("log_dynamo_start", look)
        if takes_skip:  # one more frame to leave out of the stack that the original takes
            if args:
                args = (args[0] + 1, *args[1:])
            else:
                kwargs["skip"] = kwargs.get("skip", 0) + 1
        return original(code, *args, **kwargs)

    with patched(module, "log_dynamo_start", log_dynamo_start):
        yield


@contextlib.contextmanager
def watch_breaks(observer: Observer) -> Iterator[None]:
    """Record the exact expression of a break, and the settings in force at it."""
    module = importlib.import_module(_SYMBOLIC_CONVERT)
    tracers = module.InstructionTranslatorBase
    if hasattr(tracers, "log_graph_break"):
        with patched(tracers, "log_graph_break", _method_of_tracer(tracers.log_graph_break, observer)):
            yield
    else:  # torch < 2.11
        with patched(module, "log_graph_break", _function_beside_tracer(module.log_graph_break, observer)):
            yield


def _method_of_tracer(original: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
    @functools.wraps(original)
    def log_graph_break(self: Any, *args: Any, **kwargs: Any) -> Any:
        def look() -> BreakSeen | None:
            error = _argument(original, (self, *args), kwargs, "exc")
            if getattr(error, "logged", False):  # the original returns at once, too
                return None
            stack = getattr(error, "real_stack", None)
            return BreakSeen(
                type=type(error).__name__ if error is not None else None,
                gb_type=gb_type(error) if error is not None else None,
                error_on_graph_break=getattr(self, "error_on_graph_break", None),
                fullgraph=getattr(self, "one_graph", None),
                stack=with_positions(stack_entries(stack if stack is not None else tracing_stack()), self),
                above=stack_above(),
                scopes=SCOPES.chain(self),
            )

        observer.observe("log_graph_break", look)
        return original(self, *args, **kwargs)

    return log_graph_break


def _function_beside_tracer(original: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
    @functools.wraps(original)
    def log_graph_break(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)

        def look() -> BreakSeen:
            user_stack = _argument(original, args, kwargs, "user_stack")
            tracer = observer.local(next((f for f in outward(caller, 3) if "self" in f.f_locals), caller), "self")
            return BreakSeen(
                error_on_graph_break=getattr(tracer, "error_on_graph_break", None),
                fullgraph=getattr(tracer, "one_graph", None),
                stack=with_positions(stack_entries(user_stack if user_stack is not None else tracing_stack()), tracer),
                above=stack_above(),
                scopes=SCOPES.chain(tracer),
            )

        observer.observe("log_graph_break", look)
        return original(*args, **kwargs)

    return log_graph_break


def _argument(function: Callable[..., Any], args: Any, kwargs: dict[str, Any], name: str) -> Any:
    """Return the argument that a call gives to a parameter, ``None`` where it gives none."""
    return inspect.signature(function).bind_partial(*args, **kwargs).arguments.get(name)


@contextlib.contextmanager
def watch_failures(observer: Observer) -> Iterator[None]:
    """Record the place of an error that no break event names, and whether it went up to the user."""
    module = importlib.import_module(_CONVERT_FRAME)
    original = module.exception_handler

    @functools.wraps(original)
    def exception_handler(e: Any, *args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)  # _compile

        def look() -> FrameFailed:
            one_graph = observer.local(caller, "one_graph")
            setting = getattr(getattr(e, "_torch_dynamo_tracer_output", None), "error_on_graph_break", None)
            if setting is None:
                setting = _error_on_graph_break()
            return FrameFailed(
                type=type(e).__name__,
                gb_type=gb_type(e),
                message=str(e),
                stack=stack_entries(getattr(e, "real_stack", None)),
                above=stack_above(),
                error_on_graph_break=setting,
                fullgraph=one_graph,
                fullgraph_site=fullgraph_site(observer) if one_graph else None,
                scopes=SCOPES.last_chain(),
                raised=_goes_up(e, strict=bool(one_graph) or bool(setting)),
            )

        observer.observe("exception_handler", look)
        return original(e, *args, **kwargs)

    with patched(module, "exception_handler", exception_handler):
        yield


def _goes_up(error: BaseException, *, strict: bool) -> bool:
    """Whether an error leaves Dynamo: the rules of ``ConvertFrame.__call__``."""
    errors = importlib.import_module("torch._dynamo.exc")
    hard = tuple(
        getattr(errors, name)
        for name in ("UncapturedHigherOrderOpError", "ResumePrologueTracingError")
        if hasattr(errors, name)
    )
    soft = isinstance(error, (errors.Unsupported, errors.UserError))
    suppressed = bool(importlib.import_module("torch._dynamo.config").suppress_errors)
    return strict or isinstance(error, hard) or not (soft or suppressed)


def _error_on_graph_break() -> bool | None:
    """Return the value of the setting outside any traced function, where it can be read."""
    read = getattr(importlib.import_module("torch._dynamo.utils"), "_get_error_on_graph_break", None)
    return bool(read()) if read is not None else None


@contextlib.contextmanager
def watch_resumes(observer: Observer) -> Iterator[None]:
    """Record which break made a resume function, the line at which it goes on, and whether it is from before."""
    cache = importlib.import_module("torch._dynamo.resume_execution").ContinueExecutionCache
    original = inspect.getattr_static(cache, "lookup")
    function = original.__func__
    parameters = list(inspect.signature(cache.generate).parameters)[1:]  # those after the code object

    def lookup(cls: Any, code: Any, *args: Any, **kwargs: Any) -> Any:
        earlier: list[Any] = []
        observer.observe("lookup", lambda: earlier.extend(cache.cache.get(code, {}).values()))
        made = function(cls, code, *args, **kwargs)

        def look() -> ResumeMade:
            resume = made if hasattr(made, "co_name") else made[0]  # some releases pair it with its name
            given = {**dict(zip(parameters, args, strict=False)), **kwargs}
            inner = given.get("nested_code_objs")
            return ResumeMade(
                **identity(resume),
                of=code_object(code),
                line=line_at(code, given.get("resume_offset")),
                new=not any(known is made for known in earlier),
                compiled=has_cached_code(resume),
                enters=id(inner[-1]) if inner else None,
            )

        observer.observe("lookup", look)
        return made

    with patched(cache, "lookup", classmethod(functools.wraps(function)(lookup))):
        yield


@contextlib.contextmanager
def watch_graphs(observer: Observer) -> Iterator[None]:
    """Record the call stack of each operation of a graph."""
    graphs = importlib.import_module("torch._dynamo.output_graph").OutputGraph
    original = graphs.call_user_compiler

    @functools.wraps(original)
    def call_user_compiler(self: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
        def look() -> GraphStacks:
            stacks: dict[str, int] = {}
            ops: dict[str, int] = {}
            for node in gm.graph.nodes:
                trace = node.stack_trace
                if trace and node.op.startswith("call"):
                    ops[node.name] = stacks.setdefault(trace, len(stacks))
            reason = getattr(getattr(gm, "compile_subgraph_reason", None), "reason", None)
            return GraphStacks(stacks=list(stacks), ops=ops, reason=reason)

        observer.observe("call_user_compiler", look)
        return original(self, gm, *args, **kwargs)

    with patched(graphs, "call_user_compiler", call_user_compiler):
        yield
