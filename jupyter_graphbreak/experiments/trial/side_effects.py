"""Detect the effects that a function has outside its objects, and prevent those of a trial.

Python calls audit hooks before it opens a file, starts a process and so on
(https://docs.python.org/3/library/audit_events.html). A hook cannot be removed; this one returns at once unless a
listener is active on the same thread.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib
import inspect
import itertools
import logging
import os
import stat
import sys
import sysconfig
import threading
from dataclasses import dataclass
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol

import torch

from jupyter_graphbreak._torch_compat.configuration import disable_dynamo
from jupyter_graphbreak._torch_compat.hooks.stacks_and_codes import entry_of_frame
from jupyter_graphbreak._torch_compat.process_settings import (
    collectives,
    file_writers,
    mappers,
    opened_by_pytorch,
    registrations,
)
from jupyter_graphbreak._torch_compat.threads import claimed, claims_here
from jupyter_graphbreak.experiments.trial.user_imports import describe_import
from jupyter_graphbreak.recording.children import without_setting
from jupyter_graphbreak.records.package_paths import OWN_FOLDER, is_library
from jupyter_graphbreak.records.records import StackEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType
    from typing import Literal

    from jupyter_graphbreak._torch_compat.threads import Claim
    from jupyter_graphbreak.report.schema import EffectKind

    #: Describes an event, given its arguments; ``None`` if it has no effect.
    Describe = Callable[[tuple[Any, ...]], str | None]
    Role = Literal["own", "library", "neutral", "exempt", "internal"]

_STDLIB = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib"))
_TORCH = os.path.join(os.path.dirname(inspect.getfile(torch)), "")  # noqa: PTH118, PTH120 - compared with names of code objects
#: PyTorch's compilers. Their caches, locks, threads and processes are no effects.
_COMPILER_FOLDERS = tuple(
    os.path.join(_TORCH, name, "")  # noqa: PTH118 - as above
    for name in ("_inductor", "_dynamo", "_functorch", "_subclasses", "_logging")
)
#: Files of the compilers that call user code in each run.
_COMPILER_RUNTIME = tuple(
    os.path.join(_TORCH, "_dynamo", name)  # noqa: PTH118 - as above
    for name in ("eval_frame.py", "external_utils.py", "decorators.py")
)
#: Other packages that compile.
_COMPILER_PACKAGES = {"triton"}
#: Packages that compilers use.
_HELPER_PACKAGES = {"filelock", "mpmath", "networkx", "sympy"}
#: Prefixes of the file names of code that Python or PyTorch generated.
_GENERATED = ("<frozen ", "<eval_with_key>", "<lambda", "<attrs ", "<__array_function__", "<torch")
#: The functions that pass a log record to the handlers. A trial captures the records, so handlers have no effect.
_LOGGING_CALLS = {"callHandlers", "handle", "emit"}
_MAX_DEPTH = 2000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Files that every process may read from and write to.
_HARMLESS = {os.devnull, "/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random"}
_MAX_LENGTH = 200


@dataclass(frozen=True)
class ObservedEffect:
    """Something that code did, or was about to do, outside its objects.

    Parameters
    ----------
    kind : EffectKind
        The kind of effect.
    what : str
        The effect, worded as the rest of a sentence: "writes to the file rows.csv".
    place : StackEntry or None
        The innermost line of user code that leads to it, or a line of a library if there is none.
    imports : str
        The module whose import it is.
    """

    kind: EffectKind
    what: str
    place: StackEntry | None = None
    imports: str = ""


class TrialStoppedError(Exception):
    """A trial was stopped before it had an effect outside its copies."""

    def __init__(self, effect: ObservedEffect) -> None:
        super().__init__(f"it {effect.what}")
        self.effect = effect


class EffectRefusedError(BaseException):
    """Raised in user code instead of an effect. Not an ``Exception``, so that few handlers catch it."""

    def __init__(self, effect: ObservedEffect) -> None:
        super().__init__(f"A trial {effect.what}: stopped.")
        self.effect = effect


class Listener(Protocol):
    """Receives the effects of code on its thread.

    If ``is_exclusive``, listeners that were added before receive nothing. Otherwise it also receives the effects of the
    threads that work for it.
    """

    is_exclusive: bool

    def notice(self, effect: ObservedEffect, frame: FrameType) -> None:
        """Receive an effect that is about to happen; raising prevents it."""

    def notice_state(self, what: str, place: StackEntry | None, frame: FrameType) -> None:
        """Receive the line that is about to change the state of the process, which can be restored."""


#: The listeners of each thread, the innermost last.
_listeners: dict[int, list[Listener]] = {}
#: The listeners that are not exclusive, with their claims to threads.
_claims: list[tuple[Claim, Listener]] = []
_busy: set[int] = set()
_installed = False
#: Making replacements may import modules, which the hook notices.
_installing = threading.RLock()


@contextlib.contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Pass the effects of this thread to a listener while the context is open."""
    _install()
    thread = threading.get_ident()
    stack = _listeners.setdefault(thread, [])
    with claimed(on_submit=functools.partial(_notice_submit, thread)) as claim:
        stack.append(listener)
        if not listener.is_exclusive:
            _claims.append((claim, listener))
        try:
            yield
        finally:
            stack.remove(listener)
            if not stack:
                _listeners.pop(thread, None)
            if not listener.is_exclusive:
                _claims.remove((claim, listener))


