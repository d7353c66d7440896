"""See what a function does outside of its objects, and keep a trial from doing it.

Python tells an audit hook of files that are opened, processes that are started and so on, before it happens
(https://docs.python.org/3/library/audit_events.html). A hook cannot be removed; ours returns at once unless somebody
listens on the same thread.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import stat
import sys
import sysconfig
import threading
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

import torch

from jupyter_graphbreak._torch_compat.configuration import disable_dynamo
from jupyter_graphbreak._torch_compat.hooks.stacks_and_codes import entry_of_frame
from jupyter_graphbreak._torch_compat.process_settings import file_writers
from jupyter_graphbreak.records.package_paths import OWN_FOLDER, is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Literal

    from jupyter_graphbreak.records.records import StackEntry
    from jupyter_graphbreak.report.schema import EffectKind

    #: Says what an event does, given its arguments; ``None`` if it does nothing outside.
    Describe = Callable[[tuple[Any, ...]], str | None]
    Role = Literal["own", "library", "neutral", "exempt", "ours"]

_STDLIB = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib"))
_TORCH = os.path.join(os.path.dirname(inspect.getfile(torch)), "")  # noqa: PTH118, PTH120 - compared with names of code objects
#: Parts of PyTorch that compile. Their caches, locks, threads and processes are their own affair.
_COMPILERS = tuple(
    os.path.join(_TORCH, name, "")  # noqa: PTH118 - as above
    for name in ("_inductor", "_dynamo", "_functorch", "_subclasses", "_logging")
)
#: What of them calls the user's code in each run.
_RUNTIME = tuple(
    os.path.join(_TORCH, "_dynamo", name)  # noqa: PTH118 - as above
    for name in ("eval_frame.py", "external_utils.py", "decorators.py")
)
#: Packages that compile, too.
_COMPILER_PACKAGES = {"triton"}
#: Packages that compilers use for their caches, and what shows progress from a thread of its own.
_HELPER_PACKAGES = {"filelock", "mpmath", "networkx", "sympy"}
#: Where code comes from that Python or PyTorch generated.
_GENERATED = ("<frozen ", "<eval_with_key>", "<lambda", "<attrs ", "<__array_function__", "<torch")
#: The functions by which a log record goes to the handlers. A trial keeps the records, and no handler sees them.
_LOGGING_CALLS = {"callHandlers", "handle", "emit"}
_DEEPEST = 2000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Files that every process may read from and write to.
_HARMLESS = {os.devnull, "/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random"}
_LONGEST = 200


@dataclass(frozen=True)
class SeenEffect:
    """Something that code did, or was about to do, outside of its objects.

    Parameters
    ----------
    what : str
        What it does, as the rest of a sentence: "writes to the file rows.csv".
    place : StackEntry or None
        The innermost line of the user's code that leads to it, or the library's line where there is none.
    """

    kind: EffectKind
    what: str
    place: StackEntry | None = None


class TrialStoppedError(Exception):
    """A trial was stopped before it did something outside of its copies."""

    def __init__(self, effect: SeenEffect) -> None:
        super().__init__(f"it {effect.what}")
        self.effect = effect


class EffectRefusedError(BaseException):
    """Raised in the user's code in place of an effect. It is no ``Exception``, so that few handlers catch it."""


class Listener(Protocol):
    """Told on its thread of what code does.

    ``hides_others`` says whether those that listened before are told nothing.
    """

    hides_others: bool

    def notice(self, effect: SeenEffect, frame: FrameType) -> None:
        """Note an effect that is about to happen; raising prevents it."""

    def notice_state(self, what: str, place: StackEntry | None, frame: FrameType) -> None:
        """Note the line that is about to change the state of the process, which can be restored."""


