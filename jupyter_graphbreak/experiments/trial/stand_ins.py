"""Stand-ins in trials for open files, sockets, connections and similar objects, which cannot be copied.

A read-only file is reopened at the same position, and a stream in memory is copied. Any use of a stand-in, other than
reading an attribute such as ``name``, is an effect and stops the trial before the effect happens. The stand-in for a
built-in iterator, such as a generator, is an iterator of the same type. Dynamo traces the original in place of its
stand-in, so that the graph breaks are those of the original.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import csv
import ctypes
import functools
import gc
import inspect
import io
import itertools
import mmap
import multiprocessing.connection
import multiprocessing.heap
import multiprocessing.pool
import multiprocessing.queues
import multiprocessing.sharedctypes
import multiprocessing.synchronize
import os
import queue
import socket
import sqlite3
import subprocess
import sys
import tempfile
import types
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from jupyter_graphbreak._torch_compat.compiled import skip_functions
from jupyter_graphbreak._torch_compat.configuration import disable_dynamo
from jupyter_graphbreak._torch_compat.isolation import is_dynamo_frame, redirect_tracing
from jupyter_graphbreak._torch_compat.patching import patch_attribute
from jupyter_graphbreak.experiments.trial.side_effects import (
    COMMUNICATION_EFFECT,
    INPUT_WAIT_EFFECT,
    SCHEDULED_WORK_EFFECT,
    SHELL_EFFECT,
    SUBMITTED_WORK_EFFECT,
    is_in_trial,
    is_listening,
    notify_listeners,
)
from jupyter_graphbreak.faults import finalize
from jupyter_graphbreak.recording.targets import is_user_class
from jupyter_graphbreak.records.attributes import is_instance
from jupyter_graphbreak.records.package_paths import OWN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from jupyter_graphbreak.report.schema import EffectKind

_FILE_TYPES = (io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.BufferedRWPair, io.TextIOWrapper)
#: The types of streams that pass everything on to a different stream.
_WRAPPER_TYPES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom)
#: The original function, because trials replace ``os.close``.
_original_close = os.close
#: The type of library functions in ``ctypes``.
_FUNCTION_POINTER: Any = ctypes.CFUNCTYPE(None).__mro__[1]
_C_DATA: Any = ctypes.Structure.__mro__[1]
#: The effect of using memory that other processes share.
SHARED_MEMORY_EFFECT = "uses memory that processes share"
_CSV_WRITER = type(csv.writer(io.StringIO()))
#: Objects whose use has an effect that a copy cannot confine: types, kind and description of the effect.
_HANDLES: tuple[tuple[Any, EffectKind, str], ...] = (
    (_FILE_TYPES, "file", "uses the open file"),
    (
        (tempfile._TemporaryFileWrapper, tempfile.SpooledTemporaryFile),  # noqa: SLF001 - there is no public name
        "file",
        "uses the open file",
    ),
    (mmap.mmap, "file", "uses a file that is mapped into memory"),
    ((socket.socket, socket.SocketIO), "network", "uses an open socket"),
    ((sqlite3.Connection, sqlite3.Cursor), "database", "uses an open database"),
    (multiprocessing.connection._ConnectionBase, "process", "uses a connection to another process"),  # noqa: SLF001 - there is no public name
    (concurrent.futures.Executor, "process", SUBMITTED_WORK_EFFECT),
    (queue.SimpleQueue, "process", "uses a queue of other threads"),
    (
        (multiprocessing.queues.Queue, multiprocessing.queues.SimpleQueue, multiprocessing.pool.Pool, subprocess.Popen),
        "process",
        "uses another process",
    ),
    (multiprocessing.sharedctypes.SynchronizedBase, "process", SHARED_MEMORY_EFFECT),
    (
        (multiprocessing.synchronize.SemLock, multiprocessing.synchronize.Condition, multiprocessing.synchronize.Event),
        "process",
        "uses a lock that processes share",
    ),
    ((types.CoroutineType, types.AsyncGeneratorType), "state", "advances a coroutine"),
    ((ctypes.CDLL, _FUNCTION_POINTER), "process", "calls a library function"),
)
#: Types in modules that need not be loaded, whose objects a copy cannot confine: module, name, kind, description.
_LAZY_HANDLES: tuple[tuple[str, str, EffectKind, str], ...] = (
    ("asyncio.events", "AbstractEventLoop", "process", SCHEDULED_WORK_EFFECT),
    ("multiprocessing.shared_memory", "SharedMemory", "process", SHARED_MEMORY_EFFECT),
    ("multiprocessing.shared_memory", "ShareableList", "process", SHARED_MEMORY_EFFECT),
    ("multiprocessing.managers", "BaseProxy", "process", "uses another process"),
    ("multiprocessing.managers", "BaseManager", "process", "uses another process"),
    ("_pickle", "Pickler", "file", "uses the open file"),
    ("_pickle", "Unpickler", "file", "uses the open file"),
    ("gzip", "GzipFile", "file", "uses the open file"),
    ("bz2", "BZ2File", "file", "uses the open file"),
    ("lzma", "LZMAFile", "file", "uses the open file"),
    ("tarfile", "TarFile", "file", "uses the open file"),
    ("torch._C", "Future", "state", "uses a future"),
    ("h5py._hl.base", "HLObject", "file", "uses an open HDF5 file"),
    ("cv2", "VideoWriter", "file", "writes to a video"),
    ("cv2", "VideoCapture", "file", "reads a frame of a video"),
    *(("cv2", name, "state", "uses a filter of OpenCV") for name in ("KalmanFilter", "BackgroundSubtractor")),
    ("PIL.ImageDraw", "ImageDraw", "state", "draws on an image"),
    ("cv2", "FileStorage", "file", "uses the open file"),
    *(("lmdb", name, "database", "uses an open database") for name in ("Environment", "Transaction", "Cursor")),
    *(("netCDF4", name, "file", "uses an open NetCDF file") for name in ("Dataset", "Variable", "Group")),
    ("pyarrow.lib", "NativeFile", "file", "uses the open file"),
    ("pyarrow.lib", "_CRecordBatchWriter", "file", "uses the open file"),
    ("pyarrow.orc", "ORCWriter", "file", "uses the open file"),
    ("pyarrow.parquet.core", "ParquetWriter", "file", "uses the open file"),
    ("soundfile", "SoundFile", "file", "uses the open file"),
    ("shelve", "Shelf", "database", "uses an open database"),
    ("IPython.core.interactiveshell", "InteractiveShell", "state", SHELL_EFFECT),
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter", "state", "takes a batch from a DataLoader"),
    ("torch.utils.tensorboard.writer", "SummaryWriter", "file", "writes to a TensorBoard log"),
    ("tensorboardX.writer", "SummaryWriter", "file", "writes to a TensorBoard log"),
    ("torch._C._distributed_c10d", "Store", "network", "uses a store of torch.distributed"),
)
#: The modules of Python's ``dbm`` databases, whose classes cannot be imported.
_DATABASE_MODULES = {"_dbm", "_gdbm"}


def stream_in_memory(value: Any) -> Any:
    """Return the stream in memory that a stream is or wraps, or ``None`` for anything else."""
    try:
        while type(value) in _WRAPPER_TYPES:
            value = value.buffer if type(value) is io.TextIOWrapper else value.raw
    except ValueError:  # the stream is detached
        return None
    return value if is_instance(value, io.StringIO | io.BytesIO) else None


def _copy_wrapper(stream: Any, clone: Callable[[Any], Any]) -> Any:
    """Return a wrapper around a copy of a stream in memory. Data not yet written stays with the original."""
    if stream.closed:
        return stream
    if type(stream) is io.TextIOWrapper:
        line_buffering, write_through = stream.line_buffering, stream.write_through
        inner_copy = clone(stream.buffer)
        return io.TextIOWrapper(
            inner_copy, stream.encoding, stream.errors, line_buffering=line_buffering, write_through=write_through
        )
    result = type(stream)(clone(stream.raw))
    result.seek(stream.tell())
    return result


def make_stand_in(value: Any, clone: Callable[[Any], Any]) -> Any:
    """Return the stand-in for an object in a trial, or ``None`` if the object needs none."""
    if is_instance(value, StandIn | StandardStream | contextvars.ContextVar) or _is_guarded_iterator(value):
        return value  # each trial has its own context for context variables
    if (stream := _stream_name(value)) is not None:
        standard_stream = StandardStream(stream)
        _originals[standard_stream] = value
        return standard_stream
    if is_instance(value, _CSV_WRITER):
        return _copy_csv_writer(value, clone)
    if type(value) in _WRAPPER_TYPES and stream_in_memory(value) is not None:
        return _copy_wrapper(value, clone)
    if is_instance(value, _FILE_TYPES) and (reopened_file := _reopen(value)) is not None:
        return reopened_file
    if is_instance(value, types.GeneratorType) or calls_functions(value):
        return stand_in_of_iterator(value)
    effect = _effect_of_use(value)
    return None if effect is None else _stand_in_for(value, *effect)


#: The modules of iterators that may call functions.
_ITERATOR_MODULES = frozenset({"builtins", "itertools"})


def calls_functions(iterator: Any) -> bool:
    """Return whether a built-in iterator calls functions, which may change the objects that they refer to."""
    if type(iterator).__module__ not in _ITERATOR_MODULES or not is_instance(iterator, Iterator):
        return False
    return any(
        is_instance(part, types.FunctionType | types.MethodType | functools.partial)
        or (is_instance(part, types.BuiltinMethodType) and not is_instance(part.__self__, types.ModuleType))
        or calls_functions(part)
        for referent in gc.get_referents(iterator)
        for part in (referent if type(referent) is tuple else (referent,))
    )


def stand_in_of_iterator(value: Any) -> Any:
    """Return the stand-in for an iterator that cannot be copied, or ``None`` for any other object."""
    if not is_instance(value, Iterator):
        return None
    make = _BUILT_IN_ITERATORS.get(type(value))
    if make is None:
        return _stand_in_for(value, "state", _ITERATOR_EFFECT)
    generator = _guarded_iterator()
    if type(value) is types.GeneratorType:
        _originals[generator] = value
    return make(generator)


_ITERATOR_EFFECT = "advances an iterator that cannot be copied"


def _guarded_iterator() -> Iterator[Any]:
    """Stop the trial that advances this generator. Dynamo treats it like any other generator."""
    if is_listening():
        notify_listeners("state", _ITERATOR_EFFECT, sys._getframe(1))  # noqa: SLF001 - there is no public function
    yield from ()


#: The types of built-in iterators over other iterators, each with a function that creates one from an iterator. The
#: stand-ins have the same types, because Dynamo's breaks depend on the type.
_BUILT_IN_ITERATORS: dict[type, Callable[[Iterator[Any]], Iterator[Any]]] = {
    types.GeneratorType: lambda iterator: iterator,
    map: lambda iterator: map(_identity, iterator),
    filter: lambda iterator: filter(None, iterator),
    zip: zip,
    enumerate: enumerate,
    itertools.accumulate: itertools.accumulate,
    itertools.chain: itertools.chain,
    itertools.compress: lambda iterator: itertools.compress(iterator, ()),
    itertools.cycle: itertools.cycle,
    itertools.dropwhile: lambda iterator: itertools.dropwhile(bool, iterator),
    itertools.filterfalse: lambda iterator: itertools.filterfalse(None, iterator),
    itertools.groupby: itertools.groupby,
    itertools.islice: lambda iterator: itertools.islice(iterator, None),
    itertools.pairwise: itertools.pairwise,
    itertools.starmap: lambda iterator: itertools.starmap(_identity, iterator),
    itertools.takewhile: lambda iterator: itertools.takewhile(bool, iterator),
    itertools.zip_longest: itertools.zip_longest,
}


skip_functions(_guarded_iterator)


def _identity(value: Any) -> Any:
    return value


def _is_guarded_iterator(value: Any) -> bool:
    """Return whether an iterator is a stand-in that :func:`stand_in_of_iterator` created."""
    if type(value) is types.GeneratorType:
        return value.gi_code is _guarded_iterator.__code__
    return type(value) in _BUILT_IN_ITERATORS and any(map(_is_guarded_iterator, gc.get_referents(value)))


def _effect_of_use(value: Any) -> tuple[EffectKind, str] | None:
    """Return the kind and description of the effect of using an object, or ``None`` if its use is not an effect."""
    for kinds, kind, description in _HANDLES:
        if is_instance(value, kinds):
            return kind, _describe(description, value)
    for module, name, kind, description in _LAZY_HANDLES:
        if is_instance(value, getattr(sys.modules.get(module), name, ())):
            return kind, description
    parallel_class: Any = getattr(sys.modules.get("torch.nn.parallel.distributed"), "DistributedDataParallel", ())
    if is_instance(value, parallel_class) and value.process_group.size() > 1:
        return "network", COMMUNICATION_EFFECT
    archive_class: Any = getattr(sys.modules.get("zipfile"), "ZipFile", ())
    if is_instance(value, archive_class) and value.mode != "r":
        return "file", _describe("uses the open file", value)
    if is_instance(value, _C_DATA) and is_instance(
        getattr(value, "_wrapper", None), multiprocessing.heap.BufferWrapper
    ):
        return "process", SHARED_MEMORY_EFFECT
    # Streams in memory can be copied.
    if (
        is_instance(value, io.IOBase)
        and not is_instance(value, io.StringIO | io.BytesIO)
        and is_user_class(type(value))
    ):
        return "file", _describe("uses the stream", value)
    if is_instance(value, memoryview) and is_instance(value.obj, mmap.mmap):
        return "file", "uses a file that is mapped into memory"
    return ("database", "uses an open database") if type(value).__module__ in _DATABASE_MODULES else None


def _describe(description: str, value: Any) -> str:
    name = None
    with contextlib.suppress(Exception):  # closed, detached, or an instance of a user class
        name = getattr(value, "name", None)
    return f"{description} {name}" if isinstance(name, str) and description.endswith("file") else description


class StandIn:
    """An object whose use stops a trial. Outside of trials, it does nothing."""

    __module__ = "builtins"  # so that searches treat it as a built-in object

    _graphbreak_effect: tuple[EffectKind, str]

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # the class that Dynamo sees
        return object.__getattribute__(self, "_graphbreak_type")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        kind, description = object.__getattribute__(self, "_graphbreak_effect")
        readable_attributes = object.__getattribute__(self, "_graphbreak_attributes")
        if name in readable_attributes:
            return readable_attributes[name]
        frame = sys._getframe(1)  # noqa: SLF001 - there is no public function
        if is_dynamo_frame(frame):
            return getattr(_originals[self], name)  # a guard reads it
        is_method = callable(inspect.getattr_static(object.__getattribute__(self, "_graphbreak_type"), name, None))
        if not is_method and is_listening() and not frame.f_code.co_filename.startswith(OWN_FOLDER):
            notify_listeners(kind, description, frame)  # data, which the program may use without calling anything
        return _make_announcing_method(kind, description)

    def __bool__(self) -> bool:
        return True

    def __deepcopy__(self, _: dict[Any, Any]) -> StandIn:
        return self

    def __copy__(self) -> StandIn:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stand-in of a trial cannot be pickled")


def _make_announcing_method(kind: EffectKind, description: str) -> Callable[..., Any]:
    def use(*_: Any, **__: Any) -> Any:
        if is_listening():
            notify_listeners(kind, description, sys._getframe(1))  # noqa: SLF001 - there is no public function

    return disable_dynamo(use)


def _make_special_method(name: str) -> Callable[..., Any]:
    def use(self: StandIn, *_: Any, **__: Any) -> Any:
        kind, description = object.__getattribute__(self, "_graphbreak_effect")
        if is_listening():
            notify_listeners(kind, description, sys._getframe(1))  # noqa: SLF001 - there is no public function
        return self if name in {"__iter__", "__enter__"} else None

    use.__name__ = name
    return disable_dynamo(use)


#: The originals of stand-ins and standard streams, stored where searches for objects do not find them.
_originals: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def trace_originals() -> AbstractContextManager[None]:
    """Make Dynamo trace originals in place of their stand-ins on this thread while the context is open."""
    kinds = (StandIn, StandardStream, types.GeneratorType)
    return redirect_tracing(lambda value: _originals.get(value, value) if type(value) in kinds else value)


_SPECIAL_METHODS = (
    "__iter__", "__next__", "__enter__", "__exit__", "__call__", "__len__", "__setattr__", "__delattr__",
    "__getitem__", "__setitem__", "__delitem__", "__contains__",
)  # fmt: skip
for _name in _SPECIAL_METHODS:
    setattr(StandIn, _name, _make_special_method(_name))
#: Attributes that may be read without an effect.
_INFORMATIVE_ATTRIBUTES = (
    "name", "mode", "closed", "encoding", "errors", "newlines", "family", "type", "proto", "timeout",
)  # fmt: skip


def _stand_in_for(value: Any, kind: EffectKind, description: str) -> StandIn:
    result = object.__new__(StandIn)
    readable_attributes = {}
    if not is_instance(value, ctypes.CDLL):
        for name in _INFORMATIVE_ATTRIBUTES:
            with contextlib.suppress(Exception):  # closed, or detached
                readable_attributes[name] = getattr(value, name)
    vars(result).update(
        _graphbreak_effect=(kind, description), _graphbreak_attributes=readable_attributes, _graphbreak_type=type(value)
    )
    _originals[result] = value
    return result


class StandardStream:
    """Writes to the current ``sys.stdout`` or ``sys.stderr``, which captures the output of a trial."""

    __module__ = "builtins"  # as above

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return getattr(getattr(sys, object.__getattribute__(self, "_name")), name)

    def __deepcopy__(self, _: dict[Any, Any]) -> StandardStream:
        return self


class _GuardedInput:
    """A standard input that stops trials before they read from it. Other threads read from it as usual."""

    __module__ = "builtins"  # as above

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        if name not in _INFORMATIVE_ATTRIBUTES and is_in_trial():
            notify_listeners("process", INPUT_WAIT_EFFECT, sys._getframe(1))  # noqa: SLF001 - there is no public function
        return getattr(self._stream, name)

    def __iter__(self) -> Any:
        if is_in_trial():
            notify_listeners("process", INPUT_WAIT_EFFECT, sys._getframe(1))  # noqa: SLF001 - there is no public function
        return iter(self._stream)


def refuse_input() -> contextlib.AbstractContextManager[None]:
    """Stop trials on this thread before they read from the standard input while the context is open."""
    return patch_attribute(sys, "stdin", _GuardedInput(sys.stdin))


#: The streams that trials have replaced or will replace, with their names.
_streams: list[tuple[str, Any]] = []


def remember_streams() -> None:
    """Remember the current standard streams, so that they are recognized after they have been replaced."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if all(stream is not remembered_stream for _, remembered_stream in _streams):
            _streams.append((name, stream))
    del _streams[:-8]


