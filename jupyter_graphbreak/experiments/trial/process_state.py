"""Process state that code can change and that can be restored: environment, handlers, limits, settings, locks."""

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
import os
import signal
import sys
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.process_settings import (
    CONFIGURATIONS,
    INDUCTOR_VARIABLE,
    context_variables,
    process_settings,
)
from jupyter_graphbreak.experiments.trial.code_roles import is_user_code
from jupyter_graphbreak.experiments.trial.internal_errors import note_if_internal
from jupyter_graphbreak.experiments.trial.side_effects import (
    ENVIRONMENT_EFFECT,
    FOLDER_EFFECT,
    THREAD_WAIT_EFFECT,
    ObservedEffect,
    TrialStoppedError,
)
from jupyter_graphbreak.experiments.trial.state_parts import (
    MISSING,
    Identities,
    StateChange,
    StatePart,
    attributes_of,
    identity_reader,
    identity_writer,
    logging_parts,
    restore_attributes,
)
from jupyter_graphbreak.recording.exit_stack import DEFERRED_HANDLER_ATTRIBUTE
from jupyter_graphbreak.recording.targets import user_code_objects
from jupyter_graphbreak.records.records import StackFrame

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


#: The prefix of the descriptions of changes to PyTorch's compiler settings.
COMPILER_CHANGE_PREFIX = "sets settings of torch."


class ProcessState:
    """The state of the process, and of parts of packages that the code mentions, when the object was created."""

    def __init__(self, changeable_parts: Iterable[StatePart] = ()) -> None:
        loaded_modules = (sys.modules.get(name) for name in _OPTIONAL_MODULES)
        self._parts = [*_cached_parts(len(sys.modules), *loaded_modules), *changeable_parts]
        self._values = [_read(part) for part in self._parts]

    def changes(self) -> list[StateChange]:
        """Return the changes since this state was read."""
        return [part.change(before, after) for part, before, after in self._changed_parts()]

    def restore(self) -> list[StateChange]:
        """Restore the state as far as possible, and return the changes since it was read."""
        changed_parts = list(self._changed_parts())
        for part, value, _ in changed_parts:
            with contextlib.suppress(Exception):  # the folder was deleted, or Python did not set the handler
                part.write(value)
        return [part.change(before, after) for part, before, after in changed_parts]

    def _changed_parts(self) -> Iterator[tuple[StatePart, Any, Any]]:
        for part, value in zip(self._parts, self._values, strict=True):
            if value is not MISSING:
                current_value = _read(part)
                if current_value is not value and not _is_equal(value, current_value):
                    yield part, value, current_value


def _read(part: StatePart) -> Any:
    try:
        return part.read()
    except (AttributeError, ImportError):  # not in this release of PyTorch, Python or the package
        return MISSING
    except Exception as fault:  # noqa: BLE001 - an unreadable part is ignored
        note_if_internal(f"reading the state that code changes if it {part.description}", fault)
        return MISSING


def _is_equal(before: Any, after: Any) -> bool:
    if after is MISSING:
        return True
    try:
        return bool(before == after)
    except Exception:  # noqa: BLE001 - the objects may be of the user's classes
        return before is after


#: Modules that have state and that a process may not have loaded.
_OPTIONAL_MODULES = (
    "numpy", "decimal", "faulthandler", "socket", "csv", "multiprocessing", *CONFIGURATIONS,
)  # fmt: skip


@functools.lru_cache(maxsize=4)
def _cached_parts(*_: object) -> tuple[StatePart, ...]:
    """Return the parts of the process's state. They depend on the loaded modules; they are cached for later trials."""
    return tuple(_parts())


