"""Call modules and functions compiled although their callers do not compile them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.compiled import compiled_callable
from jupyter_graphbreak._torch_compat.configuration import stance
from jupyter_graphbreak._torch_compat.patching import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType


def call_compiled(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function. Compiled itself, it makes Dynamo compile what it calls: Dynamo skips this function's frame.

    One compiled function for all callables keeps none of them alive, as ``torch.compile(model)`` would.
    """
    return call(*args, **kwargs)


def callable_of(wrapper: FrameType) -> Any:
    """Return the callable that a call of a compiled function is about.

    Parameters
    ----------
    wrapper : FrameType
        The frame of ``compile_wrapper``, which ``torch.compile`` puts around a function.
    """
    function = wrapper.f_locals.get("fn")
    if getattr(function, "__code__", None) is not call_compiled.__code__:
        return function
    call = wrapper.f_locals["args"][0]
    if _is_frame_for(call):
        call = call.__closure__[0].cell_contents
    return call.__self__ if isinstance(call, types.MethodType) else call


def compiled_callers(frame: FrameType | None) -> Iterator[int]:
    """Yield what identifies the callables whose compiled calls are around a frame, as :func:`watch_calls` does."""
    while frame is not None:
        if frame.f_code.co_name == "compile_wrapper" and frame.f_code.co_filename.endswith("eval_frame.py"):
            yield id(callable_of(frame))
        frame = frame.f_back


class TraceableCallables:
    """Gives Dynamo a frame to compile for callables whose own frame it skips: ``torch.nn`` modules, ``vmap(f)``.

    ``torch.compile`` does the same with ``wrap_inline``, but there all callables share one code object, and with it one
    recompile limit.
    """

    def __init__(self) -> None:
        self._codes: dict[int, tuple[Callable[[], Any], types.CodeType | None]] = {}
        self._always = contextlib.ExitStack()

    def traceable(self, call: Callable[..., Any], target: Any) -> Callable[..., Any]:
        """Return what runs a callable in a frame that Dynamo compiles.

        Parameters
        ----------
        call : callable
            What is called.
        target : object
            Whose frame decides: the module that ``call`` is bound to, or ``call`` itself.
        """
        anchor = target.__func__ if isinstance(target, types.MethodType) else target
        known = self._codes.get(id(anchor))
        if known is None or known[0]() is not anchor:
            known = self._learn(call, target, anchor)
        code = known[1]
        if code is None:
            return call
        return types.FunctionType(code, vars(_external()), "inner", None, (types.CellType(target),))

    def _learn(
        self, call: Callable[..., Any], target: Any, anchor: Any
    ) -> tuple[Callable[[], Any], types.CodeType | None]:
        """Find out whether a callable needs a frame, and if so, make code of its own for it."""
        is_skipped = importlib.import_module("torch._dynamo.trace_rules").check
        if isinstance(target, torch.nn.Module):
            own = getattr(target, "forward", None)
            needs_frame = isinstance(own, types.MethodType) and is_skipped(own)
        else:
            needs_frame = not hasattr(target, "__code__") or is_skipped(target)
            if not needs_frame:
                self._compile_always(call.__code__)
        template = _frame_code()
        code = template.replace(co_varnames=template.co_varnames) if needs_frame else None
        with contextlib.suppress(TypeError):  # what cannot be referred to weakly is looked at for each call
            known = weakref.ref(anchor, functools.partial(self._forget, id(anchor))), code
            self._codes[id(anchor)] = known
            return known
        return (lambda: None), code

    def _compile_always(self, code: types.CodeType) -> None:
        """Make Dynamo compile code although no argument is a tensor, as it does for what ``torch.compile`` is given."""
        always = importlib.import_module("torch._dynamo.eval_frame").always_optimize_code_objects
        if code not in always:
            always[code] = True
            self._always.callback(getattr(always, "_remove_id", id), id(code))

    def close(self) -> None:
        """Undo what :meth:`traceable` has set in Dynamo."""
        self._always.close()

    def _forget(self, number: int, _: object) -> None:
        self._codes.pop(number, None)


@functools.cache
def _external() -> types.ModuleType:
    return importlib.import_module("torch._dynamo.external_utils")


@functools.cache
def _frame_code() -> types.CodeType:
    code: types.CodeType = _external().wrap_inline(lambda: None).__code__
    return code


def _is_frame_for(call: Any) -> bool:
    code = getattr(call, "__code__", None)
    return code is not None and code.co_filename == _frame_code().co_filename and code.co_freevars == ("fn",)


def compile_caller(options: dict[str, Any]) -> Callable[..., Any]:
    """Return :func:`call_compiled` compiled with some options of ``torch.compile``."""
    importlib.import_module("torch._dynamo.eval_frame").skip_code(call_compiled.__code__)
    compiled: Callable[..., Any] = torch.compile(call_compiled, **options)
    return compiled