def _stream_name(value: Any) -> str | None:
    if not is_instance(value, io.TextIOBase):
        return None
    streams = [
        ("stdout", sys.stdout), ("stderr", sys.stderr), ("stdout", sys.__stdout__), ("stderr", sys.__stderr__),
        *_streams,
    ]  # fmt: skip
    return next((name for name, stream in streams if stream is value), None)


def _reopen(file: Any) -> Any:
    """Reopen a read-only file at the same position, or return ``None`` if that is impossible."""
    try:
        if file.closed or file.writable() or not file.readable() or not file.seekable():
            return None
        name, position = file.name, file.tell()
        if not is_instance(name, str | bytes) or not os.path.samestat(os.stat(name), os.fstat(file.fileno())):  # noqa: PTH116
            return None
        descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        reopened_file: Any = io.FileIO(descriptor, closefd=False)
        reopened_file.name = name
        if not is_instance(file, io.FileIO):
            reopened_file = io.BufferedReader(reopened_file)
        if is_instance(file, io.TextIOWrapper):
            reopened_file = io.TextIOWrapper(reopened_file, file.encoding, file.errors)
        # Close the descriptor explicitly, because Python would warn about an unclosed file.
        finalize(reopened_file, "closing a copy of a file", _original_close, descriptor)
        reopened_file.seek(position)
    except (OSError, ValueError):  # the file is being iterated over, or was deleted
        return None
    return reopened_file


def _copy_csv_writer(writer: Any, clone: Callable[[Any], Any]) -> Any:
    """Return a CSV writer for a copy of a writer's target, or a stand-in if the target is not found."""
    for method in gc.get_referents(writer):
        target = getattr(method, "__self__", None)
        if target is not None and not is_instance(target, type | types.ModuleType):
            return csv.writer(clone(target), writer.dialect)
    return _stand_in_for(writer, "file", "writes to an open file")
