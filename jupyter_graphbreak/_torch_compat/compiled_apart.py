"""Compile code that nobody asked to compile, and leave nothing of that behind in Dynamo."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import linecache
import sys
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.compiled import forget_code
from jupyter_graphbreak._torch_compat.configuration import not_compiled, warns_of_compiling
from jupyter_graphbreak._torch_compat.patching import patched
from jupyter_graphbreak._torch_compat.separate_cache import (
    _drop,
    _entries,
    _fresh_profile,
    _kept_counters,
    _living,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def compiled_apart() -> Iterator[None]:
    """Have Dynamo forget, when the context ends, what it compiled in it; what it held before stays.

    What it counts, and the sizes that it has seen vary, are what they were, too. The globals that compiled code needs
    go with it.
    """
    seen = importlib.import_module("torch._dynamo.convert_frame").input_codes.seen
    importlib.import_module("torch._C._dynamo.eval_frame").reset_code  # noqa: B018 - what is missing fails here
    held = {id(code): (code, {id(entry.guard_manager) for entry in _entries(code)}) for code in _living(seen)}
    with _kept_counters(), _fresh_profile(), _no_globals(), _no_marks():
        try:
            yield
        finally:
            for code in _living(seen):
                _, managers = held.get(id(code), (code, set()))
                if not managers:
                    forget_code(code)
                for entry in _entries(code):
                    if id(entry.guard_manager) not in managers:
                        _drop(entry)


@contextlib.contextmanager
def _no_globals() -> Iterator[None]:
    """Take back, when the context ends, the globals that Dynamo made; what they were for does not run any more.

    Dynamo itself leaves those that name its modules, and those of code that it did not finish.
    """
    hooks: Any = getattr(importlib.import_module("torch._dynamo.utils"), "CleanupHook", None)
    tracer = importlib.import_module("torch._dynamo.symbolic_convert").InstructionTranslatorBase
    if not hasattr(hooks, "create") or not hasattr(tracer, "import_source"):  # another torch
        yield
        return
    create, import_source = hooks.create, tracer.import_source
    made: list[tuple[dict[str, Any], str]] = []
    pending: list[Any] = []

    def creating(*args: Any, **kwargs: Any) -> Any:
        hook = create(*args, **kwargs)
        pending.append(hook)
        return hook

    @functools.wraps(import_source)
    def importing(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope = self.output.global_scope
        before = set(scope)
        source = import_source(self, *args, **kwargs)
        made.extend((scope, name) for name in set(scope) - before)
        return source

    with patched(hooks, "create", staticmethod(creating)), patched(tracer, "import_source", importing):
        try:
            yield
        finally:
            for hook in pending:
                made.append((hook.scope, hook.name))
                hook.scope = {hook.name: None}  # Dynamo will call it when the code is gone
            for scope, name in made:
                scope.pop(name, None)


@contextlib.contextmanager
def _no_marks() -> Iterator[None]:
    """Take back, when the context ends, the marks of tensors whose address Dynamo takes for constant."""
    decorators = importlib.import_module("torch._dynamo.decorators")
    mark = decorators.mark_static_address
    marked: list[tuple[weakref.ref[Any], str]] = []

    @functools.wraps(mark)
    def marking(tensor: Any, *args: Any, **kwargs: Any) -> None:
        before = set(vars(tensor))
        mark(tensor, *args, **kwargs)
        marked.extend((weakref.ref(tensor), name) for name in set(vars(tensor)) - before)

    with patched(decorators, "mark_static_address", marking):
        try:
            yield
        finally:
            for reference, name in marked:
                tensor = reference()
                if tensor is not None:
                    vars(tensor).pop(name, None)


#: What :func:`generators_kept` calls its reason.
LIVE_GENERATOR = "Generator in use beyond compiled code"


@contextlib.contextmanager
def generators_kept() -> Iterator[None]:
    """Have Dynamo give up a function rather than replace a generator that outlives it.

    It would put an iterator over what is left of the generator in its place, which has no ``send``, is of another type,
    and runs the rest of the generator at once.
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

    with patched(variable, "reconstruct", reconstruct):
        yield


#: What :func:`warnings_kept` calls its reason.
WARNS = "Operation that warns"


@contextlib.contextmanager
def warnings_kept() -> Iterator[None]:
    """Have Dynamo break at an operation that warns while it is traced, so that it warns when it runs, at its own line.

    In a graph it would warn at a line of the graph's code, and what PyTorch warns of once it would not warn of again.
    """
    convert = importlib.import_module("torch._dynamo.convert_frame")
    compile_frame = getattr(convert, "_compile", None)
    refuse = _refuse()
    if compile_frame is None or refuse is None:
        yield
        return
    show = warnings._showwarnmsg  # type: ignore[attr-defined]
    tracing = 0

    @functools.wraps(compile_frame)
    def traced(*args: Any, **kwargs: Any) -> Any:
        nonlocal tracing
        always = torch.is_warn_always_enabled()
        tracing += 1
        torch.set_warn_always(True)
        try:
            return compile_frame(*args, **kwargs)
        finally:
            torch.set_warn_always(always)
            tracing -= 1

    @not_compiled
    def show_or_refuse(message: Any) -> None:
        says_so = "warn" in linecache.getline(message.filename, message.lineno)
        # Under anomaly detection autograd warns of an error that it is about to raise.
        if not tracing or torch.is_anomaly_enabled() or (says_so and warns_of_compiling(message.filename)):
            show(message)
            return
        for module in list(sys.modules.values()):  # it is to warn here again
            if getattr(module, "__file__", None) == message.filename:
                vars(module).pop("__warningregistry__", None)
        refuse(
            gb_type=WARNS,
            context=str(message.message),
            explanation="This operation warns. In a graph its warning would name a line of the graph's code.",
            hints=["Change what it warns of."],
        )

    with patched(warnings, "_showwarnmsg", show_or_refuse), patched(convert, "_compile", traced):
        yield


def _refuse() -> Callable[..., Any] | None:
    """Return what makes Dynamo break the graph, where it takes a reason of ours."""
    errors = importlib.import_module("torch._dynamo.exc")
    refuse: Callable[..., Any] = getattr(errors, "unimplemented_v2", None) or errors.unimplemented
    return refuse if "gb_type" in inspect.signature(refuse).parameters else None
