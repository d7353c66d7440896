"""Replace functions whose effects raise no audit event, so that the listeners of :mod:`.side_effects` learn of them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import itertools
import logging
import os
import sys
import threading
import time
from types import BuiltinMethodType, FunctionType
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.configuration import disable_dynamo
from jupyter_graphbreak._torch_compat.patching import patch_on_thread
from jupyter_graphbreak._torch_compat.process_settings import (
    collectives,
    file_writers,
    memory_mapping_functions,
    registration_functions,
    unaudited_opening_functions,
)
from jupyter_graphbreak.experiments.trial import extension_files
from jupyter_graphbreak.experiments.trial.code_roles import is_called_by_user
from jupyter_graphbreak.experiments.trial.extension_files import add_announcement, cache_replacements
from jupyter_graphbreak.experiments.trial.side_effects import (
    ADDRESS_EFFECT,
    COMMUNICATION_EFFECT,
    INPUT_WAIT_EFFECT,
    SCHEDULED_WORK_EFFECT,
    SHELL_EFFECT,
    THREAD_START_EFFECT,
    THREAD_WAIT_EFFECT,
    before_import_callbacks,
    describe_sleep,
    handle_import,
    is_in_trial,
    notify_listeners,
    short_description,
    trial_file_descriptors,
)
from jupyter_graphbreak.records.attributes import is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from jupyter_graphbreak.report.schema import EffectKind


#: Functions whose effects raise no audit event, by module and name.
_FUNCTIONS_WITHOUT_EVENT: dict[str, dict[str, tuple[EffectKind, str]]] = {
    "os": {
        **dict.fromkeys(
            ("write", "pwrite", "writev", "pwritev", "sendfile", "splice", "copy_file_range", "posix_fallocate",
             "eventfd_write"),
            ("file", "writes to an open file"),
        ),
        "closerange": ("file", "closes open files"),
        **dict.fromkeys(("mkfifo", "mknod"), ("file", "creates a file")),
        "dup2": ("file", "redirects an open file"),
        **dict.fromkeys(("_exit", "abort"), ("process", "ends the process")),
        **dict.fromkeys(("wait", "wait3", "wait4", "waitid", "waitpid"), ("process", "waits for another process")),
        "register_at_fork": ("state", "registers functions that run when the process forks"),
        **dict.fromkeys(
            ("nice", "setpriority", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "setsid", "setpgid",
             "setpgrp", "setuid", "setgid", "seteuid", "setegid", "setreuid", "setregid", "setresuid", "setresgid",
             "setgroups", "initgroups", "chroot", "tcsetpgrp", "unshare", "setns"),
            ("state", "changes attributes of the process"),
        ),
    },
    "signal": {
        **dict.fromkeys(("alarm", "setitimer", "raise_signal"), ("process", "sends a signal")),
        **dict.fromkeys(("siginterrupt", "set_wakeup_fd"), ("state", "sets signal handlers")),
        **dict.fromkeys(("pause", "sigwait", "sigwaitinfo", "sigtimedwait"), ("process", THREAD_WAIT_EFFECT)),
    },
    "select": {"select": ("process", THREAD_WAIT_EFFECT)},
    "selectors": dict.fromkeys(
        ("SelectSelector.select", "PollSelector.select", "EpollSelector.select", "KqueueSelector.select"),
        ("process", THREAD_WAIT_EFFECT),
    ),
    "_thread": {"interrupt_main": ("process", "sends a signal")},
    "faulthandler": {
        "dump_traceback": ("file", "writes to an open file"),
        **dict.fromkeys(("dump_traceback_later", "cancel_dump_traceback_later"), ("state", "sets a fault timer")),
        **dict.fromkeys(("enable", "disable", "register", "unregister"), ("state", "sets the fault handler")),
    },
    "importlib": {"reload": ("state", "loads a module again")},
    "sys": {"setdlopenflags": ("state", "sets the flags for loading libraries")},
    "sys.monitoring": dict.fromkeys(
        ("use_tool_id", "free_tool_id", "clear_tool_id", "register_callback", "set_events", "set_local_events",
         "restart_events"),
        ("state", "sets up monitoring of the interpreter"),
    ),
    "time": {"tzset": ("state", "sets the time zone")},
    "tracemalloc": dict.fromkeys(("start", "stop", "clear_traces", "reset_peak"), ("state", "traces memory")),
    "termios": dict.fromkeys(("tcsetattr", "tcsendbreak", "tcflush", "tcflow"), ("state", "sets the terminal")),
    "unittest.mock": {
        **dict.fromkeys(("_patch.start", "_patch_dict.start"), ("state", "starts replacing an object")),
        **dict.fromkeys(("_patch.stop", "_patch_dict.stop"), ("state", "stops replacing an object")),
    },
    "safetensors": {"serialize_file": ("file", "writes a file")},
    "safetensors.torch": {"serialize_file": ("file", "writes a file")},
    "safetensors.numpy": {"serialize_file": ("file", "writes a file")},
    # These functions call the audit hook only after they have made a descriptor.
    "socket": dict.fromkeys(("socketpair", "fromfd"), ("network", "creates a socket")),
    # If a trial stopped a thread only inside `Thread.start`, Python would keep the thread in its list of threads.
    "threading": {"Thread.start": ("process", THREAD_START_EFFECT), "Condition.wait": ("process", THREAD_WAIT_EFFECT)},
    # Python creates pipes before it starts a process, and these would stay open.
    "multiprocessing.process": {"BaseProcess.start": ("process", "starts a process")},
    "getpass": {"getpass": ("process", INPUT_WAIT_EFFECT)},
    "_posixshmem": dict.fromkeys(("shm_open", "shm_unlink"), ("file", "opens memory that processes share")),
    "ctypes": dict.fromkeys(("memmove", "memset", "cast"), ("process", ADDRESS_EFFECT)),
    "torch.distributed.distributed_c10d": dict.fromkeys(
        ("_new_process_group_helper", "destroy_process_group"), ("process", "sets up process groups")
    ),
    "torch.distributed": {"destroy_process_group": ("process", "sets up process groups")},
    "gc": dict.fromkeys(("freeze", "unfreeze"), ("state", "freezes objects for the garbage collector")),
    "dbm.ndbm": {"open": ("file", "opens a database file")},
    "dbm.gnu": {"open": ("file", "opens a database file")},
    "atexit": {
        "register": ("state", "registers a function that runs when the process ends"),
        "unregister": ("state", "removes a function that runs when the process ends"),
    },
    "abc": {"ABCMeta.register": ("state", "registers a class with an abstract class")},
    "asyncio": {
        **dict.fromkeys(("set_event_loop", "set_event_loop_policy"), ("state", "sets the event loop")),
        "new_event_loop": ("network", "creates an event loop"),
    },
    "asyncio.events": {"new_event_loop": ("network", "creates an event loop")},
    "codecs": dict.fromkeys(("register", "unregister", "register_error"), ("state", "registers a codec")),
    "copyreg": dict.fromkeys(("pickle", "add_extension", "remove_extension"), ("state", "registers with pickle")),
    "csv": dict.fromkeys(("register_dialect", "unregister_dialect"), ("state", "registers a CSV dialect")),
    "calendar": {"setfirstweekday": ("state", "sets the first day of the week")},
    "gettext": dict.fromkeys(("textdomain", "bindtextdomain", "install"), ("state", "sets the translation of text")),
    "mimetypes": {"add_type": ("state", "adds a file type")},
    "loguru._logger": dict.fromkeys(
        ("Logger.add", "Logger.remove", "Logger.configure", "Logger.enable", "Logger.disable"),
        ("state", "changes loggers"),
    ),
    "structlog": dict.fromkeys(("configure", "configure_once", "reset_defaults"), ("state", "changes loggers")),
    "readline": dict.fromkeys(
        ("add_history", "clear_history", "remove_history_item", "replace_history_item", "parse_and_bind",
         "set_auto_history", "set_completer", "set_completer_delims", "set_history_length", "set_pre_input_hook",
         "set_startup_hook", "insert_text"),
        ("state", "configures how input lines are read"),
    ),
    "sqlite3": dict.fromkeys(
        ("register_adapter", "register_converter", "enable_callback_tracebacks"),
        ("state", "configures how database rows are read"),
    ),
}  # fmt: skip

#: Functions of ``os`` that create file descriptors, and functions that use one. Only ``open`` has an audit event,
#: which does not contain the descriptor.
_DESCRIPTOR_MAKERS = (
    "open", "pipe", "pipe2", "dup", "memfd_create", "eventfd", "openpty", "posix_openpt", "pidfd_open",
    "timerfd_create",
)  # fmt: skip
_DESCRIPTOR_USERS = ("read", "readv", "lseek", "close", "set_blocking", "set_inheritable")
#: Methods of IPython's shell that change the notebook's variables or run code.
_SHELL_METHODS = (
    "push", "drop_by_id", "del_var", "reset", "ex", "run_cell", "run_line_magic", "run_cell_magic", "system",
    "set_next_input", "set_custom_exc", "register_magic_function",
)  # fmt: skip
#: The attributes of IPython's shell that contain the notebook's names.
_SHELL_NAMESPACES = ("user_ns", "user_module", "user_global_ns")
_forget_cached_attributes = ctypes.pythonapi.PyType_Modified
#: Marks the original of a method that a class inherits.
_INHERITED = object()
#: The lock is reentrant, because creating replacements may import modules, and an import may install further ones.
_install_lock = threading.RLock()


class Replacements:
    """Replacements that call the listeners before the original functions, installed while any context is open."""

    def __init__(self, make: Callable[[], Iterator[tuple[Any, str, Callable[..., Any]]]]) -> None:
        self._make = make
        self._known_replacements: tuple[int, dict[int, Callable[..., Any]]] = 0, {}
        self._open_context_count = 0
        self._replaced_attributes: list[tuple[Any, str, Any, Any]] = []

    @contextlib.contextmanager
    def install(self) -> Iterator[None]:
        """Install the replacements while the context is open. Contexts of several threads share them."""
        with _install_lock:
            self._open_context_count += 1
            if self._open_context_count == 1:
                self._install_missing()
        try:
            yield
        finally:
            with _install_lock:
                self._open_context_count -= 1
                if not self._open_context_count:
                    for owner, name, original, replacement in reversed(self._replaced_attributes):
                        if vars(owner).get(name) is not replacement:
                            continue
                        if original is _INHERITED:
                            delattr(owner, name)
                        else:
                            _set_attribute(owner, name, original)
                    self._replaced_attributes.clear()

    def extend(self) -> None:
        """Also replace the functions of modules that were imported after the installation, if any context is open."""
        with _install_lock:
            if self._open_context_count:
                self._install_missing()

    def _install_missing(self) -> None:
        replacements = list(self._make())  # this may import modules
        installed_keys = {(id(owner), name) for owner, name, _, _ in self._replaced_attributes}
        for owner, name, replacement in replacements:
            if (id(owner), name) not in installed_keys:
                original = vars(owner).get(name, _INHERITED)
                if _set_attribute(owner, name, replacement):
                    self._replaced_attributes.append((owner, name, original, replacement))

    def replacement_of(self, function: Any) -> Callable[..., Any] | None:
        """Return the replacement for a function, for code that has imported it by name, or ``None``."""
        if is_instance(function, BuiltinMethodType) and (method := extension_files.wrap_writing_method(function)):
            return method
        if not is_instance(function, FunctionType | type) and not extension_files.is_extension_function(function):
            return None
        with _install_lock:
            if self._known_replacements[0] != len(sys.modules):  # there may be more functions now
                replaced_attributes = self._replaced_attributes or [
                    (owner, name, getattr(owner, name, None), replacement) for owner, name, replacement in self._make()
                ]
                self._known_replacements = (
                    len(sys.modules),
                    {id(original): replacement for _, _, original, replacement in replaced_attributes},
                )
        return self._known_replacements[1].get(id(function))


def _set_attribute(owner: Any, name: str, value: Any) -> bool:
    """Set an attribute, even of an extension type that Python refuses to change, and return whether this worked."""
    with contextlib.suppress(TypeError, AttributeError):
        setattr(owner, name, value)
        return True
    content = gc.get_referents(vars(owner))  # the dict behind the proxy
    if len(content) != 1 or type(content[0]) is not dict:
        return False
    content[0][name] = value
    _forget_cached_attributes(ctypes.py_object(owner))
    return True


def _common_replacements() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    for owner, name, description in file_writers():
        yield owner, name, _wrap_file_writer(getattr(owner, name), description)
    if sys.version_info < (3, 12):  # later releases have an audit event
        for module, name in (("threading", "_start_new_thread"), ("_thread", "start_new_thread")):
            owner = sys.modules[module]
            yield owner, name, _wrap_to_announce(getattr(owner, name), "process", THREAD_START_EFFECT)


def _trial_replacements() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    for owner, name, kind, description in itertools.chain(
        _functions_without_event(), unaudited_opening_functions(), _notebook_functions()
    ):
        yield owner, name, _wrap_to_announce(getattr(owner, name), kind, description)
    for names, wrap in ((_DESCRIPTOR_MAKERS, _wrap_descriptor_maker), (_DESCRIPTOR_USERS, _wrap_descriptor_user)):
        for name in names:
            if hasattr(os, name):
                yield os, name, wrap(getattr(os, name))
    for name in ("putenv", "unsetenv"):  # `os.environ`, which trials restore, also calls them
        yield (
            os,
            name,
            _wrap_for_user_calls(getattr(os, name), "state", "changes the environment variables of libraries"),
        )
    for owner, name in _handler_methods():
        yield owner, name, _wrap_for_user_calls(getattr(owner, name), "file", "passes a record to a log handler")
    for owner, name in collectives():
        yield owner, name, _wrap_to_announce(getattr(owner, name), "network", COMMUNICATION_EFFECT)
    yield from extension_files.file_replacements()
    for owner, name in memory_mapping_functions():
        yield owner, name, _wrap_mapping(getattr(owner, name))
    bootstrap: Any = sys.modules["importlib._bootstrap"]
    # `importlib.import_module` calls this function, without an audit event.
    yield bootstrap, "_gcd_import", _wrap_import(bootstrap._gcd_import)  # noqa: SLF001 - there is no public name
    shell = _shell_class()
    for name in _SHELL_NAMESPACES if shell is not None else ():
        yield shell, name, _make_announcing_property(name, getattr(shell, name, None))
    for owner, name in registration_functions():
        yield owner, name, _wrap_to_announce(getattr(owner, name), "state", "registers something with PyTorch")


def _functions_without_event() -> Iterator[tuple[Any, str, EffectKind, str]]:
    """Yield the functions of :data:`_FUNCTIONS_WITHOUT_EVENT` whose modules are loaded."""
    for module, functions in _FUNCTIONS_WITHOUT_EVENT.items():
        owner: Any = sys.modules.get(module)
        if module == "sys.monitoring":  # new in Python 3.12
            owner = getattr(sys, "monitoring", None)
        elif owner is None and module.startswith("dbm.") and "dbm" in sys.modules:
            with contextlib.suppress(ImportError):  # not in every Python build
                owner = importlib.import_module(module)
        for dotted_name, (kind, description) in functions.items():
            *class_names, name = dotted_name.split(".")
            parent = getattr(owner, class_names[0], None) if class_names else owner
            if hasattr(parent, name):
                yield parent, name, kind, description


def _shell_class() -> Any:
    """Return IPython's shell class, or ``None`` if this process has none."""
    return getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)


