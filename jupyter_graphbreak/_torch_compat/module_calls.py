"""Compile modules and functions when they are called, although their callers do not compile them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import os
import sys
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jupyter_graphbreak._torch_compat.compiled import compiled_callable, skip_functions
from jupyter_graphbreak._torch_compat.configuration import current_stance
from jupyter_graphbreak._torch_compat.patching import active_function, patch_attribute, report_to_run
from jupyter_graphbreak._torch_compat.threads import current_run_check
from jupyter_graphbreak.records.attributes import is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType


def call_compiled(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function; if ``call_compiled`` is compiled, Dynamo skips its frame and compiles the function's frame.

    One compiled function for all callables keeps none of them alive, unlike ``torch.compile(model)``.
    """
    return function(*args, **kwargs)


#: The folder with the functions through which AOTAutograd calls graphs.
_AOT_FOLDER = f"torch{os.sep}_functorch{os.sep}_aot_autograd{os.sep}"
#: The name of the function that ``torch.compile`` puts around the compiled one.
WRAPPER_NAME = "compile_wrapper"


def callable_of(wrapper: FrameType) -> Any:
    """Return the callable that ``torch.compile`` wraps, given the frame of its ``compile_wrapper``."""
    function = wrapper.f_locals.get("fn")
    if getattr(function, "__code__", None) is not call_compiled.__code__:
        return function
    callable_ = wrapper.f_locals["args"][0]
    if _is_traceable_wrapper(callable_):
        callable_ = callable_.__closure__[0].cell_contents
    return callable_.__self__ if is_instance(callable_, types.MethodType) else callable_


def enclosing_callable_ids(frame: FrameType | None) -> Iterator[int]:
    """Return the ids of the callables whose compiled calls enclose a frame, the innermost call first."""
    return (id(callable_of(wrapper)) for wrapper in enclosing_compiled_calls(frame))


