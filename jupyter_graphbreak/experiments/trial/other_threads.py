"""Find other threads that run the user's code, and redirect the output and warnings of one thread only."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
import traceback
import warnings
from pathlib import Path
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import frames_outward
from jupyter_graphbreak._torch_compat.patching import patch_attribute
from jupyter_graphbreak.records.package_paths import OWN_FOLDER, is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator
    from typing import TextIO
    from warnings import WarningMessage

    Registries = list[tuple[str, dict[str, Any], dict[Any, Any]]]


class _ThreadStream(io.TextIOWrapper):
    """A stream that writes to a thread's own stream while the thread redirects it, and otherwise to the original.

    As with a standard stream, Dynamo does not trace the methods, so it reports a break in one of them on the program's
    line.
    """

    def __init__(self, stream: TextIO) -> None:
        encoding = getattr(stream, "encoding", None) or "utf-8"
        self.target = _ThreadOutput(stream, encoding)
        super().__init__(self.target, encoding, getattr(stream, "errors", None), newline="", write_through=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target.stream(), name)


class _ThreadOutput(io.RawIOBase):
    """Passes the output on to the stream of the current thread."""

    def __init__(self, stream: TextIO, encoding: str) -> None:
        self.original = stream
        #: The streams to which each thread redirects its output, the innermost last.
        self.thread_streams: dict[int, list[TextIO]] = {}
        self._encoding = encoding

    def stream(self) -> TextIO:
        streams = self.thread_streams.get(get_ident())
        return streams[-1] if streams else self.original

    @property
    def name(self) -> Any:
        return self.stream().name

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.stream().write(bytes(data).decode(self._encoding, "replace"))
        return len(data)

    def flush(self) -> None:
        stream = self.stream()
        if not getattr(stream, "closed", False) and hasattr(stream, "flush"):  # a user class may lack both
            stream.flush()

    def isatty(self) -> bool:
        return self.stream().isatty()

    def fileno(self) -> int:
        return self.stream().fileno()


#: The replacements for standard streams, by name and id of the original. They stay alive because Python's ``print``
#: holds no reference to the stream to which it writes, so another thread could write to freed memory.
_replacement_streams: dict[tuple[str, int], _ThreadStream] = {}
_MAX_REPLACEMENT_STREAMS = 64
_streams_lock = threading.RLock()


def _replacement_stream(name: str, stream: Any) -> _ThreadStream:
    """Return the replacement for a standard stream, or the stream itself if it is a replacement."""
    if any(
        replacement is stream
        for (replaced_name, _), replacement in _replacement_streams.items()
        if replaced_name == name
    ):
        return stream  # type: ignore[no-any-return]
    key = name, id(stream)
    replacement = _replacement_streams.get(key)
    if replacement is None or replacement.target.original is not stream or replacement.closed:
        _replacement_streams.pop(key, None)
        _replacement_streams[key] = replacement = _ThreadStream(stream)
        for old_key in list(_replacement_streams)[:-_MAX_REPLACEMENT_STREAMS]:
            del _replacement_streams[old_key]
    return replacement


@contextlib.contextmanager
def redirect_thread_streams(out: TextIO, err: TextIO) -> Iterator[None]:
    """Redirect what this thread writes to the standard streams while the context is open."""
    targets = {"stdout": out, "stderr": err, "__stdout__": out, "__stderr__": err}
    thread = get_ident()
    with _streams_lock:
        names = [name for name in targets if getattr(sys, name) is not None]
        replacements = {name: _replacement_stream(name, getattr(sys, name)) for name in names}
        for name, replacement in replacements.items():
            replacement.target.thread_streams.setdefault(thread, []).append(targets[name])
            setattr(sys, name, replacement)
    try:
        yield
    finally:
        with _streams_lock:
            for name, replacement in replacements.items():
                thread_streams = replacement.target.thread_streams
                thread_streams[thread].remove(targets[name])
                if not thread_streams[thread]:
                    del thread_streams[thread]
                if not thread_streams and getattr(sys, name) is replacement:
                    setattr(sys, name, replacement.target.original)


@contextlib.contextmanager
def isolate_warnings(registries: Registries | None = None) -> Iterator[None]:
    """Preserve the current warning filters for other threads, whatever filters this thread sets.

    Python has one list of filters, which must accept every warning while the context is open. The warnings of this
    thread are shown as usual. Only one thread at a time can open the context. ``registries`` is the current
    result of :func:`warning_registries`, if the caller has it: computing it takes half a millisecond.
    """
    with _isolation_lock:
        if _open_isolations:
            yield
            return
        _open_isolations.append(True)
        try:
            with _isolate_warnings(warning_registries() if registries is None else registries):
                yield
        finally:
            _open_isolations.clear()


_isolation_lock = threading.RLock()
_open_isolations: list[bool] = []


@contextlib.contextmanager
def _isolate_warnings(registries: Registries) -> Iterator[None]:
    filters, default = list(warnings.filters), warnings.defaultaction  # type: ignore[attr-defined]
    once_registry: dict[Any, Any] = warnings.onceregistry  # type: ignore[attr-defined]
    shown_once_keys = set(once_registry)
    shown_keys = {id(names): set(registry) for _, names, registry in registries}
    thread, is_open = get_ident(), [True]
    show_on_this_thread, show_on_other_threads = warnings._showwarnmsg, _process_warning_printer()  # type: ignore[attr-defined]  # noqa: SLF001
    new_keys: list[tuple[Callable[[], dict[Any, Any]], Any]] = []

    def is_new(message: WarningMessage, action: str) -> bool:
        """Return whether a warning has not been shown before, as the filter's action defines it."""
        text, category = str(message.message), message.category
        if action == "always":
            return True
        if action == "once":
            known_keys, key = shown_once_keys, (text, category)
            new_keys.append((lambda: once_registry, key))
        else:
            names = _warning_namespace(message.filename)
            known_keys = shown_keys.setdefault(id(names), set())
            key = (text, category, 0 if action == "module" else message.lineno)  # type: ignore[assignment]
            new_keys.append((lambda: names.setdefault("__warningregistry__", {}), key))
        is_known = key in known_keys
        known_keys.add(key)
        return not is_known

    def dispatch(message: WarningMessage) -> None:
        if not is_open or get_ident() == thread:
            show_on_this_thread(message)
            return
        action = _filter_action(message, filters, default)
        if action == "error":
            raise message.message if isinstance(message.message, Warning) else message.category(message.message)
        if action != "ignore" and is_new(message, action):
            show_on_other_threads(message)

    with patch_attribute(warnings, "_showwarnmsg", dispatch):
        try:
            yield
        finally:
            is_open.clear()
            version = filters_version() if new_keys else None
            for (
                find_registry,
                key,
            ) in new_keys:  # they are stored only now, because a trial removes the registries that it has created
                registry = find_registry()
                registry.setdefault("version", version)  # without a version, Python clears the registry
                registry[key] = True


