"""Hooks on the compilation of a frame: its start, breaks and failures, resume functions, graphs, CUDA graphs."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
import re
import sys
import weakref
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.compiled import has_cached_code, owner_of_log_graph_break
from jupyter_graphbreak._torch_compat.configuration import dynamo_settings
from jupyter_graphbreak._torch_compat.hooks.compiling_calls import fullgraph_site
from jupyter_graphbreak._torch_compat.hooks.observer import observe_calls, wrap_with_hooks
from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import (
    add_positions,
    code_number,
    code_object,
    exception_name,
    frames_outward,
    gb_type,
    identity,
    line_at,
    program_stack,
    registry_entry,
    stack_frames,
    stack_of_operation,
    tracing_stack,
)
from jupyter_graphbreak._torch_compat.patching import patch_attribute
from jupyter_graphbreak.records.additions import (
    BreakLogged,
    CudagraphSkipped,
    FrameFailed,
    FrameStarted,
    GraphStacks,
    ResumeCreated,
    SettingsInForce,
)
from jupyter_graphbreak.records.attributes import attribute_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import CodeType

    from jupyter_graphbreak._torch_compat.hooks.observer import Observer, WatchedCall

_CONVERT_FRAME = "torch._dynamo.convert_frame"
_WRAPPER_MODULE = "torch._dynamo.external_utils"
#: The name of a reason, at the beginning of the text of a break.
_REASON_NAME = re.compile(r"^(.*)\n\s*Explanation:", re.MULTILINE)
#: The name of the function that PyTorch calls when it does not use a CUDA graph. Many modules import it, and modules
#: loaded later would keep a hook on it. The hook is therefore on a function that it calls, and reads its variable.
_SKIP_LOGGER = "log_cudagraph_skip_and_bump_counter"
#: The reason why a graph for the CPU has no CUDA graph, although it was compiled with the mode for CUDA graphs.
_CPU_GRAPH_SKIP_REASON = 'it runs on the CPU, but CUDA graphs need a GPU: mode="reduce-overhead" changes nothing here'


def watch_starts(observer: Observer) -> AbstractContextManager[None]:
    """Record the start of a frame's compilation: its code and callers, its module, and changed settings."""
    module = importlib.import_module(_CONVERT_FRAME)
    settings: list[SettingsInForce] = []
    numbered_modules: dict[int, tuple[weakref.ref[Any], int]] = {}  # by the id of the module
    numbers = itertools.count(1)

    def number_of(module: Any) -> int:
        reference, number = numbered_modules.get(id(module), (None, 0))
        if reference is None or reference() is not module:
            number = next(numbers)
            numbered_modules[id(module)] = weakref.ref(module), number
        return number

    def record_changed_settings() -> SettingsInForce | None:
        values, defaults = dynamo_settings()
        current = SettingsInForce(values=values, defaults=defaults)
        if settings[-1:] == [current]:
            return None
        settings.append(current)
        return current

    def observation(call: WatchedCall) -> FrameStarted:
        observer.observe("log_dynamo_start", record_changed_settings)
        observer.scopes.begin_trace()
        one_graph = observer.local_variable(call.caller, "one_graph")  # a variable of _compile
        site = fullgraph_site(observer) if one_graph else None
        code = call.argument("code")
        local = functools.partial(observer.local_variable, call.caller)
        owner = _module_of_method(code, local)
        is_call = owner is not None and _implements_call(code, type(owner))
        called_object = owner if is_call else _optimizer_of_wrapper(code, local)
        return FrameStarted(
            **identity(code),
            stack=program_stack(),
            fullgraph_site=site,
            module=type(called_object).__name__ if called_object is not None else None,
            instance=number_of(owner) if owner is not None else None,
        )

    hook = wrap_with_hooks(_hide_our_frames(module.log_dynamo_start), observer, before=observation)
    return patch_attribute(module, "log_dynamo_start", hook)


def _module_of_method(code: CodeType, local: Callable[[str], Any]) -> Any:
    """Return the module whose method the code is, or that is its first argument; ``None`` if there is none.

    ``local`` returns a local variable of the function that compiles the code.
    """
    module_class = importlib.import_module("torch.nn").Module
    if _is_wrapper_of_modules(code):
        cells = dict(zip(code.co_freevars, local("closure") or (), strict=False))
        wrapped_object = cells["fn"].cell_contents if "fn" in cells else None
        return wrapped_object if isinstance(wrapped_object, module_class) else None
    variables = local("locals") or {}
    first_argument = variables.get(code.co_varnames[0]) if code.co_varnames else None
    if isinstance(first_argument, tuple):  # a wrapper that takes ``*args``
        first_argument = next(iter(first_argument), None)
    owners = (first_argument, variables.get("self"))
    return next((owner for owner in owners if isinstance(owner, module_class)), None)


