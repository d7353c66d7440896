"""What takes the place of open files, sockets, connections and the like in a trial: they cannot be copied.

A file that is only read is opened once more, at the same position. What else a trial would do with such an object is an
effect, and stops the trial before it happens.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import csv
import ctypes
import gc
import io
import mmap
import multiprocessing.connection
import multiprocessing.pool
import multiprocessing.queues
import os
import queue
import socket
import sqlite3
import subprocess
import sys
import tempfile
import types
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from jupyter_graphbreak._torch_compat.configuration import disable_dynamo
from jupyter_graphbreak.experiments.trial.side_effects import is_listening, notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.report.schema import EffectKind

_FILES = (io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.BufferedRWPair, io.TextIOWrapper)
#: What ``ctypes`` makes of the functions of libraries.
_FUNCTION_POINTER: Any = ctypes.CFUNCTYPE(None).__mro__[1]
_CSV_WRITER = type(csv.writer(io.StringIO()))
#: Objects that act outside of the process or on other threads: the kind of their effects, and what using one does.
_HANDLES: tuple[tuple[Any, EffectKind, str], ...] = (
    (_FILES, "file", "uses the open file"),
    (tempfile._TemporaryFileWrapper, "file", "uses the open file"),  # noqa: SLF001 - it has no other name
    (mmap.mmap, "file", "uses a file that is mapped into memory"),
    (socket.socket, "network", "uses an open socket"),
    ((sqlite3.Connection, sqlite3.Cursor), "database", "uses an open database"),
    (multiprocessing.connection._ConnectionBase, "process", "uses a connection to another process"),  # noqa: SLF001 - it has no other name
    (concurrent.futures.Executor, "process", "hands work to another thread or process"),
    (queue.SimpleQueue, "process", "uses a queue of other threads"),
    (
        (multiprocessing.queues.Queue, multiprocessing.queues.SimpleQueue, multiprocessing.pool.Pool, subprocess.Popen),
        "process",
        "uses another process",
    ),
    (types.GeneratorType, "state", "advances a generator"),
    ((ctypes.CDLL, _FUNCTION_POINTER), "process", "calls a function of a library"),
)
#: The databases of Python's ``dbm``, whose classes have no name to import.
_DATABASES = {"_dbm", "_gdbm"}


def stand_in(value: Any, clone: Callable[[Any], Any]) -> Any:
    """Return what takes the place of an object in a trial; ``None`` for an object that needs no stand-in.

    Parameters
    ----------
    clone : callable
        Copies what an object writes to.
    """
    if isinstance(value, StandIn | contextvars.ContextVar):  # a trial has its own values of context variables
        return value
    if (stream := _name_of_stream(value)) is not None:
        return StandardStream(stream)
    if isinstance(value, _CSV_WRITER):
        return _writer_like(value, clone)
    if isinstance(value, _FILES) and (again := _opened_again(value)) is not None:
        return again
    for kinds, kind, what in _HANDLES:
        if isinstance(value, kinds):
            return _made(value, kind, _described(what, value))
    if type(value).__module__ in _DATABASES:
        return _made(value, "database", "uses an open database")
    return None


def _described(what: str, value: Any) -> str:
    name = None
    with contextlib.suppress(Exception):  # closed, detached, or of the user's class
        name = getattr(value, "name", None)
    return f"{what} {name}" if isinstance(name, str) and what.endswith("file") else what


class StandIn:
    """Stops the trial that uses it. Outside of trials it does nothing."""

    __module__ = "builtins"  # like an object of Python's own it is looked at by nobody

    _graphbreak_effect: tuple[EffectKind, str]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        kind, what = object.__getattribute__(self, "_graphbreak_effect")
        known = object.__getattribute__(self, "_graphbreak_known")
        if name in known:
            return known[name]
        return _using(kind, what)

    def __deepcopy__(self, _: dict[Any, Any]) -> StandIn:
        return self

    def __copy__(self) -> StandIn:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stand-in of a trial cannot be pickled")


def _using(kind: EffectKind, what: str) -> Callable[..., Any]:
    def use(*_: Any, **__: Any) -> Any:
        if is_listening():
            notice(kind, what, sys._getframe(1))  # noqa: SLF001 - Python has no other name for it

    return disable_dynamo(use)


def _special(name: str) -> Callable[..., Any]:
    def use(self: StandIn, *_: Any, **__: Any) -> Any:
        kind, what = object.__getattribute__(self, "_graphbreak_effect")
        if is_listening():
            notice(kind, what, sys._getframe(1))  # noqa: SLF001 - Python has no other name for it
        return self if name in {"__iter__", "__enter__"} else None

    use.__name__ = name
    return disable_dynamo(use)


_SPECIAL = (
    "__iter__",
    "__next__",
    "__enter__",
    "__call__",
    "__getitem__",
    "__setitem__",
    "__delitem__",
    "__contains__",
)
for _name in _SPECIAL:
    setattr(StandIn, _name, _special(_name))
#: Attributes that only tell something.
_TELLING = ("name", "mode", "closed", "encoding", "errors", "newlines", "family", "type", "proto", "timeout")


def _made(value: Any, kind: EffectKind, what: str) -> StandIn:
    made = object.__new__(StandIn)
    known = {}
    if not isinstance(value, ctypes.CDLL):
        for name in _TELLING:
            with contextlib.suppress(Exception):  # closed, or detached
                known[name] = getattr(value, name)
    vars(made).update(_graphbreak_effect=(kind, what), _graphbreak_known=known)
    return made


class StandardStream:
    """Writes to what ``sys.stdout`` or ``sys.stderr`` is now: in a trial, to what keeps its output."""

    __module__ = "builtins"  # as above

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return getattr(getattr(sys, object.__getattribute__(self, "_name")), name)

    def __deepcopy__(self, _: dict[Any, Any]) -> StandardStream:
        return self


#: The streams that trials replace, by their names.
_streams: list[tuple[str, Any]] = []


def note_streams() -> None:
    """Remember what the standard streams are now, so that they are known when others take their place."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if all(stream is not known for _, known in _streams):
            _streams.append((name, stream))
    del _streams[:-8]


