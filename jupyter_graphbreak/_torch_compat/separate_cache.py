"""Run front ends isolated from the caches, tables and counters that the notebook's own functions use."""

from __future__ import annotations

import contextlib
import functools
import importlib
import weakref
from collections import Counter
from threading import get_ident
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.compiled import forget_code, resume_codes
from jupyter_graphbreak._torch_compat.module_calls import while_converting
from jupyter_graphbreak._torch_compat.patching import followed_here, patched_here, prepared_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import CodeType
    from weakref import ref


def is_allowed_in_graph(function: Any) -> bool:
    """Return whether Dynamo recognizes a function by its identity, so that a copy would be unknown."""
    known = getattr(importlib.import_module("torch._dynamo.trace_rules"), "is_callable_allowed", None)
    return known is not None and bool(known(function))


def copy_fx_wraps(scope: dict[str, Any], copy: dict[str, Any]) -> None:
    """Register the names that ``torch.fx.wrap`` knows in some globals also for a copy of these globals."""
    table = getattr(importlib.import_module("torch.fx._symbolic_trace"), "_wrapped_fns_to_patch", {})
    for number, name in list(table):
        if number == id(scope):
            table[id(copy), name] = copy


def forget_fx_wraps(copy: dict[str, Any]) -> None:
    """Remove the names that :func:`copy_fx_wraps` registered."""
    table = getattr(importlib.import_module("torch.fx._symbolic_trace"), "_wrapped_fns_to_patch", {})
    for key in [key for key in table if key[0] == id(copy)]:
        del table[key]


