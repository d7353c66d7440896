"""Process state that code can change and that can be restored: environment, handlers, limits, settings."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import contextvars
import ctypes
import dis
import functools
import gc
import linecache
import locale
import logging
import operator
import os
import signal
import sys
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak._torch_compat.process_settings import CONFIGURATIONS, context_variables, process_settings
from jupyter_graphbreak._torch_compat.structured_trace import trace_logger
from jupyter_graphbreak.experiments.trial.assigned_attributes import (
    LibraryContainer,
    LibraryNamespace,
    LibraryOwner,
    LibraryPart,
    LoadedModules,
    is_library_code,
)
from jupyter_graphbreak.experiments.trial.code_roles import is_own_code
from jupyter_graphbreak.experiments.trial.side_effects import ENVIRONMENT, FOLDER
from jupyter_graphbreak.recording.steady import DEFERRED
from jupyter_graphbreak.records.package_paths import is_library
from jupyter_graphbreak.records.records import StackEntry

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterable, Iterator, Mapping

_MISSING = object()
#: The prefix of the descriptions of changes to PyTorch's compiler settings.
SETS_COMPILER = "sets settings of torch."


class _Part(NamedTuple):
    """A part of the state.

    Parameters
    ----------
    what : str
        The change to it, worded as the rest of a sentence.
    read, write : callable
        Return the value, and restore it.
    names : frozenset of str
        The names that code must call or assign to change it.
    owners : frozenset of str
        The names that may own ``names``: the code must contain one of them; empty if ``names`` are unambiguous.
    is_assigned : bool
        Whether only an assignment changes it, so that code which reads it is not the cause.
    """

    what: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]
    names: frozenset[str]
    owners: frozenset[str] = frozenset()
    is_assigned: bool = False

    def change(self, before: Any, after: Any) -> StateChange:
        """Return the description of a change to it."""
        changed = before.changed_names(after) if isinstance(before, _HandlerAttributes) else ()
        return StateChange(self.what, self.names.union(changed), self.owners, self.is_assigned)


class StateChange(NamedTuple):
    """A change of the state, with the names by which to find the code that makes it."""

    what: str
    names: frozenset[str]
    owners: frozenset[str]
    is_assigned: bool = False


class ProcessState:
    """The state of the process at one moment.

    Parameters
    ----------
    assigned : iterable of LibraryPart
        Parts of packages to include, because the code that will run names them.
    """

    def __init__(self, assigned: Iterable[LibraryPart] = ()) -> None:
        loaded = (sys.modules.get(name) for name in _OPTIONAL_MODULES)
        self._parts = [*_known_parts(len(sys.modules), *loaded), *map(_library_part, assigned)]
        self._values = [_read(part) for part in self._parts]

    def changes(self) -> list[StateChange]:
        """Return the changes since that moment."""
        return [part.change(before, after) for part, before, after in self._changed()]

    def restore(self) -> list[StateChange]:
        """Restore it as far as possible, and return the changes that were undone."""
        changed = list(self._changed())
        for part, value, _ in changed:
            with contextlib.suppress(Exception):  # the folder was deleted, or Python did not set the handler
                part.write(value)
        return [part.change(before, after) for part, before, after in changed]

    def _changed(self) -> Iterator[tuple[_Part, Any, Any]]:
        for part, value in zip(self._parts, self._values, strict=True):
            if value is not _MISSING and not _is_equal(value, now := _read(part)):
                yield part, value, now


def _read(part: _Part) -> Any:
    try:
        return part.read()
    except Exception:  # noqa: BLE001 - an unreadable part is ignored
        return _MISSING


def _is_equal(before: Any, after: Any) -> bool:
    if after is _MISSING:
        return True
    try:
        return bool(before == after)
    except Exception:  # noqa: BLE001 - objects of the user's classes
        return before is after


#: Modules with state of their own, which a process may not have loaded.
_OPTIONAL_MODULES = (
    "numpy", "decimal", "faulthandler", "socket", "csv", "multiprocessing", *CONFIGURATIONS,
)  # fmt: skip


@functools.lru_cache(maxsize=4)
def _known_parts(*_: object) -> tuple[_Part, ...]:
    """Return the parts of this process, which depend on the modules that are loaded: each trial reads them twice."""
    return tuple(_parts())


def _parts() -> Iterator[_Part]:
    yield _Part(ENVIRONMENT, lambda: dict(os.environ), _set_environment, frozenset({"environ", "putenv", "unsetenv"}))
    yield _Part(FOLDER, os.getcwd, os.chdir, frozenset({"chdir", "fchdir"}))
    if hasattr(time, "tzset"):  # after the environment, which it reads
        yield _Part("sets the time zone", lambda: time.tzname, lambda _: time.tzset(), frozenset({"tzset"}))
    if hasattr(signal, "pthread_sigmask"):
        yield _Part("blocks signals", lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
                    lambda blocked: signal.pthread_sigmask(signal.SIG_SETMASK, blocked),
                    frozenset({"pthread_sigmask"}))  # fmt: skip
    yield _Part("sets Python's hooks for asynchronous generators", sys.get_asyncgen_hooks,
                lambda hooks: sys.set_asyncgen_hooks(*hooks), frozenset({"set_asyncgen_hooks"}))  # fmt: skip
    yield _Part("sets how coroutines are tracked", sys.get_coroutine_origin_tracking_depth,
                sys.set_coroutine_origin_tracking_depth,
                frozenset({"set_coroutine_origin_tracking_depth"}))  # fmt: skip
    yield _Part("sets the permission mask of new files", _file_mask, os.umask, frozenset({"umask"}))
    yield _Part("sets signal handlers", _signal_handlers, _set_signal_handlers, frozenset({"signal"}))
    yield _Part(
        "configures the garbage collector",
        lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug(), _Identities(gc.callbacks)),
        _set_collector,
        frozenset({"enable", "disable", "set_threshold", "set_debug", "callbacks"}),
        frozenset({"gc"}),
    )
    yield _Part(
        "sets the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit, frozenset({"setrecursionlimit"})
    )
    yield _Part(
        "sets the switch interval", sys.getswitchinterval, sys.setswitchinterval, frozenset({"setswitchinterval"})
    )
    for name in ("path", "argv", "meta_path", "path_hooks"):
        yield _Part(f"changes sys.{name}", *_list_access(name), frozenset({name}), frozenset({"sys"}))
    for name in _SYS_ATTRIBUTES:
        yield _Part(
            f"sets sys.{name}", *_attribute_access(sys, name), frozenset({name}), frozenset({"sys"}), is_assigned=True
        )
    yield _Part(
        "sets threading.excepthook",
        *_attribute_access(threading, "excepthook"),
        frozenset({"excepthook"}),
        is_assigned=True,
    )
    yield from _tracing_parts()
    yield from _default_parts()
    yield _Part(
        "registers a function that runs when the process ends",
        getattr(atexit, "_ncallbacks", int),
        lambda _: None,
        frozenset({"register", "atexit"}),
        frozenset({"atexit"}),
    )
    yield _Part("sets the locale", lambda: locale.setlocale(locale.LC_ALL), _set_locale, frozenset({"setlocale"}))
    decimal = sys.modules.get("decimal")
    if decimal is not None:
        yield _Part(
            "sets the context of decimal numbers",
            lambda: _decimal_settings(decimal),
            lambda settings: _set_decimal_settings(decimal, settings),
            frozenset({"getcontext", "setcontext", "prec", "rounding", *_DECIMAL_CONTEXTS}),
        )
        yield _Part(  # it has no names, because no code sets flags on purpose
            "sets flags of decimal numbers",
            lambda: dict(decimal.getcontext().flags),
            lambda flags: _set_decimal_flags(decimal, flags),
            frozenset(),
        )
    yield _Part("sets context variables", _context_variables, _set_context_variables, frozenset({"set", "reset"}))
    yield _Part(
        "sets the filters of warnings",
        lambda: _Identities(warnings.filters),
        _set_warning_filters,
        frozenset({"simplefilter", "filterwarnings", "resetwarnings", "filters"}),
    )
    yield _Part("sets attributes of a thread", _thread_attributes, _set_attributes,
                frozenset({"name", "setName", "setattr", "current_thread", "main_thread"}))  # fmt: skip
    yield _Part("sets attributes of a logger", _logger_attributes, _set_attributes, frozenset({"setattr"}))
    yield from _logging_parts()
    yield _Part(
        "changes loggers",
        _loggers,
        _set_loggers,
        frozenset({"addHandler", "removeHandler", "setLevel", "addFilter", "removeFilter", "basicConfig", "dictConfig",
                   "handlers", "filters", "propagate", "disabled", "captureWarnings", "setFormatter", "formatter",
                   "level"}),
    )  # fmt: skip
    yield _Part("sets PyTorch's loggers", _pytorch_loggers, _set_pytorch_loggers, _OF_PYTORCH_LOGGERS)
    yield _Part("sets attributes of a log handler", _handler_attributes, _set_attributes,
                frozenset({"setattr", "set_name", "setStream", "setTarget"}))  # fmt: skip
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        yield _Part("sets NumPy's error handling", numpy.geterr, lambda old: numpy.seterr(**old), frozenset({"seterr"}))
        for what, name in (("NumPy's error handler", "errcall"), ("the size of NumPy's buffers", "bufsize")):
            getter, setter = getattr(numpy, f"get{name}"), getattr(numpy, f"set{name}")
            yield _Part(f"sets {what}", getter, setter, frozenset({f"set{name}"}))
        yield _Part(
            "sets how NumPy prints",
            numpy.get_printoptions,
            lambda old: numpy.set_printoptions(**old),
            frozenset({"set_printoptions"}),
        )
    for setting in process_settings():
        yield _Part(f"sets {setting.name}", setting.read, setting.write, setting.names, frozenset())


def _library_part(part: LibraryPart) -> _Part:
    match part:
        case LoadedModules():
            return _Part("changes sys.modules", LoadedModules.now, LoadedModules.restore, frozenset({"modules"}),
                         frozenset({"sys"}))  # fmt: skip
        case LibraryNamespace():
            return _Part(f"changes the state of the module {part.title}", lambda: _Globals(part.content()), part.refill,
                         part.callers)  # fmt: skip
        case LibraryOwner():
            return _Part(f"sets attributes of {part.title}", lambda: _OwnerAttributes(part.content()), part.refill,
                         frozenset({part.title.rpartition(".")[2]}))  # fmt: skip
        case LibraryContainer():
            return _Part(f"changes {part.title}", lambda: _Identities(part.content()),
                         lambda saved: part.refill(list(saved.items)), frozenset({part.name}))  # fmt: skip
    read, write = _identity_of(part.read), _setter(part.write)
    return _Part(f"sets {part.title}", read, write, frozenset({part.name}), is_assigned=True)


class _OwnerAttributes(dict[str, Any]):
    """The attributes of a module or class. Additions that libraries make on its first use do not count."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OwnerAttributes) and all(
            self[name] is other.get(name, _MISSING) if name in self else is_library_code(other[name])
            for name in {**self, **other}
        )

    __hash__ = None