def _notice_submit(thread: int, frame: FrameType) -> None:
    if threading.get_ident() == thread:
        notice("process", SUBMITS, frame)


def _listeners_here() -> list[Listener]:
    """Return the listeners of this thread, or those of the run that it works for, the innermost last."""
    own = _listeners.get(threading.get_ident())
    if own is not None or not _claims:
        return own or []
    claims = claims_here()
    return [listener for claim, listener in _claims if claim in claims]


def is_in_trial() -> bool:
    """Return whether this thread runs a trial, which nothing else may observe."""
    return any(listener.is_exclusive for listener in _listeners.get(threading.get_ident(), ()))


def forget_descriptors() -> None:
    """Forget which descriptors earlier trials have made, since the program may have got the same numbers since."""
    if not is_in_trial():
        _made_descriptors.clear()


def is_listening() -> bool:
    """Return whether a listener is active on this thread."""
    return threading.get_ident() in _listeners


def notice(kind: EffectKind, what: str, frame: FrameType) -> None:
    """Pass an effect to the listeners of this thread.

    Parameters
    ----------
    kind : EffectKind
        The kind of effect.
    what : str
        The effect, worded as the rest of a sentence.
    frame : FrameType
        The frame that calls the function with the effect.
    """
    thread = threading.get_ident()
    stack = _listeners_here()
    if not stack or thread in _busy:
        return
    _busy.add(thread)
    try:
        is_effect, place = _origin(frame)
    finally:
        _busy.discard(thread)
    if not is_effect:
        return
    for listener in reversed(stack):
        if kind == "state" and what in _RESTORED:
            listener.notice_state(what, place, frame)
        else:
            listener.notice(ObservedEffect(kind, what, place), frame)
        if listener.is_exclusive:
            break


def _install() -> None:
    global _installed  # noqa: PLW0603 - a hook cannot be removed
    with _installing:
        if not _installed:
            importlib.import_module("torch._dynamo.eval_frame").skip_code(_hook.__code__)
            sys.addaudithook(_hook)
            _installed = True


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _listeners or (not _claims and threading.get_ident() not in _listeners):
        return
    # Others, such as the event of sys._getframe, are no effects.
    if event not in _EVENTS and event != _IMPORT and not event.startswith(_FAMILY_STARTS):
        return
    _handle_event(event, args, sys._getframe(1))  # noqa: SLF001 - Python has no other name for it


@disable_dynamo
def _handle_event(event: str, args: tuple[Any, ...], frame: FrameType) -> None:
    """Pass an audit event to the listeners; excluded from compilation, since it runs inside compiled calls."""
    if event == _IMPORT:
        if is_in_trial():
            _handle_import(args[0], frame)
        return
    known = _EVENTS.get(event) or _family(event)
    if known is None:
        return
    kind, describe = known
    try:
        what = describe(args)
    except Exception:  # noqa: BLE001 - arguments of user classes
        what = f"does something outside its objects ({event})"
    if what is not None:
        notice(kind, what, frame)


