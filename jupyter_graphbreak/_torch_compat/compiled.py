"""Compiled functions: which objects are some, what Dynamo keeps of them, and how it forgets."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import weakref
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.patching import patched, patched_here, replaced_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType
    from weakref import ref

    from jupyter_graphbreak._torch_compat.threads import Claim


def is_torch_compile(value: Any) -> bool:
    """Whether an object is ``torch.compile`` itself, also with arguments bound to it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    optimize = getattr(sys.modules.get("torch._dynamo"), "optimize", None)
    called = value.func if isinstance(value, functools.partial) else value
    return called is torch.compile or (optimize is not None and called is optimize)  # an array has no simple ==


def compiled_callable(value: Any) -> Any:
    """Return the plain function behind a compiled function or module, ``None`` if the object is not compiled."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if isinstance(value, torch.nn.Module):
        modules = value.__dict__.get("_modules")
        held = modules if isinstance(modules, dict) else {}  # that of a scripted module is none, and is not compiled
        inner = value.__dict__.get("_orig_mod") or held.get("_orig_mod")
        if inner is not None:
            return inner
        return value if value.__dict__.get("_compiled_call_impl") is not None else None
    try:
        return inspect.getattr_static(value, "_torchdynamo_orig_callable", None) or (
            getattr(value, "__func__", None) and compiled_callable(value.__func__)
        )
    except TypeError:
        return None


def compiled_with(value: Any) -> tuple[Any, bool | None] | None:
    """Return the backend of a compiled function or module and its ``dynamic``; ``None`` if they cannot be told.

    The backend can be called with a graph, with the mode and the options that ``torch.compile`` was given.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.nn.Module):
        inner = value.__dict__.get("_compiled_call_impl")
        context = getattr(value, "dynamo_ctx", None) if inner is None else _context(inner)
    else:
        context = _context(getattr(value, "__func__", value))
    backend = getattr(context, "callback", None)
    while (wrapped := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
        backend = wrapped
    return (backend, getattr(context, "_dynamic", None)) if callable(backend) else None


def _context(function: Any) -> Any:
    """Return what ``torch.compile`` made for a function, out of the closure of the wrapper around it."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = getattr(function, "__closure__", None) or ()
    return next((cell.cell_contents for name, cell in zip(names, cells, strict=True) if name == "self"), None)


def is_left_alone(value: Any) -> bool:
    """Whether the user asked torch to leave a function alone: ``torch.compiler.disable``, ``torch._dynamo.skip``.

    A wrapper that ``functools.wraps`` gave the mark of what it wraps is not.
    """
    is_marked = bool(getattr(value, "_torchdynamo_disable", False))
    return is_marked and not getattr(getattr(value, "__wrapped__", None), "_torchdynamo_disable", False)


def is_forbidden(value: Any) -> bool:
    """Whether a function raises when it is called in compiled code, as those under ``torch.compiler.set_stance``."""
    return bool(getattr(value, "_dynamo_forbidden", False))


def resume_codes(code: CodeType) -> list[CodeType]:
    """Return the resume functions that Dynamo has made for a code object, and those made for these."""
    cache = importlib.import_module("torch._dynamo.resume_execution").ContinueExecutionCache.cache
    resumes: dict[int, CodeType] = {}
    pending = [code]
    while pending:
        for made in cache.get(pending.pop(), {}).values():
            resume = made if hasattr(made, "co_name") else made[0]
            if id(resume) not in resumes:  # one that stands in a loop resumes in itself
                resumes[id(resume)] = resume
                pending.append(resume)
    return list(resumes.values())


def has_cached_code(code: CodeType) -> bool:
    """Whether Dynamo holds a compiled version of a code object."""
    read = getattr(importlib.import_module("torch._dynamo.eval_frame"), "_debug_get_cache_entry_list", None)
    return bool(read(code)) if read is not None else False


def forget(codes: Iterable[CodeType]) -> None:
    """Make Dynamo forget what it compiled or skipped of some code objects, and their resume functions."""
    cache = importlib.import_module("torch._dynamo.resume_execution").ContinueExecutionCache.cache
    for code in codes:
        for known in (code, *resume_codes(code)):
            forget_code(known)
            if known in cache:
                cache[known] = {}  # resume functions made anew owe nothing to an earlier run


def forget_code(code: CodeType) -> None:
    """Make Dynamo forget what it compiled of one code object, or that it skips it, and that it ever began it."""
    importlib.import_module("torch._C._dynamo.eval_frame").reset_code(code)
    tracker: Any = getattr(importlib.import_module("torch._dynamo.convert_frame"), "input_codes", None)
    if id(code) in getattr(tracker, "seen_ids", ()):
        index = next((index for index, seen in enumerate(tracker.seen) if seen() is code), None)
        if index is not None:  # with its reference goes what would take its id out of the set
            del tracker.seen[index]
            tracker.seen_ids.discard(id(code))


@contextlib.contextmanager
def codes_held() -> Iterator[list[ref[CodeType]]]:
    """Yield the code objects that Dynamo holds when the context begins; none once everything was forgotten.

    These are all that it began: of some it holds compiled code, of others that it is to skip them.
    """
    tracker = importlib.import_module("torch._dynamo.convert_frame").input_codes
    clear = tracker.clear
    # Not Dynamo's own references, which call it back when they end.
    held = [weakref.ref(code) for seen in tracker.seen if (code := seen()) is not None]

    def clear_both() -> None:
        held.clear()
        clear()

    with patched(tracker, "clear", clear_both):
        yield held


def is_held(code: CodeType) -> bool:
    """Whether Dynamo holds compiled code of a code object, or that it is to skip it."""
    return code in importlib.import_module("torch._dynamo.convert_frame").input_codes


def compilations_begun() -> int | None:
    """Return how many compilations Dynamo has numbered since it was last reset, ``None`` where it does not say."""
    counted: Any = getattr(importlib.import_module("torch._dynamo.convert_frame"), "FRAME_COMPILE_COUNTER", None)
    return sum(list(counted.values())) if hasattr(counted, "values") else None


@contextlib.contextmanager
def counted_compilations(claim: Claim) -> Iterator[Callable[[], int | None]]:
    """Count the compilations that Dynamo begins for a run; the count is ``None`` if Dynamo does not say.

    Yields
    ------
    callable
        Returns the count so far.
    """
    module = importlib.import_module("torch._dynamo.convert_frame")
    if not hasattr(module, "get_compile_id"):  # another torch
        yield lambda: None
        return
    counted: list[None] = []

    def count(made: Any, *_: Any) -> Any:
        if claim.is_here():
            counted.append(None)
            claim.compilations.add((getattr(made, "frame_id", None), getattr(made, "frame_compile_id", None)))
        return made

    with replaced_result(module, "get_compile_id", count):
        yield lambda: len(counted)


@contextlib.contextmanager
def before_each_compilation(check: Callable[[], None]) -> Iterator[None]:
    """Call a function before Dynamo compiles anything on this thread, while the context is open.

    What it raises ends the call that is compiled.
    """
    module = importlib.import_module("torch._dynamo.convert_frame")
    original: Any = module._compile

    @functools.wraps(original)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check()
        return original(*args, **kwargs)

    with patched_here(module, "_compile", checked):
        yield