class _Globals(dict[str, Any]):
    """The globals of a module, with their items. Changes by an import do not count: they may happen only once."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self._loaded = len(sys.modules)
        self._ids = {name: (id(value), [*map(id, items or ())]) for name, (value, items) in content.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Globals) and (self._loaded != other._loaded or self._ids == other._ids)

    __hash__ = None


#: Attributes of ``sys`` that code may set.
_SYS_ATTRIBUTES = (
    "excepthook", "displayhook", "unraisablehook", "breakpointhook", "stdin", "stdout", "stderr", "dont_write_bytecode",
)  # fmt: skip


def _tracing_parts() -> Iterator[_Part]:
    """Yield the trace and profile functions and the fault handler."""
    for kind in ("trace", "profile"):
        for owner, whose in ((sys, ""), (threading, " of new threads")):
            read, write = getattr(owner, f"get{kind}", None), getattr(owner, f"set{kind}")
            if read is not None:  # new in Python 3.10 for threads
                yield _Part(f"sets the {kind} function{whose}", _identity_of(read), _setter(write),
                            frozenset({f"set{kind}", f"set{kind}_all_threads"}))  # fmt: skip
    faults = sys.modules.get("faulthandler")
    if faults is not None:
        yield _Part("sets the fault handler", faults.is_enabled, lambda on: _set_fault_handler(faults, on),
                    frozenset({"enable", "disable"}), frozenset({"faulthandler"}))  # fmt: skip


def _default_parts() -> Iterator[_Part]:
    """Yield default settings of Python's modules."""
    yield _Part("sets the stack size of new threads", _stack_size, threading.stack_size, frozenset({"stack_size"}))
    if hasattr(sys, "set_int_max_str_digits"):
        yield _Part(
            "sets the maximum number of digits of integers", sys.get_int_max_str_digits, sys.set_int_max_str_digits,
            frozenset({"set_int_max_str_digits"}),
        )  # fmt: skip
    for module, what, getter, setter in (
        ("socket", "sets the default timeout of sockets", "getdefaulttimeout", "setdefaulttimeout"),
        ("csv", "sets the maximum field size of CSV files", "field_size_limit", "field_size_limit"),
    ):
        owner = sys.modules.get(module)
        if owner is not None:
            yield _Part(what, getattr(owner, getter), getattr(owner, setter), frozenset({setter}))
    processes = sys.modules.get("multiprocessing")
    if processes is not None:
        yield _Part("sets how processes start", lambda: processes.get_start_method(allow_none=True),
                    lambda method: processes.set_start_method(method, force=True),
                    frozenset({"set_start_method"}))  # fmt: skip


