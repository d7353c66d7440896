"""Compile code that nobody asked to compile: it acts as it does eagerly, and nothing of it stays in Dynamo."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.configuration import errors_suppressed, uncompiled_output
from jupyter_graphbreak._torch_compat.module_calls import while_converting
from jupyter_graphbreak._torch_compat.patching import followed_here, patched_here, prepared_here, tell_fault
from jupyter_graphbreak._torch_compat.separate_cache import CompiledHere, kept_counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def isolated_compilation() -> Iterator[None]:
    """Make Dynamo forget, when the context ends, what this thread compiled in it; what it held before stays.

    Its counters, the sizes that it has seen vary and the globals that compiled code needs are restored as well. What
    other threads compile meanwhile is left alone.
    """
    compiled = CompiledHere()
    with kept_counters(), while_converting(compiled.converting), _no_globals():
        try:
            yield
        finally:
            compiled.forget()


@contextlib.contextmanager
def _no_globals() -> Iterator[None]:
    """Remove, when the context ends, the globals that Dynamo made; the code that needs them does not run any more.

    Dynamo leaves the globals that name its modules, and those of code that it did not finish.
    """
    hooks: Any = getattr(importlib.import_module("torch._dynamo.utils"), "CleanupHook", None)
    tracer = importlib.import_module("torch._dynamo.symbolic_convert").InstructionTranslatorBase
    if not hasattr(hooks, "create") or not hasattr(tracer, "import_source"):  # another torch
        yield
        return
    pending: list[Any] = []

    def created(_: None, hook: Any, *__: Any, **___: Any) -> None:
        pending.append(hook)

    with contextlib.ExitStack() as undo:

        def importing(tracer: Any, module_name: str, *_: Any, **__: Any) -> None:
            scope, alias = tracer.output.global_scope, f"__import_{module_name.replace('.', '_dot_')}"
            if alias not in scope:
                undo.callback(scope.pop, alias, None)

        with followed_here(hooks, "create", created), prepared_here(tracer, "import_source", importing):
            try:
                yield
            finally:
                for hook in pending:
                    hook.scope.pop(hook.name, None)
                    hook.scope = {hook.name: None}  # Dynamo will call it when the code is gone


#: The attribute by which Dynamo marks a tensor whose address it takes for constant.
_MARK = "_dynamo_static_input_type"


@contextlib.contextmanager
def _no_marks() -> Iterator[None]:
    """Remove, when the context ends, the marks of tensors whose address Dynamo takes for constant.

    Dynamo reads them while it compiles; later, copies and pickles of the tensor would have them.
    """
    decorators = importlib.import_module("torch._dynamo.decorators")
    with contextlib.ExitStack() as undo:

        def marking(tensor: Any, *_: Any, **__: Any) -> None:
            if _MARK not in vars(tensor):
                undo.callback(vars(tensor).pop, _MARK, None)

        with prepared_here(decorators, "mark_static_address", marking):
            yield


#: What :func:`generators_kept` calls its reason.
LIVE_GENERATOR = "Generator in use beyond compiled code"


@contextlib.contextmanager
def generators_kept() -> Iterator[None]:
    """Make Dynamo give up a function rather than replace a generator that outlives it.

    The replacement is an iterator over the rest of the generator. It has no ``send`` and a different type, and it runs
    the rest of the generator at once.
    """
    functions = importlib.import_module("torch._dynamo.variables.functions")
    variable = getattr(functions, "LocalGeneratorObjectVariable", None)
    refuse = _refuse()
    if variable is None or refuse is None or "reconstruct" not in vars(variable):
        yield
        return

    def reconstruct(*_: Any, **__: Any) -> None:
        refuse(
            gb_type=LIVE_GENERATOR,
            context="",
            explanation="Dynamo would replace a generator by an iterator over what is left of it. This code was not "
            "asked to be compiled, and keeps its generator.",
            hints=["Use the generator up before the break, as with list(...)."],
        )

    with patched_here(variable, "reconstruct", reconstruct):
        yield


@contextlib.contextmanager
def _warnings_not_spent() -> Iterator[None]:
    """Keep once-per-process warnings of PyTorch for the run of the operations: tracing does not use them up."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        yield
    finally:
        torch.set_warn_always(always)


@contextlib.contextmanager
def eager_semantics(*, fullgraph: bool = False) -> Iterator[None]:
    """Make code that nobody asked to compile do and print what it does eagerly, as far as PyTorch has settings for it.

    Parameters
    ----------
    fullgraph : bool
        Whether an error of Dynamo's is what the reader asked for; else the code runs eagerly instead.
    """
    with uncompiled_output(), _warnings_not_spent(), _no_marks():
        if fullgraph:
            yield
            return
        with errors_suppressed(), generators_kept():
            yield


@contextlib.contextmanager
def new_globals_readable() -> Iterator[bool]:
    """Make Dynamo look up an unknown name among the globals that the traced code stored before it tries builtins.

    ``InstructionTranslatorBase._load_global`` asks the real globals first, in which a name that the traced code stores
    appears only when that code runs.

    Yields
    ------
    bool
        Whether this torch lets us do so.
    """
    module = importlib.import_module("torch._dynamo.symbolic_convert")
    tracers = [getattr(module, name, None) for name in ("InstructionTranslatorBase", "InliningInstructionTranslator")]
    with contextlib.ExitStack() as stack:
        possible = False
        for tracer in tracers:
            original = vars(tracer).get("_load_global") if tracer is not None else None
            if original is not None:
                stack.enter_context(patched_here(tracer, "_load_global", _reading_back(original)))
                possible = True
        yield possible


def _reading_back(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _load_global(self: Any, inst: Any, *args: Any, **kwargs: Any) -> Any:
        stored = None
        try:
            stored = _stored_value(self, inst)
        except (AttributeError, KeyError, TypeError):  # another torch: then it is as torch does it
            pass
        except Exception as fault:  # noqa: BLE001 - as above
            tell_fault("reading new globals", fault)
        if stored is None:
            return original(self, inst, *args, **kwargs)
        self.push(stored)
        return None

    return _load_global


def _stored_value(tracer: Any, inst: Any) -> Any:
    """Return the variable that a new global stands for, ``None`` for any other name."""
    name = getattr(inst, "argval", None)
    if name in tracer.f_globals or name not in getattr(tracer, "symbolic_globals", ()):
        return None
    if tracer.output.global_scope is not tracer.f_globals:
        return None
    effects = tracer.output.side_effects
    return effects.load_global(effects[tracer.symbolic_globals[name]], name)


def _refuse() -> Callable[..., Any] | None:
    """Return what makes Dynamo break the graph, where it takes a reason of ours."""
    errors = importlib.import_module("torch._dynamo.exc")
    refuse: Callable[..., Any] = getattr(errors, "unimplemented_v2", None) or errors.unimplemented
    return refuse if "gb_type" in inspect.signature(refuse).parameters else None