def _name_of_stream(value: Any) -> str | None:
    if not isinstance(value, io.TextIOBase):
        return None
    streams = [
        ("stdout", sys.stdout), ("stderr", sys.stderr), ("stdout", sys.__stdout__), ("stderr", sys.__stderr__),
        *_streams,
    ]  # fmt: skip
    return next((name for name, stream in streams if stream is value), None)


def _opened_again(file: Any) -> Any:
    """Return a file that is only read once more, at the same position; ``None`` where that cannot be done."""
    try:
        if file.closed or file.writable() or not file.readable() or not file.seekable():
            return None
        name, position = file.name, file.tell()
        if not isinstance(name, str | bytes) or not os.path.samestat(os.stat(name), os.fstat(file.fileno())):  # noqa: PTH116
            return None
        descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        again: Any = io.FileIO(descriptor, closefd=False)
        again.name = name
        if not isinstance(file, io.FileIO):
            again = io.BufferedReader(again)
        if isinstance(file, io.TextIOWrapper):
            again = io.TextIOWrapper(again, file.encoding, file.errors)
        weakref.finalize(again, os.close, descriptor)  # Python would warn of a file that nobody closes
        again.seek(position)
    except (OSError, ValueError):  # its lines are being read, or it is gone
        return None
    return again


def _writer_like(writer: Any, clone: Callable[[Any], Any]) -> Any:
    """Return a CSV writer to a copy of what a writer writes to."""
    for method in gc.get_referents(writer):
        target = getattr(method, "__self__", None)
        if target is not None and not isinstance(target, type | types.ModuleType):
            return csv.writer(clone(target), writer.dialect)
    return _made(writer, "file", "writes to an open file")
