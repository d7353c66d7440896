"""Determine which run a thread works for, so that watching and patching affect only the threads of that run.

A run claims the thread that begins it, the threads that are started from there while it lasts, and the work that it
submits to thread pools. A thread that begins its own run works for that run alone. Runs on one thread are nested, and
each of them sees everything. Internal errors are reported to the run and never raised in the user's program.
"""

from __future__ import annotations

import concurrent.futures.thread
import contextlib
import functools
import importlib
import inspect
import sys
import threading
import weakref
from contextvars import ContextVar
from multiprocessing.pool import Pool, ThreadPool
from threading import get_ident
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak import faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType


class Claim:
    """A run's claim to its threads.

    ``on_fault`` receives a description of an internal error, and the error. ``on_submit`` is called when work is
    submitted to a thread pool, before the pool receives the work. It receives the frame of our wrapper, whose caller
    submits the work. Its exceptions reach that caller unless they are an :exc:`Exception`.
    """

    def __init__(
        self, on_fault: Callable[[str, Exception], None] | None, on_submit: Callable[[FrameType], None] | None
    ) -> None:
        self.on_fault = on_fault
        self.on_submit = on_submit
        self.thread = get_ident()
        self.is_open = True
        #: The frame and compile ids of the run's compilations. PyTorch compiles some parts, such as the backward pass
        #: of a graph on a device, on its own threads.
        self.compilations: set[tuple[Any, Any]] = set()

    def covers_this_thread(self) -> bool:
        """Return whether the calling thread works for the run."""
        if not self.is_open:
            return False
        claims = current_claims()
        if claims:
            return self in claims
        return bool(self.compilations) and not _is_python_thread() and _current_compilation() in self.compilations


#: The runs that a thread began, outermost first, by thread id.
_claims_by_thread: dict[int, tuple[Claim, ...]] = {}
#: The runs for which a thread was started, with a reference to the thread, by the thread's address.
_claims_by_started_thread: dict[int, tuple[weakref.ref[threading.Thread], tuple[Claim, ...]]] = {}
#: The runs that this context works for: those that began in it, and those that submitted the work that it runs through
#: a pool or ``asyncio.to_thread``. Work that was submitted outside any run has an empty tuple.
_submitted_claims: ContextVar[tuple[Claim, ...] | None] = ContextVar("graphbreak_claims", default=None)
_lock = threading.RLock()
#: The patches that record which runs start threads and submit work: owner, name, original and replacement.
_patches: list[tuple[Any, str, Any, Any]] = []


@contextlib.contextmanager
def claim_thread(
    on_fault: Callable[[str, Exception], None] | None = None, on_submit: Callable[[FrameType], None] | None = None
) -> Iterator[Claim]:
    """Claim this thread, and the threads and work that it starts, while the context is open; see :class:`Claim`."""
    claim = Claim(on_fault, on_submit)
    with _lock:
        if not _claims_by_thread:
            # All replacements are created before the first is set: if creating one fails, nothing is replaced.
            _patches[:] = [
                (owner, name, original := getattr(owner, name), wrap(original))
                for owner, name, wrap in _functions_to_patch()
            ]
            for owner, name, _, replacement in _patches:
                setattr(owner, name, replacement)
        _claims_by_thread[claim.thread] = (*_claims_by_thread.get(claim.thread, ()), claim)
    token = _submitted_claims.set(_claims_by_thread[claim.thread])
    try:
        yield claim
    finally:
        claim.is_open = False
        with contextlib.suppress(ValueError):  # the run ends in a different context
            _submitted_claims.reset(token)
        with _lock:
            _claims_by_thread[claim.thread] = tuple(
                other for other in _claims_by_thread[claim.thread] if other is not claim
            )
            if not _claims_by_thread[claim.thread]:
                del _claims_by_thread[claim.thread]
            if not _claims_by_thread:
                _claims_by_started_thread.clear()
                for owner, name, original, replacement in _patches:
                    if getattr(owner, name) is replacement:
                        setattr(owner, name, original)
                _patches.clear()


def _functions_to_patch() -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """Yield the functions that start threads or pass work to pools: owner, name, and the function that wraps them."""
    yield threading.Thread, "start", _wrap_start
    # Dynamo traces `submit` up to its lock, so a replacement of `submit` would appear in stacks.
    work_item_class = getattr(concurrent.futures.thread, "_WorkItem", None)
    if hasattr(work_item_class, "run"):
        yield work_item_class, "__init__", _wrap_work_item_init
        yield work_item_class, "run", _wrap_work_item_run
    for name in ("apply_async", "_map_async", "imap", "imap_unordered"):  # all others call one of these
        if hasattr(Pool, name):
            yield Pool, name, _wrap_pool_method


def current_claims() -> tuple[Claim, ...]:
    """Return the runs that the calling thread works for, outermost first."""
    ident = get_ident()
    own_claims = _claims_by_thread.get(ident)
    if own_claims is not None:
        return own_claims
    submitted_claims = _submitted_claims.get()
    open_claims = tuple(claim for claim in submitted_claims or () if claim.is_open)
    if open_claims or submitted_claims == ():
        return open_claims
    for reference, claims in list(_claims_by_started_thread.values()):
        thread = reference()
        if thread is not None and thread.ident == ident:
            return claims
    return ()