def _handle_import(name: str, frame: FrameType | None) -> None:
    """Pass on that user code imports a module, also if Dynamo does so while it traces the code."""
    thread = threading.get_ident()
    if thread in _busy:
        return
    if name in _WITHOUT_EVENT and name not in sys.modules:
        _busy.add(thread)
        try:
            importlib.import_module(name)
            REFUSABLE.extend()
        except ImportError:
            return  # the import fails again, for the user's code
        finally:
            _busy.discard(thread)
    if (what := describe_import(name)) is None:
        return
    while frame is not None and not is_own_code(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is not None:
        effect = ObservedEffect("state", what, line_that_imports(name, [frame.f_code]), imports=name)
        _listeners_here()[-1].notice(effect, frame)


def line_that_imports(name: str, codes: Iterable[CodeType]) -> StackEntry | None:
    """Return the line of user code that imports a module."""
    for code in codes:
        for instruction in dis.get_instructions(code) if is_own_code(code.co_filename) else ():
            place = instruction.positions
            is_import = instruction.opname in {"IMPORT_NAME", "LOAD_CONST"} and instruction.argval == name
            if is_import and place is not None:
                return StackEntry(
                    code.co_filename, place.lineno or code.co_firstlineno, code.co_name, code.co_firstlineno
                )
    return None


@functools.lru_cache(maxsize=4096)
def _family(event: str) -> tuple[EffectKind, Describe] | None:
    return next(((kind, _always(what)) for start, kind, what in _FAMILIES if event.startswith(start)), None)


@functools.lru_cache(maxsize=4096)
def _role(filename: str) -> Role:
    """Return whose code a file contains, for the attribution of effects."""
    if filename.startswith("<frozen importlib"):
        return "exempt"
    if filename.startswith(_GENERATED):
        return "neutral"
    if filename.startswith(OWN_FOLDER):
        return "internal"
    if filename.startswith(_TORCH):
        compiles = filename.startswith(_COMPILER_FOLDERS) and not filename.startswith(_COMPILER_RUNTIME)
        return "exempt" if compiles else "neutral"
    if filename.startswith("<") or not is_library(filename):
        return "own"
    if filename.startswith(_STDLIB) and not any(f"{os.sep}{name}{os.sep}" in filename for name in _PACKAGES):
        return "neutral"
    parts = {*PurePath(filename).parts}
    if parts & _COMPILER_PACKAGES:
        return "exempt"
    return "neutral" if parts & _HELPER_PACKAGES else "library"


def is_own_code(filename: str) -> bool:
    """Return whether a file contains user code."""
    return _role(filename) == "own"


_PACKAGES = ("site-packages", "dist-packages")


def _origin(frame: FrameType | None) -> tuple[bool, StackEntry | None]:
    """Return whether an event in a frame is an effect of user code, and the line that leads to it.

    It is not if PyTorch's compilers cause it, if a module is imported, if a log record is passed to its handlers, or if
    a progress bar, such as that of ``torch.fx.Interpreter``, starts its monitor or makes its lock.
    """
    library: FrameType | None = None
    while frame is not None and _role(frame.f_code.co_filename) == "internal":  # a stand-in, or a hook
        frame = frame.f_back
    for _ in range(_MAX_DEPTH):
        if frame is None:
            break
        code = frame.f_code
        role = _role(code.co_filename)
        if role == "own":
            return True, entry_of_frame(frame)
        if role == "exempt" or (code.co_name in _LOGGING_CALLS and code.co_filename.endswith(_LOGGING)):
            return False, None
        if role == "internal":
            break
        if role == "library" and library is None:
            if code.co_filename.endswith(_MONITOR) or code.co_name == _MAKES_LOCK:
                return False, None
            library = frame
        frame = frame.f_back
    if library is None:
        return False, None
    return True, entry_of_frame(library)


_LOGGING = os.path.join("logging", "__init__.py")  # noqa: PTH118 - compared with names of code objects
#: The thread that checks whether progress bars are refreshed often enough.
_MONITOR = os.path.join("tqdm", "_monitor.py")  # noqa: PTH118 - as above
#: The function that makes the lock of all progress bars, of which Python's resource tracker is told.
_MAKES_LOCK = "create_mp_lock"


def _text(value: Any) -> str:
    with contextlib.suppress(Exception):  # the user's __fspath__
        value = os.fspath(value)
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    return value[:_MAX_LENGTH] if isinstance(value, str) else type(value).__name__


def _describe_open(args: tuple[Any, ...]) -> str | None:
    path, _, flags = (*args, None, None, None)[:3]
    name = _text(path)
    if not isinstance(flags, int) or name in _HARMLESS:
        return None
    if isinstance(path, int):
        if path in _made_descriptors:
            return None
        if flags & _WRITING:
            return "writes to an open file"
        return "reads from an open file" if is_in_trial() else None  # a real run may have opened it itself
    if flags & _WRITING:
        return f"writes to the file {name}"
    with contextlib.suppress(OSError, ValueError, TypeError):
        mode = os.stat(path).st_mode  # noqa: PTH116 - accepts bytes and descriptors
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            return f"reads from the pipe {name}"
    return None


def _describe_truncation(args: tuple[Any, ...]) -> str:
    return "truncates an open file" if isinstance(args[0], int) else f"truncates the file {_text(args[0])}"


def _describe_database(args: tuple[Any, ...]) -> str | None:
    name = _text(args[0])
    return None if name == ":memory:" else f"opens the database {name}"


def _describe_mapping(args: tuple[Any, ...]) -> str | None:
    return "maps a file into memory" if args[0] != -1 and args[2:3] != (1,) else None


def _describe_process(args: tuple[Any, ...]) -> str:
    command = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) and args[1] else args[:1]
    return f"starts the process {_text(command[0])}"