def _set_warning_filters(saved: _Identities) -> None:
    warnings.filters[:] = saved.items  # type: ignore[index]
    with warnings.catch_warnings():  # entering it makes Python discard its cache of the old filters
        pass


class _Attributes(dict[Any, "_Identities"]):
    """The attributes of objects, by object; objects that were not known before do not count as a change."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return False
        if dict.__eq__(self, other):
            return True
        pairs = ((state, other.get(item, state)) for item, state in self.items())
        return all(before is after or before == after for before, after in pairs)

    __hash__ = None


class _HandlerAttributes(_Attributes):
    """The attributes of handlers. Code that sets one has an effect: it redirects or changes log output."""

    def changed_names(self, other: _HandlerAttributes) -> set[str]:
        """Return the names of the attributes that differ; code may set a private one by its public name."""
        names: set[str] = set()
        for item, state in self.items():
            one, two = state.as_dict(), other.get(item, state).as_dict()
            names |= {name for name in {**one, **two} if one.get(name, _MISSING) is not two.get(name, _MISSING)}
        return names | {name.lstrip("_") for name in names}


def _attributes_of(items: Iterable[Any]) -> _Attributes:
    return _Attributes({item: _further_attributes(item, _ignored_attributes(item)) for item in items})


def _further_attributes(item: Any, ignored: frozenset[str]) -> _Identities:
    return _NONE if vars(item).keys() <= ignored else _Identities(_pairs(vars(item), ignored))


def _ignored_attributes(item: Any) -> frozenset[str]:
    match item:
        case logging.Logger():
            return _OF_LOGGERS
        case logging.FileHandler():
            return _OF_FILE_HANDLERS
        case logging.Handler():
            return _OF_HANDLERS
    return frozenset()


def _pairs(attributes: dict[str, Any], left_out: frozenset[str]) -> list[Any]:
    return [part for name, value in attributes.items() if name not in left_out for part in (name, value)]


def _thread_attributes() -> _Attributes:
    return _attributes_of({threading.current_thread(), threading.main_thread()})


#: The attributes of loggers that other parts restore, or that are caches.
_OF_LOGGERS = frozenset(
    {"name", "level", "parent", "propagate", "handlers", "filters", "disabled", "manager", "_cache", "root"}
)


def _logger_attributes() -> _Attributes:
    # Most loggers have no further attributes.
    return _Attributes({
        log: _NONE if vars(log).keys() <= _OF_LOGGERS else _further_attributes(log, _OF_LOGGERS)
        for log in _LOGGERS.outside_pytorch()
    })  # fmt: skip


class _LoggersByOrigin:
    """The loggers of the process: there are hundreds, which trials read hundreds of times, so they are sorted once."""

    def __init__(self) -> None:
        self._known: list[Any] = []
        self._others: list[logging.Logger] = []
        self._of_pytorch: list[logging.Logger] = []

    def outside_pytorch(self) -> list[logging.Logger]:
        """Return the loggers except PyTorch's own."""
        self._sort()
        return self._others

    def of_pytorch(self) -> list[logging.Logger]:
        """Return PyTorch's own loggers, except the one of the trace, to which this package listens."""
        self._sort()
        return self._of_pytorch

    def _sort(self) -> None:
        named = logging.root.manager.loggerDict
        known = list(named.values())
        if known == self._known:  # loggers are compared by identity
            return
        loggers = [(name, log) for name, log in list(named.items()) if isinstance(log, logging.Logger)]
        is_of_pytorch = [name[:6] in {"torch", "torch."} for name, _ in loggers]
        trace = trace_logger()
        self._of_pytorch = [
            log for (_, log), own in zip(loggers, is_of_pytorch, strict=True) if own and log is not trace
        ]
        self._others = [
            logging.root,
            *(log for (_, log), own in zip(loggers, is_of_pytorch, strict=True) if not own),
        ]
        self._known = known