#: Who listens on each thread, the innermost last.
_listeners: dict[int, list[Listener]] = {}
_busy: set[int] = set()
_installed = False
_installing = threading.Lock()


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell a listener of the effects of this thread while the context is open."""
    _install()
    thread = threading.get_ident()
    stack = _listeners.setdefault(thread, [])
    stack.append(listener)
    try:
        yield
    finally:
        stack.remove(listener)
        if not stack:
            _listeners.pop(thread, None)


def is_listening() -> bool:
    """Whether somebody listens on this thread."""
    return threading.get_ident() in _listeners


def notice(kind: EffectKind, what: str, frame: FrameType) -> None:
    """Tell the listener of this thread of an effect that no audit event precedes.

    Parameters
    ----------
    frame : FrameType
        The caller of what has the effect.
    """
    thread = threading.get_ident()
    stack = _listeners.get(thread)
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
            listener.notice(SeenEffect(kind, what, place), frame)
        if listener.hides_others:
            break


def _install() -> None:
    global _installed  # noqa: PLW0603 - a hook stays as long as the process
    with _installing:
        if not _installed:
            importlib.import_module("torch._dynamo.eval_frame").skip_code(_hook.__code__)
            sys.addaudithook(_hook)
            _installed = True


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _listeners or threading.get_ident() not in _listeners:
        return
    if event not in _EVENTS and not event.startswith(_FAMILY_STARTS):  # among them that of sys._getframe
        return
    _told(event, args, sys._getframe(1))  # noqa: SLF001 - Python has no other name for it


@disable_dynamo
def _told(event: str, args: tuple[Any, ...], frame: FrameType) -> None:
    """Tell the listener of this thread of an audit event. Dynamo would compile this, as it happens within calls."""
    known = _EVENTS.get(event) or _family(event)
    if known is None:
        return
    kind, describe = known
    try:
        what = describe(args)
    except Exception:  # noqa: BLE001 - arguments of the user's own classes
        what = f"does something outside of its objects ({event})"
    if what is not None:
        notice(kind, what, frame)


@functools.lru_cache(maxsize=4096)
def _family(event: str) -> tuple[EffectKind, Describe] | None:
    return next(((kind, _always(what)) for start, kind, what in _FAMILIES if event.startswith(start)), None)


@functools.lru_cache(maxsize=4096)
def _role(filename: str) -> Role:
    """Return whose code a file has, as far as effects are concerned."""
    if filename.startswith("<frozen importlib"):
        return "exempt"
    if filename.startswith(_GENERATED):
        return "neutral"
    if filename.startswith(OWN_FOLDER):
        return "ours"
    if filename.startswith(_TORCH):
        compiles = filename.startswith(_COMPILERS) and not filename.startswith(_RUNTIME)
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
    """Whether a file has the user's code."""
    return _role(filename) == "own"


_PACKAGES = ("site-packages", "dist-packages")


def _origin(frame: FrameType | None) -> tuple[bool, StackEntry | None]:
    """Return whether what happens in a frame is an effect of the user's code, and the line that leads to it.

    It is none where PyTorch's compilers do it for their caches, where a module is imported, where a log record is
    handed to its handlers, or where a progress bar, such as that of ``torch.fx.Interpreter``, starts its monitor.
    """
    library: FrameType | None = None
    while frame is not None and _role(frame.f_code.co_filename) == "ours":  # a stand-in, or a hook
        frame = frame.f_back
    for _ in range(_DEEPEST):
        if frame is None:
            break
        code = frame.f_code
        role = _role(code.co_filename)
        if role == "own":
            return True, entry_of_frame(frame)
        if role == "exempt" or (code.co_name in _LOGGING_CALLS and code.co_filename.endswith(_LOGGING)):
            return False, None
        if role == "ours":
            break
        if role == "library" and library is None:
            if code.co_filename.endswith(_MONITOR):
                return False, None
            library = frame
        frame = frame.f_back
    if library is None:
        return False, None
    return True, entry_of_frame(library)


_LOGGING = os.path.join("logging", "__init__.py")  # noqa: PTH118 - compared with names of code objects
#: A thread that only looks whether bars are drawn often enough.
_MONITOR = os.path.join("tqdm", "_monitor.py")  # noqa: PTH118 - as above


def _text(value: Any) -> str:
    with contextlib.suppress(Exception):  # the user's __fspath__
        value = os.fspath(value)
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    return value[:_LONGEST] if isinstance(value, str) else type(value).__name__


def _opens(args: tuple[Any, ...]) -> str | None:
    path, _, flags = (*args, None, None, None)[:3]
    name = _text(path)
    if not isinstance(flags, int) or name in _HARMLESS or isinstance(path, int):
        return None
    if flags & _WRITING:
        return f"writes to the file {name}"
    with contextlib.suppress(OSError, ValueError, TypeError):
        mode = os.stat(path).st_mode  # noqa: PTH116 - also bytes and descriptors
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            return f"reads from the pipe {name}"
    return None