def current_run_check() -> Callable[[], bool]:
    """Return a function that checks whether a thread works for the current run or, without a run, is this thread."""
    claims = current_claims()
    if claims:
        return claims[-1].covers_this_thread
    thread = get_ident()
    return lambda: get_ident() == thread


def note_fault(activity: str, fault: Exception) -> None:
    """Report an internal error to the innermost run of the calling thread, or print it if there is none."""
    on_fault = next((claim.on_fault for claim in reversed(current_claims()) if claim.on_fault is not None), None)
    if on_fault is not None:
        on_fault(activity, fault)
    else:
        faults.print_fault_once(activity, fault)


def _wrap_start(original: Callable[[threading.Thread], None]) -> Any:
    """Return a ``Thread.start`` that records for which runs a thread is started."""

    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        try:
            claims = current_claims()
            if claims:
                address = id(self)
                _claims_by_started_thread[address] = (
                    weakref.ref(self, lambda _: _claims_by_started_thread.pop(address, None)),
                    claims,
                )
        except Exception as fault:  # noqa: BLE001 - the thread still starts, but works for no run
            faults.report_fault("following a new thread", fault, note_fault)
        try:
            original(self)
        except BaseException as error:
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
            raise  # a bare raise adds no entry for this function to the traceback

    return as_stdlib_function(start, original)


def _wrap_work_item_init(original: Callable[..., None]) -> Any:
    """Return an ``__init__`` for work items of ``ThreadPoolExecutor`` that records which runs submit them."""

    @functools.wraps(original)
    def new_item(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self._graphbreak_claims = _find_claims_of_work(sys._getframe())

    return as_stdlib_function(new_item, original)


def _wrap_work_item_run(original: Callable[..., None]) -> Any:
    """Return a ``run`` for work items of ``ThreadPoolExecutor`` that attributes work to the runs that submitted it."""

    @functools.wraps(original)
    def run(self: Any, *args: Any) -> None:
        token = _submitted_claims.set(getattr(self, "_graphbreak_claims", ()))
        try:
            original(self, *args)
        finally:
            _submitted_claims.reset(token)

    return as_stdlib_function(run, original)


def _wrap_pool_method(original: Callable[..., Any]) -> Any:
    """Return a method of ``multiprocessing.pool.Pool`` that records for which runs its threads receive work."""

    @functools.wraps(original)
    def submit(self: Pool, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, ThreadPool):
            func = _wrap_work(func, _find_claims_of_work(sys._getframe()))
        return original(self, func, *args, **kwargs)

    return as_stdlib_function(submit, original)


def _claims_of_work(wrapper: FrameType) -> tuple[Claim, ...]:
    """Return the runs for which the caller of our wrapper submits work, after notifying them."""
    claims = current_claims()
    for claim in claims:
        if claim.on_submit is not None:
            claim.on_submit(wrapper)
    return claims


_find_claims_of_work = faults.with_fallback("following submitted work", _claims_of_work, lambda _: (), note_fault)


def _wrap_work(fn: Callable[..., Any], claims: tuple[Claim, ...]) -> Any:
    """Return a function whose work is attributed to the given runs, whichever thread calls it."""

    def work(*args: Any, **kwargs: Any) -> Any:
        token = _submitted_claims.set(claims)
        try:
            return fn(*args, **kwargs)
        except BaseException as error:
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
            raise  # as in _wrap_start
        finally:
            _submitted_claims.reset(token)

    return as_stdlib_function(work, Pool.apply)


def as_stdlib_function(function: Any, original: Any) -> Any:
    """Give a function the file and line of one in the standard library, which Dynamo recognizes, and return it."""
    code: CodeType = inspect.unwrap(original).__code__
    function.__code__ = function.__code__.replace(co_filename=code.co_filename, co_firstlineno=code.co_firstlineno)
    skip_code = getattr(importlib.import_module("torch._dynamo.eval_frame"), "skip_code", None)
    if skip_code is not None:
        skip_code(function.__code__)
    return function


@contextlib.contextmanager
def break_at_call(function: Any) -> Iterator[None]:
    """While the context is open, make Dynamo break at each call to a function, as ``disallow_in_graph`` does."""
    ids = getattr(importlib.import_module("torch._dynamo.trace_rules"), "_disallowed_callable_ids", None)
    if ids is None:
        yield
        return
    ids.add(id(function))
    try:
        yield
    finally:
        ids.remove(id(function))


def _is_python_thread() -> bool:
    ident = get_ident()
    return any(thread.ident == ident and type(thread).__name__ != "_DummyThread" for thread in threading.enumerate())


def _current_compilation() -> tuple[Any, Any] | None:
    """Return the frame and compile ids of the current compilation on this thread; ``None`` without one."""
    current = getattr(importlib.import_module("torch._guards").CompileContext, "current_compile_id", None)
    compilation = current() if current is not None else None
    return (compilation.frame_id, compilation.frame_compile_id) if compilation is not None else None
