"""See the entries of compiled code: what they are called with before they run for the first time, and each call."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import threading
import types
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak._torch_compat.call_modes import CallModes
from jupyter_graphbreak._torch_compat.compiled import has_cached_code
from jupyter_graphbreak._torch_compat.hooks.observer import Observer, watched
from jupyter_graphbreak._torch_compat.hooks.stacks_and_codes import outward
from jupyter_graphbreak._torch_compat.module_calls import call_compiled, callable_of
from jupyter_graphbreak._torch_compat.patching import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    from jupyter_graphbreak._torch_compat.hooks.observer import Call, Emit

#: How many frames Dynamo has between a compiled function and its own hook.
_DEEPEST = 60
#: The function that ``torch.compile`` puts around another.
_WRAPPER = "compile_wrapper"
#: The methods that calling a module is.
_CALLS = frozenset({"forward", "__call__", "_call_impl", "_wrapped_call_impl"})


class EnteredCall(NamedTuple):
    """A call of a compiled callable that Dynamo is about to compile, or for which it has compiled code already.

    ``call`` is the function, method or module itself, nothing of it copied; ``dynamic`` is as ``torch.compile`` takes
    it; ``frame`` is Dynamo's id, if it is known; ``wrapped`` identifies it among the calls of :func:`watch_calls`;
    ``modes`` are those of the call; ``reuses`` says that code is used which was compiled for another call.
    """

    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    frame: str | None
    backend: Any
    dynamic: bool | None
    wrapped: int | None
    modes: CallModes
    reuses: bool = False


@contextlib.contextmanager
def watch_entries(
    on_entry: Callable[[EnteredCall], None], emit: Emit, spent: Callable[[float], None]
) -> Iterator[None]:
    """Hand over the first call of each callable, of each instance and in each mode, before it runs.

    That is a call for which code is compiled, or one from eager code for which compiled code may be used again.

    Parameters
    ----------
    on_entry : callable
        An exception in it never reaches PyTorch.
    emit, spent : callable
        As for :class:`Observer`.
    """
    convert, evaluate = (importlib.import_module(f"torch._dynamo.{name}") for name in ("convert_frame", "eval_frame"))
    observer = Observer(emit, spent)
    seen: dict[Any, Any] = {}  # with what keeps alive whose ids they are
    frames: dict[CodeType, str] = {}
    running = threading.local()

    def hand_over(code: Any, entered: EnteredCall) -> None:
        call = entered.call
        owner = code if isinstance(call, types.FunctionType) else getattr(call, "__self__", call)
        key = id(code), id(owner), entered.modes
        if key not in seen:
            seen[key] = code, owner
            on_entry(entered)

    def look(call: Call) -> None:
        code = call.argument("code")
        wrapper = _wrapper(call.caller)
        if wrapper is not None:
            entered = _entered(code, call, wrapper)
            frames.setdefault(code, entered.frame or "")
            hand_over(code, entered)

    def look_again(call: Call) -> None:
        wrapper = call.caller
        if wrapper.f_code.co_name != _WRAPPER:
            return
        calls = vars(running).setdefault("calls", [])
        if calls and calls[-1] is wrapper:
            calls.pop()
            return
        calls.append(wrapper)
        if len(calls) == 1 and (found := _reusing(wrapper)) is not None:
            code, entered = found
            hand_over(code, entered._replace(frame=frames.get(code)))

    with (
        patched(convert, "_compile", watched(convert._compile, observer, before=look)),
        patched(
            evaluate,
            "_maybe_set_eval_frame",
            watched(evaluate._maybe_set_eval_frame, observer, before=look_again),
        ),
    ):
        yield


@contextlib.contextmanager
def watch_calls(
    on_edge: Callable[[FrameType, int], None], emit: Emit, spent: Callable[[float], None]
) -> Iterator[None]:
    """Say of each call of a compiled callable when it begins and when it ends.

    Parameters
    ----------
    on_edge : callable
        Given Python's frame of the call, which is another one for each, and what identifies the callable; called twice.
    emit, spent : callable
        As for :class:`Observer`.
    """
    module = importlib.import_module("torch._dynamo.eval_frame")
    observer = Observer(emit, spent)

    def look(call: Call) -> None:
        if call.caller.f_code.co_name == _WRAPPER:
            on_edge(call.caller, id(callable_of(call.caller)))

    # Called in it when Dynamo is to begin to look at frames, and when it is to end. Both times it does not look yet.
    hook = watched(module._maybe_set_eval_frame, observer, before=look)
    with patched(module, "_maybe_set_eval_frame", hook):
        yield


def _wrapper(frame: FrameType) -> FrameType | None:
    """Return the frame of the compiled callable that called what Dynamo compiles now; ``None`` where eager code did."""
    inside = True
    for outer in outward(frame, _DEEPEST):
        filename = outer.f_code.co_filename
        if inside:
            inside = outer.f_code.co_qualname != "CatchErrorsWrapper.__call__"
        elif outer.f_code is not call_compiled.__code__ and not filename.endswith("torch/nn/modules/module.py"):
            return outer if filename.endswith("torch/_dynamo/eval_frame.py") else None
    return None


def _reusing(wrapper: FrameType) -> tuple[CodeType, EnteredCall] | None:
    """Return the call of a compiled callable for which Dynamo holds compiled code, with that code's original."""
    held = wrapper.f_locals
    call: Any = held.get("fn")
    args, kwargs = held.get("args", ()), held.get("kwargs", {})
    if getattr(call, "__code__", None) is call_compiled.__code__:
        call, args, *rest = args
        kwargs = rest[0] if rest else {}
    if getattr(call, "__code__", None) is not None and call.__code__.co_filename.endswith("external_utils.py"):
        call = call.__closure__[0].cell_contents if call.__closure__ else call
    owner = getattr(call, "__self__", None)
    if isinstance(owner, _module_class()) and call.__name__ in _CALLS:
        call = owner
    elif isinstance(call, types.FunctionType) and args and isinstance(args[0], _module_class()):
        call, args = _method(call, args[0]), args[1:]
    function = type(call).forward if isinstance(call, _module_class()) else call
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(type(call).__call__, "__code__", None)
    if not isinstance(code, types.CodeType) or not has_cached_code(code):
        return None
    backend, dynamic = _innermost(held.get("callback")), getattr(held.get("self"), "_dynamic", None)
    if not callable(backend):
        return None
    wrapped = id(callable_of(wrapper))
    return code, EnteredCall(
        call, tuple(args), dict(kwargs), None, backend, dynamic, wrapped, CallModes.now(), reuses=True
    )


