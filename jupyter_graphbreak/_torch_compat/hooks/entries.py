"""Observe calls to compiled callables: the arguments of the first call, and the beginning and end of each call."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import threading
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jupyter_graphbreak._torch_compat.call_modes import CallModes
from jupyter_graphbreak._torch_compat.compiled import (
    CompileArguments,
    guard_filter_of,
    has_cached_code,
    innermost_backend,
)
from jupyter_graphbreak._torch_compat.hooks.observer import Observer, observe_calls
from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import frames_outward
from jupyter_graphbreak._torch_compat.module_calls import WRAPPER_NAME, call_compiled, callable_of
from jupyter_graphbreak.records.package_paths import OWN_FOLDER
from jupyter_graphbreak.records.records import is_resume_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import CodeType, FrameType

    from jupyter_graphbreak._torch_compat.hooks.observer import Emit, WatchedCall

#: The maximum number of frames to search for the wrapper of a compiled function, and then again for its caller.
_MAX_FRAMES = 60
#: The files whose frames are between user code and the wrapper.
_FILES_OUTSIDE_WRAPPER = (
    "torch/nn/modules/module.py",
    "torch/_dynamo/eval_frame.py",
    "torch/_dynamo/external_utils.py",
)
#: The files whose functions call the code that is compiled. They implement modules, decorators such as
#: ``torch.no_grad()``, and Dynamo's wrapper for library functions, whose compiled code may call the function eagerly.
_FILES_INSIDE_WRAPPER = ("torch/nn/modules/module.py", "torch/utils/_contextlib.py", "torch/_dynamo/external_utils.py")
#: The methods that implement calls to a module.
_CALL_METHODS = frozenset({"forward", "__call__", "_call_impl", "_wrapped_call_impl"})


class CompiledCall(NamedTuple):
    """A call to a compiled callable, before it runs.

    ``function`` is the original function, method or module; ``callable_id`` is the id that
    :func:`watch_call_boundaries` reports, if known; ``compile_arguments`` are those of ``torch.compile``; ``caller`` is
    the frame of eager code that makes the call; ``frame_id`` is the id of the frame that Dynamo compiles for it, if
    known; ``reuses`` is true if the call may use code compiled for an earlier call.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    callable_id: int | None
    modes: CallModes
    compile_arguments: CompileArguments
    caller: FrameType | None = None
    frame_id: str | None = None
    reuses: bool = False


@contextlib.contextmanager
def watch_entries(
    on_entry: Callable[[CompiledCall], None],
    emit: Emit,
    add_time: Callable[[float], None],
    *,
    on_start: Callable[[CompiledCall], None],
    on_end: Callable[[CompiledCall, Any], None],
    on_compiling: Callable[[], None],
) -> Iterator[None]:
    """Report the first call to each callable, for each instance and combination of modes, before the call runs.

    A call is reported only if code is compiled for it, or if it comes from eager code and may reuse compiled code. An
    exception in ``on_entry`` never reaches PyTorch. ``on_compiling`` is called before Dynamo compiles a frame.
    ``on_start`` receives every call from eager code, before it runs, and ``on_end`` such a call and its result, after
    the call has ended, on the same thread. The result is ``None`` if the call raised, and always before torch 2.12:
    its wrapper has no variable for the result.
    """
    convert, evaluate = (importlib.import_module(f"torch._dynamo.{name}") for name in ("convert_frame", "eval_frame"))
    observer = Observer(emit, add_time)
    reported_calls: dict[Any, Any] = {}  # the values keep alive the objects whose ids are the keys
    frame_ids: dict[CodeType, str] = {}
    running_calls = threading.local()

    def report_first(code: Any, entered_call: CompiledCall) -> None:
        function = entered_call.function
        owner = code if isinstance(function, types.FunctionType) else getattr(function, "__self__", function)
        key = id(code), id(owner), entered_call.modes
        if key not in reported_calls:
            reported_calls[key] = code, owner
            on_entry(entered_call)

    def observation(call: WatchedCall) -> None:
        on_compiling()
        code = call.argument("code")
        wrapper = _calling_wrapper(call.caller)
        if (
            wrapper is not None
            and vars(running_calls).get("entered_wrapper") is not wrapper
            and not is_resume_name(code.co_name)
        ):
            running_calls.entered_wrapper = wrapper  # functions called by the wrapper's compiled code are not entries
            entered_call = _entered_call(code, call, wrapper)
            frame_ids.setdefault(code, entered_call.frame_id or "")
            report_first(code, entered_call)

    def report_calls(call: WatchedCall) -> None:
        wrapper = call.caller
        if wrapper.f_code.co_name != WRAPPER_NAME:
            return
        calls = vars(running_calls).setdefault("calls", [])
        if calls and calls[-1] is wrapper:
            calls.pop()
            vars(running_calls).pop("entered_wrapper", None)
            if not calls:
                on_end(vars(running_calls).pop("started_call"), wrapper.f_locals.get("result"))
            return
        calls.append(wrapper)
        if len(calls) > 1:
            return
        running_calls.started_call = started_call = _started_call(wrapper)
        on_start(started_call)
        if (code := _reused_code(started_call)) is not None:
            report_first(code, started_call._replace(frame_id=frame_ids.get(code), reuses=True))

    with (
        observe_calls(convert, "_compile", observer, before=observation),
        observe_calls(evaluate, "_maybe_set_eval_frame", observer, before=report_calls),
    ):
        yield