_LOGGERS = _LoggersByOrigin()


#: The names with which code changes PyTorch's loggers.
_OF_PYTORCH_LOGGERS = frozenset(
    {"setLevel", "set_logs", "disabled", "propagate", "level", "handlers", "addHandler", "removeHandler"}
)


class _LoggerSettings:
    """The settings of loggers. A logger that was not known before does not count as a change."""

    def __init__(self, loggers: list[logging.Logger]) -> None:
        self.loggers = loggers
        self.settings = [(log.level, log.disabled, log.propagate, *log.handlers) for log in loggers]

    def by_logger(self) -> dict[logging.Logger, tuple[Any, ...]]:
        return dict(zip(self.loggers, self.settings, strict=True))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _LoggerSettings):
            return False
        if self.settings == other.settings and self.loggers == other.loggers:
            return True
        now = other.by_logger()
        return all(now.get(log, settings) == settings for log, settings in self.by_logger().items())

    __hash__ = None  # type: ignore[assignment]


def _pytorch_loggers() -> _LoggerSettings:
    """Return the settings of PyTorch's own loggers."""
    return _LoggerSettings(_LOGGERS.of_pytorch())


def _set_pytorch_loggers(before: _LoggerSettings) -> None:
    for log, (level, disabled, propagate, *handlers) in before.by_logger().items():
        if log.level != level:
            log.setLevel(level)
        log.disabled, log.propagate, log.handlers[:] = disabled, propagate, handlers