@functools.cache
def _make_announcing_property(name: str, original: property | None) -> Any:
    """Return a property that announces each read of an attribute by user code.

    The original property reads and writes the attribute; it is ``None`` if instances contain the attribute.
    """

    def read(instance: Any) -> Any:
        frame = sys._getframe(1)  # noqa: SLF001 - there is no public function
        if is_called_by_user(frame):
            notify_listeners("state", SHELL_EFFECT, frame)
        if original is not None:
            return original.__get__(instance)
        try:
            return vars(instance)[name]
        except KeyError:
            raise AttributeError(name) from None

    def write(instance: Any, value: Any) -> None:
        if original is not None:
            original.__set__(instance, value)
        else:
            vars(instance)[name] = value

    return property(read, write)


def _notebook_functions() -> Iterator[tuple[Any, str, EffectKind, str]]:
    """Yield the functions that code calls to use the notebook's shell, an event loop or a kernel's input."""
    shell = _shell_class()
    for name in _SHELL_METHODS if shell is not None else ():
        yield shell, name, "state", SHELL_EFFECT
    loop = getattr(sys.modules.get("asyncio.base_events"), "BaseEventLoop", None)
    for name in ("create_task", "call_soon", "call_soon_threadsafe", "call_at", "run_in_executor") if loop else ():
        yield loop, name, "process", SCHEDULED_WORK_EFFECT
    builtins = sys.modules["builtins"]
    if not isinstance(builtins.input, type(len)):  # a kernel's `input`, which has no audit event
        yield builtins, "input", "process", INPUT_WAIT_EFFECT