def warning_registries() -> Registries:
    """Return the name, the globals and the registry of shown warnings of each module that has a registry."""
    # A copy, because a garbage collection may import a module during the iteration.
    candidates = [
        (name, names, names["__warningregistry__"])
        for name, module in sys.modules.copy().items()
        # `getattr` would make a lazy module try to import the registry.
        if "__warningregistry__" in (names := module.__dict__ if type(module) is ModuleType else _namespace_of(module))
    ]
    return [(name, names, registry) for name, names, registry in candidates if isinstance(registry, dict)]


def _process_warning_printer() -> Callable[[WarningMessage], None]:
    """Return the function that shows warnings now, as ``warnings._showwarnmsg`` selects it."""
    custom_printer, default_printer = warnings.showwarning, warnings._showwarnmsg_impl  # type: ignore[attr-defined]  # noqa: SLF001
    if custom_printer is warnings._showwarning_orig:  # type: ignore[attr-defined]  # noqa: SLF001
        return default_printer  # type: ignore[no-any-return]
    return lambda message: custom_printer(
        message.message, message.category, message.filename, message.lineno, message.file, message.line
    )


def _filter_action(message: WarningMessage, filters: list[Any], default: str) -> str:
    """Return the action of the first filter that applies to a warning."""
    text = str(message.message)
    files = ((name, _namespace_of(module).get("__file__")) for name, module in sys.modules.copy().items())
    module = next((name for name, file in files if file == message.filename), "__main__")
    for action, pattern, category, module_pattern, line in filters:
        if (
            (pattern is None or _matches(pattern, text))
            and issubclass(message.category, category)
            and (module_pattern is None or _matches(module_pattern, module))
            and line in {0, message.lineno}
        ):
            return str(action)
    return default


def _matches(pattern: Any, text: str) -> bool:
    return bool(pattern.match(text)) if hasattr(pattern, "match") else pattern == text


def _namespace_of(module: Any) -> dict[str, Any]:
    return getattr(module, "__dict__", {})


def _warning_namespace(filename: str) -> dict[str, Any]:
    """Return the globals of the code in a file that issues a warning on this thread."""
    frames = frames_outward(sys._getframe(1))  # noqa: SLF001 - the only way to find the warning code
    return next((frame.f_globals for frame in frames if frame.f_code.co_filename == filename), {})


class _ProbeWarning(Warning):
    """A warning that makes Python write the version of its filters to a registry."""


def filters_version() -> Any:
    """Return the version of the filters that Python writes to a registry of shown warnings."""
    registry: dict[Any, Any] = {}
    with patch_attribute(warnings, "_showwarnmsg", lambda _: None), contextlib.suppress(_ProbeWarning):
        warnings.warn_explicit("", _ProbeWarning, "", 1, registry=registry)
    return registry.get("version")


def busy_thread_name(library_files: Container[str] = ()) -> str | None:
    """Return the name of another thread that is running the user's code; ``None`` if there is none.

    Threads that only wait for work, such as those of a kernel or of an idle pool, are ignored. A pending timer is
    included, because it will call the user's code. The code in ``library_files`` is treated as the user's.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - there is no public function
        files = (outer.f_code.co_filename for outer, _ in traceback.walk_stack(frame))
        if ident != get_ident() and any(_is_user_code(file, library_files) for file in files):
            return names.get(ident, "unknown")
    for thread in threading.enumerate():
        code = getattr(getattr(thread, "function", None), "__code__", None)
        if isinstance(thread, threading.Timer) and code is not None and _is_user_code(code.co_filename, library_files):
            return thread.name
    return None


def _is_user_code(filename: str, library_files: Container[str]) -> bool:
    if filename in library_files:
        return True
    path = Path(filename)
    is_launcher = path.parent.name == Path(sys.executable).parent.name  # a kernel, or a test runner
    may_be_user_file = not filename.startswith((OWN_FOLDER, "<frozen")) and not is_library(filename)
    return may_be_user_file and path.suffix in {".py", ""} and not is_launcher