def _with_address(verb: str) -> Describe:
    def describe(args: tuple[Any, ...]) -> str:
        address = next((arg for arg in args[1:] if isinstance(arg, tuple | str)), "")
        name = ":".join(map(str, address[:2])) if isinstance(address, tuple) else _text(address)
        return f"{verb} {name}".strip()

    return describe


def _always(what: str) -> Describe:
    return lambda _: what


def _with_first_argument(verb: str) -> Describe:
    return lambda args: f"{verb} {_text(args[0])}" if args else verb


def _describe_sleep(args: tuple[Any, ...]) -> str | None:
    return f"sleeps for {args[0]:.0f} s" if float(args[0]) > MAX_SLEEP_S else None


#: A longer sleep is an effect.
MAX_SLEEP_S = 5.0
#: Changes that process_state restores, as described there.
ENVIRONMENT, FOLDER = "changes the environment variables", "changes the working directory"
_RESTORED = {ENVIRONMENT, FOLDER}
#: A change of state that outlives the process.
HOSTNAME = "sets the name of the host"

_THREAD = "starts a thread"
#: The event of an import, which has an effect only in trials: a real run imports each module once.
_IMPORT = "import"
#: What code does that passes work to threads or processes which exist already.
SUBMITS = "hands work to another thread or process"
WAITS_FOR_INPUT = "waits for input"
COMMUNICATES = "communicates with other processes"
USES_SHELL = "uses the notebook's shell"
#: What code does with an address, which trials vary as they do other numbers.
_USES_ADDRESS = "uses memory by its address"
#: What code does that has an event loop call a function later.
SCHEDULES = "schedules work in an event loop"
_EVENTS: dict[str, tuple[EffectKind, Describe]] = {
    "open": ("file", _describe_open),
    "mmap.__new__": ("file", _describe_mapping),
    "os.truncate": ("file", _describe_truncation),
    "os.remove": ("file", _with_first_argument("deletes the file")),
    "os.rename": ("file", _with_first_argument("renames")),
    "os.mkdir": ("file", _with_first_argument("makes the folder")),
    "os.rmdir": ("file", _with_first_argument("deletes the folder")),
    "os.link": ("file", _with_first_argument("makes a link to")),
    "os.symlink": ("file", _with_first_argument("makes a link to")),
    "tempfile.mkstemp": ("file", _with_first_argument("makes the file")),
    "tempfile.mkdtemp": ("file", _with_first_argument("makes the folder")),
    "socket.connect": ("network", _with_address("connects to")),
    "socket.bind": ("network", _with_address("listens at")),
    "socket.sendto": ("network", _with_address("sends to")),
    "socket.sendmsg": ("network", _with_address("sends to")),
    "socket.getaddrinfo": ("network", _with_first_argument("looks up the host")),
    "socket.gethostbyname": ("network", _with_first_argument("looks up the host")),
    "socket.gethostbyaddr": ("network", _with_first_argument("looks up the host")),
    "socket.getnameinfo": ("network", _always("looks up a host")),
    "socket.sethostname": ("state", _always(HOSTNAME)),
    "socket.__new__": ("network", _always("makes a socket")),
    "urllib.Request": ("network", _with_first_argument("requests")),
    "subprocess.Popen": ("process", _describe_process),
    "os.system": ("process", lambda args: f"runs the command {without_setting(_text(args[0]))}"),
    "os.exec": ("process", _with_first_argument("replaces this process by")),
    "os.spawn": ("process", _always("starts a process")),
    "os.posix_spawn": ("process", _with_first_argument("starts the process")),
    "os.startfile": ("process", _with_first_argument("opens")),
    "os.fork": ("process", _always("forks this process")),
    "os.forkpty": ("process", _always("forks this process")),
    "pty.spawn": ("process", _always("starts a process")),
    "os.kill": ("process", _always("sends a signal")),
    "os.killpg": ("process", _always("sends a signal")),
    "signal.pthread_kill": ("process", _always("sends a signal")),
    "_thread.start_new_thread": ("process", _always(_THREAD)),
    "_thread.start_joinable_thread": ("process", _always(_THREAD)),
    "webbrowser.open": ("process", _with_first_argument("opens a browser at")),
    "sqlite3.connect": ("database", _describe_database),
    "builtins.input": ("process", _always(WAITS_FOR_INPUT)),
    "builtins.breakpoint": ("process", _always("waits for a debugger")),
    "time.sleep": ("process", _describe_sleep),
    "ctypes.dlopen": ("process", _with_first_argument("loads the library")),
    "ctypes.call_function": ("process", _always("calls a function of a library")),
    **dict.fromkeys(
        ("ctypes.cdata", "ctypes.PyObj_FromPtr", "ctypes.string_at", "ctypes.wstring_at"),
        ("process", _always(_USES_ADDRESS)),
    ),
    "sys.addaudithook": ("state", _always("adds an audit hook")),
    "resource.setrlimit": ("state", _always("sets a limit of this process")),
    "resource.prlimit": ("state", _always("sets a limit of a process")),
    "os.putenv": ("state", _always(ENVIRONMENT)),
    "os.unsetenv": ("state", _always(ENVIRONMENT)),
    "os.chdir": ("state", _always(FOLDER)),
    "os.fchdir": ("state", _always(FOLDER)),
}
#: Prefixes of further events, all of which are effects.
_FAMILIES: tuple[tuple[str, EffectKind, str], ...] = (
    ("shutil.", "file", "copies, moves or deletes files"),
    ("os.chmod", "file", "changes the rights of a file"),
    ("os.chown", "file", "changes the owner of a file"),
    ("os.chflags", "file", "changes the flags of a file"),
    ("os.setxattr", "file", "changes a file"),
    ("os.removexattr", "file", "changes a file"),
    ("os.utime", "file", "changes the times of a file"),
    ("os.lockf", "file", "locks a file"),
    ("fcntl.", "file", "controls an open file"),
    ("msvcrt.", "file", "controls an open file"),
    ("ftplib.", "network", "uses FTP"),
    ("http.client.", "network", "sends a request"),
    ("imaplib.", "network", "reads mail"),
    ("nntplib.", "network", "uses the network"),
    ("poplib.", "network", "reads mail"),
    ("smtplib.", "network", "sends mail"),
    ("telnetlib.", "network", "uses the network"),
    ("syslog.", "process", "writes to the system's log"),
    ("winreg.", "state", "uses the registry"),
)