#: Replacements for trials and real runs; they do not change the effects of real runs.
COMMON_REPLACEMENTS = Replacements(_common_replacements)
#: Replacements for trials only, most of which stop a trial before they call the original.
TRIAL_REPLACEMENTS = Replacements(_trial_replacements)


def announce_sleep() -> contextlib.AbstractContextManager[None]:
    """Announce long sleeps of this thread while the context is open, for code that runs eagerly.

    Python 3.13 and later have an audit event for ``time.sleep``. With a replacement in compiled code, Dynamo would give
    a different reason for the break.
    """
    original = time.sleep

    def announce(seconds: float) -> None:
        if (description := describe_sleep((seconds,))) is not None:
            notify_listeners("process", description, sys._getframe(1))  # noqa: SLF001 - there is no public function
        original(seconds)

    return patch_on_thread(time, "sleep", announce) if sys.version_info < (3, 13) else contextlib.nullcontext()


@cache_replacements
def _wrap_to_announce(original: Callable[..., Any], kind: EffectKind, description: str) -> Callable[..., Any]:
    return add_announcement(original, lambda _, __, frame: notify_listeners(kind, description, frame))


#: The methods that code calls to use a log handler directly. Trials capture the records of loggers before handlers do.
_HANDLER_METHODS = ("emit", "handle", "flush", "close", "doRollover")