#: The attributes of handlers that other parts restore, or that a handler itself changes when it receives a record.
_OF_HANDLERS = frozenset({
    "level", "formatter", "filters", "lock", "_closed", "buffer", "rolloverAt", "dev", "ino", "sock", "socket",
    "retryTime", "retryPeriod",
})  # fmt: skip
_OF_FILE_HANDLERS = _OF_HANDLERS | {"stream"}


def _handler_attributes() -> _HandlerAttributes:
    """Return the attributes of Python's own handlers; trials copy the handlers whose classes the user wrote."""
    handlers = [reference() for reference in logging._handlerList]  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public name
    own = [handler for handler in handlers if type(handler).__module__ in {"logging", "logging.handlers"}]
    return _HandlerAttributes(_attributes_of(own))


def _set_attributes(before: _Attributes) -> None:
    for item, state in before.items():
        saved = state.as_dict()
        ignored = _ignored_attributes(item)
        for name in [name for name in vars(item) if name not in saved and name not in ignored]:
            del vars(item)[name]
        vars(item).update(saved)


def _logging_parts() -> Iterator[_Part]:
    """Yield the settings of ``logging`` that do not belong to one logger."""
    owners = frozenset({"logging"})
    yield _Part("disables log records", lambda: logging.root.manager.disable, logging.disable,
                frozenset({"disable"}), owners)  # fmt: skip
    yield _Part("sets the class of log records", _identity_of(logging.getLogRecordFactory),
                _setter(logging.setLogRecordFactory), frozenset({"setLogRecordFactory"}))  # fmt: skip
    yield _Part("sets the class of loggers", _identity_of(logging.getLoggerClass), _setter(logging.setLoggerClass),
                frozenset({"setLoggerClass"}))  # fmt: skip
    yield _Part(  # it has no names, because a new logger is not an effect
        "creates loggers", lambda: _NamedLoggers(logging.root.manager.loggerDict), _restore_named_loggers, frozenset(),
    )  # fmt: skip
    yield _Part("sets the names of log levels", lambda: tuple(map(dict, _LEVEL_NAMES)), _set_level_names,
                frozenset({"addLevelName"}))  # fmt: skip