def _parts() -> Iterator[StatePart]:
    yield from _operating_system_parts()
    yield from _interpreter_parts()
    yield from _decimal_parts()
    yield StatePart("sets context variables", _context_variables, _set_context_variables, ("set", "reset"))
    yield StatePart(
        "sets the warning filters",
        lambda: Identities(warnings.filters),
        _set_warning_filters,
        ("simplefilter", "filterwarnings", "resetwarnings", "filters"),
    )
    yield StatePart(
        "sets attributes of a thread",
        lambda: attributes_of({threading.current_thread(), threading.main_thread()}),
        restore_attributes,
        ("name", "setName", "setattr", "current_thread", "main_thread"),
    )
    yield from logging_parts()
    yield from _numpy_parts()
    for setting in process_settings():
        yield StatePart(f"sets {setting.name}", setting.read, setting.write, setting.names)


def _operating_system_parts() -> Iterator[StatePart]:
    """Yield the parts of the state that the operating system stores for the process."""
    yield StatePart(ENVIRONMENT_EFFECT, _environment, _restore_environment, ("environ", "putenv", "unsetenv"))
    yield StatePart(FOLDER_EFFECT, os.getcwd, os.chdir, ("chdir", "fchdir"))
    if hasattr(time, "tzset"):  # after the environment, which `tzset` reads
        yield StatePart("sets the time zone", lambda: time.tzname, lambda _: time.tzset(), ("tzset",))
    if hasattr(signal, "pthread_sigmask"):
        yield StatePart("blocks signals", lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
                        lambda blocked_signals: signal.pthread_sigmask(signal.SIG_SETMASK, blocked_signals),
                        ("pthread_sigmask",))  # fmt: skip
    yield StatePart("sets the permission mask of new files", _file_mask, os.umask, ("umask",))
    yield StatePart(
        "sets signal handlers",
        lambda: {number: _signal_handler(number) for number in _SIGNALS},
        _set_signal_handlers,
        ("signal",),
    )


def _interpreter_parts() -> Iterator[StatePart]:
    """Yield the settings of the interpreter and of Python's modules."""
    yield StatePart("sets Python's hooks for asynchronous generators", sys.get_asyncgen_hooks,
                    lambda hooks: sys.set_asyncgen_hooks(*hooks), ("set_asyncgen_hooks",))  # fmt: skip
    yield StatePart(
        "configures the garbage collector",
        lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug(), Identities(gc.callbacks)),
        _set_garbage_collector,
        ("enable", "disable", "set_threshold", "set_debug", "callbacks"),
        ("gc",),
    )
    for name in ("path", "argv", "meta_path", "path_hooks"):
        yield StatePart(f"changes sys.{name}", *_list_accessors(name), (name,), ("sys",))
    for name in _SYS_ATTRIBUTES:
        yield StatePart(f"sets sys.{name}", *_attribute_accessors(sys, name), (name,), ("sys",), is_assigned=True)
    yield StatePart(
        "sets threading.excepthook", *_attribute_accessors(threading, "excepthook"), ("excepthook",), is_assigned=True
    )
    yield from _tracing_parts()
    yield from _default_parts()
    yield StatePart(
        "registers a function that runs when the process ends",
        getattr(atexit, "_ncallbacks", int),
        lambda _: None,
        ("register", "atexit"),
        ("atexit",),
    )
    yield StatePart(
        "sets the locale",
        lambda: locale.setlocale(locale.LC_ALL),
        lambda text: locale.setlocale(locale.LC_ALL, text),
        ("setlocale",),
    )


def _decimal_parts() -> Iterator[StatePart]:
    decimal = sys.modules.get("decimal")
    if decimal is not None:
        yield StatePart(
            "sets the decimal context",
            lambda: _decimal_settings(decimal),
            lambda settings: _set_decimal_settings(decimal, settings),
            ("getcontext", "setcontext", "prec", "rounding", *_DECIMAL_CONTEXTS),
        )
        # This part has no names, because no code sets flags on purpose.
        yield StatePart(
            "sets decimal flags",
            lambda: dict(decimal.getcontext().flags),
            lambda flags: _set_decimal_flags(decimal, flags),
        )


def _numpy_parts() -> Iterator[StatePart]:
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        yield StatePart(
            "sets NumPy's error handling",
            numpy.geterr,
            lambda saved_settings: numpy.seterr(**saved_settings),
            ("seterr",),
        )
        yield StatePart(
            "sets NumPy's print options",
            numpy.get_printoptions,
            lambda saved_settings: numpy.set_printoptions(**saved_settings),
            ("set_printoptions",),
        )


