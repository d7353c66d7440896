"""Detect files that extension modules open. No audit event reports them, so trials replace the opening functions."""

from __future__ import annotations

import functools
import os
import re
import sys
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak._torch_compat.configuration import disable_dynamo
from jupyter_graphbreak.experiments.trial.side_effects import notify_listeners, short_description
from jupyter_graphbreak.records.attributes import is_instance, unwrap
from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from types import BuiltinMethodType, FrameType

    from jupyter_graphbreak.report.schema import EffectKind

    #: Notifies the listeners of a call that has an effect, given its arguments and the frame that makes it.
    Announce = Callable[[tuple[Any, ...], dict[str, Any], FrameType], None]


class _Opener(NamedTuple):
    """A description of how a function or class opens or writes files, or of its other effect outside the copies."""

    #: The parameter that says whether a file is only read. Empty if the file is always written.
    parameter: str = ""
    position: int = -1
    #: The values of this parameter for which a file is only read.
    reading_values: tuple[Any, ...] = ()
    #: Whether a call without this argument only reads the file.
    reads_by_default: bool = True
    #: The kind of the effect.
    kind: EffectKind = "file"
    #: Whether a string argument may be something other than a path.
    takes_other_strings: bool = False
    #: Whether the first string is an SQL statement.
    takes_sql: bool = False
    #: The effect of every call, as the rest of a sentence. Empty if the effect depends on a path.
    description: str = ""

    def only_reads(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether a call with these arguments reads a file without changing it."""
        if not self.parameter:
            return False
        mode = args[self.position] if self.position < len(args) else kwargs.get(self.parameter)
        return self.reads_by_default if mode is None else mode in self.reading_values


_WRITES, _WRITES_IF_PATH = _Opener(), _Opener(takes_other_strings=True)
_RUNS_SQL = _Opener(kind="database", takes_sql=True)
_CHANGES_DATABASE = _Opener(kind="database", description="changes an open database")
_TRAINER = _Opener(description="writes a trained model")
_OPENCV_SETTER = _Opener(kind="state", description="changes the settings of OpenCV")
_FUNCTION_WITH_MODE = _Opener("mode", 1, ("r", "rb"))
_METHOD_WITH_MODE = _Opener("mode", 2, ("r", "rb"))
_LMDB_OPENER = _Opener("readonly", 3, (True,), reads_by_default=False, kind="database")
#: Methods of DuckDB's connections, and functions for its default connection, that change a database without SQL.
_DUCKDB_CHANGES = (
    "abort", "append", "appender", "begin", "checkpoint", "commit", "create_function", "install_extension",
    "load_extension", "register", "register_filesystem", "remove_function", "rollback", "unregister",
    "unregister_filesystem",
)  # fmt: skip
_ARROW_OPENERS = {
    **dict.fromkeys(("OSFile", "memory_map"), _FUNCTION_WITH_MODE),
    **dict.fromkeys(("create_memory_map", "output_stream"), _WRITES),
}
#: The functions and classes to replace, by module and dotted name.
_OPENERS: dict[str, dict[str, _Opener]] = {
    "av": {"open": _Opener("mode", 2, ("r",))},
    "cv2": {
        "VideoWriter": _WRITES,
        "FileStorage": _Opener("flags", 1, (0,)),
        **dict.fromkeys(("setNumThreads", "setRNGSeed", "setUseOptimized"), _OPENCV_SETTER),
    },
    "duckdb": {
        "connect": _Opener("read_only", 1, (True,), reads_by_default=False, kind="database"),
        **dict.fromkeys(("sql", "query", "execute", "executemany"), _RUNS_SQL),
        **dict.fromkeys(_DUCKDB_CHANGES, _CHANGES_DATABASE),
    },
    "_duckdb": {
        **{f"DuckDBPyConnection.{name}": _RUNS_SQL for name in ("sql", "query", "execute", "executemany", "_submit")},
        **{f"DuckDBPyConnection.{name}": _CHANGES_DATABASE for name in _DUCKDB_CHANGES},
    },
    "h5py.h5f": {"open": _Opener("flags", 1, (0,), reads_by_default=False), "create": _WRITES},
    "lmdb": dict.fromkeys(("open", "Environment"), _LMDB_OPENER),
    "lmdb.cpython": dict.fromkeys(("open", "Environment"), _LMDB_OPENER),
    "netCDF4": {"Dataset": _FUNCTION_WITH_MODE},
    "polars.dataframe.frame": {
        f"DataFrame.write_{form}": _WRITES_IF_PATH
        for form in ("avro", "csv", "delta", "excel", "ipc", "ipc_stream", "json", "ndjson", "parquet")
    },
    "polars.lazyframe.frame": {
        f"LazyFrame.sink_{form}": _WRITES_IF_PATH for form in ("csv", "delta", "ipc", "ndjson", "parquet")
    },
    "pyarrow": _ARROW_OPENERS,
    "pyarrow.lib": _ARROW_OPENERS,
    "pyarrow.csv": dict.fromkeys(("write_csv", "CSVWriter"), _WRITES),
    "pyarrow.dataset": {"write_dataset": _WRITES},
    "pyarrow._fs": {
        f"FileSystem.{name}": _WRITES
        for name in ("create_dir", "delete_dir", "delete_dir_contents", "delete_file", "move", "copy_file",
                     "open_output_stream", "open_append_stream")
    },
    "pyarrow.feather": {"write_feather": _WRITES},
    "pyarrow.fs": {"copy_files": _WRITES},
    "pyarrow.ipc": dict.fromkeys(("new_file", "new_stream"), _WRITES),
    "pyarrow.orc": {"ORCWriter.__init__": _WRITES},
    "pyarrow.parquet.core": {"ParquetWriter.__init__": _WRITES},
    "sentencepiece": dict.fromkeys(("SentencePieceTrainer.Train", "SentencePieceTrainer.train"), _TRAINER),
    "soundfile": {"SoundFile.__init__": _METHOD_WITH_MODE},
    "tokenizers": {"Tokenizer.save": _WRITES},
}  # fmt: skip
#: The modules with functions or classes to replace.
EXTENSION_MODULES = frozenset(_OPENERS)
#: Matches the names of functions that write a file if an argument is a path: ``imwrite``, ``write_csv``, ``save``.
_WRITER_NAME = re.compile(r"(?:^|_|^im)(?:write|save|dump(?!s)|export)|^to_(?:csv|parquet)$")
#: Matches a single SQL statement that changes neither a database nor a file.
_READING_SQL = re.compile(
    r"(?is)(?!.*\b(?:insert|update|delete|copy)\b)\s*(?:select|with|from|values|describe|show)\b[^;]*;?\s*"
)
#: Matches strings that look like paths because they contain a folder or a suffix.
_PATH_PATTERN = re.compile(r"[^\n\0]*(?:[/\\][^\n\0]*|\.\w{1,12})")
#: The names of the types of functions that are not written in Python. These types have no common base.
_COMPILED_FUNCTIONS = frozenset(
    {"builtin_function_or_method", "cython_function_or_method", "fused_cython_function", "nb_func"}
)
#: The names of the types of unbound methods that are not written in Python.
_COMPILED_METHODS = frozenset({"method_descriptor", "cython_function_or_method", "instancemethod", "nb_method"})
#: Packages that need no wrapper: PyTorch or Python reports their file writes, or they are our own.
_AUDITED_PACKAGES = frozenset({"torch", "numpy", __name__.partition(".")[0]}) | sys.stdlib_module_names


def file_replacements() -> Iterator[tuple[Any, str, Any]]:
    """Yield the owner, the name and the replacement of each function and class that opens or writes files."""
    listed_keys: set[tuple[int, str]] = set()
    for module, openers in _OPENERS.items():
        owner: Any = sys.modules.get(module)
        for dotted_name, opener in openers.items() if owner is not None else ():
            *outer_names, name = dotted_name.split(".")
            parent = functools.reduce(lambda part, step: getattr(part, step, None), outer_names, owner)
            if hasattr(parent, name):
                listed_keys.add((id(parent), name))
                yield parent, name, _wrap_opener(getattr(parent, name), opener)
    for owner, name in _all_writers(len(sys.modules)):
        if (id(owner), name) not in listed_keys:
            yield owner, name, _wrap_opener(vars(owner)[name], _WRITES_IF_PATH)


@functools.lru_cache(maxsize=1)
def _all_writers(_: int) -> list[tuple[ModuleType | type, str]]:
    """Return the compiled functions and methods of installed packages whose names say that they write files.

    The parameter is the number of loaded modules, so that an import makes the cached result invalid.
    """
    writers: dict[tuple[int, str], tuple[ModuleType | type, str]] = {}
    examined_types: set[int] = set()
    for module in sys.modules.copy().values():
        if type(module) is not ModuleType:
            continue
        content = vars(module)
        if not _may_write(content.get("__name__"), content.get("__file__")):
            continue
        writers |= {(id(owner), name): (owner, name) for owner, name in _writers_of(module, examined_types)}
    return list(writers.values())


@functools.cache
def _may_write(module: object, file: object) -> bool:
    """Return whether a module belongs to an installed package whose functions need a wrapper."""
    return str(module or "").partition(".")[0] not in _AUDITED_PACKAGES and is_library(str(file or ""))


#: The writers of each module, with the module's number of names, because examining all modules takes half a second.
_known_writers: dict[int, tuple[ModuleType, int, list[tuple[ModuleType | type, str]]]] = {}


def _writers_of(module: ModuleType, examined_types: set[int]) -> list[tuple[ModuleType | type, str]]:
    """Return the compiled functions and methods of a module whose names say that they write files."""
    content = vars(module)
    known_result = _known_writers.get(id(module))
    if known_result is not None and known_result[0] is module and known_result[1] == len(content):
        return known_result[2]
    writers: list[tuple[ModuleType | type, str]] = []
    for name, value in list(content.items()):
        # The name may already refer to a replacement, which refers to the original.
        if _WRITER_NAME.search(str(name)) and is_extension_function(unwrap(value)):
            writers.append((module, name))
        if is_instance(value, type):
            writers += _writing_methods(value, examined_types)
    _known_writers[id(module)] = module, len(content), writers
    return writers


def _writing_methods(cls: type, examined_types: set[int]) -> Iterator[tuple[type, str]]:
    """Yield the methods of a class and its bases that are not written in Python and whose names say that they write."""
    for base in cls.__mro__:
        if id(base) in examined_types:
            continue
        examined_types.add(id(base))
        if str(base.__module__).partition(".")[0] not in _AUDITED_PACKAGES:
            for name, method in list(vars(base).items()):
                if _WRITER_NAME.search(str(name)) and type(unwrap(method)).__name__ in _COMPILED_METHODS:
                    yield base, name


def wrap_writing_method(method: BuiltinMethodType) -> Callable[..., Any] | None:
    """Return the replacement for a bound method whose name says that it writes a file, else ``None``."""
    if not _WRITER_NAME.search(method.__name__) or is_instance(method.__self__, ModuleType | type | None):
        return None
    cls = next((cls for cls, name in _writing_methods(type(method.__self__), set()) if name == method.__name__), None)
    if cls is None:
        return None
    replacement = _wrap_opener(unwrap(vars(cls)[method.__name__]), _WRITES_IF_PATH)
    return MethodType(replacement, method.__self__)


def is_extension_function(function: Any) -> bool:
    """Return whether a function is written in C, in Cython or with nanobind, not in Python."""
    return type(function).__name__ in _COMPILED_FUNCTIONS


def cache_replacements(make: Callable[..., Any]) -> Callable[..., Any]:
    """Cache the replacements that a function creates, because creating them again takes longer than most runs."""
    replacements: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def cached_replacement(original: Any, *details: Hashable) -> Any:
        key = (id(original), *details)
        if key not in replacements:
            # The cache refers to the original, so that no other object gets its id.
            replacements[key] = original, make(original, *details)
        return replacements[key][1]

    return cached_replacement


@cache_replacements
def _wrap_opener(original: Any, opener: _Opener) -> Any:
    """Return a function or class that announces the effect of a call before the original has the effect."""
    if is_instance(original, type):
        return _make_imitating_class(original, opener)
    return add_announcement(original, functools.partial(_announce, opener))


def add_announcement(original: Callable[..., Any], announce: Announce) -> Callable[..., Any]:
    """Return a function that announces a call before it calls the original. Dynamo does not trace it."""

    @functools.wraps(original)
    def announce_and_call(*args: Any, **kwargs: Any) -> Any:
        announce(args, kwargs, sys._getframe(1))  # noqa: SLF001 - there is no public function
        return original(*args, **kwargs)

    return disable_dynamo(announce_and_call)


def _make_imitating_class(original: type, opener: _Opener) -> type:
    """Return an imitation that creates instances of a class whose own methods cannot be replaced."""

    def make_instance(_: type, *args: Any, **kwargs: Any) -> Any:
        _announce(opener, args, kwargs, sys._getframe(1))  # noqa: SLF001 - there is no public function
        return original(*args, **kwargs)

    class ImitatingType(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original)

        def __getattr__(cls, name: str) -> Any:
            return getattr(original, name)

    # Dynamo would create an instance without calling a `__call__` of `ImitatingType`.
    content = {"__doc__": original.__doc__, "__module__": original.__module__, "__new__": disable_dynamo(make_instance)}
    return ImitatingType(original.__name__, (), content)


def _announce(opener: _Opener, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> None:
    if opener.takes_sql:
        text = next((value for value in (*args, *kwargs.values()) if isinstance(value, str)), "")
        if not _READING_SQL.fullmatch(text):
            notify_listeners(opener.kind, f"runs the SQL statement {short_description(text)}", frame)
        return
    if opener.description:
        notify_listeners(opener.kind, opener.description, frame)
        return
    if _is_in_memory(kwargs.get("fapl"), args[:1]):
        return
    accepts_any_string = not opener.takes_other_strings
    paths = (value for value in (*args, *kwargs.values()) if _is_path(value, accepts_any_string=accepts_any_string))
    path = next(paths, None)
    if path is not None and not opener.only_reads(args, kwargs):
        verb = "opens the database" if opener.kind == "database" else "writes to the file"
        notify_listeners(opener.kind, f"{verb} {short_description(path)}", frame)


def _is_in_memory(access_properties: Any, name_argument: tuple[Any, ...]) -> bool:
    """Return whether h5py opens a file that exists only in memory, or a stream in memory."""
    drivers: Any = sys.modules.get("h5py.h5fd")
    if access_properties is None or drivers is None:
        return False
    driver = access_properties.get_driver()
    if driver == drivers.CORE:
        return not access_properties.get_fapl_core()[1]
    return bool(
        driver == drivers.fileobj_driver
        and name_argument
        and bytes(name_argument[0]).startswith(b"<_io.BytesIO object at ")
    )


def _is_path(value: Any, *, accepts_any_string: bool) -> bool:
    """Return whether an argument is a path; with ``accepts_any_string``, any string except ":memory:" is one."""
    if isinstance(value, os.PathLike):
        return True
    # Without `accepts_any_string`, bytes are the content of a file.
    text = os.fsdecode(value) if isinstance(value, bytes) and accepts_any_string else value
    is_text = isinstance(text, str) and text != ":memory:"
    return is_text and (accepts_any_string or _PATH_PATTERN.fullmatch(text) is not None)