def _entered(code: CodeType, compiling: Call, wrapper: FrameType) -> EnteredCall:
    held: dict[str, Any] = dict(compiling.argument("locals"))
    closure = tuple(compiling.argument("closure") or ())
    function = types.FunctionType(code, compiling.argument("globals"), code.co_name, None, closure)
    function.__qualname__ = code.co_qualname
    args, kwargs = _arguments(code, held)
    call: Callable[..., Any] = function
    if code.co_filename.endswith("torch/_dynamo/external_utils.py") and closure:
        call = closure[0].cell_contents  # the wrapper that Dynamo puts around a library's module
    elif args and isinstance(args[0], _module_class()):
        call, args = _method(function, args[0]), args[1:]
    return EnteredCall(
        call,
        args,
        kwargs,
        str(compiling.argument("compile_id")),
        _innermost(compiling.argument("compiler_fn")),
        _dynamic(),
        id(callable_of(wrapper)) if "fn" in wrapper.f_locals else None,
        CallModes.now(),
    )


def _method(function: types.FunctionType, module: Any) -> Any:
    """Return the module itself where the function is its call, else the bound method."""
    known = getattr(type(module), function.__name__, None)
    if function.__name__ in _CALLS and getattr(known, "__code__", None) is function.__code__:
        return module
    return types.MethodType(function, module)


def _arguments(code: CodeType, held: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a function from the variables that it has before it runs."""
    names = code.co_varnames
    count, only = code.co_argcount, code.co_kwonlyargcount
    args = tuple(held[name] for name in names[:count])
    kwargs = {name: held[name] for name in names[count : count + only]}
    rest = count + only
    if code.co_flags & inspect.CO_VARARGS:
        args += tuple(held[names[rest]])
        rest += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs |= held[names[rest]]
    return args, kwargs


def _innermost(backend: Any) -> Any:
    while (inner := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
        backend = inner
    return backend


def _dynamic() -> bool | None:
    """Return what ``dynamic=`` of ``torch.compile`` has set for the code that is compiled now."""
    config = importlib.import_module("torch._dynamo.config")
    if not getattr(config, "assume_static_by_default", True):
        return True
    return None if getattr(config, "automatic_dynamic_shapes", True) else False


def _module_class() -> Any:
    found: Any = importlib.import_module("torch.nn").Module
    return found