#: Attributes of ``sys`` that code may set.
_SYS_ATTRIBUTES = (
    "excepthook", "displayhook", "unraisablehook", "breakpointhook", "stdin", "stdout", "stderr", "dont_write_bytecode",
)  # fmt: skip


def _tracing_parts() -> Iterator[StatePart]:
    """Yield the trace and profile functions and the fault handler."""
    for kind in ("trace", "profile"):
        for owner, suffix in ((sys, ""), (threading, " of new threads")):
            read, write = getattr(owner, f"get{kind}"), getattr(owner, f"set{kind}")
            yield StatePart(f"sets the {kind} function{suffix}", identity_reader(read), identity_writer(write),
                            (f"set{kind}", f"set{kind}_all_threads"))  # fmt: skip
    faulthandler = sys.modules.get("faulthandler")
    if faulthandler is not None:
        yield StatePart(
            "sets the fault handler",
            faulthandler.is_enabled,
            lambda on: _set_fault_handler(faulthandler, on),
            ("enable", "disable"),
            ("faulthandler",),
        )


#: The parts of the state for which a module has a getter and a setter: module, description and both names.
_GETTERS_AND_SETTERS = (
    ("sys", "sets the tracking depth of coroutine origins", "get_coroutine_origin_tracking_depth",
     "set_coroutine_origin_tracking_depth"),
    ("sys", "sets the recursion limit", "getrecursionlimit", "setrecursionlimit"),
    ("sys", "sets the switch interval", "getswitchinterval", "setswitchinterval"),
    ("sys", "sets the maximum number of digits of integers", "get_int_max_str_digits", "set_int_max_str_digits"),
    ("socket", "sets the default socket timeout", "getdefaulttimeout", "setdefaulttimeout"),
    ("csv", "sets the CSV field size limit", "field_size_limit", "field_size_limit"),
    ("numpy", "sets NumPy's error handler", "geterrcall", "seterrcall"),
    ("numpy", "sets NumPy's buffer size", "getbufsize", "setbufsize"),
)  # fmt: skip


def _default_parts() -> Iterator[StatePart]:
    """Yield the defaults and limits of the process that functions such as ``sys.setrecursionlimit`` set."""
    yield StatePart("sets the stack size of new threads", _stack_size, threading.stack_size, ("stack_size",))
    for module, description, getter, setter in _GETTERS_AND_SETTERS:
        owner = sys.modules.get(module)
        if hasattr(owner, setter):
            yield StatePart(description, getattr(owner, getter), getattr(owner, setter), (setter,))
    processes = sys.modules.get("multiprocessing")
    if processes is not None:
        yield StatePart("sets the multiprocessing start method", lambda: processes.get_start_method(allow_none=True),
                        lambda method: processes.set_start_method(method, force=True),
                        ("set_start_method",))  # fmt: skip


def _set_warning_filters(saved_filters: Identities) -> None:
    warnings.filters[:] = saved_filters.items  # type: ignore[index]
    with warnings.catch_warnings():  # entering the context makes Python discard its cache of the old filters
        pass


def _stack_size() -> int:
    """Return the stack size of new threads. Reading it resets it, so it is set again."""
    size = threading.stack_size()
    threading.stack_size(size)
    return size


def _set_fault_handler(faulthandler: Any, is_on: bool) -> None:  # noqa: FBT001 - the parameter is the value of a setting
    if is_on:
        faulthandler.enable(sys.__stderr__)
    else:
        faulthandler.disable()