def enclosing_compiled_calls(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of Dynamo's wrapper through which compiled functions were called, innermost first."""
    while frame is not None:
        if frame.f_code.co_name == WRAPPER_NAME and frame.f_code.co_filename.endswith("eval_frame.py"):
            yield frame
        frame = frame.f_back


def _is_called_by_compiled_code(frame: FrameType | None) -> bool:
    """Return whether a frame runs a graph of code that the program compiled, or the backward pass of such a graph."""
    if next(enclosing_compiled_calls(frame), None) is not None:
        return True
    while frame is not None and _AOT_FOLDER not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None


class TraceableCallables:
    """Wraps callables whose frames Dynamo skips (``torch.nn`` modules, ``vmap(f)``) in a frame that it compiles.

    ``torch.compile`` does the same with ``wrap_inline``, but all callables share its code object and therefore one
    recompile limit.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Callable[[], Any], types.CodeType | None]] = {}
        self._undo_stack = contextlib.ExitStack()

    def make_traceable(self, callable_: Callable[..., Any], target: Any) -> Callable[..., Any]:
        """Return the callable or, if Dynamo skips its frame, a function that calls ``target`` in a compiled frame."""
        anchor = target.__func__ if is_instance(target, types.MethodType) else target
        entry = self._entries.get(id(anchor))
        if entry is None or entry[0]() is not anchor:
            entry = self._create_entry(callable_, target, anchor)
        code = entry[1]
        if code is None:
            return callable_
        return types.FunctionType(code, vars(_external_utils()), "inner", None, (types.CellType(target),))

    def _create_entry(
        self, callable_: Callable[..., Any], target: Any, anchor: Any
    ) -> tuple[Callable[[], Any], types.CodeType | None]:
        """Return a new entry for a callable, with a separate code object if the callable needs a frame."""
        if is_instance(target, torch.nn.Module):
            needs_frame = has_skipped_forward(target)
        else:
            needs_frame = not hasattr(target, "__code__") or _is_skipped(target)
            if not needs_frame:
                self._compile_always(callable_.__code__)
        template = _wrapper_code_template()
        code = template.replace(co_varnames=template.co_varnames) if needs_frame else None
        with contextlib.suppress(TypeError):  # no weak reference is possible: repeat this for each call
            entry = weakref.ref(anchor, functools.partial(self._forget, id(anchor))), code
            self._entries[id(anchor)] = entry
            return entry
        return (lambda: None), code

    def _compile_always(self, code: types.CodeType) -> None:
        """Make Dynamo compile code although no argument is a tensor, as for the argument of ``torch.compile``."""
        always_compiled = importlib.import_module("torch._dynamo.eval_frame").always_optimize_code_objects
        if code not in always_compiled:
            always_compiled[code] = True
            self._undo_stack.callback(getattr(always_compiled, "_remove_id", id), id(code))

    def close(self) -> None:
        """Undo the changes that :meth:`make_traceable` made in Dynamo."""
        self._undo_stack.close()

    def _forget(self, anchor_id: int, _: object) -> None:
        self._entries.pop(anchor_id, None)


@functools.cache
def _external_utils() -> types.ModuleType:
    return importlib.import_module("torch._dynamo.external_utils")


@functools.cache
def _wrapper_code_template() -> types.CodeType:
    """Return the code of the wrapper that ``torch.compile`` puts around a callable whose frame Dynamo skips."""
    code: types.CodeType = _external_utils().wrap_inline(lambda: None).__code__
    return code


def _is_traceable_wrapper(callable_: Any) -> bool:
    code = getattr(callable_, "__code__", None)
    return code is not None and code.co_filename == _wrapper_code_template().co_filename and code.co_freevars == ("fn",)


def compile_caller(options: dict[str, Any]) -> Callable[..., Any]:
    """Return :func:`call_compiled`, compiled with ``torch.compile`` options."""
    skip_functions(call_compiled)
    compiled: Callable[..., Any] = torch.compile(call_compiled, **options)
    return compiled


class Interception:
    """The state of an interception of calls; calls inside an intercepted call are not intercepted."""

    def __init__(self) -> None:
        self.is_open = True
        self.is_inside_call = False
        self.thread = threading.get_ident()
        #: The reasons why called modules were not compiled, by class name.
        self.reasons_not_compiled: dict[str, str] = {}


class SubstituteCall(NamedTuple):
    """A call that replaces the original one.

    ``on_failure`` receives the exception of the call; it returns the exception to raise instead, or ``None``. ``end``
    is called after the call, even if it failed.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    on_failure: Callable[[BaseException], BaseException | None]
    end: Callable[[], None]


def make_interceptor(  # noqa: C901 - a single frame is easier to hide
    original: Callable[..., Any],
    state: Interception,
    plan: Callable[..., SubstituteCall | None],
    on_other_thread: Callable[..., None] = lambda *_, **__: None,
) -> Callable[..., Any]:
    """Return a function that makes the original call, or the substitute call that ``plan`` returns.

    An internal error never reaches the program: the run notes it, and if ``plan`` fails, the original is called. The
    returned function does not appear in tracebacks. ``plan`` does not receive calls from compiled code, calls inside an
    intercepted call, or calls on other threads; ``on_other_thread`` receives the latter.
    """
    get_ident, get_callback = threading.get_ident, _eval_frame_callback()

    @functools.wraps(original, assigned=(), updated=())
    def __call__(*args: Any, **kwargs: Any) -> Any:  # noqa: N807 - tracebacks show this name
        substitute = None
        try:
            # With a callback set, Dynamo would compile our functions.
            if state.is_open and not state.is_inside_call and get_callback() is None:
                substitute = (plan if get_ident() == state.thread else on_other_thread)(*args, **kwargs)
        except Exception as fault:  # noqa: BLE001 - the program must still run
            report_to_run("deciding what to compile", fault)
        if substitute is None:
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                if error.__traceback__ is not None:
                    error.__traceback__ = error.__traceback__.tb_next
                raise  # a bare raise adds no entry for this function to the traceback
        try:
            return substitute.function(*substitute.args, **substitute.kwargs)
        except BaseException as error:
            replacement = None
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
            try:
                replacement = substitute.on_failure(error)
            except Exception as fault:  # noqa: BLE001 - our errors must not reach the user's program
                report_to_run("hiding the frames of the compiler", fault)
            if replacement is None:
                raise
        finally:
            try:
                substitute.end()
            except Exception as fault:  # noqa: BLE001 - our errors must not reach the user's program
                report_to_run("ending a compiled call", fault)
        try:
            raise replacement  # noqa: TRY301 - raising outside the handler avoids chaining
        except BaseException:
            replacement.__traceback__ = (
                replacement.__traceback__.tb_next if replacement.__traceback__ is not None else None
            )
            raise

    skip_functions(__call__)
    return __call__


@functools.cache
def _eval_frame_callback() -> Callable[[], Any]:
    get: Callable[[], Any] = importlib.import_module("torch._C._dynamo.eval_frame").get_eval_frame_callback
    return get


@contextlib.contextmanager
def intercept_module_calls(
    state: Interception,
    on_call: Callable[[torch.nn.Module, Callable[..., Any], tuple[Any, ...], dict[str, Any]], SubstituteCall | None],
) -> Iterator[None]:
    """Call a function whenever a module is called on this thread, while the context is open.

    ``on_call`` receives the module, its bound original ``__call__``, the positional and the keyword arguments; it
    returns the substitute. It is not called if :func:`why_not_compiled` returns a reason.
    """
    original = torch.nn.Module.__call__
    is_in_run = current_run_check()

    def plan(module: torch.nn.Module, *args: Any, **kwargs: Any) -> SubstituteCall | None:
        if is_instance(module, torch.fx.GraphModule) and _is_called_by_compiled_code(sys._getframe(1)):
            return None
        reason = why_not_compiled(module)
        if reason is not None:
            state.reasons_not_compiled.setdefault(type(module).__name__, reason)
            return None
        return on_call(module, types.MethodType(original, module), args, kwargs)

    def on_other_thread(module: torch.nn.Module, *_: Any, **__: Any) -> None:
        if is_in_run():
            state.reasons_not_compiled.setdefault(type(module).__name__, "another thread called it")

    __call__ = functools.update_wrapper(make_interceptor(original, state, plan, on_other_thread), original)
    compile_lock = importlib.import_module("torch._dynamo.convert_frame").compile_lock
    with contextlib.ExitStack() as stack:
        with compile_lock:  # no thread may be compiling with the original in place
            stack.enter_context(patch_attribute(torch.nn.Module, "__call__", __call__))
            stack.enter_context(
                wrap_frame_conversions(lambda _: _original_module_call(original, __call__), includes_other_threads=True)
            )
        try:
            yield
        finally:
            state.is_open = False
            with compile_lock:
                stack.close()


def _original_module_call(original: Any, replacement: Any) -> contextlib.AbstractContextManager[None]:
    """Restore the original ``__call__`` of modules while the context is open, because Dynamo inspects it."""
    if vars(torch.nn.Module)["__call__"] is not replacement:
        return contextlib.nullcontext()
    return patch_attribute(torch.nn.Module, "__call__", active_function(original))


def _is_skipped(function: Any) -> bool:
    return bool(importlib.import_module("torch._dynamo.trace_rules").check(function))


def has_skipped_forward(module: torch.nn.Module) -> bool:
    """Return whether Dynamo skips a module's ``forward``, as in ``torch.nn``, so ``compile()`` compiles nothing."""
    forward = getattr(module, "forward", None)
    return is_instance(forward, types.MethodType) and _is_skipped(forward)


def overrides_call(module: torch.nn.Module) -> bool:
    """Return whether the class of a module overrides ``nn.Module.__call__``, as gpytorch's models do.

    Calls to such a module bypass ``nn.Module.__call__``, and ``Module.compile`` does not compile them.
    """
    method = type(module).__call__
    return is_instance(method, types.FunctionType) and not method.__module__.startswith("torch.")


def why_not_compiled(module: torch.nn.Module) -> str | None:
    """Return why a call to a module cannot be compiled now, as the end of a sentence; ``None`` if it can."""
    if is_instance(module, torch.jit.ScriptModule):
        return "TorchScript runs it"
    if compiled_callable(module) is not None:
        return "it is already compiled"
    if torch._C._len_torch_dispatch_stack() > 0:
        return "a TorchDispatchMode was active, under which PyTorch compiles nothing"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a torch.func transform called it, and the transform itself was not compiled"
    if (current := current_stance()) != "default":
        return f'the stance is "{current}"'
    return "something else traced it" if is_traced_or_disabled() else None


def is_lazy_module(module: torch.nn.Module) -> bool:
    """Return whether the first call to a module creates tensors, for which Dynamo draws different random numbers."""
    tensors = itertools.chain(module.parameters(), module.buffers())
    return any(map(torch.nn.parameter.is_lazy, tensors))


def is_traced_or_disabled() -> bool:
    """Return whether the code is being traced, or a stance, mode or transform prevents Dynamo from compiling it."""
    return bool(
        current_stance() != "default"
        or torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


@contextlib.contextmanager
def wrap_frame_conversions(
    make_context: Callable[[types.CodeType], AbstractContextManager[Any] | None],
    *,
    includes_other_threads: bool = False,
) -> Iterator[None]:
    """Enter a context around each conversion of a frame by Dynamo on this thread, or on all threads.

    ``make_context`` receives the code of the frame. If it returns ``None``, or if entering the context fails, the frame
    runs uncompiled. Dynamo converts one frame at a time.
    """
    module = importlib.import_module("torch._dynamo.convert_frame")
    result_class = importlib.import_module("torch._dynamo.types").ConvertFrameReturn
    conversion_state = threading.local()
    thread, is_open, get_ident = threading.get_ident(), [True], threading.get_ident

    def with_context(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
            if "skip" in kwargs:  # the number of frames that Dynamo omits from recorded stacks
                kwargs["skip"] += 1
            if (
                not is_open
                or getattr(conversion_state, "active", False)
                or not (includes_other_threads or get_ident() == thread)
            ):
                return original(self, *args, **kwargs)
            conversion_state.active = True
            try:
                try:
                    context = make_context(args[0].f_code)
                    if context is None:
                        return result_class()
                    context.__enter__()
                except Exception as fault:  # noqa: BLE001 - the frame must still run
                    report_to_run("preparing a compilation", fault)
                    return result_class()
                try:
                    return original(self, *args, **kwargs)
                finally:
                    try:
                        context.__exit__(None, None, None)
                    except Exception as fault:  # noqa: BLE001 - our errors must not reach the user's program
                        report_to_run("undoing the changes for a compilation", fault)
            finally:
                conversion_state.active = False

        return convert

    try:
        with contextlib.ExitStack() as stack:
            for converter in (module.ConvertFrame, module.ConvertFrameAssert):
                stack.enter_context(patch_attribute(converter, "__call__", with_context(vars(converter)["__call__"])))
            yield
    finally:
        is_open.clear()
