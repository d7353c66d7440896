"""Detect the effects that a function has outside its objects, and prevent these effects in trials.

Python calls audit hooks before it opens a file, starts a process and so on
(https://docs.python.org/3/library/audit_events.html). A hook cannot be removed. The hook of this module returns at once
unless a listener may be active for the same thread.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import os
import stat
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from jupyter_graphbreak._torch_compat.configuration import disable_dynamo
from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import frames_outward
from jupyter_graphbreak._torch_compat.threads import claim_thread, current_claims
from jupyter_graphbreak.experiments.trial.code_roles import is_user_code, origin_of_effect
from jupyter_graphbreak.experiments.trial.user_imports import describe_import, line_that_imports
from jupyter_graphbreak.recording.children import original_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from jupyter_graphbreak._torch_compat.threads import Claim
    from jupyter_graphbreak.records.records import StackFrame
    from jupyter_graphbreak.report.schema import EffectKind

    #: Describes the effect of an event, given the event's arguments, or ``None`` if there is no effect.
    Describe = Callable[[tuple[Any, ...]], str | None]

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Files that any process may read and write without an effect.
_HARMLESS_FILES = {os.devnull, "/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random"}
_MAX_DESCRIPTION_LENGTH = 200


@dataclass(frozen=True)
class ObservedEffect:
    """Something that code did, or was about to do, outside its objects.

    The description is worded as the rest of a sentence: "writes to the file rows.csv". The location is the innermost
    line of user code that leads to the effect, or a line of a library if there is none.
    """

    kind: EffectKind
    description: str
    location: StackFrame | None = None
    imported_module: str = ""


class TrialStoppedError(Exception):
    """A trial was stopped before it had an effect outside its copies, or because it changed the process's state."""

    def __init__(self, effect: ObservedEffect) -> None:
        super().__init__(f"it {effect.description}")
        self.effect = effect


class EffectRefusedError(BaseException):
    """Raised in user code to stop it before it has a side effect.

    It is not an ``Exception``, so that few handlers catch it.
    """

    def __init__(self, effect: ObservedEffect) -> None:
        super().__init__(f"A trial was stopped: it {effect.description}.")
        self.effect = effect


class Listener(Protocol):
    """Receives the effects of code on its thread.

    If ``is_exclusive``, listeners that were added earlier receive nothing. Otherwise, the listener also receives the
    effects of the threads that work for it.
    """

    is_exclusive: bool

    def on_effect(self, effect: ObservedEffect, frame: FrameType) -> None:
        """Receive an effect that is about to happen. An exception prevents the effect."""

    def on_state_change(self, description: str, location: StackFrame | None, frame: FrameType) -> None:
        """Receive a change to the process's state that is about to happen and that can be undone."""


#: The listeners of each thread, the innermost last.
_listeners: dict[int, list[Listener]] = {}
#: The listeners that are not exclusive, with their claims to threads.
_claims: list[tuple[Claim, Listener]] = []
#: The threads on which this module is examining an event. Further events there come from this module.
_busy_threads: set[int] = set()
_is_installed = False
#: The lock is reentrant, because installing the hook imports Dynamo, and an import is an event.
_install_lock = threading.RLock()
#: Functions to call with the name of a module before user code in a trial imports the module.
before_import_callbacks: list[Callable[[str], None]] = []


