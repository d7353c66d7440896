"""Run front ends without the caches, tables and counters that they share with the notebook's own functions."""

from __future__ import annotations

import contextlib
import functools
import importlib
import weakref
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.compiled import forget_code, resume_codes
from jupyter_graphbreak._torch_compat.patching import patched

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
    seen = importlib.import_module("torch._dynamo.convert_frame").input_codes.seen
    before = {id(code): (code, {id(entry.guard_manager) for entry in _entries(code)}) for code in _living(seen)}
    most = 0
    for code in codes:
        most = max(most, *map(_begin_anew, (code, *resume_codes(code))))
    for code in _living(seen):  # what the given code leads to by ways that only a run shows
        most = max(most, _begin_anew(code))
    with (
        _higher_limits(most), _kept_counters(), _fresh_profile(), _no_reset(), _kept_hooks(), _own_wrappers(),
        kept_override(), unprofiled_guards(),
    ):  # fmt: skip
        try:
            yield
        finally:
            for code in _living(seen):
                _, held = before.get(id(code), (code, set()))
                if not held:
                    forget_code(code)
                for entry in _entries(code):
                    if id(entry.guard_manager) not in held:
                        _drop(entry)
                if held:
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
    with patched(guards, "profile_guard_manager", lambda *_: 0.0):
        yield


def _living(references: list[ref[CodeType]]) -> list[CodeType]:
    return [code for reference in references if (code := reference()) is not None]


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
def _kept_counters() -> Iterator[None]:
    """Put back Dynamo's counters, that of graph breaks for one."""
    counters = importlib.import_module("torch._dynamo.utils").counters
    before = {name: counted.copy() for name, counted in counters.items()}
    try:
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

    with patched(home, "wrap_inline", wrap_inline):
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
    return patched(importlib.import_module("torch._dynamo"), "reset", lambda: None)


@contextlib.contextmanager
def _fresh_profile() -> Iterator[None]:
    """Make Dynamo forget, while the context is open, which sizes it has seen vary; then restore that."""
    profile = importlib.import_module("torch._dynamo.pgo")
    names = [name for name in ("_CODE_STATE", "_INIT_CODE_STATE") if hasattr(profile, name)]
    before = {name: getattr(profile, name) for name in names}
    for name in names:
        setattr(profile, name, None)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(profile, name, value)