_FAMILY_STARTS = tuple(start for start, _, _ in _FAMILIES)

#: Functions whose effects have no audit event, by module and name.
_WITHOUT_EVENT: dict[str, dict[str, tuple[EffectKind, str]]] = {
    "os": {
        **dict.fromkeys(("write", "pwrite", "writev", "pwritev"), ("file", "writes to an open file")),
        **dict.fromkeys(("sendfile", "splice", "copy_file_range"), ("file", "writes to an open file")),
        **dict.fromkeys(("posix_fallocate", "eventfd_write"), ("file", "writes to an open file")),
        "closerange": ("file", "closes open files"),
        **dict.fromkeys(("mkfifo", "mknod"), ("file", "makes a file")),
        "dup2": ("file", "redirects an open file"),
        **dict.fromkeys(("_exit", "abort"), ("process", "ends the process")),
        **dict.fromkeys(("wait", "wait3", "wait4", "waitid", "waitpid"), ("process", "waits for another process")),
        "register_at_fork": ("state", "registers functions that run when the process forks"),
        **dict.fromkeys(
            ("nice", "setpriority", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "setsid", "setpgid",
             "setpgrp", "setuid", "setgid", "seteuid", "setegid", "setreuid", "setregid", "setresuid", "setresgid",
             "setgroups", "initgroups", "chroot", "tcsetpgrp", "unshare", "setns"),
            ("state", "sets the process"),
        ),
    },
    "signal": {
        **dict.fromkeys(("alarm", "setitimer", "raise_signal"), ("process", "sends a signal")),
        **dict.fromkeys(("siginterrupt", "set_wakeup_fd"), ("state", "sets signal handlers")),
    },
    "_thread": {"interrupt_main": ("process", "sends a signal")},
    "faulthandler": {
        "dump_traceback": ("file", "writes to an open file"),
        **dict.fromkeys(("dump_traceback_later", "cancel_dump_traceback_later"), ("state", "sets a timer of faults")),
        **dict.fromkeys(("register", "unregister"), ("state", "sets the handler of faults")),
    },
    "importlib": {"reload": ("state", "loads a module again")},
    "sys": {"setdlopenflags": ("state", "sets how libraries are loaded")},
    "sys.monitoring": dict.fromkeys(
        ("use_tool_id", "free_tool_id", "clear_tool_id", "register_callback", "set_events", "set_local_events",
         "restart_events"),
        ("state", "sets what monitors the interpreter"),
    ),
    "tracemalloc": dict.fromkeys(("start", "stop", "clear_traces", "reset_peak"), ("state", "traces memory")),
    "termios": dict.fromkeys(("tcsetattr", "tcsendbreak", "tcflush", "tcflow"), ("state", "sets the terminal")),
    "unittest.mock": {
        **dict.fromkeys(("_patch.start", "_patch_dict.start"), ("state", "replaces an object until someone stops it")),
        **dict.fromkeys(("_patch.stop", "_patch_dict.stop"), ("state", "stops replacing an object")),
    },
    "safetensors": {"serialize_file": ("file", "writes a file")},
    "safetensors.torch": {"serialize_file": ("file", "writes a file")},
    "safetensors.numpy": {"serialize_file": ("file", "writes a file")},
    "getpass": {"getpass": ("process", WAITS_FOR_INPUT)},
    "_posixshmem": dict.fromkeys(("shm_open", "shm_unlink"), ("file", "opens memory that processes share")),
    "ctypes": dict.fromkeys(("memmove", "memset", "cast"), ("process", _USES_ADDRESS)),
    "torch.distributed.distributed_c10d": dict.fromkeys(
        ("_new_process_group_helper", "destroy_process_group"), ("process", "sets up groups of processes")
    ),
    "torch.distributed": {"destroy_process_group": ("process", "sets up groups of processes")},
    "gc": dict.fromkeys(("freeze", "unfreeze"), ("state", "freezes what the garbage collector looks at")),
    "dbm.ndbm": {"open": ("file", "opens a database file")},
    "dbm.gnu": {"open": ("file", "opens a database file")},
    "atexit": {
        "register": ("state", "registers a function that runs when the process ends"),
        "unregister": ("state", "removes a function that runs when the process ends"),
    },
    "abc": {"ABCMeta.register": ("state", "registers a class with an abstract class")},
    "asyncio": dict.fromkeys(("set_event_loop", "set_event_loop_policy"), ("state", "sets the event loop")),
    "codecs": dict.fromkeys(("register", "unregister", "register_error"), ("state", "registers a codec")),
    "copyreg": dict.fromkeys(("pickle", "add_extension", "remove_extension"), ("state", "registers how to pickle")),
    "csv": dict.fromkeys(("register_dialect", "unregister_dialect"), ("state", "registers a CSV dialect")),
    "calendar": {"setfirstweekday": ("state", "sets the first day of weeks")},
    "gettext": dict.fromkeys(("textdomain", "bindtextdomain", "install"), ("state", "sets how texts are translated")),
    "mimetypes": {"add_type": ("state", "adds a type of files")},
    "readline": dict.fromkeys(
        ("add_history", "clear_history", "remove_history_item", "replace_history_item", "parse_and_bind",
         "set_auto_history", "set_completer", "set_completer_delims", "set_history_length", "set_pre_input_hook",
         "set_startup_hook", "insert_text"),
        ("state", "sets how lines are read"),
    ),
    "sqlite3": dict.fromkeys(
        ("register_adapter", "register_converter", "enable_callback_tracebacks"), ("state", "sets how rows are read")
    ),
}  # fmt: skip