def _connects_to_database(args: tuple[Any, ...]) -> str | None:
    name = _text(args[0])
    return None if name == ":memory:" else f"opens the database {name}"


def _maps(args: tuple[Any, ...]) -> str | None:
    return "maps a file into memory" if args[0] != -1 and args[2:3] != (1,) else None


def _starts_process(args: tuple[Any, ...]) -> str:
    command = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) and args[1] else args[:1]
    return f"starts the process {_text(command[0])}"


def _addressed(verb: str) -> Describe:
    def describe(args: tuple[Any, ...]) -> str:
        address = next((arg for arg in args[1:] if isinstance(arg, tuple | str)), "")
        name = ":".join(map(str, address[:2])) if isinstance(address, tuple) else _text(address)
        return f"{verb} {name}".strip()

    return describe


def _always(what: str) -> Describe:
    return lambda _: what


def _first(verb: str) -> Describe:
    return lambda args: f"{verb} {_text(args[0])}" if args else verb


def _sleeps(args: tuple[Any, ...]) -> str | None:
    return f"sleeps for {args[0]:.0f} s" if float(args[0]) > MOST_SLEEP_S else None


#: A trial does not sleep longer.
MOST_SLEEP_S = 5.0
#: What process_state restores, by the names that it has there.
ENVIRONMENT, FOLDER = "changes the environment variables", "changes the working directory"
_RESTORED = {ENVIRONMENT, FOLDER}

_THREAD = "starts a thread"
_EVENTS: dict[str, tuple[EffectKind, Describe]] = {
    "open": ("file", _opens),
    "mmap.__new__": ("file", _maps),
    "os.truncate": ("file", _first("truncates the file")),
    "os.remove": ("file", _first("deletes the file")),
    "os.rename": ("file", _first("renames")),
    "os.mkdir": ("file", _first("makes the folder")),
    "os.rmdir": ("file", _first("deletes the folder")),
    "os.link": ("file", _first("makes a link to")),
    "os.symlink": ("file", _first("makes a link to")),
    "tempfile.mkstemp": ("file", _first("makes the file")),
    "tempfile.mkdtemp": ("file", _first("makes the folder")),
    "socket.connect": ("network", _addressed("connects to")),
    "socket.bind": ("network", _addressed("listens at")),
    "socket.sendto": ("network", _addressed("sends to")),
    "socket.sendmsg": ("network", _addressed("sends to")),
    "socket.getaddrinfo": ("network", _first("looks up the host")),
    "socket.gethostbyname": ("network", _first("looks up the host")),
    "socket.gethostbyaddr": ("network", _first("looks up the host")),
    "socket.getnameinfo": ("network", _always("looks up a host")),
    "socket.sethostname": ("state", _always("sets the name of the host")),
    "socket.__new__": ("network", _always("makes a socket")),
    "urllib.Request": ("network", _first("requests")),
    "subprocess.Popen": ("process", _starts_process),
    "os.system": ("process", _first("runs the command")),
    "os.exec": ("process", _first("replaces this process by")),
    "os.spawn": ("process", _always("starts a process")),
    "os.posix_spawn": ("process", _first("starts the process")),
    "os.startfile": ("process", _first("opens")),
    "os.fork": ("process", _always("forks this process")),
    "os.forkpty": ("process", _always("forks this process")),
    "pty.spawn": ("process", _always("starts a process")),
    "os.kill": ("process", _always("sends a signal")),
    "os.killpg": ("process", _always("sends a signal")),
    "signal.pthread_kill": ("process", _always("sends a signal")),
    "_thread.start_new_thread": ("process", _always(_THREAD)),
    "_thread.start_joinable_thread": ("process", _always(_THREAD)),
    "webbrowser.open": ("process", _first("opens a browser at")),
    "sqlite3.connect": ("database", _connects_to_database),
    "builtins.input": ("process", _always("waits for input")),
    "builtins.breakpoint": ("process", _always("waits for a debugger")),
    "time.sleep": ("process", _sleeps),
    "ctypes.dlopen": ("process", _first("loads the library")),
    "ctypes.call_function": ("process", _always("calls a function of a library")),
    "sys.addaudithook": ("state", _always("adds an audit hook")),
    "resource.setrlimit": ("state", _always("sets a limit of this process")),
    "resource.prlimit": ("state", _always("sets a limit of a process")),
    "os.putenv": ("state", _always(ENVIRONMENT)),
    "os.unsetenv": ("state", _always(ENVIRONMENT)),
    "os.chdir": ("state", _always(FOLDER)),
    "os.fchdir": ("state", _always(FOLDER)),
}
#: Beginnings of further events: all of a kind change something.
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