class Interception:
    """Whether calls of modules are intercepted now: not within a call that runs compiled."""

    def __init__(self) -> None:
        self.inside = False
        #: Why modules that were called were not compiled, by the name of their class.
        self.left_out: dict[str, str] = {}


@contextlib.contextmanager
def intercepted_module_calls(
    state: Interception,
    on_call: Callable[[torch.nn.Module, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any],
    on_error: Callable[[BaseException], None],
) -> Iterator[None]:
    """Hand each call of a module on this thread over, while the context is open.

    Parameters
    ----------
    state : Interception
    on_call : callable
        Given the module, its original ``__call__`` bound to it, the positional and the keyword arguments; returns what
        the call returns. Calls that something else traces (Dynamo, ``torch.export``, ``torch.jit.trace``), and calls
        under a ``TorchDispatchMode``, under which Dynamo compiles nothing, are not handed over.
    on_error : callable
        Given what a call raises, before it goes on; removes our frames from its traceback.
    """
    original = torch.nn.Module.__call__
    get_ident = threading.get_ident
    get_callback = importlib.import_module("torch._C._dynamo.eval_frame").get_eval_frame_callback
    thread = get_ident()

    @functools.wraps(original)
    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - its name in tracebacks
        is_elsewhere = get_ident() != thread
        if is_elsewhere and not state.inside:
            state.left_out.setdefault(type(self).__name__, "another thread called it")
        if state.inside or is_elsewhere or get_callback() is not None:
            try:  # Dynamo skips this frame, but would compile our functions if they were called here
                return original(self, *args, **kwargs)
            except BaseException as error:
                if error.__traceback__ is not None:
                    error.__traceback__ = error.__traceback__.tb_next
                raise  # a bare raise adds no entry for this function to the traceback
        try:
            reason = _why_not_compiled(self)
            if reason is not None:
                state.left_out.setdefault(type(self).__name__, reason)
                return original(self, *args, **kwargs)
            return on_call(self, types.MethodType(original, self), args, kwargs)
        except BaseException as error:
            on_error(error)
            raise

    importlib.import_module("torch._dynamo.eval_frame").skip_code(_code_of(__call__))
    with patched(torch.nn.Module, "__call__", __call__), while_converting(lambda: _replaced_call(original, __call__)):
        yield


def _code_of(function: Any) -> types.CodeType:
    """Return the code of a function that ``functools.wraps`` has made look like another."""
    code: types.CodeType = function.__code__
    return code


@contextlib.contextmanager
def _replaced_call(original: Any, ours: Any) -> Iterator[None]:
    """Give modules their original ``__call__`` back for a while, as Dynamo looks at it."""
    if vars(torch.nn.Module)["__call__"] is not ours:
        yield
        return
    with patched(torch.nn.Module, "__call__", original):
        yield


def _why_not_compiled(module: torch.nn.Module) -> str | None:
    """Return why the call of a module is not compiled, as the end of a sentence; ``None`` if it may be."""
    if isinstance(module, torch.jit.ScriptModule):
        return "TorchScript runs it"
    if compiled_callable(module) is not None:
        return "it is compiled already"
    if torch._C._len_torch_dispatch_stack() > 0:
        return "a TorchDispatchMode was active, under which PyTorch compiles nothing"
    if (held := stance()) != "default":
        return f'the stance is "{held}"'
    return "something else traced it" if is_traced() else None


def awaits_shapes(module: torch.nn.Module) -> bool:
    """Whether a module is lazy: its first call makes its parameters, which Dynamo does with other random numbers."""
    tensors = itertools.chain(module.parameters(), module.buffers())
    return any(map(torch.nn.parameter.is_lazy, tensors))


@functools.cache
def _eval_frame() -> Any:
    return importlib.import_module("torch._dynamo.eval_frame")


def is_traced() -> bool:
    """Whether something other than a plain run executes the code now, or a stance or a mode keeps Dynamo from it."""
    return bool(
        getattr(getattr(_eval_frame(), "_stance", None), "stance", "default") != "default"
        or torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack() > 0
    )


@contextlib.contextmanager
def while_converting(make: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Enter a context whenever Dynamo converts a frame, and leave it when the frame is converted."""
    module = importlib.import_module("torch._dynamo.convert_frame")
    converting = threading.local()

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
            if "skip" in kwargs:  # how many frames Dynamo leaves out of the stacks that it records
                kwargs["skip"] += 1
            if getattr(converting, "active", False):
                return original(self, *args, **kwargs)
            converting.active = True
            try:
                with make():
                    return original(self, *args, **kwargs)
            finally:
                converting.active = False

        return convert

    with contextlib.ExitStack() as stack:
        for converter in (module.ConvertFrame, module.ConvertFrameAssert):
            stack.enter_context(patched(converter, "__call__", wrapped(vars(converter)["__call__"])))
        yield
