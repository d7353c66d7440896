"""The state of the process that code can change and that can be restored: environment, handlers, limits, settings."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import contextvars
import ctypes
import dis
import gc
import locale
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak._torch_compat.process_settings import process_settings
from jupyter_graphbreak.recording.records import StackEntry
from jupyter_graphbreak.trial.side_effects import ENVIRONMENT, FOLDER, is_own_code

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterable, Iterator

_MISSING = object()
#: How a change of the settings of PyTorch's compilers begins.
SETS_COMPILER = "sets settings of torch."


class _Part(NamedTuple):
    """A part of the state.

    Parameters
    ----------
    what : str
        What code does that changes it, as the rest of a sentence.
    names : frozenset of str
        What such code calls or assigns.
    owners : frozenset of str
        What it names besides; empty if the names alone say enough.
    """

    what: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]
    names: frozenset[str]
    owners: frozenset[str] = frozenset()


class Change(NamedTuple):
    """A part of the state that has changed, and how to find the code that does that."""

    what: str
    names: frozenset[str]
    owners: frozenset[str]


class ProcessState:
    """The state of the process at one moment."""

    def __init__(self) -> None:
        self._parts = list(_parts())
        self._values = [_read(part) for part in self._parts]

    def changes(self) -> list[Change]:
        """Return what has changed since."""
        return [Change(part.what, part.names, part.owners) for part, _ in self._changed()]

    def restore(self) -> list[Change]:
        """Go back to it, as far as possible, and return what had changed."""
        changed = list(self._changed())
        for part, value in changed:
            with contextlib.suppress(Exception):  # a folder that is gone, a handler that Python did not set
                part.write(value)
        return [Change(part.what, part.names, part.owners) for part, _ in changed]

    def _changed(self) -> Iterator[tuple[_Part, Any]]:
        for part, value in zip(self._parts, self._values, strict=True):
            if value is not _MISSING and not _same(value, _read(part)):
                yield part, value


def _read(part: _Part) -> Any:
    try:
        return part.read()
    except Exception:  # noqa: BLE001 - what cannot be read is left alone
        return _MISSING


def _same(before: Any, after: Any) -> bool:
    if after is _MISSING:
        return True
    try:
        return bool(before == after)
    except Exception:  # noqa: BLE001 - objects of the user's classes
        return before is after


def _parts() -> Iterator[_Part]:
    yield _Part(ENVIRONMENT, lambda: dict(os.environ), _set_environment, frozenset({"environ", "putenv", "unsetenv"}))
    yield _Part(FOLDER, os.getcwd, os.chdir, frozenset({"chdir", "fchdir"}))
    yield _Part("sets the mask of new files", _file_mask, os.umask, frozenset({"umask"}))
    yield _Part("sets signal handlers", _signal_handlers, _set_signal_handlers, frozenset({"signal"}))
    yield _Part(
        "sets the garbage collector",
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
        content = getattr(sys, name)
        yield _Part(f"changes sys.{name}", *_list_access(name, content), frozenset({name}), frozenset({"sys"}))
    for name in ("excepthook", "displayhook", "unraisablehook", "breakpointhook", "stdin", "dont_write_bytecode"):
        yield _Part(f"sets sys.{name}", *_attribute(sys, name), frozenset({name}), frozenset({"sys"}))
    yield _Part("sets threading.excepthook", *_attribute(threading, "excepthook"), frozenset({"excepthook"}))
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
            lambda settings: _set_decimal(decimal, settings),
            frozenset({"getcontext", "setcontext", "prec", "rounding"}),
        )
    yield _Part("sets context variables", _context_variables, _set_context_variables, frozenset({"set", "reset"}))
    yield _Part(
        "changes loggers",
        _loggers,
        _set_loggers,
        frozenset({"addHandler", "removeHandler", "setLevel", "addFilter", "removeFilter", "basicConfig", "dictConfig",
                   "handlers", "propagate", "disabled", "captureWarnings"}),
    )  # fmt: skip
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        yield _Part("sets NumPy's errors", numpy.geterr, lambda old: numpy.seterr(**old), frozenset({"seterr"}))
        yield _Part(
            "sets how NumPy prints",
            numpy.get_printoptions,
            lambda old: numpy.set_printoptions(**old),
            frozenset({"set_printoptions"}),
        )
    for setting in process_settings():
        yield _Part(f"sets {setting.name}", setting.read, setting.write, setting.names, frozenset())


class _Identities:
    """Objects that are the same only if they are identical."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = tuple(items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identities) and list(map(id, self.items)) == list(map(id, other.items))

    __hash__ = None  # type: ignore[assignment]