class _NamedLoggers(dict[str, Any]):
    """The loggers by name, and the placeholders that stand for parents nobody has asked for yet."""

    def __init__(self, named: dict[str, Any]) -> None:
        super().__init__(named)
        self.children = {
            name: dict(log.loggerMap) for name, log in named.items() if isinstance(log, logging.PlaceHolder)
        }


def _restore_named_loggers(before: _NamedLoggers) -> None:
    """Remove the loggers that user code has created; those of modules, which refer to them, stay."""
    named = logging.root.manager.loggerDict
    gone: dict[Any, Any] = {}
    for name, log in list(named.items()):
        if before.get(name) is log or name in sys.modules or (name not in before and _is_of_library(name)):
            continue
        if isinstance(log, logging.Logger):
            gone[log] = log.parent
            named.pop(name)
            if name in before:
                named[name] = before[name]
    for name, log in list(named.items()):
        if isinstance(log, logging.Logger):
            while log.parent in gone:
                log.parent = gone[log.parent]
            continue
        for child in [child for child in log.loggerMap if child in gone]:
            del log.loggerMap[child]
        log.loggerMap.update(before.children.get(name, {}))
        if name not in before and not log.loggerMap:
            named.pop(name)


_LEVEL_NAMES: tuple[dict[Any, Any], ...] = (logging._levelToName, logging._nameToLevel)  # noqa: SLF001 - there is no public name


def _set_level_names(names: tuple[dict[Any, Any], ...]) -> None:
    for saved, before in zip(_LEVEL_NAMES, names, strict=True):
        saved.clear()
        saved.update(before)


def _identity_of(read: Callable[[], Any]) -> Callable[[], _Identities]:
    return lambda: _Identities([read()])


def _setter(write: Callable[[Any], Any]) -> Callable[[_Identities], Any]:
    return lambda saved: write(saved.items[0])


def _stack_size() -> int:
    """Return the stack size of new threads; reading it resets it, so it is set again."""
    size = threading.stack_size()
    threading.stack_size(size)
    return size


def _set_fault_handler(faults: Any, is_on: bool) -> None:  # noqa: FBT001 - the value of a part
    if is_on:
        faults.enable(sys.__stderr__)
    else:
        faults.disable()