def _optimizer_of_wrapper(code: CodeType, local: Callable[[str], Any]) -> Any:
    """Return the optimizer whose ``step()`` the code wraps; ``None`` for any other code."""
    if code.co_name != "wrapper" or code.co_filename != importlib.import_module("torch.optim.optimizer").__file__:
        return None
    return next(iter((local("locals") or {}).get("args") or ()), None)


def _is_wrapper_of_modules(code: CodeType) -> bool:
    return code.co_filename == importlib.import_module(_WRAPPER_MODULE).__file__


def _implements_call(code: CodeType, module_class: Any) -> bool:
    """Return whether a code object is the ``forward`` or ``__call__`` of a class of modules, or Dynamo's wrapper."""
    methods = (module_class.forward, module_class.__call__)
    return _is_wrapper_of_modules(code) or any(getattr(method, "__code__", None) is code for method in methods)


def _hide_our_frames(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``log_dynamo_start`` that omits itself and its caller from the stack that it records."""
    parameters = list(inspect.signature(original).parameters)
    if "skip" not in parameters:
        return original
    position, frame_count = parameters.index("skip"), 2

    @functools.wraps(original)
    def log_dynamo_start(*args: Any, **kwargs: Any) -> Any:
        skip = args[position] if len(args) > position else kwargs.get("skip", 0)
        if isinstance(skip, int):
            if len(args) > position:
                args = (*args[:position], skip + frame_count, *args[position + 1 :])
            else:
                kwargs["skip"] = skip + frame_count
        return original(*args, **kwargs)

    return log_dynamo_start


def watch_breaks(observer: Observer) -> AbstractContextManager[None]:
    """Record the exact expression of a break, and the settings in force there."""
    owner = owner_of_log_graph_break()
    return patch_attribute(owner, "log_graph_break", wrap_log_graph_break(owner.log_graph_break, observer))


def wrap_log_graph_break(original: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
    """Return a ``log_graph_break`` that also records breaks; it works with any release."""

    def observation(call: WatchedCall) -> BreakLogged | None:
        error = call.argument("exc")  # torch >= 2.11
        if getattr(error, "logged", False):  # the original also returns immediately
            return None
        stack = getattr(error, "real_stack", None)
        if stack is None:
            stack = call.argument("user_stack")
        if error is None and stack is not None:
            handled_error = sys.exc_info()[1]
            error = handled_error if getattr(handled_error, "real_stack", None) is stack else None
        tracer = call.argument("self")
        if tracer is None:
            tracer = observer.local_variable(
                next((frame for frame in frames_outward(call.caller, 3) if "self" in frame.f_locals), call.caller),
                "self",
            )
        name = _REASON_NAME.search(str(call.argument("reason")))
        return BreakLogged(
            type=exception_name(error) if error is not None else None,
            gb_type=gb_type(error) if error is not None else None,
            gb_id=registry_entry(name[1].strip()).gb_id if name is not None else None,
            error_on_graph_break=getattr(tracer, "error_on_graph_break", None),
            fullgraph=getattr(tracer, "one_graph", None),
            stack=add_positions(stack_frames(stack if stack is not None else tracing_stack()), tracer),
            above=program_stack(),
            scopes=observer.scopes.open_scopes(tracer),
        )

    return wrap_with_hooks(original, observer, before=observation)


def watch_failures(observer: Observer) -> AbstractContextManager[None]:
    """Record the location of an error without a break event, and whether it reached the user."""
    module = importlib.import_module(_CONVERT_FRAME)

    def observation(call: WatchedCall) -> FrameFailed:
        error = call.argument("e")
        one_graph = observer.local_variable(call.caller, "one_graph")  # a variable of _compile
        setting = getattr(getattr(error, "_torch_dynamo_tracer_output", None), "error_on_graph_break", None)
        if setting is None:
            setting = _error_on_graph_break()
        return FrameFailed(
            type=exception_name(error),
            gb_type=gb_type(error),
            message=str(error),
            stack=stack_of_operation(str(error)) or stack_frames(getattr(error, "real_stack", None)),
            above=program_stack(),
            error_on_graph_break=setting,
            fullgraph=one_graph,
            fullgraph_site=fullgraph_site(observer) if one_graph else None,
            scopes=observer.scopes.last_open_scopes(),
            raised=_reaches_user(error, strict=bool(one_graph) or bool(setting)),
        )

    return observe_calls(module, "exception_handler", observer, before=observation)


def _reaches_user(error: BaseException, *, strict: bool) -> bool:
    """Return whether an error leaves Dynamo, by the rules of ``ConvertFrame.__call__``."""
    errors = importlib.import_module("torch._dynamo.exc")
    always_raised = tuple(
        getattr(errors, name)
        for name in ("UncapturedHigherOrderOpError", "ResumePrologueTracingError")
        if hasattr(errors, name)
    )
    is_user_error = isinstance(error, (errors.Unsupported, errors.UserError))
    is_suppressed = bool(importlib.import_module("torch._dynamo.config").suppress_errors)
    return strict or isinstance(error, always_raised) or not (is_user_error or is_suppressed)


def _error_on_graph_break() -> bool | None:
    """Return the value of ``error_on_graph_break`` outside any traced function, if it can be read."""
    read = getattr(importlib.import_module("torch._dynamo.utils"), "_get_error_on_graph_break", None)
    return bool(read()) if read is not None else None


def watch_resumes(observer: Observer) -> AbstractContextManager[None]:
    """Record which break created a resume function, on which line it continues, and whether the function is new."""
    cache = importlib.import_module("torch._dynamo.resume_execution").ContinueExecutionCache
    function = inspect.getattr_static(cache, "lookup").__func__
    parameters = list(inspect.signature(cache.generate).parameters)[1:]  # those after the code object

    def store_known_functions(call: WatchedCall) -> None:
        call.value_before = list(cache.cache.get(call.argument("code"), {}).values())

    def observation(call: WatchedCall) -> ResumeCreated:
        result = call.result
        resume = result if hasattr(result, "co_name") else result[0]  # some releases also return the function's name
        code = call.argument("code")
        arguments = {**dict(zip(parameters, call.args[2:], strict=False)), **call.kwargs}
        inner_code_objects = arguments.get("nested_code_objs")
        return ResumeCreated(
            **identity(resume),
            of=code_object(code),
            line=line_at(code, arguments.get("resume_offset")),
            new=not any(earlier_value is result for earlier_value in call.value_before or ()),
            compiled=has_cached_code(resume),
            enters=code_number(inner_code_objects[-1]) if inner_code_objects else None,
        )

    hook = wrap_with_hooks(function, observer, before=store_known_functions, after=observation)
    return patch_attribute(cache, "lookup", classmethod(hook))


@contextlib.contextmanager
def watch_graphs(observer: Observer) -> Iterator[None]:
    """Record the call stack of each operation of a graph, and the reason why Dynamo ended the graph."""
    graphs = importlib.import_module("torch._dynamo.output_graph").OutputGraph
    tracing_context = importlib.import_module("torch._guards").TracingContext
    # Dynamo itself records no stack for operations that enter or leave a context, such as autocast.
    creation_stacks: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def store_stack(call: WatchedCall) -> None:
        creation_stacks[call.result] = "".join(tracing_context.extract_stack().format())

    def observation(call: WatchedCall) -> GraphStacks:
        module = call.argument("gm")
        stacks: dict[str, int] = {}
        ops: dict[str, int] = {}
        for node in module.graph.nodes:
            trace = node.stack_trace or creation_stacks.get(node)
            if trace and node.op.startswith("call"):
                ops[node.name] = stacks.setdefault(trace, len(stacks))
        reason = getattr(getattr(module, "compile_subgraph_reason", None), "reason", None)
        return GraphStacks(stacks=list(stacks), ops=ops, reason=reason)

    with (
        observe_calls(graphs, "create_node", observer, after=store_stack),
        observe_calls(graphs, "call_user_compiler", observer, before=observation),
    ):
        yield


@contextlib.contextmanager
def watch_cudagraph_skips(observer: Observer) -> Iterator[None]:
    """Record which graphs run without a CUDA graph, and why."""
    module = importlib.import_module("torch._inductor.cudagraph_utils")
    getattr(module, _SKIP_LOGGER)  # fails if it is missing

    def observation(call: WatchedCall) -> CudagraphSkipped | None:
        if call.caller.f_code.co_name != _SKIP_LOGGER:
            return None
        reason = observer.local_variable(call.caller, "msg")
        return CudagraphSkipped(reason=reason) if isinstance(reason, str) else None

    def observation_without_gpu(call: WatchedCall) -> CudagraphSkipped | None:
        """Record a graph for the CPU, because PyTorch does not log that it gets no CUDA graph."""
        devices = set(attribute_of(call.argument("self"), "device_types") or ())
        return (
            CudagraphSkipped(reason=_CPU_GRAPH_SKIP_REASON) if config.triton.cudagraphs and devices == {"cpu"} else None
        )

    config = importlib.import_module("torch._inductor.config")
    graph_class = importlib.import_module("torch._inductor.output_code").CompiledFxGraph
    with (
        observe_calls(module, "get_metrics_context", observer, before=observation),
        observe_calls(graph_class, "post_compile", observer, before=observation_without_gpu),
    ):
        yield
