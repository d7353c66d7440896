"""Compile code that the user did not ask to compile: it behaves as in eager mode, and Dynamo forgets it afterwards."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.configuration import (
    imitate_eager_output,
    suppress_compile_errors,
    use_eager_random_numbers,
)
from jupyter_graphbreak._torch_compat.module_calls import wrap_frame_conversions
from jupyter_graphbreak._torch_compat.patching import (
    patch_on_thread,
    prepare_calls_on_thread,
    redirect_calls_on_thread,
    report_to_run,
)
from jupyter_graphbreak._torch_compat.separate_cache import ThreadCompilations, remove_new_globals, restore_counters
from jupyter_graphbreak.records.package_paths import package_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType


@contextlib.contextmanager
def isolated_compilation() -> Iterator[None]:
    """Make Dynamo forget the code that this thread compiles in the context, but not the code compiled earlier.

    Dynamo's counters, its record of varying sizes and the globals for compiled code are also restored. Code that
    other threads compile in the meantime is not affected.
    """
    compilations = ThreadCompilations()
    with restore_counters(), wrap_frame_conversions(compilations.isolated_conversion), remove_new_globals():
        try:
            yield
        finally:
            compilations.forget()


#: The attribute by which Dynamo marks a tensor whose address it assumes to be constant.
_STATIC_MARK = "_dynamo_static_input_type"


@contextlib.contextmanager
def _remove_new_static_marks() -> Iterator[None]:
    """When the context ends, remove Dynamo's new marks on tensors whose address it assumes to be constant.

    Dynamo only needs the marks while it compiles. If they stayed, copies and pickles of the tensors would contain them.
    """
    decorators = importlib.import_module("torch._dynamo.decorators")
    with contextlib.ExitStack() as exit_stack:

        def remove_mark_at_end(tensor: Any, *_: Any, **__: Any) -> None:
            if _STATIC_MARK not in vars(tensor):
                exit_stack.callback(vars(tensor).pop, _STATIC_MARK, None)

        with prepare_calls_on_thread(decorators, "mark_static_address", remove_mark_at_end):
            yield


#: The ``gb_type`` of the breaks that :func:`break_at_live_generators` causes.
LIVE_GENERATOR_TYPE = "Generator in use beyond compiled code"


def break_at_live_generators() -> AbstractContextManager[None]:
    """Make Dynamo break the graph instead of replacing a generator that outlives the compiled code.

    The replacement would be an iterator with a different type and no ``send``, and it would run the rest of the
    generator at once.
    """
    functions = importlib.import_module("torch._dynamo.variables.functions")
    variable = getattr(functions, "LocalGeneratorObjectVariable", None)
    break_graph = _unimplemented_function()
    if variable is None or break_graph is None or "reconstruct" not in vars(variable):
        return contextlib.nullcontext()

    def reconstruct(*_: Any, **__: Any) -> None:
        break_graph(
            gb_type=LIVE_GENERATOR_TYPE,
            context="",
            explanation="Dynamo would replace a generator with an iterator over its remaining items. This code "
            "does not call torch.compile, so it keeps its generator.",
            hints=["Consume the generator before the break, for example with list(...)."],
        )

    return patch_on_thread(variable, "reconstruct", reconstruct)


def redirect_tracing(original_of: Callable[[Any], Any]) -> AbstractContextManager[None]:
    """Make Dynamo trace the originals of stand-ins that code uses on this thread, while the context is open.

    The guards and the compiled code still use the stand-ins. Dynamo does not check at once that the new guards hold,
    because guards on the identity of attributes fail for stand-ins. ``original_of`` returns the original of a stand-in,
    and any other object unchanged.
    """
    builder = importlib.import_module("torch._dynamo.variables.builder").VariableBuilder
    if "__call__" not in vars(builder):
        return contextlib.nullcontext()
    build = vars(builder)["__call__"]

    def plan(self: Any, value: Any) -> Any:
        original = original_of(value)
        if original is value:
            return None
        self.tx.output.skip_guards_check = True
        return build, (self, original), {}

    return redirect_calls_on_thread(builder, "__call__", plan)


#: The files that evaluate the expressions of guards.
_GUARD_FILES = ("torch/_guards.py", "torch/_dynamo/guards.py")


def is_dynamo_frame(frame: FrameType) -> bool:
    """Return whether a frame runs Dynamo's own code, or an expression that a guard evaluates."""
    module_path = package_paths().module_path
    if frame.f_code.co_filename == "<string>" and frame.f_back is not None:
        return module_path(frame.f_back.f_code.co_filename) in _GUARD_FILES
    return (module_path(frame.f_code.co_filename) or "").startswith("torch/_dynamo/")