def own_backend(like: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return a backend that behaves like a given one but has no compiled code in Dynamo's cache.

    Parameters
    ----------
    like : str or callable
        The given backend, or its name.
    """
    registry = importlib.import_module("torch._dynamo.backends.registry")
    compiler = registry.lookup_backend(like) if isinstance(like, str) else like

    def backend(*args: Any, **kwargs: Any) -> Any:
        return compiler(*args, **kwargs)

    backend.__name__ = like if isinstance(like, str) else getattr(like, "__name__", type(like).__name__)
    return backend


@contextlib.contextmanager
def separate_cache(codes: Iterable[CodeType]) -> Iterator[None]:
    """Separate the code that Dynamo compiles in the context from its earlier compilations of the same functions.

    Code in the context must compile with an :func:`own_backend`. Dynamo forgets the compiled code, its globals and the
    varying sizes when the context ends.

    Parameters
    ----------
    codes : iterable of CodeType
        Code that may run. Dynamo forgets that it gave up on code for which it has nothing compiled.
    """
    compiled = ThreadCompilations()
    cached = 0
    for code in codes:
        cached = max(cached, *map(_allow_compiling, (code, *resume_codes(code))))
    for seen in list(importlib.import_module("torch._dynamo.convert_frame").input_codes.seen):
        if (known := seen()) is not None:  # the run may reach it indirectly
            cached = max(cached, _allow_compiling(known))
    with (
        while_converting(compiled.converting), restored_counters(), removed_globals(), _higher_limits(cached),
        _disabled_reset(), _restored_module_hooks(), _separate_wrapper_code(), restored_eval_frame_override(),
        unprofiled_guards(),
    ):  # fmt: skip
        try:
            yield
        finally:
            compiled.forget()


@contextlib.contextmanager
def removed_globals() -> Iterator[None]:
    """Remove the globals that Dynamo creates in the context; the code that needs them does not run after it.

    Dynamo itself keeps the globals for its modules and those of unfinished code.
    """
    hooks: Any = getattr(importlib.import_module("torch._dynamo.utils"), "CleanupHook", None)
    tracer = importlib.import_module("torch._dynamo.symbolic_convert").InstructionTranslatorBase
    if not hasattr(hooks, "create") or not hasattr(tracer, "import_source"):  # a different torch
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
                    hook.scope = {hook.name: None}  # Dynamo calls the hook when the code is deleted


class ThreadCompilations:
    """The compilations of a thread, kept apart from those that Dynamo had and from the sizes that it saw."""

    def __init__(self) -> None:
        #: The code that Dynamo reached, by its address, with the compiled versions that it already had.
        self._before: dict[int, tuple[ref[CodeType], set[int]]] = {}
        self._profile: dict[str, Any] = {}
        # If this PyTorch lacks something, fail before anything is compiled.
        importlib.import_module("torch._C._dynamo.eval_frame").reset_code  # noqa: B018
        importlib.import_module("torch._dynamo.pgo")

    @contextlib.contextmanager
    def converting(self, code: CodeType) -> Iterator[None]:
        """Isolate the changes that the conversion of one frame makes."""
        known = self._before.get(id(code))
        if known is None or known[0]() is not code:
            self._before[id(code)] = weakref.ref(code), {id(entry.guard_manager) for entry in _entries(code)}
        with _swapped_size_profile(self._profile):
            yield

    def forget(self) -> None:
        """Make Dynamo forget the compiled code."""
        for reference, managers in self._before.values():
            code = reference()
            if code is None:
                continue
            if not managers:
                forget_code(code)
            for entry in _entries(code):
                if id(entry.guard_manager) not in managers:
                    _invalidate(entry)
            if managers:
                _resume_compiling(code)


@contextlib.contextmanager
def unprofiled_guards() -> Iterator[None]:
    """Stop Dynamo from timing guards, for which it flushes the processor's caches.

    This takes about 16 ms, more than half of the time to compile a small function.
    """
    guards = importlib.import_module("torch._dynamo.guards")
    if not hasattr(guards, "profile_guard_manager"):  # a different torch
        yield
        return
    with patched_here(guards, "profile_guard_manager", lambda *_: 0.0):
        yield


def _entries(code: CodeType) -> list[Any]:
    read = getattr(importlib.import_module("torch._dynamo.eval_frame"), "_debug_get_cache_entry_list", None)
    return list(read(code)) if read is not None else []


def _allow_compiling(code: CodeType) -> int:
    """Make Dynamo compile code on which it may have given up; return the number of compiled versions."""
    count = len(_entries(code))
    if count:
        _resume_compiling(code)
    else:
        forget_code(code)
    return count


def _resume_compiling(code: CodeType) -> None:
    """Make Dynamo compile code again for which it only uses compiled versions because it hit a recompile limit."""
    kinds = importlib.import_module("torch._dynamo.types")
    strategy = kinds.FrameExecStrategy(kinds.FrameAction.DEFAULT, kinds.FrameAction.DEFAULT)
    importlib.import_module("torch._C._dynamo.eval_frame").set_code_exec_strategy(code, strategy)


@contextlib.contextmanager
def _higher_limits(cached: int) -> Iterator[None]:
    """Raise the recompile limits by the number of versions that Dynamo already has."""
    config = importlib.import_module("torch._dynamo.config")
    names = ("recompile_limit", "accumulated_recompile_limit") if cached else ()
    with config.patch({name: getattr(config, name) + cached for name in names}):
        yield


@contextlib.contextmanager
def limits_for(copied: Iterable[CodeType], limits: Mapping[str, int]) -> Iterator[None]:
    """Apply recompile limits as if Dynamo had compiled nothing before, although it knows code that is not copied.

    Parameters
    ----------
    copied : iterable of CodeType
        The code that will run, if it is a copy. Nothing is compiled for it yet, however often its original was.
    limits : mapping
        The limits by name, see :func:`recompile_limits`.
    """
    copies = set(copied)
    seen = (known() for known in list(importlib.import_module("torch._dynamo.convert_frame").input_codes.seen))
    # A copy of a code object is equal to its original.
    cached = max((len(_entries(code)) for code in seen if code is not None and code not in copies), default=0)
    config = importlib.import_module("torch._dynamo.config")
    with config.patch({name: limit + cached for name, limit in limits.items()}):
        yield


def recompile_limits() -> dict[str, int]:
    """Return Dynamo's recompile limits by name."""
    config = importlib.import_module("torch._dynamo.config")
    return {name: getattr(config, name) for name in ("recompile_limit", "accumulated_recompile_limit")}


@contextlib.contextmanager
def restored_counters() -> Iterator[None]:
    """Restore Dynamo's counters, such as that of graph breaks, but keep the counts of other threads."""
    counters = importlib.import_module("torch._dynamo.utils").counters
    before = {name: counter.copy() for name, counter in counters.items()}
    thread = get_ident()

    @contextlib.contextmanager
    def counting(_: CodeType) -> Iterator[None]:
        if get_ident() == thread:
            yield
            return
        at_start = {name: counter.copy() for name, counter in counters.items()}
        try:
            yield
        finally:
            for name, counter in counters.items():
                more = counter - at_start.get(name, Counter())
                if more:
                    before.setdefault(name, Counter()).update(more)

    try:
        with while_converting(counting, everywhere=True):
            yield
    finally:
        counters.clear()
        counters.update(before)


def _invalidate(entry: Any) -> None:
    """Invalidate a cache entry, as Dynamo does when an object that it was compiled for is deleted.

    The entry stays in Dynamo's list. To not count towards the recompile limit, it claims to be compiled for a
    different object, with a name that no function has.
    """
    manager = entry.guard_manager
    deleted = importlib.import_module("torch._dynamo.guards").DeletedGuardManagerWrapper("The comparison has ended")
    deleted.id_matched_objs = {"": weakref.ref(_invalidate)}
    if getattr(manager, "extra_state", None) is not None:
        manager.extra_state.invalidate(manager.cache_entry, deleted)


@contextlib.contextmanager
def _separate_wrapper_code() -> Iterator[None]:
    """Give each wrapper that Dynamo puts around a module or a callable object its own code object.

    Otherwise they share one code object and its recompile limit, which the notebook may have used up.
    """
    home = importlib.import_module("torch._dynamo.external_utils")
    original = home.wrap_inline

    @functools.wraps(original)
    def wrap_inline(fn: Callable[..., Any]) -> Any:
        wrapper = original(fn)
        wrapper.__code__ = wrapper.__code__.replace()
        return wrapper

    with patched_here(home, "wrap_inline", wrap_inline):
        yield


@contextlib.contextmanager
def _restored_module_hooks() -> Iterator[None]:
    """Remove the hooks on all modules that a failed export leaves behind (torch 2.9)."""
    home = vars(importlib.import_module("torch.nn.modules.module"))
    tables = [table for name, table in home.items() if name.startswith("_global_") and isinstance(table, dict)]
    before = [dict(table) for table in tables]
    try:
        yield
    finally:
        for table, hooks in zip(tables, before, strict=True):
            table.clear()
            table.update(hooks)


@contextlib.contextmanager
def restored_eval_frame_override() -> Iterator[None]:
    """Undo what torch 2.11 leaves when it refuses to run a function compiled with ``fullgraph=True``.

    ``torch.jit.trace`` and ``torch.fx.symbolic_trace`` cause this. Dynamo would no longer compile nested frames.
    """
    frames = importlib.import_module("torch._C._dynamo.eval_frame")
    override = getattr(frames, "set_eval_frame_override", None)
    if override is None:
        yield
        return
    before = override(frames._EvalFrameOverride.NONE)
    override(before)
    try:
        yield
    finally:
        override(before)


def _disabled_reset() -> contextlib.AbstractContextManager[None]:
    """Disable ``torch._dynamo.reset``, which strict export calls and which would delete all compiled code."""
    return patched_here(importlib.import_module("torch._dynamo"), "reset", lambda: None)


@contextlib.contextmanager
def _swapped_size_profile(own: dict[str, Any]) -> Iterator[None]:
    """Give Dynamo a separate, initially empty record of varying sizes while the context is open.

    Parameters
    ----------
    own : dict
        The record, which is kept for the next context.
    """
    profile = importlib.import_module("torch._dynamo.pgo")
    names = [name for name in ("_CODE_STATE", "_INIT_CODE_STATE") if hasattr(profile, name)]
    before = {name: getattr(profile, name) for name in names}
    for name in names:
        setattr(profile, name, own.get(name))
    try:
        yield
    finally:
        own.update((name, getattr(profile, name)) for name in names)
        for name, value in before.items():
            setattr(profile, name, value)
