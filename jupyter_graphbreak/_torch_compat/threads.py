"""Which run a thread works for: what is watched, patched or silenced concerns only the threads of the run that asks.

A run claims the thread that begins it, the threads that are started from there while it lasts, and the work that it
submits to thread pools. A thread that begins a run of its own works for that one alone. Runs on one thread lie within
each other, and each of them sees everything. What fails on our side is told to the run, and never raised in the user's
program.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak import faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType


class Claim:
    """The claim of one run to its threads.

    Parameters
    ----------
    on_fault : callable or None
        Receives what failed on our side, and the error.

    Attributes
    ----------
    is_open : bool
        Whether the run lasts.
    compilations : set of tuple
        What it compiles, each by the ids of the frame and of the compilation. PyTorch does some of that work on threads
        of its own, such as the backward pass on a device.
    """

    def __init__(self, on_fault: Callable[[str, Exception], None] | None = None) -> None:
        self.on_fault = on_fault
        self.thread = get_ident()
        self.is_open = True
        self.compilations: set[tuple[Any, Any]] = set()

    def is_here(self) -> bool:
        """Whether the thread that calls this works for the run."""
        if not self.is_open:
            return False
        claims = claims_here()
        if claims:
            return self in claims
        return bool(self.compilations) and not _is_started_by_python() and _compilation() in self.compilations


#: The runs that a thread began, outermost first, by the number of the thread.
_begun: dict[int, tuple[Claim, ...]] = {}
#: The runs for which a thread was started, with a reference to it, by the address of the thread.
_inherited: dict[int, tuple[weakref.ref[threading.Thread], tuple[Claim, ...]]] = {}
#: The runs that passed work to a thread which existed before: a pool, or ``asyncio.to_thread``. Work that was submitted
#: outside of any run has an empty tuple.
_carried: ContextVar[tuple[Claim, ...] | None] = ContextVar("graphbreak_claims", default=None)
_lock = threading.RLock()
#: What notes for which runs work is done on other threads: owner, name, original and replacement.
_noting: list[tuple[Any, str, Any, Any]] = []


@contextlib.contextmanager
def claimed(on_fault: Callable[[str, Exception], None] | None = None) -> Iterator[Claim]:
    """Claim this thread, and what it starts and submits, while the context is open; see :class:`Claim`."""
    claim = Claim(on_fault)
    with _lock:
        if not _begun:
            followed: tuple[tuple[Any, str, Callable[[Any], Any]], ...]
            followed = ((threading.Thread, "start", _starting), (ThreadPoolExecutor, "submit", _submitting))
            for owner, name, follow in followed:
                original = getattr(owner, name)
                _noting.append((owner, name, original, follow(original)))
                setattr(owner, name, _noting[-1][-1])
        _begun[claim.thread] = (*_begun.get(claim.thread, ()), claim)
    token = _carried.set(_begun[claim.thread])
    try:
        yield claim
    finally:
        claim.is_open = False
        with contextlib.suppress(ValueError):  # the run ends in another context than it began in
            _carried.reset(token)
        with _lock:
            _begun[claim.thread] = tuple(other for other in _begun[claim.thread] if other is not claim)
            if not _begun[claim.thread]:
                del _begun[claim.thread]
            if not _begun:
                _inherited.clear()
                for owner, name, original, ours in _noting:
                    if getattr(owner, name) is ours:
                        setattr(owner, name, original)
                _noting.clear()


def claims_here() -> tuple[Claim, ...]:
    """Return the runs that the calling thread works for, outermost first."""
    number = get_ident()
    begun = _begun.get(number)
    if begun is not None:
        return begun
    carried = _carried.get()
    still_open = tuple(claim for claim in carried or () if claim.is_open)
    if still_open or carried == ():
        return still_open
    for reference, claims in list(_inherited.values()):
        thread = reference()
        if thread is not None and thread.ident == number:
            return claims
    return ()


def same_run() -> Callable[[], bool]:
    """Return what says whether a thread works for the run that calls this; without a run, whether it is this thread."""
    claims = claims_here()
    if claims:
        return claims[-1].is_here
    thread = get_ident()
    return lambda: get_ident() == thread


def note_fault(what: str, fault: Exception) -> None:
    """Tell the innermost run that the calling thread works for what failed on our side; without one, say so."""
    told = next((claim.on_fault for claim in reversed(claims_here()) if claim.on_fault is not None), None)
    if told is not None:
        told(what, fault)
    else:
        faults.print_fault_once(what, fault)


def _starting(original: Callable[[threading.Thread], None]) -> Any:
    """Return ``Thread.start`` that notes for which runs a thread is started."""

    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        try:
            claims = claims_here()
            if claims:
                address = id(self)
                _inherited[address] = weakref.ref(self, lambda _: _inherited.pop(address, None)), claims
        except Exception:  # noqa: BLE001, S110 - the thread starts all the same, and works for no run
            pass
        try:
            original(self)
        except BaseException as error:
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
            raise  # a bare raise adds no entry for this function to the traceback

    return _as_of_python(start, original)


def _submitting(original: Callable[..., Any]) -> Any:
    """Return ``ThreadPoolExecutor.submit`` that notes for which runs work is submitted."""

    @functools.wraps(original)
    def submit(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):  # then the work is done all the same, and belongs to no run
            fn = _working(fn, claims_here())
        return original(self, fn, *args, **kwargs)

    return _as_of_python(submit, original)


def _working(fn: Callable[..., Any], claims: tuple[Claim, ...]) -> Any:
    """Return a function whose calls work for some runs, whatever the thread that makes them was started for."""

    def work(*args: Any, **kwargs: Any) -> Any:
        token = _carried.set(claims)
        try:
            return fn(*args, **kwargs)
        except BaseException as error:
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
            raise  # as in _starting
        finally:
            _carried.reset(token)

    return _as_of_python(work, ThreadPoolExecutor.submit)


def _as_of_python(function: Any, original: Any) -> Any:
    """Make Dynamo treat a function as Python's own: it goes by the file, and does not trace Python's modules."""
    function.__code__ = function.__code__.replace(co_filename=_code_of(original).co_filename)
    skip_code = getattr(importlib.import_module("torch._dynamo.eval_frame"), "skip_code", None)
    if skip_code is not None:
        skip_code(function.__code__)
    return function


def _code_of(function: Any) -> CodeType:
    code: CodeType = inspect.unwrap(function).__code__
    return code


def _is_started_by_python() -> bool:
    number = get_ident()
    return any(thread.ident == number and type(thread).__name__ != "_DummyThread" for thread in threading.enumerate())


def _compilation() -> tuple[Any, Any] | None:
    """Return what is compiled on this thread."""
    current = getattr(importlib.import_module("torch._guards").CompileContext, "current_compile_id", None)
    compilation = current() if current is not None else None
    return (compilation.frame_id, compilation.frame_compile_id) if compilation is not None else None