@contextlib.contextmanager
def _preserve_warn_once() -> Iterator[None]:
    """Prevent tracing from using up PyTorch's once-per-process warnings, so that running the operations shows them."""
    was_warn_always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        yield
    finally:
        torch.set_warn_always(was_warn_always)


@contextlib.contextmanager
def eager_semantics(*, fullgraph: bool = False, eager_random_numbers: bool = False) -> Iterator[None]:
    """Make compiled code compute and print the same as eager code, as far as PyTorch has settings for it.

    Without ``fullgraph``, code that cannot be compiled runs eagerly, and the user does not see Dynamo's errors.
    """
    random_numbers = use_eager_random_numbers() if eager_random_numbers else contextlib.nullcontext()
    with imitate_eager_output(), _preserve_warn_once(), _remove_new_static_marks(), random_numbers:
        if fullgraph:
            yield
            return
        with suppress_compile_errors(), break_at_live_generators():
            yield


@contextlib.contextmanager
def make_new_globals_readable() -> Iterator[bool]:
    """Make Dynamo look for a name among the globals that traced code has stored, before it tries builtins.

    ``InstructionTranslatorBase._load_global`` looks in the real globals first, which get these names only when the code
    runs. Yield whether this PyTorch supports the change.
    """
    module = importlib.import_module("torch._dynamo.symbolic_convert")
    tracers = [getattr(module, name, None) for name in ("InstructionTranslatorBase", "InliningInstructionTranslator")]
    with contextlib.ExitStack() as stack:
        is_possible = False
        for tracer in tracers:
            original = vars(tracer).get("_load_global") if tracer is not None else None
            if original is not None:
                stack.enter_context(patch_on_thread(tracer, "_load_global", _wrap_load_global(original)))
                is_possible = True
        yield is_possible


def _wrap_load_global(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _load_global(self: Any, inst: Any, *args: Any, **kwargs: Any) -> Any:
        stored_value = None
        try:
            stored_value = _stored_value(self, inst)
        except (AttributeError, KeyError, TypeError):  # this PyTorch stores it elsewhere: use its own lookup
            pass
        except Exception as fault:  # noqa: BLE001 - our errors must not reach the user's program
            report_to_run("reading new globals", fault)
        if stored_value is None:
            return original(self, inst, *args, **kwargs)
        self.push(stored_value)
        return None

    return _load_global


def _stored_value(tracer: Any, inst: Any) -> Any:
    """Return Dynamo's variable for a new global; ``None`` for any other name."""
    name = getattr(inst, "argval", None)
    if name in tracer.f_globals or name not in getattr(tracer, "symbolic_globals", ()):
        return None
    if tracer.output.global_scope is not tracer.f_globals:
        return None
    effects = tracer.output.side_effects
    return effects.load_global(effects[tracer.symbolic_globals[name]], name)


def _unimplemented_function() -> Callable[..., Any] | None:
    """Return the function that breaks the graph; ``None`` if it accepts no custom reason."""
    errors = importlib.import_module("torch._dynamo.exc")
    break_graph: Callable[..., Any] = getattr(errors, "unimplemented_v2", None) or errors.unimplemented
    return break_graph if "gb_type" in inspect.signature(break_graph).parameters else None