class _Identities:
    """Objects that are compared by identity."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = tuple(items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Identities) or len(self.items) != len(other.items):
            return False
        return all(map(operator.is_, self.items, other.items))

    def as_dict(self) -> dict[Any, Any]:
        """Return the items as names with values, if they are in turn names and values."""
        return dict(zip(self.items[::2], self.items[1::2], strict=True))

    __hash__ = None  # type: ignore[assignment]


_NONE = _Identities(())


def _attribute_access(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    return lambda: _Identities([getattr(owner, name)]), lambda saved: setattr(owner, name, saved.items[0])


def _list_access(name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Return functions that read and restore a list of ``sys``: the list object and its items."""

    def write(saved: _Identities) -> None:
        content, *items = saved.items
        content[:] = items
        setattr(sys, name, content)

    return lambda: _Identities([getattr(sys, name), *getattr(sys, name)]), write


def _file_mask() -> int:
    """Return the mask from ``/proc``: Python can only read it by setting it, for all threads."""
    with open("/proc/self/status", "rb") as status:  # noqa: PTH123 - a Path takes twice as long
        return int(status.read().partition(b"Umask:")[2].split(maxsplit=1)[0], 8)


def _set_environment(values: dict[str, str]) -> None:
    for name in os.environ.keys() - values.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in values.items() if os.environ.get(name) != value})


_SIGNALS = tuple(map(int, signal.valid_signals()))
#: ``signal.getsignal`` makes an enum member of each number, which takes ten times as long.
_getsignal: Callable[[int], Any] = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)


def _signal_handlers() -> dict[int, Any]:
    return {number: _signal_handler(number) for number in _SIGNALS}


def _signal_handler(number: int) -> Any:
    """Return the handler of a signal, even while we delay it."""
    handler = _getsignal(number)
    return getattr(handler, DEFERRED, handler)


def _set_signal_handlers(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        if handler is not None and _signal_handler(number) is not handler:
            signal.signal(number, handler)


def _set_collector(state: tuple[bool, tuple[int, int, int], int, Any]) -> None:
    enabled, threshold, debug, callbacks = state
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*threshold)
    gc.set_debug(debug)
    gc.callbacks[:] = callbacks.items


def _set_locale(text: str) -> None:
    locale.setlocale(locale.LC_ALL, text)


_DECIMAL_ATTRIBUTES = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


_DECIMAL_CONTEXTS = ("DefaultContext", "BasicContext", "ExtendedContext")


def _decimal_settings(decimal: Any) -> list[tuple[Any, dict[str, Any], dict[Any, bool]]]:
    contexts = [decimal.getcontext(), *(getattr(decimal, name) for name in _DECIMAL_CONTEXTS)]
    return [
        (context, {name: getattr(context, name) for name in _DECIMAL_ATTRIBUTES}, dict(context.traps))
        for context in contexts
    ]


def _set_decimal_settings(decimal: Any, settings: list[tuple[Any, dict[str, Any], dict[Any, bool]]]) -> None:
    decimal.setcontext(settings[0][0])
    for context, attributes, traps in settings:
        for name, value in attributes.items():
            setattr(context, name, value)
        context.traps.update(traps)


def _set_decimal_flags(decimal: Any, flags: dict[Any, bool]) -> None:
    decimal.getcontext().flags.update(flags)


def _context_variables() -> dict[Any, Any]:
    context = contextvars.copy_context()
    return {
        variable: _Identities([context[variable]])
        for variable in set(context) - context_variables()
        # Python creates the context of decimal numbers when it is read.
        if not variable.name.startswith(("decimal_context", "numpy", "torch."))
    }


def _set_context_variables(values: dict[Any, Any]) -> None:
    for variable, saved in values.items():
        variable.set(saved.items[0])


def _loggers() -> dict[Any, tuple[Any, ...]]:
    # Most loggers have no handlers and no filters.
    state = {log: (log.level, log.disabled, log.propagate, _Identities(log.handlers) if log.handlers else _NONE,
                   _Identities(log.filters) if log.filters else _NONE,
                   list(map(_handler_state, log.handlers)))
             for log in _LOGGERS.outside_pytorch()}  # fmt: skip
    return _LoggerStates(state)


def _handler_state(handler: Any) -> tuple[Any, ...]:
    return handler.level, _Identities([handler.formatter]), _Identities(handler.filters)