#: Functions that make descriptors, and functions that use one up or move its position; none has an audit event.
_MAKE_DESCRIPTORS = ("open", "pipe", "pipe2", "dup", "memfd_create", "eventfd")
_USE_DESCRIPTOR = ("read", "readv", "lseek", "close", "set_blocking", "set_inheritable")
#: The descriptors that the present trial has made; using another one is an effect.
_made_descriptors: set[int] = set()


#: Methods of IPython's shell that change the notebook's names or run code.
_SHELL_METHODS = (
    "push",
    "drop_by_id",
    "del_var",
    "reset",
    "ex",
    "run_cell",
    "run_line_magic",
    "run_cell_magic",
    "system",
    "set_next_input",
    "set_custom_exc",
    "register_magic_function",
)


#: The attributes of IPython's shell that contain the notebook's names.
_SHELL_NAMESPACES = ("user_ns", "user_module", "user_global_ns")


#: Stands for the original of a method that a class inherits.
_INHERITED = object()


class _Replacements:
    """Replacements that call the listeners before the original functions, installed while any context is open."""

    def __init__(self, make: Callable[[], Iterator[tuple[Any, str, Callable[..., Any]]]]) -> None:
        self._make = make
        self._known: tuple[int, dict[int, Callable[..., Any]]] = 0, {}
        self._users = 0
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Install them while the context is open; contexts of several threads share them."""
        with _installing:
            self._users += 1
            if self._users == 1:
                self._install_missing()
        try:
            yield
        finally:
            with _installing:
                self._users -= 1
                if not self._users:
                    for owner, name, original, replacement in reversed(self._replaced):
                        if vars(owner).get(name) is not replacement:
                            continue
                        if original is _INHERITED:
                            delattr(owner, name)
                        else:
                            setattr(owner, name, original)
                    self._replaced.clear()

    def extend(self) -> None:
        """Replace the functions of modules that were imported since, if any context is open."""
        with _installing:
            if self._users:
                self._install_missing()

    def _install_missing(self) -> None:
        made = list(self._make())  # which may import modules
        known = {(id(owner), name) for owner, name, _, _ in self._replaced}
        for owner, name, replacement in made:
            if (id(owner), name) not in known:
                self._replaced.append((owner, name, vars(owner).get(name, _INHERITED), replacement))
                setattr(owner, name, replacement)

    def instead_of(self, function: Any) -> Callable[..., Any] | None:
        """Return the replacement of a function, for code that has imported it by name; ``None`` if it has none."""
        if not isinstance(function, BuiltinFunctionType | FunctionType):
            return None
        with _installing:
            if self._known[0] != len(sys.modules):  # more functions may be there
                made = self._replaced or [(o, name, getattr(o, name, None), new) for o, name, new in self._make()]
                self._known = len(sys.modules), {id(original): new for _, _, original, new in made}
        return self._known[1].get(id(function))


def _unaudited_functions() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    for owner, name, what in file_writers():
        yield owner, name, _announcing_path(getattr(owner, name), what)
    if sys.version_info < (3, 12):  # later releases have an audit event
        for module, name in (("threading", "_start_new_thread"), ("_thread", "start_new_thread")):
            owner = sys.modules[module]
            yield owner, name, _announcing(getattr(owner, name), "process", _THREAD)


def _refusable_functions() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    for owner, name, kind, what in itertools.chain(
        _functions_without_event(), opened_by_pytorch(), _notebook_functions()
    ):
        yield owner, name, _announcing(getattr(owner, name), kind, what)
    for names, replace in ((_MAKE_DESCRIPTORS, _noting_descriptors), (_USE_DESCRIPTOR, _announcing_use)):
        for name in names:
            if hasattr(os, name):
                yield os, name, replace(getattr(os, name))
    for name in ("putenv", "unsetenv"):  # `os.environ` calls them as well, which is restored
        yield os, name, _announcing_by_user(getattr(os, name), "state", "changes the environment of libraries")
    for owner, name in _handler_methods():
        yield owner, name, _announcing_by_user(getattr(owner, name), "file", "passes a record to a log handler")
    for owner, name in collectives():
        yield owner, name, _announcing(getattr(owner, name), "network", COMMUNICATES)
    for owner, name in mappers():
        yield owner, name, _announcing_mapping(getattr(owner, name))
    bootstrap: Any = sys.modules["importlib._bootstrap"]
    # `importlib.import_module` calls it, without an audit event.
    yield bootstrap, "_gcd_import", _announcing_import(bootstrap._gcd_import)  # noqa: SLF001 - it has no other name
    shell = _shell_class()
    for name in _SHELL_NAMESPACES if shell is not None else ():
        yield shell, name, _announcing_attribute(name, getattr(shell, name, None))
    for owner, name in registrations():
        yield owner, name, _announcing(getattr(owner, name), "state", "registers something with PyTorch")


def _functions_without_event() -> Iterator[tuple[Any, str, EffectKind, str]]:
    """Yield the functions of :data:`_WITHOUT_EVENT` whose modules are loaded."""
    for module, functions in _WITHOUT_EVENT.items():
        owner: Any = sys.modules.get(module)
        if module == "sys.monitoring":  # new in Python 3.12
            owner = getattr(sys, "monitoring", None)
        elif owner is None and module.startswith("dbm.") and "dbm" in sys.modules:
            with contextlib.suppress(ImportError):  # not in every Python build
                owner = importlib.import_module(module)
        for dotted, (kind, what) in functions.items():
            *kinds, name = dotted.split(".")
            holder = getattr(owner, kinds[0], None) if kinds else owner
            if hasattr(holder, name):
                yield holder, name, kind, what


def _shell_class() -> Any:
    """Return the class of IPython's shells, ``None`` if this process has none."""
    return getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)