def watch_call_boundaries(
    on_boundary: Callable[[FrameType, int], None], emit: Emit, add_time: Callable[[float], None]
) -> AbstractContextManager[None]:
    """Report the beginning and the end of each call to a compiled callable.

    ``on_boundary`` receives the Python frame of the call, which is unique to it, and the id of the callable.
    """
    module = importlib.import_module("torch._dynamo.eval_frame")
    observer = Observer(emit, add_time)

    def observation(call: WatchedCall) -> None:
        if call.caller.f_code.co_name == WRAPPER_NAME:
            on_boundary(call.caller, id(callable_of(call.caller)))

    # Dynamo calls this function before it starts and before it stops evaluating frames, and is not active either time.
    return observe_calls(module, "_maybe_set_eval_frame", observer, before=observation)


def _calling_wrapper(frame: FrameType) -> FrameType | None:
    """Return the frame of the wrapper that called the code being compiled; ``None`` if other code called it."""
    is_in_dynamo = True
    for outer in frames_outward(frame, _MAX_FRAMES):
        filename = outer.f_code.co_filename
        if is_in_dynamo:
            is_in_dynamo = outer.f_code.co_qualname != "CatchErrorsWrapper.__call__"
        elif outer.f_code is not call_compiled.__code__ and not filename.endswith(_FILES_INSIDE_WRAPPER):
            return outer if filename.endswith("torch/_dynamo/eval_frame.py") else None
    return None


def _started_call(wrapper: FrameType) -> CompiledCall:
    """Return the call to a compiled callable from the frame of the wrapper around it."""
    variables = wrapper.f_locals
    function, args, kwargs = _wrapped_call(variables)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.nn.Module) and function.__name__ in _CALL_METHODS:
        function = owner
    elif isinstance(function, types.FunctionType) and _is_method(function, args):
        function, args = _called_object(function, args[0]), args[1:]
    caller = next(
        (frame for frame in frames_outward(wrapper.f_back, _MAX_FRAMES) if not _is_machinery(frame.f_code.co_filename)),
        None,
    )
    callback, dynamic = variables.get("callback"), getattr(variables.get("self"), "_dynamic", None)
    arguments = CompileArguments(innermost_backend(callback), dynamic, guard_filter_of(callback))
    return CompiledCall(
        function, tuple(args), dict(kwargs), id(callable_of(wrapper)), CallModes.now(), arguments, caller
    )


def _wrapped_call(variables: Mapping[str, Any]) -> tuple[Any, Sequence[Any], dict[str, Any]]:
    """Return the callable that a wrapper calls, and the arguments, from the wrapper's variables."""
    function: Any = variables.get("fn")
    args, kwargs = variables.get("args", ()), variables.get("kwargs", {})
    if getattr(function, "__code__", None) is call_compiled.__code__:
        function, args, *remaining_args = args
        kwargs = remaining_args[0] if remaining_args else {}
    if getattr(function, "__code__", None) is not None and function.__code__.co_filename.endswith("external_utils.py"):
        function = function.__closure__[0].cell_contents if function.__closure__ else function
    return function, args, kwargs