def _attribute(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    return lambda: _Identities([getattr(owner, name)]), lambda held: setattr(owner, name, held.items[0])


def _list_access(name: str, content: list[Any]) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Return what reads and restores a list of ``sys``: the very list, and what it holds."""

    def write(held: _Identities) -> None:
        content[:] = held.items[1:]
        setattr(sys, name, content)

    return lambda: _Identities([getattr(sys, name), *getattr(sys, name)]), write


def _file_mask() -> int:
    """Return the mask as Linux tells it: Python can only read it by setting it, for all threads."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(status.partition("Umask:")[2].split()[0], 8)


def _set_environment(values: dict[str, str]) -> None:
    for name in os.environ.keys() - values.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in values.items() if os.environ.get(name) != value})


def _signal_handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _set_signal_handlers(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _set_collector(state: tuple[bool, tuple[int, int, int], int, Any]) -> None:
    enabled, threshold, debug, callbacks = state
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*threshold)
    gc.set_debug(debug)
    gc.callbacks[:] = callbacks.items


def _set_locale(text: str) -> None:
    locale.setlocale(locale.LC_ALL, text)


_OF_DECIMAL = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def _decimal_settings(decimal: Any) -> tuple[dict[str, Any], dict[Any, bool]]:
    now = decimal.getcontext()
    return {name: getattr(now, name) for name in _OF_DECIMAL}, dict(now.traps)


def _set_decimal(decimal: Any, settings: tuple[dict[str, Any], dict[Any, bool]]) -> None:
    now = decimal.getcontext()
    for name, value in settings[0].items():
        setattr(now, name, value)
    now.traps.update(settings[1])


def _context_variables() -> dict[Any, Any]:
    ignored = {"decimal_context"}  # made when it is read
    return {variable: _Identities([value]) for variable, value in contextvars.copy_context().items()
            if variable.name not in ignored and not variable.name.startswith("numpy")}  # fmt: skip


def _set_context_variables(values: dict[Any, Any]) -> None:
    for variable, held in values.items():
        variable.set(held.items[0])


def _loggers() -> dict[Any, tuple[Any, ...]]:
    known = [
        logging.root,
        *(log for log in logging.root.manager.loggerDict.values() if isinstance(log, logging.Logger)),
    ]
    state = {log: (log.level, log.disabled, log.propagate, _Identities(log.handlers), _Identities(log.filters))
             for log in known if log.name.partition(".")[0] != "torch"}  # fmt: skip
    return _Loggers(state)


class _Loggers(dict[Any, tuple[Any, ...]]):
    """The state of loggers. One that was made later and has nothing of its own is no change."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return False
        new = [state for log, state in other.items() if log not in self]
        return all(other.get(log) == state for log, state in self.items()) and all(
            level == logging.NOTSET and not handlers.items and not filters.items
            for level, _, _, handlers, filters in new
        )

    __hash__ = None


def _set_loggers(before: dict[Any, tuple[Any, ...]]) -> None:
    for log, state in _loggers().items():
        old = before.get(log, (logging.NOTSET, False, True, _Identities(()), _Identities(())))
        if state != old:
            level, log.disabled, log.propagate, handlers, filters = old
            log.setLevel(level)
            log.handlers[:] = handlers.items
            log.filters[:] = filters.items


@contextlib.contextmanager
def own_context() -> Iterator[None]:
    """Run in a copy of the context variables while the context is open."""
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


def _context_functions() -> tuple[Any, Any]:
    """Return what enters and leaves a context, which Python offers to C alone."""
    functions = []
    for name in ("PyContext_Enter", "PyContext_Exit"):
        function = getattr(getattr(ctypes, "pythonapi", None), name, None)
        if function is not None:
            function.argtypes, function.restype = [ctypes.py_object], ctypes.c_int
        functions.append(function)
    return functions[0], functions[1]


def line_of(change: Change, codes: Iterable[types.CodeType]) -> StackEntry | None:
    """Return the line of code that makes a change, as far as its names tell; ``None`` if no code does."""
    for code in codes:
        if not is_own_code(code.co_filename):
            continue
        if change.owners and not change.owners & {*code.co_names, *code.co_freevars}:
            continue
        for instruction in dis.get_instructions(code):
            is_name = isinstance(instruction.argval, str) and instruction.opname.startswith(("LOAD_", "STORE_"))
            is_builtin = instruction.opname == "LOAD_GLOBAL" and hasattr(builtins, str(instruction.argval))
            if is_name and not is_builtin and instruction.argval in change.names:
                place = instruction.positions
                if place is not None and place.lineno is not None:
                    return StackEntry(code.co_filename, place.lineno, code.co_name, code.co_firstlineno)
    return None