@contextlib.contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Pass the effects of this thread to a listener while the context is open."""
    _install_audit_hook()
    thread = threading.get_ident()
    listeners = _listeners.setdefault(thread, [])
    with claim_thread(on_submit=functools.partial(_notify_of_submitted_work, thread)) as claim:
        listeners.append(listener)
        if not listener.is_exclusive:
            _claims.append((claim, listener))
        try:
            yield
        finally:
            listeners.remove(listener)
            if not listeners:
                _listeners.pop(thread, None)
            if not listener.is_exclusive:
                _claims.remove((claim, listener))


def _notify_of_submitted_work(thread: int, frame: FrameType) -> None:
    if threading.get_ident() == thread:
        notify_listeners("process", SUBMITTED_WORK_EFFECT, frame)


def _active_listeners() -> list[Listener]:
    """Return the listeners of this thread, or those of the run that the thread works for, the innermost last."""
    own_listeners = _listeners.get(threading.get_ident())
    if own_listeners is not None or not _claims:
        return own_listeners or []
    claims = current_claims()
    return [listener for claim, listener in _claims if claim in claims]


def is_in_trial() -> bool:
    """Return whether this thread runs a trial."""
    return any(listener.is_exclusive for listener in _listeners.get(threading.get_ident(), ()))


def is_listening() -> bool:
    """Return whether a listener is active on this thread."""
    return threading.get_ident() in _listeners


def notify_listeners(kind: EffectKind, description: str, frame: FrameType) -> None:
    """Pass an effect to the listeners of this thread."""
    thread = threading.get_ident()
    listeners = _active_listeners()
    if not listeners or thread in _busy_threads:
        return
    _busy_threads.add(thread)
    try:
        is_effect, location = origin_of_effect(frame)
    finally:
        _busy_threads.discard(thread)
    if not is_effect:
        return
    for listener in reversed(listeners):
        if kind == "state" and description in _RESTORED_CHANGES:
            listener.on_state_change(description, location, frame)
        else:
            listener.on_effect(ObservedEffect(kind, description, location), frame)
        if listener.is_exclusive:
            break


def _install_audit_hook() -> None:
    global _is_installed  # noqa: PLW0603 - a hook cannot be removed, so it is installed once
    with _install_lock:
        if not _is_installed:
            importlib.import_module("torch._dynamo.eval_frame").skip_code(_audit_hook.__code__)
            sys.addaudithook(_audit_hook)
            _is_installed = True


#: Events that plain Python code raises hundreds of thousands of times in a trial.
_FREQUENT_EVENTS = frozenset({"builtins.id", "object.__getattr__", "sys._getframe"})


def _audit_hook(event: str, args: tuple[Any, ...]) -> None:
    if not _listeners or event in _FREQUENT_EVENTS or (not _claims and threading.get_ident() not in _listeners):
        return
    # Other events are not treated as effects.
    if event not in _EVENTS and event != _IMPORT_EVENT and not event.startswith(_FAMILY_PREFIXES):
        return
    _handle_event(event, args, sys._getframe(1))  # noqa: SLF001 - there is no public function


@disable_dynamo
def _handle_event(event: str, args: tuple[Any, ...], frame: FrameType) -> None:
    """Pass an audit event to the listeners. Dynamo skips this function, because it runs inside compiled calls."""
    if event == _IMPORT_EVENT:
        if is_in_trial():
            handle_import(args[0], frame)
        return
    kind_and_describe = _EVENTS.get(event) or _effect_of_family(event)
    if kind_and_describe is None:
        return
    kind, describe = kind_and_describe
    try:
        description = describe(args)
    except Exception:  # noqa: BLE001 - the arguments may be of the user's classes
        description = f"does something outside its objects ({event})"
    if description is not None:
        notify_listeners(kind, description, frame)


def handle_import(name: str, frame: FrameType | None) -> None:
    """Notify the innermost listener if an import in user code has an effect, even if Dynamo runs it while tracing."""
    thread = threading.get_ident()
    if thread in _busy_threads:
        return
    _busy_threads.add(thread)
    try:
        for callback in before_import_callbacks:
            callback(name)
    except ImportError:
        return  # the import fails again in the user's code
    finally:
        _busy_threads.discard(thread)
    if (description := describe_import(name)) is None:
        return
    user_frame = next((outer for outer in frames_outward(frame) if is_user_code(outer.f_code.co_filename)), None)
    if user_frame is not None:
        line = line_that_imports(name, [user_frame.f_code])
        effect = ObservedEffect("state", description, line, imported_module=name)
        _active_listeners()[-1].on_effect(effect, user_frame)


@functools.lru_cache(maxsize=4096)
def _effect_of_family(event: str) -> tuple[EffectKind, Describe] | None:
    return next(
        (
            (kind, _constant_description(description))
            for prefix, kind, description in _FAMILIES
            if event.startswith(prefix)
        ),
        None,
    )


def short_description(value: Any) -> str:
    """Return a path or string, shortened, for a description, or the class name of any other object."""
    with contextlib.suppress(Exception):  # the user's __fspath__
        value = os.fspath(value)
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    return value[:_MAX_DESCRIPTION_LENGTH] if isinstance(value, str) else type(value).__name__


def _describe_open(args: tuple[Any, ...]) -> str | None:
    path, _, flags = (*args, None, None, None)[:3]
    name = short_description(path)
    if not isinstance(flags, int) or name in _HARMLESS_FILES:
        return None
    if isinstance(path, int):
        if trial_file_descriptors.is_usable(path):
            return None
        if flags & _WRITE_FLAGS:
            return "writes to an open file"
        return "reads from an open file" if is_in_trial() else None  # a real run may have opened the file itself
    if flags & _WRITE_FLAGS:
        return f"writes to the file {name}"
    with contextlib.suppress(OSError, ValueError, TypeError):
        mode = os.stat(path).st_mode  # noqa: PTH116 - a Path accepts no bytes and no descriptors
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            return f"reads from the pipe {name}"
    return None


def _describe_truncation(args: tuple[Any, ...]) -> str:
    return "truncates an open file" if isinstance(args[0], int) else f"truncates the file {short_description(args[0])}"


def _describe_database(args: tuple[Any, ...]) -> str | None:
    name = short_description(args[0])
    return None if name == ":memory:" else f"opens the database {name}"


def _describe_mapping(args: tuple[Any, ...]) -> str | None:
    return "maps a file into memory" if args[0] != -1 and args[2:3] != (1,) else None


def _describe_process(args: tuple[Any, ...]) -> str:
    command = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) and args[1] else args[:1]
    return f"starts the process {short_description(command[0])}"


def _description_with_address(verb: str) -> Describe:
    def describe(args: tuple[Any, ...]) -> str:
        address = next((arg for arg in args[1:] if isinstance(arg, tuple | str)), "")
        name = ":".join(map(str, address[:2])) if isinstance(address, tuple) else short_description(address)
        return f"{verb} {name}".strip()

    return describe


def _constant_description(description: str) -> Describe:
    return lambda _: description


def _description_with_first_argument(verb: str) -> Describe:
    return lambda args: f"{verb} {short_description(args[0])}" if args else verb


def _describe_attribute(args: tuple[Any, ...]) -> str | None:
    """Return the effect of setting base classes, because copies share the class; ``None`` for other attributes."""
    owner, name = args[:2]
    return f"changes the base classes of {owner.__name__}" if name == "__bases__" else None


def describe_sleep(args: tuple[Any, ...]) -> str | None:
    """Return the effect of a long sleep, or ``None`` for a short one, which has no effect."""
    return f"sleeps for {args[0]:.0f} s" if float(args[0]) > MAX_SLEEP_S else None


#: A longer sleep is treated as an effect.
MAX_SLEEP_S = 5.0
#: Changes that :mod:`.process_state` restores, described as in that module.
ENVIRONMENT_EFFECT, FOLDER_EFFECT = "changes the environment variables", "changes the working directory"
_RESTORED_CHANGES = {ENVIRONMENT_EFFECT, FOLDER_EFFECT}
#: A change to the state that outlives the process.
HOSTNAME_EFFECT = "sets the host name"
THREAD_START_EFFECT = "starts a thread"
#: The event of an import. Imports are effects only in trials, because a real run imports each module once.
_IMPORT_EVENT = "import"
#: The effect of code that passes work to existing threads or processes.
SUBMITTED_WORK_EFFECT = "passes work to another thread or process"
INPUT_WAIT_EFFECT = "waits for input"
#: The effect of code that waits for a queue, an event, a future, an open file or a signal. Trials start no threads, so
#: the wait might never end, and a thread that waits cannot be stopped.
THREAD_WAIT_EFFECT = "waits for another thread"
COMMUNICATION_EFFECT = "communicates with other processes"
SHELL_EFFECT = "uses the notebook's shell"
#: The effect of code that uses an address. Trials vary addresses as they vary other numbers.
ADDRESS_EFFECT = "accesses memory by its address"
#: The effect of code that schedules a function in an event loop.
SCHEDULED_WORK_EFFECT = "schedules work in an event loop"
_EVENTS: dict[str, tuple[EffectKind, Describe]] = {
    "open": ("file", _describe_open),
    "mmap.__new__": ("file", _describe_mapping),
    "os.truncate": ("file", _describe_truncation),
    "os.remove": ("file", _description_with_first_argument("deletes the file")),
    "os.rename": ("file", _description_with_first_argument("renames")),
    "os.mkdir": ("file", _description_with_first_argument("creates the folder")),
    "os.rmdir": ("file", _description_with_first_argument("deletes the folder")),
    "os.link": ("file", _description_with_first_argument("creates a link to")),
    "os.symlink": ("file", _description_with_first_argument("creates a link to")),
    "tempfile.mkstemp": ("file", _description_with_first_argument("creates the file")),
    "tempfile.mkdtemp": ("file", _description_with_first_argument("creates the folder")),
    "socket.connect": ("network", _description_with_address("connects to")),
    "socket.bind": ("network", _description_with_address("listens at")),
    "socket.sendto": ("network", _description_with_address("sends to")),
    "socket.sendmsg": ("network", _description_with_address("sends to")),
    "socket.getaddrinfo": ("network", _description_with_first_argument("looks up the host")),
    "socket.gethostbyname": ("network", _description_with_first_argument("looks up the host")),
    "socket.gethostbyaddr": ("network", _description_with_first_argument("looks up the host")),
    "socket.getnameinfo": ("network", _constant_description("looks up a host")),
    "socket.sethostname": ("state", _constant_description(HOSTNAME_EFFECT)),
    "socket.__new__": ("network", _constant_description("creates a socket")),
    "urllib.Request": ("network", _description_with_first_argument("requests")),
    "subprocess.Popen": ("process", _describe_process),
    "os.system": ("process", lambda args: f"runs the command {original_command(short_description(args[0]))}"),
    "os.exec": ("process", _description_with_first_argument("replaces this process with")),
    "os.spawn": ("process", _constant_description("starts a process")),
    "os.posix_spawn": ("process", _description_with_first_argument("starts the process")),
    "os.startfile": ("process", _description_with_first_argument("opens")),
    "os.fork": ("process", _constant_description("forks this process")),
    "os.forkpty": ("process", _constant_description("forks this process")),
    "pty.spawn": ("process", _constant_description("starts a process")),
    "os.kill": ("process", _constant_description("sends a signal")),
    "os.killpg": ("process", _constant_description("sends a signal")),
    "signal.pthread_kill": ("process", _constant_description("sends a signal")),
    "_thread.start_new_thread": ("process", _constant_description(THREAD_START_EFFECT)),
    "_thread.start_joinable_thread": ("process", _constant_description(THREAD_START_EFFECT)),
    "webbrowser.open": ("process", _description_with_first_argument("opens a browser at")),
    "sqlite3.connect": ("database", _describe_database),
    "builtins.input": ("process", _constant_description(INPUT_WAIT_EFFECT)),
    "builtins.breakpoint": ("process", _constant_description("waits for a debugger")),
    "time.sleep": ("process", describe_sleep),
    "ctypes.dlopen": ("process", _description_with_first_argument("loads the library")),
    "ctypes.call_function": ("process", _constant_description("calls a library function")),
    **dict.fromkeys(
        ("ctypes.cdata", "ctypes.PyObj_FromPtr", "ctypes.string_at", "ctypes.wstring_at"),
        ("process", _constant_description(ADDRESS_EFFECT)),
    ),
    "object.__setattr__": ("state", _describe_attribute),
    "sys.addaudithook": ("state", _constant_description("adds an audit hook")),
    "resource.setrlimit": ("state", _constant_description("sets a limit of this process")),
    "resource.prlimit": ("state", _constant_description("sets a limit of a process")),
    "os.putenv": ("state", _constant_description(ENVIRONMENT_EFFECT)),
    "os.unsetenv": ("state", _constant_description(ENVIRONMENT_EFFECT)),
    "os.chdir": ("state", _constant_description(FOLDER_EFFECT)),
    "os.fchdir": ("state", _constant_description(FOLDER_EFFECT)),
}
#: The prefixes of events that are always effects.
_FAMILIES: tuple[tuple[str, EffectKind, str], ...] = (
    ("shutil.", "file", "copies, moves or deletes files"),
    ("os.chmod", "file", "changes the permissions of a file"),
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
_FAMILY_PREFIXES = tuple(start for start, _, _ in _FAMILIES)


class FileDescriptors:
    """The file descriptors that the current trial has created and not yet closed."""

    def __init__(self) -> None:
        self._usable_descriptors: set[int] = set()
        #: The device and inode of each descriptor to close. The system may reuse a number for a different file.
        self._descriptors_to_close: dict[int, tuple[int, int]] = {}

    def note(self, descriptor: int, *, has_own_position: bool, closes_leftover: bool) -> None:
        """Remember a descriptor that the trial created, and whether to close it if the trial leaves it open.

        A duplicate shares the file position of the original.
        """
        if has_own_position:
            self._usable_descriptors.add(descriptor)
        if closes_leftover:
            self._descriptors_to_close[descriptor] = _file_of(descriptor)

    def is_usable(self, descriptor: object) -> bool:
        """Return whether the trial created a descriptor that does not duplicate one that was open before."""
        return descriptor in self._usable_descriptors

    def was_created(self, descriptor: object) -> bool:
        """Return whether the trial created a descriptor."""
        return descriptor in self._usable_descriptors or descriptor in self._descriptors_to_close

    def forget(self, descriptor: Any) -> None:
        """Forget a descriptor, because it was closed."""
        self._usable_descriptors.discard(descriptor)
        self._descriptors_to_close.pop(descriptor, None)

    @contextlib.contextmanager
    def close_leftovers(self) -> Iterator[None]:
        """On exit, close the descriptors that a trial in the context has created and left open."""
        usable_descriptors, descriptors_to_close = self._usable_descriptors, self._descriptors_to_close
        self._usable_descriptors, self._descriptors_to_close = set(usable_descriptors), {}
        try:
            yield
        finally:
            leftovers, self._usable_descriptors, self._descriptors_to_close = (
                self._descriptors_to_close,
                usable_descriptors,
                descriptors_to_close,
            )
            _close_all(leftovers)


def _close_all(files: dict[int, tuple[int, int]]) -> None:
    owned_descriptors = _owned_by_files() if files else frozenset()
    for descriptor, file in files.items():
        with contextlib.suppress(OSError):  # the program may have closed it by other means
            if descriptor not in owned_descriptors and _file_of(descriptor) == file:
                os.close(descriptor)


def _file_of(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _owned_by_files() -> frozenset[int]:
    """Return the descriptors that open files will close."""
    files = [item for item in gc.get_objects() if issubclass(type(item), io.FileIO)]
    return frozenset(item.fileno() for item in files if not item.closed and item.closefd)


#: The descriptors of the current trial, and of the trials that contain it.
trial_file_descriptors = FileDescriptors()
