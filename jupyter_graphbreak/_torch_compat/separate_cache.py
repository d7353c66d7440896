"""Run front ends without the caches, tables and counters that they share with the notebook's own functions."""

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
from jupyter_graphbreak._torch_compat.patching import patched_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType
    from weakref import ref


def is_allowed_in_graph(function: Any) -> bool:
    """Whether Dynamo knows a function by its identity, so that it would not recognise a copy."""
    known = getattr(importlib.import_module("torch._dynamo.trace_rules"), "is_callable_allowed", None)
    return known is not None and bool(known(function))


def copy_fx_wraps(scope: dict[str, Any], copy: dict[str, Any]) -> None:
    """Register the names that ``torch.fx.wrap`` knows in some globals for a copy of these globals, too."""
    table = getattr(importlib.import_module("torch.fx._symbolic_trace"), "_wrapped_fns_to_patch", {})
    for number, name in list(table):
        if number == id(scope):
            table[id(copy), name] = copy


def forget_fx_wraps(copy: dict[str, Any]) -> None:
    """Take back what :func:`copy_fx_wraps` registered."""
    table = getattr(importlib.import_module("torch.fx._symbolic_trace"), "_wrapped_fns_to_patch", {})
    for key in [key for key in table if key[0] == id(copy)]:
        del table[key]