def _attribute_accessors(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    return lambda: Identities([getattr(owner, name)]), lambda saved_value: setattr(owner, name, saved_value.items[0])


def _list_accessors(name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Return functions that read and restore a list in ``sys``, both the list object and its items."""

    def write(saved_value: Identities) -> None:
        content, *items = saved_value.items
        content[:] = items
        setattr(sys, name, content)

    return lambda: Identities([getattr(sys, name), *getattr(sys, name)]), write


def _file_mask() -> int:
    """Return the file mask from ``/proc``, because Python's function would have to set the mask, for all threads."""
    with open("/proc/self/status", "rb") as status:  # noqa: PTH123 - a Path takes twice as long
        return int(status.read().partition(b"Umask:")[2].split(maxsplit=1)[0], 8)


def _environment() -> dict[Any, Any]:
    """Return the environment variables without the one that Inductor sets for itself.

    They are encoded if possible, because decoding them takes longer than reading all settings.
    """
    encoded_variables = getattr(os.environ, "_data", None)
    variables = dict(os.environ if encoded_variables is None else encoded_variables)
    for name in (INDUCTOR_VARIABLE, os.fsencode(INDUCTOR_VARIABLE)):
        variables.pop(name, None)
    return variables


def _restore_environment(values: dict[Any, Any]) -> None:
    """Restore environment variables that :func:`_environment` returned."""
    set_environment({os.fsdecode(name): os.fsdecode(value) for name, value in values.items()})


def set_environment(values: dict[str, str]) -> None:
    """Set the environment variables to saved values, except those that already have the right value."""
    for name in os.environ.keys() - values.keys() - {INDUCTOR_VARIABLE}:
        del os.environ[name]
    os.environ.update({name: value for name, value in values.items() if os.environ.get(name) != value})


_SIGNALS = tuple(map(int, signal.valid_signals()))
#: The C function, because ``signal.getsignal`` creates an enumeration member for each number, which takes long.
_getsignal: Callable[[int], Any] = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)


def _signal_handler(signal_number: int) -> Any:
    """Return the handler of a signal, or the delayed handler while this package delays the signal."""
    handler = _getsignal(signal_number)
    return getattr(handler, DEFERRED_HANDLER_ATTRIBUTE, handler)


def _set_signal_handlers(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        if handler is not None and _signal_handler(number) is not handler:
            signal.signal(number, handler)


def _set_garbage_collector(settings: tuple[bool, tuple[int, int, int], int, Any]) -> None:
    enabled, threshold, debug, callbacks = settings
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*threshold)
    gc.set_debug(debug)
    gc.callbacks[:] = callbacks.items


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
    """Return the values of context variables, except those that have their default value, as if they were not set."""
    context, empty_context = contextvars.copy_context(), contextvars.Context()
    return {
        variable: Identities([context[variable]])
        for variable in set(context) - context_variables()
        # Python creates the decimal context when code first reads it.
        if not variable.name.startswith(("decimal_context", "numpy", "torch."))
        and empty_context.run(_value_of, variable) is not context[variable]
    }


def _value_of(variable: contextvars.ContextVar[Any]) -> Any:
    """Return the value of a variable in the current context; a marker if it has neither a value nor a default."""
    try:
        return variable.get()
    except LookupError:
        return MISSING


def _set_context_variables(values: dict[Any, Any]) -> None:
    for variable, saved_value in values.items():
        variable.set(saved_value.items[0])


@contextlib.contextmanager
def use_copied_context() -> Iterator[None]:
    """Use a copy of the context variables while the context is open, if Python's C API is available."""
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
def preserve_line_cache() -> Iterator[None]:
    """Restore Python's cache of the lines of files, except new entries for libraries and generated code."""
    cache_before = dict(linecache.cache)
    try:
        yield
    finally:
        for name in [name for name in linecache.cache if name not in cache_before]:
            if is_user_code(name) and not name.startswith("<"):
                del linecache.cache[name]
        linecache.cache.update(cache_before)


def _context_functions() -> tuple[Any, Any]:
    """Return the functions of Python's C API that enter and leave a context, or ``None`` for a missing one."""
    functions = []
    for name in ("PyContext_Enter", "PyContext_Exit"):
        function = getattr(getattr(ctypes, "pythonapi", None), name, None)
        if function is not None:
            function.argtypes, function.restype = [ctypes.py_object], ctypes.c_int
        functions.append(function)
    return functions[0], functions[1]


def find_changing_line(
    change: StateChange, code_objects: Iterable[types.CodeType], imported_functions: Mapping[str, tuple[str, str]]
) -> StackFrame | None:
    """Return the line that makes a change, judging by the names in the code, or ``None`` if no line is found.

    ``imported_functions`` contains the module and the original name of each library function that the code imports, by
    the function's name in the code.
    """
    aliases = {
        alias
        for alias, (module, name) in imported_functions.items()
        if name in change.names and (not change.owners or module in change.owners)
    }
    for code in code_objects:
        if not is_user_code(code.co_filename):
            continue
        has_owner = not change.owners or not {*code.co_names, *code.co_freevars}.isdisjoint(change.owners)
        if not has_owner and not aliases & {*code.co_names}:
            continue
        for instruction in dis.get_instructions(code):
            is_name = isinstance(instruction.argval, str) and instruction.opname.startswith(("LOAD_", "STORE_"))
            is_global = instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}
            is_builtin = is_global and hasattr(builtins, str(instruction.argval))
            if change.is_assigned and not instruction.opname.startswith(("STORE_", "DELETE_", "LOAD_CONST")):
                continue
            changing_names = {*aliases, *(change.names if has_owner else ())}
            if is_name and not is_builtin and instruction.argval in changing_names:
                positions = instruction.positions
                if positions is not None and positions.lineno is not None:
                    return StackFrame(code.co_filename, positions.lineno, code.co_name, code.co_firstlineno)
    return None