def _handler_methods() -> Iterator[tuple[Any, str]]:
    """Yield the methods of Python's own log handlers, by owner and name."""
    for module in ("logging", "logging.handlers"):
        for cls in list(vars(sys.modules.get(module, object)).values()):
            if isinstance(cls, type) and issubclass(cls, logging.Handler) and cls.__module__ == module:
                yield from ((cls, name) for name in _HANDLER_METHODS if name in vars(cls))


@cache_replacements
def _wrap_for_user_calls(original: Callable[..., Any], kind: EffectKind, description: str) -> Callable[..., Any]:
    """Return a function that announces the calls that user code makes, but not the calls that libraries make."""

    def announce(_: tuple[Any, ...], __: dict[str, Any], frame: FrameType) -> None:
        if is_called_by_user(frame):
            notify_listeners(kind, description, frame)

    return add_announcement(original, announce)


@cache_replacements
def _wrap_import(original: Callable[..., Any]) -> Callable[..., Any]:
    def announce(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> None:
        if is_in_trial():
            handle_import(args[0] if args else kwargs["name"], frame)

    return add_announcement(original, announce)


@cache_replacements
def _wrap_mapping(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that announces memory mappings that write to their file. Other mappings have no effect."""

    def announce(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> None:
        path, is_shared = [*args, None, None][:2]
        if kwargs.get("shared", is_shared):
            description = f"maps the file {short_description(kwargs.get('filename', path))} into memory"
            notify_listeners("file", description, frame)

    return add_announcement(original, announce)


@cache_replacements
def _wrap_descriptor_maker(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_and_note(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if is_in_trial():
            is_duplicate = original.__name__ == "dup" and args[:1] and not trial_file_descriptors.is_usable(args[0])
            # A library's descriptors belong to the library's objects, which close them.
            is_for_user = is_called_by_user(sys._getframe(1))  # noqa: SLF001 - there is no public function
            for descriptor in result if isinstance(result, tuple) else (result,):
                trial_file_descriptors.note(descriptor, has_own_position=not is_duplicate, closes_leftover=is_for_user)
        return result

    return disable_dynamo(call_and_note)


@cache_replacements
def _wrap_descriptor_user(original: Callable[..., Any]) -> Callable[..., Any]:
    closes = original.__name__ == "close"

    @functools.wraps(original)
    def use(*args: Any, **kwargs: Any) -> Any:
        descriptor, frame = args[0] if args else kwargs.get("fd"), sys._getframe(1)  # noqa: SLF001 - there is no public function
        is_allowed = (
            trial_file_descriptors.was_created(descriptor) if closes else trial_file_descriptors.is_usable(descriptor)
        )
        # The code that runs while a library's finalizer closes a file has nothing to do with the file.
        if not is_allowed and (not closes or is_called_by_user(frame)):
            notify_listeners("file", "uses the open file", frame)
        result = original(*args, **kwargs)
        if closes and is_in_trial():
            trial_file_descriptors.forget(descriptor)
        return result

    return disable_dynamo(use)


@cache_replacements
def _wrap_file_writer(original: Callable[..., Any], description: str) -> Callable[..., Any]:
    def announce(args: tuple[Any, ...], _: dict[str, Any], frame: FrameType) -> None:
        path = next((arg for arg in args if isinstance(arg, str | bytes | os.PathLike)), None)
        if path is not None:
            notify_listeners("file", f"{description} {short_description(path)}", frame)

    return add_announcement(original, announce)


def _load_if_replaceable(name: str) -> None:
    """Import a module that has functions to replace, and replace them before user code can import them."""
    if (name in _FUNCTIONS_WITHOUT_EVENT or name in extension_files.EXTENSION_MODULES) and name not in sys.modules:
        importlib.import_module(name)
        TRIAL_REPLACEMENTS.extend()


before_import_callbacks.append(_load_if_replaceable)