def _is_machinery(filename: str) -> bool:
    """Return whether a file belongs to this package or is one of the torch files that only forward calls."""
    return filename.endswith(_FILES_OUTSIDE_WRAPPER) or filename.startswith(OWN_FOLDER)


def _reused_code(started_call: CompiledCall) -> CodeType | None:
    """Return the original code of a compiled callable; ``None`` if a call to it cannot reuse any compiled code."""
    function: Any = started_call.function
    implementation = type(function).forward if isinstance(function, torch.nn.Module) else function
    implementation = getattr(implementation, "__func__", implementation)
    code = getattr(implementation, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    can_reuse = isinstance(code, types.CodeType) and has_cached_code(code)
    return code if can_reuse and callable(started_call.compile_arguments.backend) else None


def _entered_call(code: CodeType, compile_call: WatchedCall, wrapper: FrameType) -> CompiledCall:
    variables: dict[str, Any] = dict(compile_call.argument("locals"))
    closure = tuple(compile_call.argument("closure") or ())
    called_function = types.FunctionType(code, compile_call.argument("globals"), code.co_name, None, closure)
    called_function.__qualname__ = code.co_qualname
    wrapped, _, _ = _wrapped_call(wrapper.f_locals)
    original = getattr(wrapped, "__func__", wrapped)
    if getattr(original, "__code__", None) is code:  # a later call may leave out an argument
        called_function.__defaults__, called_function.__kwdefaults__ = original.__defaults__, original.__kwdefaults__
    args, kwargs = _arguments(code, variables)
    callee: Callable[..., Any] = called_function
    if code.co_filename.endswith("torch/_dynamo/external_utils.py") and closure:
        callee = closure[0].cell_contents  # Dynamo's wrapper around a library's module
    elif _is_method(called_function, args):
        callee, args = _called_object(called_function, args[0]), args[1:]
    compile_arguments = CompileArguments(
        innermost_backend(compile_call.argument("compiler_fn")),
        _effective_dynamic_option(),
        getattr(compile_call.argument("hooks"), "guard_filter_fn", None),
    )
    callable_id = id(callable_of(wrapper)) if "fn" in wrapper.f_locals else None
    frame_id = str(compile_call.argument("compile_id"))
    return CompiledCall(callee, args, kwargs, callable_id, CallModes.now(), compile_arguments, frame_id=frame_id)


def _is_method(function: types.FunctionType, args: Sequence[Any]) -> bool:
    """Return whether a function is called as a method of a module, not with a module as an argument."""
    if not args or not isinstance(args[0], torch.nn.Module):
        return False
    code = function.__code__
    is_in_class = "." in function.__qualname__.rpartition("<locals>.")[2]
    # A decorator of a method defines a function whose parameters begin with self, or are only *args.
    return is_in_class or not code.co_argcount or code.co_varnames[0] == "self"


def _called_object(function: types.FunctionType, module: Any) -> Any:
    """Return the module if the function implements its call, else the bound method."""
    call_methods = (getattr(type(module), name, None) for name in _CALL_METHODS)
    return module if any(_is_same(method, function) for method in call_methods) else types.MethodType(function, module)


def _is_same(method: Any, function: types.FunctionType) -> bool:
    """Return whether a method has the code and the variables of a function; a decorator's results share their code."""
    variables = [list(map(id, getattr(candidate, "__closure__", None) or ())) for candidate in (method, function)]
    return getattr(method, "__code__", None) is function.__code__ and variables[0] == variables[1]


def _arguments(code: CodeType, variables: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a function from its variables before it runs."""
    names = code.co_varnames
    count, keyword_only_count = code.co_argcount, code.co_kwonlyargcount
    args = tuple(variables[name] for name in names[:count])
    kwargs = {name: variables[name] for name in names[count : count + keyword_only_count]}
    next_index = count + keyword_only_count
    if code.co_flags & inspect.CO_VARARGS:
        args += tuple(variables[names[next_index]])
        next_index += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs |= variables[names[next_index]]
    return args, kwargs


def _effective_dynamic_option() -> bool | None:
    """Return the value of ``dynamic=`` that Dynamo's current settings amount to."""
    config = importlib.import_module("torch._dynamo.config")
    if not getattr(config, "assume_static_by_default", True):
        return True
    return None if getattr(config, "automatic_dynamic_shapes", True) else False