@functools.cache
def _announcing_attribute(name: str, original: property | None) -> Any:
    """Return a property that announces each use of an attribute by user code.

    Parameters
    ----------
    name : str
        The name of the attribute.
    original : property or None
        Reads and writes the attribute; without it, instances contain it.
    """

    def read(instance: Any) -> Any:
        frame = sys._getframe(1)  # noqa: SLF001 - Python has no other name for it
        if _is_called_by_user(frame):
            notice("state", USES_SHELL, frame)
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
    """Yield the functions with which code uses the notebook's shell, an event loop or a kernel's input."""
    shell = _shell_class()
    for name in _SHELL_METHODS if shell is not None else ():
        yield shell, name, "state", USES_SHELL
    loop = getattr(sys.modules.get("asyncio.base_events"), "BaseEventLoop", None)
    for name in ("create_task", "call_soon", "call_soon_threadsafe", "call_at", "run_in_executor") if loop else ():
        yield loop, name, "process", SCHEDULES
    builtins = sys.modules["builtins"]
    if not isinstance(builtins.input, type(len)):  # a kernel's `input`, which has no audit event
        yield builtins, "input", "process", WAITS_FOR_INPUT


#: Replacements that Dynamo does not trace, so that they do not affect a real run.
UNAUDITED = _Replacements(_unaudited_functions)
#: Replacements for trials only, which are stopped before the originals are called.
REFUSABLE = _Replacements(_refusable_functions)