#: The number of seconds between two checks of a thread that may be waiting for a lock.
_WATCH_INTERVAL_S = 0.5
_LEFTOVER_LOCK = StateChange("leaves a lock locked", frozenset({"acquire", "__enter__"}))


@contextlib.contextmanager
def release_leftover_locks(locks: Sequence[Any], fn: Any) -> Iterator[None]:
    """Release copied locks that are free when the context starts, if code in the context leaves them locked.

    The code of ``fn`` is searched for the line that acquires a lock. A TrialStoppedError is raised if a lock was left
    locked, or if the code waited for a lock that only the code itself could release.
    """
    with _free_locks_when_waiting([lock for lock in locks if type(lock) is type(threading.Lock())]) as freed_locks:
        try:
            yield
        finally:
            left_locked = [lock for lock in locks if _release(lock)]
    if freed_locks:
        raise TrialStoppedError(ObservedEffect("process", THREAD_WAIT_EFFECT, None))
    if left_locked:
        raise TrialStoppedError(
            ObservedEffect(
                "state", _LEFTOVER_LOCK.description, find_changing_line(_LEFTOVER_LOCK, user_code_objects(fn), {})
            )
        )


@contextlib.contextmanager
def _free_locks_when_waiting(locks: Sequence[Any]) -> Iterator[list[Any]]:
    """Release copied locks if this thread makes no progress while they are locked, and yield the released locks."""
    freed_locks: list[Any] = []
    if not locks:
        yield freed_locks
        return
    is_over, thread = threading.Event(), threading.get_ident()

    def release_if_stuck() -> None:
        before: tuple[int, int, float] | None = None
        while not is_over.wait(_WATCH_INTERVAL_S):
            frame = sys._current_frames()[thread]  # noqa: SLF001 - the documented way to read another thread's stack
            now = id(frame), frame.f_lasti, time.clock_gettime(time.pthread_getcpuclockid(thread))
            if now == before:
                freed_locks.extend(lock for lock in locks if _release(lock))
            before = now

    watcher = threading.Thread(target=release_if_stuck, daemon=True)
    watcher.start()
    try:
        yield freed_locks
    finally:
        is_over.set()
        watcher.join()


def _release(lock: Any) -> bool:
    """Release a lock that only this thread uses, and return whether it was locked."""
    is_locked = lock.locked if isinstance(lock, type(threading.Lock())) else lock._is_owned  # noqa: SLF001 - RLock has no `locked` before 3.14
    was_locked: bool = is_locked()
    while is_locked():
        lock.release()
    return was_locked
