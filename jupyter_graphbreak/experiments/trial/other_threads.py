"""Leave other threads their output and their warnings while a run keeps its own."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from threading import get_ident
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.patching import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import TextIO
    from warnings import WarningMessage


class _Stream:
    """Stands for one stream on the thread that made it, and for the process's own on others, and afterwards."""

    def __init__(self, here: TextIO, elsewhere: TextIO) -> None:
        self._here: TextIO | None = here
        self._elsewhere = elsewhere
        self._thread = get_ident()

    def __getattr__(self, name: str) -> Any:
        is_here = self._here is not None and get_ident() == self._thread
        return getattr(self._here if is_here else self._elsewhere, name)

    def end(self) -> None:
        """Stand for the process's own stream from now on, as somebody may have kept this one."""
        self._here = None


@contextlib.contextmanager
def streams_here(out: TextIO, err: TextIO) -> Iterator[None]:
    """Redirect what this thread writes to the standard streams while the context is open."""
    before = {"stdout": sys.stdout, "stderr": sys.stderr}
    ours = {"stdout": _Stream(out, sys.stdout), "stderr": _Stream(err, sys.stderr)}
    for name, stream in ours.items():
        setattr(sys, name, stream)
    try:
        yield
    finally:
        for name, stream in ours.items():
            stream.end()
            if getattr(sys, name) is stream:
                setattr(sys, name, before[name])


@contextlib.contextmanager
def warnings_kept_elsewhere() -> Iterator[None]:
    """Treat the warnings of other threads as the filters say that are in force now, whatever they are changed to.

    Python has one list of filters. While the context is open, it must let every warning through to be shown; what this
    thread warns of is shown as Python shows it. Only one thread at a time can open it.
    """
    with _alone:
        if _opened:
            yield
            return
        _opened.append(True)
        try:
            with _warnings_kept_elsewhere():
                yield
        finally:
            _opened.clear()


_alone = threading.RLock()
_opened: list[bool] = []


@contextlib.contextmanager
def _warnings_kept_elsewhere() -> Iterator[None]:
    filters, default = list(warnings.filters), warnings.defaultaction  # type: ignore[attr-defined]
    once: dict[Any, Any] = warnings.onceregistry  # type: ignore[attr-defined]
    shown_once = set(once)
    shown = {id(registry): set(registry) for registry in map(_registry, list(sys.modules.values())) if registry}
    thread, is_open = get_ident(), [True]
    show, show_elsewhere = warnings._showwarnmsg, _shown_by_process()  # type: ignore[attr-defined]  # noqa: SLF001
    added: list[tuple[dict[Any, Any], Any]] = []

    def is_new(message: WarningMessage, action: str) -> bool:
        """Whether a warning is to be shown, as far as that depends on those shown before."""
        text, category = str(message.message), message.category
        if action == "always":
            return True
        if action == "once":
            known, key, registry = shown_once, (text, category), once
        else:
            registry = _registry_of(message.filename)
            known = shown.setdefault(id(registry), set())
            key = (text, category, 0 if action == "module" else message.lineno)  # type: ignore[assignment]
        is_known = key in known
        known.add(key)
        added.append((registry, key))
        return not is_known

    def dispatch(message: WarningMessage) -> None:
        if not is_open or get_ident() == thread:
            show(message)
            return
        action = _action(message, filters, default)
        if action == "error":
            raise message.message if isinstance(message.message, Warning) else message.category(message.message)
        if action != "ignore" and is_new(message, action):
            show_elsewhere(message)

    with patched(warnings, "_showwarnmsg", dispatch):
        try:
            yield
        finally:
            is_open.clear()
            version = version_of_filters() if added else None
            for registry, key in added:
                registry.setdefault("version", version)  # without it Python forgets what it has shown
                registry[key] = True


def _shown_by_process() -> Callable[[WarningMessage], None]:
    """Return what shows a warning now, as ``warnings._showwarnmsg`` finds it."""
    custom, plain = warnings.showwarning, warnings._showwarnmsg_impl  # type: ignore[attr-defined]  # noqa: SLF001
    if custom is warnings._showwarning_orig:  # type: ignore[attr-defined]  # noqa: SLF001
        return plain  # type: ignore[no-any-return]
    return lambda found: custom(found.message, found.category, found.filename, found.lineno, found.file, found.line)


def _action(message: WarningMessage, filters: list[Any], default: str) -> str:
    """Return what filters say about a warning."""
    text = str(message.message)
    module = next((name for name, home in list(sys.modules.items()) if _file(home) == message.filename), "__main__")
    for action, pattern, category, of_module, line in filters:
        if (
            (pattern is None or _matches(pattern, text))
            and issubclass(message.category, category)
            and (of_module is None or _matches(of_module, module))
            and line in {0, message.lineno}
        ):
            return str(action)
    return default


def _matches(pattern: Any, text: str) -> bool:
    return bool(pattern.match(text)) if hasattr(pattern, "match") else pattern == text


def _file(module: Any) -> Any:
    return getattr(module, "__dict__", {}).get("__file__")


def _registry(module: Any) -> dict[Any, Any] | None:
    registry = getattr(module, "__dict__", {}).get("__warningregistry__")
    return registry if isinstance(registry, dict) else None


def _registry_of(filename: str) -> dict[Any, Any]:
    """Return the registry of the code that warns on this thread."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to ask who warns
    while frame is not None:
        if frame.f_code.co_filename == filename:
            registry: dict[Any, Any] = frame.f_globals.setdefault("__warningregistry__", {})
            return registry
        frame = frame.f_back
    return {}


class _Probe(Warning):
    """Shows the version of the filters, which Python writes to a registry."""


def version_of_filters() -> Any:
    """Return the version of the filters, with which Python marks what it has shown of a module."""
    registry: dict[Any, Any] = {}
    with patched(warnings, "_showwarnmsg", lambda _: None), contextlib.suppress(_Probe):
        warnings.warn_explicit("", _Probe, "", 1, registry=registry)
    return registry.get("version")