class _LoggerStates(dict[Any, tuple[Any, ...]]):
    """The state of loggers. A new, unchanged logger does not count as a change."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return False
        new = [state for log, state in other.items() if log not in self and not _is_of_library(log.name)]
        return all(other.get(log) == state for log, state in self.items()) and all(
            level == logging.NOTSET and propagate and not (disabled or handlers.items or filters.items)
            for level, disabled, propagate, handlers, filters, _ in new
        )

    __hash__ = None


def _is_of_library(name: str) -> bool:
    """Return whether a logger's name is that of a library, or begins with it."""
    module = sys.modules.get(name.partition(".")[0])
    return module is not None and is_library(getattr(module, "__file__", None) or "")


def _set_loggers(before: dict[Any, tuple[Any, ...]]) -> None:
    for log, state in _loggers().items():
        if log not in before and _is_of_library(log.name):  # set up when a trial imported the library
            continue
        old = before.get(log, (logging.NOTSET, False, True, _Identities(()), _Identities(()), []))
        if state != old:
            level, log.disabled, log.propagate, handlers, filters, of_handlers = old
            log.setLevel(level)
            log.handlers[:] = handlers.items
            log.filters[:] = filters.items
            for handler, (own_level, formatter, own_filters) in zip(log.handlers, of_handlers, strict=True):
                handler.level, handler.formatter = own_level, formatter.items[0]
                handler.filters[:] = own_filters.items


@contextlib.contextmanager
def copied_context() -> Iterator[None]:
    """Use a copy of the context variables while the context is open."""
    context = contextvars.copy_context()
    enter, leave = _context_functions()
    if enter is None or leave is None:
        yield
        return
    enter(context)
    try:
        yield
    finally:
        leave(context)


@contextlib.contextmanager
def preserved_line_cache() -> Iterator[None]:
    """Restore the lines of files that Python keeps for tracebacks; those of libraries and of new graphs stay."""
    before = dict(linecache.cache)
    try:
        yield
    finally:
        for name in linecache.cache.keys() - before.keys():
            if is_own_code(name) and not name.startswith("<"):
                del linecache.cache[name]
        linecache.cache.update(before)


def _context_functions() -> tuple[Any, Any]:
    """Return the functions that enter and leave a context, which only Python's C API provides."""
    functions = []
    for name in ("PyContext_Enter", "PyContext_Exit"):
        function = getattr(getattr(ctypes, "pythonapi", None), name, None)
        if function is not None:
            function.argtypes, function.restype = [ctypes.py_object], ctypes.c_int
        functions.append(function)
    return functions[0], functions[1]


def find_changing_line(
    change: StateChange, codes: Iterable[types.CodeType], imported: Mapping[str, tuple[str, str]]
) -> StackEntry | None:
    """Return the line that makes a change, judging by the names in the code; ``None`` if there is none.

    Parameters
    ----------
    change : StateChange
        The change.
    codes : iterable of CodeType
        The code to search.
    imported : mapping
        The module and the name of each library function that the code imported by name, by its name in the code.
    """
    by_name = {
        alias
        for alias, (module, name) in imported.items()
        if name in change.names and (not change.owners or module in change.owners)
    }
    for code in codes:
        if not is_own_code(code.co_filename):
            continue
        has_owner = not change.owners or change.owners & {*code.co_names, *code.co_freevars}
        if not has_owner and not by_name & {*code.co_names}:
            continue
        for instruction in dis.get_instructions(code):
            is_name = isinstance(instruction.argval, str) and instruction.opname.startswith(("LOAD_", "STORE_"))
            is_builtin = instruction.opname == "LOAD_GLOBAL" and hasattr(builtins, str(instruction.argval))
            if change.is_assigned and not instruction.opname.startswith(("STORE_", "DELETE_", "LOAD_CONST")):
                continue
            known = {*by_name, *(change.names if has_owner else ())}
            if is_name and not is_builtin and instruction.argval in known:
                place = instruction.positions
                if place is not None and place.lineno is not None:
                    return StackEntry(code.co_filename, place.lineno, code.co_name, code.co_firstlineno)
    return None