def _once_per_function(make: Callable[..., Callable[..., Any]]) -> Callable[..., Callable[..., Any]]:
    """Keep the replacement of each function: making all of them for each run takes longer than most runs."""
    known: dict[tuple[Any, ...], tuple[Any, Callable[..., Any]]] = {}

    def made(original: Callable[..., Any], *details: str) -> Callable[..., Any]:
        key = (id(original), *details)
        if key not in known:
            known[key] = original, make(original, *details)  # the original is kept, so that no other gets its id
        return known[key][1]

    return made


@_once_per_function
def _announcing(original: Callable[..., Any], kind: EffectKind, what: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def announce(*args: Any, **kwargs: Any) -> Any:
        notice(kind, what, sys._getframe(1))  # noqa: SLF001 - Python has no other name for it
        return original(*args, **kwargs)

    return disable_dynamo(announce)


#: The methods with which code uses a log handler directly. Trials capture the records of loggers before.
_HANDLER_METHODS = ("emit", "handle", "flush", "close", "doRollover")


def _handler_methods() -> Iterator[tuple[Any, str]]:
    """Yield the methods of Python's own log handlers, by owner and name."""
    for module in ("logging", "logging.handlers"):
        for kind in list(vars(sys.modules.get(module, object)).values()):
            if isinstance(kind, type) and issubclass(kind, logging.Handler) and kind.__module__ == module:
                yield from ((kind, name) for name in _HANDLER_METHODS if name in vars(kind))


@_once_per_function
def _announcing_by_user(original: Callable[..., Any], kind: EffectKind, what: str) -> Callable[..., Any]:
    """Return a function that announces calls by user code, and not those by libraries."""

    @functools.wraps(original)
    def announce(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)  # noqa: SLF001 - Python has no other name for it
        if _is_called_by_user(frame):
            notice(kind, what, frame)
        return original(*args, **kwargs)

    return disable_dynamo(announce)


@_once_per_function
def _announcing_import(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def announce(name: str, *args: Any, **kwargs: Any) -> Any:
        if is_in_trial():
            _handle_import(name, sys._getframe(1))  # noqa: SLF001 - Python has no other name for it
        return original(name, *args, **kwargs)

    return disable_dynamo(announce)


@_once_per_function
def _announcing_mapping(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that announces a mapping which writes to its file; others leave the file as it is."""

    @functools.wraps(original)
    def announce(*args: Any, **kwargs: Any) -> Any:
        path, is_shared = [*args, None, None][:2]
        if kwargs.get("shared", is_shared):
            what = f"maps the file {_text(kwargs.get('filename', path))} into memory"
            notice("file", what, sys._getframe(1))  # noqa: SLF001 - as above
        return original(*args, **kwargs)

    return disable_dynamo(announce)


@_once_per_function
def _noting_descriptors(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        is_other_name = original.__name__ == "dup" and args[:1] and args[0] not in _made_descriptors
        if is_listening() and not is_other_name:
            _made_descriptors.update(result if isinstance(result, tuple) else (result,))
        return result

    return disable_dynamo(make)


@_once_per_function
def _announcing_use(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def use(*args: Any, **kwargs: Any) -> Any:
        descriptor, frame = args[0] if args else kwargs.get("fd"), sys._getframe(1)  # noqa: SLF001 - as above
        # What a finalizer of a library closes does not belong to the code that runs then.
        if descriptor not in _made_descriptors and (original.__name__ != "close" or _is_called_by_user(frame)):
            notice("file", "uses the open file", frame)
        elif original.__name__ == "close":
            _made_descriptors.discard(descriptor)
        return original(*args, **kwargs)

    return disable_dynamo(use)


def _is_called_by_user(frame: FrameType) -> bool:
    """Return whether user code calls a function that Dynamo does not trace, given the frame of the call."""
    caller: FrameType | None = frame
    while caller is not None and caller.f_code.co_filename.startswith(_COMPILER_RUNTIME):
        caller = caller.f_back
    return caller is not None and is_own_code(caller.f_code.co_filename)


@_once_per_function
def _announcing_path(original: Callable[..., Any], what: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def announce(*args: Any, **kwargs: Any) -> Any:
        path = next((arg for arg in args if isinstance(arg, str | bytes | os.PathLike)), None)
        if path is not None:
            notice("file", f"{what} {_text(path)}", sys._getframe(1))  # noqa: SLF001 - Python has no other name for it
        return original(*args, **kwargs)

    return disable_dynamo(announce)