#: Functions that act without an audit event: what each does, by module and name.
_WITHOUT_EVENT: dict[str, dict[str, tuple[EffectKind, str]]] = {
    "os": {
        **dict.fromkeys(("write", "pwrite", "writev", "pwritev"), ("file", "writes to an open file")),
        **dict.fromkeys(("sendfile", "splice", "copy_file_range"), ("file", "writes to an open file")),
        **dict.fromkeys(("mkfifo", "mknod"), ("file", "makes a file")),
        "dup2": ("file", "redirects an open file"),
        **dict.fromkeys(("_exit", "abort"), ("process", "ends the process")),
        **dict.fromkeys(("nice", "setpriority", "sched_setaffinity", "setsid"), ("state", "sets the process")),
    },
    "signal": {
        **dict.fromkeys(("alarm", "setitimer", "raise_signal"), ("process", "sends a signal")),
    },
    "dbm.ndbm": {"open": ("file", "opens a database file")},
    "dbm.gnu": {"open": ("file", "opens a database file")},
    "atexit": {"register": ("state", "registers a function that runs when the process ends")},
}


class _Replacements:
    """Functions that tell the listeners before they act, in place for as long as somebody needs them."""

    def __init__(self, make: Callable[[], Iterator[tuple[Any, str, Callable[..., Any]]]]) -> None:
        self._make = make
        self._users = 0
        self._made: list[tuple[Any, str, Any, Any]] = []

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Have them in place while the context is open; contexts of several threads share them."""
        with _installing:
            self._users += 1
            if self._users == 1:
                for owner, name, replacement in self._make():
                    self._made.append((owner, name, getattr(owner, name), replacement))
                    setattr(owner, name, replacement)
        try:
            yield
        finally:
            with _installing:
                self._users -= 1
                if not self._users:
                    for owner, name, original, replacement in reversed(self._made):
                        if getattr(owner, name) is replacement:
                            setattr(owner, name, original)
                    self._made.clear()


def _unseen() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    for owner, name, what in file_writers():
        yield owner, name, _telling_path(getattr(owner, name), what)
    if sys.version_info < (3, 12):  # later releases have an audit event
        for module, name in (("threading", "_start_new_thread"), ("_thread", "start_new_thread")):
            owner = sys.modules[module]
            yield owner, name, _telling(getattr(owner, name), "process", _THREAD)


def _refusable() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    for module, functions in _WITHOUT_EVENT.items():
        owner = sys.modules.get(module)
        if owner is None and "dbm" in sys.modules:
            with contextlib.suppress(ImportError):  # not part of every Python
                owner = importlib.import_module(module)
        for name, (kind, what) in functions.items():
            if (original := getattr(owner, name, None)) is not None:
                yield owner, name, _telling(original, kind, what)
    builtins = sys.modules["builtins"]
    if not isinstance(builtins.input, type(len)):  # a kernel's own, which asks the front end without an audit event
        yield builtins, "input", _telling(builtins.input, "process", "waits for input")


#: What Dynamo does not look into, so that it makes no difference to a real run.
UNSEEN = _Replacements(_unseen)
#: What only a trial can replace: it is stopped where they would be called.
REFUSABLE = _Replacements(_refusable)


def _telling(original: Callable[..., Any], kind: EffectKind, what: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def tell(*args: Any, **kwargs: Any) -> Any:
        notice(kind, what, sys._getframe(1))  # noqa: SLF001 - Python has no other name for it
        return original(*args, **kwargs)

    return disable_dynamo(tell)


def _telling_path(original: Callable[..., Any], what: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def tell(*args: Any, **kwargs: Any) -> Any:
        path = next((arg for arg in args if isinstance(arg, str | bytes | os.PathLike)), None)
        if path is not None:
            notice("file", f"{what} {_text(path)}", sys._getframe(1))  # noqa: SLF001 - Python has no other name for it
        return original(*args, **kwargs)

    return disable_dynamo(tell)