def own_backend(like: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return a backend that does what another does, but to which no compiled code in Dynamo's cache belongs.

    Parameters
    ----------
    like : str or callable
        The other backend, or its name.
    """
    registry = importlib.import_module("torch._dynamo.backends.registry")
    compiler = registry.lookup_backend(like) if isinstance(like, str) else like

    def backend(*args: Any, **kwargs: Any) -> Any:
        return compiler(*args, **kwargs)

    backend.__name__ = like if isinstance(like, str) else getattr(like, "__name__", type(like).__name__)
    return backend


@contextlib.contextmanager
def separate_cache(codes: Iterable[CodeType]) -> Iterator[None]:
    """Separate what Dynamo compiles while the context is open from what it has compiled of the same code before.

    Code in the context has to compile with an :func:`own_backend`. Nothing that is compiled meanwhile stays, nor do the
    sizes that Dynamo sees vary.

    Parameters
    ----------
    codes : iterable of CodeType
        Code that may run. Where Dynamo holds no compiled code for it, it must not have given up on it either.
    """
    compiled = CompiledHere()
    most = 0
    for code in codes:
        most = max(most, *map(_begin_anew, (code, *resume_codes(code))))
    for seen in list(importlib.import_module("torch._dynamo.convert_frame").input_codes.seen):
        if (known := seen()) is not None:  # what the given code leads to by ways that only a run shows
            most = max(most, _begin_anew(known))
    with (
        while_converting(compiled.converting), kept_counters(), _higher_limits(most), _no_reset(), _kept_hooks(),
        _own_wrappers(), kept_override(), unprofiled_guards(),
    ):  # fmt: skip
        try:
            yield
        finally:
            compiled.forget()


class CompiledHere:
    """What a thread compiles for a while, apart from what Dynamo holds, from its counters and from the sizes it saw."""

    def __init__(self) -> None:
        #: The code that Dynamo came to, by its address, with the compiled versions that it held of it before.
        self._before: dict[int, tuple[ref[CodeType], set[int]]] = {}
        self._profile: dict[str, Any] = {}
        # What this torch lacks fails here, before anything is compiled.
        importlib.import_module("torch._C._dynamo.eval_frame").reset_code  # noqa: B018
        importlib.import_module("torch._dynamo.pgo")

    @contextlib.contextmanager
    def converting(self, code: CodeType) -> Iterator[None]:
        """Keep apart what one conversion of a frame with some code changes."""
        known = self._before.get(id(code))
        if known is None or known[0]() is not code:
            self._before[id(code)] = weakref.ref(code), {id(entry.guard_manager) for entry in _entries(code)}
        with _exchanged_profile(self._profile):
            yield

    def forget(self) -> None:
        """Make Dynamo forget what was compiled."""
        for reference, managers in self._before.values():
            code = reference()
            if code is None:
                continue
            if not managers:
                forget_code(code)
            for entry in _entries(code):
                if id(entry.guard_manager) not in managers:
                    _drop(entry)
            if managers:
                _resume_compiling(code)


@contextlib.contextmanager
def unprofiled_guards() -> Iterator[None]:
    """Have Dynamo not time the guards of what it compiles: it flushes the processor's caches for that.

    Of compiling a small function this takes more than half, some 16 ms.
    """
    guards = importlib.import_module("torch._dynamo.guards")
    if not hasattr(guards, "profile_guard_manager"):  # another torch
        yield
        return
    with patched_here(guards, "profile_guard_manager", lambda *_: 0.0):
        yield


def _entries(code: CodeType) -> list[Any]:
    read = getattr(importlib.import_module("torch._dynamo.eval_frame"), "_debug_get_cache_entry_list", None)
    return list(read(code)) if read is not None else []


def _begin_anew(code: CodeType) -> int:
    """Have Dynamo compile code on which it may have given up; return how often it has compiled it."""
    count = len(_entries(code))
    if count:
        _resume_compiling(code)
    else:
        forget_code(code)
    return count


def _resume_compiling(code: CodeType) -> None:
    """Make Dynamo compile code again for which it only runs what it has compiled, because a recompile limit was hit."""
    kinds = importlib.import_module("torch._dynamo.types")
    strategy = kinds.FrameExecStrategy(kinds.FrameAction.DEFAULT, kinds.FrameAction.DEFAULT)
    importlib.import_module("torch._C._dynamo.eval_frame").set_code_exec_strategy(code, strategy)


@contextlib.contextmanager
def _higher_limits(held: int) -> Iterator[None]:
    """Raise the limits of recompilation by what Dynamo already holds of some code."""
    config = importlib.import_module("torch._dynamo.config")
    names = ("recompile_limit", "accumulated_recompile_limit") if held else ()
    with config.patch({name: getattr(config, name) + held for name in names}):
        yield


@contextlib.contextmanager
def kept_counters() -> Iterator[None]:
    """Put back Dynamo's counters, that of graph breaks for one, but for what other threads compile meanwhile."""
    counters = importlib.import_module("torch._dynamo.utils").counters
    before = {name: counted.copy() for name, counted in counters.items()}
    thread = get_ident()

    @contextlib.contextmanager
    def counting(_: CodeType) -> Iterator[None]:
        if get_ident() == thread:
            yield
            return
        begun = {name: counted.copy() for name, counted in counters.items()}
        try:
            yield
        finally:
            for name, counted in counters.items():
                more = counted - begun.get(name, Counter())
                if more:
                    before.setdefault(name, Counter()).update(more)

    try:
        with while_converting(counting, everywhere=True):
            yield
    finally:
        counters.clear()
        counters.update(before)


def _drop(entry: Any) -> None:
    """Take one entry out of use, as Dynamo does when an object that it was compiled for is gone.

    It stays in Dynamo's list. So that it does not count towards the recompile limit, it is one that was compiled for
    another object: under a name that no function has.
    """
    manager = entry.guard_manager
    deleted = importlib.import_module("torch._dynamo.guards").DeletedGuardManagerWrapper("The comparison has ended")
    deleted.id_matched_objs = {"": weakref.ref(_drop)}
    if getattr(manager, "extra_state", None) is not None:
        manager.extra_state.invalidate(manager.cache_entry, deleted)


@contextlib.contextmanager
def _own_wrappers() -> Iterator[None]:
    """Give each wrapper that Dynamo puts around a module or a callable object its own code object.

    Otherwise they share one, and with it the recompile limit: what a notebook compiled before would count.
    """
    home = importlib.import_module("torch._dynamo.external_utils")
    original = home.wrap_inline

    @functools.wraps(original)
    def wrap_inline(fn: Callable[..., Any]) -> Any:
        made = original(fn)
        made.__code__ = made.__code__.replace()
        return made

    with patched_here(home, "wrap_inline", wrap_inline):
        yield


@contextlib.contextmanager
def _kept_hooks() -> Iterator[None]:
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
def kept_override() -> Iterator[None]:
    """Take back what torch 2.11 leaves when it refuses to run a function compiled with ``fullgraph=True``.

    ``torch.jit.trace`` and ``torch.fx.symbolic_trace`` bring that about. Dynamo would compile no nested frame any more.
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


def _no_reset() -> contextlib.AbstractContextManager[None]:
    """Make ``torch._dynamo.reset`` do nothing: strict export calls it and would forget everything that was compiled."""
    return patched_here(importlib.import_module("torch._dynamo"), "reset", lambda: None)


@contextlib.contextmanager
def _exchanged_profile(own: dict[str, Any]) -> Iterator[None]:
    """Give Dynamo its own record of which sizes it has seen vary while the context is open; at first it has seen none.

    Parameters
    ----------
    own : dict
        That record, which is kept for the next time.
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
